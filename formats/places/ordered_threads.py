"""Work of several threads, its results in the order of its pieces."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

P = TypeVar("P")
R = TypeVar("R")


def in_order(work: Callable[[P], R], pieces: Iterable[P], threads: int) -> Iterator[R]:
    """``work`` of each piece. With several threads they are at most two pieces each ahead of who takes the results.

    A generator that is left early waits for what is under way. Errors come where their result would have come.
    """
    if threads <= 1:
        for piece in pieces:
            yield work(piece)
        return
    waiting: deque[Future[R]] = deque()
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
