"""Every form of keys and values reads as the models of single rows do, in all column families and in changelogs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from support.kafka import buffers, store_rows
from support.kafka.buffers import Buffered, RecordContext
from support.kafka.real_applications import Row, plain_rows
from support.kafka.store_rows import Header, Subscription
from support.kafka.store_rows import user_headers as users_of_one
from support.parameters import named
from support.properties import few_or_many
from support.stores.kafka_vectors import encodings

from statestore.formats.kafka.columns.header_columns import HEADERS
from statestore.formats.kafka.columns.store_kinds import KINDS, StoreForm, logged_rows, stored_rows
from statestore.formats.kafka.columns.time_columns import MOST_MS
from statestore.formats.kafka_rows.serdes import serializer

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
FAMILIES = [(name, family) for name in KEYED + ORDERED for family in KINDS[name].families]


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
        write_window = store_rows.encode_time_first_key if by_time else store_rows.encode_store_key
        return write_window(key, one, number)
    write_session = store_rows.encode_time_first_session_key if by_time else store_rows.encode_session_key
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


# The models that the columns are compared with, against Kafka's bytes


def text(serde: str, value: Any) -> bytes:
    data = serializer(serde)(bytes.fromhex(value) if serde == "bytes" else value)
    assert data is not None
    return data


def header_list(given: list[list[str | None]]) -> list[Header]:
    return [(str(key), None if value is None else bytes.fromhex(value)) for key, value in given]


def write_window(encode: Callable[[bytes, int, int], bytes]) -> Callable[[Row, Row], bytes]:
    return lambda case, params: encode(text(params["key_serde"], case["key"]), case["start"], case["seqnum"])


def write_session(encode: Callable[[bytes, int, int], bytes]) -> Callable[[Row, Row], bytes]:
    return lambda case, params: encode(text(params["key_serde"], case["key"]), case["start"], case["end"])


def write_side(case: Row, params: Row) -> bytes:
    ((side, value),) = case.items()
    return store_rows.encode_left_or_right(text(params[f"{side}_serde"], value), side == "left")


def write_subscription_key(case: Row, params: Row) -> bytes:
    foreign, primary = (text(params["key_serde"], case[f"{which}_key"]) for which in ("foreign", "primary"))
    return store_rows.encode_subscription_key(foreign, primary)


def write_timestamped_headers(case: Row, params: Row) -> bytes:
    value, found = text(params["value_serde"], case["value"]), header_list(case["headers"])
    return store_rows.encode_timestamped_headers(value, case["timestamp"], found)


def write_buffered(case: Row, params: Row) -> bytes:
    context = RecordContext(**{**case["context"], "headers": tuple(header_list(case["context"]["headers"]))})
    prior, old, new = (None if case[name] is None else case[name].encode() for name in ("prior", "old", "new"))
    model = Buffered(context, prior, old, new, case["buffer_time"])
    data = buffers.encode_buffered(model)
    assert buffers.decode_buffered(data) == model
    return data


WRITERS: dict[str, Callable[[Any, Row], bytes]] = {
    "varint": lambda case, _: store_rows.varint(case),
    "headers": lambda case, _: store_rows.encode_headers(header_list(case)),
    "key:window-store": write_window(store_rows.encode_store_key),
    "key:window-topic": lambda case, params: store_rows.encode_topic_key(
        text(params["key_serde"], case["key"]), case["start"]
    ),
    "key:window-time-first": write_window(store_rows.encode_time_first_key),
    "key:window-key-first": write_window(store_rows.encode_key_first_key),
    "key:session": write_session(store_rows.encode_session_key),
    "key:session-time-first": write_session(store_rows.encode_time_first_session_key),
    "key:session-key-first": write_session(store_rows.encode_key_first_session_key),
    "key:outer-join": lambda case, params: store_rows.encode_outer_join_key(
        text(params["key_serde"], case["key"]), case["timestamp"], case["left"]
    ),
    "key:foreign-key-subscription": write_subscription_key,
    "value:timestamped": lambda case, params: store_rows.encode_timestamped(
        text(params["value_serde"], case["value"]), case["timestamp"]
    ),
    "value:timestamped-headers": write_timestamped_headers,
    "value:aggregation-headers": lambda case, params: store_rows.encode_with_headers(
        text(params["value_serde"], case["value"]), header_list(case["headers"])
    ),
    "value:left-or-right": write_side,
    "value:suppress-changelog-v3": write_buffered,
}
ELSEWHERE = (  # in the tests of serdes, versioned stores, offsets, segments and the state directory
    *("serde:", "value:versioned-segment", "row:versioned", "op:versioned-segment-insert-latest", "position"),
    *("file:checkpoint", "file:position", "file:process-metadata", "segment-name", "default-segment-interval"),
    *("path", "changelog-topic"),
)


def test_the_models_write_what_kafka_does() -> None:
    for case in encodings(*WRITERS):
        with named(case):
            assert WRITERS[case["kind"]](case["decoded"], case.get("params", {})).hex() == case["hex"]
    every = encodings("")
    assert [
        case["id"] for case in every if case["kind"] not in WRITERS and not case["kind"].startswith(ELSEWHERE)
    ] == []
    assert len(every) > 100


# Keys and values


@few_or_many(15, 200, rows=STORED)
def test_stored_rows_of_each_family(rows: list[Any]) -> None:
    """An older family leaves the timestamp unknown and headers empty."""
    for name, family in FAMILIES:
        with named((name, family)):
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
                        "timestamped": store_rows.encode_timestamped(value, stamp),
                        "headers": store_rows.encode_timestamped_headers(value, stamp, found),
                        "session-headers": store_rows.encode_with_headers(value, found),
                    }[form]
                )
            batch = stored_rows(StoreForm(name, window_size=SIZE), family, column(keys), column(values))
            assert plain_rows(batch) == expected
            numbers = StoreForm(name, value_serde="integer", window_size=SIZE)  # most of the values are none
            others = set(batch.schema.names) - {"value"}
            alone = stored_rows(numbers, family, column(keys), column(values), others)
            assert plain_rows(alone) == [{**row, "value": None} for row in expected]


@few_or_many(20, 200, rows=STORED, deleted=st.sets(st.integers(0, 5)))
def test_logged_rows(rows: list[Any], deleted: set[int]) -> None:
    """Records of a changelog have the key's bytes first in every kind, a bare value, and the rest beside it."""
    for name in KEYED + ORDERED:
        with named(name):
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
            numbers = StoreForm(name, value_serde="integer", window_size=SIZE)
            alone = logged_rows(numbers, column(keys), column(values), *beside(rows), {"key", "tombstone"})
            assert plain_rows(alone) == [{**row, "value": None} for row in expected]


def beside(rows: list[Any]) -> tuple[pa.Int64Array, pa.ListArray]:
    """Timestamps and headers of records."""
    found = [[{"name": name, "value": value} for name, value in row[5]] for row in rows]
    return pa.array([row[4] for row in rows], pa.int64()), pa.array([None, *found], HEADERS).slice(1)


def nothing_beside(count: int) -> tuple[pa.Int64Array, pa.ListArray]:
    """Timestamps of records without headers."""
    return beside([(b"", 0, 0, 0, 5, [], b"")] * count)


@few_or_many(15, 200, rows=STORED, keys=st.lists(KEYS, min_size=1, max_size=3))
def test_index_rows_hold_no_data(rows: list[Any], keys: list[bytes]) -> None:
    for name in ORDERED:
        with named(name):
            window = KINDS[name].rows == "time-ordered window"
            write = store_rows.encode_key_first_key if window else store_rows.encode_key_first_session_key
            index = [write(key, 1, 2) for key in keys]
            base = [row_key(name, *row[:4]) for row in rows]
            family = KINDS[name].families[-1]
            form = KINDS[name].values[-1]
            values = [store_rows.encode_timestamped(row[6], 5) if form == "timestamped" else row[6] for row in rows]
            alone = stored_rows(StoreForm(name), family, column(base), column(values))
            both = stored_rows(StoreForm(name), family, column(base + index), column(values + [b""] * len(index)))
            assert both.equals(alone) and alone.num_rows == len(rows)


@few_or_many(15, 100, found=st.lists(HEADER_LISTS | st.lists(st.sampled_from(CONSISTENCY), max_size=4), max_size=6))
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
    keys = [store_rows.encode_outer_join_key(key, time, left) for key, time, left, _ in rows]
    values = [
        None
        if found is None
        else store_rows.encode_list([store_rows.encode_left_or_right(value, left) for value in found])
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
    st.sampled_from(store_rows.INSTRUCTIONS),
    KEYS,
    st.none() | st.integers(-(2**31), 2**31 - 1),
)


@few_or_many(20, 200, rows=st.lists(st.tuples(KEYS, SUBSCRIPTIONS, STAMPS, HEADER_LISTS), max_size=6))
def test_subscriptions(rows: list[tuple[bytes, Subscription, int, list[Header]]]) -> None:
    for family in KINDS["foreign-key-subscriptions"].families:
        with named(family):
            keys = [store_rows.encode_subscription_key(foreign, found.primary_key) for foreign, found, _, _ in rows]
            bare = [store_rows.encode_subscription(found) for _, found, _, _ in rows]
            values = [
                {
                    "default": value,
                    "keyValueWithTimestamp": store_rows.encode_timestamped(value, row[2]),
                    "keyValueWithTimestampAndHeaders": store_rows.encode_timestamped_headers(value, row[2], row[3]),
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
    keys = [store_rows.encode_time_first_key(key, time, number) for key, time, number, _, _ in rows]
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


def test_a_header_count_of_minus_1_is_none() -> None:
    """Early releases wrote it for a context without headers."""
    value = buffers.encode_buffered(Buffered(RecordContext(1, 2, "t", 0), None, None, b"n", 9))
    at = len(buffers.encode_context(RecordContext(1, 2, "t", 0)))
    early = value[: at - 4] + b"\xff" * 4 + value[at:]
    marks = beside([(b"", 0, 0, 0, 5, [("v", b"\3")], b"")] * 2)
    new, old = logged_rows(
        StoreForm("suppression-buffer"), column([b"k", b"k"]), column([value, early]), *marks
    ).to_pylist()
    assert {**old, "record": 0} == new
