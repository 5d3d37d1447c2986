"""Spark reading the state of a query, from this package and from Spark's own state source. Prints JSON lines.

    python benchmarks/spark_checkpoint.py [--keys 1500000] [--folder DIR] [--only rocksdb-4,hdfs-8] [--reads "one key"]

Real queries make the checkpoints, one for each provider and 1, 4 and 8 partitions, or an earlier run left them in the
folder. A value is a struct of numbers, texts and a time; a second batch wrote a tenth of the keys again. Reads
alternate in one session with two cores; figures (wall, CPU) are the least of the runs. CPU is user and system time of
the JVM, its Python workers and this process; ``ratio`` is ours to Spark's, so less is better.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from spark_sql import measured

import statestore

PROVIDER = "org.apache.spark.sql.execution.streaming.state."
PROVIDERS = {"rocksdb": PROVIDER + "RocksDBStateStoreProvider", "hdfs": PROVIDER + "HDFSBackedStateStoreProvider"}
PARTITIONS = (1, 4, 8)
READS: dict[str, tuple[Callable[[DataFrame], DataFrame], float]] = {
    "all rows": (lambda state: state, 0.7),
    "one field": (lambda state: state.select("value.count"), 0.3),
    "one text field": (lambda state: state.select("value.min"), 0.3),
    "filter on a field": (lambda state: state.where("value.count > 1").select("key", "value.count"), 0.3),
    "sum of a field": (lambda state: state.agg(F.sum("value.sum")), 0.3),
    "one key": (lambda state: state.where("key.word = 'word-00004711'"), 0.1),
    "count(*)": (lambda state: state.groupBy().count(), 0.3),
}


def session() -> SparkSession:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "4g")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    statestore.register(spark)
    return spark


def made(spark: SparkSession, folder: Path, provider: str, partitions: int, keys: int) -> str:
    """The checkpoint of a query over ``keys`` keys, then over every tenth of them again."""
    checkpoint = folder / f"{provider}-{partitions}"
    if (checkpoint / "commits" / "1").exists():
        return str(checkpoint)
    spark.conf.set("spark.sql.shuffle.partitions", partitions)
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", PROVIDERS[provider])
    source = folder / "source"
    for batch, step in enumerate((1, 10)):
        if not (source / f"{batch}" / "_SUCCESS").exists():
            number = F.col("id")
            spark.range(0, keys, step, 2).select(
                F.format_string("word-%08d", number).alias("word"),
                (number % 1000 / 4).alias("amount"),
                F.format_string("city %d", number % 977).alias("city"),
                F.timestamp_seconds(number + 1_700_000_000).alias("time"),
            ).write.parquet(str(source / f"{batch}"))
        stream = spark.readStream.schema(spark.read.parquet(str(source / "0")).schema).option("maxFilesPerTrigger", 2)
        aggregated = (
            stream.parquet(f"{source}/{'*' if batch else '0'}")
            .groupBy("word")
            .agg(
                F.count("*").alias("count"),
                F.sum("amount").alias("total"),
                F.min("city").alias("least_city"),
                F.max("city").alias("largest_city"),
                F.max("time").alias("newest"),
            )
        )
        written = aggregated.writeStream.outputMode("update").format("noop")
        query = written.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination()
    return str(checkpoint)


def drained(frame: DataFrame) -> None:
    """Read all rows and columns and drop them in the JVM."""
    frame.write.format("noop").mode("overwrite").save()


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--keys", type=int, default=1_500_000)
    arguments.add_argument("--runs", type=int, default=4)
    arguments.add_argument("--folder", type=Path, help="where the checkpoints are, or will stay")
    arguments.add_argument("--only", default="", help="checkpoints to read, such as rocksdb-4,hdfs-8")
    arguments.add_argument("--reads", default="", help="reads to measure, with commas between")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="statestore-checkpoints-") as temporary:
        folder = given.folder or Path(temporary)
        spark = session()
        for provider in PROVIDERS:
            for partitions in PARTITIONS:
                name = f"{provider}-{partitions}"
                if not given.only or name in given.only.split(","):
                    checkpoint = made(spark, folder, provider, partitions, given.keys)
                    for read in READS:
                        if not given.reads or read in given.reads.split(","):
                            compare(spark, checkpoint, name, read, given.runs)
        spark.stop()


def compare(spark: SparkSession, checkpoint: str, name: str, read: str, runs: int) -> None:
    ask, goal = READS[read]
    best: dict[str, tuple[float, float]] = {}
    for _ in range(runs):
        for provider in ("builtin", ""):

            def run(provider: str = provider) -> None:
                reader = spark.read.format("statestore")
                state = (reader.option("provider", provider) if provider else reader).load(checkpoint)
                drained(ask(state))

            cpu, wall = measured(run)
            least = best.get(provider, (cpu, wall))
            best[provider] = min(least[0], cpu), min(least[1], wall)
    (theirs, their_wall), (ours, our_wall) = best["builtin"], best[""]
    found = {
        "checkpoint": name,
        "read": read,
        "ratio_wall": round(our_wall / their_wall, 2),
        "ratio_cpu": round(ours / theirs, 2),
        "goal": goal,
        "ours": [round(our_wall, 2), round(ours, 2)],
        "spark": [round(their_wall, 2), round(theirs, 2)],
    }
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
