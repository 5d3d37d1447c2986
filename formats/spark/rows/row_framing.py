"""Encoding of keys and values from Arrow: the bytes around rows, in the forms that ``row_encoding`` describes.

A list value has one entry after the other, with the delimiter of the store's merges between them. With row checksums
each entry has its own, as where Spark puts or appends a list.

Raises UnsupportedError EDIT_UNSUPPORTED and InvalidInputError EDIT_REFUSED.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from statestore.formats.bytes.byte_columns import Cells, ends_of
from statestore.formats.bytes.byte_parts import (
    Part,
    cells_of_groups,
    joined_parts,
    number_cells,
    sizes_of,
    zero_cells,
)
from statestore.formats.bytes.crc32c import crc32c_of_cells
from statestore.formats.kernels.arrays import Ints
from statestore.formats.spark.checkpoint.schema_files import KeyEncoder
from statestore.formats.spark.checkpoint.spark_schema import BOOLEAN, Plain, SparkType, StructOf
from statestore.formats.spark.rows.row_encoding import (
    NEGATIVE,
    NOT_NEGATIVE,
    NULL,
    TIME_SIGN,
    VERSION,
    ordered_width,
    ordering_schema,
    time_kind,
)
from statestore.formats.spark.rows.unsafe_row_encoding import RowParts, refuse_nulls, row_parts
from statestore.formats.spark.rows.value_encoding import null_mask, plain_numbers, slot_numbers

_VERSION = bytes([VERSION])


@dataclass(frozen=True)
class WrittenForm:
    """The form in which a store writes rows, as `RowForm` has it for reads: ``bare`` rows have no version byte."""

    bare: bool = False
    whole: RowParts = row_parts
    part: RowParts = row_parts
    ordering: RowParts = row_parts
    value: RowParts = row_parts


def value_parts(columns: Sequence[pa.Array], schema: StructOf, form: WrittenForm, rows: int) -> list[Part]:
    """The parts of values without checksums, sizes and delimiters."""
    return _versioned(columns, schema, form, form.value, rows)


def key_parts(
    columns: Sequence[pa.Array], schema: StructOf, encoder: KeyEncoder, form: WrittenForm, rows: int
) -> list[Part]:
    """The parts of keys; ``columns`` are in the schema's order."""
    if form.bare or encoder.ordering == "none":
        return _versioned(columns, schema, form, form.whole, rows)
    if encoder.ordering == "prefix":
        return _prefixed(columns, schema, encoder.prefix_columns, form, rows)
    if encoder.ordering == "range":
        return _ranged(columns, schema, encoder.ordinals, form, rows)
    kind, time = time_kind(schema), columns[-1]
    if time.null_count:
        refuse_nulls(schema.fields[-1].name, kind, False)
    ordered = number_cells((plain_numbers(kind, time).view("<u8") ^ TIME_SIGN).astype(">u8"))
    row = _versioned(columns[:-1], StructOf(schema.fields[:-1]), form, form.whole, rows)
    return [ordered, *row] if encoder.ordering == "timestamp-prefix" else [*row, ordered]


def _versioned(
    columns: Sequence[pa.Array], schema: StructOf, form: WrittenForm, encode: RowParts, rows: int
) -> list[Part]:
    parts = encode(columns, schema, rows)
    return parts if form.bare else [_VERSION, *parts]


def _prefixed(columns: Sequence[pa.Array], schema: StructOf, count: int, form: WrittenForm, rows: int) -> list[Part]:
    first = _versioned(columns[:count], StructOf(schema.fields[:count]), form, form.part, rows)
    return _of_two(first, columns[count:], StructOf(schema.fields[count:]), form, rows)


def _ranged(
    columns: Sequence[pa.Array], schema: StructOf, ordinals: tuple[int, ...], form: WrittenForm, rows: int
) -> list[Part]:
    binaries = ordering_schema(schema, ordinals)
    for number in ordinals:
        if columns[number].null_count:
            refuse_nulls(schema.fields[number].name, schema.fields[number].type, schema.fields[number].nullable)
    ordered = [_ordered(columns[number], schema.fields[number].type) for number in ordinals]
    first = _versioned(ordered, binaries, form, form.ordering, rows)
    others = [number for number in range(len(schema.fields)) if number not in ordinals]
    rest = StructOf(tuple(schema.fields[number] for number in others))
    return _of_two(first, [columns[number] for number in others], rest, form, rows)


def _of_two(first: list[Part], columns: Sequence[pa.Array], rest: StructOf, form: WrittenForm, rows: int) -> list[Part]:
    second = _versioned(columns, rest, form, form.whole, rows) if rest.fields else []
    return [_size_part(sizes_of(first, rows)), *first, *second]


def _size_part(sizes: Ints) -> Cells:
    return number_cells(sizes.astype("<i4"))


def _ordered(column: pa.Array, kind: SparkType) -> pa.BinaryArray:
    """Binaries that are ordered as the values are: a marker and the big-endian value."""
    width, nulls = ordered_width(kind), null_mask(column)
    raw = slot_numbers(kind, column, nulls)
    negative = raw >> raw.dtype.type(8 * width - 1) == 1
    if kind == BOOLEAN:
        negative[:] = False
    if isinstance(kind, Plain) and kind.form is not None and kind.form[1] == "f":
        raw = np.where(negative, ~raw, raw)
    marker = np.where(negative, np.uint8(NEGATIVE), np.uint8(NOT_NEGATIVE))
    if nulls is not None:
        marker[nulls] = NULL
    found = np.empty((len(column), 1 + width), np.uint8)
    found[:, 0] = marker
    found[:, 1:] = raw.astype(f">u{width}").view(np.uint8).reshape(-1, width)
    return number_cells(found.reshape(-1).view(f"V{1 + width}")).copied()


# Values with their checksums, and those of lists


def with_checksums(keys: Cells, rows: Cells) -> Cells:
    """Values of the HDFS-backed provider with the checksum of each: crc:int32 | row."""
    return joined_parts([_checksums(keys, rows), rows], len(rows))


def with_sized_checksums(keys: Cells, rows: Cells) -> Cells:
    """Values of RocksDB with the checksum of each: crc:int32 | size:int32 | row."""
    return joined_parts([_checksums(keys, rows), _size_part(rows.size), rows], len(rows))


def list_values(keys: Cells, entries: Cells, counts: Ints, delimiter: bytes, *, checksums: bool) -> Cells:
    """One value for each key of its entries, which are rows: ``counts`` are those of each key, none of them 0."""
    owner = np.repeat(np.arange(len(counts)), counts)
    offsets = ends_of(counts)
    between = np.full(len(entries), len(delimiter), np.int64)
    between[offsets[:-1]] = 0
    delimiters = zero_cells(between)
    if delimiter:
        delimiters.data[:] = np.frombuffer(delimiter * (len(delimiters.data) // len(delimiter)), np.uint8)
    sized = joined_parts([_size_part(entries.size), entries], len(entries))
    if checksums:
        sized = with_sized_checksums(keys.select(owner), sized)
    return cells_of_groups(joined_parts([delimiters, sized], len(entries)), offsets)


def deleted_keys(keys: Cells) -> Cells:
    """Keys as changes with row checksums have them where they are deleted: crc:int32 | key."""
    return joined_parts([number_cells(crc32c_of_cells(keys).astype("<u4")), keys], len(keys))


def _checksums(keys: Cells, rows: Cells) -> Cells:
    return number_cells(crc32c_of_cells(rows, crc32c_of_cells(keys)).astype("<u4"))
