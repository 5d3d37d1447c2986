"""Columns of stored rows and of changelog records, by the form of rows that a kind of store has."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.bytes.byte_columns import Cells, cells_of
from statestore.formats.bytes.column_cursor import Cursor
from statestore.formats.kafka.columns.buffer_rows import CONTEXT, grace_columns, suppression_columns
from statestore.formats.kafka.columns.header_columns import (
    HEADERS,
    empty_headers,
    header_column,
    last_header,
    read_sized_headers,
    user_headers,
)
from statestore.formats.kafka.columns.join_rows import outer_join_rows, subscription_keys, subscription_values
from statestore.formats.kafka.columns.origins import Origin
from statestore.formats.kafka.columns.serde_columns import cell_serde
from statestore.formats.kafka.columns.serde_form import CellSerde
from statestore.formats.kafka.columns.store_form import StoreForm, StoreKind, ValueForm, serde_pair
from statestore.formats.kafka.columns.time_columns import TIME, times, window_ends
from statestore.formats.kafka.columns.time_columns import timestamps as timestamp_column
from statestore.formats.kafka.columns.versioned_rows import versioned_columns

Columns = dict[str, pa.Array]
Fields = list[tuple[str, pa.DataType]]
_HEADER_VERSION = "v"


@dataclass(frozen=True)
class _Serdes:
    """The serdes of a form: the second is that of primary keys, and of the right values of an outer join."""

    key: CellSerde
    second_key: CellSerde
    value: CellSerde
    second_value: CellSerde


_VALUES = frozenset(("value", "left_value", "right_value", "prior", "old", "new"))
"""The columns of values in any kind of store."""


def _serdes(kind: StoreKind, form: StoreForm, columns: Collection[str] | None = None) -> _Serdes:
    """The serdes of a form; values are not decoded where none of their columns is wanted."""
    keys = serde_pair(form.key_serde) if kind.rows == "subscription" else (form.key_serde,) * 2
    values = serde_pair(form.value_serde) if kind.rows == "outer-join buffer" else (form.value_serde,) * 2
    found = [cell_serde(name, form.window_size) for name in (*keys, *values)]
    if columns is not None and _VALUES.isdisjoint(columns):
        found[2:] = [replace(each, decode=partial(_nulls, each.type)) for each in found[2:]]
    return _Serdes(*found)


def _nulls(kind: pa.DataType, cells: Cells, _: Origin) -> pa.Array:
    return pa.nulls(len(cells), kind)


def row_fields(kind: StoreKind, form: StoreForm) -> Fields:
    """Names and types of the columns of stored rows."""
    serdes = _serdes(kind, form)
    key, value = ("key", serdes.key.type), ("value", serdes.value.type)
    if kind.rows == "outer-join buffer":
        front: Fields = [("timestamp", TIME), ("side", pa.string()), key, ("position", pa.int32())]
        if serdes.value.name == serdes.second_value.name:
            return [*front, value]
        return [*front, ("left_value", serdes.value.type), ("right_value", serdes.second_value.type)]
    if kind.rows == "subscription":
        pair: Fields = [("foreign_key", serdes.key.type), ("primary_key", serdes.second_key.type)]
        own: Fields = [("instruction", pa.string()), ("hash", pa.binary()), ("version", pa.int32())]
        return [*pair, *own, ("primary_partition", pa.int32()), ("timestamp", TIME)]
    if kind.rows in ("grace buffer", "suppression"):
        time: Fields = [("buffer_time", TIME)]
        number: Fields = [("sequence", pa.int32())] if kind.rows == "grace buffer" else []
        changes: Fields = [(name, serdes.value.type) for name in ("prior", "old", "new")]
        return [key, *time, *number, *changes, *CONTEXT.items()]
    fields: Fields = [key]
    if kind.rows in ("window", "time-ordered window"):
        fields += [("window_start", TIME), ("window_end", TIME)]
    if kind.duplicates:
        fields.append(("sequence", pa.int32()))
    if kind.rows in ("session", "time-ordered session"):
        fields += [("session_start", TIME), ("session_end", TIME)]
    fields.append(value)
    if kind.has_past:
        fields += [("valid_from", TIME), ("valid_to", TIME)]
    if kind.timestamp:
        fields.append(("timestamp", TIME))
    if kind.headers:
        fields.append(("headers", HEADERS))
    return fields


def logged_fields(kind: StoreKind, form: StoreForm) -> Fields:
    """Names and types of the columns of changelog records."""
    fields = [field for field in row_fields(kind, form) if field[0] != "valid_to"]
    return [*fields, ("tombstone", pa.bool_()), ("record", pa.int64())]


def stored_columns(
    kind: StoreKind,
    form: StoreForm,
    family: str,
    keys: pa.BinaryArray,
    values: pa.BinaryArray,
    columns: Collection[str] | None = None,
) -> Columns:
    """Decode rows of a family that the kind has; see `statestore.formats.kafka.columns.store_kinds.stored_rows`."""
    serdes = _serdes(kind, form, columns)
    if kind.rows == "versioned":
        return versioned_columns(keys, values, serdes.key, serdes.value)
    if kind.rows == "outer-join buffer":
        return outer_join_rows(keys, values, serdes.key, serdes.value, serdes.second_value)[0]
    if kind.rows == "grace buffer":
        return grace_columns(keys, values, serdes.key, serdes.value)
    if kind.rows in ("time-ordered window", "time-ordered session"):
        least = 13 if kind.rows == "time-ordered window" else 17
        base = base_rows(keys, least, kind.rows)
        keys, values = (keys, values) if base is None else (keys.filter(base), values.filter(base))
    found = _key_columns(kind, form, serdes, keys, time_first=kind.rows.startswith("time-ordered"))
    value_form = kind.values[kind.families.index(family)]
    bare, beside = split_values(value_form, keys, values, timestamp=kind.timestamp, headers=kind.headers)
    return {**found, **_value_columns(kind, serdes, bare, keys), **beside}


def _key_columns(
    kind: StoreKind, form: StoreForm, serdes: _Serdes, keys: pa.BinaryArray, *, time_first: bool
) -> Columns:
    if kind.rows in ("window", "time-ordered window"):
        return window_keys(keys, serdes.key, form.window_size, time_first=time_first, duplicates=kind.duplicates)
    if kind.rows in ("session", "time-ordered session"):
        return session_keys(keys, serdes.key, time_first=time_first)
    if kind.rows == "subscription":
        return subscription_keys(keys, serdes.key, serdes.second_key)
    return plain_key(keys, serdes.key)


def _value_columns(kind: StoreKind, serdes: _Serdes, values: Cells, keys: pa.BinaryArray) -> Columns:
    origin = Origin("value", keys)
    if kind.rows == "subscription":
        return subscription_values(values, origin)
    return {"value": serdes.value.decode(values, origin)}


def logged_columns(
    kind: StoreKind,
    form: StoreForm,
    keys: pa.BinaryArray,
    values: pa.BinaryArray,
    timestamps: pa.Int64Array,
    headers: pa.ListArray,
    *,
    columns: Collection[str] | None = None,
) -> Columns:
    """Decode changelog records; see `statestore.formats.kafka.columns.store_kinds.logged_rows`."""
    serdes, record = _serdes(kind, form, columns), np.arange(len(keys))
    if kind.rows == "outer-join buffer":
        found, record = outer_join_rows(keys, values, serdes.key, serdes.value, serdes.second_value)
    elif kind.rows == "grace buffer":
        found = grace_columns(keys, values, serdes.key, serdes.value)
    elif kind.rows == "suppression":
        versions = last_header(headers, _HEADER_VERSION)
        found = suppression_columns(keys, values, versions, serdes.key, serdes.value)
    else:
        found = _key_columns(kind, form, serdes, keys, time_first=False)
        found.update(_value_columns(kind, serdes, cells_of(values), keys))
        milliseconds = timestamps.to_numpy()
        if kind.timestamp:
            found["timestamp"] = timestamp_column(milliseconds, Origin("timestamp", keys))
        if kind.has_past:
            found["valid_from"] = times(milliseconds, Origin("timestamp", keys))
        if kind.headers:
            found["headers"] = user_headers(headers)
    deleted = pc.is_null(values).take(pa.array(record))
    return {**found, "tombstone": deleted, "record": pa.array(record, pa.int64())}


# Row keys of stores as columns: the user's key, and the times and numbers that the store adds to it.
#
#     plain                  key
#     window                 key | start:int64 | sequence:int32
#     time-ordered window    00 | start:int64 | key | sequence:int32       01...: an index row, which holds no data
#     session                key | end:int64 | start:int64
#     time-ordered session   00 | end:int64 | start:int64 | key            01...: an index row
#
# (``WindowKeySchema``, ``SessionKeySchema``, ``PrefixedWindowKeySchemas``, ``PrefixedSessionKeySchemas``; KIP-825.)
# Changelogs have the window and the session form, also those of time-ordered stores.


KeyForm = Literal["plain", "window", "time-ordered window", "session", "time-ordered session"]

WINDOW_SUFFIX = 12
SESSION_SUFFIX = 16
_PREFIX = 1
_REMEDY = "choose another kind of store"
LOGGED: dict[KeyForm, KeyForm] = {"time-ordered window": "window", "time-ordered session": "session"}


def base_rows(keys: pa.BinaryArray, least: int, form: str) -> pa.BooleanArray | None:
    """A mask of the base rows among rows of a time-ordered store; None if all are.

    Raises CorruptError KAFKA_BYTES for a key that begins with neither 00 nor 01 or is shorter than ``least`` bytes.
    """
    cells, origin = cells_of(keys), Origin("key", keys)
    origin.refuse(cells, cells.size < least, f"a {form} key of at least {least} bytes", _REMEDY)
    prefix = cells.numbers(0, "u1")
    origin.refuse(cells, prefix > 1, f"a {form} key that begins with 00 or 01", _REMEDY)
    return pa.array(prefix == 0) if prefix.any() else None


def window_keys(
    keys: pa.BinaryArray, serde: CellSerde, window_size: int | None, *, time_first: bool, duplicates: bool
) -> Columns:
    """The columns ``key``, ``window_start`` and ``window_end``, with ``duplicates`` also ``sequence``.

    Without ``duplicates``, a sequence number other than 0 is refused: the store has several rows for a key and start.
    """
    cells, origin = cells_of(keys), Origin("key", keys)
    form = "time-ordered window" if time_first else "window"
    least = WINDOW_SUFFIX + (_PREFIX if time_first else 0)
    origin.refuse(cells, cells.size < least, f"a {form} key of at least {least} bytes", _REMEDY)
    starts = cells.numbers(_PREFIX if time_first else -WINDOW_SUFFIX, ">i8")
    sequences = cells.numbers(-4, ">i4")
    found = {
        "key": serde.decode(cells.cut(9, 4) if time_first else cells.cut(0, WINDOW_SUFFIX), origin),
        "window_start": times(starts, origin.named("window start")),
        "window_end": window_ends(starts, window_size),
    }
    if duplicates:
        found["sequence"] = pa.array(sequences, pa.int32())
    elif sequences.any():
        index = int(np.argmax(sequences != 0))
        raise origin.error(
            index, f"sequence number {sequences[index]}", "0", "choose a kind of window store with duplicates"
        )
    return found


def session_keys(keys: pa.BinaryArray, serde: CellSerde, *, time_first: bool) -> Columns:
    """The columns ``key``, ``session_start`` and ``session_end``."""
    cells, origin = cells_of(keys), Origin("key", keys)
    form = "time-ordered session" if time_first else "session"
    least = SESSION_SUFFIX + (_PREFIX if time_first else 0)
    origin.refuse(cells, cells.size < least, f"a {form} key of at least {least} bytes", _REMEDY)
    ends = cells.numbers(_PREFIX if time_first else -SESSION_SUFFIX, ">i8")
    starts = cells.numbers(_PREFIX + 8 if time_first else -8, ">i8")
    origin.refuse(cells, ends < starts, f"a {form} key whose end is not before its start", _REMEDY)
    return {
        "key": serde.decode(cells.cut(least, 0) if time_first else cells.cut(0, least), origin),
        "session_start": times(starts, origin.named("session start")),
        "session_end": times(ends, origin.named("session end")),
    }


def plain_key(keys: pa.BinaryArray, serde: CellSerde) -> Columns:
    """The column ``key``."""
    cells: Cells = cells_of(keys)
    return {"key": serde.decode(cells, Origin("key", keys))}


# Values as stores keep them, as columns: the bare value, and the timestamp and headers before it.
#
#     bare             value
#     timestamped      timestamp:int64 | value                                       KIP-258
#     headers          length:varint | headers | timestamp:int64 | value             KIP-1271
#     session-headers  length:varint | headers | aggregation
#
# Timestamp -1 is unknown, and null in the column. A row that an older release wrote lies in an older column family in
# an older form: then the timestamp is null, and the headers are empty, as when Kafka upgrades the row.


_TIME_BYTES = 8


def split_values(
    form: ValueForm, keys: pa.BinaryArray, values: pa.BinaryArray, *, timestamp: bool, headers: bool
) -> tuple[Cells, dict[str, pa.Array]]:
    """(bare values, columns ``timestamp`` and ``headers`` as wanted) of values in this form.

    Raises CorruptError KAFKA_BYTES about the first value that has not the form.
    """
    cells, origin = cells_of(values), Origin("value", keys)
    found: dict[str, pa.Array] = {}
    if form in ("headers", "session-headers"):
        cursor = Cursor(cells)
        encoded = read_sized_headers(cursor)
        milliseconds = cursor.int64() if form == "headers" else None
        rest = cursor.rest()
        origin.refuse(cells, cursor.bad, "headers with their size in front of the value (KIP-1271)", _REMEDY)
        if timestamp:
            found["timestamp"] = (
                pa.nulls(len(cells), TIME)
                if milliseconds is None
                else timestamp_column(milliseconds, origin.named("timestamp"))
            )
        if headers:
            found["headers"] = header_column(encoded, origin)
        return rest, found
    if form == "timestamped":
        origin.refuse(cells, cells.size < _TIME_BYTES, "a timestamp of 8 bytes in front of the value", _REMEDY)
        if timestamp:
            found["timestamp"] = timestamp_column(cells.numbers(0, ">i8"), origin.named("timestamp"))
        cells = cells.cut(_TIME_BYTES)
    elif timestamp:
        found["timestamp"] = pa.nulls(len(cells), TIME)
    if headers:
        found["headers"] = empty_headers(len(cells))
    return cells, found
