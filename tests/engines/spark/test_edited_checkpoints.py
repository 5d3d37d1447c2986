"""Queries of Spark go on from edited copies of their checkpoints as if their state had always been so.

For each layout of state files Spark makes a checkpoint, rows are erased, repaired and inserted in a copy, and the query
goes on from the copy. Its state is that of a plain model, by Spark's own reader and by ours.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pytest
from support.checkpoints.running_queries import LAYOUTS, conf, content, opened, rows_of, run
from support.edited_copies import write_copy
from support.parameters import mostly_slow
from support.spark_release import skip_unknown

import statestore
from statestore.formats.edits import EditOptions, StateEdit
from statestore.formats.spark.source import CheckpointSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Rows = list[tuple[str, int]]
BEFORE: list[Rows] = [
    [("a", 1), ("b", 2), ("c", 3), ("d", 4)],
    [("a", 10), ("e", 5), ("f", 6), ("g", 7)],
    [("b", 20), ("h", 8), ("a", 100)],
]
AFTER: list[Rows] = [
    [("a", 1000), ("b", 2000), ("new", 1), ("i", 9)],
    [("c", 30), ("a", 1), ("b", 1), ("new", 2)],
    [("a", 2), ("d", 40), ("j", 1)],
]
LAST: list[Rows] = [[("a", 5), ("b", 6), ("new", 7), ("k", 1)]]


class Counting:
    """A query that counts and sums by key."""

    mode, sink = "update", "noop"
    erased = "a"
    repaired: ClassVar[dict[str, Any]] = {"b": (7, -5)}
    inserted: ClassVar[dict[str, Any]] = {"new": (3, 1 << 40)}

    def result(self, rows: DataFrame) -> DataFrame:
        return rows.groupBy("k").agg({"*": "count", "n": "sum"})

    def state(self, batches: list[Rows], edited: dict[str, tuple[int, int]] | None = None) -> dict[str, Any]:
        found = dict(edited or {})
        for k, n in (row for batch in batches for row in batch):
            count, total = found.get(k, (0, 0))
            found[k] = count + 1, total + n
        return found


class Deduplicating:
    """A query that lets the first row of each key pass."""

    mode, sink = "append", "json"
    erased = "a"
    repaired: ClassVar[dict[str, Any]] = {}
    inserted: ClassVar[dict[str, Any]] = {"new": (None,)}

    def result(self, rows: DataFrame) -> DataFrame:
        return rows.dropDuplicates(["k"])

    def state(self, batches: list[Rows], edited: dict[str, tuple[Any, ...]] | None = None) -> dict[str, Any]:
        return dict(edited or {}) | {k: (None,) for batch in batches for k, _ in batch}


Job = Counting | Deduplicating


def go(spark: SparkSession, job: Job, folder: Path, checkpoint: Path, batches: list[Rows]) -> None:
    rows = [[{"k": k, "n": n} for k, n in batch] for batch in batches]
    run(spark, folder, checkpoint, "k string, n bigint", rows, job.result, job.mode, job.sink)


def ours(checkpoint: Path) -> dict[str, tuple[Any, ...]]:
    rows = statestore.inspect(checkpoint).table("state").scan().read_all().to_pylist()
    found = {row["key"]["k"]: tuple(row["value"].values()) for row in rows}
    assert len(found) == len(rows)
    return found


def theirs(spark: SparkSession, checkpoint: Path) -> dict[str, tuple[Any, ...]]:
    rows = spark.read.format("statestore").option("provider", "builtin").load(str(checkpoint)).collect()
    found = {row.key.k: tuple(row.value) for row in rows}
    assert len(found) == len(rows)
    return found


def edit_of(job: Job, source: CheckpointSource) -> StateEdit:
    """An edit that erases, repairs and inserts rows."""
    table = rows_of(source)
    keys = [key["k"] for key in table["key"].to_pylist()]
    removed = table.take([keys.index(key) for key in (job.erased, *job.repaired)])
    names = [field.name for field in table.schema.field("value").type]
    come = {**job.repaired, **job.inserted}
    values = [dict(zip(names, value, strict=True)) for value in come.values()]
    added = pa.Table.from_pydict({"key": [{"k": key} for key in come], "value": values}, schema=table.schema)
    return StateEdit("state", ("key",), removed, added)


CASES = [(layout, job) for layout in LAYOUTS for job in (Counting(), Deduplicating())]
QUICK = [("deltas", "Counting")]


@pytest.mark.parametrize(
    ("layout", "name"),
    mostly_slow([(layout, type(job).__name__) for layout, job in CASES], QUICK),
)
def test_a_query_goes_on_from_the_edited_state(spark: SparkSession, tmp_path: Path, layout: str, name: str) -> None:
    job: Job = Counting() if name == "Counting" else Deduplicating()
    skip_unknown(layout)
    with conf(spark, LAYOUTS[layout]):
        go(spark, job, tmp_path, tmp_path / "source", BEFORE)
        before, was = ours(tmp_path / "source"), content(tmp_path / "source")
        assert before == job.state(BEFORE)
        source = opened(tmp_path / "source")
        plan = source.edit_plan(source.newest("state"), [edit_of(job, source)], EditOptions())
        write_copy(plan, tmp_path / "target")
        edited = {**before, **job.repaired, **job.inserted}
        del edited[job.erased]
        assert ours(tmp_path / "target") == edited == theirs(spark, tmp_path / "target")
        assert content(tmp_path / "source") == was

        go(spark, job, tmp_path, tmp_path / "target", AFTER)
        model = job.state(AFTER, edited)
        assert ours(tmp_path / "target") == model == theirs(spark, tmp_path / "target")
        go(spark, job, tmp_path, tmp_path / "target", LAST)
        model = job.state(LAST, model)
        assert ours(tmp_path / "target") == model == theirs(spark, tmp_path / "target")
        assert content(tmp_path / "source") == was
    if job.sink == "json":
        passed = [json.loads(line) for file in (tmp_path / "out").glob("*.json") for line in file.open()]
        # The erased key passes once more, the inserted one never.
        assert sorted(row["k"] for row in passed) == sorted([*"aabcdefghijk"])


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["deltas", "zips", "changelogs", "changelogs of format 2", "zips of format 2"])
def test_a_batch_that_was_begun_runs_again_on_the_edited_state(
    spark: SparkSession, tmp_path: Path, layout: str
) -> None:
    job = Counting()
    skip_unknown(layout)
    with conf(spark, LAYOUTS[layout]):
        go(spark, job, tmp_path, tmp_path / "source", BEFORE)
        (tmp_path / "source/commits/2").unlink()  # as if the query had died before it
        (tmp_path / "source/commits/.2.crc").unlink()
        source = opened(tmp_path / "source")
        assert source.newest("state") == 1
        before = job.state(BEFORE[:2])
        plan = source.edit_plan(1, [edit_of(job, source)], EditOptions())
        assert any("Batch 2 was begun and not committed" in note for note in plan.notes)
        write_copy(plan, tmp_path / "target")
        edited = {**before, **job.repaired, **job.inserted}
        del edited[job.erased]
        assert ours(tmp_path / "target") == edited
        go(spark, job, tmp_path, tmp_path / "target", AFTER)
        model = job.state(AFTER, job.state(BEFORE[2:], edited))
        assert ours(tmp_path / "target") == model == theirs(spark, tmp_path / "target")
        assert opened(tmp_path / "target").newest("state") == 2 + len(AFTER)


@pytest.mark.slow
@pytest.mark.parametrize("layout", list(LAYOUTS))
def test_a_query_goes_on_after_a_batch_that_is_an_edit(spark: SparkSession, tmp_path: Path, layout: str) -> None:
    job = Counting()
    skip_unknown(layout)
    with conf(spark, LAYOUTS[layout]):
        go(spark, job, tmp_path, tmp_path / "source", BEFORE)
        before, source = job.state(BEFORE), opened(tmp_path / "source")
        plan = source.edit_plan(2, [edit_of(job, source)], EditOptions(as_batch=True))
        write_copy(plan, tmp_path / "target")
        edited = {**before, **job.repaired, **job.inserted}
        del edited[job.erased]
        assert ours(tmp_path / "target") == edited == theirs(spark, tmp_path / "target")
        go(spark, job, tmp_path, tmp_path / "target", AFTER)
        go(spark, job, tmp_path, tmp_path / "target", LAST)
        model = job.state(LAST, job.state(AFTER, edited))
        assert ours(tmp_path / "target") == model == theirs(spark, tmp_path / "target")
        assert opened(tmp_path / "target").newest("state") == 3 + len(AFTER) + len(LAST)
    history = statestore.inspect(tmp_path / "target").table("state").scan(version=2).read_all().to_pylist()
    assert {row["key"]["k"]: tuple(row["value"].values()) for row in history} == before


@pytest.mark.slow
@pytest.mark.parametrize("as_batch", [False, True])
@pytest.mark.parametrize("layout", ["deltas", "zips"])
def test_a_count_of_all_rows_goes_on(spark: SparkSession, tmp_path: Path, layout: str, as_batch: bool) -> None:
    """Its one row, whose key has no columns, is in the first partition."""

    def count(rows: DataFrame) -> DataFrame:
        return rows.groupBy().count()

    schema, batches = "k string, n bigint", [[{"k": "a", "n": n}] for n in range(3)]
    with conf(spark, LAYOUTS[layout]):
        run(spark, tmp_path, tmp_path / "source", schema, batches, count)
        source = opened(tmp_path / "source")
        before = rows_of(source)
        assert before["value"].to_pylist() == [{"count": 3}]
        value = pa.array([{"count": 100}], before.schema.field("value").type)
        edit = StateEdit("state", ("key",), before, before.set_column(1, before.schema.field("value"), value))
        write_copy(source.edit_plan(2, [edit], EditOptions(as_batch=as_batch)), tmp_path / "target")
        run(spark, tmp_path, tmp_path / "target", schema, batches, count)
        assert rows_of(opened(tmp_path / "target"))["value"].to_pylist() == [{"count": 103}]
