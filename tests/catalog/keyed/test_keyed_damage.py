"""Damaged, dropped and discarded keyed snapshots: an error of the tree or the same rows, and no file is left behind."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.keyed.keyed_backends import catalog_of, refused
from support.keyed.keyed_gates import files, fill, reopened
from support.keyed.keyed_model import Tasks, travelled
from support.keyed.stored_bytes import every_file, forget, put_bytes, stored_bytes
from support.parameters import mostly_slow
from support.places import DIRECTORY, MEMORY

import statestore
from statestore import StateStoreError
from statestore.catalog.keyed.keyed_store import KeyedStore
from statestore.catalog.keyed.snapshots import snapshot_log
from statestore.catalog.keyed.snapshots.snapshot_part import SnapshotKind
from statestore.catalog.log.entries import entry_name
from statestore.formats.places import object_clients

pytest_plugins = ["support.keyed.keyed_fixtures"]
PLACES = (DIRECTORY, MEMORY)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeat failed requests at once: a read of an empty object fails, and would be repeated for four seconds."""
    monkeypatch.setattr(object_clients, "PAUSES", (0.0,) * len(object_clients.PAUSES))


def flipped(data: bytes, at: float) -> bytes:
    changed = bytearray(data)
    changed[min(int(len(data) * at), len(data) - 1)] ^= 0x10
    return bytes(changed)


DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "first byte": lambda data: flipped(data, 0),
    "middle": lambda data: flipped(data, 0.5),
    "last byte": lambda data: flipped(data, 1),
    "cut": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "longer": lambda data: data + b"\x00",
    "removed": lambda data: None,
}


@pytest.mark.quick("directory-incremental-2-middle")
@pytest.mark.parametrize("damage", mostly_slow(DAMAGES, ["middle"]))
@pytest.mark.parametrize(("kind", "number"), [("full", 1), ("incremental", 1), ("incremental", 2)])
def test_damaged_files_are_refused_or_harmless(
    damage: str, kind: SnapshotKind, number: int, store: KeyedStore, tasks: Tasks
) -> None:
    """Each stored file by turns: restoring, in place and by rows, says so and leaves nothing locally; or has the same
    rows."""
    fill(tasks, 1)
    tasks.commit(kind)
    expected = tasks.model.content()
    reopened(tasks, number)
    tasks.dispose()
    refusals = 0
    for name in sorted(files(store)):
        whole = stored_bytes(store, name)
        put_bytes(store, name, DAMAGES[damage](whole))
        try:
            tasks.open(number)
            assert tasks.content() == expected
        except StateStoreError as error:
            assert error.code in ("SNAPSHOT_FILE_MISSING", "SEGMENT_CORRUPT", "SEGMENT_TRUNCATED"), error
            assert name in str(error) or Path(name).name in str(error)
            refusals += 1
            assert number > 1 or list(tasks.directory.iterdir()) == []
        tasks.dispose()
        put_bytes(store, name, whole)
    assert refusals > len(files(store)) / 2
    gc.collect()
    assert list(tasks.directory.iterdir()) == []
    assert reopened(tasks, number) == expected


@pytest.mark.quick("directory-cut", "memory-removed")
@pytest.mark.parametrize("damage", mostly_slow(DAMAGES, ["cut", "removed"]))
def test_a_damaged_log_is_refused(damage: str, store: KeyedStore, tasks: Tasks) -> None:
    """The last entry, by a process that reads it for the first time."""
    fill(tasks, 1)
    tasks.commit("full")
    tasks.commit("full")
    entry = entry_name(2)
    put_bytes(store, entry, DAMAGES[damage](stored_bytes(store, entry)))
    tasks.dispose()
    if damage == "removed":
        expected = [1]
        assert fresh(store).retained() == expected
        return
    for call in (
        lambda: fresh(store).retained(),
        lambda: fresh(store).backend(directory=tasks.directory),
        lambda: fresh(store).scan("total"),
    ):
        with refused("LOG_CORRUPT", Path(entry).name):
            call()
    assert list(tasks.directory.iterdir()) == []


def fresh(store: KeyedStore) -> KeyedStore:
    """The store as another process opens it, which has read nothing yet."""
    forget()
    return opened_again(store)


@pytest.mark.quick("directory-string", "memory-None", "memory-bigint")
@pytest.mark.parametrize("follows", [None, "bigint", "string"])
def test_what_was_opened_on_a_dropped_store_does_not_go_on_with_another(
    follows: str | None, store: KeyedStore, tasks: Tasks
) -> None:
    """Neither with none; else it would write rows of other types, and a log that begins in the middle."""
    fill(tasks, 1)
    version = tasks.commit("incremental")
    parts = [tasks.tasks[0].backend.snapshot("full").result()]
    catalog = catalog_of(store)
    catalog.drop_store("s")
    if follows is not None:
        catalog.create_store("s", kind="keyed", key={"k": follows})
    before = every_file(store)
    for call in (
        lambda: tasks.tasks[0].backend.snapshot("full"),
        lambda: tasks.tasks[0].backend.snapshot("incremental"),
        lambda: tasks.tasks[0].backend.notify_complete(version + 1),
        lambda: store.commit(parts),
        lambda: store.discard(version),
        lambda: store.discard_files(parts),
        lambda: store.backend(directory=tasks.directory),
        lambda: store.scan("total"),
        store.versions,
    ):
        with refused("STORE_REPLACED", str(store._storage), "dropped"):
            call()
    assert every_file(store) == before
    assert len(list(tasks.directory.iterdir())) == 1
    if follows is not None:
        assert opened_again(store).retained() == []


def opened_again(store: KeyedStore) -> KeyedStore:
    """The store opened by another handle."""
    found = catalog_of(store).open_store("s")
    assert isinstance(found, KeyedStore)
    return found


@pytest.mark.quick("memory")
def test_a_part_of_a_discarded_snapshot_is_not_committed_again(
    store: KeyedStore, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The part is refused although its files still exist, because the discard is about to remove them."""
    fill(tasks, 1)
    parts = travelled(tasks.snapshot(["full"]))
    version = store.commit(parts)
    other = opened_again(store)
    remove = KeyedStore._remove

    def late(self: KeyedStore, names: Any) -> None:
        monkeypatch.setattr(KeyedStore, "_remove", remove)
        with refused("BASE_DISCARDED", next(iter(parts[0].files()))):
            other.commit(parts)
        remove(self, names)

    monkeypatch.setattr(KeyedStore, "_remove", late)
    store.discard(version)
    assert store.retained() == []
    assert files(store) == set()


@pytest.mark.quick("directory")
def test_a_process_forgets_the_parts_of_discarded_snapshots(
    store: KeyedStore, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process drops them however long it runs, whether it commits or only reads."""
    monkeypatch.setattr(snapshot_log, "LOG_CHECKPOINT_INTERVAL", 4)
    reader = opened_again(store)
    fill(tasks, 1)
    for _ in range(6):
        store.discard(tasks.commit("full"))
        assert reader.retained() == []
        for handle in (store, reader):
            remembered = [entry.version for entry in handle._read().entries if entry.parts]
            assert len(remembered) <= 2, remembered


def test_damage_to_the_local_database_is_no_short_answer(tmp_path: Path) -> None:
    """Its rows are nowhere else yet: a read that meets a damaged block raises, whichever read it is."""
    store = statestore.connect(tmp_path).create_store("s", kind="keyed", key={"k": "string"})
    with store.backend(directory=tmp_path / "local") as backend:
        values, words = backend.value_state("v", "string"), backend.list_state("words", "string")
        for number in range(600):
            backend.set_current_key(f"key-{number:03}")
            values.update("value" * 20)
            words.add("word" * 20)
        version = store.commit([backend.snapshot("incremental").result()])
    with store.backend(directory=tmp_path / "local", version=version) as backend:
        values, words = backend.value_state("v", "string"), backend.list_state("words", "string")
        backend.set_current_key("key-000")
        for path in (tmp_path / "local").rglob("*.sst"):
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 1
            path.chmod(0o600)
            path.write_bytes(data)
        met = 0
        reads: list[Callable[[], int]] = [
            lambda: len(list(backend.keys("v"))),
            lambda: len(list(backend.keys("words"))),
            lambda: backend.num_entries() // 2,
        ]
        for read in reads:
            try:
                assert read() == 600
            except statestore.CorruptError as error:
                assert error.code == "LOCAL_STATE"
                met += 1
        for number in range(600):
            backend.set_current_key(f"key-{number:03}")
            try:
                assert (values.value(), words.get()) == ("value" * 20, ["word" * 20])
            except statestore.CorruptError as error:
                assert error.code == "LOCAL_STATE"
                met += 1
        with pytest.raises(statestore.CorruptError):
            backend.snapshot("full").result(60)
    assert met
