"""Upkeep and edits in Spark's tasks: numbered pieces of work, and an answer for each."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException

from statestore.catalog.upkeep.ranges.task_runs import Read, Work, Write, error_of_text, text_of_error
from statestore.connector.spark.errors import message_only
from statestore.formats.errors import StateStoreError, StorageError
from statestore.formats.kernels.arrays import Ints
from statestore.formats.kernels.murmur3 import finished, mixed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = ["number", "answer", "failed"]
SCHEMA = "number int, answer string, failed string"
_ROUTED = "route int, destination int, key binary, value binary, failed string"
_HASH_SEED = 42


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
                yield _answer(number, answer, failed)

        rows = self._spark.range(0, count, 1, count).mapInArrow(answers, SCHEMA).collect()
        return _answers([tuple(row) for row in rows], count)

    def move(self, read: Read, count: int, write: Write, destinations: int) -> list[str]:
        """Run a task for each number and one for each destination, with a shuffle between them.

        Spark places rows by the hash of a column. Each destination has a number there that Spark hashes to it, so that
        each has a partition of the shuffle for itself. Errors are as in `run`.
        """
        routes = _routes(destinations)

        def routed(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for number in (n for batch in numbers for n in batch.column(0).to_pylist()):
                if not number:  # each destination gets a row, which says which one it is
                    yield _routed(routes, np.arange(destinations))
                with message_only():
                    try:
                        for batch in read(number):
                            to = batch.column(0).to_numpy().astype(np.int64)
                            yield _routed(routes, to, batch.column(1), batch.column(2))
                    except StorageError:
                        raise
                    except StateStoreError as error:
                        yield _routed(routes, np.zeros(1, np.int64), failed=text_of_error(error))

        def answers(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            first = next(batches, None)
            if first is None:
                return
            destination: int = first.column(1)[0].as_py()
            answer = failed = None
            with message_only():
                try:
                    answer = write(destination, _rows_of(destination, chain([first], batches)))
                except StorageError:
                    raise
                except StateStoreError as error:
                    failed = text_of_error(error)
            yield _answer(destination, answer, failed)

        numbers = self._spark.range(0, count, 1, count)
        shuffled = numbers.mapInArrow(routed, _ROUTED).repartition(destinations, "route")
        rows = shuffled.mapInArrow(answers, SCHEMA).collect()
        return _answers([tuple(row) for row in rows], destinations)


def _answer(number: int, answer: str | None, failed: str | None) -> pa.RecordBatch:
    columns = [pa.array([number], pa.int32()), *(pa.array([text], pa.string()) for text in (answer, failed))]
    return pa.RecordBatch.from_arrays(columns, names=COLUMNS)


def _answers(rows: list[tuple[int, str, str | None]], count: int) -> list[str]:
    """Return the answers in the order of their numbers. Raises the error of one that failed."""
    for _, _, failed in rows:
        if failed is not None:
            raise error_of_text(failed)
    found = {number: answer for number, answer, _ in rows}
    return [found[number] for number in range(count)]


def _routes(destinations: int) -> Ints:
    """A number for each destination whose hash by Spark, modulo the number of destinations, is that destination."""
    found = np.full(destinations, -1, np.int64)
    first, step = 0, max(1 << 12, 8 * destinations)
    while (found < 0).any():
        numbers = np.arange(first, first + step)
        seed, size = np.full(step, _HASH_SEED, np.uint32), np.full(step, 4, np.uint32)
        places = finished(mixed(seed, numbers.astype(np.uint32)), size).view(np.int32).astype(np.int64) % destinations
        missing = found[places] < 0
        found[places[missing]] = numbers[missing]
        first += step
    return found


def _routed(
    routes: Ints, to: Ints, keys: pa.Array | None = None, values: pa.Array | None = None, failed: str | None = None
) -> pa.RecordBatch:
    """Rows on their way; those without a key are none, but say where they are or what failed."""
    empty = pa.nulls(len(to), pa.binary())
    columns = [
        pa.array(routes[to], pa.int32()),
        pa.array(to, pa.int32()),
        *(empty if column is None else column for column in (keys, values)),
        pa.array([failed] * len(to), pa.string()) if failed is not None else pa.nulls(len(to), pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, names=["route", "destination", "key", "value", "failed"])


def _rows_of(destination: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows (key, value) of a destination. Raises the error with which they could not be read."""
    for batch in batches:
        failed = batch.column(4)
        if failed.null_count < len(failed):
            raise error_of_text(failed.drop_null()[0].as_py())
        if pc.any(pc.not_equal(batch.column(1), destination)).as_py():
            raise RuntimeError("Spark gave rows of several destinations to one task; repartition has placed them")
        columns = [column.cast(pa.binary()) for column in batch.columns[2:4]]
        rows = pa.RecordBatch.from_arrays(columns, names=["key", "value"])
        yield rows.filter(rows.column(0).is_valid()) if rows.column(0).null_count else rows
