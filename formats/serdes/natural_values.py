"""Serde "natural", values of whole columns: the bytes that `ValueLayout` defines.

Only nested types need a Python call per row.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from statestore.formats.kernels.arrays import Bools, Bytes
from statestore.formats.serdes.cell_bytes import compact
from statestore.formats.serdes.columns import (
    as_binary,
    as_kind,
    check_ends,
    decoded_column,
    encoded_column,
    from_matrix,
    heads,
    joined,
    lengths_matrix,
    matrix,
    rows_of,
    side_by_side,
    slices,
    valid_flags,
)
from statestore.formats.serdes.row_errors import corrupt
from statestore.formats.serdes.value_layout import ValueLayout


def values_to_bytes(layout: ValueLayout, columns: list[pa.Array], rows: int | None = None) -> pa.BinaryArray:
    """Encode one value per row.

    ``rows`` is needed only for a schema without columns, which has no length of its own.
    """
    if not columns:
        return as_binary(np.zeros((rows or 0, 0), np.uint8))
    cells = [_cells(columns[column.position]) for column in layout.others]
    head = [
        np.packbits(np.stack([valid_flags(column) for column in columns], axis=1), axis=1, bitorder="little"),
        *[matrix(columns[column.position], column.width) for column in layout.numbers],
        *[lengths_matrix(column) for column in cells],
    ]
    return joined([as_binary(side_by_side(head)), *cells])


def values_from_bytes(layout: ValueLayout, values: pa.BinaryArray) -> list[pa.Array]:
    """Decode the columns; where a value is null, all of them are. Raises CorruptError ROW_CORRUPT."""
    if not values.null_count:
        return _columns(layout, values)
    stored = valid_flags(values)
    positions = pa.array(np.cumsum(stored) - 1, mask=~stored)
    return [column.take(positions) for column in _columns(layout, values.drop_null())]


def _columns(layout: ValueLayout, values: pa.BinaryArray) -> list[pa.Array]:
    rows = rows_of(values)
    head = heads(rows, rows.begin, layout.head.size)
    found: dict[int, pa.Array] = {}
    valid = _validity(layout, head[:, : len(layout.full)])
    at = len(layout.full)
    for column in layout.numbers:
        found[column.position] = from_matrix(head[:, at : at + column.width], column.kind, valid[column.position])
        at += column.width
    begin = rows.begin + layout.head.size
    lengths = np.ascontiguousarray(head[:, at:]).view("<u4").astype(np.int64)
    ends = begin[:, None] + np.cumsum(lengths, axis=1)
    check_ends(rows, ends[:, -1] if layout.others else begin)
    for number, column in enumerate(layout.others):
        flags = valid[column.position]
        if flags is not None and lengths[~flags, number].any():
            raise corrupt("bytes in a column that is null")
        cells = slices(rows, begin, ends[:, number], flags)
        nested = pa.types.is_nested(column.kind)
        found[column.position] = decoded_column(cells, column.kind, compact) if nested else as_kind(cells, column.kind)
        begin = ends[:, number]
    return [found[column.position] for column in layout.columns]


def _validity(layout: ValueLayout, bitmap: Bytes) -> list[Bools | None]:
    """Masks of where each column is not null; None for a column without nulls."""
    if (bitmap == np.frombuffer(layout.full, np.uint8)).all():
        return [None] * len(layout.columns)
    flags = np.unpackbits(bitmap, axis=1, bitorder="little").astype(np.bool_)
    if flags[:, len(layout.columns) :].any():
        raise corrupt(f"null bits for more than {len(layout.columns)} columns")
    columns = [np.ascontiguousarray(flags[:, column.position]) for column in layout.columns]
    return [None if column.all() else column for column in columns]


def _cells(column: pa.Array) -> pa.BinaryArray:
    """The bytes of each cell, empty where it is null."""
    if pa.types.is_nested(column.type):
        return encoded_column(column, compact)
    cells = column.cast(pa.binary())
    return cells.fill_null(b"") if cells.null_count else cells
