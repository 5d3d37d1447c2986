"""Tables that may be too large for memory: they lie in files without names, and are mapped.

The system keeps as much of a mapped file in memory as there is room for. Nobody finds such a file, and it ends with its
table, or with the process, also with one that is killed: rows that an edit erases do not stay behind in it.
"""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import pyarrow as pa

from statestore.formats.places.disk_errors import disk_errors

T = TypeVar("T")
LARGE = 64 << 20
"""Bytes from which on a table is held in a file."""
ROWS_AT_ONCE = 1 << 17
"""Rows of its batches, at most."""


def held(table: pa.Table) -> pa.Table:
    """Return the same rows, which are in memory as a whole only if they are few.

    Raises StorageError DISK_FAILED where the system's temporary folder has no room.
    """
    if table.nbytes < LARGE:
        return table
    return held_rows(table.schema, table.to_batches(max_chunksize=ROWS_AT_ONCE))


def held_rows(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> pa.Table:
    """Return batches as a table, as `held` does. They are taken one by one."""
    found = iter(batches)
    first: deque[pa.RecordBatch] = deque()
    size = 0
    for batch in found:
        first.append(batch)
        size += batch.nbytes
        if size >= LARGE:
            return _mapped(schema, _both(first, found))
    return pa.Table.from_batches(first, schema)


def held_batches(batches: Sequence[pa.RecordBatch]) -> Sequence[pa.RecordBatch]:
    """Return each of some batches with one schema, all in one file if they are large together. Raises as `held`."""
    if sum(batch.nbytes for batch in batches) < LARGE // 8:
        return batches
    return _written(batches[0].schema, iter(batches), lambda reader: list(map(reader.get_batch, range(len(batches)))))


def _both(first: deque[pa.RecordBatch], others: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    while first:
        yield first.popleft()
    yield from others


def _mapped(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> pa.Table:
    return _written(schema, batches, lambda reader: reader.read_all())


def _written(schema: pa.Schema, batches: Iterator[pa.RecordBatch], read: Callable[[pa.RecordBatchFileReader], T]) -> T:
    """Return what is read of the file that holds the batches, as they are."""
    folder = tempfile.gettempdir()
    with disk_errors("write a temporary file in", folder):
        file = tempfile.TemporaryFile()  # noqa: SIM115 (a reader's errors are none of the disk's)
    with file:
        with disk_errors("write a temporary file in", folder):
            writer = pa.ipc.new_file(file, schema)
        for batch in batches:
            with disk_errors("write a temporary file in", folder):
                writer.write_batch(batch)
        with disk_errors("write a temporary file in", folder):
            writer.close()
            file.flush()
            return read(pa.ipc.open_file(pa.memory_map(f"/dev/fd/{file.fileno()}")))
