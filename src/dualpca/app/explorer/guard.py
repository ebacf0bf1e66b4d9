"""Who may send requests, how large and how often. Refusals are sentences, before the app is asked.

Starlette's TrustedHostMiddleware is not used: it ignores the port, has no rule for addresses, and
answers without the headers and the sentence that the page shows.
"""

from __future__ import annotations

import asyncio
import ipaddress
import secrets
import socket
import time
from collections.abc import Callable
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import Message, Receive, Scope, Send

from dualpca.app.explorer.connections import KNOWN

MOST_BYTES = 1 << 20
"""Size of the largest request body."""

SECONDS = 10.0
"""Time in which a body must arrive."""

AT_ONCE = 16
"""Requests that are worked on; others wait for their turn."""

HEADER = "x-dualpca-token"

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}


class Bucket:
    """A rate limit: `rate` requests per second over time, and `burst` at once.

    Examples
    --------
    >>> bucket = Bucket(rate=1, burst=2, clock=lambda: 0.0)
    >>> bucket.take(), bucket.take(), bucket.take()
    (True, True, False)
    """

    def __init__(
        self, rate: float, burst: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.rate, self.burst, self.clock = rate, burst, clock
        self.left, self.at = float(burst), clock()

    def take(self) -> bool:
        """Return True if one more request is within the limit."""
        now = self.clock()
        self.left = min(self.burst, self.left + (now - self.at) * self.rate)
        self.at = now
        if self.left < 1:
            return False
        self.left -= 1
        return True


class Refused(Exception):
    """A request that is refused: status and reason."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status, self.words = status, words


class Guard:
    """ASGI middleware: Host, Origin, token, counts and sizes; then security headers.

    Parameters
    ----------
    app : ASGI application
    token : str
    host : str
        Address that the server is bound to.
    port : int
    rate, burst : float, int
        Requests per second, and at once, with the token. Requests without it have a tenth, in a
        bucket of their own, so that guessing neither succeeds nor locks the owner out.
    """

    def __init__(
        self, app: Any, token: str, host: str, port: int, rate: float = 200, burst: int = 400
    ) -> None:
        self.app, self.token, self.host, self.port = app, token, host, port
        self.cookie = f"dualpca-{port}"  # browsers share cookies between ports
        self.known, self.unknown = Bucket(rate, burst), Bucket(rate / 10, burst // 10)
        self.turns = asyncio.Semaphore(AT_ONCE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or refuse it."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        connection = HTTPConnection(scope)
        sender = _adding(send, HEADERS)
        try:
            await self._admit(connection, receive, sender)
        except Refused as refused:
            await _answer(refused, connection)(scope, receive, sender)

    async def _admit(self, connection: HTTPConnection, receive: Receive, send: Send) -> None:
        self._check_host(connection.headers)
        way = self._way_in(connection)
        if not (self.unknown if way is None else self.known).take():
            raise Refused(429, "Too many requests: wait a second.")
        if way is None:
            raise Refused(401, "The token is missing or wrong. Open the link in the terminal.")
        connection.scope[KNOWN] = True
        self._check_origin(connection, way)
        body = await _read(connection.headers, receive)
        if way == "address" and connection.scope["path"] == "/":
            cookie = f"{self.cookie}={self.token}; HttpOnly; SameSite=Strict; Path=/"
            send = _adding(send, {"set-cookie": cookie})
        async with self.turns:
            await self.app(connection.scope, _replay(body, receive), send)

    def _check_host(self, headers: Headers) -> None:
        """Refuse other names for this machine: a page elsewhere could point one here."""
        name, _, port = headers.get("host", "").rpartition(":")
        if not name or port != str(self.port) or not self._is_ours(name.strip("[]").lower()):
            raise Refused(403, "This is not the explorer's address. Open the link in the terminal.")

    def _is_ours(self, name: str) -> bool:
        if name in ("127.0.0.1", "localhost", "::1", self.host):
            return True
        if is_loopback(self.host):
            return False
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name == socket.gethostname().lower()
        return True  # only names can be pointed elsewhere

    def _check_origin(self, connection: HTTPConnection, way: str) -> None:
        """Refuse requests from pages of other origins; only a link may come from elsewhere."""
        headers = connection.headers
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
        own = origin == f"http://{headers['host']}"
        changes = connection.scope["method"] not in ("GET", "HEAD") and way == "cookie"
        if (origin is None and changes) or (origin is not None and not own):
            raise Refused(403, "Requests from other pages are refused.")
        if site not in ("same-origin", "none") and way != "address":
            raise Refused(403, "Requests from other pages are refused.")

    def _way_in(self, connection: HTTPConnection) -> str | None:
        """Return where the right token was: 'header', 'cookie' or 'address'; None if nowhere."""
        root = connection.scope["path"] == "/"
        found = {
            "header": connection.headers.get(HEADER),
            "address": connection.query_params.get("token") if root else None,
            "cookie": connection.cookies.get(self.cookie),
        }
        for way, token in found.items():
            if token and secrets.compare_digest(token.encode(), self.token.encode()):
                return way
        return None


def is_loopback(host: str) -> bool:
    """Return True if only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _adding(send: Send, extra: dict[str, str]) -> Send:
    """Return a sender that adds headers to the response."""

    async def sender(message: Message) -> None:
        if message["type"] == "http.response.start":
            message.setdefault("headers", [])
            headers = MutableHeaders(scope=message)
            for name, value in extra.items():
                headers.append(name, value)
        await send(message)

    return sender


async def _read(headers: Headers, receive: Receive) -> bytes:
    """Return the whole body; refuse one that is too large or too slow."""
    length = headers.get("content-length", "0")
    digits = length.isascii() and length.isdigit() and len(length) < 16
    if not digits or int(length) > MOST_BYTES:
        raise Refused(413, f"The request is larger than {MOST_BYTES} bytes.")
    parts, size, more = [], 0, True
    try:
        async with asyncio.timeout(SECONDS):
            while more:
                message = await receive()
                part = message.get("body", b"")
                size += len(part)
                if size > MOST_BYTES:
                    raise Refused(413, f"The request is larger than {MOST_BYTES} bytes.")
                parts.append(part)
                more = message["type"] == "http.request" and message.get("more_body", False)
    except TimeoutError:
        raise Refused(408, "The request took too long to arrive.") from None
    return b"".join(parts)


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return the body again, then what follows it (that the client has gone)."""
    waiting = [body]

    async def receiver() -> Message:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}
        return await receive()

    return receiver


def _answer(refused: Refused, connection: HTTPConnection) -> Response:
    """Return the reason: a sentence for people, JSON for programs."""
    headers = {"retry-after": "1"} if refused.status == 429 else None
    if "text/html" in connection.headers.get("accept", ""):
        return PlainTextResponse(refused.words, refused.status, headers)
    return JSONResponse({"error": refused.words}, refused.status, headers)
