"""Durations of calls: all calls are counted and a sample is timed, so that measuring costs little."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter_ns

KEPT = 1024
SAMPLE = 63  # calls whose number has none of these bits are timed: one of 64


class Latency:
    """One kind of call. The hot paths of stores add to ``count`` and call ``add`` for the sample themselves."""

    __slots__ = ("_nanoseconds", "count")

    def __init__(self) -> None:
        self.count = 0
        self._nanoseconds: deque[int] = deque(maxlen=KEPT)

    def add(self, nanoseconds: int) -> None:
        """Record the duration of a timed call."""
        self._nanoseconds.append(nanoseconds)

    def report(self) -> dict[str, float | int | None]:
        """Return ``count`` of all calls, and ``mean_us`` and ``p99_us`` of the newest timed ones, None before the
        first.
        """
        timed = sorted(self._nanoseconds)
        if not timed:
            return {"count": self.count, "mean_us": None, "p99_us": None}
        last = timed[min(len(timed) * 99 // 100, len(timed) - 1)]
        return {"count": self.count, "mean_us": sum(timed) / len(timed) / 1000, "p99_us": last / 1000}


class Latencies:
    """The calls of one handle, by the names of Kafka's metered stores."""

    NAMES = ("put", "get", "fetch", "range", "flush", "restore")

    def __init__(self) -> None:
        self.by_name = {name: Latency() for name in self.NAMES}

    def __getitem__(self, name: str) -> Latency:
        return self.by_name[name]

    @contextmanager
    def time(self, name: str) -> Iterator[None]:
        """Count and time the block; for calls that are not on a hot path."""
        latency = self.by_name[name]
        begin = perf_counter_ns()
        try:
            yield
        finally:
            latency.count += 1
            latency.add(perf_counter_ns() - begin)

    def report(self) -> dict[str, dict[str, float | int | None]]:
        return {name: latency.report() for name, latency in self.by_name.items()}
