"""`dualpca reproduce`: the figures of the source documents, made again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dualpca.app.cli._options import Json, Seed
from dualpca.app.cli._running import INTERRUPTED, run

if TYPE_CHECKING:
    from dualpca.app.experiments.running import Record

FOLDER = Path("dualpca-figures")


def reproduce(
    names: Annotated[
        list[str] | None, typer.Argument(help="Which figures (see --list); all of them if none.")
    ] = None,
    folder: Annotated[
        Path, typer.Option("--output", "-o", help="Folder to write to; made if need be.")
    ] = FOLDER,
    listing: Annotated[bool, typer.Option("--list", help="Say which figures there are.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Smaller settings: for a look, not for the numbers.")
    ] = False,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Make the figures of the source documents again: PNG, SVG, numbers, and a gallery page."""
    if listing:
        run("reproduce", as_json, _listed, _listing_words)
        return
    found: dict[str, Any] = {}

    def work() -> dict[str, Any]:
        found.update(_made(names or [], folder, seed, quick, quiet=as_json))
        return found

    run("reproduce", as_json, work, _words)
    if found["interrupted"] or found["problems"]:
        raise typer.Exit(INTERRUPTED if found["interrupted"] else 1)


def _listed() -> dict[str, Any]:
    from dualpca.app.experiments import EXPERIMENTS

    return {
        "experiments": [
            {"name": one.name, "source": one.source, "title": one.title}
            for one in EXPERIMENTS.values()
        ]
    }


def _listing_words(found: dict[str, Any]) -> str:
    rows = found["experiments"]
    wide, source = (max(len(row[key]) for row in rows) for key in ("name", "source"))
    return "\n".join(
        f"{row['name']:{wide}}  {row['source']:{source}}  {row['title']}" for row in rows
    )


def _made(names: list[str], folder: Path, seed: int, quick: bool, quiet: bool) -> dict[str, Any]:
    """Run the experiments; an interruption ends them and keeps what is finished."""
    from dualpca.app.experiments import EXPERIMENTS
    from dualpca.app.experiments.gallery import PAGE
    from dualpca.app.experiments.running import reproduce

    done: list[Record] = []

    def tell(record: Record) -> None:
        done.append(record)
        if not quiet:
            print(_line(record), flush=True)

    interrupted = False
    try:
        reproduce(names, folder, seed=seed, quick=quick, progress=tell)
    except KeyboardInterrupt:
        interrupted = True
    return {
        "page": str(folder / PAGE),
        "asked": len(dict.fromkeys(names or EXPERIMENTS)),
        "made": [record._asdict() for record in done if not record.problem],
        "problems": {record.name: record.problem for record in done if record.problem},
        "seconds": round(sum(record.seconds for record in done), 1),
        "interrupted": interrupted,
    }


def _line(record: Record) -> str:
    words = f"not made: {record.problem}" if record.problem else f"{record.seconds:.1f} s"
    return f"{record.name}  {words}"


def _words(found: dict[str, Any]) -> str:
    count = f"{len(found['made'])} of {found['asked']}"
    start = "Interrupted: " if found["interrupted"] else ""
    return f"{start}{count} made in {found['seconds']:.1f} s. Open {found['page']} in a browser."


COMMANDS = {"reproduce": reproduce}
