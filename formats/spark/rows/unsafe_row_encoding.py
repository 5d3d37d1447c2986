"""Arrow columns as UnsafeRows, a column at a time: the inverse of ``unsafe_row``, which describes the layout.

The bytes are those that Spark's own writers make: slots of nulls and padding are zeros, and values lie behind the slots
in the order of the fields. A wide decimal and a calendar interval of a row always have `ROOM` there. In an array they
have what they need, as other values. Whatever Spark rewrites in place keeps this form, too.

Raises UnsupportedError EDIT_UNSUPPORTED and InvalidInputError EDIT_REFUSED.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from statestore.formats.bytes.byte_columns import Cells, cells_of, ends_of
from statestore.formats.bytes.byte_parts import (
    Part,
    cells_of_groups,
    joined_parts,
    number_cells,
    spread_cells,
    zero_cells,
)
from statestore.formats.kernels.arrays import Bools, Ints
from statestore.formats.spark.checkpoint.spark_schema import (
    BINARY,
    CALENDAR_INTERVAL,
    SPATIAL,
    STRING,
    VARIANT,
    VOID,
    ArrayOf,
    DecimalOf,
    MapOf,
    SparkType,
    StructOf,
)
from statestore.formats.spark.checkpoint.state_errors import refused
from statestore.formats.spark.rows.unsafe_row import (
    ROOM,
    WORD,
    bitmap_words,
    element_width,
    keeps_room,
    slot_width,
)
from statestore.formats.spark.rows.value_encoding import (
    interval_cells,
    null_mask,
    offsets_of,
    shortest,
    slot_numbers,
    spatial_cells,
    text_cells,
    unscaled_of,
    variant_cells,
    without_null_cells,
)

RowParts = Callable[[Sequence[pa.Array], StructOf, int], list[Part]]
"""Function from columns, which follow a schema, and the number of their rows to the parts of each row's bytes."""


def row_parts(columns: Sequence[pa.Array], schema: StructOf, rows: int) -> list[Part]:
    """The parts of UnsafeRows: bitmap and slots, then each value behind them with its padding."""
    bitmap = bitmap_words(len(schema.fields))
    words = np.zeros((rows, bitmap + len(schema.fields)), "<u8")
    end = np.full(rows, WORD * words.shape[1], np.int64)
    behind: list[Part] = []
    for number, (field, column) in enumerate(zip(schema.fields, columns, strict=True)):
        nulls = null_mask(column)
        if nulls is not None:
            refuse_nulls(field.name, field.type, field.nullable)
            words[:, number >> 6] |= nulls.astype("<u8") << np.uint64(number & 63)
        if slot_width(field.type):
            words[:, bitmap + number] = slot_numbers(field.type, column, nulls)
        elif field.type != VOID:
            cells = _cells(field.type, column, nulls)
            room = np.full(rows, ROOM) if keeps_room(field.type) else _padded(cells.size)
            size = np.full(rows, ROOM) if field.type == CALENDAR_INTERVAL else cells.size
            slots = ((end << 32) | size).view("<u8")
            no_value = None if keeps_room(field.type) else nulls
            words[:, bitmap + number] = slots if no_value is None else np.where(no_value, np.uint64(0), slots)
            behind += [cells, zero_cells(room - cells.size)]
            end += room
    return [number_cells(words.reshape(-1).view(f"V{WORD * words.shape[1]}")) if words.size else b"", *behind]


def refuse_nulls(name: str, kind: SparkType, nullable: bool) -> None:
    """Refuse the nulls of a field that cannot have any: Spark would read them as zeros."""
    if not nullable and kind != VOID:
        raise refused(f"field {name}: found null, and the state's schema says that it never is; give a value")


def _padded(sizes: Ints) -> Ints:
    return (sizes + (WORD - 1)) // WORD * WORD


def _cells(kind: SparkType, column: pa.Array, nulls: Bools | None) -> Cells:
    """The bytes of values that lie behind the slots; none of nulls."""
    if kind == STRING:
        return text_cells(column)
    if kind == BINARY:
        return cells_of(column)
    return spread_cells(_values(kind, without_null_cells(column)), nulls)


def _values(kind: SparkType, column: pa.Array) -> Cells:
    """The bytes of values of which none is null."""
    if not len(column):
        return zero_cells(np.zeros(0, np.int64))
    if isinstance(kind, StructOf):
        members = [column.field(number) for number in range(len(kind.fields))]
        return joined_parts(row_parts(members, kind, len(column)), len(column))
    if isinstance(kind, ArrayOf):
        offsets, first = offsets_of(column)
        return _arrays(kind.element, column.values.slice(first, int(offsets[-1])), offsets)
    if isinstance(kind, MapOf):
        return _maps(kind, column)
    if isinstance(kind, DecimalOf):
        return shortest(unscaled_of(column))
    if kind == CALENDAR_INTERVAL:
        return interval_cells(column)
    if kind == SPATIAL:
        return spatial_cells(column)
    assert kind == VARIANT, kind
    return variant_cells(column)


def _maps(kind: MapOf, column: pa.MapArray) -> Cells:
    offsets, first = offsets_of(column)
    keys, items = (part.slice(first, int(offsets[-1])) for part in (column.keys, column.items))
    if keys.null_count:
        raise refused("found a map with a null key; give keys that are not null")
    keys, items = _arrays(kind.key, keys, offsets), _arrays(kind.value, items, offsets)
    return joined_parts([number_cells(keys.size.astype("<i8")), keys, items], len(column))


def _arrays(kind: SparkType, elements: pa.Array, offsets: Ints) -> Cells:
    """Arrays whose elements lie between the offsets."""
    counts, width = np.diff(offsets), element_width(kind)
    bitmap = bitmap_words(counts)
    head = WORD * (1 + bitmap) + _padded(counts * width)
    start = ends_of(head)
    data = np.zeros(int(start[-1]), np.uint8)
    data.view("<i8")[start[:-1] // WORD] = counts
    owner = np.repeat(np.arange(len(counts)), counts)
    number = np.arange(len(owner)) - offsets[owner]
    nulls = null_mask(elements)
    if nulls is not None:
        bits = number[nulls]
        np.bitwise_or.at(data, start[owner[nulls]] + WORD + (bits >> 3), np.uint8(1) << (bits & 7).astype(np.uint8))
    slot = start[owner] + WORD * (1 + bitmap[owner]) + number * width
    heads = Cells(data, start[:-1], head)
    if slot_width(kind):
        data.view(f"<u{width}")[slot // width] = slot_numbers(kind, elements, nulls)
        return heads
    if kind == VOID:
        return heads
    cells = _cells(kind, elements, nulls)
    room = _padded(cells.size)
    ends = ends_of(room)
    pointers = (head[owner] + ends[:-1] - ends[offsets[:-1]][owner]) << 32 | cells.size
    data.view("<i8")[slot // WORD] = pointers if nulls is None else np.where(nulls, 0, pointers)
    values = joined_parts([cells, zero_cells(room - cells.size)], len(elements))
    return joined_parts([heads, cells_of_groups(values, offsets)], len(counts))
