"""Small stores: left alone while they are small, dense after a pause or `close()`; and what a compaction keeps."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import statestore
from statestore.catalog.reads.belief import with_closures
from statestore.catalog.stores.versioned.versioned_store import VersionedStore
from statestore.catalog.upkeep import background_compaction, compaction_rules
from statestore.catalog.upkeep.background_compaction import Background, background_of
from statestore.catalog.upkeep.compaction_plan import Step, ended_rows, is_idle_work, next_step
from statestore.catalog.upkeep.compaction_rules import Rules
from statestore.catalog.upkeep.publish_compaction import run_one_step
from statestore.formats.segments.decoded_columns import decoded

SMALL = Rules(small_idle=20, idle_fan_in=6)
KEYS = 5


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction_rules, "DEFAULT", SMALL)
    monkeypatch.setattr(background_compaction, "IDLE_SECONDS", 600.0)  # a slow machine is no pause


def opened(root: Path) -> VersionedStore:
    catalog = statestore.connect(root)
    if not (root / "s").exists():
        catalog.create_store("s", key={"k": "string"}, value={"v": "int"}).close()
    store: VersionedStore = catalog.open_store("s")
    return store


def commit(store: VersionedStore, *numbers: int) -> None:
    for number in numbers:
        for key in range(KEYS):
            store.put(f"k{key}", number, timestamp=10 * number + key)
        store.commit()


def ended(store: VersionedStore) -> list[int]:
    """The ended rows of each segment that has open rows."""
    state = store._log_state
    return [ended_rows(v) for v in with_closures(state.segments, state.closures) if v.meta.role in ("open", "delta")]


def test_commits_of_a_small_store_keep_their_numbers(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        commit(store, 1, 2, 3, 4)
    with opened(tmp_path) as store:
        assert store.version == 4
        assert ended(store) == [5, 5, 5, 0]


@pytest.mark.parametrize("commits", [6, 30])
def test_a_store_that_is_closed_is_dense(tmp_path: Path, commits: int) -> None:
    """Nothing is due by the rules for commits that go on; the answers are those of the commits."""
    with opened(tmp_path) as store:
        commit(store, *range(commits))
        assert next_step(store._log_state, SMALL, "due") is None
        assert is_idle_work(store._log_state, SMALL, KEYS * commits)
        assert not is_idle_work(store._log_state, SMALL, 0)
    with opened(tmp_path) as store:
        assert store.version == commits + 1
        assert ended(store) == [0]
        for number in range(commits):
            rows = store.scan(as_of=10 * number + KEYS).read_all().to_pylist()
            assert {(row["k"], row["v"]) for row in rows} == {(f"k{key}", number) for key in range(KEYS)}


def test_many_small_segments_are_merged_in_a_pause(tmp_path: Path) -> None:
    """Although none of their rows has ended."""
    with opened(tmp_path) as store:
        for number in range(SMALL.idle_fan_in):
            store.put(f"k{number}", number, timestamp=number)
            store.commit()
    with opened(tmp_path) as store:
        assert ended(store) == [0]
        assert store.scan().read_all().num_rows == SMALL.idle_fan_in


def test_a_pause_between_commits_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_compaction, "IDLE_SECONDS", 0.01)
    monkeypatch.setattr(compaction_rules, "DEFAULT", Rules(small_idle=4, idle_fan_in=6))
    with opened(tmp_path) as store:
        commit(store, 1, 2)
        thread = background_of(store._files)._thread
        assert thread is not None
        thread.join()
        assert store.refresh() == 3
        assert ended(store) == [0]


def test_a_compaction_leaves_the_columns_that_readers_keep(tmp_path: Path) -> None:
    """It opens its inputs for itself: what it decompresses displaces nothing of theirs."""
    with opened(tmp_path) as store:
        commit(store, *range(30))
        store.compact(full=True)
        store.history().read_all()
        kept = list(decoded._kept)
        assert kept
        commit(store, *range(30, 33))
        store.compact(full=True)
        assert [key for key in decoded._kept if key in kept] == kept
        assert not {key for key in decoded._kept if key not in kept}


# A handle that closes leaves the open rows dense, and large merges of ended rows to the next writer.

MANY_KEYS, LEAVING = 1_000, Rules(small_store=50, small_idle=20, fan_in=4, tier_rows=64, closing_rows=300)


def commit_many(store: VersionedStore, number: int, keys: range) -> None:
    columns = {"k": [f"k{key}" for key in keys], "v": [number] * len(keys)}
    store.put_all(pa.table({**columns, "timestamp": [10 * number] * len(keys)}))
    store.commit()


def values(store: VersionedStore) -> dict[str, int]:
    return {row["k"]: row["v"] for row in store.scan().read_all().to_pylist()}


@pytest.mark.parametrize(("changed", "left"), [(20, 20), (21, 0)])
def test_a_writer_that_changed_enough_leaves_open_rows_dense(tmp_path: Path, changed: int, left: int) -> None:
    """One row in a hundred is enough, but not fewer than ``small_idle``."""
    with opened(tmp_path) as store:
        commit_many(store, 0, range(MANY_KEYS))
    with opened(tmp_path) as store:
        commit_many(store, 1, range(changed))
        assert sum(ended(store)) == changed
    with opened(tmp_path) as store:
        assert sum(ended(store)) == left
        assert values(store) == {f"k{key}": int(key < changed) for key in range(MANY_KEYS)}


def test_changes_of_several_writers_add_up(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        commit_many(store, 0, range(MANY_KEYS))
    counts = []
    for number in range(1, 5):
        with opened(tmp_path) as store:
            commit_many(store, number, range(10 * number, 10 * number + 8))
        with opened(tmp_path) as store:
            counts.append(sum(ended(store)))
    assert counts == [8, 16, 0, 8]


def closed_rows(store: VersionedStore) -> list[int]:
    return [meta.rows for meta in store._log_state.segments if meta.role == "closed"]


def test_a_large_merge_is_left_to_the_next_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction_rules, "DEFAULT", LEAVING)
    with opened(tmp_path) as store:
        commit_many(store, 0, range(MANY_KEYS))
    for number in range(1, LEAVING.fan_in + 1):
        with opened(tmp_path) as store:
            commit_many(store, number, range(100))
    with opened(tmp_path) as store:
        assert sum(ended(store)) == 0
        state = store._log_state
        assert closed_rows(store) == [100] * LEAVING.fan_in
        assert next_step(state, LEAVING, "closing") is None
        assert next_step(state, LEAVING, "due") is not None
        commit_many(store, 9, range(500, 510))
        thread = background_of(store._files)._thread
        assert thread is not None
        while next_step(store._files.log.newest(), LEAVING, "due") is not None:
            background_of(store._files)._stepped.wait(0.01)
        store.refresh()
        assert closed_rows(store) == [100 * LEAVING.fan_in]
        expected = {f"k{key}": 9 if 500 <= key < 510 else 4 * (key < 100) for key in range(MANY_KEYS)}
        assert values(store) == expected


def test_a_merge_is_not_left_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no writer lives long enough for it, one of them has to do it."""
    monkeypatch.setattr(compaction_rules, "DEFAULT", LEAVING)
    run = Background._start
    monkeypatch.setattr(Background, "_start", lambda self, state: run(self, state) if self._stopping else None)
    with opened(tmp_path) as store:
        commit_many(store, 0, range(MANY_KEYS))
    most = 0
    for number in range(1, 2 * LEAVING.overdue * LEAVING.fan_in):
        with opened(tmp_path) as store:
            most = max(most, len(closed_rows(store)))
            commit_many(store, number, range(100))
    assert LEAVING.fan_in < most <= 2 * LEAVING.overdue * LEAVING.fan_in


def test_a_step_that_is_given_up_leaves_no_file(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        commit_many(store, 0, range(MANY_KEYS))
        commit_many(store, 1, range(100))
        state, before = store._log_state, sorted((tmp_path / "s" / "segments").iterdir())
        asked: list[int] = []

        def stop(step: Step) -> bool:
            asked.append(step.rows)
            return len(asked) > 1

        assert run_one_step(store._files, state, SMALL, "closing", stop=stop) is state
        assert asked == [MANY_KEYS] * 2
        assert sorted((tmp_path / "s" / "segments").iterdir()) == before
