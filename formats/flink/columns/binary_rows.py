"""Binary rows of Flink SQL, and the arrays and maps inside them, read by numpy over many cells at once.

All numbers are little-endian. Fixed parts hold a value of at most 8 bytes, or an offset from the start of the whole
and a length. Source: ``org.apache.flink.table.data.binary``: BinaryRowData, BinaryArrayData, BinaryMapData,
BinarySegmentUtils.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from statestore.formats.bytes.byte_columns import Cells, ends_of, gather
from statestore.formats.errors import CorruptError, UnsupportedError
from statestore.formats.flink.columns.faults import Beyond, NullMapKey, Wrong, refuse
from statestore.formats.flink.columns.leaf_columns import (
    booleans,
    decimals,
    decimals_of_bytes,
    within_precision,
)
from statestore.formats.flink.columns.text_columns import utf8
from statestore.formats.flink.columns.time_columns import table_time
from statestore.formats.flink.columns.variant_texts import variant_of_row
from statestore.formats.flink.layouts.shapes import Rest
from statestore.formats.flink.layouts.type_layouts import COMPACT_DIGITS, COMPACT_TIME, logical_type, raw_shape
from statestore.formats.flink.serializers.flink_types import FlinkType, Logical, is_absent
from statestore.formats.kernels.arrays import Bools, Bytes, Ints

Decode = Callable[[Sequence[FlinkType], Cells, Sequence[bool], str], list[pa.Array | None]]
"""A function that decodes values of other serializers, as ``decoding.decode_cells``."""

_SLOT = 8
_KIND_BITS = 8
_COUNT = 4
_MOST_PLACES = 2**31 - 1
_NUMBERS = {
    "TINYINT": "<i1",
    "SMALLINT": "<i2",
    "INTEGER": "<i4",
    "BIGINT": "<i8",
    "FLOAT": "<f4",
    "DOUBLE": "<f8",
    "DATE": "<i4",
    "TIME": "<i4",
    "YEAR_MONTH": "<i4",
    "DAY_TIME": "<i8",
}
_BYTES_IN_ARRAYS = {"BOOLEAN": 1, "TINYINT": 1, "SMALLINT": 2, "INTEGER": 4, "FLOAT": 4, "DATE": 4, "TIME": 4}
_BYTES_IN_ARRAYS["YEAR_MONTH"] = 4
_DAY_MILLIS = 86_400_000


def binary_column(cells: Cells, kind: Logical, form: str, decode: Decode) -> pa.Array:
    """The values of cells that each hold a whole "row", "array", "map" or "multiset" of type ``kind``.

    ``decode`` reads the values of other serializers in them. Raises Wrong for bytes that are none, Beyond for values
    that the column cannot hold.
    """
    if form == "row":
        return _rows(cells, kind, decode)
    if form == "array":
        return _arrays(cells, kind.children[0], logical_type(kind), decode)
    return _maps(cells, kind, decode)


def _rows(cells: Cells, kind: Logical, decode: Decode) -> pa.Array:
    width = len(kind.children)
    header = (width + _KIND_BITS + 63) // 64 * 8
    refuse(cells.size < header + _SLOT * width, "a binary row that is too short", f"{width} fields")
    column = logical_type(kind)
    parts = []
    for number, child in enumerate(kind.children):
        if is_absent(child):
            continue
        bit = number + _KIND_BITS
        present = _bit(cells.data, cells.start, np.full(len(cells), bit)) == 0
        slots = cells.start[present] + header + _SLOT * number
        values = _values(cells.select(present), slots, child, decode)
        parts.append(_spread(values, present))
    if not parts:
        return pa.Array.from_buffers(column, len(cells), [None])
    return pa.StructArray.from_arrays(parts, fields=list(column))


def _spread(values: pa.Array, present: Bools) -> pa.Array:
    if present.all():
        return values
    return values.take(pa.array(np.cumsum(present) - 1, mask=~present))


def _bit(data: Bytes, start: Ints, bit: Ints) -> Bytes:
    octets: Bytes = gather(data, start + (bit >> 3), "u1")
    bits: Bytes = (octets >> (bit & 7).astype(np.uint8)) & np.uint8(1)
    return bits


def _values(owners: Cells, slots: Ints, kind: Logical, decode: Decode) -> pa.Array:
    """The values whose fixed parts are at ``slots``; offsets count from the start of the owners."""
    root, column = kind.root, logical_type(kind)
    if root == "BOOLEAN":
        return booleans(gather(owners.data, slots, "u1"))
    if root in _NUMBERS:
        return _numbers(gather(owners.data, slots, _NUMBERS[root]), root, column)
    if root == "DECIMAL":
        if kind.precision <= COMPACT_DIGITS:
            return within_precision(decimals(gather(owners.data, slots, "<i8"), column))
        return decimals_of_bytes(_pointed(owners, slots), column)
    if root in ("TIMESTAMP", "TIMESTAMP_LTZ"):
        found = _timestamps(owners, slots, kind.precision, column)
        return found if found.type == column else found.view(column)
    if root in ("STRING", "BYTES"):
        cells = _text(owners, slots)
        return utf8(cells) if root == "STRING" else cells.binary()
    cells = _pointed(owners, slots)
    if root == "ROW":
        return _rows(cells, kind, decode)
    if root == "ARRAY":
        return _arrays(cells, kind.children[0], column, decode)
    if root == "BITMAP":
        return cells.binary()
    if root == "RAW":
        return _raw_values(cells, kind, decode)
    if root == "VARIANT":
        return variant_of_row(cells)
    return _maps(cells, kind, decode)


def _raw_values(cells: Cells, kind: Logical, decode: Decode) -> pa.Array:
    """Values of other serializers, each alone in its cell."""
    if isinstance(raw_shape(kind), Rest):
        return cells.binary()
    try:
        (column,) = decode(kind.raw, cells, [True], "a raw value")
    except CorruptError as error:
        raise Wrong(f"bytes of a raw value that are none ({error.message})", "a value of its serializer") from None
    except UnsupportedError as error:
        raise Beyond(f"a raw value ({error.message})", str(logical_type(kind))) from None
    return pa.nulls(len(cells)) if column is None else column


def _numbers(numbers: Ints, root: str, column: pa.DataType) -> pa.Array:
    if root == "TIME":
        refuse((numbers < 0) | (numbers >= _DAY_MILLIS), "a time beyond the day", f"below {_DAY_MILLIS}")
        return pa.array(numbers.astype(np.int64) * 1000).cast(column)
    if root == "DAY_TIME":
        limit = 2**63 // 1000
        beyond = (numbers > limit) | (numbers < -limit)
        if beyond.any():
            raise Beyond(f"{int(numbers[int(beyond.argmax())])} milliseconds", str(column))
        return pa.array(numbers * 1000).cast(column)
    return pa.array(numbers).cast(column)


def _timestamps(owners: Cells, slots: Ints, precision: int, column: pa.DataType) -> pa.Array:
    if precision <= COMPACT_TIME:
        millis = gather(owners.data, slots, "<i8")
        return table_time(millis, np.zeros(len(millis), np.int64), column.unit)
    pointer = gather(owners.data, slots, "<i8")
    offset, nanos = pointer >> 32, pointer & 0xFFFFFFFF
    refuse((offset < 0) | (offset > owners.size - _SLOT), "a timestamp outside of its row", "an offset inside")
    return table_time(gather(owners.data, owners.start + offset, "<i8"), nanos, column.unit)


def _pointed(owners: Cells, slots: Ints) -> Cells:
    """The cells that offset << 32 | length point to."""
    pointer = gather(owners.data, slots, "<i8")
    offset, size = pointer >> 32, pointer & 0xFFFFFFFF
    refuse((offset < 0) | (offset + size > owners.size), "a value outside of its row", "an offset inside")
    return Cells(owners.data, owners.start + offset, size)


def _text(owners: Cells, slots: Ints) -> Cells:
    """Strings and bytes: of up to 7 bytes in the fixed part, which then has bit 7 of its last byte set."""
    last = gather(owners.data, slots + _SLOT - 1, "u1")
    inside = last & 0x80 != 0
    size = (last & 0x7F).astype(np.int64)
    refuse(inside & (size >= _SLOT), "a short text of more than 7 bytes", "at most 7")
    far = np.flatnonzero(~inside)
    start = slots.copy()
    found = _pointed(owners.select(far), slots[far])
    start[far], size[far] = found.start, found.size
    return Cells(owners.data, start, size)


def _arrays(cells: Cells, kind: Logical, column: pa.DataType, decode: Decode) -> pa.Array:
    offsets, values = _elements(cells, kind, decode)
    return pa.Array.from_buffers(column, len(cells), [None, pa.py_buffer(offsets.astype(np.int32))], children=[values])


def _elements(cells: Cells, kind: Logical, decode: Decode) -> tuple[Ints, pa.Array]:
    """Offsets and elements: count:int32 | bits of nulls in words of 4 bytes | fixed parts."""
    refuse(cells.size < _COUNT, "a binary array that is too short", "a count")
    counts = gather(cells.data, cells.start, "<i4").astype(np.int64)
    header = _COUNT + (counts + 31) // 32 * 4
    width = _BYTES_IN_ARRAYS.get(kind.root, _SLOT)
    refuse((counts < 0) | (header + counts * width > cells.size), "a count beyond the array", f"{width} bytes for each")
    offsets = ends_of(counts)
    if offsets[-1] > _MOST_PLACES:
        raise Beyond(f"{int(offsets[-1])} elements", "one batch")
    owner = np.repeat(np.arange(len(cells)), counts)
    number = np.arange(offsets[-1]) - offsets[:-1][owner]
    present = _bit(cells.data, cells.start[owner] + _COUNT, number) == 0
    owners, mine = owner[present], number[present]
    slots = cells.start[owners] + header[owners] + mine * width
    return offsets, _spread(_values(cells.select(owners), slots, kind, decode), present)


def _maps(cells: Cells, kind: Logical, decode: Decode) -> pa.Array:
    """size:int32 of the keys | array of keys | array of values."""
    refuse(cells.size < _COUNT, "a binary map that is too short", "a size")
    size = gather(cells.data, cells.start, "<i4").astype(np.int64)
    refuse((size < 0) | (size > cells.size - _COUNT), "keys beyond the map", "a size inside")
    value = kind.children[1] if kind.root == "MAP" else Logical("INTEGER")
    key_ends, keys = _elements(Cells(cells.data, cells.start + _COUNT, size), kind.children[0], decode)
    rest = Cells(cells.data, cells.start + _COUNT + size, cells.size - _COUNT - size)
    value_ends, values = _elements(rest, value, decode)
    refuse((key_ends != value_ends)[1:], "a map with another count of values than of keys", "as many")
    column = logical_type(kind)
    if pa.types.is_map(column):
        if keys.null_count > 0:
            raise NullMapKey(kind, str(column))
        members = [column.key_field, column.item_field]
    else:
        members = list(column.value_type)
    entry = pa.StructArray.from_arrays([keys, values], fields=members)
    ends = pa.py_buffer(key_ends.astype(np.int32))
    return pa.Array.from_buffers(column, len(cells), [None, ends], children=[entry])
