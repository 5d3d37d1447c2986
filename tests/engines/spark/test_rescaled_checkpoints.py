"""Queries of Spark go on from copies with other partitions, providers and codecs as if they had always had these.

Spark makes a checkpoint, the copy gets another layout, and the query goes on from it with new input, in a session with
the former settings. Its state, or its output, is that of a plain model.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.checkpoints.running_queries import LAYOUTS, conf, content, opened, rows_of, run
from support.edited_copies import write_copy
from support.spark_release import since, skip_unknown

from statestore.formats.edits import EditOptions

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession

Batches = Sequence[Sequence[Mapping[str, Any]]]
LETTERS = "abcdefghijklmnopqrstuvwxyz"
SCHEMA = "k string, n bigint, side string, t timestamp"
JOIN = "spark.sql.streaming.join.stateFormatVersion"


def batch(number: int) -> list[dict[str, Any]]:
    """Rows of all sorts of keys, of which later batches repeat some."""
    rows = []
    for at, letter in enumerate(LETTERS):
        if (at + number) % 3:
            side = "left" if (at + number) % 2 else "right"
            time = f"2026-01-0{1 + number}T00:{at:02}:00Z"
            rows.append({"k": letter * (1 + at % 4), "n": 100 * number + at, "side": side, "t": time})
    return rows


BATCHES = [batch(number) for number in range(6)]
BEFORE, AFTER, LAST = BATCHES[:3], BATCHES[3:5], BATCHES[5:]


def counted(rows: DataFrame) -> DataFrame:
    return rows.groupBy("k").agg({"*": "count", "n": "sum"})


def first_ones(rows: DataFrame) -> DataFrame:
    return rows.select("k", "n").dropDuplicates(["k"])


def summed(rows: DataFrame) -> DataFrame:
    """Sums without keys, which one partition keeps."""
    return rows.groupBy().agg({"n": "sum"})


def sessions(rows: DataFrame) -> DataFrame:
    from pyspark.sql.functions import session_window

    return rows.withWatermark("t", "100 days").groupBy(session_window("t", "3 days"), "k").count()


def paired(rows: DataFrame) -> DataFrame:
    left = rows.where("side = 'left'").selectExpr("k", "n AS l")
    return left.join(rows.where("side = 'right'").selectExpr("k AS rk", "n AS r"), [left.k == _column("rk")]).drop("rk")


def paired_in_time(rows: DataFrame) -> DataFrame:
    rows = rows.withWatermark("t", "100 days")
    left = rows.where("side = 'left'").selectExpr("k", "n AS l", "t AS lt")
    right = rows.where("side = 'right'").selectExpr("k AS rk", "n AS r", "t AS rt")
    near = (_column("lt") > _column("rt") - _days(50)) & (_column("lt") < _column("rt") + _days(50))
    return left.join(right, (left.k == _column("rk")) & near).select("k", "l", "r")


def _column(name: str) -> Any:
    from pyspark.sql.functions import col

    return col(name)


def _days(number: int) -> Any:
    from pyspark.sql.functions import expr

    return expr(f"INTERVAL {number} DAYS")


def counts(batches: Batches) -> Any:
    found: dict[str, tuple[int, int]] = {}
    for row in (row for rows in batches for row in rows):
        count, total = found.get(row["k"], (0, 0))
        found[row["k"]] = count + 1, total + row["n"]
    return sorted((k, *values) for k, values in found.items())


def sums(batches: Batches) -> Any:
    return [(sum(row["n"] for rows in batches for row in rows),)]


def first_rows(batches: Batches) -> Any:
    found: dict[str, int] = {}
    for row in (row for rows in batches for row in rows):
        found.setdefault(row["k"], row["n"])
    return sorted(found.items())


def pairs(batches: Batches) -> Any:
    rows = [row for each in batches for row in each]
    left, right = ([row for row in rows if row["side"] == side] for side in ("left", "right"))
    return sorted((one["k"], one["n"], other["n"]) for one in left for other in right if one["k"] == other["k"])


def session_counts(batches: Batches) -> Any:
    """The number of rows of each session by key: days of rows that are less than three days apart."""
    days: dict[str, list[int]] = {}
    for number, rows in enumerate(batches):
        for row in rows:
            days.setdefault(row["k"], []).append(number)
    found = []
    for k, numbers in days.items():
        runs = [[numbers[0]]]
        for number in numbers[1:]:
            runs[-1].append(number) if number - runs[-1][-1] < 3 else runs.append([number])
        found += [(k, len(each)) for each in runs]
    return sorted(found)


@dataclass(frozen=True)
class Job:
    """A query and what it must have after batches: its state, or what it wrote to files."""

    result: Callable[[DataFrame], DataFrame]
    model: Callable[[Batches], Any]
    mode: str = "update"
    sink: str = "noop"

    def found(self, folder: Path, checkpoint: Path) -> Any:
        if self.sink == "json":
            lines = [json.loads(line) for file in (folder / "out").glob("*.json") for line in file.open()]
            return sorted(tuple(line.values()) for line in lines)
        rows = rows_of(opened(checkpoint)).to_pylist()
        if self.model is session_counts:
            return sorted((row["key"]["k"], row["value"]["count"]) for row in rows)
        return sorted((*row["key"].values(), *row["value"].values()) for row in rows)

    def run(self, spark: SparkSession, folder: Path, checkpoint: Path, batches: Batches) -> None:
        run(spark, folder, checkpoint, SCHEMA, batches, self.result, self.mode, self.sink)


JOBS = {
    "counting": Job(counted, counts),
    "sum": Job(summed, sums),
    "duplicates": Job(first_ones, first_rows, "append", "json"),
    "sessions": Job(sessions, session_counts, "append"),
    "join": Job(paired, pairs, "append", "json"),
    "join in time": Job(paired_in_time, pairs, "append", "json"),
}
FIVE = {"partitions": "5"}
TO_ROCKSDB = {"partitions": "3", "provider": "rocksdb", "changelogs": "true"}
TO_HDFS = {"partitions": "7", "provider": "hdfs", "codec": "zstd"}
CASES: list[tuple[str, str, dict[str, str], str]] = [
    *((layout, "counting", TO_ROCKSDB, "2") for layout in ("deltas", "deltas with checksums")),
    *((layout, "counting", FIVE, "2") for layout in LAYOUTS),
    *((layout, "duplicates", {"partitions": "3"}, "2") for layout in ("deltas", "zips", "changelogs of format 2")),
    *((layout, job, FIVE, "2") for layout in ("deltas", "zips") for job in ("sum", "sessions", "join")),
    ("changelogs", "join", FIVE, "3"),
    *((layout, "join", FIVE, "3") for layout in ("zips of format 2", "changelogs of format 2 with checksums")),
    *(("changelogs", "join in time", FIVE, number) for number in "234"),
    ("changelogs", "join in time", {"partitions": "1"}, "4"),
    ("deltas", "counting", {"partitions": "1", "codec": "zstd"}, "2"),
    *((layout, "counting", TO_HDFS, "2") for layout in ("zips", "changelogs with checksums")),
    *(("deltas", job, TO_ROCKSDB, "2") for job in ("duplicates", "sum", "sessions", "join")),
    *(("changelogs", job, TO_HDFS, "2") for job in ("duplicates", "sum", "sessions", "join")),
]


def _name(case: tuple[str, str, dict[str, str], str]) -> str:
    layout, job, settings, join = case
    return f"{layout}, {job}{join if 'join' in job else ''}, {' '.join(settings.values())}"


NAMED = {_name(case): case for case in CASES}


@pytest.mark.slow
@pytest.mark.parametrize("case", NAMED)
def test_a_query_goes_on_from_another_layout(spark: SparkSession, tmp_path: Path, case: str) -> None:
    layout, name, settings, join = NAMED[case]
    skip_unknown(f"{layout}, format {join}" if "join" in name else layout)
    job, source, target = JOBS[name], tmp_path / "source", tmp_path / "target"
    with conf(spark, {**LAYOUTS[layout], JOIN: join, "spark.sql.shuffle.partitions": "2"}):
        job.run(spark, tmp_path, source, BEFORE)
        assert job.found(tmp_path, source) == job.model(BEFORE)
        was = content(source)
        opened_source = opened(source)
        plan = opened_source.edit_plan(opened_source.checkpoint.batch.batch_id, [], EditOptions(settings=settings))
        write_copy(plan, target)
        assert job.found(tmp_path, target) == job.model(BEFORE)
        if name == "counting":
            builtin = spark.read.format("statestore").option("provider", "builtin").load(str(target)).collect()
            assert sorted((row.key.k, *row.value) for row in builtin) == job.model(BEFORE)

        job.run(spark, tmp_path, target, AFTER)
        assert job.found(tmp_path, target) == job.model([*BEFORE, *AFTER])
        job.run(spark, tmp_path, target, LAST)
        assert job.found(tmp_path, target) == job.model(BATCHES)
        assert content(source) == was
        checkpoint = opened(target).checkpoint
        assert checkpoint.provider == settings.get("provider", checkpoint.provider)
        partitions = {len(store.folders) for each in checkpoint.operators for store in each.stores}
        assert partitions == {1 if name == "sum" else int(settings["partitions"])}


def remembered(rows: DataFrame) -> DataFrame:
    """Counts and lists rows by key, and two days after the first one tells and forgets them."""
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

    class Remember(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self._handle = handle
            self._count = handle.getValueState("count", "n bigint")
            self._of = handle.getMapState("of", "side string", "n bigint")
            self._listed = handle.getListState("listed", "n bigint")

        def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timers: Any) -> Iterator[pd.DataFrame]:
            count = (self._count.get() or (0,))[0]
            for frame in rows:
                for n, side, time in zip(frame["n"].tolist(), frame["side"].tolist(), frame["t"], strict=True):
                    if not count:
                        self._handle.registerTimer(int(time.timestamp() * 1000) + 2 * 86_400_000)
                    count += 1
                    self._of.updateValue((side,), (n,))
                    self._listed.appendValue((n,))
            self._count.update((count,))
            yield from ()

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
            import pandas as pd

            listed = ",".join(str(n) for (n,) in self._listed.get())
            yield pd.DataFrame({"k": [key[0]], "n": [(self._count.get() or (0,))[0]], "listed": [listed]})
            for state in (self._count, self._of, self._listed):
                state.clear()

        def close(self) -> None:
            pass

    made = rows.withWatermark("t", "0 seconds").groupBy("k")
    return made.transformWithStateInPandas(Remember(), "k string, n bigint, listed string", "Append", "EventTime")


def written(folder: Path) -> list[str]:
    return sorted(line for file in (folder / "out").glob("*.json") for line in file.open())


@pytest.mark.slow
@since(4, 0, "transformWithStateInPandas")
@pytest.mark.parametrize("layout", ["changelogs", "zips", "changelogs of format 2 with checksums"])
def test_variables_and_timers_go_on_as_without_a_change(spark: SparkSession, tmp_path: Path, layout: str) -> None:
    job = Job(remembered, counts, "append", "json")
    skip_unknown(layout)
    folders = plain, changed = tmp_path / "plain", tmp_path / "changed"
    with conf(spark, {**LAYOUTS[layout], "spark.sql.shuffle.partitions": "2"}):
        for folder in folders:
            folder.mkdir()
            job.run(spark, folder, folder / "source", BEFORE)
        source = opened(changed / "source")
        plan = source.edit_plan(source.checkpoint.batch.batch_id, [], EditOptions(settings=FIVE))
        write_copy(plan, changed / "target")
        (changed / "source").rename(changed / "moved away")
        for folder, checkpoint in ((plain, plain / "source"), (changed, changed / "target")):
            job.run(spark, folder, checkpoint, AFTER)
            job.run(spark, folder, checkpoint, LAST)
    assert len(written(plain)) > len(LETTERS) and written(plain) == written(changed)
    control, found = opened(plain / "source"), opened(changed / "target")
    assert {*control.states()} == {"count", "of", "listed", "timers"}
    for state in control.states():
        bags = [Counter(map(repr, rows_of(each, state).to_pylist())) for each in (control, found)]
        assert bags[0] == bags[1] and bags[0], state
