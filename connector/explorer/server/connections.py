"""Connections that are held open without a question, or without reading the answer: they are closed.

Every user of the machine can connect to the port, and uvicorn waits without end for the first request of a connection,
for the rest of one that comes slowly, and for a client that reads no more.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

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
