"""Vacuum removes files that are no longer needed, and keeps those that a reader within the limit may still open."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path

import pytest
from support.stores.versioned_checks import Put, as_table, check_everything, create
from support.stores.versioned_model import Model

import statestore
from statestore.catalog.reads.segment_files import _shared
from statestore.catalog.stores.versioned.versioned_store import VersionedStore

HOUR = 3_600
ROWS: list[list[Put]] = [
    [("a", 1, 2), ("b", 2, 3), ("c", 3, 4)],
    [("a", 4, 8), ("b", None, 9)],
    [("a", 5, 5), ("c", 6, 10)],
]


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def store(tmp_path: Path, model: Model) -> VersionedStore:
    """Three commits and a compaction of all of them, which leaves what it replaced."""
    found = create(statestore.connect(tmp_path))
    found.auto_compact = False
    for rows in ROWS:
        write(found, model, rows)
    found.compact(full=True)
    model.same_again()
    return found


def write(store: VersionedStore, model: Model, rows: list[Put]) -> None:
    store.write(as_table(rows))
    for row in rows:
        model.put(*row)
    model.commit()


def names(store: VersionedStore) -> set[str]:
    return {item.name for item in store._storage.list("segments/")}


def make_older(store: VersionedStore, seconds: float) -> None:
    """Make the store's files look as if they had been written that long ago."""
    moment = time.time() - seconds
    for path in store._storage.root.rglob("*"):  # type: ignore[attr-defined]
        os.utime(path, (moment, moment))


def test_everything_unneeded_goes(store: VersionedStore, model: Model) -> None:
    before = names(store)
    listed = store.vacuum(older_than=0, dry_run=True)
    assert names(store) == before
    removed = store.vacuum(older_than=0)
    assert removed == listed and len(removed) == 6  # four segments and two closure lists of the commits
    assert all(item.bytes > 0 for item in removed)
    assert names(store) == before - {item.name for item in removed}
    assert store.vacuum(older_than=0) == []
    _shared.clear()
    check_everything(store, model)


def test_files_of_recent_versions_stay(store: VersionedStore, model: Model) -> None:
    """Commit times decide, and a file younger than the limit stays in any case: its commit may be about to be made."""
    for limit in ("7 days", timedelta(hours=1), 60_000):
        assert store.vacuum(older_than=limit) == []
    make_older(store, 2 * HOUR)
    assert store.vacuum(older_than="1 hour") == [], "their versions were the newest within the last hour"
    check_everything(store, model)


def test_orphans_go_once_they_are_old(store: VersionedStore, model: Model) -> None:
    root = store._storage.root  # type: ignore[attr-defined]
    orphans = {
        f"segments/{'0' * 32}.arrow",
        f"segments/{'0' * 32}.index.arrow",
        f"segments/{'0' * 32}.closures.arrow",
        f"segments/.tmp-{'0' * 32}",
        f"log/.tmp-{'0' * 32}",
        f"log/_checkpoint/.tmp-{'0' * 32}",
        f".tmp-{'0' * 32}",
        "staging/job/part.arrow",
    }
    for name in orphans:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"half a fi")
    assert store.vacuum(older_than="1 hour") == []
    make_older(store, 2 * HOUR)
    assert {item.name for item in store.vacuum(older_than="1 hour")} == orphans
    check_everything(store, model)


def test_pending_writes_stay(store: VersionedStore, model: Model) -> None:
    """Neither the changelog of this handle nor one that waits for its next owner is touched."""
    store.put("d", 7, timestamp=11)
    model.put("d", 7, 11)
    store.vacuum(older_than=0)
    store.close()
    with statestore.connect(store._storage.root.parent).open_store("s") as again:  # type: ignore[attr-defined]
        again.vacuum(older_than=0)
        again.commit()
        model.commit()
        check_everything(again, model)


def test_after_expiry(store: VersionedStore, model: Model) -> None:
    kept = {item.name for item in store.vacuum(older_than=0)}
    before = names(store) - kept
    store.expire(before=10)
    removed = {item.name for item in store.vacuum(older_than=0)}
    assert removed and removed < before
    assert {row["k"] for row in store.scan(as_of=10).read_all().to_pylist()} == {"a", "c"}


def test_commits_after_vacuum(store: VersionedStore, model: Model) -> None:
    store.vacuum(older_than=0)
    write(store, model, [("a", 9, 4), ("b", 1, 12)])
    store.compact(full=True)
    model.same_again()
    store.vacuum(older_than=0)
    check_everything(store, model)
