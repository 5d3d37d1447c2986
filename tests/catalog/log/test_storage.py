"""One suite for every storage: a local directory, obstore in memory, obstore on a local directory."""

from __future__ import annotations

import errno
import os
import pickle
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import obstore
import pyarrow as pa
import pytest
from obstore.exceptions import AlreadyExistsError, PreconditionError
from obstore.store import LocalStore, MemoryStore
from support.object_stores.doubles import object_storage

from statestore.catalog.log import storage as storage_module
from statestore.catalog.log.storage import LocalStorage, Storage, StorageExistsError, local_root
from statestore.formats.errors import (
    InvalidInputError,
    NotFoundError,
    StateStoreError,
    StorageError,
    UnsupportedError,
)

BAD_NAMES = ["", "/", "/etc/passwd", "..", "../x", "a/../x", "a//b", "a/", "./a", "a/.", "a\\b", "a\0b"]


@pytest.fixture(params=["local", "obstore memory", "obstore local"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "local":
        (tmp_path / "store").mkdir()
        return LocalStorage(tmp_path / "store")
    store = MemoryStore() if request.param == "obstore memory" else LocalStore(str(tmp_path))
    return object_storage(store, "warehouse/store")


def test_what_was_created_is_read(storage: Storage) -> None:
    """Files in folders that did not exist are read, whole and mapped."""
    storage.create("a/b/c", b"12345")
    assert storage.read("a/b/c") == b"12345"
    assert storage.map("a/b/c").to_pybytes() == b"12345"
    assert storage.exists("a/b/c")


@pytest.mark.parametrize("data", [b"", pa.py_buffer(b"xyz"), pa.py_buffer(b"0123456").slice(2, 3)])
def test_any_buffer_is_written(storage: Storage, data: bytes | pa.Buffer) -> None:
    storage.create("x", data)
    assert storage.map("x").to_pybytes() == memoryview(data).tobytes()


def test_nothing_is_overwritten(storage: Storage) -> None:
    storage.create("x", b"first")
    with pytest.raises(StorageExistsError, match="FILE_EXISTS"):
        storage.create("x", b"second")
    assert storage.read("x") == b"first"


def test_what_is_missing_is_said(storage: Storage) -> None:
    assert not storage.exists("x/y")
    for read in (storage.read, storage.map):
        with pytest.raises(NotFoundError, match=r"FILE_NOT_FOUND.*x/y"):
            read("x/y")


def test_deleting_twice_is_no_error(storage: Storage) -> None:
    storage.create("a/x", b"1")
    storage.delete("a/x")
    storage.delete("a/x")
    assert not storage.exists("a/x")


def test_a_mapped_file_outlives_its_deletion(storage: Storage) -> None:
    storage.create("a/x", b"12345")
    mapped = storage.map("a/x")
    storage.delete("a/x")
    assert mapped.to_pybytes() == b"12345"


def test_create_many(storage: Storage) -> None:
    files = {f"{folder}/{number}": pa.py_buffer(bytes([number])) for folder in "ab" for number in range(10)}
    storage.create_many(files)
    assert {name: storage.map(name) for name in files} == files
    storage.create_many({})


def test_list_answers_a_folder(storage: Storage) -> None:
    """Names below the store, sorted, with lengths and times; a folder whose name only begins alike is another."""
    before = time.time() - 5
    for name in ("log/2", "log/1", "log/_checkpoint/3", "log2/4", "logs"):
        storage.create(name, name.encode())
    found = storage.list("log/")
    assert [(item.name, item.bytes) for item in found] == [("log/1", 5), ("log/2", 5), ("log/_checkpoint/3", 17)]
    assert all(before < item.modified_us / 1e6 < time.time() + 5 for item in found)
    assert [item.name for item in storage.list("log/_checkpoint/")] == ["log/_checkpoint/3"]
    assert len(storage.list("")) == 5
    assert storage.list("nothing/here/") == []


def test_list_can_begin_after_a_name(storage: Storage) -> None:
    """The name need not exist; folders below count by their names."""
    for name in ("log/1", "log/2", "log/3", "log/_checkpoint/1"):
        storage.create(name, b"")
    assert [item.name for item in storage.list("log/", after="log/2")] == ["log/3", "log/_checkpoint/1"]
    assert [item.name for item in storage.list("log/", after="log/25")] == ["log/3", "log/_checkpoint/1"]
    assert storage.list("log/", after="log/_checkpoint/1") == []


def test_names_do_not_lead_out_of_the_store(storage: Storage) -> None:
    uses: list[Callable[[str], object]] = [
        lambda name: storage.create(name, b""),
        lambda name: storage.create_many({name: pa.py_buffer(b"")}),
        storage.read,
        storage.map,
        storage.delete,
    ]
    for name in BAD_NAMES:
        for use in uses:
            with pytest.raises(InvalidInputError, match="INVALID_NAME"):
                use(name)


def test_nothing_is_looked_for_or_listed_outside_the_store(storage: Storage) -> None:
    for name in ("/etc/passwd", "..", "../x", "a/../x", "a//b", "a\0b"):
        with pytest.raises(InvalidInputError, match="INVALID_NAME"):
            storage.exists(name)
    for prefix in ("/", "../", "a/../", "log", "a//"):
        with pytest.raises(InvalidInputError, match="INVALID_NAME"):
            storage.list(prefix)


def test_each_name_has_one_creator(storage: Storage) -> None:
    """Eight threads race for 20 names; the winner's bytes are there."""

    def race(racer: int) -> list[str]:
        return [name for name in map(str, range(20)) if created(storage, name, racer)]

    with ThreadPoolExecutor(8) as pool:
        wins = list(pool.map(race, range(8)))
    assert sorted(name for won in wins for name in won) == sorted(map(str, range(20)))
    assert all(storage.read(name) == bytes([racer]) for racer, won in enumerate(wins) for name in won)


def created(storage: Storage, name: str, racer: int) -> bool:
    try:
        storage.create(name, bytes([racer]))
    except StorageExistsError:
        return False
    return True


def test_local_storage_survives_pickling(tmp_path: Path) -> None:
    storage: LocalStorage = pickle.loads(pickle.dumps(LocalStorage(tmp_path)))
    storage.create("x", b"1")
    assert storage == LocalStorage(tmp_path)
    assert storage.exists("x")
    assert local_root(storage) == tmp_path
    assert local_root(object_storage(MemoryStore())) is None


def test_no_temporary_file_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No temporary file stays, whether a create won, lost or failed."""
    storage = LocalStorage(tmp_path)
    storage.create("x", b"1")
    with pytest.raises(StorageExistsError):
        storage.create("x", b"2")
    monkeypatch.setattr(os, "fsync", failing(OSError(errno.EIO, "broken disk")))
    with pytest.raises(OSError, match="broken disk"):
        storage.create("y", b"3")
    assert os.listdir(tmp_path) == ["x"]  # noqa: PTH208


def test_a_file_system_without_hard_links_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", failing(PermissionError(errno.EPERM, "not permitted")))
    with pytest.raises(UnsupportedError, match="NO_HARD_LINKS"):
        LocalStorage(tmp_path).create("x", b"1")


def test_a_create_is_durable_before_it_is_visible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """New folders and the file's bytes reach the disk first, then the name appears, then the folder is synced."""
    steps: list[str] = []
    monkeypatch.setattr(os, "fsync", noting(steps, "sync", os.fsync))
    monkeypatch.setattr(os, "link", noting(steps, "link", os.link))
    LocalStorage(tmp_path).create("a/b/x", b"1")
    assert steps == ["sync", "sync", "sync", "link", "sync"]


@pytest.mark.parametrize("error", [AlreadyExistsError("there"), PreconditionError("there")])
def test_an_answer_lost_on_the_way_fails_no_data_file(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """The client repeats the put and finds its own object; a different one of that name is an error all the same."""
    storage = object_storage(MemoryStore())
    put = obstore.put

    def put_twice(*arguments: Any, **options: Any) -> None:
        put(*arguments, **{**options, "mode": "overwrite"})
        raise error

    monkeypatch.setattr(obstore, "put", put_twice)
    storage.create_many({"x": b"1"})
    assert storage.read("x") == b"1"
    monkeypatch.setattr(obstore, "put", failing(error))
    with pytest.raises(StateStoreError, match="FILE_EXISTS"):
        storage.create_many({"x": b"2"})


def failing(error: Exception) -> Callable[..., None]:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    return fail


def noting(steps: list[str], step: str, call: Callable[..., Any]) -> Callable[..., Any]:
    def note(*arguments: Any, **options: Any) -> Any:
        steps.append(step)
        return call(*arguments, **options)

    return note


@pytest.mark.parametrize(("folder", "raises"), [("log", True), ("s", True), ("warehouse", False), ("around", False)])
def test_folders_around_a_store_may_be_closed_to_its_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, raises: bool
) -> None:
    """Folders of the store itself may not: a name in them might not survive a power cut."""
    root = tmp_path / "around" / "warehouse" / "s"
    (root / "log").mkdir(parents=True)
    storage = LocalStorage(root)
    storage.create("log/x", b"1")
    sync = storage_module.sync_folder

    def refusing(path: Path) -> None:
        if path.name == folder:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        sync(path)

    monkeypatch.setattr(storage_module, "sync_folder", refusing)
    if raises:
        with pytest.raises(StorageError, match="cannot sync"):
            storage.settle("log/x")
    else:
        storage.settle("log/x")
