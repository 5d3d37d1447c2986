"""A proxy before an object store that delays and loses answers, refuses requests, and writes down what it has seen.

It is a thread of the present process with an event loop. Requests reach the server byte for byte, so signatures hold,
over a connection of their own for each connection of a client.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

from support.object_stores.faults import Faults
from support.object_stores.http_messages import LIMIT, Message, header, read_answer, read_body, read_head, refusal
from support.object_stores.requests_seen import ANSWERED, CUT, DROPPED, FAILED, LOST, REFUSED, Request

HOST = "127.0.0.1"
IDLE_S = 1.0  # after which the server may be about to close a connection: Azurite does after 5
Pipe = tuple[asyncio.StreamReader, asyncio.StreamWriter]
BROKEN = (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError)


class Proxy:
    """A running proxy; ``endpoint`` is its URL, with the path of the server's."""

    def __init__(self, server: str, faults: Faults) -> None:
        address = urlsplit(server)
        self._server = address.hostname or HOST, address.port or 80
        self._lock = threading.Lock()
        self._faults, self._concerned, self._struck = faults, 0, 0
        self._requests: list[Request] = []
        self._open: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="proxy", daemon=True)
        self._listener = socket.create_server((HOST, 0), backlog=512)
        self.endpoint = urlunsplit(("http", f"{HOST}:{self._listener.getsockname()[1]}", address.path, "", ""))

    @property
    def faults(self) -> Faults:
        """Faults of requests. Numbers start again when it is set."""
        return self._faults

    @faults.setter
    def faults(self, faults: Faults) -> None:
        with self._lock:
            self._faults, self._concerned, self._struck = faults, 0, 0

    @property
    def requests(self) -> list[Request]:
        """The requests that have ended since the last `clear`, in the order of their ends."""
        with self._lock:
            return list(self._requests)

    def clear(self) -> None:
        """Forget the requests; faults go on counting."""
        with self._lock:
            self._requests.clear()

    def start(self) -> None:
        """Start to serve, in a thread."""
        self._thread.start()
        self._ready.wait()

    def end(self) -> None:
        """Close the door and all connections."""
        assert self._loop and self._stop
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._connection, sock=self._listener, limit=LIMIT)
        self._ready.set()
        await self._stop.wait()
        server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
        await asyncio.sleep(0)  # closed connections go in the loop's next turn

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        connection = _Connection(self, self._server, (reader, writer))
        try:
            while await connection.serve_one():
                pass
        except (*BROKEN, asyncio.CancelledError):
            pass  # the client has gone, or the proxy ends
        finally:
            connection.close()
            self._open.discard(task)

    def plan(self, method: str, path: str) -> tuple[Faults, str, float]:
        """The faults in force, the fate of the next request, and its delay in seconds."""
        with self._lock:
            faults = self._faults
            if not faults.concerns(method, path):
                return faults, ANSWERED, 0.0
            number = self._concerned
            self._concerned += 1
            fate = faults.fate(number)
            if fate != ANSWERED:
                if faults.most is not None and self._struck >= faults.most:
                    fate = ANSWERED
                else:
                    self._struck += 1
            return faults, fate, faults.delay_s(number)

    def note(self, request: Request) -> None:
        """Add a request to those that have ended."""
        with self._lock:
            self._requests.append(request)


@dataclass
class _Connection:
    """A connection of a client, and one to the server while there are requests."""

    proxy: Proxy
    server: tuple[str, int]
    client: Pipe
    upstream: Pipe | None = None
    used: float = 0.0

    async def serve_one(self) -> bool:
        """Serve a request; return whether another one may follow."""
        reader, writer = self.client
        head = await read_head(reader)
        start = time.monotonic()
        if header(head, "expect").lower() == "100-continue":
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request = Message(head, await read_body(reader, head))
        faults, fate, delay = self.proxy.plan(request.method, request.path)
        answer = await self._answer(request, fate, faults)
        await asyncio.sleep(delay)
        if answer is None and fate != DROPPED:
            fate = FAILED
        output, status = _output(answer, fate), answer.status if answer else 0
        sent = len(request.head) + len(request.body)
        # Before the answer is written: who has it must find the request.
        seen = Request(request.method, request.path, status, fate, sent, len(output), start, time.monotonic())
        self.proxy.note(seen)
        writer.write(output)
        await writer.drain()
        if faults.reset and fate in (DROPPED, LOST, CUT):
            _reset_at_close(writer)
        return fate in (ANSWERED, REFUSED) and not request.closes and not (answer and answer.closes)

    async def _answer(self, request: Message, fate: str, faults: Faults) -> Message | None:
        if fate == DROPPED:
            return None
        if fate == REFUSED:
            return refusal(faults.status, request.method)
        try:
            reader, writer = await self._connected()
            # A server may answer before it has the whole request, and read no further.
            _, found = await asyncio.gather(
                _write(writer, request.head + request.body), read_answer(reader, request.method)
            )
        except BROKEN:
            self._leave_server()
            return None
        self.used = time.monotonic()
        # versitygw leaves the end of a body in chunks on the connection, before the next request.
        if found.closes or header(request.head, "transfer-encoding"):
            self._leave_server()
        return found

    async def _connected(self) -> Pipe:
        stale = time.monotonic() - self.used > IDLE_S
        if self.upstream and (stale or self.upstream[0].at_eof()):
            self._leave_server()
        if self.upstream is None:
            self.upstream = await asyncio.open_connection(*self.server, limit=LIMIT)
        return self.upstream

    def _leave_server(self) -> None:
        if self.upstream:
            self.upstream[1].close()
        self.upstream = None

    def close(self) -> None:
        if self.upstream:  # a request that the client left may be half sent, and the server is not awaited
            self.upstream[1].transport.abort()
        self.client[1].close()


async def _write(writer: asyncio.StreamWriter, data: bytes) -> None:
    with contextlib.suppress(OSError):
        writer.write(data)
        await writer.drain()


def _output(answer: Message | None, fate: str) -> bytes:
    if answer is None or fate == LOST:
        return b""
    whole = answer.head + answer.body
    return whole[: len(whole) - (len(answer.body) + 1) // 2] if fate == CUT else whole


def _reset_at_close(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@contextmanager
def proxy_before(server: str, faults: Faults | None = None) -> Iterator[Proxy]:
    """A proxy before the server with this URL, until the block ends; then its connections are closed."""
    proxy = Proxy(server, faults or Faults())
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.end()
