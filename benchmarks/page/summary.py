"""The table of goals: a line for each, with the figures as delivered."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.results.figure import Figure, Results
from benchmarks.results.table import goal_of, with_unit

PLAIN = "a plain Arrow file of the live rows"


@dataclass(frozen=True)
class Goal:
    """A line: the figures of a measure whose names, loads and floors begin with these texts."""

    title: str
    measure: str
    name: str
    load: str = ""
    against: str = ""

    def figures(self, results: Results) -> list[Figure]:
        return [f for f in results.figures if f.measure == self.measure and f.goal is not None and self._means(f)]

    def _means(self, figure: Figure) -> bool:
        starts = figure.name.startswith(self.name) and figure.against.startswith(self.against)
        return starts and figure.load.startswith(self.load) and not figure.load.endswith("compacted")


GOALS = (
    Goal(f"copy, old, middle, now, now between commits, 10x history / {PLAIN}", "reads", "copy", "10x"),
    Goal("the same, 100x history", "reads", "copy", "100x"),
    Goal(f"aggregate in DuckDB, old, middle, now, now between commits, 10x / {PLAIN}", "reads", "aggregate", "10x"),
    Goal("the same, 100x", "reads", "aggregate", "100x"),
    Goal("read by version, old, middle, now: the best of Delta, Iceberg, Lance, DuckDB / ours", "peers", "read by"),
    Goal("the same, ours as of the moment of that version", "peers", "read as of"),
    Goal("commit of many upserts, 10x, 100x, median / raw Arrow write", "commits", "median"),
    Goal("the same, mean with all work and `close()`", "commits", "mean"),
    Goal("the same, processor time of all work", "commits", "processor time"),
    Goal("`close()` after the last commit", "commits", "close()"),
    Goal(f"copy and aggregate after each of twelve short-lived writers / {PLAIN}", "short_writers", "", "", "plain"),
    Goal("`close()` of a short-lived writer, CPU for a million live rows", "short_writers", "close()"),
    Goal("a commit of 10 rows after thousands / one of the first, mean CPU, median", "small_commits", "the "),
    Goal("longest commit of 10 rows", "small_commits", "longest"),
    Goal("open after thousands of commits / after 100", "small_commits", "open"),
    Goal("get as of T / rocksdict, fresh iterator", "points", "get", "", "rocksdict, fresh"),
    Goal("get as of T / rocksdict, reused iterator", "points", "get", "", "rocksdict, reused"),
    Goal("many keys at one moment, CPU", "points", "many keys"),
    Goal("history of a key / get_versions", "points", "history"),
    Goal("changes of one commit, five, a tenth of history / a copy of these changes", "changes", "changes"),
    Goal("memory of the changes of most of history", "changes", "memory"),
    Goal("compaction", "compaction", "speed"),
    Goal("full compaction after due steps", "compaction", "after due steps, speed"),
    Goal("disk after it", "compaction", "after due steps, disk"),
    Goal("memory of compaction", "compaction", "anonymous"),
    Goal("work that a killed compaction keeps", "compaction", "work kept"),
    Goal("disk, as delivered, compacted and vacuumed / Delta, by MERGE", "peers", "disk, statestore", "", "Delta"),
    Goal("count, sum, value filter through `attach` / DuckDB over a plain mapped file", "duckdb_views", ""),
)


def summary(results: Results) -> str:
    """The table in Markdown; a goal that the run did not measure has no line."""
    lines = ["| measure, as delivered | now | goal | met |", "| --- | --- | --- | --- |"]
    for goal in GOALS:
        found = goal.figures(results)
        if found:
            now = ", ".join(with_unit(figure.value, figure.unit) for figure in found)
            goals = [goal_of(figure) for figure in found]
            wanted = goals[0] if len(set(goals)) == 1 else ", ".join(goals)
            lines.append(f"| {goal.title} | {now} | {wanted} | {_met(found)} |")
    return "\n".join(lines) + "\n"


def _met(figures: list[Figure]) -> str:
    met = sum(bool(figure.met) for figure in figures)
    if met == len(figures):
        return "yes"
    return f"{met} of {len(figures)}" if met else "no"
