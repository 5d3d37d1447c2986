"""Encoding of values of key columns to the first bytes of stored keys, so that a lookup reads only those keys.

A row is written as ``unsafe_row`` reads it. If the first columns of a row are known, so are their null bits and slots:
offsets behind the slots follow from the sizes of the values before. The null bits of the other columns are unknown and
are tried out, a few of them. A struct of numbers, such as a window, always takes the same space, so its slot is known,
too, and the strings of the first columns follow all slots. Where the bytes are not certain, the result is None, and all
keys are read.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import StateStoreError
from statestore.formats.rocksdb.key_ranges import KeyRange, successor
from statestore.formats.spark.checkpoint.spark_schema import (
    BINARY,
    STRING,
    ArrayOf,
    DecimalOf,
    MapOf,
    Plain,
    SparkType,
    StructOf,
    arrow_type,
    has_collation,
)
from statestore.formats.spark.rows.unsafe_row import MAX_LONG_DIGITS, ROOM, WORD, keeps_room
from statestore.formats.values.canonical import ErrorPath, canonical

MAX_PATTERNS = 64
_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True)
class Unknown:
    """The value of a column that is not given."""


UNKNOWN = Unknown()


@dataclass(frozen=True)
class RowStart:
    """The start of a row: ``head``, then ``hole`` bytes of unknown slots, then ``rest``."""

    head: bytes
    hole: int = 0
    rest: bytes = b""


Pins = Mapping[str, Any]
"""Values by column, canonical (``statestore.formats.values.canonical``); of a struct again Pins."""


class _NotCertain(Exception):
    """The bytes cannot be determined."""


def pinned(schema: StructOf, pins: Pins) -> list[Any]:
    """The value of each column in order, a list for a struct, UNKNOWN where none is given.

    Arrays, maps, and texts with a collation, which may equal other bytes, are UNKNOWN, too. Raises StateStoreError for
    a value that its column cannot have.
    """
    values: list[Any] = []
    for field in schema.fields:
        pin = pins.get(field.name, UNKNOWN)
        if isinstance(field.type, StructOf) and isinstance(pin, Mapping):
            values.append(pinned(field.type, pin))
        elif isinstance(field.type, ArrayOf | MapOf) or has_collation(field.type):
            values.append(UNKNOWN)
        elif pin is UNKNOWN or pin is None:
            values.append(pin)
        else:
            values.append(canonical(ErrorPath(ErrorCode.INVALID_FILTER, field.name, arrow_type(field.type)))(pin))
    return values


def is_whole(values: Sequence[Any]) -> bool:
    """Return whether every column has its value."""
    return all(is_whole(value) if isinstance(value, list) else value is not UNKNOWN for value in values)


def row_starts(schema: StructOf, values: Sequence[Any]) -> list[RowStart] | None:
    """The starts of rows with these values, or the whole rows where all are known; None if no byte is certain."""
    try:
        return list(dict.fromkeys(_starts(schema, values)))
    except (_NotCertain, StateStoreError, struct.error, OverflowError):
        return None


def ranges_of(front: bytes, rows: Sequence[RowStart], *, whole: bool) -> list[KeyRange]:
    """The ranges of keys that are ``front`` and then one of these rows: the whole row, or any row with this start."""
    if whole:
        return [KeyRange(front + row.head, front + row.head + b"\0") for row in rows]
    return [KeyRange(front + row.head, successor(front + row.head), row.hole, row.rest) for row in rows]


def _starts(schema: StructOf, values: Sequence[Any]) -> Iterator[RowStart]:
    leading = next((number for number, value in enumerate(values) if not _is_known(value)), len(values))
    if not leading:
        raise _NotCertain
    choices = [
        _variants(field.type, value) if number < leading else [value]
        for number, (field, value) in enumerate(zip(schema.fields, values, strict=True))
    ]
    open_nulls = [number for number, value in enumerate(values) if value is UNKNOWN]
    patterns = math.prod(len(choice) for choice in choices) << len(open_nulls)
    if patterns > MAX_PATTERNS:
        raise _NotCertain
    for chosen in itertools.product(*choices):
        for nulls in itertools.product((False, True), repeat=len(open_nulls)):
            absent = {number for number, null in zip(open_nulls, nulls, strict=True) if null}
            absent |= {number for number, value in enumerate(chosen) if value is None}
            yield _row(schema, chosen, leading, absent)


def _is_known(value: Any) -> bool:
    return is_whole(value) if isinstance(value, list) else value is not UNKNOWN


def _variants(kind: SparkType, value: Any) -> list[Any]:
    """The stored values that equal a value: zero has two signs, and NaN many forms."""
    if isinstance(value, float) and value != value:
        raise _NotCertain
    if isinstance(value, float) and value == 0:
        return [0.0, -0.0]
    if isinstance(kind, StructOf) and isinstance(value, list):
        parts = [_variants(field.type, part) for field, part in zip(kind.fields, value, strict=True)]
        return [list(part) for part in itertools.product(*parts)]
    return [value]


def _row(schema: StructOf, values: Sequence[Any], leading: int, absent: set[int]) -> RowStart:
    """The null bits and known slots of a row; if it has all slots, also the bytes behind them of the first
    ``leading``.
    """
    words = (len(values) + 63) // 64
    bits = sum(1 << number for number in absent)
    slots, behind = [], b""
    offset = WORD * (words + len(values))
    for field, value in zip(schema.fields[:leading], values, strict=False):
        slot, data = _cell(field.type, value, offset)
        slots.append(slot)
        behind += data + bytes(-len(data) % WORD)
        offset += len(data) + -len(data) % WORD
    for number in range(leading, len(values)):
        kind = schema.fields[number].type
        size = _room(kind) if number not in absent else None if keeps_room(kind) else 0
        if size is None:
            break
        slots.append(_pointer(offset, size) if size else bytes(WORD))
        offset += size
    head = bits.to_bytes(WORD * words, "little") + b"".join(slots)
    hole = WORD * (len(values) - len(slots))
    return RowStart(head, hole, behind) if hole and behind else RowStart(head if hole else head + behind)


def _room(kind: SparkType) -> int | None:
    """The size of the bytes behind the slots for values of a type, where all have the same size."""
    if not isinstance(kind, StructOf) or not kind.fields:
        return None
    if not all(isinstance(field.type, Plain) and field.type.form is not None for field in kind.fields):
        return None
    return WORD * ((len(kind.fields) + 63) // 64 + len(kind.fields))


def _cell(kind: SparkType, value: Any, offset: int) -> tuple[bytes, bytes]:
    """(slot, the bytes to which it points at ``offset``)."""
    if value is None:
        if keeps_room(kind):
            raise _NotCertain
        return bytes(WORD), b""
    if isinstance(kind, Plain) and kind.form is not None:
        return _fixed(kind, value).ljust(WORD, b"\0"), b""
    if isinstance(kind, DecimalOf):
        unscaled = int(Decimal(value).scaleb(kind.scale))
        if kind.precision <= MAX_LONG_DIGITS:
            return unscaled.to_bytes(WORD, "little", signed=True), b""
        digits = unscaled.to_bytes((unscaled + (unscaled < 0)).bit_length() // 8 + 1, signed=True)
        return _pointer(offset, len(digits)), digits.ljust(ROOM, b"\0")
    if kind == STRING:
        data = str(value).encode()
    elif kind == BINARY:
        data = bytes(value)
    elif isinstance(kind, StructOf):
        absent = {number for number, part in enumerate(value) if part is None}
        data = _row(kind, value, len(value), absent).head
    else:
        raise _NotCertain
    return _pointer(offset, len(data)), data


def _pointer(offset: int, size: int) -> bytes:
    return (offset << 32 | size).to_bytes(WORD, "little")


def _fixed(kind: Plain, value: Any) -> bytes:
    assert kind.form is not None
    if kind.form[1] == "f":
        return struct.pack("<f" if kind.form == "<f4" else "<d", value)
    number = _integer(kind, value)
    width = int(kind.form[2:])
    return number.to_bytes(width, "little", signed=kind.form[1] == "i")


def _integer(kind: Plain, value: Any) -> int:
    if isinstance(value, bool | int):
        return int(value)
    if isinstance(value, datetime | timedelta):
        number: int = pa.scalar(value, kind.arrow).cast(pa.int64()).as_py()
        return number
    if isinstance(value, date):
        return (value - _EPOCH).days
    raise _NotCertain
