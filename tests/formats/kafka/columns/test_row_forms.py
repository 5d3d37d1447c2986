"""Every form of keys and values reads as the models of single rows do, in all column families and in changelogs."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import strategies as st
from support.kafka import buffers, joins
from support.kafka.buffers import Buffered, RecordContext
from support.kafka.changelog_records import user_headers as users_of_one
from support.kafka.joins import Subscription
from support.kafka.real_applications import Row, plain_rows
from support.properties import few_or_many

from statestore.formats.kafka.columns.header_columns import HEADERS
from statestore.formats.kafka.columns.store_kinds import KINDS, StoreForm, logged_rows, stored_rows
from statestore.formats.kafka.columns.time_columns import MOST_MS
from statestore.formats.kafka_rows import session_keys, timestamped, window_keys
from statestore.formats.kafka_rows.list_serde import encode_list
from statestore.formats.kafka_rows.timestamped import Header

KEYS = st.binary(max_size=5)
VALUES = st.binary(max_size=9)
OPTIONAL = st.none() | VALUES
TIMES = st.integers(-MOST_MS, MOST_MS)
STAMPS = TIMES | st.just(-1)
NUMBERS = st.integers(0, 2**31 - 1)
HEADER_LISTS: st.SearchStrategy[list[Header]] = st.lists(
    st.tuples(st.text(max_size=70), st.none() | st.binary(max_size=70)), max_size=3
)
STORED = st.lists(st.tuples(KEYS, TIMES, TIMES, NUMBERS, STAMPS, HEADER_LISTS, VALUES), max_size=6)
SIZE = 1000
CONSISTENCY: list[Header] = [("v", b"\0"), ("v", b"\3"), ("v", None), ("c", b"\0position"), ("w", b"\0")]

KEYED = [name for name, kind in KINDS.items() if kind.rows in ("plain", "window", "session")]
ORDERED = [name for name, kind in KINDS.items() if kind.rows in ("time-ordered window", "time-ordered session")]
FAMILIES = [
    pytest.param(name, family, id=f"{name}-{family}") for name in KEYED + ORDERED for family in KINDS[name].families
]


def column(cells: list[bytes] | list[bytes | None]) -> pa.BinaryArray:
    """The cells as a slice that begins inside a longer column."""
    return pa.array([b"before", *cells], pa.binary()).slice(1)


def row_key(name: str, key: bytes, one: int, other: int, number: int, *, logged: bool = False) -> bytes:
    """The key that a store of this kind has for a window (``one``), or a session (both times)."""
    kind = KINDS[name]
    number = number if kind.duplicates else 0
    start, end = sorted((one, other))
    by_time = kind.rows.startswith("time-ordered") and not logged
    if kind.rows == "plain":
        return key
    if kind.rows.endswith("window"):
        write_window = window_keys.encode_time_first_key if by_time else window_keys.encode_store_key
        return write_window(key, one, number)
    write_session = session_keys.encode_time_first_session_key if by_time else session_keys.encode_session_key
    return write_session(key, start, end)


def key_row(name: str, key: bytes, one: int, other: int, number: int) -> Row:
    kind = KINDS[name]
    if kind.rows == "plain":
        return {"key": key.hex()}
    if kind.rows.endswith("session"):
        return {"key": key.hex(), "session_start": min(one, other), "session_end": max(one, other)}
    end = one + SIZE if one + SIZE <= MOST_MS else None
    found = {"key": key.hex(), "window_start": one, "window_end": end}
    return {**found, "sequence": number} if kind.duplicates else found


def pairs(found: list[Header]) -> list[list[str | None]]:
    return [[name, None if value is None else value.hex()] for name, value in found]


@pytest.mark.parametrize(("name", "family"), FAMILIES)
@few_or_many(8, 100, rows=STORED)
def test_stored_rows_of_each_family(name: str, family: str, rows: list[Any]) -> None:
    """An older family leaves the timestamp unknown and headers empty."""
    kind = KINDS[name]
    form = kind.values[kind.families.index(family)]
    keys = [row_key(name, *row[:4]) for row in rows]
    values, expected = [], []
    for *place, stamp, found, value in rows:
        row = {**key_row(name, *place), "value": value.hex()}
        if kind.timestamp:
            row["timestamp"] = None if form == "bare" or stamp == -1 else stamp
        if kind.headers:
            row["headers"] = pairs(found) if "headers" in form else []
        expected.append(row)
        values.append(
            {
                "bare": value,
                "timestamped": timestamped.encode_timestamped(value, stamp),
                "headers": timestamped.encode_timestamped_headers(value, stamp, found),
                "session-headers": timestamped.encode_with_headers(value, found),
            }[form]
        )
    batch = stored_rows(StoreForm(name, window_size=SIZE), family, column(keys), column(values))
    assert plain_rows(batch) == expected


@pytest.mark.parametrize("name", KEYED + ORDERED)
@few_or_many(20, 100, rows=STORED, deleted=st.sets(st.integers(0, 5)))
def test_logged_rows(name: str, rows: list[Any], deleted: set[int]) -> None:
    """Records of a changelog have the key's bytes first in every kind, a bare value, and the rest beside it."""
    kind = KINDS[name]
    keys = [row_key(name, *row[:4], logged=True) for row in rows]
    values = [None if number in deleted else row[6] for number, row in enumerate(rows)]
    expected = []
    for number, (*place, stamp, found, value) in enumerate(rows):
        gone = number in deleted
        row = {**key_row(name, *place), "value": None if gone else value.hex()}
        if kind.timestamp:
            row["timestamp"] = None if stamp == -1 else stamp
        if kind.headers:
            row["headers"] = pairs(list(users_of_one(found)))
        expected.append({**row, "tombstone": gone, "record": number})
    batch = logged_rows(StoreForm(name, window_size=SIZE), column(keys), column(values), *beside(rows))
    assert plain_rows(batch) == expected


def beside(rows: list[Any]) -> tuple[pa.Int64Array, pa.ListArray]:
    """Timestamps and headers of records."""
    found = [[{"name": name, "value": value} for name, value in row[5]] for row in rows]
    return pa.array([row[4] for row in rows], pa.int64()), pa.array([None, *found], HEADERS).slice(1)


def nothing_beside(count: int) -> tuple[pa.Int64Array, pa.ListArray]:
    """Timestamps of records without headers."""
    return beside([(b"", 0, 0, 0, 5, [], b"")] * count)


@pytest.mark.parametrize("name", ORDERED)
@few_or_many(20, 100, rows=STORED, keys=st.lists(KEYS, min_size=1, max_size=3))
def test_index_rows_hold_no_data(name: str, rows: list[Any], keys: list[bytes]) -> None:
    window = KINDS[name].rows == "time-ordered window"
    write = window_keys.encode_key_first_key if window else session_keys.encode_key_first_session_key
    index = [write(key, 1, 2) for key in keys]
    base = [row_key(name, *row[:4]) for row in rows]
    family = KINDS[name].families[-1]
    form = KINDS[name].values[-1]
    values = [timestamped.encode_timestamped(row[6], 5) if form == "timestamped" else row[6] for row in rows]
    alone = stored_rows(StoreForm(name), family, column(base), column(values))
    both = stored_rows(StoreForm(name), family, column(base + index), column(values + [b""] * len(index)))
    assert both.equals(alone) and alone.num_rows == len(rows)


@few_or_many(20, 100, found=st.lists(HEADER_LISTS | st.lists(st.sampled_from(CONSISTENCY), max_size=4), max_size=6))
def test_headers_for_consistency_are_not_the_users(found: list[list[Header]]) -> None:
    rows = [(b"k", 0, 0, 0, 5, headers, b"v") for headers in found]
    batch = logged_rows(
        StoreForm("headers-key-value"), column([b"k"] * len(rows)), column([b"v"] * len(rows)), *beside(rows)
    )
    assert [row["headers"] for row in plain_rows(batch)] == [pairs(list(users_of_one(one))) for one in found]


# Joins


@few_or_many(
    20,
    100,
    rows=st.lists(st.tuples(KEYS, TIMES, st.booleans(), st.none() | st.lists(VALUES, max_size=12)), max_size=10),
    apart=st.booleans(),
)
def test_buffers_of_outer_joins(rows: list[tuple[bytes, int, bool, list[bytes] | None]], apart: bool) -> None:
    """One row for each element; a deleted key gives one row. With two serdes, each side has a column."""
    keys = [joins.encode_outer_join_key(key, time, left) for key, time, left, _ in rows]
    values = [
        None if found is None else encode_list([joins.encode_left_or_right(value, left) for value in found])
        for _, _, left, found in rows
    ]
    expected: list[Row] = []
    for number, (key, time, left, found) in enumerate(rows):
        for position, value in enumerate([None] if found is None else found):
            cell = None if value is None else value.hex()
            cells = {"left_value": cell if left else None, "right_value": None if left else cell}
            expected.append(
                {
                    "timestamp": time,
                    "side": "left" if left else "right",
                    "key": key.hex(),
                    "position": None if value is None else position,
                    **(cells if apart else {"value": cell}),
                    "tombstone": value is None,
                    "record": number,
                }
            )
    form = StoreForm("outer-join-buffer", value_serde="bytes/ByteArray" if apart else "bytes")
    assert plain_rows(logged_rows(form, column(keys), column(values), *nothing_beside(len(rows)))) == expected
    stored = [(key, value) for key, value in zip(keys, values, strict=True) if value is not None]
    batch = stored_rows(form, "default", column([key for key, _ in stored]), column([value for _, value in stored]))
    kept = [{name: row[name] for name in batch.schema.names} for row in expected if not row["tombstone"]]
    assert plain_rows(batch) == kept


SUBSCRIPTIONS = st.builds(
    lambda hashed, instruction, key, partition: Subscription(
        0 if partition is None else 1, instruction, hashed, key, partition
    ),
    st.none() | st.binary(min_size=16, max_size=16),
    st.sampled_from(joins.INSTRUCTIONS),
    KEYS,
    st.none() | st.integers(-(2**31), 2**31 - 1),
)


@pytest.mark.parametrize("family", KINDS["foreign-key-subscriptions"].families)
@few_or_many(20, 100, rows=st.lists(st.tuples(KEYS, SUBSCRIPTIONS, STAMPS, HEADER_LISTS), max_size=6))
def test_subscriptions(family: str, rows: list[tuple[bytes, Subscription, int, list[Header]]]) -> None:
    keys = [joins.encode_subscription_key(foreign, found.primary_key) for foreign, found, _, _ in rows]
    bare = [joins.encode_subscription(found) for _, found, _, _ in rows]
    values = [
        {
            "default": value,
            "keyValueWithTimestamp": timestamped.encode_timestamped(value, row[2]),
            "keyValueWithTimestampAndHeaders": timestamped.encode_timestamped_headers(value, row[2], row[3]),
        }[family]
        for value, row in zip(bare, rows, strict=True)
    ]
    expected = [
        {
            "foreign_key": foreign.hex(),
            "primary_key": found.primary_key.hex(),
            "instruction": found.instruction,
            "hash": None if found.hash is None else found.hash.hex(),
            "version": found.version,
            "primary_partition": found.partition,
            "timestamp": None if stamp == -1 or family == "default" else stamp,
        }
        for foreign, found, stamp, _ in rows
    ]
    form = StoreForm("foreign-key-subscriptions")
    assert plain_rows(stored_rows(form, family, column(keys), column(values))) == expected
    records = column([*keys, bytes(4)]), column([*bare, None])
    logged = plain_rows(logged_rows(form, *records, *nothing_beside(len(rows) + 1)))
    assert [row["instruction"] for row in logged] == [*(row["instruction"] for row in expected), None]
    assert [row["hash"] for row in logged] == [*(row["hash"] for row in expected), None]


# Buffers

CONTEXTS = st.builds(
    RecordContext, TIMES, st.integers(-1, 2**63 - 1), st.text(max_size=5), NUMBERS, HEADER_LISTS.map(tuple)
)


@few_or_many(
    20,
    100,
    rows=st.lists(
        st.tuples(KEYS, CONTEXTS, OPTIONAL, OPTIONAL, OPTIONAL, TIMES, st.sampled_from([0, 1, 2, 3, "3 as 2", None])),
        max_size=8,
    ),
)
def test_buffers_of_suppressions(rows: list[tuple[Any, ...]]) -> None:
    """All versions may lie in one column; None is a delete."""
    values: list[bytes | None] = []
    marks, expected = [], []
    for number, (key, context, prior, old, new, time, version) in enumerate(rows):
        label, form = (2, 3) if version == "3 as 2" else (version, version)
        if version is None:
            values.append(None)
            model = Buffered(None, None, None, None, None)
        else:
            value = buffers.encode_buffered(Buffered(context, prior, old, new, time), form)
            values.append(value)
            model = buffers.decode_buffered(value, label)
        marks.append([("v", bytes([label]))] if label else [])
        expected.append({"key": key.hex(), **change(model), "tombstone": version is None, "record": number})
    blank = [(b"", 0, 0, 0, 5, mark, b"") for mark in marks]
    batch = logged_rows(
        StoreForm("suppression-buffer"), column([row[0] for row in rows]), column(values), *beside(blank)
    )
    assert plain_rows(batch) == expected


def change(model: Buffered) -> Row:
    """The columns of a buffered change."""
    context = model.context
    origin = None if context is None else (context.topic, context.partition, context.offset)
    stamp = None if context is None or context.timestamp == -1 else context.timestamp
    return {
        "buffer_time": model.buffer_time,
        "prior": None if model.prior is None else model.prior.hex(),
        "old": None if model.old is None else model.old.hex(),
        "new": None if model.new is None else model.new.hex(),
        **dict(zip(("topic", "partition", "offset"), origin or (None, None, None), strict=True)),
        "timestamp": stamp,
        "headers": None if context is None else pairs(list(context.headers)),
    }


@few_or_many(20, 100, rows=st.lists(st.tuples(KEYS, TIMES, NUMBERS, CONTEXTS, OPTIONAL), max_size=6))
def test_buffers_of_joins_with_grace(rows: list[tuple[bytes, int, int, RecordContext, bytes | None]]) -> None:
    """In the store without a buffer time behind the value, in the changelog with one of 0; the key has the time."""
    keys = [window_keys.encode_time_first_key(key, time, number) for key, time, number, _, _ in rows]
    values = [buffers.encode_buffered(Buffered(context, None, None, new, None)) for _, _, _, context, new in rows]
    expected = [
        {
            "key": key.hex(),
            **change(Buffered(context, None, None, new, time)),
            "buffer_time": time,
            "sequence": number,
        }
        for key, time, number, context, new in rows
    ]
    form = StoreForm("grace-join-buffer")
    assert plain_rows(stored_rows(form, "default", column(keys), column(values))) == expected
    records = column(keys), column([value + bytes(8) for value in values])
    logged = plain_rows(logged_rows(form, *records, *nothing_beside(len(rows))))
    assert logged == [{**row, "tombstone": False, "record": number} for number, row in enumerate(expected)]
