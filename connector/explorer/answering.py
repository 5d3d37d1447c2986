"""From a request to its answer: in line, in a thread, within limits, and an error as a sentence.

Questions of a kind stand in a line of their own, so that those that take a minute never keep out those that take a
moment.
"""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import anyio
import anyio.to_thread
import pyarrow as pa
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from statestore.connector.explorer.limits import ASKED, Limits, NobodyWaits
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, NotFoundError, StateStoreError
from statestore.formats.notices import notices_to

ARROW = "application/vnd.apache.arrow.stream"
NOTICES, MAX_NOTICES = "x-statestore-notices", 8
"""Header with the reasons, as a list in JSON, why rows of an answer may not be current (`formats.notices`)."""
Answer = TypeVar("Answer")


@dataclass
class Line:
    """Questions of one kind: ``threads`` of them are answered at a time, ``waiting`` more wait, and others are refused.

    ``kind`` is their name in the plural.
    """

    kind: str
    threads: int
    waiting: int
    _asked: int = 0
    _limiter: anyio.CapacityLimiter | None = field(default=None, repr=False)

    async def answered(self, request: Request, work: Callable[[Limits], Any]) -> Response:
        """Return the answer of a thread, or its error as a sentence; the work ends when the page asks no longer.

        The time of the limits begins when the work does.
        """
        if self._asked >= self.threads + self.waiting:
            return _refusal(ErrorCode.EXPLORER_LIMIT, self._full(), 503)
        limits = Limits()
        if name := request.query_params.get("ask"):
            ASKED[name] = limits
        found: Any = NobodyWaits()
        self._asked += 1
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(_watch, request, limits, group.cancel_scope)
                # What waits for a thread is cancelled with the group; what has one ends by its limits.
                found = await anyio.to_thread.run_sync(_caught, work, limits, limiter=self._threads())
                group.cancel_scope.cancel()
        finally:
            self._asked -= 1
            limits.gone.set()
        if isinstance(found, Exception):
            return _error(found)
        headers = {NOTICES: json.dumps(limits.notices[:MAX_NOTICES])} if limits.notices else None
        if isinstance(found, pa.Table):
            return Response(_stream(found), media_type=ARROW, headers=headers)
        return JSONResponse(found, headers=headers)

    def _threads(self) -> anyio.CapacityLimiter:
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(self.threads)
        return self._limiter

    def _full(self) -> str:
        return (
            f"the explorer has {self.threads + self.waiting} {self.kind} to answer, and takes no more at a time; wait "
            "for an answer or cancel a question, and then try again"
        )


@dataclass(frozen=True)
class Lines:
    """The lines of the explorer. Metadata answers a look; a statement may need all of the memory for statements."""

    looks: Line = field(default_factory=lambda: Line("questions about metadata", 8, 56))
    reads: Line = field(default_factory=lambda: Line("questions that read rows", 16, 48))
    exports: Line = field(default_factory=lambda: Line("exports", 2, 6))
    statements: Line = field(default_factory=lambda: Line("statements", 1, 7))


async def _watch(request: Request, limits: Limits, scope: anyio.CancelScope) -> None:
    while not await request.is_disconnected():
        await anyio.sleep(0.1)
    limits.gone.set()
    scope.cancel()


def _caught(work: Callable[[Limits], Answer], limits: Limits) -> Answer | Exception:
    limits.begun = time.monotonic()
    try:
        limits.check()
        with notices_to(lambda text: limits.heard([text])):
            return work(limits)
    except Exception as error:  # what nobody expected is a sentence on the page, too, and its place on stderr
        if not isinstance(error, StateStoreError | OSError | MemoryError | RecursionError | NobodyWaits):
            traceback.print_exc()
        return error


def _error(error: Exception) -> Response:
    if isinstance(error, StateStoreError):
        status = 404 if isinstance(error, NotFoundError) else 400 if isinstance(error, InvalidInputError) else 409
        return _refusal(error.code, error.message, status)
    if isinstance(error, NobodyWaits):
        return Response(status_code=499)
    if isinstance(error, MemoryError):
        text = "the answer does not fit into memory; narrow the question"
    elif isinstance(error, RecursionError):
        text = "the answer is nested too deeply to be shown; read it with statestore export"
    elif isinstance(error, OSError):
        text = str(error)
    else:
        text = f"the explorer failed: {type(error).__name__}: {error}"
    return _refusal("", text, 500)


def _refusal(code: str, text: str, status: int) -> Response:
    return JSONResponse({"code": code, "error": text}, status)


def _stream(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    found: bytes = sink.getvalue().to_pybytes()
    return found
