"""Requests that a proxy has seen, and how long a chain of them is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

ANSWERED, DROPPED, REFUSED, LOST, CUT, FAILED = "answered", "dropped", "refused", "lost", "cut", "failed"


@dataclass(frozen=True)
class Request:
    """A request that has ended. ``path`` has the query; ``status`` is that of the server or proxy, 0 without one;
    ``fate`` is one of the words above, ``failed`` where the server did not answer. ``sent`` bytes came from the client,
    ``received`` bytes went to it. ``start`` and ``end`` are in seconds of the monotonic clock.
    """

    method: str
    path: str
    status: int
    fate: str
    sent: int
    received: int
    start: float
    end: float


def by_method(requests: Iterable[Request]) -> Counter[str]:
    """The number of requests of each method."""
    return Counter(request.method for request in requests)


def rounds(requests: Iterable[Request]) -> int:
    """The length of the longest chain of requests of which each began after the one before had ended: how often
    somebody has waited for the store, whatever was asked at the same time."""
    count, free = 0, float("-inf")
    for request in sorted(requests, key=lambda request: request.end):
        if request.start >= free:
            count, free = count + 1, request.end
    return count
