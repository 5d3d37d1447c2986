"""Queries of Spark go on from edited copies of their checkpoints as if their state had always been so.

For each layout of state files Spark makes a checkpoint, rows are erased, repaired and inserted in a copy, and the query
goes on from the copy. Its state is that of a plain model, by Spark's own reader and by ours.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pytest
from support.edited_copies import write_copy
from support.parameters import mostly_slow

import statestore
from statestore.formats.edits import EditOptions, StateEdit
from statestore.formats.places.locations import parse_location
from statestore.formats.spark.source import CheckpointSource, open_source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PREFIX = "spark.sql.streaming.stateStore."
ROCKSDB = {f"{PREFIX}providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"}
CHANGELOGS = {f"{PREFIX}rocksdb.changelogCheckpointing.enabled": "true"}
SECOND_FORMAT = {f"{PREFIX}checkpointFormatVersion": "2"}
CHECKSUMS = {f"{PREFIX}rowChecksum.enabled": "true"}
LAYOUTS: dict[str, dict[str, str]] = {
    "deltas": {},
    "deltas in zstd": {f"{PREFIX}compression.codec": "zstd"},
    "deltas in snappy": {f"{PREFIX}compression.codec": "snappy"},
    "deltas in lzf": {f"{PREFIX}compression.codec": "lzf"},
    "deltas with checksums": CHECKSUMS,
    "zips": ROCKSDB,
    "zips with checksums": ROCKSDB | CHECKSUMS,
    "changelogs": ROCKSDB | CHANGELOGS,
    "changelogs with checksums": ROCKSDB | CHANGELOGS | CHECKSUMS,
    "zips of format 2": ROCKSDB | SECOND_FORMAT,
    "changelogs of format 2": ROCKSDB | CHANGELOGS | SECOND_FORMAT,
    "changelogs of format 2 with checksums": ROCKSDB | CHANGELOGS | SECOND_FORMAT | CHECKSUMS,
}
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


@contextmanager
def conf(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    former = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in former.items():
            spark.conf.unset(name) if value is None else spark.conf.set(name, value)


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


def run(spark: SparkSession, job: Job, folder: Path, checkpoint: Path, batches: list[Rows]) -> None:
    """Run a query over further files of rows, one file a batch."""
    inputs = folder / "rows"
    inputs.mkdir(exist_ok=True)
    for batch in batches:
        text = "".join(json.dumps({"k": k, "n": n}) + "\n" for k, n in batch)
        (inputs / f"{len(list(inputs.iterdir())):03d}.json").write_text(text)
    rows = spark.readStream.schema("k string, n bigint").option("maxFilesPerTrigger", 1).json(str(inputs))
    writer = job.result(rows).writeStream.outputMode(job.mode).format(job.sink)
    writer = writer.option("checkpointLocation", str(checkpoint)).option("path", str(folder / "out"))
    writer.trigger(availableNow=True).start().awaitTermination()


def opened(checkpoint: Path) -> CheckpointSource:
    return open_source(parse_location(checkpoint))


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
    at = source.at("state", source.newest("state"))
    table = pa.concat_tables(
        pa.Table.from_batches(at.rows(part, at.schema.names, ()), at.schema) for part in at.parts(())
    ).select(["key", "value"])
    keys = [key["k"] for key in table["key"].to_pylist()]
    removed = table.take([keys.index(key) for key in (job.erased, *job.repaired)])
    names = [field.name for field in at.schema.field("value").type]
    come = {**job.repaired, **job.inserted}
    columns = [
        pa.array([{"k": key} for key in come], at.schema.field("key").type),
        pa.array([dict(zip(names, value, strict=True)) for value in come.values()], at.schema.field("value").type),
    ]
    added = pa.Table.from_arrays(columns, schema=table.schema)
    return StateEdit("state", ("key",), removed, added)


def content(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


CASES = [(layout, job) for layout in LAYOUTS for job in (Counting(), Deduplicating())]
QUICK = [("deltas", "Counting"), ("changelogs of format 2 with checksums", "Counting"), ("zips", "Deduplicating")]


@pytest.mark.parametrize(
    ("layout", "name"),
    mostly_slow([(layout, type(job).__name__) for layout, job in CASES], QUICK),
)
def test_a_query_goes_on_from_the_edited_state(spark: SparkSession, tmp_path: Path, layout: str, name: str) -> None:
    job: Job = Counting() if name == "Counting" else Deduplicating()
    with conf(spark, LAYOUTS[layout]):
        run(spark, job, tmp_path, tmp_path / "source", BEFORE)
        before, was = ours(tmp_path / "source"), content(tmp_path / "source")
        assert before == job.state(BEFORE)
        source = opened(tmp_path / "source")
        plan = source.edit_plan(source.newest("state"), [edit_of(job, source)], EditOptions())
        write_copy(plan, tmp_path / "target")
        edited = {**before, **job.repaired, **job.inserted}
        del edited[job.erased]
        assert ours(tmp_path / "target") == edited == theirs(spark, tmp_path / "target")
        assert content(tmp_path / "source") == was

        run(spark, job, tmp_path, tmp_path / "target", AFTER)
        model = job.state(AFTER, edited)
        assert ours(tmp_path / "target") == model == theirs(spark, tmp_path / "target")
        run(spark, job, tmp_path, tmp_path / "target", LAST)
        model = job.state(LAST, model)
        assert ours(tmp_path / "target") == model == theirs(spark, tmp_path / "target")
        assert content(tmp_path / "source") == was
    if job.sink == "json":
        passed = [json.loads(line) for file in (tmp_path / "out").glob("*.json") for line in file.open()]
        # The erased key passes once more, the inserted one never.
        assert sorted(row["k"] for row in passed) == sorted([*"aabcdefghijk"])
