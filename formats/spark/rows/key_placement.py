"""The partition of a key in Spark: Murmur3 of 32 bits over the columns with seed 42, modulo the partitions.

It is computed of one key for a lookup, and of the columns of a batch for a verification.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statestore.formats.bytes.byte_columns import Cells, cells_of, row_kernels
from statestore.formats.bytes.hashed_words import mixed_words
from statestore.formats.kernels.arrays import Bools, Ints
from statestore.formats.kernels.murmur3 import finished, mixed
from statestore.formats.spark.checkpoint.spark_schema import (
    BINARY,
    STRING,
    ArrayOf,
    DecimalOf,
    Plain,
    SparkType,
    StructOf,
)
from statestore.formats.spark.rows.unsafe_row import MAX_LONG_DIGITS
from statestore.formats.spark.rows.value_encoding import is_replaced, shortest, unscaled_of
from statestore.formats.values.without_pandas import arrow_numbers

_SEED = 42
_MASK = 0xFFFFFFFF


def hash_of(schema: StructOf, values: Sequence[Any]) -> int | None:
    """The hash of a row of canonical values; None for types whose hash is not implemented here."""
    state = _SEED
    for field, value in zip(schema.fields, values, strict=True):
        step = _value_hash(field.type, value, state)
        if step is None:
            return None
        state = step
    return state


def partition_of(key_hash: int, partitions: int) -> int:
    """The partition of a hash. Spark's hash is a signed number, and the remainder is not negative."""
    return (key_hash - (key_hash >> 31 << 32)) % partitions


def _value_hash(kind: SparkType, value: Any, seed: int) -> int | None:
    if value is None:
        return seed
    if isinstance(kind, StructOf):
        return _struct_hash(kind, value, seed)
    if isinstance(kind, DecimalOf):
        unscaled = int(Decimal(value).scaleb(kind.scale))
        if kind.precision <= MAX_LONG_DIGITS:
            return _long_hash(unscaled, seed)
        return _bytes_hash(unscaled.to_bytes((unscaled + (unscaled < 0)).bit_length() // 8 + 1, signed=True), seed)
    if kind == STRING:
        return _bytes_hash(str(value).encode(), seed)
    if kind == BINARY:
        return _bytes_hash(bytes(value), seed)
    if not isinstance(kind, Plain) or kind.form is None:
        return None
    return _number_hash(kind, value, seed)


def _struct_hash(kind: StructOf, values: Sequence[Any], seed: int) -> int | None:
    state: int | None = seed
    for field, value in zip(kind.fields, values, strict=True):
        if state is None:
            return None
        state = _value_hash(field.type, value, state)
    return state


def _number_hash(kind: Plain, value: Any, seed: int) -> int | None:
    assert kind.form is not None
    if kind.form == "<f8":
        return _long_hash(int.from_bytes(struct.pack("<d", value + 0.0), "little"), seed)
    if kind.form == "<f4":
        return _int_hash(int.from_bytes(struct.pack("<f", value + 0.0), "little"), seed)
    if isinstance(value, datetime | timedelta):
        value = pa.scalar(value, kind.arrow).cast(pa.int64()).as_py()
    elif isinstance(value, date):
        value = (value - date(1970, 1, 1)).days
    if not isinstance(value, int):  # a time of the day, or a moment in nanoseconds
        return None
    return _long_hash(value, seed) if kind.form == "<i8" else _int_hash(value, seed)


def _rotated(x: int, bits: int) -> int:
    return ((x << bits) | (x >> (32 - bits))) & _MASK


def _mixed(h: int, k: int) -> int:
    k = _rotated((k & _MASK) * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK
    return (_rotated(h ^ k, 13) * 5 + 0xE6546B64) & _MASK


def _finished(h: int, size: int) -> int:
    h ^= size
    h = (h ^ (h >> 16)) * 0x85EBCA6B & _MASK
    h = (h ^ (h >> 13)) * 0xC2B2AE35 & _MASK
    return h ^ (h >> 16)


def _int_hash(value: int, seed: int) -> int:
    return _finished(_mixed(seed, value), 4)


def _long_hash(value: int, seed: int) -> int:
    return _finished(_mixed(_mixed(seed, value), value >> 32), 8)


def _bytes_hash(data: bytes, seed: int) -> int:
    """Hash bytes in Spark's own form: the last bytes, fewer than four, are mixed in one by one, as signed numbers."""
    state, whole = seed, len(data) - len(data) % 4
    for at in range(0, whole, 4):
        state = _mixed(state, int.from_bytes(data[at : at + 4], "little"))
    for byte in data[whole:]:
        state = _mixed(state, byte - (byte >> 7 << 8))
    return _finished(state, len(data))


# The same for the columns of a batch


Hashes = npt.NDArray[np.uint32]
_LONGEST = 1 << 16  # a cell of more bytes is not hashed: all others would wait for it
_MOST_ELEMENTS = 1 << 12  # nor is a list of more elements


def partitions_of(columns: Sequence[pa.Array], kinds: Sequence[SparkType], partitions: int) -> Ints | None:
    """The partition of each row of decoded columns, -1 where it is not known; None for types without a hash here.

    It is not known where a string is shown with U+FFFD, which stands for any bytes that are no UTF-8, and of cells that
    are very long.
    """
    count = len(columns[0])
    state = np.full(count, _SEED, np.uint32)
    known = np.ones(count, np.bool_)
    for column, kind in zip(columns, kinds, strict=True):
        step = _column_hashes(column, kind, state, known)
        if step is None:
            return None
        state = step
    found = state.view(np.int32).astype(np.int64) % partitions
    return np.where(known, found, -1)


def _column_hashes(column: pa.Array, kind: SparkType, seed: Hashes, known: Bools) -> Hashes | None:
    """The hashes of the cells of a column; a null leaves the seed. Cells without a hash are marked in ``known``."""
    if isinstance(kind, StructOf):
        state: Hashes | None = seed
        for field, member in zip(kind.fields, column.flatten(), strict=True):
            state = None if state is None else _column_hashes(member, field.type, state, known)
        return state
    if isinstance(kind, ArrayOf):
        return _list_hashes(column, kind.element, seed, known)
    found = _cell_hashes(column, kind, seed, known)
    if found is None or not column.null_count:
        return found
    return np.where(column.is_valid().to_numpy(zero_copy_only=False), found, seed)


def _list_hashes(column: pa.ListArray, kind: SparkType, seed: Hashes, known: Bools) -> Hashes | None:
    """Hash lists, element by element of all at a time: the hash of each is the seed of the next one.

    An empty list leaves the seed, as a null does.
    """
    elements, starts = column.values, column.offsets.to_numpy()[:-1].astype(np.int64)
    sizes = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    known &= sizes <= _MOST_ELEMENTS
    state, at = seed.copy(), 0
    rows = np.flatnonzero((sizes > 0) & known)
    while at == 0 or len(rows):  # once without elements, too: their type may have no hash
        mine = np.ones(len(rows), np.bool_)
        step = _column_hashes(elements.take(arrow_numbers(starts[rows] + at)), kind, state[rows], mine)
        if step is None:
            return None
        state[rows] = step
        known[rows[~mine]] = False
        at += 1
        rows = rows[sizes[rows] > at]
    return state


def _cell_hashes(column: pa.Array, kind: SparkType, seed: Hashes, known: Bools) -> Hashes | None:
    if isinstance(kind, DecimalOf):
        unscaled = unscaled_of(column)
        if kind.precision <= MAX_LONG_DIGITS:
            return _hashes_of_longs(unscaled[:, :8].copy().view("<i8")[:, 0], seed)
        return _hashes_of_cells(shortest(unscaled), seed, known)
    if kind in (STRING, BINARY):
        if kind == STRING:
            known &= ~is_replaced(column)
        return _hashes_of_cells(cells_of(column), seed, known)
    if not isinstance(kind, Plain) or kind.form is None:
        return None
    numbers = _numbers(column, kind.form)
    if numbers is None:
        return None
    return _hashes_of_longs(numbers, seed) if numbers.itemsize == 8 else _hashes_of_ints(numbers, seed)


def _numbers(column: pa.Array, form: str) -> npt.NDArray[Any] | None:
    """The cells as the numbers that Spark hashes, of 4 or 8 bytes; None for types that it hashes in another way."""
    kind, width = column.type, np.dtype(np.int64 if form == "<i8" else np.int32)
    if pa.types.is_floating(kind):
        floats = column.fill_null(0.0).to_numpy(zero_copy_only=False).copy()
        floats[floats == 0] = 0.0  # -0.0 is hashed as 0.0, and every NaN as one
        floats[np.isnan(floats)] = np.nan
        return np.asarray(np.ascontiguousarray(floats).view("<i8" if form == "<f8" else "<i4"))
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    elif (pa.types.is_timestamp(kind) or pa.types.is_duration(kind)) and kind.unit == "us":
        column = column.cast(pa.int64())
    elif pa.types.is_date32(kind):
        column = column.cast(pa.int32())
    elif pa.types.is_time64(kind) and kind.unit == "ns":  # as the row has it
        column = column.cast(pa.int64())
    elif not pa.types.is_integer(kind):
        return None
    return np.asarray(column.fill_null(0).to_numpy(zero_copy_only=False), width)


def _hashes_of_ints(values: npt.NDArray[Any], seed: Hashes) -> Hashes:
    return finished(mixed(seed, values.astype(np.int32).view(np.uint32)), np.full(len(seed), 4, np.uint32))


def _hashes_of_longs(values: npt.NDArray[Any], seed: Hashes) -> Hashes:
    halves = np.ascontiguousarray(values.astype("<i8")).view("<u4").reshape(-1, 2)
    return finished(mixed(mixed(seed, halves[:, 0]), halves[:, 1]), np.full(len(seed), 8, np.uint32))


def _hashes_of_cells(cells: Cells, seed: Hashes, known: Bools) -> Hashes:
    """Hash bytes in Spark's own form, word by word of all cells at a time, then the last bytes as signed numbers."""
    words = cells.size // 4
    known &= cells.size <= _LONGEST
    kernels = row_kernels()
    if kernels is not None:
        mixing = seed.copy()
        if not kernels.mix_cells(cells.data, cells.start, cells.size, known, mixing):
            raise IndexError("found a cell outside of the bytes that were read")
        return finished(mixing, cells.size.astype(np.uint32))
    state = mixed_words(seed, cells, np.flatnonzero(known))
    for behind in range(3):
        rows = np.flatnonzero((cells.size % 4 > behind) & known)
        last = cells.data[cells.start[rows] + 4 * words[rows] + behind].view(np.int8)
        state[rows] = mixed(state[rows], last.astype(np.int32).view(np.uint32))
    return finished(state, cells.size.astype(np.uint32))
