"""Decoding of keys and values to Arrow: the bytes around the UnsafeRows of a state store.

    bare                  UnsafeRow                                             HDFS-backed provider, keys and values
    none, any value       00 | row                                              RocksDB, as all that follow
    prefix                size:int32 | 00 | row of the first columns | 00 | row of the others
    range                 size:int32 | 00 | row of one binary per ordering column | 00 | row of the others, if any
    timestamp-prefix      time:8 | 00 | row without the last column             time: big-endian, highest bit inverted
    timestamp-postfix     00 | row without the last column | time:8
    list of values        (size:int32 | 00 | row), with the merge delimiter between

A binary of a range key is a marker (0 negative, 1 not, 2 null) and the big-endian value; negative floats have their
bits inverted. In Avro, a row and the first part of a range key are as in ``avro_row``. Sizes are little-endian. Raises
CorruptError SPARK_STATE_ROW.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statestore.formats.bytes.byte_columns import Cells, cells_of, gather
from statestore.formats.bytes.crc32c import crc32c_of_cells
from statestore.formats.kernels.arrays import Bools, Bytes, Ints
from statestore.formats.spark.checkpoint.schema_files import KeyEncoder
from statestore.formats.spark.checkpoint.spark_schema import BINARY, DecimalOf, Field, Plain, SparkType, StructOf
from statestore.formats.spark.checkpoint.state_errors import corrupt_row, unsupported
from statestore.formats.spark.rows.unsafe_row import decode_fields, slot_width, struct_array
from statestore.formats.spark.rows.value_columns import decimals_of_longs, plain_values

VERSION = 0
SIZE_BYTES, CHECKSUM_BYTES = 4, 4
TIME_SIGN = np.uint64(1 << 63)
NEGATIVE, NOT_NEGATIVE, NULL = 0, 1, 2
"""The markers of the values of ordering columns."""
_TIME_BYTES = 8
_FEW = 32
"""So few lists are read one by one, more of them together, an entry of each at a time.

Read together, a list of 5,000 entries takes 112 ms in place of 3. Read one by one, 100,000 lists take 740 ms in place
of 30.
"""

RowDecoder = Callable[[Cells, StructOf], list[pa.Array]]
"""Function from rows, which follow their version byte, to columns."""


@dataclass(frozen=True)
class RowForm:
    """The form in which a store writes rows. ``bare`` rows have no version byte and are never split.

    ``part`` reads the first parts of keys, ``ordering`` those of range keys; ``whole`` reads last parts and keys of one
    part. In Avro the three differ.
    """

    bare: bool = False
    whole: RowDecoder = decode_fields
    part: RowDecoder = decode_fields
    ordering: RowDecoder = decode_fields
    value: RowDecoder = decode_fields


def decode_values(values: Cells, schema: StructOf, form: RowForm) -> pa.StructArray:
    """Decode values to one struct each."""
    return struct_array(_versioned(values, schema, form, form.value), schema, len(values))


def decode_keys(keys: Cells, schema: StructOf, encoder: KeyEncoder, form: RowForm) -> pa.StructArray:
    """Decode keys to one struct each, with columns in the schema's order."""
    if form.bare or encoder.ordering == "none":
        columns = _versioned(keys, schema, form, form.whole)
    elif encoder.ordering == "prefix":
        columns = _prefixed(keys, schema, encoder.prefix_columns, form)
    elif encoder.ordering == "range":
        columns = _ranged(keys, schema, encoder.ordinals, form)
    else:
        columns = _timed(keys, schema, encoder.ordering == "timestamp-prefix", form)
    return struct_array(columns, schema, len(keys))


def first_parts(keys: Cells) -> Cells:
    """The encoded first columns of keys with a prefix."""
    return _split(keys)[0]


def looks_prefixed(keys: Cells) -> bool:
    """Return whether keys have a prefix: the size of an UnsafeRow plus a version byte is never a multiple of 256.

    A first byte of 0 is therefore a version and not part of a size.
    """
    return (
        bool(len(keys))
        and bool((keys.size > 0).all())
        and bool((gather(keys.data, keys.start, "<u1") != VERSION).all())
    )


def split_values(values: Cells, delimiter: bytes, front: int = 0) -> tuple[Ints, Cells]:
    """(number of entries of each list value, the entries without their sizes); ``front`` bytes precede each size."""
    at, end = values.start.copy(), values.start + values.size
    entries: list[tuple[Ints, Ints, Ints]] = []  # rows, starts and sizes of entries
    active = np.flatnonzero(at < end)
    while len(active) >= _FEW:
        offset = at[active] + front
        _require(offset + SIZE_BYTES <= end[active], "a size")
        size = gather(values.data, offset, "<i4").astype(np.int64)
        start = offset + SIZE_BYTES
        _require((size >= 0) & (size <= end[active] - start), "an entry")
        entries.append((active, start, size))
        at[active] = start + size
        active = active[at[active] < end[active]]
        at[active] = _behind(values.data, at[active], delimiter)
    # Few lists are left, often long ones.
    entries += [_entries_of(values.data, row, int(at[row]), int(end[row]), delimiter, front) for row in active.tolist()]
    if not entries:
        return np.zeros(len(values), np.int64), values.select(np.empty(0, np.int64))
    rows, starts, sizes = (np.concatenate(parts) for parts in zip(*entries, strict=True))
    order = np.argsort(rows, kind="stable")
    return np.bincount(rows, minlength=len(values)), Cells(values.data, starts[order], sizes[order])


def _entries_of(data: Bytes, row: int, at: int, end: int, delimiter: bytes, front: int) -> tuple[Ints, Ints, Ints]:
    """(row, start, size) of each entry of one list value from ``at`` to ``end``; at least one entry is left."""
    cells, size_at, where = data[at:end].tobytes(), Struct("<i").unpack_from, 0
    starts, sizes = [], []
    while True:
        start = where + front + SIZE_BYTES
        size = size_at(cells, where + front)[0] if start <= len(cells) else -1
        where = start + size
        if size < 0 or where > len(cells) or (not cells.startswith(delimiter, where) and where < len(cells)):
            raise corrupt_row(f"list value {row}: found an entry of {size} bytes, expected it inside the value")
        starts.append(at + start)
        sizes.append(size)
        if where == len(cells):
            return np.full(len(starts), row), np.array(starts, np.int64), np.array(sizes, np.int64)
        where += len(delimiter)


def _behind(data: Bytes, at: Ints, delimiter: bytes) -> Ints:
    for number, byte in enumerate(delimiter):
        _require(gather(data, np.minimum(at + number, len(data) - 1), "<u1") == byte, f"delimiter {delimiter!r}")
    return at + len(delimiter)


def _require(right: Bools, what: str) -> None:
    if not right.all():
        raise corrupt_row(f"list value {int(np.argmin(right))}: expected {what} inside the value")


def _versioned(rows: Cells, schema: StructOf, form: RowForm, decode: RowDecoder) -> list[pa.Array]:
    return decode(rows if form.bare else without_version(rows), schema)


def without_version(rows: Cells) -> Cells:
    rest = rows.behind(1, "an encoded row", corrupt_row)
    versions = gather(rows.data, rows.start, "<u1")
    if versions.any():
        raise unsupported(f"row encoding version {int(versions.max())}; expected {VERSION}")
    return rest


def _split(keys: Cells) -> tuple[Cells, Cells]:
    """(first part without its size, second part)."""
    keys.require(SIZE_BYTES, "a key of two parts", corrupt_row)
    size = gather(keys.data, keys.start, "<i4").astype(np.int64)
    if ((size < 0) | (size > keys.size - SIZE_BYTES)).any():
        raise corrupt_row("found a key whose first part is larger than the key")
    first = Cells(keys.data, keys.start + SIZE_BYTES, size)
    return first, Cells(keys.data, first.start + size, keys.size - SIZE_BYTES - size)


def _prefixed(keys: Cells, schema: StructOf, count: int, form: RowForm) -> list[pa.Array]:
    first, second = _split(keys)
    columns = _versioned(first, StructOf(schema.fields[:count]), form, form.part)
    rest = StructOf(schema.fields[count:])
    return columns + (_versioned(second, rest, form, form.whole) if rest.fields else [])


def _ranged(keys: Cells, schema: StructOf, ordinals: tuple[int, ...], form: RowForm) -> list[pa.Array]:
    binaries = ordering_schema(schema, ordinals)
    first, second = _split(keys)
    ordered = dict(zip(ordinals, _versioned(first, binaries, form, form.ordering), strict=True))
    others = [number for number in range(len(schema.fields)) if number not in ordered]
    columns = {number: _ordered(cells, schema.fields[number].type) for number, cells in ordered.items()}
    if others:
        rest = StructOf(tuple(schema.fields[number] for number in others))
        columns.update(zip(others, _versioned(second, rest, form, form.whole), strict=True))
    return [columns[number] for number in range(len(schema.fields))]


def ordering_schema(schema: StructOf, ordinals: tuple[int, ...]) -> StructOf:
    """The schema of the first part of range keys: one binary for each ordering column."""
    if not all(0 <= number < len(schema.fields) for number in ordinals):
        raise corrupt_row(f"found ordering columns {ordinals} of a key of {len(schema.fields)} columns")
    return StructOf(tuple(Field(schema.fields[number].name, BINARY) for number in ordinals))


def _ordered(cells: pa.Array, kind: SparkType) -> pa.Array:
    """Decode the values of an ordering column from their marker and big-endian bytes."""
    width = ordered_width(kind)
    spans = cells_of(cells)
    if cells.null_count:
        raise corrupt_row("found an ordering column without a marker")
    spans.require(1 + width, "an ordering column", corrupt_row)
    marker = gather(spans.data, spans.start, "<u1")
    raw = gather(spans.data, spans.start + 1, f">i{width}")
    nulls = marker == NULL
    mask = nulls if nulls.any() else None
    if not isinstance(kind, Plain):
        assert isinstance(kind, DecimalOf)
        return decimals_of_longs(kind, raw.astype("<i8"), mask)
    assert kind.form is not None
    if kind.form[1] == "f":
        raw = np.where(marker == NEGATIVE, ~raw, raw)
    return plain_values(kind, raw.astype(f"<i{width}").view(kind.form), mask)


def ordered_width(kind: SparkType) -> int:
    """The bytes of a value of an ordering column. Raises UnsupportedError SPARK_STATE_UNSUPPORTED."""
    width = slot_width(kind)
    if not width:
        raise unsupported(f"a range key ordered by {kind}; expected a number, time or boolean")
    return width


def _timed(keys: Cells, schema: StructOf, before: bool, form: RowForm) -> list[pa.Array]:
    keys.require(_TIME_BYTES, "a key with its time", corrupt_row)
    offset = keys.start if before else keys.start + keys.size - _TIME_BYTES
    time = gather(keys.data, offset, ">u8") ^ TIME_SIGN
    rows = keys.cut(_TIME_BYTES) if before else keys.cut(0, _TIME_BYTES)
    columns = _versioned(rows, StructOf(schema.fields[:-1]), form, form.whole)
    kind = time_kind(schema)
    return [*columns, plain_values(kind, time.astype("<u8").view("<i8"), None)]


def time_kind(schema: StructOf) -> Plain:
    """The type of the time in a key with its time. Raises UnsupportedError SPARK_STATE_UNSUPPORTED."""
    kind = schema.fields[-1].type
    if not isinstance(kind, Plain) or kind.form != "<i8":
        raise unsupported(f"a key that ends with {kind} as its time; expected a long")
    return kind


# Checksums of rows (``stateStore.rowChecksum.enabled``): a CRC32C of four bytes, little-endian, over the key and the
# value before which it stands. The checksum of a deletion is over the key.


def verify_checksums(stored: npt.NDArray[Any], keys: Cells, values: Cells | None = None) -> None:
    """Raise CorruptError SPARK_STATE_ROW, naming the first row that does not match its checksum."""
    found = crc32c_of_cells(keys) if values is None else crc32c_of_cells(values, crc32c_of_cells(keys))
    wrong = found != stored
    if wrong.any():
        row = int(np.argmax(wrong))
        raise corrupt_row(f"row {row} has checksum {int(found[row]):#010x}, expected {int(stored[row]):#010x}")
