"""A full compaction of a store that was never compacted: rows a second, memory, and what a kill leaves; and of a store
that its writer compacted on the way: rows a second, and bytes on disk after it."""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Iterator
from pathlib import Path

import statestore
from benchmarks.loads.oracle import check, live_events
from benchmarks.loads.stream import Stream
from benchmarks.measures import child
from benchmarks.measures.workbench import STORE, Workbench, bytes_in, open_reader, segments, write_history
from benchmarks.results.figure import Figure

ROWS_GOAL, MEMORY_GOAL, KEPT_GOAL = 1_000_000, 256.0, 0.25
DISK_GOAL = 40.0
MIB = 1 << 20


def measure(bench: Workbench) -> Iterator[Figure]:
    yield from never_compacted(bench)
    yield from compacted_on_the_way(bench)


def never_compacted(bench: Workbench) -> Iterator[Figure]:
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


def compacted_on_the_way(bench: Workbench) -> Iterator[Figure]:
    """Measure what is left to do after the steps that were due, and the disk that a version takes in the end."""
    history = bench.history(bench.size.long[10])
    stream, spent = history.stream, []
    load = f"{stream.shape.factor}x, {stream.shape.events:,} rows, as delivered"
    before = segments(history.path)
    for _ in range(bench.runs):
        path = copied(bench, history.path)
        ended = child.run("compact", path)
        assert ended.said is not None
        spent.append(ended.said["cpu"])
        after = check_store(stream, path)
        with statestore.connect(path).open_store(STORE) as store:
            store.vacuum(older_than=0)
        size = bytes_in(path) / stream.shape.events
        shutil.rmtree(path)
    cpu = statistics.median(spent)
    details = {"cpu_ms": round(cpu, 1), "segments_before": before, "segments_after": after, "runs": bench.runs}
    speed = round(stream.shape.events / cpu * 1000)
    yield Figure("compaction", "after due steps, speed", speed, ROWS_GOAL, load, "", "rows a CPU second", True, details)
    yield Figure("compaction", "after due steps, disk", round(size, 1), DISK_GOAL, load, unit="bytes a version")


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
