"""State of a Spark query in RocksDB, read by this package and by Spark's own state source. Prints a line a query.

    python benchmarks/spark_state.py [keys [folder]]

Three checkpoints are made by real queries, or taken from ``folder`` if an earlier run left them there: an aggregation
by a string key in one store and in four, and one by two columns. Runs alternate in one session. A ratio is the median
time of Spark's source over the median of this package's source, so more is better.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

import statestore

RUNS = 7
ROWS = "SELECT count(*) FROM state"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def main(keys: int, folder: Path) -> None:
    spark = session()
    statestore.register(spark)
    one, four, pairs = (made(spark, folder / name, keys, stores) for name, stores in LAYOUTS.items())
    print(f"{keys:,} keys; median of {RUNS} runs, Spark's source over ours")
    for name, checkpoint in (("one store", one), ("four stores", four)):
        whole(spark, f"Spark, all rows, {name}", checkpoint)
        ratio(
            f"DuckDB on two threads against Spark, {name}",
            partial(drained, builtin(spark, checkpoint)),
            duckdb_aggregate(checkpoint),
        )
        one_field = builtin(spark, checkpoint).agg(F.sum("value.count"))
        asked = "SELECT sum(value.count) FROM state"
        ratio(f"sql(), one field, {name}", one_field.collect, partial(statestore.sql, str(checkpoint), asked))
        ratio(
            f"sql(), count(*), {name}", builtin(spark, checkpoint).count, partial(statestore.sql, str(checkpoint), ROWS)
        )
    user = f"user-{keys // 20:09d}"
    point = f"key.user = '{user}' AND key.item = 3"
    lookup(spark, "point look-up", pairs, point, 1)
    lookup(spark, "prefix look-up", pairs, f"key.user = '{user}'", 10)
    fastest(spark)
    inspected(one)
    spark.stop()


LAYOUTS = {"one": 1, "four": 4, "pairs": 1}


def session() -> SparkSession:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "4g")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def made(spark: SparkSession, folder: Path, keys: int, stores: int) -> Path:
    """The checkpoint of a query over ``keys`` keys, then over every tenth of them again."""
    checkpoint = folder / "checkpoint"
    if (checkpoint / "commits" / "1").exists():
        return checkpoint
    spark.conf.set("spark.sql.shuffle.partitions", stores)
    source = folder / "source"
    pairs = folder.name == "pairs"
    for batch, step in enumerate((1, 10)):
        rows = spark.range(0, keys, step)
        columns = (
            [
                F.format_string("user-%09d", F.expr("id div 10")).alias("user"),
                (F.col("id") % 10).cast("int").alias("item"),
            ]
            if pairs
            else [F.format_string("word-%08d", "id").alias("word")]
        )
        rows.select(*columns, (F.col("id") % 1000).alias("amount")).write.parquet(str(source / str(batch)))
        stream = spark.readStream.schema(spark.read.parquet(str(source / "0")).schema).parquet(f"{source}/*")
        by = ["user", "item"] if pairs else ["word"]
        counted = stream.groupBy(*by).agg(F.count("*"), F.sum("amount"), F.avg("amount"))
        query = (
            counted.writeStream.outputMode("update")
            .format("noop")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    return checkpoint


def builtin(spark: SparkSession, checkpoint: Path) -> DataFrame:
    return spark.read.format("statestore").option("provider", "builtin").load(str(checkpoint))


def ours(spark: SparkSession, checkpoint: Path) -> DataFrame:
    return spark.read.format("statestore").load(str(checkpoint))


def drained(frame: DataFrame) -> None:
    """Read all rows and columns and drop them in the JVM."""
    frame.write.format("noop").mode("overwrite").save()


def whole(spark: SparkSession, what: str, checkpoint: Path) -> None:
    theirs, mine = builtin(spark, checkpoint), ours(spark, checkpoint)
    assert theirs.count() == mine.count()
    ratio(what, lambda: drained(theirs), lambda: drained(mine))
    ratio(f"{what}: count(*)", theirs.count, mine.count)


def duckdb_aggregate(checkpoint: Path) -> Callable[[], object]:
    connection = statestore.attach(str(checkpoint))
    connection.execute("SET threads = 2")
    query = 'SELECT count(*), max(key.word), sum(value."count"), sum(value."sum") FROM state'
    return lambda: connection.execute(query).fetchall()


def lookup(spark: SparkSession, what: str, checkpoint: Path, condition: str, expected: int) -> None:
    connection = statestore.attach(str(checkpoint))

    def rows(frame: DataFrame) -> None:
        found = frame.where(condition).collect()
        assert len(found) == expected, found

    def rows_in_duckdb() -> None:
        found = connection.execute(f"FROM state WHERE {condition}").fetchall()
        assert len(found) == expected, found

    scanned = partial(rows, builtin(spark, checkpoint))
    ratio(f"{what}, Spark", scanned, lambda: rows(ours(spark, checkpoint)))
    ratio(f"{what}, DuckDB against Spark", scanned, rows_in_duckdb)


def fastest(spark: SparkSession) -> None:
    """Measure the time that Spark takes for the fastest possible source in Python."""
    spark.dataSource.register(OneRow)
    times = []
    for _ in range(RUNS + 2):
        start = time.perf_counter()
        assert len(spark.read.format(OneRow.name()).load().where("n = 1").collect()) == 1
        times.append(time.perf_counter() - start)
    print(f"a source in Python of one row that is at hand, Spark: {statistics.median(times[2:]) * 1000:.0f} ms")


class OneRow(DataSource):
    """A source of one row, the floor of look-ups through Spark."""

    @classmethod
    def name(cls) -> str:
        return "one_row"

    def schema(self) -> str:
        return "n int"

    def reader(self, schema: StructType) -> DataSourceReader:
        return OneRowReader()


class OneRowReader(DataSourceReader):
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"n": pa.array([1], pa.int32())})


def inspected(checkpoint: Path) -> None:
    times = []
    for _ in range(RUNS):
        start = time.perf_counter()
        subprocess.run(
            [Path(sys.executable).with_name("statestore"), "inspect", checkpoint], check=True, capture_output=True
        )
        times.append(time.perf_counter() - start)
    print(f"inspect, Python start included: {statistics.median(times):.2f} s")


def ratio(what: str, theirs: Callable[[], object], mine: Callable[[], object]) -> None:
    times: dict[Callable[[], object], list[float]] = {theirs: [], mine: []}
    for run in range(RUNS + 2):
        for work, seen in times.items():
            start = time.perf_counter()
            work()
            if run >= 2:  # the first ones warm up
                seen.append(time.perf_counter() - start)
    theirs_s, mine_s = (statistics.median(seen) for seen in times.values())
    print(f"{what}: {theirs_s / mine_s:.2f} ({theirs_s * 1000:.0f} against {mine_s * 1000:.0f} ms)", flush=True)


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000_000
    if len(sys.argv) > 2:
        main(count, Path(sys.argv[2]))
    else:
        with tempfile.TemporaryDirectory() as made_here:
            main(count, Path(made_here))
