"""Spark repartitions the state of a query during the test, and each batch is read as Spark reads it itself."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.spark_release import since

import statestore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Repartitioned checkpoints that newer releases wrote are read with every release, from the archive of tests.
pytestmark = since(4, 2, "repartition")
PREFIX = "spark.sql.streaming.stateStore."
SETTINGS = {
    "spark.sql.shuffle.partitions": "3",
    f"{PREFIX}providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    f"{PREFIX}rocksdb.changelogCheckpointing.enabled": "true",
    f"{PREFIX}checkpointFormatVersion": "2",
    "spark.sql.session.timeZone": "UTC",
}


@pytest.fixture(scope="module")
def checkpoint(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A count by key on 3 partitions, then 1, then 2, in a registered session, which must not disturb Spark."""
    repartition = spark._streamingCheckpointManager
    folder = tmp_path_factory.mktemp("repartition")
    (folder / "rows").mkdir()
    before = {name: spark.conf.get(name, None) for name in SETTINGS}
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    try:
        rows = spark.readStream.schema("k string").json(str(folder / "rows"))
        for step in ("abcdefgh", 1, "aby", 2, "az"):
            if isinstance(step, int):
                repartition.repartition(str(folder / "checkpoint"), step)
                continue
            spark.createDataFrame([(key,) for key in step], "k string").coalesce(1).write.mode("append").json(
                str(folder / "rows")
            )
            writer = rows.groupBy("k").count().writeStream.outputMode("update").format("noop")
            writer = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
            writer.start().awaitTermination()
    finally:
        for name, former in before.items():
            spark.conf.unset(name) if former is None else spark.conf.set(name, former)
    return folder / "checkpoint"


def read(spark: SparkSession, path: Path, **options: Any) -> DataFrame:
    reader = spark.read.format("statestore")
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load(str(path))


def shown(frame: DataFrame) -> Counter[Any]:
    return Counter(map(str, frame.collect()))


@pytest.mark.slow
def test_each_batch_is_what_spark_reads(spark: SparkSession, checkpoint: Path) -> None:
    spark.conf.set(f"{PREFIX}checkpointFormatVersion", "2")
    try:
        for batch, count in enumerate((3, 1, 1, 2, 2)):
            ours = read(spark, checkpoint, batchId=batch)
            assert shown(ours) == shown(read(spark, checkpoint, batchId=batch, provider="builtin"))
            assert {row.partition_id for row in ours.collect()} <= set(range(count))
            assert shown(read(spark, checkpoint, versionAsOf=batch)) == shown(ours)
    finally:
        spark.conf.unset(f"{PREFIX}checkpointFormatVersion")


@pytest.mark.slow
def test_moves_are_no_changes_for_spark_either(spark: SparkSession, checkpoint: Path) -> None:
    found = read(spark, checkpoint, readChangeFeed=True, startingVersion=0)
    told = Counter((row.key.k, row._commit_version, row._change_type) for row in found.collect())
    inserts = {(key, 0, "insert"): 1 for key in "abcdefgh"} | {("y", 2, "insert"): 1, ("z", 4, "insert"): 1}
    updates = {(*change, kind): 1 for change in (("a", 2), ("b", 2), ("a", 4)) for kind in KINDS}
    assert told == Counter(inserts | updates)
    past = read(spark, checkpoint, history=True).where("key.k = 'a'").select("_commit_version", "value")
    assert sorted((version, value[0]) for version, value in past.collect()) == [(0, 1), (2, 2), (4, 3)]
    feed = read(spark, checkpoint, readChangeFeed=True, changeStartBatchId=0, changeEndBatchId=4)
    assert Counter(row.batch_id for row in feed.collect()) == {0: 8, 2: 3, 4: 2}


KINDS = ("update_preimage", "update_postimage")


@pytest.mark.slow
def test_a_stream_of_what_a_batch_had_is_joined_as_of_any_batch(spark: SparkSession, checkpoint: Path) -> None:
    then = read(spark, checkpoint, versionAsOf=1).where("key.k = 'a'").select("value").collect()
    now = statestore.inspect(checkpoint).table("state").scan(filter=("key.k", "=", "a")).read_all()
    assert [row.value[0] for row in then] == [1]
    assert [value["count"] for value in now["value"].to_pylist()] == [3]
