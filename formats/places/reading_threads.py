"""Number of threads that a read may use: all CPUs, or fewer where the caller limits it, as a task of Spark does."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

MOST = 8
_limit: ContextVar[int | None] = ContextVar("reading_threads", default=None)


def processors() -> int:
    """CPUs that one read may use, at most MOST."""
    return min(len(os.sched_getaffinity(0)), MOST)


def reading_threads() -> int:
    """Number of threads for a read that begins now."""
    found = _limit.get()
    return processors() if found is None else found


@contextmanager
def reading_in_tasks() -> Iterator[None]:
    """Plan reads in this block for tasks of one thread each, which run side by side."""
    before = _limit.set(1)
    try:
        yield
    finally:
        _limit.reset(before)


def limit_reading_threads(count: int) -> None:
    """Limit reads that begin later in this thread to ``count`` threads."""
    _limit.set(count)
