"""Threads that share a live handle: a write of one is no damage to another, and no thread sees half of one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import statestore
from statestore.catalog.stores.live.hot_tier import ONE, HotTier, TierScan

COLUMNS: dict[str, Any] = {"key": {"k": "string"}, "value": {"v": "bigint"}}
HOUR = 3_600_000
TIME = 10 * HOUR
OPTIONS: dict[str, dict[str, Any]] = {
    "key_value": {},
    "window": {"retention": 8 * HOUR, "window_size": 60_000, "segment_interval": 2 * HOUR},
    "session": {"retention": 8 * HOUR, "segment_interval": 2 * HOUR},
    "join_window": {"window_before": HOUR, "window_after": HOUR, "retention": 8 * HOUR, "num_segments": 5},
}
READS: dict[str, list[Callable[[Any], Iterator[Any]]]] = {
    "key_value": [lambda s: s.all(), lambda s: s.reverse_all(), lambda s: s.range("00000", "99999")],
    "window": [lambda s: s.all(), lambda s: s.backward_all(), lambda s: s.fetch("one", 0, TIME + HOUR)],
    "session": [lambda s: s.fetch_range(None, None), lambda s: s.backward_fetch_range(None, None)],
    "join_window": [lambda s: s.fetch("one", TIME)],
}
MANY = 600  # more than a scan takes at once


def put(store: Any, kind: str, number: int) -> None:
    """Rows of one segment, in the order of their numbers."""
    if kind == "key_value":
        store.put(f"{number:05}", number)
    elif kind == "session":
        store.put("one", TIME, TIME + number, number)
    else:
        store.put("one", number, TIME + number)


def restores(store: Any) -> int:
    """The number of times that the hot tier was opened or rebuilt."""
    found: int = store.metrics()["latencies"]["restore"]["count"]
    return found


@pytest.mark.parametrize("kind", OPTIONS)
def test_what_is_put_at_the_end_of_a_scan_is_no_damage(tmp_path: Path, kind: str) -> None:
    """Before the first row, behind the last one and among them: the rows are those of the first one's moment."""
    with statestore.connect(tmp_path).create_store("s", kind=kind, **COLUMNS, **OPTIONS[kind]) as store:
        numbers = list(range(100, 100 + 2 * MANY, 2))
        for number in numbers:
            put(store, kind, number)
        begun = []
        for read in READS[kind]:
            rows = read(store)
            begun.append((rows, [next(rows)]))
        opened = restores(store)
        for number in (50, 101, 99 + 2 * MANY, 100 + 2 * MANY, 200 + 2 * MANY):
            put(store, kind, number)
        for rows, first in begun:
            assert sorted(row.value for row in (*first, *rows)) == numbers
        for read in READS[kind]:
            assert len(list(read(store))) == MANY + 5
        assert restores(store) == opened


def test_a_segment_that_is_dropped_under_its_readers_is_no_damage(tmp_path: Path) -> None:
    """The scan ends, the database is given up, and another one can be made in its place at once."""
    tier = HotTier(tmp_path, "s", str)
    for number in range(MANY):
        tier.put(1, f"{number:05}".encode(), b"old")
    rows = tier.scan(1)
    assert next(rows) == (b"00000", b"old")
    dropped = tier.database(1)
    assert tier.drop_before(2)
    tier.put(1, b"a", b"new")
    assert list(tier.scan(1)) == [(b"a", b"new")]
    assert len(list(rows)) < MANY
    tier._databases[3] = dropped  # as a reader has it that took it out a moment before it was dropped
    reading = _DroppedWhenAsked(tier, dropped)
    tier._databases[3] = reading
    assert tier.get(3, b"00000") is None
    tier._databases[3] = reading
    assert tier.estimated_rows() <= 1
    tier.close()


class _DroppedWhenAsked:
    """A database that another thread drops during a read."""

    def __init__(self, tier: HotTier, database: Any) -> None:
        self._tier, self._database = tier, database

    def __getattr__(self, name: str) -> Any:
        self._tier._databases.pop(3, None)
        return getattr(self._database, name)


def test_a_tier_that_is_closed_under_a_scan_can_be_opened_at_once(tmp_path: Path) -> None:
    """RocksDB keeps its lock on the directory while any iterator lives."""
    tier = HotTier(tmp_path, "s")
    for number in range(MANY):
        tier.put(ONE, f"{number:05}".encode(), b"")
    begun = [tier.scan(ONE), tier.scan(ONE, backwards=True)]
    firsts = [next(rows) for rows in begun]
    tier.flush()
    marks = tier.marks()
    tier.close()
    again = HotTier(tmp_path, "s")
    again.open(marks)
    assert [again.get(ONE, key) for key, _ in firsts] == [b"", b""]
    again.close()


def test_closing_a_scan_waits_for_the_turn_of_another_thread() -> None:
    closed = threading.Event()

    class Native:
        """An iterator without rows, under which another thread closes the scan."""

        held = True

        def seek_to_first(self) -> None: ...

        def next(self) -> None: ...

        def prev(self) -> None: ...

        def value(self) -> bytes:
            return b""

        def status(self) -> None: ...

        def key(self) -> None:
            closer.start()
            self.held = not closed.wait(0.2)  # in vain: it has to wait for this turn

        def iter(self, options: object) -> Native:
            return self

    def close() -> None:
        scan.close()
        closed.set()

    native, scan, closer = Native(), TierScan(None, None, False), threading.Thread(target=close)
    scan.begin(native)
    assert scan.some() == []
    closer.join()
    assert native.held


def test_a_tier_that_other_threads_give_up_is_no_failure(tmp_path: Path) -> None:
    """A reader continues with the present tier, however often it is replaced."""
    with statestore.connect(tmp_path).create_store("s", kind="key_value", **COLUMNS) as store:
        store.put("a", 1)
        left = list(range(6))
        expected = store._read(lambda tier: tier.get(ONE, store._key_bytes("a")))

        def ask(tier: HotTier) -> bytes | None:
            if left:
                left.pop()
                store._make_anew()
            return tier.get(ONE, store._key_bytes("a"))

        assert store._read(ask) == expected != None  # noqa: E711
        assert store.get("a") == 1


def test_no_thread_sees_half_of_a_versioned_put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A put writes the version before it, with its end, and then the newest one."""
    columns = {**COLUMNS, "serde": "kafka", "history_retention": 8 * HOUR}
    with statestore.connect(tmp_path).create_store("s", **columns) as store:
        store.put("a", 1, TIME)
        original, found, readers = HotTier.put, list[Any](), list[threading.Thread]()

        def read() -> None:
            found.append([(row.valid_from, row.valid_to, row.value) for row in store.get_versions("a")])

        def put_slowly(tier: HotTier, time_segment: int, key: bytes, value: bytes | None) -> None:
            original(tier, time_segment, key, value)
            readers.append(threading.Thread(target=read))
            readers[-1].start()
            readers[-1].join(0.2)  # in vain: it has to wait for the put

        monkeypatch.setattr(HotTier, "put", put_slowly)
        store.put("a", 2, TIME + 5)
        for reader in readers:
            reader.join()
    assert len(found) == 2
    assert found[0] == found[1] == [(TIME + 5, None, 2), (TIME, TIME + 5, 1)]
