"""Batch writes from Spark: tasks stage private files, and the driver commits all of them at once or none."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from statestore.catalog.stores.versioned.task_writes import task_write
from statestore.connector.options import is_by_key_groups, transaction_of
from statestore.connector.spark.staging import STAGING, Staged, checked_target, commit_staged, remove_folder, stage


class StateStoreWriter(DataSourceArrowWriter):
    """A batch writer: ``append`` adds the rows as one commit, ``overwrite`` makes them the whole current state as one
    commit.

    Columns: the store's key and value columns, ``timestamp``, and optionally ``_change_type``. The schema is checked
    before any task starts (WRONG_SCHEMA). Files of failed or repeated attempts are never named in a commit message.
    """

    def __init__(self, path: str, schema: StructType, overwrite: bool, options: Mapping[str, str]) -> None:
        self._schema, spec = checked_target(path, schema)
        self._path = Path(path).absolute()
        self._overwrite = overwrite
        self._transaction = transaction_of(options)
        is_by_key_groups(options)  # Spark has placed the rows already; a wrong value is refused as elsewhere
        self._write = None if overwrite else task_write(self._path, spec)
        self._folder = self._path / STAGING / uuid.uuid4().hex
        # Not made by the tasks: one that still runs after an abort must not make the folder again.
        self._folder.mkdir(parents=True)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return stage(self._folder, iterator, self._write)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        staged = [m for m in messages if isinstance(m, Staged)]
        try:
            commit_staged(self._path, self._schema, staged, self._overwrite, self._transaction, self._write)
        finally:
            remove_folder(self._folder)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        remove_folder(self._folder)
