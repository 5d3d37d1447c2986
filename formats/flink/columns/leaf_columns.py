"""Columns of values of fixed width, and of values behind their length."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.bytes.byte_columns import Cells, ends_of, gather
from statestore.formats.flink.columns.faults import Beyond, Wrong, refuse
from statestore.formats.flink.columns.java_texts import TEXTS
from statestore.formats.flink.columns.text_columns import characters, modified_text_column, text_of_units, utf8
from statestore.formats.flink.columns.time_columns import TIMES
from statestore.formats.flink.layouts.shapes import Fixed, Sized
from statestore.formats.kernels.arrays import Bytes, Ints
from statestore.formats.values.without_pandas import arrow_numbers

_DAY = {pa.time32("ms"): 86_400_000, pa.time64("us"): 86_400_000_000}
_DECIMAL_BYTES = 16
_WIDEST = pa.decimal128(38)
_BUFFERS_LIMIT = 2**31 - 1
_MOST_DIGITS = 6200  # Python writes 6,144 digits and an exponent at most in its widest usual context
_DECIMAL = r"^-?[0-9]+(\.[0-9]+)?(E[+-]?[0-9]{1,6})?$"
_CONTROL = r"[\x00-\x1f\x7f]"
_PICKLE, _PROTOCOLS, _STOP = 0x80, 5, ord(".")


def fixed_column(data: Bytes, at: Ints, shape: Fixed) -> pa.Array:
    """The values at these positions. Raises Wrong, Beyond."""
    form, width, column = shape.form, shape.width, shape.column
    if form == "int":
        return integers(gather(data, at, f">i{width}"), column)
    if form == "float":
        return pa.array(gather(data, at, f">f{width}"), column)
    if form == "boolean":
        return booleans(gather(data, at, "u1"))
    if form == "enum":
        index = gather(data, at, ">i4")
        if shape.ids:
            index = _places_of(index, np.array(shape.ids, np.int32))
            refuse(index < 0, "a number that no constant has", f"one of {len(shape.ids)} numbers")
        refuse((index < 0) | (index >= len(shape.names)), "an index beyond the enum", f"below {len(shape.names)}")
        return pa.array(shape.names or ("",), pa.string()).take(pa.array(index))
    if form == "char":
        return characters(data, at)
    if form == "unsigned":
        return arrow_numbers(gather(data, at, f">u{width}").astype(np.int32))
    if form == "flipped":
        return pa.array(gather(data, at, ">u8") ^ np.uint64(1 << 63), pa.uint64()).view(pa.int64())
    if form == "decimal":
        return within_precision(decimals(gather(data, at, ">i8"), column))
    if form in ("bytes", "big decimal"):
        cells = Cells(data, at, np.full(len(at), width))
        return cells.binary() if form == "bytes" else decimals_of_bytes(cells, column)
    if column == pa.string():
        return TEXTS[form](data, at)
    found = TIMES[form](data, at)
    return found if found.type == column else found.view(column)  # a zone or none


def _places_of(numbers: npt.NDArray[np.integer], ids: npt.NDArray[np.int32]) -> Ints:
    """Where each number stands among different ones; -1 where it does not."""
    order = np.argsort(ids)
    near = order[np.searchsorted(ids[order], numbers).clip(max=len(ids) - 1)]
    return np.where(ids[near] == numbers, near, -1)


def integers(numbers: npt.NDArray[np.integer], column: pa.DataType) -> pa.Array:
    """Integers as a column of integers, dates or times."""
    if column in _DAY:
        refuse((numbers < 0) | (numbers >= _DAY[column]), "a time beyond the day", f"below {_DAY[column]}")
    return arrow_numbers(numbers).cast(column)


def booleans(octets: Bytes) -> pa.Array:
    refuse(octets > 1, "a byte that is no boolean", "0 or 1")
    return arrow_numbers(octets == 1)


def sized_column(data: Bytes, at: Ints, count: Ints, shape: Sized) -> pa.Array:
    """The values at these positions of so many units. Raises Wrong, Beyond."""
    form, column = shape.form, shape.column
    if form == "bytes":
        return Cells(data, at, count).binary()
    if form == "utf-8":
        return utf8(Cells(data, at, count))
    if form == "plain utf-8":
        return _plain_text(Cells(data, at, count))
    if form == "pickle":
        return _pickles(Cells(data, at, count))
    if form == "decimal text":
        return _decimals_of_text(Cells(data, at, count), column)
    if form == "modified utf-8":
        return modified_text_column(Cells(data, at, count))
    if form == "decimal":
        return decimals_of_bytes(Cells(data, at, count), column)
    return _array_column(data, at, count, shape)


def _array_column(data: Bytes, at: Ints, count: Ints, shape: Sized) -> pa.Array:
    """Arrays of primitives; one of characters is a string."""
    form, offsets = shape.form, ends_of(count)
    if offsets[-1] > _BUFFERS_LIMIT:
        raise Beyond(f"{offsets[-1]} elements of arrays", "one batch")
    every = np.repeat(at - offsets[:-1] * shape.unit, count) + np.arange(offsets[-1]) * shape.unit
    if form == "chars":
        return text_of_units(gather(data, every, ">u2").astype(np.int64), offsets)
    if form == "booleans":
        values = booleans(gather(data, every, "u1"))
    else:
        values = pa.array(gather(data, every, f">{'i' if form == 'integers' else 'f'}{shape.unit}"))
    ends = pa.py_buffer(offsets.astype(np.int32))
    return pa.Array.from_buffers(shape.column, len(at), [None, ends], children=[values])


def decimals(unscaled: Ints, column: pa.Decimal128Type) -> pa.Array:
    """Decimals of 64-bit numbers."""
    words = np.empty((len(unscaled), 2), np.int64)
    words[:, 0], words[:, 1] = unscaled, unscaled >> 63
    return pa.Array.from_buffers(column, len(unscaled), [None, pa.py_buffer(words)])


def decimals_of_bytes(cells: Cells, column: pa.Decimal128Type) -> pa.Array:
    """Decimals of big-endian two's complement bytes."""
    size = cells.size
    refuse((size < 1) | (size > _DECIMAL_BYTES), "a decimal of another size", f"1 to {_DECIMAL_BYTES} bytes")
    negative = cells.first_bytes() > 0x7F
    digits = np.where(negative, np.uint8(0xFF), np.uint8(0))[:, None].repeat(_DECIMAL_BYTES, 1)
    for place in range(int(size.max()) if len(size) else 0):
        has = size > place
        digits[has, place] = gather(cells.data, (cells.start + size - 1 - place)[has], "u1")
    found = pa.Array.from_buffers(column, len(size), [None, pa.py_buffer(np.ascontiguousarray(digits))])
    return within_precision(found)


def within_precision(found: pa.Array) -> pa.Array:
    """The column. Raises Wrong if a number has more digits than its type."""
    whole = pa.Array.from_buffers(_WIDEST, len(found), found.buffers(), offset=found.offset)
    limit = pa.scalar(Decimal(10**found.type.precision - 1), _WIDEST)
    beyond = pc.or_(pc.greater(whole, limit), pc.less(whole, pc.negate(limit))).fill_null(False)
    refuse(beyond.to_numpy(zero_copy_only=False), "a decimal of more digits", f"at most {found.type.precision}")
    return found


# Values that only coders of PyFlink write behind a length: decimals as text, pickles, and texts that are plain


def _decimals_of_text(cells: Cells, column: pa.Decimal128Type) -> pa.Array:
    """Decimals of the text that ``str`` of Python makes of them.

    Raises Wrong for other text, and for a number of more digits than the column's type has, before or behind the point.
    """
    refuse((cells.size < 1) | (cells.size > _MOST_DIGITS), "a decimal of another size", "text of a number")
    texts = utf8(cells)
    other = pc.invert(pc.match_substring_regex(texts, _DECIMAL))
    refuse(other.to_numpy(zero_copy_only=False), "text that is no decimal number", "digits")
    try:
        return texts.cast(column)
    except pa.ArrowInvalid:
        raise Wrong(
            "a number that does not fit the decimal", f"at most {column.precision} digits, {column.scale} of a fraction"
        ) from None


def _pickles(cells: Cells) -> pa.Array:
    """Pickles as they are. Raises Wrong for bytes that do not begin and end as a pickle does."""
    refuse(cells.size < 3, "bytes that are no pickle", "at least 3")
    last = gather(cells.data, cells.start + cells.size - 1, "u1")
    protocol = gather(cells.data, cells.start + 1, "u1")
    wrong = (cells.first_bytes() != _PICKLE) | (protocol > _PROTOCOLS) | (last != _STOP)
    refuse(wrong, "bytes that are no pickle", "80 and the protocol in front, 2e at the end")
    return cells.binary()


def _plain_text(cells: Cells) -> pa.Array:
    """Texts of at least one character, none of control. Raises Wrong for others."""
    expected = "text, or a type that is given for it"
    refuse(cells.size < 1, "bytes that may be an empty text or something else", expected)
    texts = utf8(cells)
    control = np.asarray(pc.match_substring_regex(texts, _CONTROL))
    refuse(control, "bytes that may be text with characters of control or something else", expected)
    return texts
