"""Private files that the tasks of a Spark write leave for the driver. One commit takes them in, or they are never
read."""

from __future__ import annotations

import contextlib
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
from statestore.catalog.store_kinds import check_columns
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
    """The file that one task attempt wrote (None if it had no row), its partition, and its streaming query, if any."""

    file: str | None
    partition: int
    query_id: str | None = None


def check_target(path: str, schema: StructType) -> pa.Schema:
    """The Arrow schema of the rows to write. Raises ReadOnlyError, UnsupportedError KEYED_WRITE or InvalidInputError
    WRONG_SCHEMA before any task."""
    location = parse_location(path)
    if not location.is_local:
        raise not_local(location, "writing needs")
    spec = rows_spec(location.path)
    arrow = arrow_schema(schema)
    check_columns(spec, arrow)
    return arrow


def stage(folder: Path, batches: Iterator[pa.RecordBatch]) -> Staged:
    """Write the rows of one task to a file with a unique name in ``folder``."""
    context = TaskContext.get()
    partition = 0 if context is None else context.partitionId()
    query_id = None if context is None else context.getLocalProperty("sql.streaming.queryId")
    first = next(batches, None)
    if first is None:
        return Staged(None, partition, query_id)
    path = folder / f"{partition:06d}-{uuid.uuid4().hex}.arrow"
    try:
        with (
            disk_errors("stage rows in", path),
            pa.OSFile(str(path), "wb") as sink,
            pa.ipc.new_stream(sink, first.schema) as file,
        ):
            file.write_batch(first)
            for batch in batches:
                file.write_batch(batch)
    except StorageError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise _gone(folder) from None
        raise
    return Staged(str(path), partition, query_id)


def commit_staged(
    path: Path, schema: pa.Schema, staged: Sequence[Staged], overwrite: bool, transaction: tuple[str, int] | None
) -> None:
    """Commit all rows of ``staged``, in order of their partitions, as one version of the store at ``path``."""
    files = [m.file for m in sorted(staged, key=lambda m: m.partition) if m.file is not None]
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


def remove_folder(folder: Path) -> None:
    """Remove ``folder`` and the staging folder around it, unless another write is staging there."""
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):
        folder.parent.rmdir()


def _batches(files: Sequence[str]) -> Iterator[pa.RecordBatch]:
    for file in files:
        try:
            yield from read_stream(map_regular(file))
        except FileNotFoundError:
            raise _gone(Path(file)) from None
        except (NotADirectoryError, ValueError) as error:
            raise CorruptError(
                ErrorCode.STAGED_FILE,
                f"{file}: not the rows that a task wrote ({error}); run the write again, and keep the staging folder "
                "until it has ended",
            ) from error


def _gone(path: Path) -> ConflictError:
    return ConflictError(
        ErrorCode.STAGED_FILE_MISSING,
        f"{path}, where tasks of this write stage their rows, is gone: the write was aborted, or vacuum removed it "
        "(older_than is less than the time the write took). Nothing was committed; write again",
    )
