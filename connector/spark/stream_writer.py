"""Streams into a store: each micro-batch is one commit, exactly once.

A batch's transaction id is (id of the streaming query, number of the batch). Both are in the query's checkpoint and
survive restarts. If the query dies between the commit of the store and that of Spark, Spark repeats the batch; its
transaction is then found in the log, and the batch changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from statestore.catalog.commits.parts.staging_folder import STAGING, StagingFolder
from statestore.connector.options import application_of
from statestore.connector.spark.location import checked_path, with_settings
from statestore.connector.spark.writer import Staged, checked_target, commit_staged, remove_staged, stage
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import UnsupportedError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

QUERY_ID = "sql.streaming.queryId"  # the name of Spark's own local property


class StateStoreStreamWriter(DataSourceStreamArrowWriter):
    """A writer of micro-batches: append mode adds the rows of a batch, complete mode makes them the whole current
    state.

    Columns are as for batch writes. Spark makes a new object for each batch and another for each commit, so everything
    that a commit needs is in the messages.
    """

    def __init__(self, path: str, schema: StructType, overwrite: bool, options: Mapping[str, str]) -> None:
        self._target = checked_target(path, schema)
        self._write = self._target.task_write(overwrite)
        self._overwrite = overwrite
        self._application = application_of(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        folder = self._folder(_query_id())
        folder.make()
        return stage(folder, iterator, self._write)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        staged = [m for m in messages if isinstance(m, Staged)]
        if not staged:
            return
        query_id = str(staged[0].query_id)
        # A batch without rows has nothing to record, however often it is repeated.
        if self._overwrite or any(m.has_rows for m in staged):
            transaction = (self._application or query_id, batchId)
            commit_staged(self._target, self._folder(query_id), staged, self._overwrite, transaction, self._write)
        # Everything that the query staged belongs to this batch, or to attempts at this batch and earlier ones.
        self._folder(query_id).remove()

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        remove_staged(self._target.storage, messages)

    def _folder(self, query_id: str) -> StagingFolder:
        return StagingFolder(self._target.storage, f"{STAGING}/{query_id}")


def update_writer(path: str | None, schema: StructType, given: Mapping[str, str]) -> Callable[[DataFrame, int], None]:
    """The function for ``foreachBatch`` that writes the batches of update mode, which Spark does not offer to Python
    sinks. Rows, commits and transaction ids are those of `StateStoreStreamWriter`. Path, options and schema are checked
    now."""
    location = with_settings(checked_path({**given, **({} if path is None else {"path": path})}), given)
    checked_target(location, schema)
    application = application_of(given)

    def write(rows: DataFrame, batch: int) -> None:
        query_id = rows.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
        writer = rows.write.format("arrow_statestore").mode("append")
        writer.option("txnAppId", application or _known(query_id)).option("txnVersion", batch).save(location)

    return write


def _query_id() -> str:
    context = TaskContext.get()
    return _known(None if context is None else context.getLocalProperty(QUERY_ID))


def _known(query_id: str | None) -> str:
    if not query_id:
        raise UnsupportedError(
            ErrorCode.NO_QUERY_ID,
            "Spark does not report which query this batch belongs to; name it with the option txnAppId",
        )
    return query_id
