"""Batch writes from Spark: tasks stage private files, the driver commits all of them at once or none."""

from __future__ import annotations

import contextlib
import shutil
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from statestore.catalog.catalog import connect
from statestore.catalog.discovery import open_table
from statestore.catalog.stores.record_input import record_batch
from statestore.catalog.versioned_table import VersionedTable
from statestore.connector.options import transaction_of
from statestore.connector.spark.errors import message_only
from statestore.connector.spark.schema import arrow_schema
from statestore.formats.errors import ReadOnlyError

STAGING = "staging"


@dataclass
class Staged(WriterCommitMessage):
    """The file one task attempt wrote, None if it had no row."""

    file: str | None
    partition: int


class StateStoreWriter(DataSourceArrowWriter):
    """``append`` adds the rows as one commit, ``overwrite`` makes them the whole current state as one commit.

    Columns: the store's key and value columns, ``timestamp``, and optionally ``_change_type``. The schema is checked
    before any task starts (WRONG_SCHEMA). Files of failed or repeated attempts are never named in a commit message.
    """

    def __init__(self, path: str, schema: StructType, overwrite: bool, options: Mapping[str, str]) -> None:
        table = open_table(path)
        if not isinstance(table, VersionedTable):
            raise ReadOnlyError("READ_ONLY", f"{path} is metadata of a store; write to the store itself")
        self._path = Path(path).absolute()
        self._overwrite = overwrite
        self._transaction = transaction_of(options)
        self._schema = arrow_schema(schema)
        record_batch(table.spec, pa.RecordBatch.from_pylist([], schema=self._schema))
        self._folder = self._path / STAGING / uuid.uuid4().hex
        # Not by the tasks: one that still runs after an abort must not bring the folder back.
        self._folder.mkdir(parents=True)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context: Any = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        first = next(iterator, None)
        if first is None:
            return Staged(None, partition)
        path = self._folder / f"{partition:06d}-{uuid.uuid4().hex}.arrow"
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, first.schema) as file:
            file.write_batch(first)
            for batch in iterator:
                file.write_batch(batch)
        return Staged(str(path), partition)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        staged = sorted((m for m in messages if isinstance(m, Staged)), key=lambda m: m.partition)
        batches = _batches([m.file for m in staged if m.file is not None])
        try:
            with message_only(), connect(self._path.parent).open_store(self._path.name) as store:
                reader = pa.RecordBatchReader.from_batches(self._schema, batches)
                store.write(reader, mode="overwrite" if self._overwrite else "append", transaction=self._transaction)
        finally:
            self._clean_up()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._clean_up()

    def _clean_up(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # another write is staging there
            self._folder.parent.rmdir()


def _batches(files: list[str]) -> Iterator[pa.RecordBatch]:
    for file in files:
        with pa.memory_map(file) as source, pa.ipc.open_stream(source) as stream:
            yield from stream
