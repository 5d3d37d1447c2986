"""Segments and copies by history and share of late records."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace

from benchmarks.loads.stream import Stream
from benchmarks.measures.reads import Moment
from benchmarks.measures.workbench import Workbench, segments, write_history
from benchmarks.results.figure import Figure


def measure(bench: Workbench) -> Iterator[Figure]:
    for shape in bench.size.sweep():
        history = write_history(Stream(shape, bench.seed), bench.new_folder("late"))
        load = str(shape)
        details = {"factor": shape.factor, "late": shape.late, "events": shape.events}
        count = float(segments(history.path))
        yield Figure("late_shares", "segments", count, load=load, unit="segments", details=details)
        for label, share in (("middle", 0.5), ("now", None)):
            moment = Moment(bench, history.stream, history.path, label, share, shape.commits)
            figure = moment.copy(load, None, measure="late_shares")
            yield replace(figure, details={**figure.details, **details})
            moment.close()
        shutil.rmtree(history.path)
