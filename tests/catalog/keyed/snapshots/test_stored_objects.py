"""Keyed stores in object stores, where they differ from those in directories: no locks, lost answers, large files."""

from __future__ import annotations

import pickle
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import obstore
import pytest
from support.command_line import run
from support.keyed.keyed_backends import catalog_of, keyed_store, local, refused
from support.keyed.keyed_gates import KINDS, WAIT, files, fill, named, reopened
from support.keyed.keyed_model import Tasks
from support.keyed.stored_bytes import every_file
from support.places import MEMORY, S3, in_places

import statestore
from statestore import CommitUnknownError
from statestore.catalog.keyed.keyed_store import KeyedStore
from statestore.catalog.keyed.snapshots import stored_objects
from statestore.catalog.keyed.snapshots.snapshot_part import SnapshotKind
from statestore.catalog.log.storage_objects import ATTEMPTS, ObjectStorage
from statestore.formats.places import object_clients

pytest_plugins = ["support.keyed.keyed_fixtures"]
PLACES = (MEMORY,)
HOUR = 3_600_000_000_000


def later(monkeypatch: pytest.MonkeyPatch, hours: float) -> None:
    """Put the clock of this process ahead."""
    now = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now() + int(hours * HOUR))


# Vacuum


def test_vacuum_waits_for_a_day(store: KeyedStore, tasks: Tasks, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tasks, 1)
    tasks.commit("incremental")
    needed = files(store)
    left = tasks.snapshot(["full"])[0].result(WAIT)
    spare = sorted(left.files())
    for age in (0, "1 hour", "23 hours"):
        with refused("INVALID_DURATION", "at least 24 hours", "dry_run"):
            store.vacuum(age)
    assert sorted(each.name for each in store.vacuum(0, dry_run=True)) == spare
    assert store.vacuum("1 day") == store.vacuum() == []
    with monkeypatch.context() as patch:
        later(patch, 25)
        assert store.vacuum() == []
        assert sorted(each.name for each in store.vacuum("1 day")) == spare
    assert files(store) == needed == named(store)


def test_a_snapshot_that_vacuum_may_remove_is_not_committed(
    store: KeyedStore, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tasks, 1)
    part = tasks.snapshot(["incremental"])[0].result(WAIT)
    with monkeypatch.context() as patch:
        later(patch, 11.5)
        version = store.commit(part)
        tasks.tasks[0].backend.notify_complete(version)
        fill(tasks, 2)
        again = tasks.snapshot(["incremental"])[0].result(WAIT)
        assert again.reused
    with monkeypatch.context() as patch:
        later(patch, 12.5)
        with refused("SNAPSHOT_TOO_OLD", "12 hours", "take the snapshot again"):
            store.commit(again)
    assert store.commit(again) == version + 1, "reused files may be of any age"


def test_the_command_says_why_it_removes_nothing(store: KeyedStore, tasks: Tasks) -> None:
    fill(tasks, 1)
    tasks.snapshot(["full"])[0].result(WAIT)
    uri = catalog_of(store).location.uri
    found = run("vacuum", uri, "--older-than", "0")
    assert found.code != 0 and "INVALID_DURATION" in found.err
    assert run("vacuum", uri, "--older-than", "0", "--dry-run", "--json").rows
    assert run("vacuum", uri).code == 0 and files(store)


# Lost answers

ENTRY = re.compile(r"/log/\d+\.json$")


class Lossy:
    """Puts of log entries whose answers are lost: they are carried out at once, later, or never."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, carried_out: str) -> None:
        self.late: list[Callable[[], Any]] = []
        put, get = obstore.put, obstore.get
        self.lost, self.blind = 0, ATTEMPTS if carried_out == "at once" else 0

        def putting(bucket: Any, path: str, *given: Any, **options: Any) -> Any:
            if not ENTRY.search(path) or self.lost == ATTEMPTS:
                return put(bucket, path, *given, **options)
            self.lost += 1
            data = [bytes(each) for each in given]
            if carried_out == "at once" and self.lost == 1:
                put(bucket, path, *data, **options)
            elif carried_out == "later" and self.lost == 1:
                self.late.append(lambda: put(bucket, path, *data, **options))
            raise obstore.exceptions.GenericError("the answer was lost")

        def getting(bucket: Any, path: str, *given: Any, **options: Any) -> Any:
            if self.lost and self.blind and ENTRY.search(path):
                self.blind -= 1
                raise obstore.exceptions.GenericError("no answer either")
            return get(bucket, path, *given, **options)

        monkeypatch.setattr(object_clients, "PAUSES", ())
        monkeypatch.setattr(obstore, "put", putting)
        monkeypatch.setattr(obstore, "get", getting)


@pytest.mark.quick("memory-at once", "memory-never")
@pytest.mark.parametrize("carried_out", ["at once", "later", "never"])
def test_a_commit_whose_answer_is_lost(
    carried_out: str, store: KeyedStore, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tasks, 1)
    part = tasks.snapshot(["incremental"])[0].result(WAIT)
    lossy = Lossy(monkeypatch, carried_out)
    with pytest.raises(CommitUnknownError) as caught:
        store.commit(part, transaction=("a", 1))
    assert store.was_committed(caught.value.commit) == (carried_out == "at once")
    for put in lossy.late:
        put()
    assert store.was_committed(caught.value.commit) == (carried_out != "never")
    assert store.commit(part, transaction=("a", 1)) == 1
    assert store.retained() == [1] and files(store) == named(store)
    assert reopened(tasks) == tasks.model.content()


# Large files


@pytest.mark.quick("full-memory", "incremental-S3")
@in_places(MEMORY, S3)
@pytest.mark.parametrize("kind", KINDS)
def test_large_files_go_in_parts(
    kind: SnapshotKind, store: KeyedStore, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of them is put as a whole; fetched by portions, they are what they were."""
    monkeypatch.setattr(stored_objects, "WHOLE_BYTES", 0)
    monkeypatch.setattr(stored_objects, "FETCHED_BYTES", 0)
    fill(tasks, 1)
    assert reopened(tasks, 1, tasks.commit(kind)) == tasks.model.content()
    assert catalog_of(store).verify("s").ok


@in_places(MEMORY, S3)
def test_a_large_file_that_is_cancelled_is_not_there(
    store: KeyedStore, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_objects, "WHOLE_BYTES", 0)
    put = ObjectStorage.create_in_parts
    running: list[Any] = []
    begun = threading.Event()

    def cancelled(storage: ObjectStorage, name: str, pieces: Iterator[bytes]) -> None:
        def cut() -> Iterator[bytes]:
            yield from pieces
            assert begun.wait(WAIT)
            running[0].cancel()
            yield from (bytes(1 << 20) for _ in range(3))
            running[0].result(0)

        put(storage, name, cut())

    monkeypatch.setattr(ObjectStorage, "create_in_parts", cancelled)
    fill(tasks, 1)
    running[:] = tasks.snapshot(["full"])
    begun.set()
    with pytest.raises((TimeoutError, statestore.StateStoreError)):
        running[0].result(WAIT)
    assert files(store) == set()


def test_without_a_disk_for_copies(store: KeyedStore, tasks: Tasks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATESTORE_CACHE_BYTES", "0")
    fill(tasks, 1)
    for kind in KINDS:
        version = tasks.commit(kind)
        for number in (1, 2):
            assert reopened(tasks, number, version) == tasks.model.content()


def test_table_files_are_links_to_the_copies(store: KeyedStore, tasks: Tasks, tmp_path: Path) -> None:
    """Both are on one file system here. What RocksDB writes to is no link."""
    fill(tasks, 1)
    tasks.commit("incremental")
    reopened(tasks)
    copies = {path.stat().st_ino: path.read_bytes() for path in (tmp_path / "cache").iterdir() if path.stat().st_size}
    local_files = [path for path in local(tmp_path).rglob("*") if path.is_file()]
    assert any(path.stat().st_ino in copies for path in local_files if path.suffix == ".sst")
    assert not any(path.stat().st_ino in copies for path in local_files if path.suffix != ".sst")
    fill(tasks, 2)
    tasks.commit("incremental")
    again = {path.stat().st_ino: path.read_bytes() for path in (tmp_path / "cache").iterdir()}
    assert {inode: again[inode] for inode in copies} == copies


# Stores of one name


def test_a_store_that_takes_a_dropped_one_s_name(place: str, tmp_path: Path) -> None:
    """A late write of the dropped one never meets the files of the new one."""
    store = keyed_store(place)
    old = Tasks(store, local(tmp_path))
    old.open(1)
    fill(old, 1)
    old.commit("incremental")
    late = old.snapshot(["full"])[0].result(WAIT)
    catalog_of(store).drop_store("s")
    assert [name.partition("/")[0] for name in every_file(store)] == ["dropped"], "the mark, and nothing else"
    with refused("STORE_REPLACED"):
        store.commit(late)
    new = keyed_store(place)
    assert new.spec.folder and new.retained() == []
    tasks = Tasks(new, local(tmp_path))
    tasks.open(1)
    fill(tasks, 2)
    tasks.commit("full")
    assert reopened(tasks, 2) == tasks.model.content()
    assert catalog_of(new).verify("s").ok
    assert statestore.inspect(f"{place}/s").tables() == statestore.inspect(place).tables() != []
    tasks.dispose()
    old.dispose()


def test_nothing_secret_is_shown_or_sent_that_is_local(place: str) -> None:
    store = keyed_store(place)
    assert pickle.loads(pickle.dumps(store.files())) == store.files()
    assert getattr(store.files(), "local", None) is None and getattr(store._storage, "local", None) is not None


@in_places(S3)
def test_no_message_has_a_credential(place: str, tasks: Tasks, store: KeyedStore) -> None:
    fill(tasks, 1)
    part = tasks.snapshot(["full"])[0].result(WAIT)
    obstore_key = next(iter(part.files()))
    store._storage.delete(obstore_key)
    with pytest.raises(statestore.NotFoundError) as caught:
        store.commit(part)
    for text in (str(caught.value), repr(store._storage), str(store._storage), repr(store.table("total").table)):
        assert "secret" not in text and "access_key" not in text and "tests-of-states" not in text
