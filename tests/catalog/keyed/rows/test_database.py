"""A failing disk under a keyed store: errors of the tree, an answer for everyone who waits, and a store that still
works."""

from __future__ import annotations

import errno
import gc
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.keyed.keyed_backends import local, refused
from support.keyed.keyed_gates import KINDS, WAIT
from support.parameters import mostly_slow

import statestore
from statestore import NotFoundError, StorageError
from statestore.catalog.keyed.backend import KeyedBackend
from statestore.catalog.keyed.keyed_store import KeyedStore
from statestore.catalog.keyed.rows import database as database_module
from statestore.catalog.keyed.snapshots import stored_files
from statestore.catalog.keyed.snapshots import take_snapshot as taking
from statestore.catalog.keyed.snapshots.snapshot_part import SnapshotKind
from statestore.catalog.log.storage import LocalStorage
from statestore.formats.places import local_directory
from statestore.formats.rocksdb.scan import scan_rocksdb

pytest_plugins = ["support.keyed.keyed_fixtures"]


def _failing(*_: Any, **__: Any) -> Any:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def _put(backend: Any, value: int) -> None:
    state = backend.value_state("v", "bigint")
    for number in range(20):
        backend.set_current_key(f"k{number}")
        state.update(value)


def _values(backend: Any) -> set[Any]:
    state, found = backend.value_state("v", "bigint"), set()
    for number in range(20):
        backend.set_current_key(f"k{number}")
        found.add(state.value())
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_snapshot_that_cannot_be_cleaned_up_still_gives_its_error(
    kind: SnapshotKind, store: KeyedStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with store.backend(directory=local(tmp_path)) as backend:
        _put(backend, 1)
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", _failing)
            patch.setattr(Path, "unlink", _failing)
            with refused("DISK_FAILED", "cannot write"):
                backend.snapshot(kind).result(WAIT)
        store.commit([backend.snapshot(kind).result(WAIT)])
    with store.backend(directory=local(tmp_path)) as backend:
        assert _values(backend) == {1}


def test_a_thread_that_cannot_be_started_is_our_error(
    store: KeyedStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_thread(_: object) -> None:
        raise RuntimeError("can't start new thread")

    with store.backend(directory=local(tmp_path)) as backend:
        _put(backend, 1)
        monkeypatch.setattr(threading.Thread, "start", no_thread)
        with refused("DISK_FAILED", "start a thread"):
            backend.snapshot()
        monkeypatch.undo()
        store.commit([backend.snapshot().result(WAIT)])


@pytest.mark.parametrize("failing", ["mkdir", "open", "rename", "is_dir", "iterdir"])
@pytest.mark.parametrize("kind", KINDS)
def test_no_error_of_the_system_comes_out_of_a_snapshot(
    kind: SnapshotKind, failing: str, store: KeyedStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with store.backend(directory=local(tmp_path)) as backend:
        _put(backend, 1)
        monkeypatch.setattr(Path, failing, _failing)
        error = backend.snapshot(kind).future.exception(WAIT)
        monkeypatch.undo()
        assert error is None or (isinstance(error, StorageError) and error.code == "DISK_FAILED")
        assert isinstance(error, StorageError) or (failing, kind) == ("iterdir", "full")


def test_a_file_that_vacuum_removed_while_it_was_written_is_our_error(store: KeyedStore, tmp_path: Path) -> None:
    with (
        pytest.raises(NotFoundError) as caught,
        stored_files.new_file(LocalStorage(tmp_path), "segments", ".x") as file,
    ):
        file.write(b"rows")
        (tmp_path / f"{file.name}{stored_files.UNFINISHED}").unlink()
    assert caught.value.code == "SNAPSHOT_FILE_MISSING" and "vacuum" in caught.value.message


@pytest.mark.parametrize("patched", [(stored_files, "map_regular"), (os, "link"), (Path, "stat"), (Path, "mkdir")])
def test_no_error_of_the_system_comes_out_of_a_restore(
    patched: tuple[Any, str], store: KeyedStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with store.backend(directory=local(tmp_path)) as backend:
        _put(backend, 1)
        store.commit([backend.snapshot("incremental").result(WAIT)])
    real = getattr(*patched)

    def of_the_store(path: Any, *arguments: Any, **options: Any) -> Any:
        if any(part in str(path) for part in ("/shared/", "/private/", "/database")):
            _failing()
        return real(path, *arguments, **options)

    stored_files._KNOWN_GOOD.clear()
    with monkeypatch.context() as patch:
        patch.setattr(*patched, of_the_store)
        with refused("DISK_FAILED"):
            store.backend(directory=local(tmp_path))
    with store.backend(directory=local(tmp_path)) as backend:
        assert _values(backend) == {1}


def test_a_commit_whose_old_files_cannot_be_removed_took_place(
    store: KeyedStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with store.backend(directory=local(tmp_path)) as backend:
        _put(backend, 1)
        first = store.commit([backend.snapshot().result(WAIT)])
        second = store.commit([backend.snapshot().result(WAIT)])
        with monkeypatch.context() as patch:
            patch.setattr(Path, "unlink", _failing)
            store.discard(first)
        assert store.retained() == [second]
        assert store.vacuum(older_than=0), "the files that stayed"


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("IO error: While open a file: /x/MANIFEST-000004: Input/output error", "DISK_FAILED"),
        ("IO error: While open a file: /x/000008.sst: Too many open files", "DISK_FAILED"),
        ("Corruption: block checksum mismatch", "ROCKSDB_FILE"),
    ],
)
def test_rocksdb_refused_by_the_disk_is_not_called_damage(
    said: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opening(*_: Any, **__: Any) -> Any:
        raise Exception(said)

    monkeypatch.setenv("STATESTORE_ROCKSDB_READER", "rocksdict")
    monkeypatch.setattr("statestore.formats.rocksdb.opened_families.Rdict", opening)
    each: Callable[[Any], Any] = lambda batch: batch  # noqa: E731
    with refused(expected, str(tmp_path)):
        list(scan_rocksdb(tmp_path, each))


class _Broken:
    """A database of RocksDB whose flush has failed: it answers reads and refuses everything else."""

    SAID = "IO error: No space left on device: While appending to file: /x/000009.sst: No space left on device"

    def __init__(self, native: Any) -> None:
        self.native = native

    def _refused(self, *_: Any, **__: Any) -> Any:
        raise Exception(self.SAID)

    __setitem__ = __delitem__ = put = delete = write = create_column_family = _refused

    def __getattr__(self, name: str) -> Any:
        return getattr(self.native, name)


def _break(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    database = backend.database
    broken = _Broken(database._root)
    database._tables = {name: _Broken(table) for name, table in database._tables.items()}
    database._root = broken
    checkpoint = vars(database_module)["Checkpoint"]

    def of(root: Any) -> Any:
        return SimpleNamespace(create_checkpoint=root._refused) if isinstance(root, _Broken) else checkpoint(root)

    monkeypatch.setattr(database_module, "Checkpoint", of)


@pytest.mark.parametrize(
    "call", mostly_slow(["update", "clear", "add_all", "snapshot", "register"], ["update", "snapshot"])
)
def test_a_backend_goes_on_when_the_disk_does(
    call: str, store: KeyedStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RocksDB refuses all writes after one of its own failed; no row is lost, and no refused one comes back."""
    with store.backend(directory=local(tmp_path)) as backend:
        _put(backend, 1)
        store.commit([backend.snapshot("incremental").result(WAIT)])
        _put(backend, 2)
        state, many = backend.value_state("v", "bigint"), backend.list_state("l", "bigint")
        backend.set_current_key("k0")
        reading = backend.keys("v")
        first = next(reading)
        _break(backend, monkeypatch)
        calls: dict[str, Callable[[], Any]] = {
            "update": lambda: state.update(2),
            "clear": many.clear,
            "add_all": lambda: many.update([1, 2]),
            "snapshot": lambda: backend.snapshot("incremental").result(WAIT),
            "register": lambda: backend.value_state("new", "bigint"),
        }
        with refused("DISK_FAILED", "free space"):
            calls[call]()
        assert _values(backend) == {2}
        backend.set_current_key("k0")
        calls[call]()
        assert _values(backend) == {2}
        assert len({first, *reading}) == 20, "a read that was under way goes on"
        version = store.commit([backend.snapshot("incremental").result(WAIT)])
        backend.notify_complete(version)
        _put(backend, 3)
        later = store.commit([backend.snapshot("incremental").result(WAIT)])
    for number, expected in ((version, 2), (later, 3)):
        with store.backend(version=number, directory=local(tmp_path)) as backend:
            assert _values(backend) == {expected}
    assert not list(local(tmp_path).iterdir()), "no local file stays"


def test_files_of_a_renewed_database_are_never_taken_for_those_of_a_snapshot_before(
    store: KeyedStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files of both databases have the same names, and may have the same sizes."""
    with store.backend(directory=local(tmp_path)) as backend:
        _put(backend, 1)
        part = backend.snapshot("incremental").result(WAIT)
        version = store.commit([part])
        backend.notify_complete(version)
        _put(backend, 2)
        _break(backend, monkeypatch)
        with refused("DISK_FAILED"):
            backend.snapshot("incremental")
        after = backend.snapshot("incremental").result(WAIT)
        assert not after.reused and after.backend != part.backend
        backend.notify_complete(version)
        assert not backend.snapshot("incremental").result(WAIT).reused, "a late confirmation is of the files before"
        newest = store.commit([after])
    with store.backend(version=newest, directory=local(tmp_path)) as backend:
        assert _values(backend) == {2}


@pytest.mark.parametrize("query", ["SELECT * FROM s.v", "SELECT * FROM s.v VERSION AS OF 1", 'SELECT * FROM "s.v"'])
def test_a_damaged_description_is_reported_by_queries_of_its_states(
    query: str, store: KeyedStore, tmp_path: Path
) -> None:
    """Without the description it is unknown that the store is keyed and that s.v is a table."""
    with store.backend(directory=local(tmp_path)) as backend:
        _put(backend, 1)
        store.commit([backend.snapshot().result(WAIT)])
    assert statestore.sql(str(tmp_path), query).num_rows == 20
    description = tmp_path / "s" / "store.json"
    description.write_bytes(description.read_bytes().replace(b'"keyed"', b'"kezed"'))
    with refused("STORE_CORRUPT", "store.json"):
        statestore.sql(str(tmp_path), query)


def test_a_listing_that_the_disk_refuses_is_our_error(
    store: KeyedStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "scandir", _failing)
    with refused("DISK_FAILED", "cannot list"):
        store.vacuum(older_than=0)


# Local files of keyed backends are removed with their backend, or by the next backend if a process died.


def test_a_backend_that_nobody_has_any_more_leaves_no_files(store: KeyedStore, tmp_path: Path) -> None:
    """Though it was not disposed of."""
    backend: KeyedBackend | None = store.backend(directory=local(tmp_path))
    assert backend is not None
    backend.value_state("s", "bigint")
    backend.set_current_key("a")
    assert len(list(local(tmp_path).iterdir())) == 1
    backend = None
    gc.collect()
    assert list(local(tmp_path).iterdir()) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_snapshot_holds_its_backend(
    kind: SnapshotKind, store: KeyedStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backend's local files are kept until its snapshot is written, even if the backend is no longer referenced."""
    dropped = threading.Event()
    whole = getattr(taking, f"_{kind}")

    def late(*arguments: Any) -> Any:
        assert dropped.wait(WAIT)
        return whole(*arguments)

    monkeypatch.setattr(taking, f"_{kind}", late)
    backend: KeyedBackend | None = store.backend(directory=local(tmp_path))
    assert backend is not None
    backend.set_current_key("a")
    backend.value_state("s", "bigint").update(1)
    running = backend.snapshot(kind)
    backend = None
    gc.collect()
    dropped.set()
    version = store.commit([running.result(WAIT)])
    assert store.scan("s", version=version).read_all().to_pylist() == [{"k": "a", "value": 1}]


DYING = """
import os, signal, sys
import statestore
backend = statestore.connect(sys.argv[1]).open_store("s").backend(directory=sys.argv[2])
os.write(1, backend._local.path.name.encode())
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_directories_of_dead_processes_are_removed_and_no_others(store: KeyedStore, tmp_path: Path) -> None:
    """Directories of living backends stay, and all other entries of the folder, however old and similar in name."""
    folder = local(tmp_path)
    for name in ("new-orders", "dead-letters", "data", "0" * 31, "owner.lock"):
        (folder / name).mkdir(parents=True)
        (folder / name / "precious").touch()
        os.utime(folder / name, (0, 0))
    (folder / "data/owner.lock").touch()
    (folder / ("f" * 32)).touch()
    before = {path.name for path in folder.iterdir()}
    with store.backend(directory=folder) as backend:
        living = {path.name for path in folder.iterdir()} - before
        died = subprocess.run(
            [sys.executable, "-c", DYING, str(tmp_path), str(folder)], capture_output=True, text=True, check=False
        )
        assert died.returncode == -signal.SIGKILL, died.stderr
        name = died.stdout
        assert (folder / name / "database").is_dir(), "the dead process's"
        with store.backend(directory=folder):
            assert not (folder / name).exists()
        assert {path.name for path in folder.iterdir()} == before | living
        assert backend.num_entries() == 0
    assert {path.name for path in folder.iterdir()} == before
    assert all((folder / name / "precious").exists() for name in ("new-orders", "dead-letters", "data"))


def test_a_default_directory_of_somebody_else_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    with monkeypatch.context() as other:
        other.setattr(os, "getuid", lambda: 12345)
        with pytest.raises(statestore.InvalidInputError, match="FOREIGN_DIRECTORY"):
            local_directory.take_directory(None)
