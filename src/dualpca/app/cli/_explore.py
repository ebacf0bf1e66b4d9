"""`dualpca explore`."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

import dualpca
from dualpca.app.cli._options import Encoding, Format, Identifier, Json, Model
from dualpca.app.cli._running import run
from dualpca.app.tables import tables


def explore(
    model: Model,
    data: Annotated[str | None, typer.Argument(help="A table to show in latent space.")] = None,
    image: Annotated[
        str | None, typer.Option("--image", help="Rows are images: height x width, as 8x8.")
    ] = None,
    curve: Annotated[bool, typer.Option("--curve", help="Rows are curves.")] = False,
    host: Annotated[str, typer.Option(help="Address to answer on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 is any free one.")] = 0,
    token: Annotated[
        str | None, typer.Option("--token", help="Of the link, for tests; random unless given.")
    ] = None,
    show: Annotated[bool, typer.Option("--open/--no-open", help="Open a browser.")] = True,
    id_column: Identifier = None,
    kind: Format = None,
    encoding: Encoding = "utf-8",
    as_json: Json = False,
) -> None:
    """Look inside a model in the browser; Ctrl-C ends it."""
    held: list[Any] = []

    def work() -> dict[str, Any]:
        from dualpca.app.explorer.opening import open_session
        from dualpca.app.explorer.serving import open_door, prepare

        fitted, metadata = dualpca.load(model, return_metadata=True)
        frame = None if data is None else tables.read(data, kind, encoding)
        source = data or "no table"
        session = open_session(
            fitted, frame, metadata, image=image, curve=curve, id_column=id_column, source=source
        )
        door = open_door(host, port, token)
        held.extend((prepare(session, door, show), door))
        if not door.is_private:
            _warn(host)
        return {"url": door.link, "port": door.port, "model": fitted, "rows": session.n}

    try:
        run("explore", as_json, work, _words)
        from dualpca.app.explorer.serving import serve

        sys.stdout.flush()
        serve(*held)
    except KeyboardInterrupt:  # after the link was printed, before anybody had begun to listen
        pass
    if not as_json:
        print("Stopped.")


def _warn(host: str) -> None:
    print(
        f"warning: --host {host} lets other machines reach this port. Whoever has the "
        "link sees the data, and the link travels unencrypted.",
        file=sys.stderr,
    )


def _words(found: dict[str, Any]) -> str:
    return f"Exploring {found['model']} with {found['rows']} rows. Ctrl-C ends it.\n{found['url']}"


COMMANDS = {"explore": explore}
