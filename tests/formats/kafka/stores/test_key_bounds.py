"""Ranges of row keys, and the rows of keys in them, against plain models."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import strategies as st
from support.kafka import store_rows
from support.properties import few_or_many

from statestore.formats.kafka.stores.key_bounds import disjoint_ranges, key_range, rows_of_key, rows_of_keys, time_range
from statestore.formats.rocksdb.key_ranges import KeyRange
from statestore.formats.rocksdb.rows import ROW_SCHEMA

SHORT = st.text("ab\0\xff", max_size=3).map(lambda text: text.encode("latin-1"))
TIMES = st.sampled_from([0, 1, 255, 256, 1000, 2**40, 2**63 - 1])


def batch(rows: list[tuple[bytes, bytes]]) -> pa.RecordBatch:
    keys, values = [key for key, _ in rows], [value for _, value in rows]
    return pa.RecordBatch.from_arrays([pa.array(keys, pa.binary()), pa.array(values, pa.binary())], schema=ROW_SCHEMA)


def pairs(rows: pa.RecordBatch) -> list[tuple[bytes, bytes]]:
    return list(zip(rows.column(0).to_pylist(), rows.column(1).to_pylist(), strict=True))


Row = tuple[bytes, int, int]  # key, segment time, another number


def encoded(form: str, key: bytes, time: int, other: int) -> bytes:
    if form == "plain":
        return key
    if form == "window":
        return store_rows.encode_store_key(key, time, other)
    if form in ("time-ordered window", "grace buffer"):
        return store_rows.encode_time_first_key(key, time, other)
    if form == "session":
        return store_rows.encode_session_key(key, min(other, time), time)
    if form == "time-ordered session":
        return store_rows.encode_time_first_session_key(key, min(other, time), time)
    if form == "outer-join buffer":
        return time.to_bytes(8, "big") + bytes([other % 2]) + key
    return len(key).to_bytes(4, "big") + key + time.to_bytes(8, "big")


FORMS = (
    "plain", "window", "session", "time-ordered window", "time-ordered session", "grace buffer", "outer-join buffer",
    "subscription",
)  # fmt: skip
TIMED = ("window", "session")


@pytest.mark.parametrize("form", FORMS)
@few_or_many(12, 200, rows=st.lists(st.tuples(SHORT, TIMES, st.integers(0, 300)), max_size=20), key=SHORT)
def test_a_key_range_holds_all_rows_of_its_key(form: str, rows: list[Row], key: bytes) -> None:
    by_key = {encoded(form, *row): row for row in rows}
    within = key_range(form, key)
    read = batch([(stored, b"") for stored in sorted(by_key) if inside(within, stored)])
    found = {stored for stored, _ in pairs(rows_of_key(form, read, key))}
    assert found == {stored for stored, row in by_key.items() if row[0] == key}


@pytest.mark.parametrize("form", TIMED)
@few_or_many(
    12,
    200,
    rows=st.lists(st.tuples(SHORT, TIMES, st.integers(0, 300)), max_size=20),
    key=SHORT,
    first=TIMES | st.just(-5),
    last=TIMES | st.just(-5),
)
def test_a_key_range_is_bounded_by_times(form: str, rows: list[Row], key: bytes, first: int, last: int) -> None:
    by_key = {encoded(form, *row): row for row in rows}
    within = key_range(form, key, first, last)
    exact = {stored for stored in by_key if inside(within, stored) and by_key[stored][0] == key}
    wanted = {stored for stored, row in by_key.items() if row[0] == key and first <= row[1] <= last}
    assert wanted <= exact
    if first > 0:
        assert wanted == exact


@pytest.mark.parametrize("form", FORMS)
@few_or_many(12, 200, rows=st.lists(st.tuples(SHORT, TIMES, st.integers(0, 300)), max_size=20), first=TIMES, last=TIMES)
def test_a_time_range_holds_all_rows_of_its_times(form: str, rows: list[Row], first: int, last: int) -> None:
    by_key = {encoded(form, *row): row for row in rows}
    within = time_range(form, first, last)
    found = {stored for stored in by_key if inside(within, stored)}
    wanted = {stored for stored, row in by_key.items() if first <= row[1] <= last}
    assert wanted <= found
    if form.startswith("time-ordered") and first > 0:
        assert wanted == found


@pytest.mark.parametrize("form", FORMS)
@few_or_many(
    12,
    200,
    rows=st.lists(st.tuples(SHORT, TIMES, st.integers(0, 300)), max_size=20),
    keys=st.lists(SHORT, min_size=1, max_size=4),
)
def test_ranges_of_several_keys_hold_each_row_once(form: str, rows: list[Row], keys: list[bytes]) -> None:
    by_key = {encoded(form, *row): row for row in rows}
    ranges = disjoint_ranges([key_range(form, key) for key in keys])
    read = [stored for within in ranges for stored in sorted(by_key) if inside(within, stored)]
    assert len(read) == len(set(read))
    assert read == sorted(read)
    found = [stored for stored, _ in pairs(rows_of_keys(form, batch([(stored, b"") for stored in read]), keys))]
    assert sorted(found) == sorted(stored for stored, row in by_key.items() if row[0] in keys)


def inside(within: KeyRange, key: bytes) -> bool:
    if (within.first is not None and key < within.first) or (within.stop is not None and key >= within.stop):
        return False
    at = len(within.first or b"") + within.hole
    return key[at:].startswith(within.rest)
