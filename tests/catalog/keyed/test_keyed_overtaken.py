"""Keyed snapshots that are discarded during a read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.keyed.keyed_backends import refused
from support.keyed.keyed_gates import files, fill, named
from support.keyed.keyed_model import Tasks, travelled
from support.places import DIRECTORY, MEMORY, S3

from statestore.catalog.keyed.keyed_store import KeyedStore
from statestore.catalog.keyed.snapshots import stored_files
from statestore.catalog.log.storage import LocalStorage
from statestore.catalog.log.storage_objects import ObjectStorage

pytest_plugins = ["support.keyed.keyed_fixtures"]
PLACES = (DIRECTORY, MEMORY, S3)


def overtaken(store: KeyedStore, tasks: Tasks, monkeypatch: pytest.MonkeyPatch) -> int:
    """A snapshot that is discarded, while another one is committed, just after its first file was compared."""
    fill(tasks, 1)
    version = tasks.commit("incremental")
    fill(tasks, 2)
    parts = travelled(tasks.snapshot(["full"]))
    whole, opened = stored_files.checked, ObjectStorage.opened

    def overtake() -> None:
        if version in store.retained():
            store.commit(parts)
            store.discard(version)

    def late(storage: LocalStorage, file: Any) -> Path:
        found = whole(storage, file)
        overtake()
        return found

    def late_object(storage: ObjectStorage, file: Any) -> Any:
        overtake()
        return opened(storage, file)

    monkeypatch.setenv("STATESTORE_CACHE", str(tasks.directory.parent / "empty"))  # this machine has what it wrote
    monkeypatch.setattr(stored_files, "checked", late)
    monkeypatch.setattr(ObjectStorage, "opened", late_object)
    return version


@pytest.mark.quick("directory*")
@pytest.mark.parametrize("groups", [range(128), range(64)])
def test_a_backend_begins_with_the_newest_though_another_was(
    groups: range, store: KeyedStore, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = overtaken(store, tasks, monkeypatch)
    with store.backend(groups, directory=tasks.directory) as backend:
        assert store.retained() == [version + 1]
        found = list(backend.keys("total"))
    assert found == [
        key for key in tasks.tasks[0].backend.keys("total") if tasks.tasks[0].backend.key_group(key) in groups
    ]
    assert found


@pytest.mark.quick("directory", "memory")
def test_a_version_that_is_discarded_while_it_is_read_is_refused(
    store: KeyedStore, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = overtaken(store, tasks, monkeypatch)
    with refused("VERSION_NOT_FOUND", f"snapshot {version} of s.total", f"kept are {version + 1}"):
        store.scan("total").read_all()
    assert files(store) == named(store)


@pytest.mark.quick("directory", "memory")
def test_a_backend_of_a_version_that_is_discarded_meanwhile_is_refused(
    store: KeyedStore, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = overtaken(store, tasks, monkeypatch)
    with refused("VERSION_NOT_FOUND", str(version), f"kept are {version + 1}"):
        store.backend(version=version, directory=tasks.directory)
    assert len(list(tasks.directory.iterdir())) == 1, "that of the tasks"
