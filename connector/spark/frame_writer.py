"""Writes of whole DataFrames in the driver of a classic session.

Spark's tasks turn their rows into batches of Arrow, and Python gets these bytes as they are. A Python data source would
get the same rows at three times the cost. Rows, order, commit and errors are those of `StateStoreWriter`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark import RDD
from pyspark.errors import AnalysisException
from pyspark.serializers import FramedSerializer
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StructType

from statestore.catalog.commits.parts.staging_folder import StagingFolder
from statestore.catalog.log.store_spec import StoreSpec
from statestore.catalog.stores.versioned.task_writes import TaskWrite
from statestore.connector.options import is_by_key_groups, transaction_of
from statestore.connector.spark.errors import message_only
from statestore.connector.spark.location import checked_path, session_settings, with_settings
from statestore.connector.spark.schema import arrow_schema
from statestore.connector.spark.writer import Staged, checked_target, commit_staged, stage
from statestore.formats.errors import InvalidInputError, StateStoreError
from statestore.formats.values.exact_cast import cast_exactly
from statestore.formats.values.key_hash import hash_keys, key_groups_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

IMPORT_TASKS = 4  # for each core
LARGE_TYPES_CONF = "spark.sql.execution.arrow.useLargeVarTypes"


def write_frame(rows: DataFrame, path: str, options: Mapping[str, str], *, overwrite: bool = False) -> None:
    """Write a DataFrame of a classic session to the store at ``path`` as one commit.

    ``options`` are those of the data source. Raises the errors of `StateStoreWriter`, and Spark's own for a query that
    fails.
    """
    target = checked_target(path, rows.schema)
    transaction, write = transaction_of(options), target.task_write(overwrite)
    if is_by_key_groups(options) and write is not None and target.spec.history_retention is None:
        # Elsewhere the order of all rows decides which of them are too late.
        rows = _moved_by_key(rows, target.spec, IMPORT_TASKS * rows.sparkSession.sparkContext.defaultParallelism)
    is_large = str(rows.sparkSession.conf.get(LARGE_TYPES_CONF, "false")).lower() == "true"
    sent = arrow_schema(rows.schema, large=True) if is_large else None
    folder = StagingFolder.of_new_write(target.storage)
    # Not made by the tasks: one that still runs after an abort must not make the folder again.
    folder.make()
    try:
        resolve = partial(_stage, folder=folder, schema=target.schema, sent=sent, write=write)
        staged = []
        for outcome in _encoded(rows).mapPartitions(resolve).collect():
            if isinstance(outcome, InvalidInputError):
                raise outcome
            staged.append(outcome)
    except BaseException:
        folder.abandon()
        raise
    try:
        commit_staged(target, folder, staged, overwrite, transaction, write)
    finally:
        folder.remove()


def save_frame(rows: DataFrame, options: Mapping[str, str], mode: str) -> None:
    """Write a DataFrame as the options of ``save`` ask, in mode append or overwrite.

    Raises AnalysisException with this package's text for rows and options that the store does not take.
    """
    try:
        given = {**session_settings(rows.sparkSession, options.get("path")), **options}
        path = with_settings(checked_path(given), given)
        write_frame(rows, path, given, overwrite=mode.lower() == "overwrite")
    except StateStoreError as error:
        raise AnalysisException(message=str(error)) from None


class _Bytes(FramedSerializer):
    """Takes what the JVM sends as it is."""

    def dumps(self, obj: Any) -> Any:
        return obj

    def loads(self, obj: bytes) -> bytes:
        return obj


def _encoded(rows: DataFrame) -> RDD[bytes]:
    """Return the rows of each partition, in order, as messages of Arrow."""
    frame: Any = rows
    return RDD(frame._jdf.toArrowBatchRdd().toJavaRDD(), rows.sparkSession.sparkContext, _Bytes())


def _stage(
    messages: Iterable[bytes],
    *,
    folder: StagingFolder,
    schema: pa.Schema,
    sent: pa.Schema | None,
    write: TaskWrite | None,
) -> Iterator[Staged | InvalidInputError]:
    """Stage the rows of one task. A wrong input is returned as an error: no further attempt would end otherwise."""
    with message_only():
        try:
            yield stage(folder, _batches(messages, schema, sent), write)
        except InvalidInputError as error:
            yield error


def _batches(messages: Iterable[bytes], schema: pa.Schema, sent: pa.Schema | None) -> Iterator[pa.RecordBatch]:
    for message in messages:
        batch = pa.ipc.read_record_batch(pa.py_buffer(message), schema if sent is None else sent)
        yield batch if sent is None else batch.cast(schema)


# Rows of a DataFrame moved to tasks by ranges of key groups, in the order that they have in the DataFrame.
#
# A task of a write then has all rows of its keys, and the driver has no keys of several tasks to join.

TASK, ORDER = "__statestore_task", "__statestore_order"


def _moved_by_key(rows: DataFrame, spec: StoreSpec, tasks: int) -> DataFrame:
    """Return the rows in ``tasks`` partitions, each with a range of key groups, in order of the DataFrame."""
    count = max(1, min(tasks, spec.key_groups))
    ordered = rows.withColumn(ORDER, F.monotonically_increasing_id())
    schema = StructType([*ordered.schema.fields]).add(TASK, IntegerType())
    key = spec.key
    groups = spec.key_groups

    def numbered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            task = task_numbers(batch, key, groups, count)
            yield pa.RecordBatch.from_arrays([*batch.columns, pa.array(task)], names=[*batch.schema.names, TASK])

    moved = ordered.mapInArrow(numbered, schema).repartitionById(count, TASK)
    return moved.sortWithinPartitions(ORDER).drop(ORDER, TASK)


def task_numbers(batch: pa.RecordBatch, key: pa.Schema, groups: int, count: int) -> npt.NDArray[np.int32]:
    """Return the task of each row.

    Rows whose key the store does not take go to the first task, which reports them.
    """
    names = [name.lower() for name in batch.schema.names]
    try:
        columns = [cast_exactly(batch.column(names.index(field.name.lower())), field.type) for field in key]
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        return np.zeros(batch.num_rows, np.int32)
    found = key_groups_of(hash_keys(columns), groups)
    return (found * count // groups).astype(np.int32)
