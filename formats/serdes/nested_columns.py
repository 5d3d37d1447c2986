"""Columns of structs, lists and maps as bytes and back, cell by cell.

Times inside them are converted as integers, because columns can hold more times than Python can.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from statestore.formats.serdes.cell_bytes import Cell, whole
from statestore.formats.values.canonical import from_arrow, plain


def encoded_column(column: pa.Array, cell: Callable[[pa.DataType], Cell]) -> pa.BinaryArray:
    """Encode a column; null cells are empty.

    ``cell`` is the form of the cells: ``cells.compact`` or ``cells.ordered``.
    """
    kind = timeless(column.type)
    encode, to = cell(kind)[0], from_arrow(kind)
    cells = column.cast(kind).to_pylist()
    rows = cells if to is None else map(to, cells)
    return pa.array([b"" if row is None else encode(row) for row in rows], pa.binary())


def decoded_column(column: pa.BinaryArray, kind: pa.DataType, cell: Callable[[pa.DataType], Cell]) -> pa.Array:
    """Decode a column of type ``kind``; null cells stay null. Raises CorruptError ROW_CORRUPT."""
    stored = timeless(kind)
    decode, to = cell(stored)[1], plain(stored, list)
    cells = [None if data is None else whole(decode, data) for data in column.to_pylist()]
    return pa.array(cells if to is None else map(to, cells), stored, size=len(cells)).cast(kind)


def timeless(kind: pa.DataType) -> pa.DataType:
    """The type ``kind`` with integers in place of dates, timestamps and durations."""
    types = pa.types
    if types.is_temporal(kind):
        return pa.int32() if types.is_date32(kind) else pa.int64()
    if types.is_struct(kind):
        return pa.struct([pa.field(field.name, timeless(field.type)) for field in kind])
    if types.is_list(kind):
        return pa.list_(timeless(kind.value_type))
    if types.is_map(kind):
        return pa.map_(timeless(kind.key_type), timeless(kind.item_type))
    return kind
