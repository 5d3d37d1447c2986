"""Thousands of commits of ten rows: their growth, the longest, opening the store, and the disk."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path

from benchmarks.loads.oracle import check, live_events
from benchmarks.measures import child
from benchmarks.measures.small_writes import ROWS, Written, write_apart
from benchmarks.measures.workbench import Workbench, bytes_in, open_reader
from benchmarks.results.costs import Costs
from benchmarks.results.figure import Figure, compared

GROWTH_GOAL, LONGEST_GOAL, OPEN_GOAL = 1.5, 100.0, 2.0


def measure(bench: Workbench) -> Iterator[Figure]:
    first, *later = bench.size.small_commits
    folder = bench.new_folder("small")
    write(folder / "first-use", 3, bench)
    few = write(folder / "few", first, bench)
    for commits in later:
        many = write(folder / f"many-{commits}", commits, bench)
        load = f"{commits:,} commits of {ROWS}"
        yield from growth(many, first, commits, load)
        yield from opening(bench, few, many, load, f"{first:,} commits")
        size, given = bytes_in(many.path), many.stream.raw(0).nbytes * commits
        yield Figure("small_commits", "bytes on disk", round(size / given, 1), load=load, against="bytes given")


def write(path: Path, commits: int, bench: Workbench) -> Written:
    written = write_apart(path, commits, bench.seed)
    reader = open_reader(path)
    check(written.stream, reader.scan().read_all(), live_events(written.stream, commits=commits), f"{commits} commits")
    reader.close()
    return written


def growth(many: Written, first: int, commits: int, load: str) -> Iterator[Figure]:
    """Compare the last commits with those around the first number; the mean counts the work of all threads."""
    early, late = slice(first // 2, first * 3 // 2), slice(commits - max(commits // 10, 1), commits)
    work, work_early = many.mean_work(late), many.mean_work(early)
    wall, wall_early = statistics.median(many.wall[late]), statistics.median(many.wall[early])
    yield Figure(
        "small_commits",
        f"the {commits:,}th commit, mean of all work",
        round(work / work_early, 2),
        GROWTH_GOAL,
        load=load,
        against=f"the {first:,}th",
        details={"clock": "cpu", "cost_ms": round(work, 3), "against_ms": round(work_early, 3)},
    )
    yield Figure(
        "small_commits",
        f"the {commits:,}th commit, median",
        round(wall / wall_early, 2),
        GROWTH_GOAL,
        load=load,
        against=f"the {first:,}th",
        details={"clock": "wall", "cost_ms": round(wall, 3), "against_ms": round(wall_early, 3)},
    )
    longest = max(many.wall[first // 10 :])
    number = many.wall.index(longest)
    details = {
        "commit": number,
        "of_it_synced_ms": round(many.synced[number], 1),
        "of_it_garbage_collection_ms": round(many.collected[number], 1),
        "longest_syncs_of_a_commit_ms": round(max(many.synced[first // 10 :]), 1),
        "longest_without_syncs_ms": round(
            max(wall - synced for wall, synced in zip(many.wall, many.synced, strict=True)), 1
        ),
    }
    yield Figure("small_commits", "longest commit", round(longest, 1), LONGEST_GOAL, load, unit="ms", details=details)


def opening(bench: Workbench, few: Written, many: Written, load: str, against: str) -> Iterator[Figure]:
    """Compare opening in processes of their own, because a process keeps the log of a store that it has opened."""
    costs = {few.path: Costs(), many.path: Costs()}
    scans: dict[Path, list[float]] = {few.path: [], many.path: []}
    for _ in range(bench.runs):
        for path, mine in costs.items():
            said = child.run("open", path).said
            assert said is not None
            mine.wall.append(said["wall"])
            mine.cpu.append(said["cpu"])
            scans[path].append(said["scan_cpu"])
    scan = {"first_scan_cpu_ms": [round(statistics.median(scans[path]), 2) for path in (few.path, many.path)]}
    mine, other = costs[many.path], costs[few.path]
    yield compared("small_commits", "open", mine, other, goal=OPEN_GOAL, load=load, against=against, details=scan)
