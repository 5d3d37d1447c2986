"""Checks of a column from a file, before any code follows an offset or trusts a count in it.

Checksums prove that these are the bytes that were committed, not that a column can be read. Arrow, numpy and DuckDB
follow offsets without checks, and an offset beyond its buffer ends the process.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

_CHUNK = 1 << 16  # offsets are compared so many at a time, so that the comparison stays in the cache


def check_values(column: pa.Array) -> None:
    """Raise pa.ArrowInvalid unless sizes, offsets, null counts, text and decimals of the column are right.

    Numbers cost next to nothing, bytes and ASCII text a seventh of Arrow's full validation, which is made for other
    text, nested columns and decimals.
    """
    column.validate()
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        _check_lengths(column)
        if pa.types.is_string(kind) and not _is_ascii(column):
            column.validate(full=True)
        _check_nulls(column)
    elif pa.types.is_primitive(kind):
        _check_nulls(column)
    else:
        column.validate(full=True)


def _check_nulls(column: pa.Array) -> None:
    buffers = column.buffers()
    if buffers[0] is None:
        counted = 0
    else:
        again = pa.Array.from_buffers(column.type, len(column), buffers, offset=column.offset)
        counted = again.null_count
    if counted != column.null_count:
        raise pa.ArrowInvalid(f"it has {counted} nulls and says {column.null_count}")


def _check_lengths(column: pa.Array) -> None:
    if not len(column):
        return
    offsets = _offsets(column)
    first, last = int(offsets[0]), int(offsets[-1])
    size = _size(column.buffers()[2])
    for start in range(0, len(offsets), _CHUNK):
        part = offsets[start : start + _CHUNK + 1]
        if (part[1:] < part[:-1]).any():
            raise pa.ArrowInvalid("its offsets do not ascend")
    if first < 0 or last > size:
        raise pa.ArrowInvalid(f"its offsets go from {first} to {last}, its values have {size} bytes")


def _is_ascii(column: pa.Array) -> bool:
    """Return whether all bytes of the values are ASCII, so that they are text wherever they are cut."""
    if not len(column):
        return True
    offsets, data = _offsets(column), column.buffers()[2]
    first, last = int(offsets[0]), int(offsets[-1])
    return first == last or bool(np.frombuffer(data, np.int8)[first:last].min() >= 0)


def _offsets(column: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]


def _size(buffer: pa.Buffer | None) -> int:
    return 0 if buffer is None else int(buffer.size)
