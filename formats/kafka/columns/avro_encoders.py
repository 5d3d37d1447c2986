"""Columns as Avro values of a schema: what `avro_values` decodes, encoded.

Bytes that were decoded come back as they were where they are those of Avro's own encoders: arrays and maps in one block
without its size, decimals in as few bytes as they need. A value of an earlier schema comes back in the reader's.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.bytes.byte_columns import Cells, cells_of
from statestore.formats.bytes.byte_parts import (
    Part,
    cells_of_groups,
    joined_parts,
    number_cells,
    spread_cells,
    zig_zag_cells,
)
from statestore.formats.kafka.columns.value_parts import (
    entries_of,
    of_some,
    presence,
    refuse_null,
    unscaled_numbers,
    wrong_value,
)
from statestore.formats.kafka.schemas.avro_schema import AvroType

_END = b"\0"  # the count of 0 behind the last block
_FLOATS = {"float": "<f4", "double": "<f8"}


def avro_cells(kind: AvroType, column: pa.Array, where: str) -> Cells:
    """The values of a column in the binary form of their schema; ``where`` names it in messages.

    A null of the column is one of the schema. Raises InvalidInputError WRONG_VALUE for a value that the schema has not.
    """
    return joined_parts(_parts(kind, column, where), len(column))


def _parts(kind: AvroType, column: pa.Array, where: str) -> list[Part]:
    form = kind.form
    if form == "null":
        return []
    if form == "nullable":
        has, one = presence(column), 1 - kind.null_branch
        branch = zig_zag_cells(np.where(has, one, kind.null_branch).astype(np.int64))
        return [branch, of_some(column, has, _writer(kind.parts[0], where))]
    if form == "union" and len(kind.parts) > 1:
        return _union(kind, column, where)
    if form == "union":
        return [b"\0", *_parts(kind.parts[0], column, where)]
    refuse_null(column, where)
    if form == "record":
        parts: list[Part] = []
        for number, (name, part) in enumerate(zip(kind.names, kind.parts, strict=True)):
            parts += _parts(part, column.field(number), f"{where}.{name}")
        return parts
    if form in ("array", "map"):
        return _blocks(kind, column, where)
    return [_scalars(kind, column, where)]


def _union(kind: AvroType, column: pa.Array, where: str) -> list[Part]:
    """A union of several types: the field of the struct that is not null says which one."""
    branches = [number for number, part in enumerate(kind.parts) if part.form != "null"]
    null = next((number for number, part in enumerate(kind.parts) if part.form == "null"), None)
    valid = presence(column)
    present = [presence(column.field(number)) & valid for number in range(len(branches))]
    count = np.sum(present, axis=0) if len(column) else np.empty(0, np.int64)
    expected = np.where(valid | (null is None), 1, 0)
    if (count != expected).any():
        at = int((count != expected).argmax())
        raise wrong_value(where, column[at].as_py(), "a union with one field that is not null")
    branch = np.full(len(column), -1 if null is None else null, np.int64)
    for number, has in zip(branches, present, strict=True):
        branch[has] = number
    values = [
        of_some(column.field(place), has, _writer(kind.parts[number], where))
        for place, (number, has) in enumerate(zip(branches, present, strict=True))
    ]
    return [zig_zag_cells(branch), *values]


def _writer(kind: AvroType, where: str) -> Callable[[pa.Array], list[Part]]:
    return lambda some: _parts(kind, some, where)


def _blocks(kind: AvroType, column: pa.Array, where: str) -> list[Part]:
    """Arrays and maps: the count of entries and these, where there are any; then the end."""
    offsets, first = entries_of(column)
    count = int(offsets[-1])
    parts: list[Part] = []
    if kind.form == "map":
        names = column.keys.slice(first, count)
        parts += _sized(names)
        values = column.items.slice(first, count)
    else:
        values = column.values.slice(first, count)
    parts += _parts(kind.parts[0], values, f"{where}[]")
    entries = cells_of_groups(joined_parts(parts, count), offsets)
    counts = np.diff(offsets)
    has = counts > 0
    return [spread_cells(zig_zag_cells(counts[has]), ~has), entries, _END]


def _sized(column: pa.Array) -> list[Part]:
    cells = cells_of(column)
    return [zig_zag_cells(cells.size), cells]


def _scalars(kind: AvroType, column: pa.Array, where: str) -> Cells:
    form = kind.form
    if form in _FLOATS:
        return number_cells(column.to_numpy(zero_copy_only=False).astype(_FLOATS[form]))
    if form == "boolean":
        return number_cells(column.cast(pa.uint8()).to_numpy(zero_copy_only=False))
    if form == "enum":
        places = pc.index_in(column, value_set=pa.array(kind.names, pa.string()))
        if places.null_count:
            at = int(np.flatnonzero(~presence(places))[0])
            raise wrong_value(where, f"{column[at]}", f"one of {', '.join(kind.names)}")
        return zig_zag_cells(places.to_numpy(zero_copy_only=False).astype(np.int64))
    if form in ("int", "long"):
        narrow = column.cast(pa.int32()) if form == "int" else column
        return zig_zag_cells(narrow.cast(pa.int64()).to_numpy(zero_copy_only=False))
    if form == "decimal bytes":
        return _shortest(unscaled_numbers(column))
    if form == "decimal fixed":
        return _fixed_decimals(unscaled_numbers(column), kind.size, where)
    cells = cells_of(column)
    if form == "fixed":
        if (cells.size != kind.size).any():
            raise wrong_value(where, f"{int(cells.size[cells.size != kind.size][0])} bytes", f"{kind.size} bytes")
        return cells
    return joined_parts(_sized(column), len(column))


def _shortest(digits: np.ndarray[tuple[int, int], np.dtype[np.uint8]]) -> Cells:
    """Decimals as ``BigInteger`` writes them, behind their sizes: without bytes that only repeat the sign."""
    size = _needed(digits)
    width = digits.shape[1]
    start = np.arange(len(digits)) * width + width - size
    return joined_parts([zig_zag_cells(size), Cells(digits.reshape(-1), start, size)], len(digits))


def _needed(digits: np.ndarray[tuple[int, int], np.dtype[np.uint8]]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The bytes that each number needs with its sign."""
    size = np.full(len(digits), digits.shape[1], np.int64)
    sign = np.where(digits[:, 0] > 0x7F, 0xFF, 0) if len(digits) else np.empty(0, np.int64)
    going = np.ones(len(digits), bool)
    for at in range(digits.shape[1] - 1):
        going &= (digits[:, at] == sign) & ((digits[:, at + 1] > 0x7F) == (sign > 0))
        size -= going
    return size


def _fixed_decimals(digits: np.ndarray[tuple[int, int], np.dtype[np.uint8]], size: int, where: str) -> Cells:
    """Decimals in ``size`` bytes each, with their sign in front."""
    width = digits.shape[1]
    if len(digits) and int(_needed(digits).max()) > size:
        raise wrong_value(where, "a decimal of more bytes", f"one that fits into {size} bytes")
    if size > width:
        sign = np.where(digits[:, :1] > 0x7F, np.uint8(0xFF), np.uint8(0)).repeat(size - width, 1)
        digits = np.concatenate([sign, digits], 1)
    kept = np.ascontiguousarray(digits[:, digits.shape[1] - size :])
    return Cells(kept.reshape(-1), np.arange(len(kept)) * size, np.full(len(kept), size, np.int64))
