"""Checkpoints of real queries in this session: this package's source against Spark's own, cell by cell."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.parameters import mostly_slow

import statestore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
