"""Record headers as columns.

Stores with headers keep them in front of the value (KIP-1271; ``HeadersSerializer``). Lengths are zig-zag varints:

    count | (name length | name | value length, -1 for null | value) *        no bytes at all without headers

Changelog records carry them as record headers, among which Kafka may put its own (`user_headers`).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.bytes.byte_columns import Cells, ends_of, joined
from statestore.formats.bytes.column_cursor import Cursor
from statestore.formats.kafka.columns.origins import Origin
from statestore.formats.kernels.arrays import Bools, Ints

HEADER = pa.struct([pa.field("name", pa.string()), pa.field("value", pa.binary())])
HEADERS = pa.list_(HEADER)

VERSION_HEADER, POSITION_HEADER = "v", "c"  # added when Kafka's internal consistency option is on
CONSISTENCY_VERSION = b"\x00"
_NO_NAMES = pa.nulls(0, pa.string())


def empty_headers(count: int) -> pa.ListArray:
    """A column of records without headers."""
    nothing = pa.StructArray.from_arrays([_NO_NAMES, pa.array([], pa.binary())], fields=list(HEADER))
    return pa.ListArray.from_arrays(pa.array(np.zeros(count + 1, np.int32)), nothing, type=HEADERS)


def read_sized_headers(cursor: Cursor) -> Cells:
    """Read ``length:varint | headers``, the prefix of a value with headers; returns the headers, still encoded."""
    all_have_bytes = len(cursor.at) > 0 and not cursor.bad.any() and bool((cursor.at < cursor.stop).all())
    if all_have_bytes and not cursor.data[cursor.at].any():  # no row has headers
        begin, cursor.at = cursor.at, cursor.at + 1
        return Cells(cursor.data, begin, np.zeros(len(begin), np.int64))
    return cursor.take(cursor.varint())


def header_column(cells: Cells, origin: Origin) -> pa.ListArray:
    """Decode headers. Raises CorruptError KAFKA_BYTES about the first row whose bytes are no headers."""
    has = np.flatnonzero(cells.size)
    if not len(has):
        return empty_headers(len(cells))
    cursor = Cursor(cells.select(has))
    names, values, row = _entries(cursor)
    cursor.end()
    _refuse(cells, has[cursor.bad], origin)
    try:
        text = names.binary().cast(pa.string())
    except pa.ArrowInvalid:
        wrong = [not _is_text(names.cell(index)) for index in range(len(names))]
        _refuse(cells, has[row[np.array(wrong)]], origin)
        raise
    counts = np.zeros(len(cells), np.int64)
    counts[has] = np.bincount(row, minlength=len(has))
    headers = pa.StructArray.from_arrays([text, values.binary()], fields=list(HEADER))
    return pa.ListArray.from_arrays(pa.array(ends_of(counts), pa.int32()), headers, type=HEADERS)


def _entries(cursor: Cursor) -> tuple[Cells, Cells, Ints]:
    """(names, values, row) of all headers, row by row."""
    left = cursor.varint()
    cursor.refuse((left < 0) | (left > (cursor.stop - cursor.at) // 2))
    left[cursor.bad] = 0
    going = np.flatnonzero(left)
    rows, names, values = [going[:0]], [cursor.select(going[:0]).rest()], [cursor.select(going[:0]).rest()]
    while len(going):
        part = cursor.select(going)
        name = part.take(part.varint())
        value = part.nullable(part.varint())
        cursor.put_back(going, part)
        rows.append(going)
        names.append(name)
        values.append(value)
        left[going] -= 1
        going = going[(left[going] > 0) & ~part.bad]
    row = np.concatenate(rows)
    order = np.argsort(row, kind="stable")
    return joined(names, order), joined(values, order), row[order]


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _refuse(cells: Cells, rows: Ints, origin: Origin) -> None:
    bad = np.zeros(len(cells), bool)
    bad[rows] = True
    origin.named("headers").refuse(cells, bad, "record headers (KIP-1271)", "choose another kind of store")


def user_headers(headers: pa.ListArray) -> pa.ListArray:
    """The headers of records without those that Kafka adds for consistency: ``v`` = 00 and ``c``.

    ``headers`` is a column of type `HEADERS`; a null list becomes an empty one.
    """
    offsets, entries = _flat(headers)
    names, values = entries.field("name"), entries.field("value")
    mark = pc.and_(pc.equal(names, VERSION_HEADER), pc.fill_null(pc.equal(values, CONSISTENCY_VERSION), False))
    marked = _mask(mark)
    if not marked.any():
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), entries, type=HEADERS)
    row = np.repeat(np.arange(len(headers)), np.diff(offsets))
    consistent = np.zeros(len(headers), bool)
    consistent[row[marked]] = True
    own = _mask(pc.is_in(names, pa.array([VERSION_HEADER, POSITION_HEADER])))
    kept = np.flatnonzero(~(own & consistent[row]))
    counts = np.bincount(row[kept], minlength=len(headers))
    return pa.ListArray.from_arrays(pa.array(ends_of(counts), pa.int32()), entries.take(pa.array(kept)), type=HEADERS)


def last_header(headers: pa.ListArray, name: str) -> pa.BinaryArray:
    """The value of the last header of this name in each record; null without such a header, or if its value is null."""
    offsets, entries = _flat(headers)
    found = np.full(len(headers), -1, np.int64)
    where = np.flatnonzero(_mask(pc.equal(entries.field("name"), name)))
    row = np.repeat(np.arange(len(headers)), np.diff(offsets))
    np.maximum.at(found, row[where], where)
    return entries.field("value").take(pa.array(found, mask=found < 0))


def _flat(headers: pa.ListArray) -> tuple[Ints, pa.StructArray]:
    """(offsets from 0, headers of all records)."""
    counts: Ints = pc.fill_null(pc.list_value_length(headers), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    return ends_of(counts), headers.flatten()


def _mask(column: pa.BooleanArray) -> Bools:
    found: Bools = pc.fill_null(column, False).to_numpy(zero_copy_only=False)
    return found
