"""A full compaction of a store that was never compacted: rows a second, memory, and what a kill leaves."""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Iterator
from pathlib import Path

from benchmarks.loads.oracle import check, live_events
from benchmarks.loads.stream import Stream
from benchmarks.measures import child
from benchmarks.measures.workbench import Workbench, open_reader, segments, write_history
from benchmarks.results.figure import Figure

ROWS_GOAL, MEMORY_GOAL, KEPT_GOAL = 1_000_000, 256.0, 0.25
MIB = 1 << 20


def measure(bench: Workbench) -> Iterator[Figure]:
    stream = Stream(bench.size.compacted, bench.seed)
    history = write_history(stream, bench.new_folder("uncompacted"), auto_compact=False)
    load = f"{stream.shape.factor}x, {stream.shape.events:,} rows"
    whole: list[child.Ended] = []
    left: list[child.Ended] = []
    before = segments(history.path)
    for _ in range(bench.runs):
        path = copied(bench, history.path)
        whole.append(child.run("compact", path))
        after = check_store(stream, path)
        shutil.rmtree(path)
        wall = statistics.median(ended.said["wall"] for ended in whole if ended.said)
        path = copied(bench, history.path)
        child.run("compact", path, kill_after=wall / 2000)
        check_store(stream, path)
        left.append(child.run("compact", path))
        check_store(stream, path)
        shutil.rmtree(path)
    cpu = statistics.median(ended.said["cpu"] for ended in whole if ended.said)
    rest = statistics.median(ended.said["cpu"] for ended in left if ended.said)
    details = {"cpu_ms": round(cpu, 1), "segments_before": before, "segments_after": after, "runs": bench.runs}
    rows = stream.shape.events / cpu * 1000
    yield Figure("compaction", "speed", round(rows), ROWS_GOAL, load, "", "rows a CPU second", True, details)
    grown = max(ended.grown for ended in whole) / MIB
    yield Figure("compaction", "anonymous memory, greatest growth", round(grown, 1), MEMORY_GOAL, load, unit="MiB")
    kept = round(1 - rest / cpu, 3)
    yield Figure("compaction", "work kept after a kill at half", kept, KEPT_GOAL, load, "whole work", at_least=True)


def copied(bench: Workbench, path: Path) -> Path:
    """A copy of the store in a place of its own: a process keeps the log of a store by its place."""
    copy = bench.new_folder("copy")
    shutil.copytree(path, copy)
    return copy


def check_store(stream: Stream, path: Path) -> int:
    """Compare the store's answer as of the middle with the truth; return its number of segments."""
    store = open_reader(path)
    moment = stream.moment(0.5)
    check(stream, store.scan(as_of=moment).read_all(), live_events(stream, moment), "after compaction")
    store.close()
    return segments(path)
