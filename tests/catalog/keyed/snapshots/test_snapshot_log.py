"""Commits of keyed snapshots: once for a transaction, all key groups, one writer at a time."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.keyed.keyed_backends import catalog_of, refused
from support.keyed.keyed_gates import KINDS, Race, files, fill, named, reopened
from support.keyed.keyed_model import Tasks, travelled
from support.places import DIRECTORY, MEMORY, S3, in_places

import statestore
from statestore.catalog.keyed.keyed_store import KeyedStore
from statestore.catalog.keyed.snapshots.snapshot_part import SnapshotKind

pytest_plugins = ["support.keyed.keyed_fixtures"]
PLACES = (DIRECTORY, MEMORY, S3)


@pytest.mark.quick("directory", "memory")
def test_a_transaction_is_committed_once(store: KeyedStore, tasks: Tasks) -> None:
    """A repetition returns the same version, and the files written for it are removed."""
    fill(tasks, 1)
    first = travelled(tasks.snapshot(["incremental"]))
    version = store.commit(first, transaction=("app", 7))
    expected = tasks.model.content()
    before = files(store)
    assert store.commit(first, transaction=("app", 7)) == version, "the same parts: their files stay"
    assert files(store) == before
    fill(tasks, 2)
    assert store.commit(travelled(tasks.snapshot(["full"])), transaction=("app", 7)) == version
    assert files(store) == before == named(store) and store.retained() == [version]
    for transaction in (("app", 8), ("other", 7)):
        assert store.transaction_version(transaction) is None
        again = store.commit(travelled(tasks.snapshot(["full"])), transaction=transaction)
        assert again > version and store.transaction_version(transaction) == again
    assert reopened(tasks, 1, version) == expected
    store.discard(version)
    assert store.commit(travelled(tasks.snapshot(["full"])), transaction=("app", 7)) == version, "discarded since"
    assert files(store) == named(store)


@in_places(DIRECTORY)
def test_parts_have_every_key_group_once(store: KeyedStore, tasks: Tasks) -> None:
    reopened(tasks, 3)
    parts = travelled(tasks.snapshot(["full"]))
    whole = travelled(Tasks(store, tasks.directory, tasks.tasks[:1]).snapshot(["full"]))
    told = [f"{part.key_groups.start} to {part.key_groups.stop - 1}" for part in parts]
    for given in ([], parts[1:], parts[:2], [parts[0], parts[2]], [*parts, *whole], [parts[0], *parts]):
        with refused("INCOMPLETE_SNAPSHOT", "0 to 127", *told[1:2] * (parts[1] in given)):
            store.commit(given)
    with refused("INCOMPLETE_SNAPSHOT", "Running", "result()"):
        store.commit(tasks.snapshot(["full"]))  # type: ignore[arg-type]
    assert store.retained() == []
    assert store.commit(reversed(parts)) == 1


@pytest.mark.quick("directory-full", "memory-incremental")
@pytest.mark.parametrize("kind", KINDS)
def test_two_writers_each_get_a_version(kind: SnapshotKind, store: KeyedStore, tasks: Tasks, race: Race) -> None:
    """The other one's commit comes between this one's look at the log and its entry in it."""
    fill(tasks, 1)
    expected = {}
    parts = travelled(tasks.snapshot([kind]))
    content = tasks.model.content()
    fill(tasks, 2)
    others = travelled(tasks.snapshot([kind]))
    other = catalog_of(store).open_store("s")
    assert isinstance(other, KeyedStore)
    race.between = lambda: expected.update({other.commit(others): tasks.model.content()})
    expected[store.commit(parts)] = content
    assert store.retained() == other.retained() == [1, 2] == list(expected)
    assert files(store) == named(store)
    for version, content in expected.items():
        assert reopened(tasks, 1, version) == content


@pytest.mark.quick("directory", "memory")
def test_a_base_that_is_discarded_just_before_the_commit(store: KeyedStore, tasks: Tasks, race: Race) -> None:
    fill(tasks, 1)
    version = tasks.commit("incremental")
    parts = travelled(tasks.snapshot(["incremental"]))
    other = catalog_of(store).open_store("s")
    assert isinstance(other, KeyedStore)
    race.between = lambda: other.discard(version)
    with refused("BASE_DISCARDED"):
        store.commit(parts)
    assert store.retained() == []


@pytest.mark.quick("directory", "memory")
def test_a_base_that_is_committed_again_just_before_its_discard(store: KeyedStore, tasks: Tasks, race: Race) -> None:
    """Then the files that both name stay."""
    fill(tasks, 1)
    version = tasks.commit("incremental")
    parts = travelled(tasks.snapshot(["incremental"]))
    other = catalog_of(store).open_store("s")
    assert isinstance(other, KeyedStore)
    race.between = lambda: other.commit(parts)
    store.discard(version)
    assert files(store) == named(store) == set(parts[0].files())
    assert reopened(tasks, 2) == tasks.model.content()


@pytest.mark.quick("directory", "S3")
def test_a_transaction_that_two_commit_at_once(store: KeyedStore, tasks: Tasks, race: Race) -> None:
    fill(tasks, 1)
    parts, others = (travelled(tasks.snapshot(["full"])) for _ in range(2))
    other = catalog_of(store).open_store("s")
    assert isinstance(other, KeyedStore)
    race.between = lambda: other.commit(others, transaction=("app", 1))
    assert store.commit(parts, transaction=("app", 1)) == 1
    assert store.retained() == [1] and files(store) == named(store) == set(others[0].files())


def test_one_part_is_enough_where_there_is_one(tmp_path: Path) -> None:
    store = statestore.connect(tmp_path).create_store("s", kind="keyed", key={"k": "string"})
    with store.backend() as backend:
        assert store.commit(backend.snapshot("full").result()) == 1
        for wrong in (None, 7):
            with pytest.raises(statestore.InvalidInputError, match="INCOMPLETE_SNAPSHOT"):
                store.commit(wrong)  # type: ignore[arg-type]
        with pytest.raises(statestore.InvalidInputError, match="INVALID_VERSION"):
            backend.notify_complete("1")  # type: ignore[arg-type]
