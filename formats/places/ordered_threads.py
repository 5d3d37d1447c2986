"""Work in several threads with results in the order of the pieces."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

P = TypeVar("P")
R = TypeVar("R")


def in_order(work: Callable[[P], R], pieces: Iterable[P], threads: int) -> Iterator[R]:
    """Yield ``work(piece)`` for each piece in order.

    With several threads, work runs ahead of the consumer by at most two pieces a thread. A generator that is closed
    early waits for the work under way. An error is raised where its result would have been yielded.
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
