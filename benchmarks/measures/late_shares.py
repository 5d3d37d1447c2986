"""Segments and copies by history and share of late records."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.measures.reads import Moment
from benchmarks.measures.workbench import Workbench, segments
from benchmarks.results.figure import Figure


def measure(bench: Workbench) -> Iterator[Figure]:
    for shape in bench.size.sweep():
        history = bench.history(shape)
        load = str(shape)
        details = {"factor": shape.factor, "late": shape.late, "events": shape.events}
        count = float(segments(history.path))
        yield Figure("late_shares", "segments", count, load=load, unit="segments", details=details)
        for label, share in (("middle", 0.5), ("now", None)):
            moment = Moment(bench, history.stream, history.path, label, share, shape.commits)
            figure = moment.copy(load, None, measure="late_shares")
            figure.details.update(details)
            yield figure
            moment.close()
