"""From the bytes of keys and values to Arrow: what stands around the UnsafeRows of a state store.

    bare                  UnsafeRow                                             HDFS-backed provider, keys and values
    none, any value       00 | row                                              RocksDB, as all that follow
    prefix                size:int32 | 00 | row of the first columns | 00 | row of the others
    range                 size:int32 | 00 | row of one binary per ordering column | 00 | row of the others, if any
    timestamp-prefix      time:8 | 00 | row without the last column             time: big-endian, highest bit inverted
    timestamp-postfix     00 | row without the last column | time:8
    list of values        (size:int32 | 00 | row), with the merge delimiter between

A binary of a range key is a marker (0 negative, 1 not, 2 null) and the big-endian value; negative floats have their
bits inverted. In Avro, a row is as in ``avro_row``. Sizes are little-endian. Raises CorruptError SPARK_STATE_ROW.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from statestore.formats.spark.cells import decimals_of_longs, plain_values
from statestore.formats.spark.damage import corrupt_row, unsupported
from statestore.formats.spark.schema_files import KeyEncoder
from statestore.formats.spark.spans import Flags, Ints, Spans, gather, spans_of
from statestore.formats.spark.spark_schema import BINARY, DecimalOf, Field, Plain, SparkType, StructOf
from statestore.formats.spark.unsafe_row import decode_fields, struct_array

VERSION = 0
SIZE_BYTES = 4
_TIME_BYTES = 8
_NEGATIVE, _NULL = 0, 2

RowDecoder = Callable[[Spans, StructOf], list[pa.Array]]
"""Rows behind their version byte to columns."""


@dataclass(frozen=True)
class RowForm:
    """How a store writes rows. ``bare`` rows have no version byte and are never split.

    ``part`` reads the first parts of keys, ``whole`` last parts and keys of one part: in Avro they differ.
    """

    bare: bool = False
    whole: RowDecoder = decode_fields
    part: RowDecoder = decode_fields
    value: RowDecoder = decode_fields


def decode_values(values: Spans, schema: StructOf, form: RowForm) -> pa.StructArray:
    """One struct per value."""
    return struct_array(_versioned(values, schema, form, form.value), schema, len(values))


def decode_keys(keys: Spans, schema: StructOf, encoder: KeyEncoder, form: RowForm) -> pa.StructArray:
    """One struct per key, its columns in the schema's order."""
    if form.bare or encoder.ordering == "none":
        columns = _versioned(keys, schema, form, form.whole)
    elif encoder.ordering == "prefix":
        columns = _prefixed(keys, schema, encoder.prefix_columns, form)
    elif encoder.ordering == "range":
        columns = _ranged(keys, schema, encoder.ordinals, form)
    else:
        columns = _timed(keys, schema, encoder.ordering == "timestamp-prefix", form)
    return struct_array(columns, schema, len(keys))


def first_parts(keys: Spans) -> Spans:
    """The encoded first columns of keys with a prefix."""
    return _split(keys)[0]


def looks_prefixed(keys: Spans) -> bool:
    """Whether keys have a prefix: a size of UnsafeRow and version byte is never a multiple of 256, a version is 0."""
    return (
        bool(len(keys))
        and bool((keys.size > 0).all())
        and bool((gather(keys.data, keys.start, "<u1") != VERSION).all())
    )


def split_values(values: Spans, delimiter: bytes, front: int = 0) -> tuple[Ints, Spans]:
    """(how many entries each list value has, the entries without their sizes); ``front`` bytes precede each size."""
    at, end = values.start.copy(), values.start + values.size
    rows, starts, sizes = [], [], []
    active = np.flatnonzero(at < end)
    while len(active):
        place = at[active] + front
        _require(place + SIZE_BYTES <= end[active], "a size")
        size = gather(values.data, place, "<i4").astype(np.int64)
        start = place + SIZE_BYTES
        _require((size >= 0) & (size <= end[active] - start), "an entry")
        rows.append(active)
        starts.append(start)
        sizes.append(size)
        at[active] = start + size
        active = active[at[active] < end[active]]
        at[active] = _behind(values.data, at[active], delimiter)
    if not rows:
        return np.zeros(len(values), np.int64), values.select(np.empty(0, np.int64))
    row = np.concatenate(rows)
    order = np.argsort(row, kind="stable")
    entries = Spans(values.data, np.concatenate(starts)[order], np.concatenate(sizes)[order])
    return np.bincount(row, minlength=len(values)), entries


def _behind(data: np.ndarray[tuple[int], np.dtype[np.uint8]], at: Ints, delimiter: bytes) -> Ints:
    for number, byte in enumerate(delimiter):
        _require(gather(data, np.minimum(at + number, len(data) - 1), "<u1") == byte, f"delimiter {delimiter!r}")
    return at + len(delimiter)


def _require(right: Flags, what: str) -> None:
    if not right.all():
        raise corrupt_row(f"list value {int(np.argmin(right))}: expected {what} inside the value")


def _versioned(rows: Spans, schema: StructOf, form: RowForm, decode: RowDecoder) -> list[pa.Array]:
    return decode(rows if form.bare else _without_version(rows), schema)


def _without_version(rows: Spans) -> Spans:
    found = rows.cut(1, "an encoded row")
    versions = gather(rows.data, rows.start, "<u1")
    if versions.any():
        raise unsupported(f"row encoding version {int(versions.max())}; expected {VERSION}")
    return found


def _split(keys: Spans) -> tuple[Spans, Spans]:
    """(first part without its size, second part)."""
    keys.require(SIZE_BYTES, "a key of two parts")
    size = gather(keys.data, keys.start, "<i4").astype(np.int64)
    if ((size < 0) | (size > keys.size - SIZE_BYTES)).any():
        raise corrupt_row("found a key whose first part is larger than the key")
    first = Spans(keys.data, keys.start + SIZE_BYTES, size)
    return first, Spans(keys.data, first.start + size, keys.size - SIZE_BYTES - size)


def _prefixed(keys: Spans, schema: StructOf, count: int, form: RowForm) -> list[pa.Array]:
    first, second = _split(keys)
    columns = _versioned(first, StructOf(schema.fields[:count]), form, form.part)
    rest = StructOf(schema.fields[count:])
    return columns + (_versioned(second, rest, form, form.whole) if rest.fields else [])


def _ranged(keys: Spans, schema: StructOf, ordinals: tuple[int, ...], form: RowForm) -> list[pa.Array]:
    if not all(0 <= number < len(schema.fields) for number in ordinals):
        raise corrupt_row(f"found ordering columns {ordinals} of a key of {len(schema.fields)} columns")
    first, second = _split(keys)
    binaries = StructOf(tuple(Field(schema.fields[number].name, BINARY) for number in ordinals))
    found = dict(zip(ordinals, _versioned(first, binaries, form, form.part), strict=True))
    others = [number for number in range(len(schema.fields)) if number not in found]
    columns = {number: _ordered(cells, schema.fields[number].type) for number, cells in found.items()}
    if others:
        rest = StructOf(tuple(schema.fields[number] for number in others))
        columns.update(zip(others, _versioned(second, rest, form, form.whole), strict=True))
    return [columns[number] for number in range(len(schema.fields))]


def _ordered(cells: pa.Array, kind: SparkType) -> pa.Array:
    """Values of an ordering column from their marker and big-endian bytes."""
    signed = isinstance(kind, Plain) and kind.form is not None
    if not signed and not (isinstance(kind, DecimalOf) and kind.precision <= 18):
        raise unsupported(f"a range key ordered by {kind}; expected a number, time or boolean")
    width = np.dtype(kind.form).itemsize if isinstance(kind, Plain) and kind.form else 8
    spans = spans_of(cells)
    if cells.null_count:
        raise corrupt_row("found an ordering column without a marker")
    spans.require(1 + width, "an ordering column")
    marker = gather(spans.data, spans.start, "<u1")
    raw = gather(spans.data, spans.start + 1, f">i{width}")
    nulls = marker == _NULL
    mask = nulls if nulls.any() else None
    if not isinstance(kind, Plain):
        assert isinstance(kind, DecimalOf)
        return decimals_of_longs(kind, raw.astype("<i8"), mask)
    assert kind.form is not None
    if kind.form[1] == "f":
        raw = np.where(marker == _NEGATIVE, ~raw, raw)
    return plain_values(kind, raw.astype(f"<i{width}").view(kind.form), mask)


def _timed(keys: Spans, schema: StructOf, before: bool, form: RowForm) -> list[pa.Array]:
    keys.require(_TIME_BYTES, "a key with its time")
    place = keys.start if before else keys.start + keys.size - _TIME_BYTES
    time = gather(keys.data, place, ">u8") ^ np.uint64(1 << 63)
    rows = replace(keys, start=keys.start + (_TIME_BYTES if before else 0), size=keys.size - _TIME_BYTES)
    columns = _versioned(rows, StructOf(schema.fields[:-1]), form, form.whole)
    kind = schema.fields[-1].type
    if not isinstance(kind, Plain) or kind.form != "<i8":
        raise unsupported(f"a key that ends with {kind} as its time; expected a long")
    return [*columns, plain_values(kind, time.astype("<u8").view("<i8"), None)]
