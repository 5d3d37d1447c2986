"""Scans as of an old, a middle and the newest moment, against a plain Arrow file of exactly the live rows.

"Now" is measured on the store that its writer has closed. "Now between commits" is measured on copies that were made
right after several commits, since it depends on how long ago the last compaction was. The figure is the mean of their
ratios; the details have all of them.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import duckdb
import numpy as np

from benchmarks.loads.oracle import WrongAnswerError, check, live_events
from benchmarks.loads.stream import Stream
from benchmarks.measures.plain_file import AGGREGATED, aggregate, copy, mapped
from benchmarks.measures.workbench import COMPACTED, DELIVERED, History, Workbench, open_reader, segments, write_arrow
from benchmarks.results.costs import alternate
from benchmarks.results.figure import Figure, compared

BETWEEN = "now between commits"
MOMENTS: dict[str, float | None] = {"old": 0.1, "middle": 0.5, "now": None, BETWEEN: None}
COPY_NOW = {"now": 1.2, BETWEEN: 1.6}
COPY_GOALS = {10: {"old": 1.4, "middle": 1.4, **COPY_NOW}, 100: {"old": 2.0, "middle": 2.0, **COPY_NOW}}
AGGREGATE_NOW = {"now": 1.1, BETWEEN: 1.15}
AGGREGATE_GOALS = {
    10: {"old": 1.3, "middle": 1.3, **AGGREGATE_NOW},
    100: {"old": 1.6, "middle": 1.6, **AGGREGATE_NOW},
}


def measure(bench: Workbench) -> Iterator[Figure]:
    for factor, shape in bench.size.long.items():
        for state in (DELIVERED, COMPACTED):
            yield from measure_store(bench, bench.history(shape, state), f"{factor}x, {state}", factor)


def measure_store(bench: Workbench, history: History, load: str, factor: int) -> Iterator[Figure]:
    """Measure one store, and its copies with fewer commits where it has some."""
    counts = [segments(path) for path in (*history.stops.values(), history.path)]
    details = {"events": history.stream.shape.events, "stops": counts}
    yield Figure("reads", "segments", float(max(counts)), load=load, unit="segments", details=details)
    for label, share in MOMENTS.items():
        copies, aggregates = [], []
        places = history.stops if label == BETWEEN else {history.stream.shape.commits: history.path}
        for commits, path in places.items():
            moment = Moment(bench, history.stream, path, label, share, commits)
            copies.append(moment.copy(load, COPY_GOALS[factor][label]))
            aggregates.append(moment.aggregate(load, AGGREGATE_GOALS[factor][label]))
            moment.close()
        if places:
            yield over_stops(copies)
            yield over_stops(aggregates)


def over_stops(figures: Sequence[Figure]) -> Figure:
    """The mean of figures, because a median hides one of two heights; with the times of the one in the middle."""
    values = [figure.value for figure in figures]
    middle = sorted(figures, key=lambda figure: figure.value)[len(figures) // 2]
    return replace(middle, value=round(statistics.mean(values), 3), details={**middle.details, "stops": values})


class Moment:
    """A moment of a history whose answer is right, and a plain file of that answer."""

    def __init__(
        self, bench: Workbench, stream: Stream, path: Path, label: str, share: float | None, commits: int
    ) -> None:
        self.label, self.runs = label, bench.runs
        self.moment = None if share is None else stream.moment(share)
        self.store = open_reader(path)
        answer = self.store.scan(as_of=self.moment).read_all()
        self.rows = answer.num_rows
        check(stream, answer, live_events(stream, self.moment, commits), f"{stream.shape}, {label}, {commits} commits")
        self.plain: Path = bench.new_folder("plain").with_suffix(".arrow")
        write_arrow(self.plain, answer)

    def copy(self, load: str, goal: float | None, measure: str = "reads") -> Figure:
        """Compare copies of all columns."""
        sides = {
            "ours": lambda: copy(self.store.scan(as_of=self.moment)),
            "plain": lambda: copy(mapped(self.plain)),
        }
        costs = alternate(sides, self.runs)
        return compared(
            measure,
            f"copy, {self.label}",
            costs["ours"],
            costs["plain"],
            goal=goal,
            load=load,
            against="plain Arrow file",
            details={"live_rows": self.rows},
        )

    def aggregate(self, load: str, goal: float) -> Figure:
        """Compare aggregates of two columns in DuckDB."""
        connection = duckdb.connect()
        run = partial(aggregate, connection)
        sides: dict[str, Callable[[], tuple[int, float, float]]] = {
            "ours": lambda: run(self.store.scan(as_of=self.moment, columns=AGGREGATED)),
            "plain": lambda: run(mapped(self.plain, AGGREGATED)),
        }
        answers = {name: call() for name, call in sides.items()}
        if not np.allclose(answers["ours"], answers["plain"]):
            raise WrongAnswerError(f"aggregate, {load}, {self.label}: {answers}")
        costs = alternate(sides, self.runs)
        connection.close()
        return compared(
            "reads",
            f"aggregate in DuckDB, {self.label}",
            costs["ours"],
            costs["plain"],
            goal=goal,
            load=load,
            against="plain Arrow file",
            details={"live_rows": self.rows},
        )

    def close(self) -> None:
        self.store.close()
        self.plain.unlink()
