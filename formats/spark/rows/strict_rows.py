"""A check of UnsafeRows against types that a user gave, because no schema file says them.

A row of other types is often as long as one of these types, so every byte is accounted for: null bits without a field
are 0, a slot has nothing beside its value, and what lies behind the slots is one value after the other, without a gap
and without a rest. These are the rules by which Spark itself checks rows (``UnsafeRowUtils``), and more. Two types
whose bytes are the same, such as a small bigint and an int, cannot be told apart. Raises CorruptError SPARK_STATE_ROW.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.bytes.byte_columns import Cells, gather
from statestore.formats.kernels.arrays import Bools, Ints
from statestore.formats.spark.checkpoint.spark_schema import (
    BOOLEAN,
    CALENDAR_INTERVAL,
    STRING,
    VOID,
    ArrayOf,
    DecimalOf,
    MapOf,
    Plain,
    SparkType,
    StructOf,
)
from statestore.formats.spark.checkpoint.state_errors import corrupt_row
from statestore.formats.spark.rows.row_encoding import RowForm
from statestore.formats.spark.rows.unsafe_row import ROOM, WORD, decode_fields, keeps_room, slot_width


def checked_form(bare: bool) -> RowForm:
    """The encoding of rows that are checked against given types; ``bare`` as in `RowForm`."""
    value = decode_checked_values if bare else decode_checked
    return RowForm(bare=bare, whole=decode_checked, part=decode_checked, value=value)


def decode_checked(rows: Cells, schema: StructOf, only: Collection[int] | None = None) -> list[pa.Array]:
    """Decode fields as `decode_fields`, once all rows follow the schema."""
    check_strictly(rows, schema)
    return decode_fields(rows, schema, only)


def decode_checked_values(rows: Cells, schema: StructOf, only: Collection[int] | None = None) -> list[pa.Array]:
    """Decode values of the HDFS-backed provider: Spark before 2.3 wrote four bytes behind each, which Spark ignores."""
    return decode_checked(Cells(rows.data, rows.start, rows.size - rows.size % WORD // 4 * 4), schema, only)


def check_strictly(rows: Cells, schema: StructOf, what: str = "row") -> None:
    """Raise the error for the first row that is not one of the schema."""
    count = len(schema.fields)
    words = (count + 63) // 64
    fixed = WORD * (words + count)
    short = (rows.size < fixed) | (rows.size % WORD != 0)
    _refuse(short, rows, f"{fixed} bytes and values in words of {WORD} behind them for {count} fields", what)
    if not len(rows):
        return
    _check_last_bits(rows, count, words, what)
    end = np.full(len(rows), fixed, np.int64)
    for number, field in enumerate(schema.fields):
        nulls = (gather(rows.data, rows.start + (number >> 3), "<u1") >> np.uint8(number & 7) & 1).astype(bool)
        slots = gather(rows.data, rows.start + WORD * (words + number), "<u8")
        end = _check_field(rows, field.type, nulls, slots, end, f"{what}.{field.name}")
    _refuse(end != rows.size, rows, f"an end of its values at byte {_first(end, end != rows.size)}", what)


def _check_last_bits(rows: Cells, count: int, words: int, what: str) -> None:
    beyond = count % 64
    if not words or not beyond:
        return
    last = gather(rows.data, rows.start + WORD * (words - 1), "<u8") >> np.uint64(beyond)
    _refuse(last != 0, rows, f"no null bits but those of {count} fields", what)


def _check_field(rows: Cells, kind: SparkType, nulls: Bools, slots: Ints, end: Ints, what: str) -> Ints:
    """Check one field of all rows; return where its value ends, or the one before it."""
    if keeps_room(kind):
        offset = (slots >> np.uint64(32)).astype(np.int64)
        _refuse(~nulls & (offset != end), rows, f"the value at byte {_first(end, ~nulls & (offset != end))}", what)
        _refuse(end + ROOM > rows.size, rows, f"{ROOM} bytes for a value", what)
        size = (slots & np.uint64(0xFFFFFFFF)).astype(np.int64)
        _check_values(Cells(rows.data, rows.start + end, size).select(~nulls), kind, what)
        return end + ROOM
    _refuse(nulls & (slots != 0), rows, "nothing in the slot of a null", what)
    if kind == VOID:
        _refuse(~nulls, rows, "a null, as in every row of type void", what)
        return end
    width = slot_width(kind)
    if width:
        if width < WORD or kind == BOOLEAN:
            _refuse(slots >> np.uint64(1 if kind == BOOLEAN else 8 * width) != 0, rows, _of_width(kind), what)
        if isinstance(kind, DecimalOf):
            unscaled, most = slots.view(np.int64), 10**kind.precision - 1
            _refuse((unscaled > most) | (unscaled < -most), rows, f"a decimal of {kind.precision} digits", what)
        return end
    size, offset = (slots & np.uint64(0xFFFFFFFF)).astype(np.int64), (slots >> np.uint64(32)).astype(np.int64)
    wrong = ~nulls & (offset != end)
    _refuse(wrong, rows, f"the value at byte {_first(end, wrong)}", what)
    after = end + np.where(nulls, 0, (size + (WORD - 1)) // WORD * WORD)
    _refuse(after > rows.size, rows, "a value inside the row", what)
    _check_values(Cells(rows.data, rows.start + end, size).select(~nulls), kind, what)
    return after


def _check_values(values: Cells, kind: SparkType, what: str) -> None:
    """Check values that lie behind the slots, none of them null and each inside its row."""
    if not len(values):
        return
    if isinstance(kind, StructOf):
        check_strictly(values, kind, what)
    elif isinstance(kind, ArrayOf):
        _check_array(values, kind.element, what)
    elif isinstance(kind, MapOf):
        _refuse(values.size < WORD, values, "the size of the keys of a map", what)
        keys = gather(values.data, values.start, "<i8")
        _refuse((keys < WORD) | (keys > values.size - 2 * WORD), values, "keys and values inside the map", what)
        _check_array(Cells(values.data, values.start + WORD, keys), kind.key, f"{what}.key")
        rest = Cells(values.data, values.start + WORD + keys, values.size - WORD - keys)
        _check_array(rest, kind.value, f"{what}.value")
    elif isinstance(kind, DecimalOf):
        _refuse((values.size < 1) | (values.size > ROOM), values, f"a decimal of 1 to {ROOM} bytes", what)
    elif kind == CALENDAR_INTERVAL:
        _refuse(values.size != ROOM, values, f"an interval of {ROOM} bytes", what)
    elif kind == STRING:
        try:
            pc.cast(values.copied(corrupt_row), pa.string())
        except pa.ArrowInvalid:
            raise corrupt_row(f"{what}: found bytes that are not UTF-8, expected a string") from None


def _check_array(arrays: Cells, kind: SparkType, what: str) -> None:
    _refuse(arrays.size < WORD, arrays, "the count of an array", what)
    counts = gather(arrays.data, arrays.start, "<i8")
    _refuse((counts < 0) | (counts > arrays.size), arrays, "a count of elements that fit into the array", what)
    width = slot_width(kind) or WORD
    head = WORD + WORD * ((counts + 63) // 64)
    end = head + (counts * width + (WORD - 1)) // WORD * WORD
    _refuse(end > arrays.size, arrays, "elements inside the array", what)
    if not slot_width(kind) and kind != VOID:
        owner = np.repeat(np.arange(len(arrays)), counts)
        number = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
        bits = gather(arrays.data, arrays.start[owner] + WORD + (number >> 3), "<u1") >> (number & 7).astype(np.uint8)
        nulls = (bits & 1).astype(bool)
        slots = gather(arrays.data, arrays.start[owner] + head[owner] + WORD * number, "<u8")
        size, offset = (slots & np.uint64(0xFFFFFFFF)).astype(np.int64), (slots >> np.uint64(32)).astype(np.int64)
        room = (size + (WORD - 1)) // WORD * WORD
        room[nulls] = 0
        before = np.cumsum(room) - room  # in the order of the elements, over all arrays
        firsts = np.searchsorted(owner, np.arange(len(arrays)))
        base = np.append(before, room.sum())[firsts]
        expected = end[owner] + before - base[owner]
        values = Cells(arrays.data, arrays.start[owner] + expected, size)
        _refuse(~nulls & (offset != expected), values, "an element behind the one before it", what)
        _refuse(~nulls & (expected + np.maximum(room, size) > arrays.size[owner]), values, "an element inside", what)
        _check_values(values.select(~nulls), kind, f"{what}.element")
        end = end + np.bincount(owner, room, len(arrays)).astype(np.int64)
    _refuse(end != arrays.size, arrays, f"an array that ends at byte {_first(end, end != arrays.size)}", what)


def _of_width(kind: SparkType) -> str:
    assert isinstance(kind, Plain)
    return f"nothing in the slot beside a value of type {kind.name}"


def _first(numbers: Ints, wrong: Bools) -> int:
    return int(numbers[int(np.argmax(wrong))])


def _refuse(wrong: Bools, cells: Cells, expected: str, what: str) -> None:
    if wrong.any():
        at = int(np.argmax(wrong))
        start, size = int(cells.start[at]), int(cells.size[at])
        found = cells.data[start : start + max(0, min(size, 4 * WORD))].tobytes().hex(" ", WORD)
        more = " …" if size > 4 * WORD else ""
        raise corrupt_row(f"{what}: found {size} bytes ({found}{more}), expected {expected}")
