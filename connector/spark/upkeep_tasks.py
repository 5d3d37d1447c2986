"""Upkeep and edits in Spark's tasks: numbered pieces of work, and an answer for each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.errors import PySparkException

from statestore.catalog.upkeep.ranges.task_runs import Work, error_of_text, text_of_error
from statestore.connector.spark.errors import message_only
from statestore.formats.errors import StateStoreError, StorageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = ["number", "answer", "failed"]
SCHEMA = "number int, answer string, failed string"


class UpkeepTasks:
    """The tasks of a session, classic or of Spark Connect."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    @property
    def parallelism(self) -> int:
        """The number of cores that Spark reports."""
        try:
            return int(self._spark.sparkContext.defaultParallelism)
        except PySparkException:  # Spark Connect does not report it
            return int(self._spark.conf.get("spark.sql.shuffle.partitions") or 1)

    def run(self, work: Work, count: int) -> list[str]:
        """Run a task for each number. Spark repeats tasks that die or that the disk fails.

        Any other error of the tree would recur, so that no attempt is repeated for it; it is raised here.
        """

        def answers(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for number in (n for batch in numbers for n in batch.column(0).to_pylist()):
                answer = failed = None
                with message_only():
                    try:
                        answer = work(number)
                    except StorageError:
                        raise
                    except StateStoreError as error:
                        failed = text_of_error(error)
                columns = [
                    pa.array([number], pa.int32()),
                    *(pa.array([text], pa.string()) for text in (answer, failed)),
                ]
                yield pa.RecordBatch.from_arrays(columns, names=["number", "answer", "failed"])

        rows = self._spark.range(0, count, 1, count).mapInArrow(answers, SCHEMA).collect()
        found: dict[int, str] = {}
        for number, answer, failed in sorted(tuple(row) for row in rows):
            if failed is not None:
                raise error_of_text(failed)
            found[number] = answer
        return [found[number] for number in range(count)]
