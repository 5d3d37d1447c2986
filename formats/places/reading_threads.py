"""How many threads a read may use: those of the machine, unless who reads says otherwise, as a task of Spark does."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

MOST = 8
_limit: ContextVar[int | None] = ContextVar("reading_threads", default=None)


def processors() -> int:
    """Those of the machine that reads should keep busy."""
    return min(len(os.sched_getaffinity(0)), MOST)


def reading_threads() -> int:
    """Threads for the read that begins now."""
    found = _limit.get()
    return processors() if found is None else found


@contextmanager
def reading_in_tasks() -> Iterator[None]:
    """What is planned in here is read by tasks of one thread each, side by side."""
    before = _limit.set(1)
    try:
        yield
    finally:
        _limit.reset(before)


def limit_reading_threads(count: int) -> None:
    """Reads that begin later in this thread use ``count`` threads."""
    _limit.set(count)
