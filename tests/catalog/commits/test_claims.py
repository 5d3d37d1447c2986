"""Vacuum and commits: a file that a commit under way may still name is never removed, whatever the clocks say."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.keyed.keyed_backends import catalog_of, keyed_store
from support.open_files import open_below

import statestore
from statestore.catalog.commits import publish_commit as write
from statestore.catalog.commits.claims import any_claim_held, claim, held_claims, remove_abandoned_claims
from statestore.catalog.keyed import keyed_store as keyed_store_module
from statestore.catalog.keyed.snapshots import snapshot_log
from statestore.catalog.keyed.snapshots.commit_lock import commit_lock
from statestore.catalog.log import storage
from statestore.catalog.log.entries import CommitEntry, write_entry
from statestore.catalog.log.log_checkpoint import load_log_state
from statestore.catalog.log.storage import LocalStorage, Storage
from statestore.catalog.log.store_log import StoreLog
from statestore.catalog.stores.versioned.versioned_store import VersionedStore
from statestore.catalog.upkeep import publish_compaction, vacuum
from statestore.catalog.upkeep.background_compaction import background_of
from statestore.catalog.upkeep.vacuum import LEFT_BEHIND

COLUMNS: dict[str, Any] = {"key": {"k": "string"}, "value": {"v": "bigint"}}
DAY = 86_400_000_000_000  # nanoseconds


@pytest.fixture
def store(tmp_path: Path) -> VersionedStore:
    found: VersionedStore = statestore.connect(tmp_path).create_store("s", **COLUMNS)
    found.put("a", 1, timestamp=1000)
    found.commit()
    return found


def rows_of(store: Any) -> dict[str, int]:
    return {row["k"]: row["v"] for row in store.scan().read_all().to_pylist()}


def vacuuming(root: Path, older_than: int | str, days_ahead: int, patch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A `write_entry` before which another handle runs a vacuum, with a clock that is ``days_ahead``."""

    def late(storage: Storage, entry: CommitEntry) -> None:
        now = time.time_ns
        with pytest.MonkeyPatch.context() as clock, statestore.connect(root).open_store("s") as other:
            clock.setattr(time, "time_ns", lambda: now() + days_ahead * DAY)
            other.vacuum(older_than=older_than)
        write_entry(storage, entry)

    return late


@pytest.mark.quick("*-0-0", "commit-*", "bulk-7 days-8")
@pytest.mark.parametrize(("older_than", "days_ahead"), [(0, 0), ("7 days", 8), (0, -8), (0, 800)])
@pytest.mark.parametrize("act", ["commit", "write", "bulk", "compact"])
def test_vacuum_in_the_middle_of_a_commit(
    store: VersionedStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    older_than: int | str,
    days_ahead: int,
    act: str,
) -> None:
    count = 5_000
    bulk = pa.table({"k": [f"k{i}" for i in range(count)], "v": range(count), "timestamp": [1500] * count})
    if act == "bulk":  # the second one writes its closures in another thread
        store.write(bulk)
        store.write(bulk.set_column(2, "timestamp", pa.array([1600] * count)))
    store.put("b", 2, timestamp=2000)
    if act == "compact":
        store.commit()
    late = vacuuming(tmp_path, older_than, days_ahead, monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(publish_compaction if act == "compact" else write, "write_entry", late)
        if act == "commit":
            store.commit()
        elif act == "write":
            store.write(pa.table({"k": ["c"], "v": [3], "timestamp": [3000]}))
        elif act == "bulk":
            store.write(bulk.set_column(2, "timestamp", pa.array([2500] * count)))
        else:
            store.compact(full=True)
    expected = {"a": 1} | ({"b": 2} if act in ("commit", "compact") else {"c": 3} if act == "write" else {})
    found = rows_of(store)
    assert expected.items() <= found.items() and len(found) == len(expected) + (count if act == "bulk" else 0)
    assert statestore.connect(tmp_path).verify("s").ok
    background_of(store._files).finish()  # on a busy machine a compaction may have begun, which has claims of its own
    assert not any_claim_held(tmp_path / "s")


def test_a_file_of_a_dead_writer_goes(store: VersionedStore, tmp_path: Path) -> None:
    """The file and its claim are removed, because the lock is no longer held."""
    root = tmp_path / "s"
    (root / "claims").mkdir(exist_ok=True)
    (root / "claims" / ("0" * 16)).write_bytes(b"")
    left = root / "segments" / ("0" * 32 + ".arrow")
    left.write_bytes(b"x")
    assert [item.name for item in store.vacuum(older_than=0)] == [f"segments/{left.name}"]
    assert not left.exists() and not list((root / "claims").iterdir())


def test_a_file_of_a_living_writer_stays(store: VersionedStore, tmp_path: Path) -> None:
    root = tmp_path / "s"
    with claim(store._storage) as name:
        left = root / "segments" / f"{name}{'0' * 16}.arrow"
        left.write_bytes(b"x")
        assert LEFT_BEHIND.fullmatch(f"segments/{left.name}")
        assert held_claims(root, [name, "f" * 16]) == {name}
        assert store.vacuum(older_than=0) == [] and left.exists()
    assert len(store.vacuum(older_than=0)) == 1 and not left.exists()


def test_a_claim_that_vacuum_removes_while_it_is_made_is_made_again(
    store: VersionedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = fcntl.flock
    removed: list[str] = []

    def after_vacuum(file: int, how: int) -> None:
        path = Path(f"/proc/self/fd/{file}").readlink()
        if path.parent.name == "claims" and not removed:
            removed.append(path.name)
            path.unlink()
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", after_vacuum)
    with claim(store._storage) as name:
        assert removed and name != removed[0]
        assert held_claims(store._storage.root, [name]) == {name}  # type: ignore[attr-defined]


def test_claims_of_dead_writers_go_though_they_left_no_file(store: VersionedStore, tmp_path: Path) -> None:
    claims = tmp_path / "s" / "claims"
    claims.mkdir(exist_ok=True)
    (claims / ("0" * 16)).write_bytes(b"")
    (claims / "notes.txt").write_bytes(b"")
    with claim(store._storage) as name:
        store.vacuum(older_than=0)
        assert {path.name for path in claims.iterdir()} == {name, "notes.txt"}


def test_a_pipe_in_the_place_of_a_claim_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "claims").mkdir()
    pipe = tmp_path / "claims" / ("1" * 16)
    os.mkfifo(pipe)
    opened = os.open

    def noted(path: Path, flags: int) -> int:
        assert flags & os.O_NONBLOCK, f"{path} would be waited for"
        return opened(path, flags)

    monkeypatch.setattr(os, "open", noted)
    assert not any_claim_held(tmp_path) and not pipe.exists()


@pytest.mark.parametrize("code", [errno.EMFILE, errno.EIO, errno.EACCES])
def test_a_claim_that_cannot_be_opened_counts_as_held(
    store: VersionedStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    left = tmp_path / "s" / "segments" / ("0" * 32 + ".arrow")
    left.write_bytes(b"x")
    opened = os.open

    def refusing(path: Any, *given: Any, **named: Any) -> int:
        if Path(os.fsdecode(path)).parent.name == "claims":
            raise OSError(code, os.strerror(code))
        return opened(path, *given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refusing)
        assert store.vacuum(older_than=0) == [] and left.exists()
    assert len(store.vacuum(older_than=0)) == 1


def test_claims_that_cannot_be_listed_are_no_absence(tmp_path: Path) -> None:
    (tmp_path / "claims").symlink_to(tmp_path / "claims")
    for ask in (any_claim_held, remove_abandoned_claims):
        with pytest.raises(statestore.StorageError, match="DISK_FAILED"):
            ask(tmp_path)


def test_a_commit_that_ends_while_vacuum_reads_the_log(
    store: VersionedStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Vacuum asks for the claims first. Asked after the log was read, such a commit has no claim and no entry."""
    listed, read, done = threading.Event(), threading.Event(), threading.Event()
    load = load_log_state

    def publishing(*given: Any) -> None:
        listed.set()
        assert read.wait(60)
        write_entry(*given)

    def committing() -> None:
        store.put("b", 2, timestamp=2000)
        store.commit()
        done.set()

    def loading(*given: Any, **named: Any) -> Any:
        found = load(*given, **named)
        read.set()
        assert done.wait(60)
        return found

    with statestore.connect(tmp_path).open_store("s") as other:
        monkeypatch.setattr(write, "write_entry", publishing)
        monkeypatch.setattr(vacuum, "load_log_state", loading)
        writer = threading.Thread(target=committing)
        writer.start()
        assert listed.wait(60)
        other.vacuum(older_than=0)
        writer.join()
    assert rows_of(store) == {"a": 1, "b": 2}
    assert statestore.connect(tmp_path).verify("s").ok


def test_the_second_name_of_a_changelog_goes_though_its_writer_lives(store: VersionedStore, tmp_path: Path) -> None:
    """The name it was made under, where that could not be removed."""
    store.put("b", 2, timestamp=2000)
    (changelog,) = (tmp_path / "s" / "changelog").iterdir()
    os.link(changelog, changelog.with_name(".tmp-1"))
    assert [item.name for item in store.vacuum(older_than=0)] == ["changelog/.tmp-1"]
    store.commit()
    assert rows_of(store) == {"a": 1, "b": 2}


def test_temporary_files_that_somebody_holds_stay(store: VersionedStore, tmp_path: Path) -> None:
    """A temporary file whose lock is held, like a changelog that is being made, stays."""
    path = tmp_path / "s" / "changelog" / ".tmp-1"
    path.parent.mkdir(exist_ok=True)
    file = os.open(path, os.O_CREAT | os.O_RDWR)
    fcntl.flock(file, fcntl.LOCK_EX)
    assert store.vacuum(older_than=0) == [] and path.exists()
    os.close(file)
    assert [item.name for item in store.vacuum(older_than=0)] == ["changelog/.tmp-1"]


def test_what_a_killed_spark_driver_staged_goes_with_its_folders(store: VersionedStore, tmp_path: Path) -> None:
    staging = tmp_path / "s" / "staging"
    for folder, names in (("one", ["a.arrow"]), ("two", [])):
        (staging / folder).mkdir(parents=True)
        for name in names:
            (staging / folder / name).write_bytes(b"x")
    assert store.vacuum(older_than="1 day") == [] and (staging / "two").is_dir()
    assert [item.name for item in store.vacuum(older_than=0)] == ["staging/one/a.arrow"]
    assert not staging.exists()


def test_vacuum_forces_the_log_to_the_disk_before_it_removes_anything(
    store: VersionedStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power failure could take back the entry that made a file unneeded, but not the removal."""
    store.put("b", 2, timestamp=2000)
    store.commit()
    store.auto_compact = False  # so that the compaction leaves what it replaced
    store.compact(full=True)
    steps: list[str] = []
    settle, delete = LocalStorage.settle, LocalStorage.delete

    def settling(storage: LocalStorage, name: str) -> None:
        steps.append(name)
        settle(storage, name)

    def deleting(storage: LocalStorage, name: str) -> None:
        steps.append("delete")
        delete(storage, name)

    monkeypatch.setattr(LocalStorage, "settle", settling)
    monkeypatch.setattr(LocalStorage, "delete", deleting)
    assert store.vacuum(older_than=0)
    assert steps[0] == "log/00000000000000000003.json" and set(steps[1:]) == {"delete"}


@pytest.mark.parametrize("days_ahead", [0, 8])
def test_vacuum_in_the_middle_of_a_keyed_commit_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days_ahead: int
) -> None:
    """Between the look at the parts' files and the log entry no vacuum runs; afterwards the files are named."""
    found = keyed_store(tmp_path)
    publish = snapshot_log.publish
    refused: list[str] = []

    def late(storage: Any, known: Any, entry: Any, store_id: str) -> Any:
        now = time.time_ns
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(time, "time_ns", lambda: now() + days_ahead * DAY)
            patch.setattr("statestore.catalog.keyed.snapshots.commit_lock.LOCK_WAIT", 0.05)
            with pytest.raises(statestore.ConflictError, match="STORE_BUSY") as raised:
                catalog_of(found).open_store("s").vacuum(0)
        refused.append(raised.value.code)
        return publish(storage, known, entry, store_id)

    with found.backend(directory=tmp_path / "local") as backend:
        state = backend.value_state("total", "bigint")
        backend.set_current_key("a")
        state.update(1)
        part = backend.snapshot("full").result()
        monkeypatch.setattr(keyed_store_module, "publish", late)
        version = found.commit([part])
    assert refused == ["STORE_BUSY"]
    assert found.vacuum(0) == []
    assert found.scan("total", version=version).read_all().num_rows == 1


def test_a_lock_of_keyed_commits_that_the_system_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(*given: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    root = LocalStorage(tmp_path)
    with pytest.raises(statestore.StorageError, match="cannot open"), commit_lock(root, alone=True):
        pass
    (tmp_path / "log").mkdir()
    monkeypatch.setattr(fcntl, "flock", refusing)
    with pytest.raises(statestore.StorageError, match="cannot lock"), commit_lock(root, alone=True):
        pass
    assert open_below(tmp_path) == []


def test_a_keyed_commit_whose_last_step_fails_is_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = keyed_store(tmp_path)
    sync = storage.sync_folder
    broken = [False]

    def failing(folder: Path) -> None:
        if broken[0] and folder.name == "log":
            raise OSError(5, "Input/output error")
        sync(folder)

    monkeypatch.setattr(storage, "sync_folder", failing)
    with found.backend(directory=tmp_path / "local") as backend:
        state = backend.value_state("total", "bigint")
        for value in (1, 2):
            backend.set_current_key("a")
            state.update(value)
            part = backend.snapshot("incremental").result()
            broken[0] = value == 2
            if value == 1:
                assert found.commit([part]) == 1
                backend.notify_complete(1)
                continue
            with pytest.raises(statestore.CommitUnknownError) as raised:
                found.commit([part])
            broken[0] = False
            assert found.was_committed(raised.value.commit)
            assert not found.was_committed("7-" + raised.value.commit.split("-")[1])
            assert found.commit([part]) == 2
    assert found.retained() == [1, 2]


def test_a_commit_has_its_claim_before_it_reads_the_log(
    store: VersionedStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log is not trimmed while a claim is held, so a commit that stops behind its look at the log loses nothing."""
    held: list[bool] = []
    leased = StoreLog.leased

    def reads(log: StoreLog, *arguments: Any, **options: Any) -> Any:
        held.append(any_claim_held(tmp_path / "s"))
        return leased(log, *arguments, **options)

    monkeypatch.setattr(StoreLog, "leased", reads)
    store.put("b", 2, timestamp=2000)
    store.commit()
    assert held == [True]
    assert not any_claim_held(tmp_path / "s")
