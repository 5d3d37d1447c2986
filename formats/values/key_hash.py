"""The 64-bit hash of a key, from which its key group and its position in a key index follow.

``docs/key-hash.md`` defines it for other languages. It is written into stores, so it never changes. The hash of a value
is XXH64 of its bytes in a defined form. The bytes of a struct, a list or a key of several columns are the hashes of its
members. ``hash_keys`` works on columns, ``scalar_hash`` on single canonical values; both give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from struct import Struct
from struct import pack as _pack_hashes
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from xxhash import xxh64_intdigest

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import UnsupportedError
from statestore.formats.values.without_pandas import bools, numbers
from statestore.formats.values.xxh64 import U64s, xxh64_strings, xxh64_words

NULL_HASH = 0x9AE16A3B2F90404F
"""The hash of a null inside a struct or list. Null keys are refused where keys enter."""

_EPOCH_DAY = date(1970, 1, 1).toordinal()
_EPOCH_UTC = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_NAIVE = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)
_EXACT = Context(prec=76)
_pack_int = Struct("<q").pack


def hash_keys(columns: Sequence[pa.Array]) -> U64s:
    """Hash one key per row; ``columns`` are the key columns in order, of equal length.

    Raises UnsupportedError UNSUPPORTED_KEY_TYPE for floats, maps and other types that keys cannot have.
    """
    parts = [_hash_column(column) for column in columns]
    return parts[0] if len(parts) == 1 else _hash_of_parts(parts, len(columns[0]))


def key_groups_of(hashes: U64s, key_groups: int) -> npt.NDArray[np.int64]:
    """The key group, from 0 to ``key_groups`` - 1, of each hash: equal ranges of its upper 32 bits.

    Key groups therefore ascend with hashes. ``key_groups`` is at most 2**32.
    """
    return (((hashes >> np.uint64(32)) * np.uint64(key_groups)) >> np.uint64(32)).astype(np.int64)


def _hash_of_parts(parts: Sequence[U64s], rows: int) -> U64s:
    """The hash of each row from the hashes of its members."""
    if 1 <= len(parts) <= 3:
        return xxh64_words(parts)
    joined = np.stack(parts, axis=1).reshape(-1) if parts else np.empty(0, np.uint64)
    return xxh64_strings(joined.view(np.uint8), np.arange(rows + 1) * (8 * len(parts)))


def _hash_column(column: pa.Array) -> U64s:
    hashes = _hash_values(column)
    if column.null_count:
        valid = bools(column.is_valid())
        hashes = np.where(valid, hashes, np.uint64(NULL_HASH))
    return hashes


def _hash_values(column: pa.Array) -> U64s:
    """Hashes of the values; arbitrary at nulls."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _hash_strings(column, np.int32)
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return _hash_strings(column, np.int64)
    if pa.types.is_decimal128(kind):
        low_high = _buffer(column, 1, np.uint64, 2 * column.offset, 2 * len(column)).reshape(-1, 2)
        return xxh64_words((low_high[:, 0], low_high[:, 1]))
    if pa.types.is_struct(kind):
        return _hash_struct(column)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _hash_lists(column)
    return xxh64_words([_integers(column).view(np.uint64)])


def _integers(column: pa.Array) -> npt.NDArray[np.int64]:
    """The values of a type that is stored as a signed integer, widened to 64 bits."""
    kind = column.type
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    elif not (pa.types.is_signed_integer(kind) or pa.types.is_date32(kind) or _in_microseconds(kind)):
        raise unsupported_key_type(kind)
    width = column.type.bit_width
    return _buffer(column, 1, np.dtype(f"<i{width // 8}"), column.offset, len(column)).astype(np.int64, copy=False)


def _in_microseconds(kind: pa.DataType) -> bool:
    return bool((pa.types.is_timestamp(kind) or pa.types.is_duration(kind)) and kind.unit == "us")


def _hash_strings(column: pa.Array, offset_kind: npt.DTypeLike) -> U64s:
    if not len(column):
        return np.empty(0, np.uint64)
    offsets = _buffer(column, 1, offset_kind, column.offset, len(column) + 1)
    return xxh64_strings(_buffer(column, 2, np.uint8, 0, int(offsets[-1])), offsets)


def _hash_struct(column: pa.Array) -> U64s:
    parts = [_hash_column(column.field(number)) for number in range(column.type.num_fields)]
    return _hash_of_parts(parts, len(column))


def _hash_lists(column: pa.Array) -> U64s:
    offsets = numbers(column.offsets).astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    members = _hash_column(column.values.slice(first, last - first))
    return xxh64_strings(members.view(np.uint8), (offsets - first) * 8)


def _buffer(column: pa.Array, number: int, kind: npt.DTypeLike, start: int, count: int) -> npt.NDArray[Any]:
    buffer = column.buffers()[number]
    if buffer is None or not count:  # Arrow leaves out empty buffers
        return np.empty(0, kind)
    return np.frombuffer(buffer, kind, count, start * np.dtype(kind).itemsize)


def unsupported_key_type(kind: pa.DataType) -> UnsupportedError:
    """The error for a type without a key hash."""
    return UnsupportedError(
        ErrorCode.UNSUPPORTED_KEY_TYPE,
        f"A key cannot hold type {kind}; use string, binary, boolean, a signed integer, decimal, date, timestamp "
        "in microseconds, or a struct or list of these.",
    )


def scalar_hash(kind: pa.DataType) -> Callable[[Any], int]:
    """A function that hashes one canonical value (``key_codec``) of this type as ``hash_keys`` does.

    Raises UnsupportedError UNSUPPORTED_KEY_TYPE.
    """
    if pa.types.is_struct(kind):
        return _struct_hash([_or_null(scalar_hash(kind.field(n).type)) for n in range(kind.num_fields)])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _list_hash(_or_null(scalar_hash(kind.value_type)))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _hash_str
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return xxh64_intdigest
    if pa.types.is_decimal128(kind):
        return _decimal_hash(kind.scale)
    if pa.types.is_date32(kind):
        return lambda value: xxh64_intdigest(_pack_int(value.toordinal() - _EPOCH_DAY))
    if _in_microseconds(kind):
        return _hash_duration if pa.types.is_duration(kind) else _hash_aware if kind.tz else _hash_naive
    if pa.types.is_signed_integer(kind) or pa.types.is_boolean(kind):
        return _hash_int
    raise unsupported_key_type(kind)


def hash_of_hashes(hashes: Sequence[int]) -> int:
    """XXH64 of hashes as little-endian bytes: the hash of a struct, a list, or a key of several columns."""
    return xxh64_intdigest(_pack_hashes(f"<{len(hashes)}Q", *hashes))


def _or_null(of_value: Callable[[Any], int]) -> Callable[[Any], int]:
    return lambda value: NULL_HASH if value is None else of_value(value)


def _struct_hash(fields: Sequence[Callable[[Any], int]]) -> Callable[[Any], int]:
    return lambda value: hash_of_hashes([of(member) for of, member in zip(fields, value, strict=True)])


def _list_hash(of_member: Callable[[Any], int]) -> Callable[[Any], int]:
    return lambda value: hash_of_hashes([of_member(member) for member in value])


def _decimal_hash(scale: int) -> Callable[[Any], int]:
    shift = Decimal(scale)

    def of_decimal(value: Decimal) -> int:
        unscaled = int(_EXACT.scaleb(value, shift))
        return xxh64_intdigest(unscaled.to_bytes(16, "little", signed=True))

    return of_decimal


def _hash_str(value: str) -> int:
    return xxh64_intdigest(value.encode())


def _hash_int(value: int) -> int:
    return xxh64_intdigest(_pack_int(value))


def _hash_aware(value: datetime) -> int:
    return xxh64_intdigest(_pack_int((value - _EPOCH_UTC) // _MICROSECOND))


def _hash_naive(value: datetime) -> int:
    return xxh64_intdigest(_pack_int((value - _EPOCH_NAIVE) // _MICROSECOND))


def _hash_duration(value: timedelta) -> int:
    return xxh64_intdigest(_pack_int(value // _MICROSECOND))
