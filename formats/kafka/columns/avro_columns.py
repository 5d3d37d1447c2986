"""Avro values as columns, decoded with one schema, which is that of their writer.

    avro:SCHEMA         00 | schema id:int32 | value        as Confluent's serializers write it
    avro-plain:SCHEMA   value

A value must end where its cell ends. All values of a batch must have one schema id, because the columns are those of
one schema. Integers are zig-zag varints, floats little-endian; a union is its branch, then the value; arrays and maps
are blocks of a count and so many entries, and end with a count of 0 (a negative count is followed by the block's size).
"""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.bytes.byte_columns import Cells, ends_of, gather
from statestore.formats.bytes.column_cursor import Cursor
from statestore.formats.kafka.columns.origins import Origin, first_wrong
from statestore.formats.kafka.columns.serde_form import CellSerde
from statestore.formats.kafka.schemas.avro_schema import PREFIX, AvroType, parse_schema
from statestore.formats.kernels.arrays import Bools, Ints

_MAGIC_BYTES = 5  # 00 | schema id:int32
_DECIMAL_BYTES = 16
_WIDEST = pa.decimal128(38)
_DAY = {pa.time32("ms"): 86_400_000, pa.time64("us"): 86_400_000_000}
_FLOATS = {"float": "<f4", "double": "<f8"}


def avro_serde(name: str) -> CellSerde:
    """The serde "avro:SCHEMA" or "avro-plain:SCHEMA". Errors as `parse_schema`."""
    prefix, schema = name.split(":", 1)
    kind, framed = parse_schema(schema), f"{prefix}:" == PREFIX

    def decode(cells: Cells, origin: Origin) -> pa.Array:
        missing = cells.missing
        present = cells if missing is None else cells.select(~missing)
        at = origin if missing is None else origin.select(~missing)
        values = _decoded(kind, _unframed(present, at) if framed else present, at)
        return values if missing is None else values.take(pa.array(np.cumsum(~missing) - 1, mask=missing))

    return CellSerde(name, kind.column, decode)


def _unframed(cells: Cells, origin: Origin) -> Cells:
    """The values behind schema ids."""
    framed = (cells.size >= _MAGIC_BYTES) & (cells.first_bytes() == 0)
    remedy = "name another serde, avro-plain:... for values without an id"
    origin.refuse(cells, ~framed, "an Avro value behind 00 and the id of its schema", remedy)
    ids = cells.numbers(1, ">i4")
    other = ids != ids[:1]
    remedy = "read the values as bytes"
    if other.any():
        raise origin.error(
            int(other.argmax()),
            f"schema id {int(ids[other.argmax()])}",
            f"schema id {int(ids[0])} as in the rows before, because one schema was given",
            remedy,
        )
    return cells.cut(_MAGIC_BYTES)


def _decoded(kind: AvroType, cells: Cells, origin: Origin) -> pa.Array:
    expected = "a value of the given Avro schema"
    cursor = Cursor(cells)
    try:
        found = _values(cursor, kind)
    except pa.ArrowInvalid:  # text that is not UTF-8, a time of day or a decimal beyond its type
        wrong = np.zeros(len(cells), bool)
        wrong[first_wrong(len(cells), lambda index: _fits(kind, cells.select(np.array([index]))))] = True
        origin.refuse(cells, wrong, expected)
        raise
    cursor.end()
    origin.refuse(cells, cursor.bad, expected)
    return found


def _fits(kind: AvroType, cell: Cells) -> bool:
    cursor = Cursor(cell)
    try:
        _values(cursor, kind)
    except pa.ArrowInvalid:
        return False
    cursor.end()
    return not cursor.bad.any()


def _values(cursor: Cursor, kind: AvroType) -> pa.Array:
    """Read a value of each cell. Cells that are bad get any value."""
    form = kind.form
    if form == "null":
        return pa.nulls(len(cursor.at))
    if form == "nullable":
        return _nullable(cursor, kind)
    if form == "record":
        parts = [_values(cursor, part) for part in kind.parts]
        if not parts:
            return pa.array([{}] * len(cursor.at), kind.column)
        return pa.StructArray.from_arrays(parts, fields=list(kind.column))
    if form in ("array", "map"):
        return _blocks(cursor, kind)
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
    if kind.column in _DAY:
        cursor.refuse((number < 0) | (number >= _DAY[kind.column]))
    if kind.form == "int":
        cursor.refuse((number < -(2**31)) | (number >= 2**31))
        return pa.array(np.where(cursor.bad, 0, number).astype(np.int32)).cast(kind.column)
    return pa.array(number).cast(kind.column)


def _nullable(cursor: Cursor, kind: AvroType) -> pa.Array:
    branch = cursor.varlong()
    cursor.refuse((branch < 0) | (branch > 1))
    has = (branch != kind.null_branch) & ~cursor.bad
    if has.all():
        return _values(cursor, kind.parts[0])
    present = np.flatnonzero(has)
    part = cursor.select(present)
    values = _values(part, kind.parts[0])
    cursor.put_back(present, part)
    return values.take(pa.array(np.cumsum(has) - 1, mask=~has))


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


def _blocks(cursor: Cursor, kind: AvroType) -> pa.Array:
    """Arrays, and maps, whose entries have a name first."""
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
        entries.append(_values(part, kind.parts[0]))
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
