"""Key groups as Flink assigns them (``KeyGroupRangeAssignment``, ``MathUtils.murmurHash``), for columns and single
keys.

``murmur(hashCode of the key) mod max parallelism``. A key of one column has the hash code of its Java value: Byte,
Short, Integer, Long, Boolean, String. A key of several columns has the hash code of a Tuple. The other types here have
no Java value, or several; their hash code is the upper half of the key hash (``formats.values.key_hash``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statestore.formats.kernels.arrays import Ints, U32s
from statestore.formats.kernels.murmur3 import finished, mixed
from statestore.formats.values.key_hash import hash_keys, scalar_hash

MAX_PARALLELISM = 1 << 15
_LEAST, _MASK, _LONG = 0x80000000, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF


def key_groups(columns: Sequence[pa.Array], max_parallelism: int) -> Ints:
    """The key group of each row; ``columns`` are the key columns in order, with nulls only inside nested values.

    Raises UnsupportedError UNSUPPORTED_KEY_TYPE for types that keys cannot have.
    """
    codes = hash_codes(columns[0])
    if len(columns) > 1:
        for column in columns[1:]:
            codes = codes * np.uint32(31) + hash_codes(column)
    return groups_of_codes(codes, max_parallelism)


def groups_of_codes(codes: U32s, max_parallelism: int) -> Ints:
    """The key group of each hash code, given as the bits of an int."""
    return _murmur(codes).astype(np.int64) % max_parallelism


def key_group_function(schema: pa.Schema, max_parallelism: int) -> Callable[[Sequence[Any]], int]:
    """A function from one canonical key, a value per column, to the key group that `key_groups` gives it."""
    codes = [_scalar_code(field.type) for field in schema]
    if len(codes) == 1:
        only = codes[0]
        return lambda row: murmur_of(only(row[0])) % max_parallelism

    def of_tuple(row: Sequence[Any]) -> int:
        sum_of_codes = codes[0](row[0])
        for code, cell in zip(codes[1:], row[1:], strict=True):
            sum_of_codes = sum_of_codes * 31 + code(cell) & _MASK
        return murmur_of(sum_of_codes) % max_parallelism

    return of_tuple


def _scalar_code(kind: pa.DataType) -> Callable[[Any], int]:
    if pa.types.is_boolean(kind):
        return lambda value: 1231 if value else 1237
    if pa.types.is_int64(kind):
        return lambda value: (value ^ (value & _LONG) >> 32) & _MASK
    if pa.types.is_signed_integer(kind):
        return lambda value: int(value) & _MASK
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _string_code
    whole = scalar_hash(kind)
    return lambda value: whole(value) >> 32


def _string_code(text: str) -> int:
    data = text.encode("latin-1") if text.isascii() else np.frombuffer(text.encode("utf-16-le"), "<u2").tolist()
    code = 0
    for unit in data:
        code = code * 31 + unit & _MASK
    return code


def murmur_of(code: int) -> int:
    """The hash of a hash code, given as the bits of an int (``MathUtils.murmurHash``)."""
    mixed = code * 0xCC9E2D51 & _MASK
    mixed = ((mixed << 15 | mixed >> 17) & _MASK) * 0x1B873593 & _MASK
    mixed = (((mixed << 13 | mixed >> 19) & _MASK) * 5 + 0xE6546B64 & _MASK) ^ 4
    mixed = (mixed ^ mixed >> 16) * 0x85EBCA6B & _MASK
    mixed = (mixed ^ mixed >> 13) * 0xC2B2AE35 & _MASK
    mixed ^= mixed >> 16
    return mixed if mixed < _LEAST else 0 if mixed == _LEAST else _MASK + 1 - mixed


def hash_codes(column: pa.Array) -> U32s:
    """Java's ``hashCode`` of each value, as the bits of an int."""
    kind = column.type
    if pa.types.is_boolean(kind):
        return np.where(column.to_numpy(zero_copy_only=False), 1231, 1237).astype(np.uint32)
    if pa.types.is_int64(kind):
        return _folded(column.to_numpy().view(np.uint64))
    if pa.types.is_signed_integer(kind):
        codes: U32s = column.to_numpy().astype(np.int32).view(np.uint32)
        return codes
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _of_strings(column)
    return (hash_keys([column]) >> np.uint64(32)).astype(np.uint32)


def _folded(words: npt.NDArray[np.uint64]) -> U32s:
    codes: U32s = (words ^ (words >> np.uint64(32))).astype(np.uint32)
    return codes


def _of_strings(column: pa.Array) -> U32s:
    """Compute ``s[0]*31^(n-1) + … + s[n-1]`` over the UTF-16 units of each string."""
    column = column.cast(pa.large_string())
    if not len(column):
        return np.empty(0, np.uint32)
    ends = np.frombuffer(column.buffers()[1], np.int64)[column.offset :][: len(column) + 1]
    first, last = int(ends[0]), int(ends[-1])
    data = b"" if column.buffers()[2] is None else column.buffers()[2].slice(first, last - first).to_pybytes()
    units, edges = _utf16(data, ends - first)
    if not len(units):
        return np.zeros(len(column), np.uint32)
    lengths = np.diff(edges)
    behind = np.repeat(edges[1:], lengths) - np.arange(len(units)) - 1
    terms = units * _powers(int(behind.max()) + 1)[behind]
    sums = np.concatenate((np.zeros(1, np.uint32), np.cumsum(terms, dtype=np.uint32)))
    codes: U32s = sums[edges[1:]] - sums[edges[:-1]]
    return codes


def _utf16(data: bytes, ends: Ints) -> tuple[U32s, Ints]:
    """The UTF-16 units of UTF-8 text, and the position in them at which each string ends."""
    raw = np.frombuffer(data, np.uint8)
    if data.isascii():
        return raw.astype(np.uint32), ends
    units = (raw & 0xC0 != 0x80).astype(np.int64) + (raw >= 0xF0)
    before = np.concatenate((np.zeros(1, np.int64), np.cumsum(units)))
    return np.frombuffer(data.decode("utf-8").encode("utf-16-le"), "<u2").astype(np.uint32), before[ends]


def _powers(count: int) -> U32s:
    """The powers 31^0, 31^1, …"""
    factors = np.full(count, 31, np.uint32)
    factors[:1] = 1
    return np.cumprod(factors, dtype=np.uint32)


def _murmur(codes: U32s) -> U32s:
    mixed_codes = finished(mixed(np.zeros(len(codes), np.uint32), codes), np.full(len(codes), 4, np.uint32))
    negative = mixed_codes >= _LEAST
    absolute = np.where(negative, (~mixed_codes) + np.uint32(1), mixed_codes)
    return np.where(mixed_codes == _LEAST, np.uint32(0), absolute).astype(np.uint32)
