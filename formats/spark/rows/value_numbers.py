"""Numbers for the values of a column: equal numbers for equal values of any type."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from statestore.formats.spark.rows.byte_spans import Ints


def row_codes(column: pa.Array) -> Ints:
    """A number for each row, from 0 on without gaps. Nulls are equal, NaNs are equal, and 0.0 and -0.0 differ.

    Structs, lists and maps are compared by their members. Maps are equal if their entries are, in the same order.
    """
    kind = column.type
    if pa.types.is_null(kind):
        return np.zeros(len(column), np.int64)
    if pa.types.is_struct(kind):
        members = [column.field(number) for number in range(kind.num_fields)]
        return pair_codes(*(row_codes(member) for member in members), _missing(column))
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        members = [column.keys, column.items] if pa.types.is_map(kind) else [column.values]
        return pair_codes(_of_sequences(column.offsets, members), _missing(column))
    codes: Ints = column.dictionary_encode("encode").indices.to_numpy().astype(np.int64)
    return codes


def pair_codes(*codes: Ints) -> Ints:
    """A number for each row of several numbers, from 0 on without gaps."""
    numbers = codes[0]
    for other in codes[1:]:
        width = int(other.max(initial=0)) + 1
        numbers = np.unique(numbers * width + other, return_inverse=True)[1].astype(np.int64)
    return numbers


def _missing(column: pa.Array) -> Ints:
    flags: Ints = column.is_null().to_numpy(zero_copy_only=False).astype(np.int64)
    return flags


def _of_sequences(offsets: pa.Array, members: list[pa.Array]) -> Ints:
    ends = offsets.to_numpy()
    first, last = int(ends[0]), int(ends[-1])
    codes = pair_codes(*(row_codes(member.slice(first, last - first)) for member in members))
    bounds = pa.py_buffer(((ends - first) * 8).astype(np.int64))
    strings = pa.Array.from_buffers(pa.large_binary(), len(ends) - 1, [None, bounds, pa.py_buffer(codes)])
    return row_codes(strings)
