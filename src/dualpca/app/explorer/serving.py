"""Open a port, say where, answer until Ctrl-C."""

from __future__ import annotations

import secrets
import socket
import webbrowser
from typing import Any, NamedTuple

from dualpca.app.explorer.guard import Guard, _is_loopback
from dualpca.app.explorer.session import Session
from dualpca.app.tables.dialects import TableError

WAITING = 128
"""Connections that are open at once at most."""

LEAST = 8
"""Characters of a token that is given."""


class Door(NamedTuple):
    """A bound socket and the link that leads to it."""

    socket: socket.socket
    host: str
    port: int
    token: str

    @property
    def link(self) -> str:
        """Return the link to open."""
        name = f"[{self.host}]" if ":" in self.host else self.host
        name = socket.gethostname() if self.host in ("0.0.0.0", "::") else name
        return f"http://{name}:{self.port}/?token={self.token}"

    @property
    def is_private(self) -> bool:
        """Say whether only this machine can reach it."""
        return _is_loopback(self.host)


def open_door(host: str, port: int, token: str | None = None) -> Door:
    """Bind a port, any free one for 0, before the browser is told of it."""
    token = secrets.token_urlsafe(24) if token is None else token
    if len(token) < LEAST or not all(c.isascii() and (c.isalnum() or c in "-_") for c in token):
        raise TableError(f"--token: expected {LEAST} letters, digits, - or _ at least.")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns Nagle's waiting (40 ms an answer) off only where the protocol is named
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
        found.listen(WAITING)  # who is quicker than the server waits for it
    except OSError as error:
        found.close()
        why = error.strerror or str(error)
        raise TableError(
            f"{host}:{port} cannot be used: {why}. Leave --port out for a free one."
        ) from None
    return Door(found, host, int(found.getsockname()[1]), token)


def application(session: Session, door: Door, **limits: Any) -> Guard:
    """Return the guarded application."""
    from dualpca.app.explorer.app import create

    return Guard(create(session, secrets.token_hex(4)), door.token, door.host, door.port, **limits)


def prepare(session: Session, door: Door, show: bool) -> Any:
    """Return the server, all imported and built, so that a link that is printed works at once."""
    import uvicorn

    class Server(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            if show:
                webbrowser.open(door.link)

    settings = uvicorn.Config(
        application(session, door),
        log_level="error",
        access_log=False,  # it would write the token down
        server_header=False,
        limit_concurrency=WAITING,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=2,
        ws="none",
    )
    return Server(settings)


def serve(server: Any, door: Door) -> None:
    """Answer until Ctrl-C."""
    try:
        server.run(sockets=[door.socket])
    except KeyboardInterrupt:
        pass
    finally:
        door.socket.close()
