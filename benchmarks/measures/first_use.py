"""The cost of the first use of an installation: compiled loops are compiled once, and kept on disk.

The same work is done by two processes, one after the other. The first one compiles what no run before has compiled, so
the figure is about 0 where the loops of these sources were used before.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.measures import child
from benchmarks.measures.workbench import Workbench
from benchmarks.results.figure import Figure


def measure(bench: Workbench) -> Iterator[Figure]:
    first, later = (child.run(bench.size.name, bench.new_folder("use")).said for _ in range(2))
    assert first is not None and later is not None
    seconds = (first["cpu"] - later["cpu"]) / 1000
    details = {"first_cpu_ms": round(first["cpu"], 1), "later_cpu_ms": round(later["cpu"], 1)}
    yield Figure("first_use", "compilation", round(max(seconds, 0.0), 1), unit="s, once", details=details)
