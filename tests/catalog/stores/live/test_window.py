"""Time-ordered window stores, and nulls among duplicates: what survives restarts, lost tiers and commits."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.kafka.store_rows import encode_time_first_key

import statestore
from statestore.catalog.stores.live import window
from statestore.catalog.stores.live.hot_tier import HotTier
from statestore.catalog.stores.live.tier_position import read_position, write_position

MINUTE = 60_000
COLUMNS: dict[str, Any] = {"key": {"k": "binary"}, "value": {"v": "string"}}
PUTS = ((b"b", "1", 5), (b"a", "2", 9), (b"a", "3", 7), (b"a\0", "4", 7), (b"c", "5", MINUTE + 1))
BY_START = [(b"b", 5), (b"a", 7), (b"a\0", 7), (b"a", 9), (b"c", MINUTE + 1)]


def make(folder: Path, **options: Any) -> Any:
    return statestore.connect(folder).create_store(
        "s", kind="window", **COLUMNS, retention=2 * MINUTE, window_size=10, serde="kafka", **options
    )


def opened(folder: Path) -> Any:
    return statestore.connect(folder).open_store("s")


def places(rows: Any) -> list[tuple[bytes, int]]:
    return [(row.key, row.start) for row in rows]


def test_a_time_ordered_store_has_the_rows_of_kafka_on_disk(tmp_path: Path) -> None:
    with make(tmp_path, time_ordered=True) as store:
        for put in PUTS:
            store.put(*put)
        stored = [key for _, key, _ in store.physical()]
        assert stored == [encode_time_first_key(key, start) for key, start in BY_START]
        assert next(key for key, _, _ in store.changelog()) == b"b" + (5).to_bytes(8, "big") + bytes(4)


@pytest.mark.parametrize("lost", [False, True])
def test_the_order_survives_a_restart(tmp_path: Path, lost: bool) -> None:
    with make(tmp_path, time_ordered=True) as store:
        for put in PUTS[:3]:
            store.put(*put)
        store.commit()
        for put in PUTS[3:]:
            store.put(*put)
    if lost:
        shutil.rmtree(tmp_path / "s" / "live")
    with opened(tmp_path) as store:
        assert places(store.all()) == BY_START
        assert places(store.backward_fetch_range(b"a", b"b", 0, MINUTE)) == BY_START[3::-1]
        assert (store.fetch(b"a", 7), store.fetch(b"a\0", 7), store.fetch(b"a", 8)) == ("3", "4", None)


def test_a_reader_has_the_order_too(tmp_path: Path) -> None:
    with make(tmp_path, time_ordered=True) as store, opened(tmp_path) as reader:
        for number, put in enumerate(PUTS):
            store.put(*put)
            store.commit()
            assert len(list(reader.all())) == number + 1
        assert places(reader.all()) == BY_START


def test_an_overwrite_leaves_only_its_rows(tmp_path: Path) -> None:
    with make(tmp_path, time_ordered=True) as store:
        for put in PUTS:
            store.put(*put)
        store.write(pa.table({"k": [b"a", b"z"], "v": ["x", "y"], "window_start": [9, 3]}), "overwrite")
        assert [(row.key, row.start, row.value) for row in store.all()] == [(b"z", 3, "y"), (b"a", 9, "x")]
        assert store.scan().read_all().num_rows == 2


def test_a_tier_of_an_earlier_release_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Earlier releases stored the rows of every window store by key, and their positions do not say how."""
    with monkeypatch.context() as earlier:
        earlier.setattr(window, "TimeOrderedTier", HotTier)
        with make(tmp_path, time_ordered=True) as store:
            for put in PUTS:
                store.put(*put)
            store.commit()
    live = tmp_path / "s" / "live"
    position = read_position(live)
    assert position is not None and position.segments
    write_position(live, replace(position, time_ordered=False))
    with opened(tmp_path) as store:
        assert places(store.all()) == BY_START


def test_a_null_among_duplicates_changes_nothing(tmp_path: Path) -> None:
    """It is logged, but moves no stream time, not even in a replay, and becomes no row of the table."""
    with make(tmp_path, retain_duplicates=True) as store:
        store.put(b"a", None, 7)
        assert (store.commit(), store.observed_stream_time) == (0, -1)
        store.put(b"a", "1", 10)
        store.put(b"a", None, 100 * MINUTE)
        assert store.observed_stream_time == 10
        assert [(key[-4:], value) for key, value, _ in store.changelog()] == [
            (b"\0\0\0\1", None),
            (b"\0\0\0\2", b"1"),
            (b"\0\0\0\3", None),
        ]
    shutil.rmtree(tmp_path / "s" / "live")
    with opened(tmp_path) as store:
        assert store.observed_stream_time == 10
        assert [row.value for row in store.all()] == ["1"]
        store.put(b"a", "2", 10)
        store.commit()
        assert store.observed_stream_time == 10
        assert list(store.changelog()) == []
        rows = store.scan(columns=["v", "sequence"]).read_all().to_pylist()
        assert sorted((row["v"], row["sequence"]) for row in rows) == [("1", 2), ("2", 4)]


def test_the_last_put_among_duplicates_is_found(tmp_path: Path) -> None:
    with make(tmp_path, retain_duplicates=True) as store:
        store.put_all(pa.table({"k": [b"a", b"a"], "v": ["1", "2"], "window_start": [5, 5]}))
        assert (store.fetch(b"a", 5), store.fetch(b"a", 6)) == ("2", None)
        store.put(b"b", "3", 5)
        assert (store.fetch(b"a", 5), store.fetch(b"b", 5)) == (None, "3")
        store.put(b"b", None, 5)
        assert store.fetch(b"b", 5) == "3"
    with opened(tmp_path) as store:
        assert store.fetch(b"b", 5) is None


@pytest.mark.parametrize("serde", ["natural", "kafka"])
def test_versions_between_reversed_bounds_are_none(tmp_path: Path, serde: str) -> None:
    store: Any = statestore.connect(tmp_path).create_store(
        "v", kind="versioned", **COLUMNS, history_retention=MINUTE, serde=serde
    )
    with store:
        store.put(b"a", "1", 5)
        assert list(store.get_versions(b"a", 9, 7)) == []
        assert len(list(store.get_versions(b"a", 7, 7))) == 1
