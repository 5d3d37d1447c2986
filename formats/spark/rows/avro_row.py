"""State rows in Avro (``encodingFormat=avro``, transformWithState): field after field, each over all rows at once.

    schema id:int16, little-endian | record       values and last parts of keys; first parts of keys have no id
    (marker:bytes | value:bytes)*                 first parts of range keys, both of them unions

Each field of a record is a union of null and its type, whatever the schema says; elements of arrays and values of maps
are one only if they are structs, arrays or maps. ``void`` takes no bytes. Keys of maps are strings. The schema id
selects the writer's schema: values keep it when the variable's schema evolves. Keys do not evolve. Raises CorruptError
SPARK_STATE_ROW; UnsupportedError SPARK_STATE_UNSUPPORTED for types whose Avro form is not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.bytes.byte_columns import Cells, ends_of, gather
from statestore.formats.kernels.arrays import Bools, Bytes, Ints
from statestore.formats.spark.checkpoint.spark_schema import (
    BINARY,
    STRING,
    TIME,
    VOID,
    ArrayOf,
    DecimalOf,
    MapOf,
    Plain,
    SparkType,
    StructOf,
    arrow_type,
)
from statestore.formats.spark.checkpoint.state_errors import corrupt_row, unsupported
from statestore.formats.spark.rows.row_encoding import RowDecoder
from statestore.formats.spark.rows.unsafe_row import struct_array
from statestore.formats.spark.rows.value_columns import decimals_of_spans, plain_values, spread, text_of

_ID_BYTES = 2
MAX_VARINT = 10
_BRANCHES = 2  # null and the type


@dataclass
class _Cursor:
    """The position of the next byte of each row, and the end of the row."""

    data: Bytes
    at: Ints
    end: Ints

    def skip(self, sizes: Ints | int, what: str) -> Ints:
        """Move past the next ``sizes`` bytes and return where they begin."""
        begin = self.at
        # The first test keeps a huge size from overflowing the second.
        if ((sizes < 0) | (sizes > self.end - begin)).any():
            raise corrupt_row(f"an Avro row ends within {what}")
        self.at = begin + sizes
        return begin

    def numbers(self, form: str, what: str) -> npt.NDArray[Any]:
        return gather(self.data, self.skip(np.full(len(self.at), np.dtype(form).itemsize), what), form)

    def varints(self, what: str) -> Ints:
        """Read zig-zag variable-length integers of up to 64 bits."""
        raw = np.zeros(len(self.at), np.uint64)
        open_rows = np.arange(len(self.at))
        at = self.at.copy()
        for number in range(MAX_VARINT):
            if (at[open_rows] >= self.end[open_rows]).any():
                raise corrupt_row(f"an Avro row ends within {what}")
            byte = gather(self.data, at[open_rows], "<u1")
            raw[open_rows] |= (byte & np.uint8(0x7F)).astype(np.uint64) << np.uint64(7 * number)
            at[open_rows] += 1
            open_rows = open_rows[byte >= 0x80]
            if not len(open_rows):
                self.at = at
                return (raw >> np.uint64(1)).astype(np.int64) ^ -(raw & np.uint64(1)).astype(np.int64)
        raise corrupt_row(f"found {what} in more than {MAX_VARINT} bytes")

    def select(self, which: Bools | Ints) -> _Cursor:
        return _Cursor(self.data, self.at[which], self.end[which])


def decode_record(rows: Cells, schema: StructOf) -> list[pa.Array]:
    """Decode one column per field, of records without a schema id."""
    cursor = _Cursor(rows.data, rows.start, rows.start + rows.size)
    columns = _record(cursor, schema)
    if (cursor.at != cursor.end).any():
        raise corrupt_row("found an Avro row that is longer than its schema")
    return columns


def decode_ordering(rows: Cells, schema: StructOf) -> list[pa.Array]:
    """Decode one column of binaries per ordering column of a range key: its marker, and behind it its value.

    In Avro these are two fields, so the record has twice the fields of ``schema``.
    """
    pairs = StructOf(tuple(replace(field, type=BINARY) for field in schema.fields for _ in ("marker", "value")))
    found = decode_record(rows, pairs)
    return [
        pc.binary_join_element_wise(marker, value, pa.scalar(b"", pa.binary()))
        for marker, value in zip(found[::2], found[1::2], strict=True)
    ]


def decode_key_rows(rows: Cells, schema: StructOf) -> list[pa.Array]:
    """Decode one column per field, of records with a schema id. The id is skipped, because keys do not evolve."""
    return decode_record(rows.behind(_ID_BYTES, "an Avro row", corrupt_row), schema)


def value_decoder(writers: Mapping[int, StructOf]) -> RowDecoder:
    """A decoder of rows that were written with any of these schemas, by id."""

    def decode(rows: Cells, schema: StructOf) -> list[pa.Array]:
        ids = gather(rows.data, rows.behind(_ID_BYTES, "an Avro row", corrupt_row).start - _ID_BYTES, "<i2")
        distinct, row_writer = np.unique(ids, return_inverse=True)
        parts = []
        for number, schema_id in enumerate(distinct.tolist()):
            writer = writers.get(schema_id)
            if writer is None:
                raise corrupt_row(f"found Avro schema id {schema_id}, expected one of {sorted(writers)}")
            own = rows.select(row_writer == number).behind(_ID_BYTES, "an Avro row", corrupt_row)
            parts.append(_evolved(decode_record(own, writer), writer, schema, len(own)))
        if len(parts) <= 1:
            return parts[0] if parts else decode_record(rows, schema)
        back = pa.array(np.argsort(np.argsort(row_writer, kind="stable"), kind="stable"))
        return [pa.concat_arrays(list(columns)).take(back) for columns in zip(*parts, strict=True)]

    return decode


def _evolved(columns: list[pa.Array], writer: StructOf, reader: StructOf, rows: int) -> list[pa.Array]:
    """Convert columns to the reader's schema: by name, null where the writer had none, numbers widened."""
    if writer == reader:
        return columns
    by_name = dict(zip(writer.names, zip(columns, writer.fields, strict=True), strict=True))
    evolved = []
    for field in reader.fields:
        if field.name not in by_name:
            evolved.append(pa.nulls(rows, arrow_type(field.type)))
            continue
        column, source = by_name[field.name]
        evolved.append(_evolved_column(column, source.type, field.type))
    return evolved


def _evolved_column(column: pa.Array, writer: SparkType, reader: SparkType) -> pa.Array:
    """Convert a column, and what lists and maps of it hold, as Avro resolves the writer's type to the reader's."""
    if writer == reader:
        return column
    nulls = column.is_null() if column.null_count else None
    if isinstance(writer, StructOf) and isinstance(reader, StructOf):
        fields = [column.field(number) for number in range(len(writer.fields))]
        members = _evolved(fields, writer, reader, len(column))
        return pa.StructArray.from_arrays(members, fields=list(arrow_type(reader)), mask=nulls)
    if isinstance(writer, ArrayOf) and isinstance(reader, ArrayOf):
        elements = _evolved_column(column.values, writer.element, reader.element)
        return pa.ListArray.from_arrays(column.offsets, elements, type=arrow_type(reader), mask=nulls)
    if isinstance(writer, MapOf) and isinstance(reader, MapOf):
        keys = _evolved_column(column.keys, writer.key, reader.key)
        items = _evolved_column(column.items, writer.value, reader.value)
        return pa.MapArray.from_arrays(column.offsets, keys, items, type=arrow_type(reader), mask=nulls)
    if writer == BINARY and reader == STRING:
        return text_of(column)
    try:
        return column.cast(arrow_type(reader), safe=False)  # Spark rounds and cuts numbers, too
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise unsupported(f"state in Avro whose type changed from {writer} to {reader}") from error


def _record(cursor: _Cursor, schema: StructOf) -> list[pa.Array]:
    return [_nullable(cursor, field.type) for field in schema.fields]


def _nullable(cursor: _Cursor, kind: SparkType) -> pa.Array:
    if kind == VOID:
        return pa.nulls(len(cursor.at))
    branch = cursor.varints("a union")
    if ((branch < 0) | (branch >= _BRANCHES)).any():
        raise corrupt_row("found an Avro union other than of null and one type")
    nulls = branch == 0
    if not nulls.any():
        return _values(cursor, kind)
    present = np.flatnonzero(~nulls)
    part = cursor.select(present)
    values = _values(part, kind)
    cursor.at = cursor.at.copy()
    cursor.at[present] = part.at
    return spread(values, nulls)


def _values(cursor: _Cursor, kind: SparkType) -> pa.Array:
    """Decode values of which none is null."""
    if isinstance(kind, StructOf):
        return struct_array(_record(cursor, kind), kind, len(cursor.at))
    if isinstance(kind, ArrayOf):
        offsets, columns = _blocks(cursor, [kind.element])
        return pa.ListArray.from_arrays(offsets, columns[0], type=arrow_type(kind))
    if isinstance(kind, MapOf) and kind.key == STRING:
        offsets, columns = _blocks(cursor, [kind.key, kind.value])
        return pa.MapArray.from_arrays(offsets, *columns, type=arrow_type(kind))
    if isinstance(kind, DecimalOf):
        size = np.full(len(cursor.at), decimal_bytes(kind.precision))
        return decimals_of_spans(kind, Cells(cursor.data, cursor.skip(size, "a decimal"), size))
    if kind in (STRING, BINARY):
        size = cursor.varints("a size")
        cells = Cells(cursor.data, cursor.skip(size, "bytes"), size).copied(corrupt_row)
        return text_of(cells) if kind == STRING else cells
    if isinstance(kind, Plain) and kind.form is not None and kind != TIME:
        return plain_values(kind, _numbers(cursor, kind.form), None)
    supported = "numbers, text, binary, times, structs, arrays or maps of text"
    raise unsupported(f"state of type {kind} in Avro; expected {supported}")


def _numbers(cursor: _Cursor, form: str) -> npt.NDArray[Any]:
    if form[1] in "fu":
        return cursor.numbers(form, "a number")
    return cursor.varints("an integer").astype(form)


def decimal_bytes(precision: int) -> int:
    """The fewest bytes that hold every decimal of the precision: the size of Spark's Avro ``fixed``."""
    size = 1
    while 2.0 ** (8 * size - 1) < 10.0**precision:
        size += 1
    return size


def _item(cursor: _Cursor, kind: SparkType) -> pa.Array:
    """Decode elements of arrays, or keys or values of maps."""
    return _nullable(cursor, kind) if isinstance(kind, StructOf | ArrayOf | MapOf) else _values(cursor, kind)


def _blocks(cursor: _Cursor, kinds: list[SparkType]) -> tuple[pa.Array, list[pa.Array]]:
    """(offsets, columns) of arrays and maps whose entries have these types.

    They consist of blocks, each with a count and as many entries, and end with a count of 0. A negative count is
    followed by the block's size.
    """
    rows: list[Ints] = []
    entries: list[list[pa.Array]] = [[] for _ in kinds]
    at, open_rows = cursor.at.copy(), np.arange(len(cursor.at))
    left = np.zeros(len(at), np.int64)
    while len(open_rows):
        part = _Cursor(cursor.data, at[open_rows], cursor.end[open_rows])
        fresh = np.flatnonzero(left[open_rows] == 0)
        left[open_rows[fresh]] = _block_counts(part, fresh)
        at[open_rows] = part.at
        open_rows = open_rows[left[open_rows] > 0]
        part = _Cursor(cursor.data, at[open_rows], cursor.end[open_rows])
        for column, kind in zip(entries, kinds, strict=True):
            column.append(_item(part, kind))
        # An element of type void takes no bytes, and this loop may continue only while bytes are consumed.
        if (part.at <= at[open_rows]).any():
            raise corrupt_row("found an element of no bytes in an Avro array")
        rows.append(open_rows)
        at[open_rows] = part.at
        left[open_rows] -= 1
    cursor.at = at
    row = np.concatenate(rows) if rows else np.empty(0, np.int64)
    order = pa.array(np.argsort(row, kind="stable"))
    columns = [
        pa.concat_arrays(pieces).take(order) if pieces else pa.array([], arrow_type(kind))
        for pieces, kind in zip(entries, kinds, strict=True)
    ]
    return pa.array(ends_of(np.bincount(row, minlength=len(at))), pa.int32()), columns


def _block_counts(cursor: _Cursor, fresh: Ints) -> Ints:
    """The counts of the next blocks of these rows."""
    part = cursor.select(fresh)
    counts = part.varints("a count")
    sized = np.flatnonzero(counts < 0)
    if len(sized):
        behind = part.select(sized)
        behind.varints("the size of a block")
        part.at = part.at.copy()
        part.at[sized] = behind.at
    cursor.at = cursor.at.copy()
    cursor.at[fresh] = part.at
    return np.abs(counts)
