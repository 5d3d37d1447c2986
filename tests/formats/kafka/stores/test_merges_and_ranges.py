"""Merges of column families, rows of versioned stores by key, and ranges of row keys, against plain models."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import strategies as st
from rocksdict import Options, Rdict
from support.kafka import store_rows
from support.kafka.applications import Rows
from support.properties import few_or_many

from statestore.formats.kafka.stores.family_merge import merged_families
from statestore.formats.kafka.stores.key_bounds import disjoint_ranges, key_range, rows_of_key, rows_of_keys, time_range
from statestore.formats.kafka.stores.store_rows import read_database
from statestore.formats.kafka.stores.versioned_streams import read_versioned
from statestore.formats.kafka_rows.versioned_store import row_key
from statestore.formats.rocksdb.key_ranges import KeyRange
from statestore.formats.rocksdb.rows import ROW_SCHEMA

KEYS = st.binary(max_size=3)
SHORT = st.text("ab\0\xff", max_size=3).map(lambda text: text.encode("latin-1"))
TIMES = st.sampled_from([0, 1, 255, 256, 1000, 2**40, 2**63 - 1])


def batch(rows: list[tuple[bytes, bytes]]) -> pa.RecordBatch:
    keys, values = [key for key, _ in rows], [value for _, value in rows]
    return pa.RecordBatch.from_arrays([pa.array(keys, pa.binary()), pa.array(values, pa.binary())], schema=ROW_SCHEMA)


def pairs(rows: pa.RecordBatch) -> list[tuple[bytes, bytes]]:
    return list(zip(rows.column(0).to_pylist(), rows.column(1).to_pylist(), strict=True))


def batches(rows: Rows, sizes: list[int]) -> Iterator[pa.RecordBatch]:
    """The rows in key order, in batches of these sizes, empty ones among them."""
    left = sorted(rows.items())
    for size in sizes:
        yield batch(left[:size])
        left = left[size:]
    if left:
        yield batch(left)


FAMILIES = st.lists(st.dictionaries(KEYS, st.binary(max_size=2), max_size=12), min_size=1, max_size=4)


@few_or_many(25, 200, families=FAMILIES, sizes=st.lists(st.integers(0, 4), max_size=6))
def test_the_newest_family_wins_and_no_row_is_lost(families: list[Rows], sizes: list[int]) -> None:
    found: dict[bytes, tuple[int, bytes]] = {}
    last: dict[int, bytes] = {}
    for position, rows in merged_families([batches(rows, sizes) for rows in families]):
        assert rows.num_rows
        for key, value in pairs(rows):
            assert key not in found
            assert position not in last or last[position] < key
            found[key] = position, value
            last[position] = key
    expected: dict[bytes, tuple[int, bytes]] = {}
    for position, family in reversed(list(enumerate(families))):
        expected.update({key: (position, value) for key, value in family.items()})
    assert found == expected


def made(path: Path, families: dict[str, Rows]) -> Path:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    names = {name: Options(raw_mode=True) for name in families if name != "default"}
    database = Rdict(str(path), options=options, column_families=names or None)
    for name, rows in families.items():
        table = database if name == "default" else database.get_column_family(name)
        for key, value in rows.items():
            table[key] = value
        if table is not database:
            table.close()
    database.flush()
    database.close()
    return path


@pytest.mark.parametrize(
    "within", [KeyRange(), KeyRange(b"key 01000", b"key 03000"), KeyRange(b"key 00007", b"key 00007\0")]
)
def test_families_of_a_database_are_merged_in_ranges(tmp_path: Path, within: KeyRange) -> None:
    old = {b"key %05d" % number: b"old" for number in range(0, 6000, 2)}
    new = {b"key %05d" % number: b"new" for number in range(0, 6000, 7)}
    path = made(tmp_path / "store", {"default": old, "keyValueWithTimestamp": new})
    found = [
        row
        for rows in read_database(path, lambda rows: pairs(rows.rows), key_ranges=[within], batch_rows=100)
        for row in rows
    ]
    wanted = {
        key: value
        for key, value in {**old, **new}.items()
        if (within.first or b"") <= key and (within.stop is None or key < within.stop)
    }
    assert sorted(found) == sorted(wanted.items())


@pytest.mark.parametrize("batch_rows", [7, 5000])
def test_versioned_rows_of_many_segments_come_by_key(tmp_path: Path, batch_rows: int) -> None:
    rows = {row_key(-1, b"%04d" % key): b"latest" for key in range(0, 3000, 2)}
    for segment in range(40):
        rows |= {row_key(segment * 3, b"%04d" % key): b"%d" % segment for key in range(segment, 3000, 3 + segment)}
    rows[row_key(5, b"")] = b"empty"
    path = made(tmp_path / "store", {"default": rows})
    found: Rows = {}
    seen: set[bytes] = set()
    most = 0
    for read in read_versioned(path, batch_rows=batch_rows):
        got = dict(pairs(read))
        keys = {key[8:] for key in got}
        assert not keys & seen
        assert not found.keys() & got.keys()
        found |= got
        seen |= keys
        most = max(most, len(got))
    assert found == rows
    assert most < len(rows)


# Ranges of row keys

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


def test_overlapping_ranges_of_a_database_yield_each_row_once(tmp_path: Path) -> None:
    rows = {store_rows.encode_store_key(key, time): b"x" for key in (b"a", b"ab", b"b") for time in range(50)}
    path = made(tmp_path / "store", {"default": rows})
    ranges = [key_range("window", key) for key in (b"ab", b"a", b"ab")]
    found = [row for read in read_database(path, lambda read: pairs(read.rows), key_ranges=ranges) for row in read]
    assert found == sorted(row for row in rows.items() if row[0][:1] == b"a")
    assert not list(read_database(path, lambda read: pairs(read.rows), key_ranges=[]))


def inside(within: KeyRange, key: bytes) -> bool:
    if (within.first is not None and key < within.first) or (within.stop is not None and key >= within.stop):
        return False
    at = len(within.first or b"") + within.hole
    return key[at:].startswith(within.rest)
