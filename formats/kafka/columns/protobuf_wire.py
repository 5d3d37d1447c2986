"""Fields of many Protobuf messages, as they are written: their numbers, and where their values lie.

    message    (tag | value)*                    tag: varint of  field number << 3 | wire type
    value      0: varint | 1: 8 bytes | 2: length:varint | so many bytes | 5: 4 bytes         numbers little-endian

(protobuf.dev, "Encoding".) Groups, wire types 3 and 4, are not read: a message with one is bad.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from statestore.formats.bytes.byte_columns import Cells, ends_of
from statestore.formats.bytes.column_cursor import Cursor
from statestore.formats.bytes.field_reader import varint_reader
from statestore.formats.kafka.schemas.protobuf_schema import BYTES, FIXED32, FIXED64, VARINT
from statestore.formats.kernels.arrays import Bools, Bytes, Ints

_FEW_CELLS = 8
_MOST_NUMBER = (1 << 29) - 1
_FIXED = {FIXED64: 8, FIXED32: 4}
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
    part.refuse((number == 0) | (number > _MOST_NUMBER))
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
            sizes = np.full(len(some), _FIXED[form]) if form in _FIXED else _sizes(each)
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
            number, wire, value, size = tag >> 3, tag & 7, 0, _FIXED.get(tag & 7, 0)
            if wire == VARINT:
                value, at = _varint(data, at, stop)
            elif wire == BYTES:
                size, at = _varint(data, at, stop)
            elif not size:
                at = stop + 1
            if not 0 < number <= _MOST_NUMBER or size > stop - at:
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
