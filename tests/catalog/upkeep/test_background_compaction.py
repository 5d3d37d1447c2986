"""Small stores: left alone while they are small, dense after a pause or `close()`; and what a compaction keeps."""

from __future__ import annotations

from pathlib import Path

import pytest

import statestore
from statestore.catalog.reads.belief import with_closures
from statestore.catalog.stores.versioned.versioned_store import VersionedStore
from statestore.catalog.upkeep import background_compaction, compaction_rules
from statestore.catalog.upkeep.background_compaction import background_of
from statestore.catalog.upkeep.compaction_plan import ended_rows, is_idle_work, next_step
from statestore.catalog.upkeep.compaction_rules import Rules
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
