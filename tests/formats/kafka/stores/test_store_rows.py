"""Rows of stores as read from their table files, against what RocksDB for Java and the stores themselves answered."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st
from rocksdict import Options, Rdict
from support.kafka.applications import (
    APPLICATIONS,
    Rows,
    copied,
    folder_of,
    opened,
    partition_of,
    raw,
    running,
    state,
    stores,
)
from support.kafka.real_applications import form_of, plain_rows
from support.kafka.store_rows import encode_store_key
from support.parameters import mostly_slow
from support.properties import few_or_many

from statestore.formats.errors import CorruptError, InvalidInputError
from statestore.formats.kafka.columns.serde_columns import cell_serde
from statestore.formats.kafka.columns.store_kinds import KINDS, stored_rows
from statestore.formats.kafka.columns.versioned_rows import versioned_columns
from statestore.formats.kafka.directory.applications import Database, StorePartition
from statestore.formats.kafka.directory.database_copies import opened_copy
from statestore.formats.kafka.stores.family_merge import merged_families
from statestore.formats.kafka.stores.key_bounds import key_range
from statestore.formats.kafka.stores.store_rows import (
    StoredRows,
    databases_until,
    read_database,
    read_rows,
    read_versioned,
    segments_of,
)
from statestore.formats.kafka.stores.visibility import (
    has_stream_time,
    is_reachable,
    is_visible,
    observed_stream_time,
    segment_times,
)
from statestore.formats.kafka_rows.versioned_store import row_key
from statestore.formats.rocksdb.key_ranges import KeyRange
from statestore.formats.rocksdb.rows import ROW_SCHEMA

Found = dict[str, Any]


def itself(rows: StoredRows) -> StoredRows:
    return rows


def pairs(batch: pa.RecordBatch) -> list[tuple[bytes, bytes]]:
    return list(zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True))


def base_rows(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows of a time-ordered store without those of its index."""
    return rows.filter(pa.array([key[:1] == b"\0" for key in rows.column(0).to_pylist()]))


def partitions(name: str) -> list[tuple[StorePartition, Found]]:
    found = stores(name)
    return [(partition, found[partition.store]) for partition in state(name).partitions]


@pytest.mark.parametrize("reader", ["scanner", "rocksdict", ""])
@pytest.mark.parametrize("name", mostly_slow(APPLICATIONS, ["ledger"]))
def test_rows_are_those_of_rocksdb_for_java(name: str, reader: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if reader:
        monkeypatch.setenv("STATESTORE_ROCKSDB_READER", reader)
    application, found = state(name), defaultdict[tuple[str, str], Rows](dict)
    for partition in application.partitions:
        for database in partition.databases:
            for batch in read_rows(application.folder, [database], itself):
                assert batch.start == database.start
                rows = pairs(batch.rows)
                assert rows == sorted(rows)
                assert not found[database.path, batch.family].keys() & dict(rows).keys()
                found[database.path, batch.family].update(rows)
    assert found == {key: rows for key, rows in raw(name).items() if key[1] != "offsets"}


def answered(store: Found, row: Found) -> tuple[Any, ...]:
    """A row of the truth, to compare with `shown`."""
    value = row["value"]
    if store["value_serde"] == "float":
        value = struct.unpack(">f", struct.pack(">f", value))[0]
    time = row.get("timestamp")
    return (
        row["key"],
        row.get("start"),
        row.get("end"),
        repr(value),
        None if time == -1 else time,
        repr(row.get("headers")),
    )


def shown(store: Found, row: Found) -> tuple[Any, ...]:
    start, end = (row.get(f"window_{side}", row.get(f"session_{side}")) for side in ("start", "end"))
    value, headers = repr(row["value"]), repr(row.get("headers"))
    return row["key"], start, end, value, row.get("timestamp"), headers


@pytest.mark.parametrize("name", mostly_slow(APPLICATIONS, ["ledger"]))
def test_visible_rows_are_exactly_those_that_the_store_answered(name: str) -> None:
    application, rows_checked, hidden = state(name), 0, 0
    for partition, store in partitions(name):
        form = form_of(store)
        kind = KINDS[form.kind]
        if kind.rows not in ("plain", "window", "session", "time-ordered window", "time-ordered session"):
            continue
        answer = partition_of(store, partition.task)
        found: list[tuple[Any, ...]] = []
        for batch in read_rows(application.folder, partition.databases, itself, families=kind.families):
            rows = batch.rows
            if kind.rows.startswith("time-ordered"):
                rows = base_rows(rows)
            if has_stream_time(kind.rows):
                times = segment_times(kind.rows, rows)
                visible = is_visible(kind.rows, times, answer["observed_stream_time"], store["retention_ms"])
                hidden += int((~visible).sum())
                rows = rows.filter(pa.array(visible))
            decoded = stored_rows(form, batch.family, rows.column(0), rows.column(1))
            found += (shown(store, row) for row in plain_rows(decoded))
        expected = [answered(store, row) for row in answer["rows"]]
        if form.key_serde == "json":
            continue
        assert sorted(found, key=repr) == sorted(expected, key=repr), partition.store
        rows_checked += len(found)
    assert rows_checked >= {"orders": 600, "bookings": 350, "ledger": 180}[name]
    assert hidden >= {"orders": 150, "bookings": 100, "ledger": 0}[name]


@pytest.mark.parametrize("name", mostly_slow(APPLICATIONS, ["ledger"]))
def test_the_reconstructed_stream_time_is_never_too_great(name: str) -> None:
    application, exact, all_of_them = state(name), 0, 0
    for partition, store in partitions(name):
        form = KINDS[form_of(store).kind].rows
        real = partition_of(store, partition.task).get("observed_stream_time")
        if not has_stream_time(form) or real is None:
            continue
        batches = [batch.rows for batch in read_rows(application.folder, partition.databases, itself)]
        if form.startswith("time-ordered"):
            batches = [
                rows.filter(pa.array([key[:1] == b"\0" for key in rows.column(0).to_pylist()])) for rows in batches
            ]
        found = observed_stream_time(form, batches)
        assert found <= real
        exact += found == real
        all_of_them += 1
    assert all_of_them >= 7 or name == "ledger"
    assert exact >= all_of_them * 2 // 3


# Half-upgraded stores


def test_rows_of_all_families_of_a_store_are_read_by_its_kind() -> None:
    application = state("ledger")
    for partition, store in partitions("ledger"):
        kind = KINDS[form_of(store).kind]
        families = {batch.family for batch in read_rows(application.folder, partition.databases, itself)}
        assert len(families) == 2, partition.store
        assert families <= set(kind.families)


def test_rows_in_a_family_that_the_kind_does_not_have_are_an_error() -> None:
    application = state("orders")
    (prices,) = [part for part in application.partitions if (part.store, part.task) == ("prices", "2_1")]
    with pytest.raises(InvalidInputError, match=r"KAFKA_STORE_KIND.*keyValueWithTimestamp"):
        list(read_rows(application.folder, prices.databases, itself, families=KINDS["key-value"].families))


def test_a_damaged_table_file_is_an_error_and_no_row_is_wrong(tmp_path: Path) -> None:
    app = copied("orders", tmp_path, "3_0")
    application = opened(app)
    (visits,) = [part for part in application.partitions if part.store == "visits"]
    for table in (app / visits.databases[0].path).glob("*.sst"):
        data = bytearray(table.read_bytes())
        data[10:40] = bytes(byte ^ 0xFF for byte in data[10:40])
        table.write_bytes(data)
    with pytest.raises(CorruptError, match="ROCKSDB_FILE"):
        list(read_rows(application.folder, visits.databases, itself))


def test_a_running_application_without_table_files_yields_no_row() -> None:
    application = running("orders")
    for partition in application.partitions:
        assert not list(read_rows(application.folder, partition.databases, itself))


# Key ranges and segments


def test_one_key_of_a_store_is_found_by_its_range() -> None:
    application = state("bookings")
    (rooms,) = [part for part in application.partitions if part.store == "rooms"]
    everything = raw("bookings")["0_0/rocksdb/rooms", "default"]
    for key in [*everything, b"missing"]:
        within = (KeyRange(key, key + b"\0"),)
        found = [row for batch in read_rows(application.folder, rooms.databases, itself, key_ranges=within)
                 for row in pairs(batch.rows)]  # fmt: skip
        assert found == ([(key, everything[key])] if key in everything else [])


SEGMENTS = [Database(f"t/s/s.{start}", start) for start in (0, 60, 120, 300)]


@pytest.mark.parametrize(
    ("last", "starts"),
    [(None, [0, 60, 120, 300]), (119, [0, 60]), (60, [0, 60]), (59, [0]), (300, [0, 60, 120, 300]), (-1, [0])],
)
def test_segments_that_may_hold_times(last: int | None, starts: list[int]) -> None:
    """The interval may have changed, so a segment may reach beyond the start of the next one."""
    assert [database.start for database in databases_until(SEGMENTS, last)] == starts


def test_a_store_without_segments_may_hold_any_time() -> None:
    assert databases_until([Database("whole")], -5) == [Database("whole")]


@pytest.mark.parametrize("name", mostly_slow(APPLICATIONS, ["ledger"]))
def test_no_segment_with_a_row_of_the_time_is_left_out(name: str) -> None:
    application = state(name)
    for partition, store in partitions(name):
        form = KINDS[form_of(store).kind].rows
        if form not in ("window", "session"):
            continue
        for database in partition.databases:
            for batch in read_rows(application.folder, [database], itself):
                times = segment_times(form, batch.rows)
                for time in {int(times.min()), int(times.max())}:
                    assert database in databases_until(partition.databases, time)


# Versioned stores


def versioned(name: str) -> list[tuple[StorePartition, Found]]:
    return [(partition, store) for partition, store in partitions(name) if store["kind"] == "versioned"]


@pytest.mark.parametrize("batch_rows", [1, 3, 1000])
@pytest.mark.parametrize("name", mostly_slow(["orders", "bookings"], ["bookings"]))
def test_versioned_rows_come_by_key(name: str, batch_rows: int) -> None:
    application = state(name)
    for partition, _ in versioned(name):
        (database,) = partition.databases
        with opened_copy(folder_of(Path(application.folder.path, database.path))) as copy:
            batches = [pairs(batch) for batch in read_versioned(copy, batch_rows=batch_rows)]
            segments = segments_of(copy)
        everything = raw(name)[database.path, "default"]
        assert dict(row for batch in batches for row in batch) == everything
        assert sum(map(len, batches)) == len(everything)
        keys = [{key[8:] for key, _ in batch} for batch in batches]
        assert sum(map(len, keys)) == len(set().union(*keys))
        assert sorted(segments) == sorted({struct.unpack_from(">q", key)[0] for key in everything})
        assert segments[-1] == -1


@pytest.mark.parametrize("name", mostly_slow(["orders", "bookings"], ["bookings"]))
def test_versions_answer_every_question_about_the_past_as_the_store_did(name: str) -> None:
    application, asked, listed = state(name), 0, 0
    for partition, store in versioned(name):
        answer = partition_of(store, partition.task)
        time, retention = answer["observed_stream_time"], store["history_retention_ms"]
        versions: dict[str, list[tuple[int, int | None, Any]]] = defaultdict(list)
        (database,) = partition.databases
        with opened_copy(folder_of(Path(application.folder.path, database.path))) as copy:
            for rows in read_versioned(copy):
                key, value = cell_serde(store["key_serde"]), cell_serde(store["value_serde"])
                columns = versioned_columns(rows.column(0), rows.column(1), key, value)
                batch = pa.RecordBatch.from_pydict(columns)
                ends = batch.column("valid_to").cast(pa.int64()).fill_null(0).to_numpy() // 1000
                open_rows = batch.column("valid_to").is_null().to_numpy(zero_copy_only=False)
                kept = is_reachable(ends, open_rows, time, retention)
                for row, reachable in zip(plain_rows(batch), kept, strict=True):
                    versions[row["key"]].append((row["valid_from"], row["valid_to"], row["value"]))
                    assert reachable == (row["valid_to"] is None or row["valid_to"] > time - retention)
        for question in answer["as_of"]:
            moment = question["as_of"]
            found = None
            for start, end, value in versions[question["key"]]:
                if start <= moment and (end is None or moment < end) and (end is None or moment >= time - retention):
                    found = {"value": value, "valid_from": start}
            assert found == question["answer"]
            asked += 1
        got = {(key, *version) for key, found in versions.items() for version in found}
        reachable = {version for version in got if version[2] is None or version[2] > time - retention}
        answers = {(row["key"], row["valid_from"], row["valid_to"], row["value"]) for row in answer["versions"]}
        assert reachable <= answers <= got
        listed += len(answers)
    assert listed >= 20
    assert asked > 100


def test_keys_of_a_versioned_store_are_found_by_range() -> None:
    application = state("bookings")
    ((partition, _),) = versioned("bookings")
    everything = raw("bookings")[partition.databases[0].path, "default"]
    keys = sorted({key[8:] for key in everything})
    with opened_copy(folder_of(Path(application.folder.path, partition.databases[0].path))) as copy:
        for key in keys:
            (rows,) = read_versioned(copy, key_ranges=[(key, key + b"\0")])
            assert dict(pairs(rows)) == {row: value for row, value in everything.items() if row[8:] == key}
        (some,) = read_versioned(copy, key_ranges=[(keys[1], keys[3]), (keys[4], None)])
        assert {row[8:] for row, _ in pairs(some)} == {*keys[1:3], *keys[4:]}
        assert not list(read_versioned(copy, key_ranges=[(b"b", b"a")]))


def test_another_store_is_no_versioned_one() -> None:
    application = state("bookings")
    (rooms,) = [part for part in application.partitions if part.store == "upsell-left-shared-join-store"]
    with (
        opened_copy(folder_of(Path(application.folder.path, rooms.databases[0].path))) as copy,
        pytest.raises(CorruptError, match=r"KAFKA_BYTES|VERSIONED_ROW"),
    ):
        for rows in read_versioned(copy):
            versioned_columns(rows.column(0), rows.column(1), cell_serde("bytes"), cell_serde("bytes"))


def test_the_worked_example_of_visibility() -> None:
    """KAFKA-12960: retention 120,000; records at 1000, 1001, then 121,000."""
    times = np.array([1000, 1001, 121_000])
    assert is_visible("window", times, 121_000, 120_000).tolist() == [False, True, True]
    assert is_visible("time-ordered window", times, 121_000, 120_000).tolist() == [True, True, True]
    assert is_visible("time-ordered session", times, 121_000, 120_000).tolist() == [False, True, True]


# Merges of column families and ranges, against plain models

KEYS = st.binary(max_size=3)


def batch(rows: list[tuple[bytes, bytes]]) -> pa.RecordBatch:
    columns = [pa.array(cells, pa.binary()) for cells in ([key for key, _ in rows], [value for _, value in rows])]
    return pa.RecordBatch.from_arrays(columns, schema=ROW_SCHEMA)


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


def test_overlapping_ranges_of_a_database_yield_each_row_once(tmp_path: Path) -> None:
    rows = {encode_store_key(key, time): b"x" for key in (b"a", b"ab", b"b") for time in range(50)}
    path = made(tmp_path / "store", {"default": rows})
    ranges = [key_range("window", key) for key in (b"ab", b"a", b"ab")]
    found = [row for read in read_database(path, lambda read: pairs(read.rows), key_ranges=ranges) for row in read]
    assert found == sorted(row for row in rows.items() if row[0][:1] == b"a")
    assert not list(read_database(path, lambda read: pairs(read.rows), key_ranges=[]))
