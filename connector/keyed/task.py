"""A task of a batch: it passes its rows through the job's work on its own backend, then takes a snapshot.

All rows of a task are in memory at once. This module does not use Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from statestore.catalog.keyed.snapshots.stored_files import remove_if_possible
from statestore.connector.keyed.backend_cache import keep_backend, take_backend
from statestore.connector.keyed.emitted_records import batches_of, write_emitted
from statestore.connector.keyed.keyed_job import KeyedBatch, TaskRows, key_column
from statestore.connector.keyed.task_results import Answer, Done, Failed, to_json
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import StateStoreError, UnsupportedError
from statestore.formats.values.key_codec import ValueCodec

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
    backend = take_backend(batch, task)
    emitted = None
    try:
        found = batches_of(ValueCodec(job.output), job.work(batch, task, backend, task_rows))
        emitted = write_emitted(job.storage, job.output, found)
        part = backend.snapshot(job.snapshot).result()
    except BaseException:
        backend.dispose()
        if emitted is not None:
            remove_if_possible(job.storage, [emitted])
        raise
    keep_backend(batch, backend, part)
    return Done(task, part, emitted)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
