"""The partition of a key in Spark: Murmur3 of 32 bits over the columns with seed 42, modulo the partitions."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from statestore.formats.spark.checkpoint.spark_schema import BINARY, STRING, DecimalOf, Plain, SparkType, StructOf
from statestore.formats.spark.rows.unsafe_row import MAX_LONG_DIGITS

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
