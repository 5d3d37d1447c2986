"""Columns of the system, formats and keys of metadata in a segment's file, on which writers and readers agree."""

from __future__ import annotations

from functools import cache

import numpy as np
import pyarrow as pa

from statestore.formats.kernels.arrays import Ints
from statestore.formats.segments.segment_meta import OPEN
from statestore.formats.values.types import TIME

BATCH_ROWS = 1 << 20
OPEN_ROWS = 1 << 17
FORMAT = "segment/1"
FORMAT_OF_BLOCKS = "segment/2"  # several blocks
FORMAT_OF_NUMBERS = "segment/3"  # and coded numbers
FORMAT_KEY, ROLE_KEY, TOMBSTONE_KEY = b"statestore.format", b"statestore.role", b"statestore.tombstone"
DROPPED_COLUMN = "_dropped"  # belief segments only
SYSTEM_TYPES = {
    "valid_from": TIME,
    "valid_to": TIME,
    "_added": pa.int64(),
    "_closed": pa.int64(),
    "_split": pa.bool_(),
    DROPPED_COLUMN: pa.int64(),
}


def time_column(values: Ints) -> pa.Array:
    """Convert epoch microseconds to a timestamp column without nulls; shares the memory of a contiguous int64 array."""
    values = np.ascontiguousarray(values, dtype=np.int64)
    return pa.Array.from_buffers(TIME, len(values), [None, pa.py_buffer(values)], null_count=0)


def end_column(ends: Ints) -> pa.Array:
    """Convert ends in epoch microseconds to a timestamp column that is null where a row is open.

    The memory is shared. The null slots still hold ``OPEN``, so a reader can use the data buffer as the ends.
    """
    ends = np.ascontiguousarray(ends, dtype=np.int64)
    closed = ends != OPEN
    nulls = len(ends) - int(np.count_nonzero(closed))
    validity = pa.py_buffer(np.packbits(closed, bitorder="little")) if nulls else None
    return pa.Array.from_buffers(TIME, len(ends), [validity, pa.py_buffer(ends)], null_count=nulls)


def open_end_column(rows: int) -> pa.Array:
    """Return the column that `end_column` makes of so many open rows; of at most `OPEN_ROWS`, it shares its memory."""
    if rows > OPEN_ROWS:
        return end_column(np.full(rows, OPEN, np.int64))
    return _open_ends().slice(0, rows)


@cache
def _open_ends() -> pa.Array:
    ends = np.full(OPEN_ROWS, OPEN, np.int64).tobytes()  # which nobody can change
    return pa.Array.from_buffers(TIME, OPEN_ROWS, [pa.py_buffer(bytes(OPEN_ROWS // 8)), pa.py_buffer(ends)], OPEN_ROWS)
