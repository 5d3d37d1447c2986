"""Batch writes from Spark: tasks stage private files, and the driver commits all of them at once or none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from statestore.catalog.commits.parts.staging_folder import StagingFolder
from statestore.connector.options import is_by_key_groups, transaction_of
from statestore.connector.spark.staging import Staged, checked_target, commit_staged, stage


class StateStoreWriter(DataSourceArrowWriter):
    """A batch writer: ``append`` adds the rows as one commit, ``overwrite`` makes them the whole current state as one
    commit.

    Columns: the store's key and value columns, ``timestamp``, and optionally ``_change_type``. The schema is checked
    before any task starts (WRONG_SCHEMA). Files of failed or repeated attempts are never named in a commit message.
    """

    def __init__(self, path: str, schema: StructType, overwrite: bool, options: Mapping[str, str]) -> None:
        self._target = checked_target(path, schema)
        self._overwrite = overwrite
        self._transaction = transaction_of(options)
        is_by_key_groups(options)  # Spark has placed the rows already; a wrong value is refused as elsewhere
        self._write = self._target.task_write(overwrite)
        self._folder = StagingFolder.of_new_write(self._target.storage)
        # Not made by the tasks: one that still runs after an abort must not make the folder again.
        self._folder.make()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return stage(self._folder, iterator, self._write)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        staged = [m for m in messages if isinstance(m, Staged)]
        try:
            commit_staged(self._target, self._folder, staged, self._overwrite, self._transaction, self._write)
        finally:
            self._folder.remove()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._folder.abandon()
