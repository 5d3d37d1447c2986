"""UnsafeRows as Arrow columns: one pass of numpy per field over all rows, no Python per row.

    row       null bitmap, ceil(fields / 64) words | one 8-byte slot per field | variable part
    array     count:int64 | null bitmap, ceil(count / 64) words | elements at their natural width | variable part
    map       size of the keys:int64 | array of keys | array of values

All little-endian. A slot holds the value, or for strings, structs, arrays, maps, wide decimals and such the size (low
32 bits) and the offset from the start of the row or array (high 32 bits). So a field of a row and an element of an
array are read alike. No offset, size or count is trusted: each must stay inside its row, and what lies behind the slots
of a batch must together not be larger than the batch. Raises CorruptError SPARK_STATE_ROW.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statestore.formats.bytes.byte_columns import Cells, ends_of, gather, row_kernels
from statestore.formats.kernels.arrays import Bools, Bytes, Ints
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
    Plain,
    SparkType,
    StructOf,
    arrow_fields,
    arrow_type,
)
from statestore.formats.spark.checkpoint.state_errors import corrupt_row
from statestore.formats.spark.rows.value_columns import (
    FIXED_CELL,
    calendar_intervals,
    decimals_of_longs,
    decimals_of_spans,
    plain_values,
    spatial_values,
    spread,
    text_of,
    variants,
)

MAX_LONG_DIGITS = 18
WORD = 8
ROOM = 16
"""Bytes that a wide decimal or an interval has behind the slots of a row, whatever its size, also for a null."""
_WIDEST_DECIMAL = 16
_BITS = 64
Count = TypeVar("Count", int, Ints)


def bitmap_words(bits: Count) -> Count:
    """The words of a null bitmap of so many bits."""
    return (bits + (_BITS - 1)) // _BITS


def slot_of(number: int, fields: int) -> int:
    """Offset of a field's slot in a row with this number of fields."""
    return WORD * (bitmap_words(fields) + number)


def slot_width(kind: SparkType) -> int:
    """Bytes of a value that is in the slot itself; 0 for one behind the slots, and for void."""
    if isinstance(kind, DecimalOf):
        return WORD if kind.precision <= MAX_LONG_DIGITS else 0
    return np.dtype(kind.form).itemsize if isinstance(kind, Plain) and kind.form else 0


def element_width(kind: SparkType) -> int:
    """Size in bytes of an element's slot in an array."""
    return slot_width(kind) or FIXED_CELL


def keeps_room(kind: SparkType) -> bool:
    """Return whether a value of a row has `ROOM` behind the slots, and the slot of a null still points there."""
    return kind == CALENDAR_INTERVAL or (isinstance(kind, DecimalOf) and kind.precision > MAX_LONG_DIGITS)


@dataclass(frozen=True)
class Slots:
    """One field of many rows, or the elements of many arrays: the position of each slot and the limit of its target."""

    data: Bytes
    slot_offset: Ints
    nulls: Bools | None
    base: Ints
    limit: Ints

    def present(self) -> Slots:
        """The slots that are not null."""
        if self.nulls is None:
            return self
        kept = ~self.nulls
        return Slots(self.data, self.slot_offset[kept], None, self.base[kept], self.limit[kept])


def decode_rows(rows: Cells, schema: StructOf) -> pa.StructArray:
    """Decode UnsafeRows to one struct each; none is null."""
    return struct_array(decode_fields(rows, schema), schema, len(rows))


def decode_fields(rows: Cells, schema: StructOf, only: Collection[int] | None = None) -> list[pa.Array]:
    """Decode one column per field of ``schema``; those that are not in ``only`` are null."""
    wanted = range(len(schema.fields)) if only is None else only
    columns = []
    for number, slots in _fields(rows, len(schema.fields)):
        kind = schema.fields[number].type
        columns.append(_column(kind, slots()) if number in wanted else pa.nulls(len(rows), arrow_type(kind)))
    return columns


def slots_of(rows: Cells, schema: StructOf, chosen: Callable[[SparkType], bool]) -> Iterator[tuple[SparkType, Slots]]:
    """The slots of the fields whose types are chosen. Raises CorruptError SPARK_STATE_ROW for a row that is too short
    for all its fields."""
    for number, slots in _fields(rows, len(schema.fields)):
        if chosen(schema.fields[number].type):
            yield schema.fields[number].type, slots()


def _fields(rows: Cells, count: int) -> Iterator[tuple[int, Callable[[], Slots]]]:
    bitmap = WORD * bitmap_words(count)
    rows.require(bitmap + WORD * count, f"a row of {count} fields", corrupt_row)
    ever_null = _union(rows, bitmap // WORD)

    def slots(number: int) -> Slots:
        nulls = _null_bits(rows.data, rows.start, number) if ever_null >> number & 1 else None
        return Slots(rows.data, rows.start + (bitmap + WORD * number), nulls, rows.start, rows.size)

    for number in range(count):
        yield number, partial(slots, number)


def struct_array(columns: list[pa.Array], schema: StructOf, rows: int) -> pa.StructArray:
    """A struct array of the columns; unlike pyarrow's own, it may have no fields."""
    if not columns:
        return pa.Array.from_buffers(pa.struct([]), rows, [None])
    return pa.StructArray.from_arrays(columns, fields=arrow_fields(schema))


def _union(rows: Cells, words: int) -> int:
    """The bitwise OR of the bitmaps of all rows."""
    bits_of_any = 0
    for number in range(words):
        bits = gather(rows.data, rows.start + WORD * number, "<u8")
        bits_of_any |= int(np.bitwise_or.reduce(bits)) << (64 * number)
    return bits_of_any


def _null_bits(data: Bytes, start: Ints, number: int) -> Bools | None:
    """Bit ``number`` of the bitmap at each start; None where no row has it set."""
    kernels = row_kernels()
    if kernels is not None:
        flags = np.empty(len(start), np.bool_)
        count = kernels.bits_at(data, start, number, flags)
        if count >= 0:
            return flags if count else None
    bits = gather(data, start + (number >> 3), "<u1") >> np.uint8(number & 7)
    nulls: Bools = (bits & 1).astype(bool)
    return nulls if nulls.any() else None


def _column(kind: SparkType, slots: Slots) -> pa.Array:
    if kind == VOID:
        return pa.nulls(len(slots.slot_offset))
    if isinstance(kind, Plain) and kind.form is not None:
        return plain_values(kind, gather(slots.data, slots.slot_offset, kind.form), slots.nulls)
    if isinstance(kind, DecimalOf) and kind.precision <= MAX_LONG_DIGITS:
        return decimals_of_longs(kind, gather(slots.data, slots.slot_offset, "<i8"), slots.nulls)
    if kind == STRING:
        return text_of(_strings(slots))
    if kind == BINARY:
        return _strings(slots)
    return spread(_values(kind, targets_of(slots.present())), slots.nulls)


def _values(kind: SparkType, spans: Cells) -> pa.Array:
    """Values, none null, that lie behind the slots."""
    if isinstance(kind, StructOf):
        return decode_rows(spans, kind)
    if isinstance(kind, ArrayOf):
        offsets, elements = _elements(spans, kind.element)
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), elements, type=arrow_type(kind))
    if isinstance(kind, MapOf):
        return _maps(spans, kind)
    if isinstance(kind, DecimalOf):
        return decimals_of_spans(kind, spans)
    if kind == CALENDAR_INTERVAL:
        return calendar_intervals(spans)
    if kind == SPATIAL:
        return spatial_values(spans)
    assert kind == VARIANT, kind
    return variants(spans)


def _strings(slots: Slots) -> pa.Array:
    kernels = row_kernels()
    if kernels is not None:
        rows = len(slots.slot_offset)
        nulls = np.empty(0, np.bool_) if slots.nulls is None else slots.nulls
        offsets = np.empty(rows + 1, np.int32)
        total = kernels.measure_strings(slots.data, slots.slot_offset, slots.base, slots.limit, nulls, offsets)
        if total >= 0:  # otherwise the checks below report the error
            target = np.empty(total, np.uint8)
            kernels.copy_strings(slots.data, slots.slot_offset, slots.base, offsets, target)
            validity = None if slots.nulls is None else pa.py_buffer(np.packbits(~slots.nulls, bitorder="little"))
            buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(target)]
            return pa.Array.from_buffers(pa.binary(), rows, buffers)
    if slots.nulls is None:
        return targets_of(slots).copied(corrupt_row)
    # The slot of a null is zero: it reads as an empty string at the start of its row, which is always inside.
    words = np.where(slots.nulls, 0, gather(slots.data, slots.slot_offset, "<i8"))
    return replace(_checked(slots, words), missing=slots.nulls).copied(corrupt_row)


def targets_of(slots: Slots) -> Cells:
    """The byte strings to which the slots point."""
    return _checked(slots, gather(slots.data, slots.slot_offset, "<i8"))


def _checked(slots: Slots, words: npt.NDArray[Any]) -> Cells:
    size, offset = words & 0xFFFFFFFF, words >> 32
    wrong = (offset < 0) | (offset + size > slots.limit)
    if wrong.any():
        row = int(np.argmax(wrong))
        what = f"found {int(size[row])} bytes at {int(offset[row])}"
        raise corrupt_row(f"row {row}: {what}, expected them inside the {int(slots.limit[row])} bytes of the row")
    # Elements of one array share its limit, so a forged total can exceed the bytes there are.
    if int(size.sum()) > len(slots.data):
        raise corrupt_row(f"found {int(size.sum())} bytes of values in {len(slots.data)} bytes of rows")
    return Cells(slots.data, slots.base + offset, size)


def _elements(arrays: Cells, kind: SparkType) -> tuple[Ints, pa.Array]:
    """(offsets, elements) of the arrays."""
    arrays.require(WORD, "an array", corrupt_row)
    counts = gather(arrays.data, arrays.start, "<i8")
    width = element_width(kind)
    # The first test keeps the second one from overflowing.
    wrong = (counts < 0) | (counts > arrays.size)
    bitmap = WORD * ((np.where(wrong, 0, counts) + 63) // 64)
    wrong |= WORD + bitmap + counts * width > arrays.size
    if wrong.any():
        at = int(np.argmax(wrong))
        raise corrupt_row(f"found {int(counts[at])} elements in an array of {int(arrays.size[at])} bytes")
    offsets = ends_of(counts)
    number = np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts)
    start = np.repeat(arrays.start, counts)
    slot_offsets = np.repeat(arrays.start + WORD + bitmap, counts) + number * width
    nulls = _element_nulls(arrays.data, start + WORD, number)
    slots = Slots(arrays.data, slot_offsets, nulls, start, np.repeat(arrays.size, counts))
    return offsets, _column(kind, slots)


def _element_nulls(data: Bytes, bitmap: Ints, number: Ints) -> Bools | None:
    bits = gather(data, bitmap + (number >> 3), "<u1") >> (number & 7).astype(np.uint8)
    nulls: Bools = (bits & 1).astype(bool)
    return nulls if nulls.any() else None


def _maps(maps: Cells, kind: MapOf) -> pa.Array:
    maps.require(WORD, "a map", corrupt_row)
    size = gather(maps.data, maps.start, "<i8")
    if ((size < 0) | (size > maps.size - WORD)).any():
        raise corrupt_row("found a map whose keys are larger than the map")
    keys = Cells(maps.data, maps.start + WORD, size)
    values = Cells(maps.data, keys.start + size, maps.size - WORD - size)
    offsets, key_cells = _elements(keys, kind.key)
    value_offsets, value_cells = _elements(values, kind.value)
    if not np.array_equal(offsets, value_offsets) or key_cells.null_count:
        raise corrupt_row("found a map with null keys or with more keys than values, expected one value for each key")
    return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), key_cells, value_cells, type=arrow_type(kind))


# Stored rows as cells that Spark takes as they are: nothing is decoded, and every pointer is checked.
#
# Spark reads a struct of a row in the form in which state stores keep it, without a check of its own. A pointer that
# leads out of the row would let it read any memory. So only types whose pointers are checked here are passed on.


def is_checkable(schema: StructOf) -> bool:
    """Return whether rows of the schema can be passed on."""
    return bool(schema.fields) and all(_is_checkable(field.type) for field in schema.fields)


def _is_checkable(kind: SparkType) -> bool:
    if isinstance(kind, StructOf):
        return is_checkable(kind)
    return (
        isinstance(kind, DecimalOf) or kind in (STRING, BINARY) or (isinstance(kind, Plain) and kind.form is not None)
    )


def unsafe_cells(rows: Cells, schema: StructOf) -> pa.BinaryArray:
    """The rows as binary cells. Raises CorruptError SPARK_STATE_ROW for a row that points out of itself."""
    check_rows(rows, schema)
    return rows.copied(corrupt_row)


def check_rows(rows: Cells, schema: StructOf) -> None:
    """Raise CorruptError SPARK_STATE_ROW unless each row has all slots, and all that they point to is inside it."""
    for kind, slots in slots_of(rows, schema, _points):
        kernels = row_kernels()
        if kind in (STRING, BINARY) and kernels is not None:
            nulls: Bools = np.empty(0, np.bool_) if slots.nulls is None else slots.nulls
            if kernels.are_inside(slots.data, slots.slot_offset, slots.base, slots.limit, nulls):
                continue  # otherwise the slower check says which row it is
        inside = targets_of(slots.present())
        if isinstance(kind, StructOf):
            check_rows(inside, kind)
        elif isinstance(kind, DecimalOf) and len(inside):
            least, most = int(inside.size.min()), int(inside.size.max())
            if not 1 <= least <= most <= _WIDEST_DECIMAL:
                raise corrupt_row(f"found a decimal of {least} to {most} bytes, expected 1 to {_WIDEST_DECIMAL}")


def _points(kind: SparkType) -> bool:
    """Return whether a slot of the type holds the place of the value."""
    if isinstance(kind, DecimalOf):
        return kind.precision > MAX_LONG_DIGITS
    return not (isinstance(kind, Plain) and kind.form is not None)
