"""Private files that the tasks of a Spark write leave for the driver. One commit takes them in, or they are never
read.

A task with many rows resolves them itself (`TaskWrite`), and the driver only joins the parts. Fewer rows are staged as
they are, and the driver resolves them.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from statestore.catalog.catalog import connect
from statestore.catalog.commits.parts.staged_parts import StagedPart, staging_gone
from statestore.catalog.log.store_spec import StoreSpec
from statestore.catalog.store_kinds import check_columns
from statestore.catalog.stores.versioned.task_writes import PART_BYTES, TaskWrite
from statestore.catalog.stores.versioned.versioned_store import NaturalVersionedStore, write_parts
from statestore.catalog.warehouse import rows_spec
from statestore.connector.spark.errors import message_only
from statestore.connector.spark.schema import arrow_schema
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import ConflictError, CorruptError, StorageError
from statestore.formats.places.disk_errors import disk_errors
from statestore.formats.places.locations import not_local, parse_location
from statestore.formats.places.regular_files import map_regular
from statestore.formats.segments.ipc_file import read_stream

STAGING = "staging"
LOCK_WAIT = 300.0  # seconds that a write waits for another writer of the same live store
LOCK_POLL = 0.05


@dataclass
class Staged(WriterCommitMessage):
    """The rows that one task attempt staged: in a file, as parts, or none; its partition, and its streaming query, if
    any."""

    file: str | None
    partition: int
    query_id: str | None = None
    parts: tuple[StagedPart, ...] = ()

    @property
    def has_rows(self) -> bool:
        return self.file is not None or bool(self.parts)


def check_target(path: str, schema: StructType) -> pa.Schema:
    """The Arrow schema of the rows to write. Raises ReadOnlyError, UnsupportedError KEYED_WRITE or InvalidInputError
    WRONG_SCHEMA before any task."""
    return checked_target(path, schema)[0]


def checked_target(path: str, schema: StructType) -> tuple[pa.Schema, StoreSpec]:
    """The result of `check_target`, and the description of the store."""
    location = parse_location(path)
    if not location.is_local:
        raise not_local(location, "writing needs")
    spec = rows_spec(location.path)
    arrow = arrow_schema(schema)
    check_columns(spec, arrow)
    return arrow, spec


def stage(folder: Path, batches: Iterator[pa.RecordBatch], write: TaskWrite | None) -> Staged:
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
            return Staged(None, partition, query_id, tuple(parts))
    if not first:
        return Staged(None, partition, query_id)
    path = folder / f"{partition:06d}-{uuid.uuid4().hex}.arrow"
    try:
        with (
            disk_errors("stage rows in", path),
            pa.OSFile(str(path), "wb") as sink,
            pa.ipc.new_stream(sink, first[0].schema) as file,
        ):
            for batch in itertools.chain(first, batches):
                file.write_batch(batch)
    except StorageError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise staging_gone(str(folder)) from None
        raise
    return Staged(str(path), partition, query_id)


def commit_staged(
    path: Path,
    schema: pa.Schema,
    staged: Sequence[Staged],
    overwrite: bool,
    transaction: tuple[str, int] | None,
    write: TaskWrite | None,
) -> None:
    """Commit all rows of ``staged``, in order of their partitions, as one version of the store at ``path``."""
    ordered = sorted(staged, key=lambda m: m.partition)
    files = [m.file for m in ordered if m.file is not None]
    if write is not None and (any(m.parts for m in ordered) or _size(files) > PART_BYTES):
        _commit_parts(path, ordered, transaction, write)
        return
    deadline = time.monotonic() + LOCK_WAIT
    while True:
        reader = pa.RecordBatchReader.from_batches(schema, _batches(files))
        try:
            with message_only(), connect(path.parent).open_store(path.name) as store:
                store.write(reader, mode="overwrite" if overwrite else "append", transaction=transaction)
            return
        except ConflictError as error:
            # Live stores have one writer at a time: two streams into one store take turns, commit by commit.
            if error.code != ErrorCode.STORE_LOCKED or time.monotonic() > deadline:
                raise
            time.sleep(LOCK_POLL)


def _commit_parts(path: Path, staged: list[Staged], transaction: tuple[str, int] | None, write: TaskWrite) -> None:
    """Commit parts, with further ones of the rows that tasks left as they were."""
    with message_only(), connect(path.parent).open_store(path.name) as store:
        assert isinstance(store, NaturalVersionedStore)
        parts: list[StagedPart] = []
        for resolved, messages in itertools.groupby(staged, key=lambda m: bool(m.parts)):
            if resolved:
                parts += itertools.chain.from_iterable(message.parts for message in messages)
                continue
            found = [m for m in messages if m.file is not None]
            if found:
                batches = _batches([m.file for m in found if m.file is not None])
                parts += write.in_folder(Path(str(found[0].file)).parent).stage((found[0].partition,), batches)
        write_parts(store, parts, transaction)


def remove_folder(folder: Path) -> None:
    """Remove ``folder`` and the staging folder around it, unless another write is staging there."""
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):
        folder.parent.rmdir()


def _size(files: Sequence[str]) -> int:
    try:
        return sum(Path(file).stat().st_size for file in files)
    except OSError:
        return 0  # reading the files reports what is wrong


def _batches(files: Sequence[str]) -> Iterator[pa.RecordBatch]:
    for file in files:
        try:
            yield from read_stream(map_regular(file))
        except FileNotFoundError:
            raise staging_gone(file) from None
        except (NotADirectoryError, ValueError) as error:
            raise CorruptError(
                ErrorCode.STAGED_FILE,
                f"{file}: not the rows that a task wrote ({error}); run the write again, and keep the staging folder "
                "until it has ended",
            ) from error
