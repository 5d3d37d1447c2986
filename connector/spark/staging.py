"""Private files of the store in which the tasks of a Spark write leave rows for the driver. One commit takes them in,
or they are never read.

A task with many rows resolves them itself (`TaskWrite`), and the driver only joins the parts. Fewer rows are staged as
they are, and the driver resolves them.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from statestore.catalog.commits.parts.staged_parts import StagedPart
from statestore.catalog.commits.parts.staging_folder import StagingFolder
from statestore.catalog.log.storage import Storage
from statestore.catalog.log.store_spec import StoreSpec
from statestore.catalog.store_kinds import check_columns
from statestore.catalog.stores.versioned.natural_versioned import NaturalVersionedStore, write_parts
from statestore.catalog.stores.versioned.task_writes import PART_BYTES, TaskWrite, task_write
from statestore.catalog.warehouse import rows_table
from statestore.connector.spark.errors import message_only
from statestore.connector.spark.location import open_store_at
from statestore.connector.spark.schema import arrow_schema
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CommitUnknownError, ConflictError, StateStoreError
from statestore.formats.places.locations import Location, parse_location

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
class WriteTarget:
    """A store that is written, and the Arrow schema of the rows; can be pickled."""

    location: Location
    storage: Storage
    spec: StoreSpec
    schema: pa.Schema

    def task_write(self, overwrite: bool) -> TaskWrite | None:
        """Return the plan by which tasks resolve the rows; None where the process that commits does."""
        return None if overwrite else task_write(self.storage, self.spec)


def checked_target(path: str, schema: StructType) -> WriteTarget:
    """The store at a path, for rows of a schema. Raises ReadOnlyError, UnsupportedError KEYED_WRITE or
    InvalidInputError WRONG_SCHEMA before any task."""
    location = parse_location(path)
    table = rows_table(location.uri)
    arrow = arrow_schema(schema)
    check_columns(table.spec, arrow)
    return WriteTarget(location, table.storage, table.spec, arrow)


def stage(folder: StagingFolder, batches: Iterator[pa.RecordBatch], write: TaskWrite | None) -> Staged:
    """Stage the rows of one task in files with unique names in ``folder``; ``write`` resolves them if they are many."""
    context = TaskContext.get()
    partition = 0 if context is None else context.partitionId()
    query_id = None if context is None else context.getLocalProperty("sql.streaming.queryId")
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
    target: WriteTarget,
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
    target: WriteTarget,
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
