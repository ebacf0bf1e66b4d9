"""Connections that say nothing: closed after some seconds, and first where there are too many."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_CONNECTIONS = 512
"""Open at once; where there are more, one that never showed the token is closed."""

HEADER_SECONDS = 5.0
"""Time in which a request must arrive, from the connection or from its first byte."""

KNOWN = "dualpca.known"
"""Key of a request's scope that says that it showed the token."""


class Connection(H11Protocol):
    """HTTP as uvicorn speaks it, to those who speak back.

    A connection is open to anyone who can reach the port, token or not. Half a request, or none at
    all, keeps it for `HEADER_SECONDS`; where more than `MOST_CONNECTIONS` are open, the oldest one
    without a token makes room for the next.
    """

    known = False
    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Take a new connection, at the cost of a silent one if need be."""
        super().connection_made(transport)
        room: dict[Any, None] = self.app_state.setdefault("dualpca.connections", {})  # in order
        room[self] = None
        if len(room) > MOST_CONNECTIONS:
            strangers = (one for one in room if not one.is_known())
            next(strangers, self).transport.abort()
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a connection."""
        self.app_state.get("dualpca.connections", {}).pop(self, None)
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on; the time for a request begins with its first byte."""
        self.is_known()
        if self._waiting is None and not self._answering():
            self._wait()
        super().data_received(data)
        if self._answering():
            self._stop_waiting()

    def is_known(self) -> bool:
        """Return True if this connection has shown the token."""
        self.known = self.known or bool(self.scope and self.scope.get(KNOWN))
        return self.known

    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _wait(self) -> None:
        self._waiting = self.loop.call_later(HEADER_SECONDS, self._give_up)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _give_up(self) -> None:
        self._waiting = None
        if not self._answering():
            self.transport.abort()
