"""Conversion of Arrow columns to single values of Spark's types, as numbers or bytes: what ``value_columns`` reads."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.bytes.byte_columns import Cells, cells_of
from statestore.formats.bytes.byte_parts import joined_parts, number_cells
from statestore.formats.kernels.arrays import Bools, Ints
from statestore.formats.spark.checkpoint.spark_schema import (
    BOOLEAN,
    ArrayOf,
    DecimalOf,
    Plain,
    SparkType,
    StructOf,
)
from statestore.formats.spark.checkpoint.state_errors import not_editable, refused
from statestore.formats.spark.rows.value_columns import DECIMAL_BYTES, NANOS
from statestore.formats.values.without_pandas import arrow_numbers, bools, without_nulls

REPLACEMENT_CHARACTER = "\ufffd"
"""The sign that is shown for bytes that are no UTF-8."""


def null_mask(column: pa.Array) -> Bools | None:
    """A mask of the cells that are null; None: none is."""
    return bools(column.is_null()) if column.null_count else None


def without_null_cells(column: pa.Array) -> pa.Array:
    """The cells that are not null."""
    return column.drop_null() if column.null_count else column


def slot_numbers(kind: SparkType, column: pa.Array, nulls: Bools | None) -> npt.NDArray[Any]:
    """The bits of values that are in their slots, as unsigned numbers of their width; 0 where null."""
    if isinstance(kind, DecimalOf):
        found = unscaled_of(column)[:, :8].copy().view("<u8")[:, 0]
    else:
        numbers = plain_numbers(kind, column)
        found = numbers.view(f"<u{numbers.itemsize}")
    return found if nulls is None else np.where(nulls, found.dtype.type(0), found)


def plain_numbers(kind: SparkType, column: pa.Array) -> npt.NDArray[Any]:
    """The numbers of a column in the form of ``kind``; those of nulls are any."""
    assert isinstance(kind, Plain) and kind.form is not None, kind
    width = np.dtype(kind.form).itemsize
    if kind == BOOLEAN:
        column = column.cast(pa.uint8())
    stored = column.buffers()[1] if len(column) else None
    if stored is None:
        return np.zeros(len(column), kind.form)
    return np.frombuffer(stored, kind.form, len(column), column.offset * width)


def unscaled_of(column: pa.Array) -> npt.NDArray[np.uint8]:
    """The unscaled numbers of decimals, 16 little-endian bytes each; those of nulls are any."""
    stored = column.buffers()[1] if len(column) else None
    if stored is None:
        return np.zeros((len(column), DECIMAL_BYTES), np.uint8)
    cells = np.frombuffer(stored, np.uint8, len(column) * DECIMAL_BYTES, column.offset * DECIMAL_BYTES)
    return cells.reshape(len(column), DECIMAL_BYTES)


def shortest(unscaled: npt.NDArray[np.uint8]) -> Cells:
    """The numbers as ``BigInteger`` writes them: big-endian, without bytes that only repeat the sign."""
    bytes_first = np.ascontiguousarray(unscaled[:, ::-1])
    sign = np.where(bytes_first[:, 0] >> 7 == 1, np.uint8(0xFF), np.uint8(0))
    spare = np.zeros(len(unscaled), np.int64)
    for at in range(DECIMAL_BYTES - 1):
        repeats = (bytes_first[:, at] == sign) & (bytes_first[:, at + 1] >> 7 == sign >> 7)
        spare += (spare == at) & repeats
    start = np.arange(len(unscaled), dtype=np.int64) * DECIMAL_BYTES + spare
    return Cells(bytes_first.reshape(-1), start, DECIMAL_BYTES - spare)


def of_bytes(unscaled: npt.NDArray[np.uint8], size: int) -> Cells:
    """The numbers as big-endian bytes of one size. Refuses those that need more."""
    digits = np.ascontiguousarray(unscaled[:, ::-1])
    if len(digits) and int(shortest(unscaled).size.max()) > size:
        raise refused(f"a decimal of more than {size} bytes; give one of the precision of its column")
    return number_cells(np.ascontiguousarray(digits[:, DECIMAL_BYTES - size :]).view(f"V{size}")[:, 0])


def is_replaced(column: pa.Array) -> Bools:
    """Return where texts are shown with U+FFFD."""
    return bools(without_nulls(pc.match_substring(column, REPLACEMENT_CHARACTER)))


def text_cells(column: pa.Array) -> Cells:
    """The bytes of texts. Refuses U+FFFD, which is shown for any bytes that are no UTF-8."""
    cells = cells_of(column)
    content, _ = cells.content()
    if content.tobytes().find(REPLACEMENT_CHARACTER.encode()) >= 0:
        text = column.filter(pc.match_substring(column, REPLACEMENT_CHARACTER))[0].as_py()
        raise not_editable(
            f"found the text {text[:80]!r}: its U+FFFD may stand for other bytes, which are no UTF-8 and are not "
            "shown; leave such rows as they are, or delete them"
        )
    return cells


def interval_cells(column: pa.Array) -> Cells:
    """The bytes of calendar intervals, none null: months:int32 | days:int32 | microseconds:int64."""
    words = np.frombuffer(column.buffers()[1], "<i8", 2 * len(column), 2 * 8 * column.offset).reshape(-1, 2).copy()
    if (words[:, 1] % NANOS).any():
        nanoseconds = int(words[np.argmax(words[:, 1] % NANOS != 0), 1])
        raise refused(f"an interval of {nanoseconds} nanoseconds besides its months and days; give whole microseconds")
    words[:, 1] //= NANOS
    return number_cells(words.view("V16")[:, 0])


def variant_cells(column: pa.StructArray) -> Cells:
    """The bytes of variants, none null: size of the value:int32 | value | metadata."""
    value, metadata = (_whole(column.field(number), "variant") for number in range(2))
    return joined_parts([number_cells(value.size.astype("<i4")), value, metadata], len(column))


def spatial_cells(column: pa.StructArray) -> Cells:
    """The bytes of geometries, none null: id of the system of coordinates:int32 | well-known binary."""
    if column.field(0).null_count:
        raise refused("a geometry without its srid; give both of its fields")
    systems = np.frombuffer(column.field(0).buffers()[1], "<i4", len(column), 4 * column.field(0).offset)
    return joined_parts([number_cells(systems), _whole(column.field(1), "geometry")], len(column))


def _whole(column: pa.Array, what: str) -> Cells:
    if column.null_count:
        raise refused(f"a {what} of which one field is null; give both of its fields")
    return cells_of(column)


def with_one_zero(kind: SparkType, column: pa.Array) -> pa.Array:
    """The column with every zero as 0.0 and every NaN as the one that Java writes, also in structs and arrays.

    The same column where it has no floating numbers.
    """
    if isinstance(kind, Plain) and kind.form is not None and kind.form[1] == "f":
        numbers = plain_numbers(kind, column).copy()
        numbers[numbers == 0] = 0.0
        numbers[np.isnan(numbers)] = np.nan
        return arrow_numbers(numbers, null_mask(column))
    if isinstance(kind, StructOf):
        members = [column.field(number) for number in range(len(kind.fields))]
        found = [with_one_zero(field.type, member) for field, member in zip(kind.fields, members, strict=True)]
        if all(new is old for new, old in zip(found, members, strict=True)):
            return column
        mask = column.is_null() if column.null_count else None
        return pa.StructArray.from_arrays(found, fields=list(column.type), mask=mask)
    if isinstance(kind, ArrayOf):
        elements = column.values
        found = with_one_zero(kind.element, elements)
        own = column.buffers()[:2]
        return (
            column
            if found is elements
            else pa.Array.from_buffers(column.type, len(column), own, offset=column.offset, children=[found])
        )
    return column


def offsets_of(column: pa.Array) -> tuple[Ints, int]:
    """(where the entries of each list or map begin and end, counted from the first one; the first one)."""
    stored = column.buffers()[1]
    offsets = np.frombuffer(stored, np.int32, len(column) + 1, 4 * column.offset).astype(np.int64)
    return offsets - offsets[0], int(offsets[0])
