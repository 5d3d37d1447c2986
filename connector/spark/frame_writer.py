"""Writes of whole DataFrames in the driver of a classic session.

Spark's tasks turn their rows into batches of Arrow, and Python gets these bytes as they are. A Python data source would
get the same rows at three times the cost. Rows, order, commit and errors are those of `StateStoreWriter`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import RDD
from pyspark.errors import AnalysisException
from pyspark.serializers import FramedSerializer

from statestore.catalog.commits.parts.staging_folder import StagingFolder
from statestore.catalog.stores.versioned.task_writes import TaskWrite
from statestore.connector.options import is_by_key_groups, transaction_of
from statestore.connector.spark.errors import message_only
from statestore.connector.spark.location import checked_path
from statestore.connector.spark.rows_by_key import moved_by_key
from statestore.connector.spark.s3a import session_settings, with_settings
from statestore.connector.spark.schema import arrow_schema
from statestore.connector.spark.staging import Staged, checked_target, commit_staged, stage
from statestore.formats.errors import InvalidInputError, StateStoreError

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
        rows = moved_by_key(rows, target.spec, IMPORT_TASKS * rows.sparkSession.sparkContext.defaultParallelism)
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
