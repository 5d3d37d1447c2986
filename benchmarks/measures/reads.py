"""Scans as of an old, a middle and the newest moment, against a plain Arrow file of exactly the live rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import duckdb
import numpy as np

import statestore
from benchmarks.loads.oracle import WrongAnswerError, check, live_events
from benchmarks.loads.stream import Shape
from benchmarks.measures.plain_file import AGGREGATED, aggregate, copy, mapped
from benchmarks.measures.workbench import COMPACTED, DELIVERED, History, Workbench, segments, write_arrow
from benchmarks.results.costs import alternate
from benchmarks.results.figure import Figure, compared

MOMENTS: dict[str, float | None] = {"old": 0.1, "middle": 0.5, "now": None}
COPY_GOALS = {10: {"old": 1.4, "middle": 1.4, "now": 1.1}, 100: {"old": 2.0, "middle": 2.0, "now": 1.1}}
AGGREGATE_GOALS = {10: {"old": 1.3, "middle": 1.3, "now": 1.1}, 100: {"old": 1.6, "middle": 1.6, "now": 1.1}}


def measure(bench: Workbench) -> Iterator[Figure]:
    for factor, shape in bench.size.long.items():
        for state in (DELIVERED, COMPACTED):
            yield from measure_store(bench, shape, state, factor)


def measure_store(bench: Workbench, shape: Shape, state: str, factor: int) -> Iterator[Figure]:
    history = bench.history(shape, state)
    load = f"{factor}x, {state}"
    count = float(segments(history.path))
    yield Figure("reads", "segments", count, load=load, unit="segments", details={"events": shape.events})
    for label, share in MOMENTS.items():
        reader = Moment(bench, history, label, share)
        yield reader.copy(load, COPY_GOALS[factor][label])
        yield reader.aggregate(load, AGGREGATE_GOALS[factor][label])
        reader.close()


class Moment:
    """A moment of a history whose answer is right, and a plain file of that answer."""

    def __init__(self, bench: Workbench, history: History, label: str, share: float | None) -> None:
        self.label, self.runs = label, bench.runs
        self.moment = None if share is None else history.stream.moment(share)
        self.store: statestore.VersionedStore = history.reader()
        answer = self.store.scan(as_of=self.moment).read_all()
        self.rows = answer.num_rows
        check(history.stream, answer, live_events(history.stream, self.moment), f"{history.stream.shape}, {label}")
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
