"""How many threads a read may use: those of the machine, unless who reads says otherwise, as a task of Spark does."""

from __future__ import annotations

import os
from contextvars import ContextVar

MOST = 8
_limit: ContextVar[int | None] = ContextVar("reading_threads", default=None)


def reading_threads() -> int:
    """Threads for the read that begins now."""
    found = _limit.get()
    return min(len(os.sched_getaffinity(0)), MOST) if found is None else found


def limit_reading_threads(count: int) -> None:
    """Reads that begin later in this thread use ``count`` threads."""
    _limit.set(count)
