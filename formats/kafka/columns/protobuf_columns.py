"""Protobuf messages as columns of structs, decoded with one message of a descriptor set.

    protobuf:FILE#package.Message         00 | schema id:int32 | indexes | message   as Confluent's serializers write it
    protobuf-plain:FILE#package.Message   message

``indexes`` say which message of its file a value is: a count and so many zig-zag varints, or a count of 0 for the first
message. Values of several schemas may follow each other, because messages evolve: unknown fields are skipped, absent
ones are null or have their default. As in Protobuf's own parsers the last value of a field counts, messages that occur
repeatedly are merged, and the last member of a oneof clears the others.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statestore.formats.bytes.byte_columns import Cells, ends_of, gather
from statestore.formats.bytes.column_cursor import Cursor
from statestore.formats.kafka.columns.origins import Origin, first_wrong
from statestore.formats.kafka.columns.protobuf_wire import WireFields, packed_places, packed_varints, wire_fields
from statestore.formats.kafka.columns.serde_form import CellSerde
from statestore.formats.kafka.schemas.protobuf_schema import (
    BYTES,
    FIXED32,
    FIXED64,
    PREFIX,
    VARINT,
    ProtoField,
    ProtoMessage,
    parse_message,
)
from statestore.formats.kernels.arrays import Bools, Bytes, Ints

_MAGIC_BYTES = 5  # 00 | schema id:int32
_WIDTHS = {FIXED64: 8, FIXED32: 4}
_FIXED_FORMS = {
    "double": "<f8",
    "float": "<f4",
    "fixed64": "<u8",
    "sfixed64": "<i8",
    "fixed32": "<u4",
    "sfixed32": "<i4",
}
_LOW = np.uint64(0xFFFFFFFF)
_DECIMAL_WORDS = 2


def protobuf_serde(name: str) -> CellSerde:
    """The serde "protobuf:CONTENT#MESSAGE" or "protobuf-plain:...". Errors as `parse_message`."""
    prefix, text = name.split(":", 1)
    message, framed = parse_message(text), f"{prefix}:" == PREFIX

    def decode(cells: Cells, origin: Origin) -> pa.Array:
        missing = cells.missing
        present = cells if missing is None else cells.select(~missing)
        at = origin if missing is None else origin.select(~missing)
        values = _decoded(message, _unframed(message, present, at) if framed else present, at)
        return values if missing is None else values.take(pa.array(np.cumsum(~missing) - 1, mask=missing))

    return CellSerde(name, message.column, decode)


def _unframed(message: ProtoMessage, cells: Cells, origin: Origin) -> Cells:
    """The messages behind schema ids and indexes."""
    framed = (cells.size > _MAGIC_BYTES) & (cells.first_bytes() == 0)
    expected = "a Protobuf message behind 00, the id of its schema and its index"
    origin.refuse(cells, ~framed, expected, "name another serde, protobuf-plain:... for messages without an id")
    whole = Cursor(cells.cut(_MAGIC_BYTES))
    count = whole.varlong()
    fits = (count == 0) & ((0,) in message.paths)
    for path in message.paths:
        rows = np.flatnonzero(count == len(path))
        part = whole.select(rows)
        same = np.ones(len(rows), bool)
        for index in path:
            same &= part.varlong() == index
        same &= ~part.bad
        fits[rows[same]] = True
        whole.at[rows[same]] = part.at[same]
    place = "/".join(map(str, message.paths[-1]))
    expected = f"the index {place}, which message {message.name} has in its file"
    origin.refuse(cells, ~fits | whole.bad, expected, "name the message that is written there")
    return whole.rest()


def _decoded(message: ProtoMessage, cells: Cells, origin: Origin) -> pa.Array:
    expected = f"a Protobuf message {message.name}"
    try:
        found, bad = _messages(message, cells)
    except pa.ArrowInvalid:  # text that is not UTF-8
        wrong = np.zeros(len(cells), bool)
        wrong[first_wrong(len(cells), lambda index: _fits(message, cells.select(np.array([index]))))] = True
        origin.refuse(cells, wrong, expected)
        raise
    origin.refuse(cells, bad, expected)
    return found


def _fits(message: ProtoMessage, cell: Cells) -> bool:
    try:
        return not _messages(message, cell)[1].any()
    except pa.ArrowInvalid:
        return False


def _messages(message: ProtoMessage, cells: Cells) -> tuple[pa.StructArray, Bools]:
    """A struct of each cell, and which cells are no such messages; their structs are any."""
    found, bad = wire_fields(cells)
    of_fields = {field.number: _of_field(found, field) for field in message.fields}
    for group in {field.oneof for field in message.fields if field.oneof is not None}:
        _keep_last_member([field.number for field in message.fields if field.oneof == group], of_fields, found)
    columns = [_column(field, found.select(of_fields[field.number]), len(cells), bad) for field in message.fields]
    if not columns:
        return pa.array([{}] * len(cells), message.column), bad
    return pa.StructArray.from_arrays(columns, fields=list(message.column)), bad


def _of_field(found: WireFields, field: ProtoField) -> Ints:
    """Positions of a field's values; what is written in another form counts as unknown."""
    is_form = found.wire == field.wire
    if field.shape == "list" and field.wire != BYTES:
        is_form |= found.wire == BYTES  # packed, or not, whatever the schema says
    return np.flatnonzero((found.number == field.number) & is_form)


def _keep_last_member(numbers: list[int], of_fields: dict[int, Ints], found: WireFields) -> None:
    """Leave out the members of a oneof that a later other one has cleared."""
    if len(numbers) < 2:
        return
    places = np.sort(np.concatenate([of_fields[number] for number in numbers]))
    if not len(places):
        return
    row, number = found.row[places], found.number[places]
    last = np.zeros(int(row[-1]) + 1, np.int64)
    last[row] = number  # the last one of a row stays
    cleared_by = np.full(int(row[-1]) + 1, -1)
    others = np.flatnonzero(number != last[row])
    cleared_by[row[others]] = others
    kept = np.arange(len(places)) > cleared_by[row]
    for each in numbers:
        of_fields[each] = places[kept & (number == each)]


def _column(field: ProtoField, found: WireFields, count: int, bad: Bools) -> pa.Array:
    """The column of a field in ``count`` messages; messages that are ``bad`` are marked."""
    if field.shape == "list":
        return _lists(field, found, count, bad)
    if field.shape == "map":
        return _maps(field, found, count, bad)
    if field.closed:
        found = found.select(_has_symbol(field, found.value))
    last = np.full(count, -1)
    last[found.row] = np.arange(len(found))
    rows = np.flatnonzero(last >= 0)
    if field.form == "message":
        values = _parts(field, found.merged(rows), rows, bad)
    else:
        chosen = found.select(last[rows])
        values = _scalars(field, chosen.data, chosen.value, chosen.start, chosen.size)
    if len(rows) == count:
        return values
    present = np.zeros(count, bool)
    present[rows] = True
    column = values.take(pa.array(np.cumsum(present) - 1, mask=~present))
    return column if field.has_presence else _filled(field, column)


def _parts(field: ProtoField, cells: Cells, rows: Ints, bad: Bools) -> pa.Array:
    """Messages inside those of ``rows``; one inside itself stays bytes."""
    if field.message is None:
        return cells.binary()
    values, wrong = _messages(field.message, cells)
    bad[rows[wrong]] = True
    return values


def _filled(field: ProtoField, column: pa.Array) -> pa.Array:
    """The column with the default of its type in place of nulls: of a message, one without fields."""
    if field.form == "message" and field.message is not None:
        nothing = Cells(np.empty(0, np.uint8), np.zeros(1, np.int64), np.zeros(1, np.int64))
        empty, _ = _messages(field.message, nothing)
        places = np.where(column.is_valid().to_numpy(zero_copy_only=False), np.arange(len(column)), len(column))
        return pa.concat_arrays([column, empty]).take(pa.array(places))
    if field.form == "enum":
        return column.fill_null(field.first)
    kind = column.type
    default = "" if field.form == "string" else b"" if kind == pa.binary() else 0
    return column.fill_null(pa.scalar(default, pa.int64()).cast(kind) if default == 0 else pa.scalar(default, kind))


def _lists(field: ProtoField, found: WireFields, count: int, bad: Bools) -> pa.Array:
    if field.wire == BYTES:
        row = found.row
        if field.form == "message":
            values = _parts(field, found.cells(), row, bad)
        else:
            values = _scalars(field, found.data, found.value, found.start, found.size)
    else:
        row, numbers, places = _unpacked(field, found, bad)
        if field.closed:
            known = _has_symbol(field, numbers)
            row, numbers, places = row[known], numbers[known], places[known]
        values = _scalars(field, found.data, numbers, places, np.zeros(len(row), np.int64))
    offsets = pa.array(ends_of(np.bincount(row, minlength=count)), pa.int32())
    return pa.ListArray.from_arrays(offsets, values, type=field.column)


def _unpacked(field: ProtoField, found: WireFields, bad: Bools) -> tuple[Ints, npt.NDArray[np.uint64], Ints]:
    """(row, varint, position) of each number of a list, which may be packed."""
    packed = np.flatnonzero(found.wire == BYTES)
    if not len(packed):
        return found.row, found.value, found.start
    cells = found.select(packed).cells()
    numbers: npt.NDArray[np.uint64] = np.empty(0, np.uint64)
    if field.wire == VARINT:
        counts, numbers, wrong = packed_varints(cells)
        places = np.zeros(len(numbers), np.int64)
    else:
        counts, places, wrong = packed_places(cells, _WIDTHS[field.wire])
        numbers = np.zeros(len(places), np.uint64)
    bad[found.row[packed[wrong]]] = True
    single = np.flatnonzero(found.wire != BYTES)
    of_field = np.concatenate([single, np.repeat(packed, counts)])
    order = np.argsort(of_field, kind="stable")
    numbers = np.concatenate([found.value[single], numbers])[order]
    return found.row[of_field[order]], numbers, np.concatenate([found.start[single], places])[order]


def _maps(field: ProtoField, found: WireFields, count: int, bad: Bools) -> pa.Array:
    """Maps; the last entry of a key counts, as it does in Protobuf."""
    assert field.message is not None
    entries = _parts(field, found.cells(), found.row, bad)
    keys, items = entries.field(0), entries.field(1)
    codes = keys.dictionary_encode().indices.to_numpy()
    each = found.row * (int(codes.max(initial=0)) + 1) + codes
    _, last = np.unique(each[::-1], return_index=True)
    kept = np.sort(len(each) - 1 - last)
    offsets = pa.array(ends_of(np.bincount(found.row[kept], minlength=count)), pa.int32())
    return pa.MapArray.from_arrays(offsets, keys.take(pa.array(kept)), items.take(pa.array(kept)), type=field.column)


def _has_symbol(field: ProtoField, numbers: npt.NDArray[np.uint64]) -> Bools:
    return np.isin(_signed32(numbers), list(field.symbols))


def _scalars(field: ProtoField, data: Bytes, numbers: npt.NDArray[np.uint64], places: Ints, sizes: Ints) -> pa.Array:
    """Values of a type that is no message: varints, or what is in ``data`` at these places."""
    form = field.form
    kind = field.column.value_type if field.shape == "list" else field.column
    if form in ("string", "bytes", "message"):
        return Cells(data, places, sizes).binary().cast(kind)
    if form == "enum":
        return _names(field, _signed32(numbers))
    found = gather(data, places, _FIXED_FORMS[form]) if form in _FIXED_FORMS else _VARINTS[form](numbers)
    if pa.types.is_decimal(kind):
        words = np.zeros((len(found), _DECIMAL_WORDS), "<u8")
        words[:, 0] = found
        return pa.Array.from_buffers(kind, len(found), [None, pa.py_buffer(words)])
    return pa.array(found).cast(kind)


def _names(field: ProtoField, numbers: npt.NDArray[np.int32]) -> pa.Array:
    distinct, codes = np.unique(numbers, return_inverse=True)
    names = [field.symbols.get(number, str(number)) for number in distinct.tolist()]
    return pa.array(names, pa.string()).take(pa.array(codes))


def _signed32(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.int32]:
    return (numbers & _LOW).astype(np.uint32).view(np.int32)


def _zig_zag(numbers: npt.NDArray[np.uint64]) -> Ints:
    return (numbers >> np.uint64(1)).astype(np.int64) ^ -(numbers & np.uint64(1)).astype(np.int64)


_VARINTS: dict[str, Callable[[npt.NDArray[np.uint64]], npt.NDArray[np.generic]]] = {
    "int32": _signed32,
    "int64": lambda numbers: numbers.view(np.int64),
    "uint32": lambda numbers: (numbers & _LOW).astype(np.int64),
    "uint64": lambda numbers: numbers,
    "sint32": lambda numbers: _zig_zag(numbers & _LOW).astype(np.int32),
    "sint64": _zig_zag,
    "bool": lambda numbers: numbers != 0,
}
