"""A task of a batch: it passes its rows through the job's work on its own backend, then takes a snapshot.

All rows of a task are in memory at once. This module does not use Spark. Below the task stand its result for the
driver, the rows that functions emit, and the backends that a worker keeps open for the next batch.
"""

from __future__ import annotations

import json
import os
import traceback
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from statestore.catalog.keyed.backend import KeyedBackend
from statestore.catalog.keyed.snapshots.snapshot_part import EMITTED, SnapshotPart, check_stored, part_from_json
from statestore.catalog.keyed.snapshots.stored_files import opened, remove_if_possible, store_batches
from statestore.catalog.log.storage import Storage
from statestore.connector.keyed.keyed_job import KeyedBatch, TaskRows, key_column, open_keyed, part_id
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, StateStoreError, UnsupportedError
from statestore.formats.segments.ipc_file import open_file, verify_column
from statestore.formats.segments.segment_meta import FileRef, file_ref_from_json
from statestore.formats.segments.segment_meta import to_json as file_to_json
from statestore.formats.values.key_codec import Row, ValueCodec
from statestore.formats.values.types import conform

PLACED = 2
"""Number of columns before the columns of the rows: the number of the task, and the position of the row in the
DataFrame, which is null in the extra row that each task gets so that it runs."""
ANSWERS = pa.schema([pa.field("answer", pa.string())])


def run_partition(batch: KeyedBatch, partition: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The answers of the tasks whose rows are in a partition, which is normally one task."""
    for answer in answers_of(batch, [rows for rows in partition if rows.num_rows]):
        yield pa.RecordBatch.from_arrays([pa.array([to_json(answer)])], schema=ANSWERS)


def answers_of(batch: KeyedBatch, partition: list[pa.RecordBatch]) -> Iterator[Answer]:
    if not partition:
        return
    placed = pa.Table.from_batches(partition)
    tasks, arrival = placed.column(0), placed.column(1)
    mine = pc.unique(tasks.filter(pc.is_null(arrival))).to_pylist()
    rows = placed.filter(pc.is_valid(arrival))
    for number, task in enumerate(mine):
        # Rows without a task have no key: the first task reports this.
        yield _answer(batch, task, rows.filter(pc.fill_null(pc.equal(rows.column(0), task), number == 0)))
    strange = set(pc.unique(rows.column(0)).to_pylist()) - {*mine, None}
    if strange:
        raise UnsupportedError(
            ErrorCode.ROWS_MISPLACED,
            f"rows of tasks {sorted(strange)} came to a partition of tasks {mine}; set no rule that "
            "splits shuffled partitions",
        )


def _answer(batch: KeyedBatch, task: int, placed: pa.Table) -> Answer:
    try:
        return _run(batch, task, placed)
    except StateStoreError as error:
        return Failed(task, error)


def _run(batch: KeyedBatch, task: int, placed: pa.Table) -> Done:
    job = batch.job
    rows = pa.Table.from_arrays(placed.columns[PLACED:], schema=job.rows)
    keys = [
        key_column(_whole(rows.column(index)), field, rows.schema.field(index).name)
        for index, field in zip(job.key, job.columns, strict=True)
    ]
    task_rows = TaskRows(rows, keys, _whole(placed.column(1)))
    backend = _take_backend(batch, task)
    emitted = None
    try:
        found = _batches_of(ValueCodec(job.output), job.work(batch, task, backend, task_rows))
        emitted = _write_emitted(job.storage, job.output, found)
        part = backend.snapshot(job.snapshot).result()
    except BaseException:
        backend.dispose()
        if emitted is not None:
            remove_if_possible(job.storage, [emitted])
        raise
    _keep_backend(batch, backend, part)
    return Done(task, part, emitted)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


# The result of a task as JSON for the driver: the part it wrote and the rows it emitted, or its error.

_KINDS: dict[str, type[StateStoreError]] = {kind.__name__: kind for kind in StateStoreError.__subclasses__()}


@dataclass(frozen=True)
class Done:
    """The part of a task, and the file of its emitted rows if there are any."""

    task: int
    part: SnapshotPart
    emitted: FileRef | None


@dataclass(frozen=True)
class Failed:
    """An error that would recur if Spark repeated the task."""

    task: int
    error: StateStoreError


Answer = Done | Failed


def to_json(answer: Answer) -> str:
    if isinstance(answer, Done):
        emitted = None if answer.emitted is None else file_to_json(answer.emitted)
        return json.dumps({"task": answer.task, "part": answer.part.to_json(), "emitted": emitted})
    error = answer.error
    failed = [type(error).__name__, error.code, error.message, *getattr(error, "__notes__", ())]
    return json.dumps({"task": answer.task, "failed": failed})


def from_json(text: str) -> Answer:
    found = json.loads(text)
    if "failed" in found:
        kind, code, message, *notes = found["failed"]
        error = _KINDS.get(kind, StateStoreError)(ErrorCode.__members__.get(code, code), message)
        for note in notes:
            error.add_note(note)
        return Failed(found["task"], error)
    emitted = None if found["emitted"] is None else file_ref_from_json(found["emitted"])
    if emitted is not None:
        check_stored(emitted)
    return Done(found["task"], part_from_json(found["part"]), emitted)


def function_failed(where: str, error: BaseException) -> InvalidInputError:
    """The error for any exception of a user's function, with the function's own stack as a note."""
    message = str(error) if isinstance(error, StateStoreError) else f"{type(error).__name__}: {error}"
    found = InvalidInputError(
        ErrorCode.FUNCTION_FAILED,
        f"{where}: {message}; nothing of the batch was committed. Correct the function, then run again",
    )
    found.add_note("".join(traceback.format_exception(error)))
    return found


def failure_of(answers: Sequence[Answer]) -> Failed | None:
    """The failure of the first task that failed."""
    failed = [answer for answer in answers if isinstance(answer, Failed)]
    return min(failed, key=lambda answer: answer.task, default=None)


# Rows that functions emit: checked, written as Arrow files of the store, and read back.

BATCH_ROWS = 10_000


def rows_of(answer: Any) -> Iterable[Any]:
    """The rows in the result of a function: a dict, tuple or text is one row, a RecordBatch or Table many, None
    none."""
    if answer is None:
        return ()
    if isinstance(answer, pa.Table):
        batches: list[pa.RecordBatch] = answer.to_batches()
        return batches
    if isinstance(answer, Mapping | tuple | str | bytes | pa.RecordBatch):
        return (answer,)
    rows: Iterable[Any] = answer
    return rows


def checked_row(codec: ValueCodec, row: Any) -> Row | pa.RecordBatch:
    """A row that a function emits, or many rows as a RecordBatch. InvalidInputError WRONG_VALUE or WRONG_SCHEMA."""
    return conform(row, codec.schema) if isinstance(row, pa.RecordBatch) else codec.normalize(row)


def _batches_of(codec: ValueCodec, rows: Iterable[Row | pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Checked rows as batches of the codec's schema, in their order."""
    collected: list[Row] = []
    for row in rows:
        if isinstance(row, tuple):
            collected.append(row)
            if len(collected) < BATCH_ROWS:
                continue
        if collected:
            yield _batch(codec, collected)
            collected = []
        if not isinstance(row, tuple):
            yield row
    if collected:
        yield _batch(codec, collected)


def _write_emitted(storage: Storage, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> FileRef | None:
    """Write batches to a file as they arrive; None if there are none."""
    return store_batches(storage, EMITTED, schema, batches)


def read_emitted(storage: Storage, file: FileRef) -> Iterator[pa.RecordBatch]:
    """The batches of a file. Raises NotFoundError SNAPSHOT_FILE_MISSING, CorruptError SEGMENT_CORRUPT."""
    with opened(storage, file) as verified:
        for batch in open_file(verified)[1]:
            columns = [verify_column(verified, batch, index) for index in range(batch.num_columns)]
            yield pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _batch(codec: ValueCodec, rows: list[Row]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(codec.to_columns(rows), schema=codec.schema)


# Backends that a worker process keeps open between micro-batches, so that they need not be restored.
#
# A backend is taken out while it is used, and put back with the identity of the part that it has just written. It is
# used again only if the version that the next batch builds on contains exactly this part. After a failure, a repetition
# elsewhere or a commit by another writer, that version contains another part; the backend is then disposed of and a new
# one is restored.

KEPT = 8
_REUSED_WORKER = "SPARK_REUSE_WORKER"
_LOCAL_FOLDERS = "SPARK_LOCAL_DIRS"  # set by Spark to the folders in which its workers may write


class _Kept(NamedTuple):
    """A kept backend. ``part`` is the part it wrote last, in a batch that built on version ``base``."""

    backend: KeyedBackend
    part: str
    base: int


_Name = tuple[Storage, str, range]
"""Storage and identity of a store, and key groups. The storage is needed because copies share an identity."""
_kept: OrderedDict[_Name, _Kept] = OrderedDict()


def _take_backend(batch: KeyedBatch, task: int) -> KeyedBackend:
    """Return the backend of a task with the state of the batch's base. The caller owns it."""
    _dispose_stale(batch)
    groups = batch.groups[task]
    found = _kept.pop(_name(batch, groups), None)
    if found is not None and found.part == batch.parts[task]:
        return _confirmed(found.backend, batch.base)
    if found is not None:
        found.backend.dispose()
    with open_keyed(batch.job.place) as store:
        return store.backend(groups, version=batch.base, directory=_directory())


def _keep_backend(batch: KeyedBatch, backend: KeyedBackend, part: SnapshotPart) -> None:
    """Give back a backend whose snapshot is done; it is kept if a later batch may use it."""
    if not batch.keeps or os.environ.get(_REUSED_WORKER) != "1":
        backend.dispose()
        return
    _kept[_name(batch, backend.key_groups)] = _Kept(backend, part_id(part), batch.base)
    while len(_kept) > KEPT:
        _kept.popitem(last=False)[1].backend.dispose()


def _dispose_stale(batch: KeyedBatch) -> None:
    """Dispose of backends that no task can use again, also of other tasks, because they hold files open. Backends of
    this batch are kept."""
    current = dict(zip(batch.groups, batch.parts, strict=True))
    for name, kept in list(_kept.items()):
        groups = name[2]
        if name == _name(batch, groups) and kept.base != batch.base and kept.part != current.get(groups):
            del _kept[name]
            kept.backend.dispose()


def _name(batch: KeyedBatch, groups: range) -> _Name:
    return batch.job.storage, batch.job.store_id, groups


def _confirmed(backend: KeyedBackend, version: int) -> KeyedBackend:
    try:
        backend.notify_complete(version)
    except BaseException:
        backend.dispose()
        raise
    return backend


def _directory() -> Path | None:
    """A folder in Spark's own scratch space, which Spark removes at the end."""
    given = os.environ.get(_LOCAL_FOLDERS, "").split(",")[0]
    return Path(given, "statestore-keyed") if given else None
