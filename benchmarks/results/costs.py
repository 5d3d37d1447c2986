"""Costs of calls on the clock and on the processors, of several sides that take turns in one process."""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

LEAST_SAMPLE_MS = 5.0  # shorter calls are repeated within a sample


@dataclass(frozen=True)
class Costs:
    """Milliseconds of each run: wall clock, and user and system time of this process and its ended children."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def add(self, call: Callable[[], Any], calls: int = 1) -> Any:
        """Run the call and note what one call costs; return what it returned."""
        cpu, wall = cpu_ms(), time.perf_counter()
        for _ in range(calls):
            result = call()
        self.wall.append((time.perf_counter() - wall) * 1000 / calls)
        self.cpu.append((cpu_ms() - cpu) / calls)
        return result

    def of(self, clock: str) -> list[float]:
        return self.wall if clock == "wall" else self.cpu

    def summary(self) -> dict[str, float]:
        """Medians and minima, in milliseconds."""
        return {
            f"{clock}_{name}": round(of(self.of(clock)), 5)
            for clock in ("wall", "cpu")
            for name, of in (("median", statistics.median), ("min", min))
        }


def cpu_ms() -> float:
    """Processor time of this process, all threads, and of its ended children, in milliseconds."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (time.process_time() + children.ru_utime + children.ru_stime) * 1000


def alternate(sides: Mapping[str, Callable[[], Any]], runs: int) -> dict[str, Costs]:
    """Run each side once to warm it, then all by turns; return the costs of one call for each side."""
    calls = {name: _calls_in_a_sample(call) for name, call in sides.items()}
    costs = {name: Costs() for name in sides}
    for _ in range(runs):
        for name, call in sides.items():
            costs[name].add(call, calls[name])
    return costs


def _calls_in_a_sample(call: Callable[[], Any]) -> int:
    call()
    begin = time.perf_counter()
    call()
    return max(1, min(1_000, round(LEAST_SAMPLE_MS / max((time.perf_counter() - begin) * 1000, 1e-3))))


def ratio(
    ours: Costs, theirs: Costs, clock: str = "cpu", of: Callable[[list[float]], float] = statistics.median
) -> float:
    """The ratio of medians (or of what ``of`` makes of the runs)."""
    return of(ours.of(clock)) / max(of(theirs.of(clock)), 1e-9)
