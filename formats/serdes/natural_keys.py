"""Serde "natural", keys of whole columns: the bytes that ``plain_keys`` defines.

Only nested types need a Python call per row.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.kernels.arrays import Bytes, Ints
from statestore.formats.serdes.cell_bytes import END, ESCAPED, ZERO, ordered
from statestore.formats.serdes.columns import (
    Rows,
    as_binary,
    as_kind,
    check_ends,
    encoded_column,
    from_matrix,
    heads,
    joined,
    matrix,
    rows_of,
    slices,
    timeless,
)
from statestore.formats.serdes.numbers import number_bytes
from statestore.formats.serdes.plain_keys import key_cells
from statestore.formats.serdes.row_errors import corrupt
from statestore.formats.values.canonical import plain


def keys_to_bytes(schema: pa.Schema, columns: list[pa.Array]) -> pa.BinaryArray:
    """Encode one key per row."""
    parts = []
    for index, column in enumerate(columns):
        width = number_bytes(column.type)
        if width:
            parts.append(as_binary(_flipped(matrix(column, width), column.type)[:, ::-1]))
        elif pa.types.is_nested(column.type):
            parts.append(encoded_column(column, ordered))
        elif index == len(schema) - 1:
            parts.append(column.cast(pa.binary()))
        else:
            parts.append(_escaped(column.cast(pa.binary())))
    return joined(parts)


def keys_from_bytes(schema: pa.Schema, keys: pa.BinaryArray) -> list[pa.Array]:
    """Decode the columns of the keys. Raises CorruptError ROW_CORRUPT."""
    if keys.null_count:
        raise corrupt("a key is null")
    if any(pa.types.is_nested(kind) for kind in schema.types):
        return _row_by_row(schema, keys)
    rows = rows_of(keys)
    begin, columns = rows.begin, []
    for index, kind in enumerate(schema.types):
        width = number_bytes(kind)
        if width:
            columns.append(from_matrix(_flipped(heads(rows, begin, width)[:, ::-1], kind), kind))
            begin = begin + width
        elif len(schema) == 1:
            return [as_kind(keys, kind)]
        elif index == len(schema) - 1:
            columns.append(as_kind(slices(rows, begin, rows.end), kind))
            begin = rows.end
        else:
            stop = _ends(rows, begin)
            columns.append(as_kind(_unescaped(slices(rows, begin, stop)), kind))
            begin = stop + len(END)
    check_ends(rows, begin)
    return columns


def _row_by_row(schema: pa.Schema, keys: pa.BinaryArray) -> list[pa.Array]:
    kinds = [timeless(kind) for kind in schema.types]
    decoders = [decode for _, decode in key_cells(pa.schema(list(zip(schema.names, kinds, strict=True))))]
    columns: list[list[object]] = [[] for _ in kinds]
    for data in keys.to_pylist():
        at = 0
        for decode, cells in zip(decoders, columns, strict=True):
            value, at = decode(data, at)
            cells.append(value)
        if at != len(data):
            raise corrupt(f"a key of {len(data)} bytes, expected {at}")
    columns_decoded = []
    for cells, kind, type_ in zip(columns, kinds, schema.types, strict=True):
        to = plain(kind, list)
        columns_decoded.append(pa.array(cells if to is None else map(to, cells), kind, size=len(cells)).cast(type_))
    return columns_decoded


def _flipped(little: Bytes, kind: pa.DataType) -> Bytes:
    """Flip the sign bit, which is in the last of the little-endian bytes."""
    if pa.types.is_boolean(kind):
        return little
    big = np.array(little, order="C")
    big[:, -1] ^= 0x80
    return big


def _escaped(column: pa.BinaryArray) -> pa.BinaryArray:
    """Escape text as ``cells.escaped`` does."""
    text = pc.replace_substring(column, ZERO, ESCAPED)
    return pc.binary_join_element_wise(text, pa.scalar(END), b"")


def _ends(rows: Rows, begin: Ints) -> Ints:
    """The end of the escaped text that begins at each position: its first 00 00."""
    if not len(begin):
        return begin
    data, base = rows.data[: rows.end[-1]], int(begin[0])
    zeros: npt.NDArray[np.bool_] = data[base:] == 0
    pairs = np.append(np.flatnonzero(zeros[:-1] & zeros[1:]) + base, rows.end[-1])
    ends: Ints = pairs[np.searchsorted(pairs, begin)]
    if (ends + len(END) > rows.end).any():
        raise corrupt(f"text in row {int(np.argmax(ends + len(END) > rows.end))} has no end, expected 00 00")
    return ends


def _unescaped(text: pa.BinaryArray) -> pa.BinaryArray:
    """Unescape text as ``cells.unescaped`` does."""
    zeros = pc.count_substring(text, ZERO)
    if not pc.max(zeros).as_py():
        return text
    if not pc.count_substring(text, ESCAPED).equals(zeros):
        raise corrupt("text has a 00 that no 01 follows")
    return pc.replace_substring(text, ESCAPED, ZERO)
