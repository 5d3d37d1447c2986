"""Who may ask the explorer: a browser of this machine that was given the token.

The server listens on a loopback address. A page of another site can still make the browser ask it, under a name of its
own that leads to this machine (DNS rebinding), so the Host header has to name a loopback address, and each question
needs the token of the address that was printed. The page sends it in a header. A cookie would go to every server of
this machine that the browser visits, those of other users too, because cookies know no ports.
"""

from __future__ import annotations

import asyncio
import hmac
from dataclasses import dataclass
from typing import TYPE_CHECKING

from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADER = b"x-statestore-token"
USUAL_PORT = 80
CHART_STYLE = "'sha256-jSYQUrW7J0b3jPqhZP9C2Xh1PyJKHKXd4s0fpGGKrww='"
"""The style element that Observable Plot puts into each chart; its text never changes."""
POLICY = (
    f"default-src 'none'; script-src 'self'; style-src 'self' {CHART_STYLE}; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors http://127.0.0.1:* http://localhost:*"
)
HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
OPEN = ("/static/", "/download/")
"""Paths that need no token, as the page itself: the program, which anybody can install, and files whose addresses are
tokens of their own, for one download."""


@dataclass(frozen=True)
class Guard:
    """An ASGI application that passes on the requests that may be answered."""

    inner: ASGIApp
    token: str
    port: int

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.inner(scope, receive, send)
        elif scope["type"] != "http":
            return
        elif self._host(scope) not in self._hosts():
            await _refuse(send, 421, f"the address has to begin with http://127.0.0.1:{self.port}/")
        elif scope["path"] == "/" or scope["path"].startswith(OPEN) or self._is_known(scope):
            await self.inner(scope, receive, _with_headers(send))
        else:
            await _refuse(send, 403, "open the address that statestore explore printed; it ends in the token")

    def _hosts(self) -> tuple[str, ...]:
        names = ("127.0.0.1", "localhost", "[::1]")
        usual = names if self.port == USUAL_PORT else ()  # browsers leave it out
        return (*(f"{name}:{self.port}" for name in names), *usual)

    def _host(self, scope: Scope) -> str:
        found = [value for name, value in scope["headers"] if name == b"host"]
        return found[0].decode("latin-1").lower() if len(found) == 1 else ""

    def _is_known(self, scope: Scope) -> bool:
        found = [value for name, value in scope["headers"] if name == HEADER]
        return len(found) == 1 and self._is_right(found[0].decode("latin-1"))

    def _is_right(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self.token.encode())


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *HEADERS]}
        await send(message)

    return sending


async def _refuse(send: Send, status: int, text: str) -> None:
    await _send(send, status, f"{text}\n".encode(), [(b"content-type", b"text/plain; charset=utf-8")])


async def _send(send: Send, status: int, body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [*headers, *HEADERS]})
    await send({"type": "http.response.body", "body": body})


# Connections that are held open without a question, or without reading the answer: they are closed.
#
# Every user of the machine can connect to the port, and uvicorn waits without end for the first request of a
# connection, for the rest of one that comes slowly, and for a client that reads no more.

SECONDS = 10.0
"""Between two looks at a connection. One that has no whole request from one look to the next is closed."""
LOOKS = 30
"""In a row at which nothing more of an answer was read, before its connection is closed: a browser may pause."""
MOST = 128
"""Connections at a time. For more, those that are not being answered are closed, the longest without progress first."""


class Connection(H11Protocol):
    """A connection of uvicorn that stays open as long as there is progress."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._requests = self._resumed = self._still = 0
        self._known = self._progress()
        self._since = self.loop.time()
        self._next_look = self.loop.call_later(SECONDS, self._look)
        open_ones = [
            each for each in self.connections if isinstance(each, Connection) and not each.transport.is_closing()
        ]
        if len(open_ones) > MOST:
            unanswered = [each for each in open_ones if not each._is_answered()]
            min(unanswered, key=lambda each: each._since).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._next_look.cancel()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:  # a request is whole, but for a body, which no question has
            self._requests += 1
            self._since = self.loop.time()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._resumed += 1
        self._since = self.loop.time()

    def _progress(self) -> tuple[int, int, int]:
        return self._requests, self._resumed, self.transport.get_write_buffer_size()

    def _is_answered(self) -> bool:
        """Return whether the server has to go on, not the client."""
        is_asked = self.cycle is not None and not self.cycle.response_complete
        return is_asked and not self.transport.get_write_buffer_size()

    def _look(self) -> None:
        progress = self._progress()
        self._still = self._still + 1 if progress == self._known else 0
        self._known = progress
        is_read_slowly = self.transport.get_write_buffer_size() > 0
        if not self._is_answered() and self._still >= (LOOKS if is_read_slowly else 1):
            self.transport.abort()
        else:
            self._next_look = self.loop.call_later(SECONDS, self._look)
