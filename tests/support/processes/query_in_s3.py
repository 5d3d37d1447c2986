"""A query of Spark whose checkpoint is in S3, as Hadoop's client writes and reads it.

``query_in_s3.py CLASS_PATH ENDPOINT ACCESS_KEY SECRET_KEY FOLDER STEPS`` runs the query once for each of the STEPS, a
list as JSON: an edit that is made before, or null, and the checkpoint. The n-th step reads FOLDER/n.json.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

import statestore

STATE = "spark.sql.streaming.stateStore."
S3A = "spark.hadoop.fs.s3a."


class Sums(StatefulProcessor):
    """The sum of the numbers of each key."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._sum = handle.getValueState("sum", "n bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        before = self._sum.get()
        total = (before[0] if before else 0) + sum(row.n for row in rows)
        self._sum.update((total,))
        yield Row(k=key[0], total=total)

    def close(self) -> None:
        """Close nothing."""


def query(spark: SparkSession, rows: Path, checkpoint: str) -> None:
    read: DataFrame = spark.readStream.schema("k string, n bigint").json(str(rows))
    sums = read.groupBy("k").transformWithState(Sums(), "k string, total bigint", "Update", "None")
    writer = sums.writeStream.outputMode("update").format("noop").option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()


def main(class_path: str, endpoint: str, access_key: str, secret_key: str, folder: Path, steps: list[Any]) -> None:
    builder = SparkSession.builder.master("local[2]")
    for name, value in {
        "spark.driver.extraClassPath": class_path,
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": "2",
        f"{STATE}providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        f"{STATE}rocksdb.changelogCheckpointing.enabled": "true",
        f"{S3A}endpoint": endpoint,
        f"{S3A}endpoint.region": "us-east-1",
        f"{S3A}path.style.access": "true",
        f"{S3A}connection.ssl.enabled": "false",
        f"{S3A}access.key": access_key,
        f"{S3A}secret.key": secret_key,
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    rows = folder / "rows"
    rows.mkdir()
    for number, (edit, checkpoint) in enumerate(steps):
        if edit is not None:
            source, target, text, settings = edit
            with statestore.edit(source, target, settings=settings) as made:
                if text:
                    made.sql(text)
        shutil.copy(folder / f"{number}.json", rows)
        query(spark, rows, checkpoint)
    spark.stop()


if __name__ == "__main__":
    classes, server, key, secret, place, todo = sys.argv[1:]
    main(classes, server, key, secret, Path(place), json.loads(todo))
