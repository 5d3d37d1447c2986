"""Avro values as columns, decoded with the schema of their writer.

Integers are zig-zag varints, floats little-endian; a union is its branch, then the value; arrays and maps are blocks of
a count and so many entries, and end with a count of 0 (a negative count is followed by the block's size).
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.bytes.byte_columns import Cells, ends_of, gather
from statestore.formats.bytes.column_cursor import Cursor
from statestore.formats.kafka.schemas.avro_schema import AvroType
from statestore.formats.kernels.arrays import Bools, Ints

_DECIMAL_BYTES = 16
_WIDEST = pa.decimal128(38)
_DAY = {pa.time32("ms"): 86_400_000, pa.time64("us"): 86_400_000_000}
_FLOATS = {"float": "<f4", "double": "<f8"}


def avro_values(cursor: Cursor, kind: AvroType) -> pa.Array:
    """Read a value of each cell. Cells that are bad get any value."""
    form = kind.form
    if form == "null":
        return pa.nulls(len(cursor.at))
    if form == "nullable":
        return _nullable(cursor, kind)
    if form == "record":
        parts = [avro_values(cursor, part) for part in kind.parts]
        if not parts:
            return pa.array([{}] * len(cursor.at), kind.column)
        return pa.StructArray.from_arrays(parts, fields=list(kind.column))
    if form == "union":
        return _union(cursor, kind)
    if form in ("array", "map"):
        return blocks(cursor, kind, lambda part: avro_values(part, kind.parts[0]))
    if form in _FLOATS:
        return pa.array(cursor.numbers(_FLOATS[form]), kind.column)
    if form == "boolean":
        flag = cursor.numbers("u1")
        cursor.refuse(flag > 1)
        return pa.array(flag == 1, pa.bool_())
    if form in ("int", "long", "enum"):
        return _integers(cursor, kind)
    size = np.full(len(cursor.at), kind.size) if form.endswith("fixed") else cursor.varlong()
    cells = cursor.take(size)
    if form.startswith("decimal"):
        return _decimals(cells, kind, cursor)
    return cells.binary().cast(kind.column)


def _integers(cursor: Cursor, kind: AvroType) -> pa.Array:
    number = cursor.varlong()
    if kind.form == "enum":
        cursor.refuse((number < 0) | (number >= len(kind.names)))
        number = np.where(cursor.bad, 0, number)
        return pa.array(kind.names or [""], pa.string()).take(pa.array(number))
    if kind.form == "int":
        cursor.refuse((number < -(2**31)) | (number >= 2**31))
    return whole_numbers(cursor, number, kind)


def whole_numbers(cursor: Cursor, number: Ints, kind: AvroType) -> pa.Array:
    """Integers as a column of an int or a long."""
    if kind.column in _DAY:
        cursor.refuse((number < 0) | (number >= _DAY[kind.column]))
    number = np.where(cursor.bad, 0, number)
    return pa.array(number.astype(np.int32) if kind.form == "int" else number).cast(kind.column)


def _nullable(cursor: Cursor, kind: AvroType) -> pa.Array:
    branch = cursor.varlong()
    cursor.refuse((branch < 0) | (branch > 1))
    has = (branch != kind.null_branch) & ~cursor.bad
    if has.all():
        return avro_values(cursor, kind.parts[0])
    present = np.flatnonzero(has)
    part = cursor.select(present)
    values = avro_values(part, kind.parts[0])
    cursor.put_back(present, part)
    return spread(values, has)


def _union(cursor: Cursor, kind: AvroType) -> pa.Array:
    """A struct with a field for each branch; the value of a union of one branch is that of the branch."""
    branch = cursor.varlong()
    cursor.refuse((branch < 0) | (branch >= len(kind.parts)))
    if len(kind.parts) == 1:
        return avro_values(cursor, kind.parts[0])
    columns = []
    absent = cursor.bad.copy()
    for number, part in enumerate(kind.parts):
        has = (branch == number) & ~cursor.bad
        if part.form == "null":
            absent |= has
            continue
        rows = np.flatnonzero(has)
        some = cursor.select(rows)
        columns.append(spread(avro_values(some, part), has))
        cursor.put_back(rows, some)
    return pa.StructArray.from_arrays(columns, fields=list(kind.column), mask=pa.array(absent))


def spread(values: pa.Array, has: Bools) -> pa.Array:
    """The values, one after the other, of the cells that have one; null for the others."""
    return values if has.all() else values.take(pa.array(np.cumsum(has) - 1, mask=~has))


def _decimals(cells: Cells, kind: AvroType, cursor: Cursor) -> pa.Array:
    """Decimals in big-endian two's complement of any size that fits."""
    cursor.refuse(~cursor.bad & ((cells.size < 1) | (cells.size > _DECIMAL_BYTES)))
    size = np.where(cursor.bad, 0, cells.size)
    negative = cells.first_bytes() > 0x7F
    digits = np.where(negative, np.uint8(0xFF), np.uint8(0))[:, None].repeat(_DECIMAL_BYTES, 1)
    for place in range(int(size.max()) if len(size) else 0):
        has = size > place
        digits[has, place] = gather(cells.data, (cells.start + size - 1 - place)[has], "u1")
    digits[size == 0] = 0
    found = pa.Array.from_buffers(kind.column, len(size), [None, pa.py_buffer(np.ascontiguousarray(digits))])
    whole = pa.Array.from_buffers(_WIDEST, len(size), found.buffers())
    limit = pa.scalar(Decimal(10**kind.column.precision - 1), _WIDEST)
    beyond = pc.or_(pc.greater(whole, limit), pc.less(whole, pc.negate(limit)))
    cursor.refuse(beyond.to_numpy(zero_copy_only=False))
    return found


def blocks(cursor: Cursor, kind: AvroType, read: Callable[[Cursor], pa.Array]) -> pa.Array:
    """Arrays, and maps, whose entries have a name first; ``read`` reads the entries or their values."""
    entries: list[pa.Array] = []
    names: list[pa.Array] = []
    rows: list[Ints] = []
    left = np.zeros(len(cursor.at), np.int64)
    going = np.flatnonzero(~cursor.bad)
    while len(going):
        fresh = going[left[going] == 0]
        left[fresh] = _counts(cursor, fresh)
        going = going[(left[going] > 0) & ~cursor.bad[going]]
        part = cursor.select(going)
        before = part.at.copy()
        if kind.form == "map":
            names.append(part.take(part.varlong()).binary().cast(pa.string()))
        entries.append(read(part))
        part.refuse(part.at == before)  # entries without bytes could be any number
        cursor.put_back(going, part)
        rows.append(going)
        left[going] -= 1
        going = going[~part.bad]
    row = np.concatenate([np.empty(0, np.int64), *rows])
    order = pa.array(np.argsort(row, kind="stable"))
    offsets = pa.array(ends_of(np.bincount(row, minlength=len(cursor.at))), pa.int32())
    values = _in_order(entries, order, kind.parts[0].column)
    if kind.form == "map":
        return pa.MapArray.from_arrays(offsets, _in_order(names, order, pa.string()), values, type=kind.column)
    return pa.ListArray.from_arrays(offsets, values, type=kind.column)


def _in_order(parts: list[pa.Array], order: pa.Array, kind: pa.DataType) -> pa.Array:
    return pa.concat_arrays(parts).take(order) if parts else pa.array([], kind)


def _counts(cursor: Cursor, rows: Ints) -> Ints:
    """The counts of the next blocks of these cells."""
    part = cursor.select(rows)
    counts = part.varlong()
    sized: Bools = counts < 0
    if sized.any():
        some = np.flatnonzero(sized)
        behind = part.select(some)
        behind.varlong()  # the size of the block
        part.put_back(some, behind)
    cursor.put_back(rows, part)
    return np.where(part.bad, 0, np.abs(counts))
