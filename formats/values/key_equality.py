"""Row-wise equality of keys, which decides after two hashes agreed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.kernels.arrays import Bools, Ints
from statestore.formats.kernels.compiled_use import is_loaded
from statestore.formats.values.without_pandas import arrow_numbers, bools, numbers, without_nulls

Rows = npt.NDArray[np.integer[Any]]

_TAKE_BYTES = 1 << 28  # Arrow's take cannot make a string array of 2 GiB or more


def keys_equal(left: Sequence[pa.Array], left_rows: Rows, right: Sequence[pa.Array], right_rows: Rows) -> Bools:
    """Return, for each i, whether key ``left_rows[i]`` of the left columns equals key ``right_rows[i]`` of the right
    ones.

    Columns are the key columns in order, of equal types on both sides. Nulls (they occur inside structs and lists)
    equal nulls. Raises TypeError if types differ, ValueError if the numbers of rows or columns do.
    """
    if len(left_rows) != len(right_rows):
        raise ValueError(f"expected as many rows on both sides, found {len(left_rows)} and {len(right_rows)}")
    equal = np.ones(len(left_rows), np.bool_)
    for ours, theirs in zip(left, right, strict=True):
        equal &= _equal(ours, left_rows, theirs, right_rows)
    return equal


def _equal(left: pa.Array, left_rows: Rows, right: pa.Array, right_rows: Rows) -> Bools:
    equal = _values_equal(left, left_rows, right, right_rows)
    if not left.null_count and not right.null_count:
        return equal
    ours, theirs = _valid(left, left_rows), _valid(right, right_rows)
    answer: Bools = (equal & ours & theirs) | ~(ours | theirs)
    return answer


def _valid(column: pa.Array, rows: Rows) -> Bools:
    """Look up the validity of these rows only: they may be few, in a long column."""
    bitmap = column.buffers()[0]
    if bitmap is None:
        return np.ones(len(rows), np.bool_)
    at = rows.astype(np.int64) + column.offset
    bits = np.frombuffer(bitmap, np.uint8)[at >> 3] >> (at & 7).astype(np.uint8)
    valid: Bools = (bits & 1).view(np.bool_)
    return valid


def _values_equal(left: pa.Array, left_rows: Rows, right: pa.Array, right_rows: Rows) -> Bools:
    """Compare values where both are valid; the result is arbitrary where one is null."""
    kind = left.type
    if pa.types.is_struct(kind):
        return _structs_equal(left, left_rows, right, right_rows)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _lists_equal(left, left_rows, right, right_rows)
    if kind != right.type:
        raise TypeError(f"keys of type {kind} and {right.type} cannot be compared")
    if _has_offsets(kind):
        return _strings_equal(left, left_rows, right, right_rows)
    if pa.types.is_primitive(kind) and kind.bit_width in (8, 16, 32, 64):
        same: Bools = _integers(left)[left_rows] == _integers(right)[right_rows]
        return same
    return _taken_equal(left, left_rows, right, right_rows)


def _has_offsets(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_string(kind) or types.is_binary(kind) or types.is_large_string(kind) or types.is_large_binary(kind)
    )


def _structs_equal(left: pa.Array, left_rows: Rows, right: pa.Array, right_rows: Rows) -> Bools:
    if not pa.types.is_struct(right.type) or left.type.num_fields != right.type.num_fields:
        raise TypeError(f"keys of type {left.type} and {right.type} cannot be compared")
    equal = np.ones(len(left_rows), np.bool_)
    for number in range(left.type.num_fields):
        equal &= _equal(left.field(number), left_rows, right.field(number), right_rows)
    return equal


def _lists_equal(left: pa.Array, left_rows: Rows, right: pa.Array, right_rows: Rows) -> Bools:
    """Compare the members of lists of equal length, all of them in one call."""
    if not (pa.types.is_list(right.type) or pa.types.is_large_list(right.type)):
        raise TypeError(f"keys of type {left.type} and {right.type} cannot be compared")
    left_starts, lengths = _extents(numbers(left.offsets), left_rows)
    right_starts, right_lengths = _extents(numbers(right.offsets), right_rows)
    equal: Bools = lengths == right_lengths
    lengths[~equal] = 0
    ends = np.cumsum(lengths)
    within = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - lengths, lengths)
    members = _equal(
        left.values,
        np.repeat(left_starts, lengths) + within,
        right.values,
        np.repeat(right_starts, lengths) + within,
    )
    equal[np.repeat(np.arange(len(lengths)), lengths)[~members]] = False
    return equal


def _strings_equal(left: pa.Array, left_rows: Rows, right: pa.Array, right_rows: Rows) -> Bools:
    """Compare the bytes only of strings of equal length."""
    if is_loaded():
        from statestore.formats.kernels.key_kernels import strings_equal

        found = np.empty(len(left_rows), np.bool_)
        sides = [(_string_data(c), _string_offsets(c)[: len(c) + 1]) for c in (left, right)]
        rows = [r.astype(np.int64, copy=False) for r in (left_rows, right_rows)]
        if strings_equal(*sides[0], rows[0], *sides[1], rows[1], found):
            return found
    _, lengths = _extents(_string_offsets(left), left_rows)
    equal: Bools = lengths == _extents(_string_offsets(right), right_rows)[1]
    same = np.flatnonzero(equal)
    for part in _parts(same, lengths):
        equal[part] = _taken_equal(left, left_rows[part], right, right_rows[part])
    return equal


def _string_data(column: pa.Array) -> npt.NDArray[np.uint8]:
    data = column.buffers()[2]
    return np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)


def _string_offsets(column: pa.Array) -> Rows:
    large = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    if not len(column):
        return np.zeros(1, np.int64)
    offsets: Rows = np.frombuffer(column.buffers()[1], np.int64 if large else np.int32)
    return offsets[column.offset :]


def _extents(offsets: Rows, rows: Rows) -> tuple[Ints, Ints]:
    """Start and length of each of these rows."""
    starts = offsets[rows].astype(np.int64)
    return starts, offsets[rows + 1].astype(np.int64) - starts


def _parts(rows: Rows, lengths: Ints) -> Iterator[Rows]:
    """Split ``rows`` so that the strings of a part hold at most ``_TAKE_BYTES``, or are a single string."""
    through = np.cumsum(lengths[rows])
    start = 0
    while start < len(rows):
        before = int(through[start - 1]) if start else 0
        stop = max(int(np.searchsorted(through, before + _TAKE_BYTES, side="right")), start + 1)
        yield rows[start:stop]
        start = stop


def _integers(column: pa.Array) -> npt.NDArray[Any]:
    """The bits of the values as integers, without a copy."""
    width = column.type.bit_width // 8
    buffer = column.buffers()[1]
    if buffer is None or not len(column):
        return np.empty(0, f"i{width}")
    return np.frombuffer(buffer, f"i{width}", len(column), column.offset * width)


def _taken_equal(left: pa.Array, left_rows: Rows, right: pa.Array, right_rows: Rows) -> Bools:
    same = pc.equal(left.take(arrow_numbers(left_rows)), right.take(arrow_numbers(right_rows)))
    return bools(without_nulls(same))
