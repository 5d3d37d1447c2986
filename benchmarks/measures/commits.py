"""Commits of many changes against a raw Arrow write of them, compaction as delivered."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from benchmarks.measures.workbench import History, Workbench
from benchmarks.results.costs import Costs
from benchmarks.results.figure import Figure, compared

GOAL_MEDIAN, GOAL_MEAN, GOAL_WORK, CLOSE_GOAL = 14, 20, 40, 1_000.0


def measure(bench: Workbench) -> Iterator[Figure]:
    for factor, shape in bench.size.long.items():
        yield from figures(bench.history(shape), f"{factor}x, commits of {shape.commit_rows:,}")


def figures(history: History, load: str) -> Iterator[Figure]:
    """Yield the cost of the commits of a history: the median, the mean with all work, the longest, and the growth."""
    commits, raw = history.commits, history.raw
    raw_median = statistics.median(raw.wall)
    yield compared(
        "commits",
        "median commit",
        commits,
        raw,
        clock="wall",
        goal=GOAL_MEDIAN,
        load=load,
        against="raw Arrow write",
    )
    wall = (sum(commits.wall) + history.closing.wall[0]) / len(commits.wall)
    yield Figure(
        "commits",
        "mean commit, all work and close() included",
        round(wall / raw_median, 2),
        GOAL_MEAN,
        load=load,
        against="raw Arrow write",
        details={
            "clock": "wall",
            "cost_ms": round(wall, 2),
            "against_ms": round(raw_median, 3),
            "close_ms": round(history.closing.wall[0], 1),
        },
    )
    raw_work = statistics.median(raw.cpu)
    yield Figure(
        "commits",
        "processor time of all work",
        round(history.work_ms / len(commits.cpu) / raw_work, 2),
        GOAL_WORK,
        load=load,
        against="raw Arrow write",
        details={
            "clock": "cpu",
            "cost_ms": round(history.work_ms / len(commits.cpu), 2),
            "against_ms": round(raw_work, 3),
            "rows_per_cpu_second": round(history.stream.shape.events / history.work_ms * 1000),
        },
    )
    yield Figure(
        "commits", "close() after the last commit", round(history.closing.wall[0], 1), CLOSE_GOAL, load=load, unit="ms"
    )
    longest = max(commits.wall)
    yield Figure(
        "commits", "longest commit", round(longest / statistics.median(commits.wall), 2), load=load, against="median"
    )
    yield Figure("commits", "last tenth", growth(commits), load=load, against="second tenth", details={"clock": "wall"})


def growth(commits: Costs) -> float:
    """Means of the last tenth of commits over those of the second tenth."""
    tenth = max(len(commits.wall) // 10, 1)
    first = statistics.mean(commits.wall[tenth : 2 * tenth])
    return round(statistics.mean(commits.wall[-tenth:]) / first, 2)
