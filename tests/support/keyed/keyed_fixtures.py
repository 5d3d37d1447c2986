"""Fixtures for tests of keyed snapshots: a store, a task, a gate, a race. Loaded as a plugin, never imported."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from statestore.catalog.keyed import keyed_store as keyed_store_module
from statestore.catalog.keyed.backend import KeyedBackend
from statestore.catalog.keyed.keyed_store import KeyedStore
from statestore.catalog.keyed.snapshots import snapshot_log, stored_files
from statestore.catalog.keyed.snapshots import take_snapshot as taking
from statestore.catalog.keyed.snapshots.snapshot_log import SnapshotLog
from support.keyed.keyed_backends import keyed_store, local
from support.keyed.keyed_gates import Gate, Race
from support.keyed.keyed_model import Tasks

pytest_plugins = ["support.keyed.keyed_place_fixtures"]


@pytest.fixture
def store(place: str) -> KeyedStore:
    return keyed_store(place)


@pytest.fixture
def backend(store: KeyedStore, tmp_path: Path) -> Iterator[KeyedBackend]:
    with store.backend(directory=local(tmp_path)) as found:
        yield found


@pytest.fixture
def tasks(store: KeyedStore, tmp_path: Path) -> Iterator[Tasks]:
    """One task, with nothing in it."""
    found = Tasks(store, local(tmp_path))
    found.open(1)
    yield found
    found.dispose()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    found = Gate()

    def held(write: Callable[..., Any]) -> Callable[..., Any]:
        def writing(*arguments: Any) -> Any:
            found.wait()
            return write(*arguments)

        return writing

    monkeypatch.setattr(taking, "store_copy", held(stored_files.store_copy))
    monkeypatch.setattr(taking, "store_batches", held(stored_files.store_batches))
    yield found
    found.open()


@pytest.fixture
def race(monkeypatch: pytest.MonkeyPatch) -> Race:
    found = Race()
    publish = snapshot_log.publish

    def raced(storage: Any, known: SnapshotLog, entry: Any, store_id: str) -> SnapshotLog | None:
        call, found.between = found.between, None
        if call is not None:
            call()
        return publish(storage, known, entry, store_id)

    monkeypatch.setattr(keyed_store_module, "publish", raced)
    return found
