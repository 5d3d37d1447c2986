"""Buffered changes of suppressions and of stream-table joins with grace period, as columns.

    version 3       context | prior | old | new | buffer time:int64      old of length -2: as prior
    version 2       context | (length:int32 | change) | prior | buffer time
    version 1       buffer time | context | (length:int32 | change)
    version 0       buffer time | change                                 no context
    context         timestamp:int64 | offset:int64 | topic | partition:int32 | headers:int32 | (key | value)*
    change          old | new

Topics, keys and values are ``length:int32 | bytes``, length -1 for null. (``BufferValue``, ``ProcessorRecordContext``,
``InMemoryTimeOrderedKeyValueChangeBuffer``.) A suppression buffer exists only in its changelog, where the record header
``v`` holds the version; without it, it is 0. Releases 2.4.0, 2.4.1 and 2.5.0 wrote version 3 as 2. A join's buffer has
version 3, in the store without the buffer time, in the changelog with one that is always 0; its key has the time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.bytes.byte_columns import Cells, cells_of, ends_of, joined
from statestore.formats.bytes.column_cursor import Cursor
from statestore.formats.bytes.field_reader import NULL
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import UnsupportedError
from statestore.formats.kafka.columns.header_columns import HEADER, HEADERS
from statestore.formats.kafka.columns.origins import Origin, shown
from statestore.formats.kafka.columns.serde_columns import cell_serde
from statestore.formats.kafka.columns.serde_form import CellSerde
from statestore.formats.kafka.columns.time_columns import TIME, times, timestamps
from statestore.formats.kernels.arrays import Bools, Ints

NEWEST_VERSION = 3
_SAME_AS_PRIOR = -2
_GRACE_KEY = 13  # 00 | time:int64 | key | sequence:int32
_TIME_BYTES = 8
_REMEDY = "choose another kind of store"
Columns = dict[str, pa.Array]


@dataclass
class _Context:
    """The origins of buffered records: ``counts`` headers each, with ``names`` and ``values`` in the order of rows."""

    timestamp: Ints
    offset: Ints
    topic: Cells
    partition: Ints
    names: Cells
    values: Cells
    counts: Ints


@dataclass
class _Change:
    prior: Cells
    old: Cells
    new: Cells


def grace_columns(keys: pa.BinaryArray, values: pa.BinaryArray, key: CellSerde, value: CellSerde) -> Columns:
    """The columns of a join's buffer: ``key``, ``buffer_time``, ``sequence`` and those of `_value_columns`.

    A null value (a delete in a changelog) has null columns.
    """
    cells, origin = cells_of(keys), Origin("key", keys)
    expected = "a buffer key: 00 | time:int64 | key | sequence:int32"
    origin.refuse(cells, (cells.size < _GRACE_KEY) | (cells.first_bytes() != 0), expected, _REMEDY)
    rows = cells_of(values)
    cursor = Cursor(rows)
    context, change = _version_3(cursor)
    with_time = cursor.stop - cursor.at == _TIME_BYTES
    cursor.take(np.where(with_time, _TIME_BYTES, 0))
    cursor.end()
    deleted = rows.nulls
    origin.named("value").refuse(rows, cursor.bad & ~deleted, "a buffered change of version 3", _REMEDY)
    return {
        "key": key.decode(cells.cut(9, 4), origin),
        "buffer_time": times(cells.numbers(1, ">i8"), origin.named("buffer time")),
        "sequence": pa.array(cells.numbers(-4, ">i4"), pa.int32()),
        **_value_columns(context, change, deleted, value, origin),
    }


def suppression_columns(
    keys: pa.BinaryArray, values: pa.BinaryArray, versions: pa.BinaryArray, key: CellSerde, value: CellSerde
) -> Columns:
    """The columns of a suppression's changelog: ``key``, ``buffer_time`` and those of `_value_columns`.

    ``versions`` are the values of the record headers ``v``, null without one. Raises CorruptError KAFKA_BYTES about the
    first value that has not the form of its version, UnsupportedError BUFFER_VERSION for an unknown version.
    """
    origin, rows = Origin("value", keys), cells_of(values)
    deleted = rows.nulls
    marks = cells_of(versions)
    unmarked = marks.nulls
    number = np.where(unmarked, 0, marks.first_bytes())
    wrong = ~deleted & ~unmarked & ((marks.size != 1) | (number > NEWEST_VERSION))
    if wrong.any():
        raise UnsupportedError(
            ErrorCode.BUFFER_VERSION,
            f"header v of a record of a buffer's changelog: found {shown(marks.cell(int(wrong.argmax())))}, expected "
            "01, 02 or 03; choose another kind of store",
        )
    number = np.where(deleted, NEWEST_VERSION, number)
    parts = []
    for version in np.unique(number).tolist() or [NEWEST_VERSION]:
        row = np.flatnonzero(number == version)
        parts += _of_version(version, row, rows.select(row), origin)
    row = np.concatenate([part.row for part in parts])
    back = pa.array(np.argsort(row, kind="stable"))
    columns = [
        {
            "buffer_time": times(part.time, origin.select(part.row).named("buffer time"), deleted[part.row]),
            **_value_columns(part.context, part.change, deleted[part.row], value, origin.select(part.row)),
        }
        for part in parts
    ]
    found = {name: pa.concat_arrays([part[name] for part in columns]).take(back) for name in columns[0]}
    return {"key": key.decode(cells_of(keys), origin.named("key")), **found}


@dataclass
class _Part:
    """Changes of one version: those of ``row``."""

    row: Ints
    time: Ints
    context: _Context | None
    change: _Change


def _of_version(version: int, row: Ints, rows: Cells, origin: Origin) -> list[_Part]:
    found, bad = _decode(version, row, rows)
    if version == 2 and bad.any():
        # Nothing else marks the values of early releases, which wrote version 3 as 2.
        newer = np.flatnonzero(bad)
        parts = _of_version(3, row[newer], rows.select(newer), origin)
        older = np.flatnonzero(~bad)
        return [_decode(2, row[older], rows.select(older))[0], *parts]
    origin.select(row).refuse(rows, bad, f"a buffered change of version {version}", _REMEDY)
    return [found]


def _decode(version: int, row: Ints, rows: Cells) -> tuple[_Part, Bools]:
    cursor = Cursor(rows)
    context = None
    if version == 3:
        context, change = _version_3(cursor)
        time = cursor.int64()
    elif version == 2:
        context = _context(cursor)
        old, new = _sized_change(cursor)
        change = _Change(cursor.nullable(cursor.int32()), old, new)
        time = cursor.int64()
    else:
        time = cursor.int64()
        context = _context(cursor) if version == 1 else None
        old, new = _sized_change(cursor) if version == 1 else _change(cursor)
        change = _Change(old, old, new)  # right for the first change of a key since it was last emitted
    cursor.end()
    return _Part(row, time, context, change), cursor.bad & ~rows.nulls


def _version_3(cursor: Cursor) -> tuple[_Context, _Change]:
    context = _context(cursor)
    prior = cursor.nullable(cursor.int32())
    length = cursor.int32()
    same = length == _SAME_AS_PRIOR
    old = cursor.nullable(np.where(same, NULL, length))
    shared = Cells(
        cursor.data,
        np.where(same, prior.start, old.start),
        np.where(same, prior.size, old.size),
        np.where(same, prior.nulls, old.nulls),
    )
    return context, _Change(prior, shared, cursor.nullable(cursor.int32()))


def _sized_change(cursor: Cursor) -> tuple[Cells, Cells]:
    inner = Cursor(cursor.take(cursor.int32()))
    inner.bad = cursor.bad.copy()
    change = _change(inner)
    inner.end()
    cursor.refuse(inner.bad)
    return change


def _change(cursor: Cursor) -> tuple[Cells, Cells]:
    return cursor.nullable(cursor.int32()), cursor.nullable(cursor.int32())


def _context(cursor: Cursor) -> _Context:
    timestamp, offset = cursor.int64(), cursor.int64()
    topic = cursor.take(cursor.int32())
    partition, counts = cursor.int32(), cursor.int32()
    counts = np.where(counts == NULL, 0, counts)  # early releases wrote null for no headers
    cursor.refuse((counts < 0) | (counts > (cursor.stop - cursor.at) // 8))
    left = np.where(cursor.bad, 0, counts)
    counts = left.copy()
    going = np.flatnonzero(left)
    rows, names, values = [going[:0]], [cursor.take(left * 0).select(going[:0])], [topic.select(going[:0])]
    while len(going):
        part = cursor.select(going)
        names.append(part.take(part.int32()))
        values.append(part.nullable(part.int32()))
        rows.append(going)
        cursor.put_back(going, part)
        left[going] -= 1
        going = going[(left[going] > 0) & ~part.bad]
    order = np.argsort(np.concatenate(rows), kind="stable")
    return _Context(timestamp, offset, topic, partition, joined(names, order), joined(values, order), counts)


def _value_columns(
    context: _Context | None, change: _Change, deleted: Bools, value: CellSerde, origin: Origin
) -> Columns:
    """The columns ``prior``, ``old``, ``new``, and those of the record's origin: ``topic``, ``partition``, ``offset``,
    ``timestamp`` and ``headers``, null where it is unknown."""
    count = len(deleted)
    found = {
        "prior": value.decode(_nulled(change.prior, deleted), origin.named("prior value")),
        "old": value.decode(_nulled(change.old, deleted), origin.named("old value")),
        "new": value.decode(_nulled(change.new, deleted), origin.named("new value")),
    }
    if context is None:
        return {**found, **{name: pa.nulls(count, kind) for name, kind in CONTEXT.items()}}
    unknown = deleted if deleted.any() else None
    text = _text(context.topic, origin.named("topic"))
    row = np.repeat(np.arange(count), context.counts)
    names = _text(context.names, origin.named("header").select(row))
    headers = pa.StructArray.from_arrays([names, context.values.binary()], fields=list(HEADER))
    offsets = pa.array(ends_of(context.counts), pa.int32(), mask=None if unknown is None else np.append(unknown, False))
    return {
        **found,
        "topic": text if unknown is None else _masked(text, unknown),
        "partition": pa.array(context.partition, pa.int32(), mask=unknown),
        "offset": pa.array(context.offset, pa.int64(), mask=unknown),
        "timestamp": _masked(timestamps(context.timestamp, origin.named("timestamp")), deleted),
        "headers": pa.ListArray.from_arrays(offsets, headers, type=HEADERS),
    }


def _nulled(cells: Cells, deleted: Bools) -> Cells:
    missing = cells.nulls | deleted
    return Cells(cells.data, cells.start, np.where(missing, 0, cells.size), missing)


def _masked(column: pa.Array, unknown: Bools) -> pa.Array:
    return pc.if_else(pa.array(unknown), pa.scalar(None, column.type), column)


def _text(cells: Cells, origin: Origin) -> pa.StringArray:
    return _STRING.decode(cells, origin)


_STRING = cell_serde("String")
CONTEXT = {
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": TIME,
    "headers": HEADERS,
}
