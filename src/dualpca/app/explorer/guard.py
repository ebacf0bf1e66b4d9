"""Who may ask, how much and how often. Everything is refused in words, before the app sees it."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import secrets
import socket
import time
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

MOST_BYTES = 1 << 20
"""Of a request's body."""

SECONDS = 10.0
"""That a body may take to arrive."""

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
    """At most `rate` requests a second over time, and `burst` at once.

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
        """Say whether one more request is within the limit."""
        now = self.clock()
        self.left = min(self.burst, self.left + (now - self.at) * self.rate)
        self.at = now
        if self.left < 1:
            return False
        self.left -= 1
        return True


class Refused(Exception):
    """A request that is not answered: status and words."""

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
        The address that the server is bound to.
    port : int
    rate, burst : float, int
        Requests a second with the token. Without it there are a tenth, in a bucket of their own,
        so that guessing neither succeeds nor locks the owner out.
    """

    def __init__(
        self, app: Any, token: str, host: str, port: int, rate: float = 200, burst: int = 400
    ) -> None:
        self.app, self.token, self.host, self.port = app, token, host, port
        self.cookie = f"dualpca-{port}"  # browsers share cookies between ports
        self.known, self.unknown = Bucket(rate, burst), Bucket(rate / 10, burst // 10)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or refuse it."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        headers = {k.decode("latin-1").lower(): v.decode("latin-1") for k, v in scope["headers"]}
        sender = self._sealed(send)
        try:
            await self._admit(scope, headers, receive, sender)
        except Refused as refused:
            await _answer(sender, refused, plain="text/html" in headers.get("accept", ""))

    async def _admit(self, scope: Scope, headers: dict[str, str], receive: Any, send: Any) -> None:
        self._check_host(headers)
        way = self._way_in(scope, headers)
        if not (self.unknown if way is None else self.known).take():
            raise Refused(429, "Too many requests: wait a second.")
        if way is None:
            raise Refused(401, "The token is missing or wrong. Open the link in the terminal.")
        self._check_origin(scope, headers, way)
        body = await _read(headers, receive)
        if way == "address" and scope["path"] == "/":
            send = self._with_cookie(send)
        await self.app(scope, _replay(body, receive), send)

    def _check_host(self, headers: dict[str, str]) -> None:
        """Refuse other names for this machine: pages elsewhere could point one here."""
        name, _, port = headers.get("host", "").rpartition(":")
        if not name or port != str(self.port) or not self._is_ours(name.strip("[]").lower()):
            raise Refused(403, "This address is not the explorer's. Open the link in the terminal.")

    def _is_ours(self, name: str) -> bool:
        if name in ("127.0.0.1", "localhost", "::1", self.host):
            return True
        if _is_loopback(self.host):
            return False
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name == socket.gethostname().lower()
        return True  # an address, not a name, cannot be pointed elsewhere

    def _check_origin(self, scope: Scope, headers: dict[str, str], way: str) -> None:
        """Refuse what pages of other origins ask for; only a link may come from elsewhere."""
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
        own = origin == f"http://{headers['host']}"
        changes = scope["method"] not in ("GET", "HEAD") and way == "cookie"
        if (origin is None and changes) or (origin is not None and not own):
            raise Refused(403, "Requests from other pages are refused.")
        if site not in ("same-origin", "none") and way != "address":
            raise Refused(403, "Requests from other pages are refused.")

    def _way_in(self, scope: Scope, headers: dict[str, str]) -> str | None:
        """Return where the right token was: 'header', 'cookie' or 'address'; None if nowhere."""
        query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
        found = {
            "header": headers.get(HEADER),
            "address": query.get("token", [None])[0] if scope["path"] == "/" else None,
            "cookie": _cookie(headers.get("cookie", ""), self.cookie),
        }
        for way, token in found.items():
            if token and secrets.compare_digest(token.encode(), self.token.encode()):
                return way
        return None

    def _with_cookie(self, send: Send) -> Send:
        value = f"{self.cookie}={self.token}; HttpOnly; SameSite=Strict; Path=/"

        async def sender(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"set-cookie", value.encode())]
            await send(message)

        return sender

    @staticmethod
    def _sealed(send: Send) -> Send:
        extra = [(k.encode(), v.encode()) for k, v in HEADERS.items()]

        async def sender(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), *extra]
            await send(message)

        return sender


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _cookie(text: str, name: str) -> str | None:
    try:
        found = SimpleCookie(text).get(name)
    except CookieError:
        return None
    return None if found is None else found.value


async def _read(headers: dict[str, str], receive: Receive) -> bytes:
    """Return the whole body, unless it is too long or takes too long."""
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
    """Return the body once more, then what comes after it (that the client has gone)."""
    waiting = [body]

    async def receiver() -> MutableMapping[str, Any]:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}
        return await receive()

    return receiver


async def _answer(send: Send, refused: Refused, plain: bool) -> None:
    """Say why, as a sentence to people and as JSON to programs."""
    body = (refused.words if plain else json.dumps({"error": refused.words})).encode()
    kind = b"text/plain; charset=utf-8" if plain else b"application/json"
    headers = [(b"content-type", kind), (b"content-length", b"%d" % len(body))]
    if refused.status == 429:
        headers.append((b"retry-after", b"1"))
    start = {"type": "http.response.start", "status": refused.status, "headers": headers}
    await send(start)
    await send({"type": "http.response.body", "body": body})
