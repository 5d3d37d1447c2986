"""Properties of all live stores: locks, readers beside a writer, threads, tables, metrics, bulk writes."""

from __future__ import annotations

import gc
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.parameters import mostly_slow, named
from support.stores.kafka_vectors import cases, run_case
from support.stores.live_adapters import ADAPTERS
from support.stores.live_kinds import COLUMNS, KINDS, create, live_rows, put, rows
from support.stores.live_places import PLACES, warehouse_in

import statestore
from statestore.catalog.stores import store_handle
from statestore.catalog.stores.live.live_rows import apply_rows
from statestore.formats.errors import (
    ConflictError,
    InvalidInputError,
    ReadOnlyError,
    StateStoreError,
    UnsupportedError,
)

HOUR = 3_600_000
EVERYWHERE = pytest.mark.quick("directory-window", "directory-session", "objects-key_value")
"""A few kinds in a directory, one in an object store: kinds differ in rows, places in how a commit is published."""


@pytest.fixture(params=PLACES)
def catalog(tmp_path: Path, request: pytest.FixtureRequest) -> statestore.Catalog:
    return warehouse_in(tmp_path / "warehouse", request.param)


@pytest.fixture
def local_catalog(tmp_path: Path) -> statestore.Catalog:
    return statestore.connect(tmp_path / "warehouse")


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@EVERYWHERE
def test_a_second_writer_is_refused_and_reads_what_is_committed(catalog: statestore.Catalog, kind: str) -> None:
    with create(catalog, kind) as writer, catalog.open_store("s") as other:
        put(writer, "a", 1)
        writer.commit()
        put(writer, "b", 2)
        assert live_rows(writer) == [("a", 1), ("b", 2)]
        assert live_rows(other) == rows(other) == [("a", 1)]
        for write in (lambda: put(other, "c", 3), other.commit, other.flush, lambda: other.put_all(pa.table({}))):
            with pytest.raises(ConflictError, match=r"STORE_LOCKED.*this process.*read_only=True"):
                write()
        put(writer, "a", None)
        writer.commit()
        assert live_rows(other) == rows(other)


@EVERYWHERE
def test_a_reader_follows_every_commit(catalog: statestore.Catalog, kind: str) -> None:
    """A reader follows commits also when the store was compacted meanwhile."""
    with create(catalog, kind) as writer, catalog.open_store("s", read_only=True) as reader:
        for number, key in enumerate("abca"):
            put(writer, key, number)
            if kind != "join_window":
                put(writer, "d", None if number % 2 else number)
            writer.commit()
            if number == 2:
                writer.compact(full=True)
            assert live_rows(reader) == live_rows(writer) == rows(writer)
            if kind == "key_value":
                assert [reader.get(name) for name in "abcd"] == [writer.get(name) for name in "abcd"]
            with pytest.raises(ReadOnlyError, match="READ_ONLY"):
                put(reader, "e", 1)


@EVERYWHERE
def test_reading_only_takes_no_lock(catalog: statestore.Catalog, kind: str) -> None:
    create(catalog, kind).close()
    with catalog.open_store("s", read_only=True) as reader, catalog.open_store("s") as writer:
        assert live_rows(reader) == []
        put(writer, "a", 1)
        assert reader.dropped_records == 0
        reader.close()
        with pytest.raises(InvalidInputError, match="STORE_CLOSED"):
            live_rows(reader)


OTHER_PROCESS = """
import sys, statestore
for folder in sys.argv[1:]:
    with statestore.connect(folder).open_store("s") as store:
        try:
            store.commit()
            print(store.scan(columns=["k", "v"]).read_all().to_pylist())
        except statestore.ConflictError as error:
            print(error)
"""


@pytest.mark.parametrize(
    ("held", "dropped"),
    mostly_slow(zip(KINDS, [*list(KINDS)[1:], "key_value"], strict=True), [("key_value", "window")]),
)
def test_another_process_is_refused_while_a_handle_has_the_lock(tmp_path: Path, held: str, dropped: str) -> None:
    """A dropped handle gives it up, and the other process takes over the rows that it acknowledged."""
    folders = [tmp_path / "held", tmp_path / "dropped"]
    store = create(statestore.connect(folders[1]), dropped)
    put(store, "a", 1)
    del store
    gc.collect()
    with create(statestore.connect(folders[0]), held) as kept:
        put(kept, "a", 1)
        command = [sys.executable, "-c", OTHER_PROCESS, *map(str, folders)]
        done = subprocess.run(command, capture_output=True, check=True, text=True)
    refused, rows_found = done.stdout.splitlines()
    assert "STORE_LOCKED" in refused and rows_found == "[{'k': 'a', 'v': 1}]"


def test_a_dropped_handle_asks_for_no_compaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be dropped in a thread that has the lock under which the compaction of a store is made."""
    asked: list[Any] = []
    catalog = statestore.connect(tmp_path)
    store = create(catalog, "key_value")
    put(store, "a", 1)
    store.commit()
    monkeypatch.setattr(store_handle, "background_of", asked.append)
    del store
    gc.collect()
    assert not asked
    with catalog.open_store("s") as again:  # the lock was given up
        assert live_rows(again) == [("a", 1)]


@EVERYWHERE
def test_a_handle_that_was_opened_before_a_commit_answers_it(catalog: statestore.Catalog, kind: str) -> None:
    """Its first live verb takes the lock, and with it the commits that others made until then."""
    create(catalog, kind).close()
    with catalog.open_store("s") as store:
        with catalog.open_store("s") as other:
            put(other, "a", 1)
            other.commit()
        assert live_rows(store) == [("a", 1)]


def test_threads_take_turns(catalog: statestore.Catalog) -> None:
    """Puts of several threads are all there, each key with the last value of its thread."""
    with create(catalog, "key_value") as store:

        def work(name: str) -> None:
            for number in range(500):
                store.put(f"{name}-{number % 50}", number)
                store.get(f"{name}-{number % 50}")

        threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        store.commit()
        for thread in threads:
            thread.join()
        expected = [(f"{name}-{n}", 450 + n) for name in "abcd" for n in range(50)]
        assert live_rows(store) == sorted(expected)
        store.commit()
        assert rows(store) == sorted(expected)


TABLES = {
    "key_value": {"timestamp": [5, 6, 7]},
    "window": {"window_start": [5, 6, 7]},
    "join_window": {"event_time": [5, 6, 7]},
    "session": {"session_start": [1, 2, 3], "session_end": [5, 6, 7]},
}


@pytest.mark.parametrize("serde", ["natural", "kafka"])
def test_bulk_puts_are_puts(local_catalog: statestore.Catalog, kind: str, serde: str) -> None:
    table = pa.table({"k": ["a", "b", "c"], "v": pa.array([1, 2, 3], pa.int64()), **TABLES[kind]})
    with create(local_catalog, kind, serde=serde) as store:
        assert store.put_all(table) == (3, 0)
        assert live_rows(store) == [("a", 1), ("b", 2), ("c", 3)]
        store.commit()
        assert rows(store) == [("a", 1), ("b", 2), ("c", 3)]
        if kind != "join_window":
            changes = table.append_column("_change_type", pa.array(["delete", "update_preimage", None]))
            store.put_all(changes.set_column(1, "v", pa.array([9, 9, 9], pa.int64())))
            assert live_rows(store) == [("b", 2), ("c", 9)]
            store.commit()
            assert rows(store) == [("b", 2), ("c", 9)]


def test_late_rows_of_a_table_are_refused_at_their_turn(local_catalog: statestore.Catalog) -> None:
    times = [0, 3 * HOUR, 0, 3 * HOUR - 1]
    table = pa.table({"k": list("abcd"), "v": pa.array(range(4), pa.int64()), "window_start": times})
    with create(local_catalog, "window") as store:
        assert store.put_all(table) == (3, 1)
        assert store.dropped_records == 1
        assert live_rows(store) == [("b", 1), ("d", 3)]
        store.commit()
        assert store.dropped_records == 1
        assert rows(store) == [("b", 1), ("d", 3)]
        assert store.scan(as_of=0, columns=["k"]).read_all()["k"].to_pylist() == ["a"]


@EVERYWHERE
def test_writes_are_one_commit_and_once(catalog: statestore.Catalog, kind: str) -> None:
    table = pa.table({"k": ["a", "b", "c"], "v": pa.array([1, 2, 3], pa.int64()), **TABLES[kind]})
    with create(catalog, kind) as store:
        version = store.write(table, transaction=("job", 1))
        assert store.write(table, transaction=("job", 1)) == version == store.version
        assert live_rows(store) == rows(store) == [("a", 1), ("b", 2), ("c", 3)]
        put(store, "d", 4, 8)
        store.write(table.slice(1, 1), mode="overwrite")
        assert live_rows(store) == rows(store) == [("b", 2)]
        assert len(rows_at(store, version)) == 3


def rows_at(store: Any, version: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = store.scan(version=version).read_all().to_pylist()
    return found


@EVERYWHERE
def test_a_repeated_transaction_takes_back_what_was_put_for_it(catalog: statestore.Catalog, kind: str) -> None:
    with create(catalog, kind) as store:
        put(store, "a", 1)
        version = store.commit(transaction=("job", 1))
        put(store, "a", 2)
        put(store, "b", 3)
        assert store.commit(transaction=("job", 1)) == version
        assert live_rows(store) == rows(store) == [("a", 1)]
        put(store, "c", 4)
        store.commit(transaction=("job", 2))
        assert rows(store) == [("a", 1), ("c", 4)]


def test_window_tables_show_what_the_store_showed(local_catalog: statestore.Catalog) -> None:
    """A table as of each stream time shows the windows that were not expired; history shows their ends."""
    with create(local_catalog, "window") as store:
        for number in range(100):
            store.put("a", number, number * 60_000)
            if number % 10 == 9:
                store.commit()
        for moment in (0, 59 * 60_000, 60 * 60_000, 99 * 60_000):
            shown = store.scan(as_of=moment, columns=["v"]).read_all()["v"].to_pylist()
            newest = moment // 60_000
            assert sorted(shown) == list(range(max(0, newest - 59), newest + 1))
        ended = store.history(filter=("v", "=", 3)).read_all().to_pylist()[0]
        assert (ended["valid_to"] - ended["valid_from"]).total_seconds() == 3600
        assert store.history(filter=("v", "=", 99)).read_all()["valid_to"].to_pylist() == [None]


def test_metrics_count_every_call(local_catalog: statestore.Catalog) -> None:
    with create(local_catalog, "window") as store:
        for number in range(200):
            store.put("a", number, number)
        for number in range(3):
            store.fetch("a", number)
        list(store.fetch("a", 0, 10))
        list(store.all())
        store.flush()
        store.put("a", 1, 5 * HOUR)
        store.put("a", 1, 0)
        found = store.metrics()
    counts = {name: latency["count"] for name, latency in found["latencies"].items()}
    assert counts == {"put": 202, "get": 0, "fetch": 4, "range": 1, "flush": 1, "restore": 1}
    assert found["latencies"]["put"]["p99_us"] >= found["latencies"]["put"]["mean_us"] / 100 > 0
    assert (found["dropped_records"], found["observed_stream_time"], found["hot_segments"]) == (1, 5 * HOUR, 1)


def test_an_iterator_of_a_closed_store_says_so(local_catalog: statestore.Catalog) -> None:
    store = create(local_catalog, "key_value")
    for number in range(1_000):
        store.put(str(number), number)
    found = store.all()
    next(found)
    store.close()
    with pytest.raises(InvalidInputError, match="STORE_CLOSED"):
        list(found)
    with local_catalog.open_store("s") as again:
        assert len(list(again.all())) == 1_000


def test_natural_and_kafka_order(local_catalog: statestore.Catalog) -> None:
    """Kafka's integers sort negatives last, and a range from -1 to 1 is inverted; natural ones sort as numbers."""
    for serde, order, inside in (("natural", [-2, -1, 0, 1], [-1, 0, 1]), ("kafka", [0, 1, -2, -1], [])):
        with local_catalog.create_store(
            serde, kind="key_value", key={"k": "int"}, value={"v": "int"}, serde=serde
        ) as store:
            for key in (0, -2, 1, -1):
                store.put(key, key)
            assert [row.key for row in store.all()] == order
            assert [row.key for row in store.range(-1, 1)] == inside
            assert [row.key for row in store.reverse_all()] == order[::-1]


def test_several_columns(local_catalog: statestore.Catalog) -> None:
    key, value = {"name": "string", "day": "date"}, {"a": "double", "b": "array<string>"}
    with local_catalog.create_store("s", kind="session", key=key, value=value, retention="1 day") as store:
        from datetime import date

        store.put(("x", date(2024, 1, 2)), 5, 9, (1.5, ["y", None]))
        (row,) = store.fetch({"day": date(2024, 1, 2), "name": "x"})
        assert row == ({"name": "x", "day": date(2024, 1, 2)}, 5, 9, {"a": 1.5, "b": ["y", None]})
        store.commit()
        found = store.scan(columns=["name", "a", "b"]).read_all().to_pylist()
        assert found == [{"name": "x", "a": 1.5, "b": ["y", None]}]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"kind": "window", "window_size": 5}, "MISSING_OPTION.*retention"),
        ({"kind": "window", "retention": 5}, "MISSING_OPTION.*window_size"),
        ({"kind": "window", "retention": 5, "window_size": 6}, "INVALID_OPTION.*window_size"),
        ({"kind": "window", "retention": 5, "window_size": 5, "segment_interval": 0}, "INVALID_OPTION.*segment"),
        ({"kind": "session"}, "MISSING_OPTION.*retention"),
        ({"kind": "join_window", "retention": 5, "num_segments": 1}, "INVALID_OPTION.*num_segments"),
        ({"kind": "key_value", "retention": 5}, "UNKNOWN_OPTION.*retention"),
        ({"kind": "window", "retention": 5, "window_sise": 6}, "UNKNOWN_OPTION.*did you mean window_size"),
        ({"kind": "session", "retention": "soon"}, "INVALID_DURATION"),
        ({"kind": "bag"}, "UNSUPPORTED_KIND.*bag"),
        ({"kind": "key_value", "serde": "avro"}, "UNSUPPORTED_SERDE.*avro"),
    ],
)
def test_wrong_options(local_catalog: statestore.Catalog, options: dict[str, Any], code: str) -> None:
    with pytest.raises(StateStoreError, match=code):
        local_catalog.create_store("s", **COLUMNS, **options)
    assert local_catalog.stores() == []


def test_a_column_that_the_kind_adds_is_taken(local_catalog: statestore.Catalog) -> None:
    with pytest.raises(InvalidInputError, match=r"WRONG_SCHEMA.*window_start"):
        local_catalog.create_store(
            "s", kind="window", key={"window_start": "int"}, value={"v": "int"}, retention=5, window_size=5
        )


def test_kafka_serde_needs_one_column(local_catalog: statestore.Catalog) -> None:
    with pytest.raises(UnsupportedError, match="UNSUPPORTED_SERDE"):
        local_catalog.create_store(
            "s", kind="key_value", key={"a": "int", "b": "int"}, value={"v": "int"}, serde="kafka"
        )
    assert local_catalog.stores() == []


RESTORED: dict[str, list[tuple[Any, ...]]] = {
    "key_value": [("a", 1), ("b", 2, 5), ("a", None), ("c", 3), ("b", 4)],
    "window": [
        ("a", 1, 0),
        ("b", 2, 5 * HOUR),
        ("a", 3, 5 * HOUR),
        ("b", None, 5 * HOUR),
        ("c", 9, 0),
        ("b", 4, 5 * HOUR),
    ],
    "session": [("a", 0, 0, 1), ("b", 9, 5 * HOUR, 2), ("a", 1, 5 * HOUR, 3), ("b", 9, 5 * HOUR, 4), ("c", 0, 0, 9)],
    "join_window": [("a", 1, 0), ("b", 4, 5 * HOUR), ("a", 3, 5 * HOUR)],
}


@EVERYWHERE
def test_a_restore_is_durable_and_counts_nothing(catalog: statestore.Catalog, kind: str) -> None:
    """The stream time moves first; rows of dead segments are left out."""
    expected = [("b", 4), ("c", 3)] if kind == "key_value" else [("a", 3), ("b", 4)]
    with create(catalog, kind) as store:
        store.restore(iter(RESTORED[kind]))
        assert store.dropped_records == 0
        if kind != "join_window":
            assert live_rows(store) == expected
    with catalog.open_store("s") as store:
        store.commit()
        assert rows(store) == expected


def test_a_restart_costs_the_tail_only(
    local_catalog: statestore.Catalog, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flushed rows are not applied again after the process has died."""
    store = create(local_catalog, kind)
    for number in range(500):
        put(store, f"key-{number}", number)
    store.flush()
    for number in range(7):
        put(store, f"tail-{number}", number)
    copy = statestore.connect(local_catalog.root.with_name("copy"))
    shutil.copytree(local_catalog.root / "s", copy.root / "s")  # as it was when the process died
    store.close()
    applied: list[int] = []

    def counting(tier: Any, keys: pa.BinaryArray, *rest: Any) -> None:
        applied.append(len(keys))
        apply_rows(tier, keys, *rest)

    monkeypatch.setattr("statestore.catalog.stores.live.live_recovery.apply_rows", counting)
    with copy.open_store("s") as again:
        again.commit()
        assert sum(applied) == 7
        assert len(rows(again)) == 507


# Kafka's cases of key-value, window, join-window and session stores, each against a live store with Kafka's serdes.


@pytest.mark.parametrize("name", ["keyvalue", "window", "session", "engine-stores"])
def test_cases(name: str, tmp_path: Path) -> None:
    for number, case in enumerate(cases(name)):
        with named(case["id"]):
            folder = tmp_path / str(number)
            folder.mkdir()
            adapter = ADAPTERS[case["store"]["type"]](folder, case["store"])
            assert run_case(case, adapter) == sum("expect" in op for op in case["ops"]) > 0
            adapter.store.close()
