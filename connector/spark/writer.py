"""Writes from Spark: tasks stage private files, and the driver commits all of them at once or none.

The files lie in the store. One commit takes them in, or they are never read. A task with many rows resolves them itself
(`TaskWrite`), and the driver only joins the parts. Fewer rows are staged as they are, and the driver resolves them.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from statestore.catalog.commits.parts.staged_parts import StagedPart
from statestore.catalog.commits.parts.staging_folder import STAGING, StagingFolder
from statestore.catalog.log.storage import Storage
from statestore.catalog.log.store_spec import StoreSpec
from statestore.catalog.store_kinds import check_columns
from statestore.catalog.stores.versioned.natural_versioned import NaturalVersionedStore, write_parts
from statestore.catalog.stores.versioned.task_writes import PART_BYTES, TaskWrite, task_write
from statestore.catalog.warehouse import rows_table
from statestore.connector.options import application_of, is_by_key_groups, transaction_of
from statestore.connector.spark.errors import message_only
from statestore.connector.spark.location import checked_path, open_store_at, with_settings
from statestore.connector.spark.schema import arrow_schema
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CommitUnknownError, ConflictError, StateStoreError, UnsupportedError
from statestore.formats.places.locations import Location, parse_location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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


LOCK_WAIT = 300.0  # seconds that a write waits for another writer of the same live store
LOCK_POLL = 0.05


@dataclass
class Staged(WriterCommitMessage):
    """The rows that one task attempt staged: in files of so many bytes, as parts, or none; its partition, and its
    streaming query, if any."""

    files: tuple[str, ...]
    partition: int
    query_id: str | None = None
    parts: tuple[StagedPart, ...] = ()
    bytes: int = 0

    @property
    def has_rows(self) -> bool:
        return bool(self.files) or bool(self.parts)

    @property
    def names(self) -> list[str]:
        """The files that the attempt wrote, by their names in the store."""
        return [*self.files, *(name for part in self.parts for name in part.names)]


@dataclass(frozen=True)
class _WriteTarget:
    """A store that is written, and the Arrow schema of the rows; can be pickled."""

    location: Location
    storage: Storage
    spec: StoreSpec
    schema: pa.Schema

    def task_write(self, overwrite: bool) -> TaskWrite | None:
        """Return the plan by which tasks resolve the rows; None where the process that commits does."""
        return None if overwrite else task_write(self.storage, self.spec)


def checked_target(path: str, schema: StructType) -> _WriteTarget:
    """The store at a path, for rows of a schema. Raises ReadOnlyError, UnsupportedError KEYED_WRITE or
    InvalidInputError WRONG_SCHEMA before any task."""
    location = parse_location(path)
    table = rows_table(location.uri)
    arrow = arrow_schema(schema)
    check_columns(table.spec, arrow)
    return _WriteTarget(location, table.storage, table.spec, arrow)


def stage(folder: StagingFolder, batches: Iterator[pa.RecordBatch], write: TaskWrite | None) -> Staged:
    """Stage the rows of one task in files with unique names in ``folder``; ``write`` resolves them if they are many."""
    context = TaskContext.get()
    partition = 0 if context is None else context.partitionId()
    query_id = None if context is None else context.getLocalProperty(QUERY_ID)
    if write is None:
        first = list(itertools.islice(batches, 1))
    else:
        first, are_many = write.first_rows(batches)
        if are_many:
            with message_only():
                parts = write.in_folder(folder).stage((partition,), itertools.chain(first, batches))
            return Staged((), partition, query_id, tuple(parts))
    if not first:
        return Staged((), partition, query_id)
    with folder.removing_failed() as attempt:
        files, size = attempt.create_rows(f"{partition:06d}-", itertools.chain(first, batches))
    return Staged(files, partition, query_id, bytes=size)


def commit_staged(
    target: _WriteTarget,
    folder: StagingFolder,
    staged: Sequence[Staged],
    overwrite: bool,
    transaction: tuple[str, int] | None,
    write: TaskWrite | None,
) -> None:
    """Commit all rows of ``staged``, in order of their partitions, as one version of the store."""
    ordered = sorted(staged, key=lambda m: m.partition)
    if write is not None and (any(m.parts for m in ordered) or sum(m.bytes for m in ordered) > PART_BYTES):
        try:
            _commit_parts(target, folder, ordered, transaction, write)
        except CommitUnknownError:
            raise
        except StateStoreError:
            folder.remove_unnamed((), [name for message in ordered for name in message.names])
            raise
        return
    files = [name for m in ordered for name in m.files]
    deadline = time.monotonic() + LOCK_WAIT
    while True:
        reader = pa.RecordBatchReader.from_batches(target.schema, folder.rows(files))
        try:
            with message_only(), open_store_at(target.location) as store:
                store.write(reader, mode="overwrite" if overwrite else "append", transaction=transaction)
            return
        except ConflictError as error:
            # Live stores have one writer at a time: two streams into one store take turns, commit by commit.
            if error.code != ErrorCode.STORE_LOCKED or time.monotonic() > deadline:
                raise
            time.sleep(LOCK_POLL)


def _commit_parts(
    target: _WriteTarget,
    folder: StagingFolder,
    staged: list[Staged],
    transaction: tuple[str, int] | None,
    write: TaskWrite,
) -> None:
    """Commit parts, with further ones of the rows that tasks left as they were."""
    with message_only(), open_store_at(target.location) as store:
        assert isinstance(store, NaturalVersionedStore)
        parts: list[StagedPart] = []
        for resolved, messages in itertools.groupby(staged, key=lambda m: bool(m.parts)):
            if resolved:
                parts += itertools.chain.from_iterable(message.parts for message in messages)
                continue
            found = [m for m in messages if m.files]
            if found:
                batches = folder.rows([name for m in found for name in m.files])
                parts += write.in_folder(folder).stage((found[0].partition,), batches)
        write_parts(store, parts, transaction)


def remove_staged(storage: Storage, staged: Sequence[Any]) -> None:
    """Remove the files of task attempts whose rows are not committed."""
    for message in staged:
        if isinstance(message, Staged):
            for name in message.names:
                with contextlib.suppress(StateStoreError):
                    storage.delete(name)


# Streams into a store: each micro-batch is one commit, exactly once.
#
# A batch's transaction id is (id of the streaming query, number of the batch). Both are in the query's checkpoint and
# survive restarts. If the query dies between the commit of the store and that of Spark, Spark repeats the batch; its
# transaction is then found in the log, and the batch changes nothing.

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
