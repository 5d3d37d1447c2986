"""A streaming query in a process of its own, which is killed with everything it started at a chosen batch.

Arguments: input folder, store, checkpoint, and optionally the batch to die at and when (``staged``: the data is there,
nothing is committed; ``committed``: we have committed, Spark has not). With LEAST_ROWS in the environment, tasks
resolve so few rows themselves.
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

import statestore
from statestore.connector.spark.source import StateStoreSource
from statestore.connector.spark.writer import StateStoreStreamWriter

LEAST_ROWS = os.environ.get("LEAST_ROWS", "")


def kill_session(session: int) -> None:
    """SIGKILL to every process of a session, this one last."""
    mine = os.getpid()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != mine:
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == session:
                    os.kill(int(folder.name), signal.SIGKILL)
            except OSError:  # it has just ended
                continue
    os.kill(mine, signal.SIGKILL)


class DyingWriter(StateStoreStreamWriter):
    batch = -1
    when = ""
    session = 0

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        if batchId == self.batch and self.when == "staged":
            kill_session(self.session)
        super().commit(messages, batchId)
        if batchId == self.batch:
            kill_session(self.session)


class DyingSource(StateStoreSource):
    batch = -1
    when = ""
    session = 0

    @classmethod
    def name(cls) -> str:
        return "dying"

    def streamWriter(self, schema: StructType, overwrite: bool) -> StateStoreStreamWriter:
        writer = DyingWriter(self._path(), schema, overwrite, self.options)
        writer.batch, writer.when, writer.session = self.batch, self.when, self.session
        if LEAST_ROWS and writer._write is not None:
            writer._write = replace(writer._write, least_rows=int(LEAST_ROWS), part_rows=2 * int(LEAST_ROWS))
        return writer


def main(source: str, store: str, checkpoint: str, batch: str = "-1", when: str = "") -> None:
    DyingSource.batch, DyingSource.when, DyingSource.session = int(batch), when, os.getsid(0)
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "2")
    spark = builder.config("spark.log.level", "OFF").config("spark.sql.session.timeZone", "UTC").getOrCreate()
    statestore.register(spark)
    spark.dataSource.register(DyingSource)
    schema = "item string, price double, timestamp timestamp, _change_type string"
    rows = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(source)
    sink = "dying" if when or LEAST_ROWS else "statestore"
    writer = rows.writeStream.format(sink).option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start(store).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
