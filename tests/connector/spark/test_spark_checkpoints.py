"""Checkpoints of Spark in Spark: history, changes and moments are those of Python, filtered as Spark itself filters."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from support.checkpoints.checkpoint_tables import began, tables
from support.checkpoints.spark_state_fixtures import checkpoint_path, multiset
from support.parameters import mostly_slow

import statestore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
AGGREGATION, JOIN = "spark4.3.0-agg__rkcl", "spark4.3.0-join__hdfs"
CHAIN, VARIABLES, MANY_TYPES = "spark4.0.1-chain__rkcl", "spark4.3.0-twsttl__rkcl", "spark4.3.0-aggmulti__rkcl"


def load(spark: SparkSession, name: str | Path, **options: Any) -> DataFrame:
    path = checkpoint_path(name) if isinstance(name, str) else name
    return spark.read.format("statestore").options(**options).load(str(path))


def refusal(spark: SparkSession, name: str | Path, **options: Any) -> str:
    with pytest.raises(PySparkException) as caught:
        load(spark, name, **options).collect()
    return str(caught.value)


@pytest.mark.quick("*timers*")
@pytest.mark.parametrize(
    ("name", "shown", "options"),
    [
        (AGGREGATION, "state", {}),
        (JOIN, "right", {"joinSide": "RIGHT"}),
        (CHAIN, "state_1", {"operatorId": 1}),
        (VARIABLES, "tmp", {"stateVarName": "tmp"}),
        (VARIABLES, "timers", {"readRegisteredTimers": "true"}),
        pytest.param(JOIN, "left", {"joinSide": "left"}, marks=pytest.mark.slow),
        pytest.param(CHAIN, "state_0", {}, marks=pytest.mark.slow),
        pytest.param(VARIABLES, "lst", {"stateVarName": "lst"}, marks=pytest.mark.slow),
    ],
)
def test_the_same_rows_as_in_python(spark: SparkSession, name: str, shown: str, options: dict[str, Any]) -> None:
    """Options for history and changes can be combined with those options of Spark's source that select state."""
    table = tables(checkpoint_path(name))[shown]
    for read, asked in ((table.history(), {"history": "true"}), (table.changes(), {"readChangeFeed": "true"})):
        expected = multiset(read.read_all())
        found = load(spark, name, **asked, **options)
        assert found.columns == read.schema.names
        assert multiset(found.toArrow()) == expected
    by_name = spark.read.format("statestore").option("history", True).load(f"{checkpoint_path(name)}/{shown}")
    assert by_name.count() == table.history().read_all().num_rows


def test_ranges_and_moments(spark: SparkSession) -> None:
    path = checkpoint_path(AGGREGATION)
    table = tables(path)["state"]
    first, last = began(path, 2), began(path, 4)
    feed = {"readChangeFeed": "true"}
    times = {"startingTimestamp": first.isoformat(), "endingTimestamp": last.isoformat()}
    for expected, options in (
        (table.changes(2, 4), {**feed, "startingVersion": 2, "endingVersion": 4}),
        (table.changes(2, 4), {**feed, **times}),
        (table.changes(0, 0), {**feed, "endingVersion": 0}),
        (table.history(start_time=first, end_time=last), {"history": "true", **times}),
        (table.history(version=2), {"history": "true", "versionAsOf": 2}),
        (table.history(version=2), {"history": "true", "batchId": 2}),
        (table.scan(version=2), {"timestampAsOf": first.isoformat()}),
        (table.scan(version=1), {"timestampAsOf": f"{int(first.timestamp() * 1000) - 1}"}),
    ):
        assert multiset(load(spark, AGGREGATION, **options).toArrow()) == multiset(expected.read_all()), options


@pytest.mark.slow
def test_sql(spark: SparkSession) -> None:
    path = checkpoint_path(AGGREGATION)
    table = tables(path)["state"]
    moment = began(path, 3).isoformat()
    for expected, text in (
        (table.history(), "SELECT * FROM history('state')"),
        (table.history(start_time=began(path, 3)), f"SELECT * FROM history('state', '{moment}')"),
        (table.history(version=2), "SELECT * FROM history('state') VERSION AS OF 2"),
        (table.changes(2, 3), "SELECT * FROM changes('state', 2, 3)"),
        (table.changes(start_time=began(path, 3)), f"SELECT * FROM changes('state', '{moment}')"),
        (table.scan(version=3), f"SELECT * FROM state TIMESTAMP AS OF '{moment}'"),
    ):
        assert multiset(statestore.sql(str(path), text, spark=spark).toArrow()) == multiset(expected.read_all()), text
    with pytest.raises(statestore.StateStoreError, match=r"INVALID_SQL.*line 1, column 15.*VERSION AS OF"):
        statestore.sql(str(path), "SELECT * FROM changes('state') VERSION AS OF 2", spark=spark)


FILTERS: list[tuple[str, dict[str, Any], str]] = [
    (AGGREGATION, {}, "key.k = 'key-00-'"),
    (AGGREGATION, {}, "key = struct('key-00-' AS k)"),
    (AGGREGATION, {}, "key.k IN ('key-00-', 'key-01-é', 'none', null)"),
    (AGGREGATION, {}, "key.k IS NULL"),
    (AGGREGATION, {}, "key.k <=> null AND partition_id < 5"),
    (AGGREGATION, {}, "key.k LIKE 'key-0%' AND value.count > 3"),
    (AGGREGATION, {}, "partition_id = 7"),
    (AGGREGATION, {}, "partition_id IS NOT NULL"),
    (AGGREGATION, {"history": "true"}, "key.k = 'key-00-' AND _commit_version < 4"),
    (AGGREGATION, {"history": "true"}, "valid_to IS NULL AND partition_id = 1"),
    (AGGREGATION, {"history": "true"}, "valid_from > timestamp'2026-11-20 10:32:32'"),
    (AGGREGATION, {"readChangeFeed": "true"}, "_change_type = 'update_preimage' AND key.k > 'key-3'"),
    (AGGREGATION, {"readChangeFeed": "true"}, "key.k = 'key-00-' AND _commit_version BETWEEN 2 AND 3"),
    (MANY_TYPES, {}, "key.k = 'key-52-' AND key.i = 32000"),
    (MANY_TYPES, {}, "key.fl = cast(4.4285712 AS float) AND key.d9 = 32.52"),
    (MANY_TYPES, {}, "key.dat = date'2023-02-22' AND NOT key.bo = false"),
    (MANY_TYPES, {}, "key.arr = array() AND key.st.x > 30"),
    (JOIN, {"joinSide": "left", "history": "true"}, "key.field0 IS NULL AND value.v > 300"),
    (VARIABLES, {"stateVarName": "tmp"}, "key.id = 12 AND user_map_key.mk = 'm0'"),
    (CHAIN, {"operatorId": 1}, "key.window.start = timestamp'2023-12-31 19:55:00' OR key.k = 'key-40-'"),
    (CHAIN, {"operatorId": 1}, "key.window.start >= timestamp'2023-12-31 19:55:00'"),
]


@pytest.mark.slow
@pytest.mark.parametrize("filters", [FILTERS[::2], pytest.param(FILTERS[1::2], marks=pytest.mark.slow)])
def test_pushed_filters_mean_what_they_mean_to_spark(
    spark: SparkSession, filters: list[tuple[str, dict[str, Any], str]]
) -> None:
    """The setting is changed once for all filters, because that starts new workers."""

    def answers() -> list[pa.Table]:
        return [load(spark, name, **options).where(where).toArrow() for name, options, where in filters]

    before = str(spark.conf.get(PUSHDOWN))
    spark.conf.set(PUSHDOWN, "false")
    try:
        as_spark_filters = answers()
    finally:
        spark.conf.set(PUSHDOWN, before)
    for (_, _, where), pushed, expected in zip(filters, answers(), as_spark_filters, strict=True):
        assert bool(expected.num_rows) is (where != "partition_id = 7")
        assert multiset(pushed) == multiset(expected), where


def test_partitions_and_keys_that_are_filtered_out_are_no_tasks(spark: SparkSession) -> None:
    reads: tuple[dict[str, Any], ...] = ({}, {"history": "true"}, {"readChangeFeed": "true"})
    for options in reads:
        rows = load(spark, AGGREGATION, **options)
        assert (rows.rdd.getNumPartitions(), rows.where("partition_id = 1").rdd.getNumPartitions()) == (2, 1)
    assert load(spark, AGGREGATION).where("key.k = 'key-00-'").rdd.getNumPartitions() == 1


@pytest.mark.slow
def test_columns_that_are_asked_for(spark: SparkSession) -> None:
    rows = load(spark, AGGREGATION, readChangeFeed="true", columns="_Change_Type, key")
    assert rows.columns == ["_change_type", "key"]
    assert rows.where("_change_type = 'insert'").count() == 57
    assert load(spark, AGGREGATION, history="true").select("partition_id").distinct().count() == 2


@pytest.mark.parametrize(
    ("name", "options", "said"),
    mostly_slow(
        [
            (AGGREGATION, {"versionAsOf": 9}, "VERSION_NOT_FOUND.*0 to 5"),
            (AGGREGATION, {"history": "true", "versionAsOf": 9}, "VERSION_NOT_FOUND.*0 to 5"),
            (AGGREGATION, {"timestampAsOf": "2000-01-01T00:00Z"}, "TIME_NOT_KEPT.*or later"),
            (AGGREGATION, {"readChangeFeed": "true", "startingVersion": 9}, "VERSION_NOT_FOUND.*0 to 5"),
            (AGGREGATION, {"readChangeFeed": "true", "startingVersion": 3, "endingVersion": 2}, "INVALID_RANGE"),
            (AGGREGATION, {"readChangeFeed": "true", "versionAsOf": 2}, "INVALID_OPTION.*versionAsOf"),
            (AGGREGATION, {"readChangeFeed": "true", "batchId": 2}, "INVALID_OPTION.*batchId"),
            (AGGREGATION, {"readChangeFeed": "true", "history": "true"}, "INVALID_OPTION.*give one"),
            (
                AGGREGATION,
                {"readChangeFeed": "true", "changeStartBatchId": 2, "startingVersion": 1},
                "INVALID_OPTION.*one kind of bounds",
            ),
            (AGGREGATION, {"history": "true", "changeStartBatchId": 2}, "STATE_SELECTION.*readChangeFeed"),
            (
                AGGREGATION,
                {"history": "true", "snapshotStartBatchId": 2, "snapshotPartitionId": 0},
                "CHECKPOINT_READ.*snapshotStartBatchId",
            ),
            (
                VARIABLES,
                {"history": "true", "stateVarName": "lst", "flattenCollectionTypes": "false"},
                "CHECKPOINT_READ.*flattenCollectionTypes",
            ),
            (JOIN, {"history": "true"}, "TABLE_NOT_FOUND.*left"),
            (AGGREGATION, {"history": "true", "columns": "nope"}, "COLUMN_NOT_FOUND"),
        ],
        3,
    ),
)
def test_what_is_refused(spark: SparkSession, name: str, options: dict[str, Any], said: str) -> None:
    assert re.search(said, refusal(spark, name, **options), re.DOTALL)


@pytest.mark.slow
def test_purged_batches(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    shutil.copytree(checkpoint_path(AGGREGATION), path)
    for file in path.glob("state/0/*/[12].changelog"):
        file.unlink()
    table = tables(path)["state"]
    assert table.table.kept_versions() == (2, 5)
    for expected, options in (
        (table.history(), {"history": "true"}),
        (table.changes(), {"readChangeFeed": "true"}),
        (table.changes(3), {"readChangeFeed": "true", "startingVersion": 3}),
    ):
        assert multiset(load(spark, path, **options).toArrow()) == multiset(expected.read_all())
    assert "2 to 5" in refusal(spark, path, versionAsOf=1)
    assert "3 to 5" in refusal(spark, path, readChangeFeed="true", startingVersion=2)
    assert "TIME_NOT_KEPT" in refusal(spark, path, timestampAsOf=began(path, 1).isoformat())
    assert "TIME_NOT_KEPT" in refusal(spark, path, history="true", startingTimestamp=began(path, 1).isoformat())


def test_files_that_go_before_they_are_read(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    shutil.copytree(checkpoint_path(AGGREGATION), path)
    rows = load(spark, path, history="true")
    rows.rdd.getNumPartitions()
    shutil.rmtree(path / "state" / "0" / "1")
    shutil.rmtree(path / "state" / "0" / "0")
    with pytest.raises(PySparkException, match="SPARK_STATE_NOT_FOUND"):
        rows.collect()


def stream(spark: SparkSession, path: Path, checkpoint: Path, **options: Any) -> list[pa.Table]:
    seen: list[pa.Table] = []

    def keep(rows: DataFrame, batch: int) -> None:
        seen.append(rows.toArrow())

    rows = spark.readStream.format("statestore").options(readChangeFeed="true", **options).load(str(path))
    writer = rows.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination(60)
    return seen


@pytest.mark.slow
def test_a_stream_of_the_changes_of_a_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    """The stream begins with the first batch, resumes at its position, and reads new batches."""
    path = tmp_path / "growing"
    shutil.copytree(checkpoint_path(AGGREGATION), path)
    kept = json.loads((path / "commits" / "5").read_text().splitlines()[1])
    assert kept["nextBatchWatermarkMs"] == 0
    commit = (path / "commits" / "5").read_bytes()
    (path / "commits" / "5").unlink()  # the newest batch is not committed yet
    expected = tables(checkpoint_path(AGGREGATION))["state"]
    seen = stream(spark, path, tmp_path / "cp")
    assert multiset(pa.concat_tables(seen)) == multiset(expected.changes(0, 4).read_all())
    (path / "commits" / "5").write_bytes(commit)
    seen = stream(spark, path, tmp_path / "cp")
    assert multiset(pa.concat_tables(seen)) == multiset(expected.changes(5).read_all())
    seen = stream(spark, path, tmp_path / "other", startingVersion=3)
    assert multiset(pa.concat_tables(seen)) == multiset(expected.changes(3).read_all())


# Checkpoints of real queries in this session: this package's source against Spark's own, cell by cell

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"


def run_query(spark: SparkSession, folder: Path, query: Any) -> str:
    """Run three batches of a query over a folder of files; return its checkpoint."""
    checkpoint = str(folder / "checkpoint")
    (folder / "in").mkdir()
    for number in range(3):
        rows = spark.range(number * 20, number * 20 + 60).selectExpr(
            "concat('k', id % 23) AS k", "id", "timestamp_seconds(1700000000 + id * 30) AS ts", "id / 4 AS v"
        )
        rows.write.mode("append").parquet(str(folder / "in"))
        stream = spark.readStream.schema(rows.schema).parquet(str(folder / "in"))
        writer = query(stream).writeStream.format("noop").outputMode("update" if "Agg" in folder.name else "append")
        writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
    return checkpoint


def cells(rows: DataFrame) -> list[str]:
    """The rows by position: repeated names in Spark's structs are numbered here."""

    def bare(value: Any) -> Any:
        return tuple(map(bare, value)) if isinstance(value, tuple) else value

    return sorted(str(bare(row)) for row in rows.collect())


def aggregation(rows: DataFrame) -> DataFrame:
    return rows.groupBy("k").agg({"v": "avg", "id": "sum", "ts": "max"})


def windows(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    return rows.withWatermark("ts", "1 day").groupBy(f.window("ts", "5 minutes"), "k").count()


def duplicates(rows: DataFrame) -> DataFrame:
    return rows.dropDuplicates(["k", "id"])


QUERIES = [(query, provider) for query in (aggregation, windows, duplicates) for provider in (ROCKSDB, HDFS)]


@pytest.mark.parametrize(("query", "provider"), mostly_slow(QUERIES, ()))
def test_state_is_what_spark_reads(spark: SparkSession, tmp_path: Path, provider: str, query: Any) -> None:
    folder = tmp_path / ("Agg" if query is aggregation else "other")
    folder.mkdir()
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", provider)
    try:
        checkpoint = run_query(spark, folder, query)
    finally:
        spark.conf.unset("spark.sql.streaming.stateStore.providerClass")
    newest = statestore.inspect(checkpoint).table("state").table.kept_versions()[1]
    for batch in range(newest + 1):
        theirs = spark.read.format("statestore").option("provider", "builtin").option("batchId", batch).load(checkpoint)
        ours = spark.read.format("statestore").option("versionAsOf", batch).load(checkpoint)
        assert cells(ours) == cells(theirs)
    one = spark.read.format("statestore").load(checkpoint).where("partition_id = 1")
    assert one.rdd.getNumPartitions() == 1
    assert spark.read.format("statestore").load(f"{checkpoint}/state").count() == ours.count()
    log = Path(checkpoint, "offsets", str(newest))
    log.write_bytes(log.read_bytes().replace(b'"batchTimestampMs":1', b'"batchTimestampMs":2'))
    with pytest.warns(statestore.StateStoreWarning, match=rf"offsets/{newest}: bytes 0-511 .*{newest}\.crc says"):
        assert statestore.inspect(checkpoint).table("state").scan().read_all().num_rows == ours.count()
