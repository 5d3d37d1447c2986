"""Protobuf messages as columns of structs, decoded with one message of a descriptor set or of a registry.

    protobuf:FILE#package.Message         00 | schema id:int32 | indexes | message   as Confluent's serializers write it
    protobuf-plain:FILE#package.Message   message

``indexes`` say which message of its file a value is: a count and so many zig-zag varints, or a count of 0 for the first
message. Values of several schemas may follow each other, because messages evolve: unknown fields are skipped, absent
ones are null or have their default. Where the schemas of the ids are given (`schemas.given_schemas`), the index counts
in the file of the value's own schema, and a schema whose values are no such messages of the reader's is refused.

As in Protobuf's own parsers the last value of a field counts, messages that occur repeatedly are merged, and the last
member of a oneof clears the others.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statestore.formats.bytes.byte_columns import Cells, ends_of, gather
from statestore.formats.bytes.column_cursor import Cursor
from statestore.formats.bytes.field_reader import varint_reader
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.kafka.columns.origins import Origin, first_wrong
from statestore.formats.kafka.columns.registry_frames import WITHOUT_ID, by_id, refuse_unread, schema_of, unframed
from statestore.formats.kafka.columns.serde_form import CellSerde, Decode
from statestore.formats.kafka.schemas.given_schemas import SchemaSet, set_of_text
from statestore.formats.kafka.schemas.protobuf_schema import (
    BYTES,
    FIXED32,
    FIXED64,
    MOST_NUMBER,
    PREFIX,
    VARINT,
    ProtoField,
    ProtoMessage,
    difference,
    message_of,
    parse_message,
)
from statestore.formats.kafka.schemas.schema_ids import CONFLUENT
from statestore.formats.kernels.arrays import Bools, Bytes, Ints

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
    found = set_of_text(text.rpartition("#")[0])
    if found is not None:
        return _several(name, found, text.rpartition("#")[2])
    message, framed = parse_message(text), f"{prefix}:" == PREFIX

    def decode(cells: Cells, origin: Origin) -> pa.Array:
        return _decoded(message, _behind_index(message, _unframed(cells, origin), origin) if framed else cells, origin)

    return CellSerde(name, message.column, _of_present(decode))


def _of_present(decode: Decode) -> Decode:
    """Decode the cells that are not null; the others stay null."""

    def decode_all(cells: Cells, origin: Origin) -> pa.Array:
        missing = cells.missing
        if missing is None:
            return decode(cells, origin)
        values = decode(cells.select(~missing), origin.select(~missing))
        return values.take(pa.array(np.cumsum(~missing) - 1, mask=missing))

    return decode_all


def _several(name: str, found: SchemaSet, message: str) -> CellSerde:
    if found.reader is None or not message:
        refuse = functools.partial(refuse_unread, found=found, prefix="protobuf", message="#package.Message")
        return CellSerde(name, pa.binary(), _of_present(refuse))
    reader = message_of(found.reader, message)

    def decode(cells: Cells, origin: Origin) -> pa.Array:
        values = _unframed(cells, origin)
        start, size = values.start.copy(), values.size.copy()
        for lot in by_id(cells, CONFLUENT):
            texts = schema_of(
                found, "PROTOBUF", CONFLUENT, lot.number, lot.first, origin, lambda place: f"protobuf:{place}#{message}"
            )
            writer = _writer(texts, reader, lot.number, found, origin)
            part = _behind_index(writer, values.select(lot.rows), origin.select(lot.rows))
            start[lot.rows], size[lot.rows] = part.start, part.size
        return _decoded(reader, Cells(values.data, start, size), origin)

    return CellSerde(name, reader.column, _of_present(decode))


def _writer(
    texts: tuple[str, ...], reader: ProtoMessage, number: int, found: SchemaSet, origin: Origin
) -> ProtoMessage:
    """The reader's message in the schema of an id. Raises InvalidInputError WRONG_SCHEMA for one that differs."""
    try:
        writer = message_of(texts, reader.name)
    except InvalidInputError as error:
        why = error.message
    else:
        differs = difference(writer, reader)
        if differs is None:
            return writer
        why = differs
    raise InvalidInputError(
        ErrorCode.WRONG_SCHEMA,
        f"{origin.column}: a value of schema id {number} cannot be read by {found.shown_reader(CONFLUENT)}: {why}; "
        f"name another reader (protobuf:reader=ID,...#{reader.name} or reader=FILE), or one descriptor set alone "
        f"(protobuf:FILE#{reader.name}), by which values of all ids are read as Protobuf reads them",
    )


def _unframed(cells: Cells, origin: Origin) -> Cells:
    remedy = f"name another serde, protobuf-plain:... for {WITHOUT_ID}"
    return unframed(cells, CONFLUENT, origin, "a Protobuf message", remedy)


def _behind_index(message: ProtoMessage, cells: Cells, origin: Origin) -> Cells:
    """The messages behind their indexes."""
    whole = Cursor(cells)
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


def index_size(cells: Cells) -> Ints:
    """The sizes of the indexes in front of messages, which `protobuf_serde` has accepted."""
    whole = Cursor(cells)
    left = whole.varlong()
    while (left > 0).any():
        rows = np.flatnonzero(left > 0)
        part = whole.select(rows)
        part.varlong()
        whole.put_back(rows, part)
        left[rows] = np.where(part.bad, 0, left[rows] - 1)
    found: Ints = whole.at - cells.start
    return found


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


# Fields of many Protobuf messages, as they are written: their numbers, and where their values lie.
#
#     message    (tag | value)*                    tag: varint of  field number << 3 | wire type
#     value      0: varint | 1: 8 bytes | 2: length:varint | so many bytes | 5: 4 bytes         numbers little-endian
#
# (protobuf.dev, "Encoding".) Groups, wire types 3 and 4, are not read: a message with one is bad.


# Always in columns, a message of 2,000 fields takes 28 times as long; never, 20,000 messages take 12 times as long.
_FEW_CELLS = 8
_MOST_VARINT_BYTES = 10

Unsigned = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class WireFields:
    """Fields of messages, in the order of the messages, and of one message as they are written.

    ``row`` is the message, ``number`` and ``wire`` the tag. ``value`` is a varint; other values are the ``size`` bytes
    of ``data`` at ``start``.
    """

    data: Bytes
    row: Ints
    number: Ints
    wire: Ints
    value: Unsigned
    start: Ints
    size: Ints

    def __len__(self) -> int:
        return len(self.row)

    def select(self, which: Bools | Ints) -> WireFields:
        """The fields at these positions, or where the mask is true."""
        names = ("row", "number", "wire", "value", "start", "size")
        return replace(self, **{name: getattr(self, name)[which] for name in names})

    def cells(self) -> Cells:
        """The bytes of fields that have a length."""
        return Cells(self.data, self.start, self.size)

    def merged(self, rows: Ints) -> Cells:
        """The bytes of all fields of each message in ``rows``, one after the other: so messages are merged."""
        if len(rows) == len(self):
            return self.cells()
        data, offsets = self.cells().content()
        first = np.searchsorted(self.row, rows)
        last = np.searchsorted(self.row, rows, "right")
        return Cells(data, offsets[first], offsets[last] - offsets[first])


def wire_fields(cells: Cells) -> tuple[WireFields, Bools]:
    """The fields of each cell, and which cells are no messages; of those some fields may be there."""
    cursor = Cursor(cells)
    found: list[tuple[Ints, Ints, Ints, Unsigned, Ints, Ints]] = []
    going = np.flatnonzero(~cursor.bad & (cursor.at < cursor.stop))
    while len(going) > _FEW_CELLS:
        part = cursor.select(going)
        found.append((going, *_next_field(part)))
        cursor.put_back(going, part)
        going = going[~part.bad & (part.at < part.stop)]
    found += [_fields_of_one(cursor, one) for one in going.tolist()]  # passes over a few cells cost more
    nothing = np.empty(0, np.int64)
    empty = (nothing, nothing, nothing, nothing.astype(np.uint64), nothing, nothing)
    row, number, wire, value, start, size = (np.concatenate(parts) for parts in zip(empty, *found, strict=True))
    fields = WireFields(cells.data, row, number, wire, value, start, size)
    return fields.select(np.argsort(row, kind="stable")), cursor.bad


def _next_field(part: Cursor) -> tuple[Ints, Ints, Unsigned, Ints, Ints]:
    tag = part.unsigned()
    number, wire = (tag >> np.uint64(3)).astype(np.int64), (tag & np.uint64(7)).astype(np.int64)
    part.refuse((number == 0) | (number > MOST_NUMBER))
    value = np.zeros(len(tag), np.uint64)
    start, size = part.at.copy(), np.zeros(len(tag), np.int64)
    known = np.zeros(len(tag), bool)
    for form in (VARINT, BYTES, FIXED64, FIXED32):
        chosen = wire == form
        if not chosen.any():
            continue
        known |= chosen
        some = np.flatnonzero(chosen)
        each = part if len(some) == len(tag) else part.select(some)
        if form == VARINT:
            value[some] = each.unsigned()
        else:
            sizes = np.full(len(some), _WIDTHS[form]) if form in _WIDTHS else _sizes(each)
            bytes_of = each.take(sizes)
            start[some], size[some] = bytes_of.start, bytes_of.size
        if each is not part:
            part.put_back(some, each)
    part.refuse(~known)
    number = np.where(part.bad, 0, number)
    return number, wire, value, start, size


def _sizes(part: Cursor) -> Ints:
    sizes = part.unsigned()
    part.refuse(sizes > np.uint64(2**31 - 1))
    return np.where(part.bad, 0, sizes).astype(np.int64)


class _NoNumber(Exception):
    """Bytes that are no number of 64 bits."""


_varint = varint_reader(lambda _: _NoNumber())


def _fields_of_one(cursor: Cursor, row: int) -> tuple[Ints, Ints, Ints, Unsigned, Ints, Ints]:
    at, stop, data = int(cursor.at[row]), int(cursor.stop[row]), cursor.data.data
    numbers, wires, values, starts, sizes = [], [], [], [], []
    try:
        while at < stop:
            tag, at = _varint(data, at, stop)
            number, wire, value, size = tag >> 3, tag & 7, 0, _WIDTHS.get(tag & 7, 0)
            if wire == VARINT:
                value, at = _varint(data, at, stop)
            elif wire == BYTES:
                size, at = _varint(data, at, stop)
            elif not size:
                at = stop + 1
            if not 0 < number <= MOST_NUMBER or size > stop - at:
                at = stop + 1
                break
            numbers.append(number)
            wires.append(wire)
            values.append(value)
            starts.append(at)
            sizes.append(size)
            at += size
    except _NoNumber:
        at = stop + 1
    cursor.bad[row] = at != stop
    ints = (np.array(each, np.int64) for each in (numbers, wires, starts, sizes))
    number_, wire_, start_, size_ = ints
    return np.full(len(numbers), row), number_, wire_, np.array(values, np.uint64), start_, size_


def packed_varints(cells: Cells) -> tuple[Ints, Unsigned, Bools]:
    """The varints in each cell: (how many, the numbers one after the other, cells with other bytes)."""
    data, offsets = cells.content()
    ends = np.flatnonzero(data < 0x80)
    filled = cells.size > 0
    bad = np.zeros(len(cells), bool)
    bad[filled] = data[offsets[1:][filled] - 1] > 0x7F
    owner = np.searchsorted(offsets, ends, "right") - 1
    first = np.maximum(np.append(0, ends[:-1] + 1)[: len(ends)], offsets[owner])
    length = ends - first + 1
    long = (length > _MOST_VARINT_BYTES) | ((length == _MOST_VARINT_BYTES) & (data[ends] > 1))
    bad[owner[long]] = True
    numbers = np.zeros(len(ends), np.uint64)
    for place in range(min(int(length.max(initial=0)), _MOST_VARINT_BYTES)):
        has = np.flatnonzero(length > place)
        bits = (data[first[has] + place] & np.uint8(0x7F)).astype(np.uint64)
        numbers[has] |= bits << np.uint64(7 * place)
    return np.bincount(owner, minlength=len(cells)), numbers, bad


def packed_places(cells: Cells, width: int) -> tuple[Ints, Ints, Bools]:
    """The positions of numbers of ``width`` bytes in each cell: (how many, positions, cells with other bytes)."""
    bad = cells.size % width != 0
    counts = np.where(bad, 0, cells.size // width)
    offsets = ends_of(counts)
    places = np.repeat(cells.start - width * offsets[:-1], counts) + width * np.arange(offsets[-1])
    return counts, places, bad
