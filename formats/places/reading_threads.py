"""Number of threads that a read may use: all CPUs, or fewer where the caller limits it, as a task of Spark does."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import chain, islice
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future

MOST = 8
_limit: ContextVar[int | None] = ContextVar("reading_threads", default=None)


def processors() -> int:
    """CPUs that one read may use, at most MOST."""
    return min(len(os.sched_getaffinity(0)), MOST)


def reading_threads() -> int:
    """Number of threads for a read that begins now."""
    found = _limit.get()
    return processors() if found is None else found


def are_for_tasks() -> bool:
    """Return whether reads are planned here for tasks, which list and fetch for themselves."""
    return _limit.get() is not None


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


# Work in several threads with results in the order of the pieces


P = TypeVar("P")
R = TypeVar("R")


def for_each(work: Callable[[P], object], pieces: Iterable[P], threads: int) -> None:
    """Call ``work`` for each piece. Raises the first error; pieces that are not begun by then are left out."""
    for _ in in_order(work, pieces, threads):
        pass


def in_order(work: Callable[[P], R], pieces: Iterable[P], threads: int) -> Iterator[R]:
    """Yield ``work(piece)`` for each piece in order.

    With several threads, work runs ahead of the consumer by at most two pieces a thread. A generator that is closed
    early waits for the work under way. An error is raised where its result would have been yielded. No threads begin
    for a single piece.
    """
    pieces = iter(pieces)
    first = [] if threads <= 1 else list(islice(pieces, 2))
    if len(first) < 2:
        for piece in chain(first, pieces):
            yield work(piece)
        return
    from concurrent.futures import ThreadPoolExecutor

    waiting: deque[Future[R]] = deque()
    pieces = chain(first, pieces)
    with ThreadPoolExecutor(threads) as pool:
        try:
            for piece in pieces:
                waiting.append(pool.submit(work, piece))
                if len(waiting) > 2 * threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
