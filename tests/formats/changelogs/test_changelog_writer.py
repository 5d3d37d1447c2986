"""A changelog on a disk that fails: every acknowledged record is read and no half of another, errors are StorageErrors,
and the writer recovers when the disk does."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.open_files import open_below

import statestore
from statestore.formats.changelogs.changelog import ROW_SCHEMA, read_changelog
from statestore.formats.changelogs.changelog_writer import ChangelogWriter, try_adopt
from statestore.formats.errors import StateStoreError, StorageError

COLUMNS: dict[str, Any] = {"key": {"k": "string"}, "value": {"v": "bigint"}}


class Disk:
    """A disk that fails chosen system calls: each name in ``broken`` raises its error, a write after half of its
    bytes."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.broken: dict[str, int] = {}
        self.calls: list[str] = []
        for name in ("open", "write", "writev", "fsync", "ftruncate", "link", "unlink", "rename", "pread"):
            patch.setattr(os, name, self._call(name, getattr(os, name)))

    def _call(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            self.calls.append(name)
            if name not in self.broken:
                return real(*arguments, **options)
            if name in ("write", "writev"):
                data = arguments[1] if name == "write" else b"".join(arguments[1])
                half = len(data) // 2
                if half and self.broken[name] == errno.ENOSPC and "ftruncate" in self.broken:
                    self.broken["write"] = errno.EIO
                    os.pwrite(arguments[0], bytes(data[:half]), os.fstat(arguments[0]).st_size)
            raise OSError(self.broken[name], os.strerror(self.broken[name]))

        return call


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "store" / "changelog"
    folder.mkdir(parents=True)
    return folder / "a.changelog"


def keys(path: Path) -> list[bytes]:
    return [key.as_py() for batch, _ in read_changelog(path, ROW_SCHEMA) for key in batch.column("key")]


def test_a_failed_write_that_cannot_be_cut_off_stops_the_writer_until_it_can(path: Path, disk: Disk) -> None:
    """A reader finds exactly the acknowledged records at every moment."""
    writer = ChangelogWriter(path, ROW_SCHEMA)
    writer.append_row(b"before", b"1", 1)
    disk.broken = {"write": errno.ENOSPC, "ftruncate": errno.EIO}
    with pytest.raises(StorageError, match=r"DISK_FAILED.*a.changelog: cannot write"):
        writer.append_row(b"failed", b"2" * 100, 2)
    disk.broken.pop("write")
    assert path.stat().st_size > writer.end, "the half is there"
    for call in (lambda: writer.append_row(b"refused", b"3", 3), writer.sync):
        with pytest.raises(StorageError, match="cannot cut off what a failed write left"):
            call()
        assert keys(path) == [b"before"]
    disk.broken.clear()
    writer.append_row(b"after", b"4", 4)
    writer.sync()
    writer.close()
    assert keys(path) == [b"before", b"after"]


@pytest.mark.parametrize("kind", ["versioned", "key_value"])
def test_a_store_recovers_from_a_failed_cut(tmp_path: Path, disk: Disk, kind: str) -> None:
    store = statestore.connect(tmp_path).create_store("s", kind=kind, **COLUMNS)

    def put(key: str, value: int) -> None:
        if kind == "versioned":
            store.put(key, value, timestamp=1000)
        else:
            store.put(key, value)

    put("before", 1)
    disk.broken = {"write": errno.ENOSPC, "ftruncate": errno.EIO}
    with pytest.raises(StorageError):
        put("failed", 2)
    with pytest.raises(StorageError):
        put("refused", 3)
    disk.broken.clear()
    put("after", 4)
    store.commit()
    assert sorted(row["k"] for row in store.scan().read_all().to_pylist()) == ["after", "before"]
    store.close()


def test_a_process_that_ends_with_a_half_written_record_leaves_the_others(path: Path, disk: Disk) -> None:
    writer = ChangelogWriter(path, ROW_SCHEMA)
    writer.append_row(b"before", b"1", 1)
    disk.broken = {"write": errno.ENOSPC, "ftruncate": errno.EIO}
    with pytest.raises(StorageError):
        writer.append_row(b"failed", b"2" * 100, 2)
    writer.close()
    assert path.stat().st_size > writer.end
    assert keys(path) == [b"before"]


def test_what_a_failed_write_left_is_cut_off_at_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole record whose write was interrupted before it was answered is cut off, too, and does not come back."""
    writer = ChangelogWriter(path, ROW_SCHEMA)
    end = writer.append_row(b"before", b"1", 1)
    write, writev = os.write, os.writev

    def interrupted(file: int, data: bytes) -> int:
        write(file, data)
        raise KeyboardInterrupt

    def failing(file: int, data: list[Any]) -> int:
        writev(file, data)
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "write", interrupted)
    monkeypatch.setattr(os, "writev", failing)
    with pytest.raises(KeyboardInterrupt):
        writer.append_row(b"interrupted", b"2", 2)
    assert path.stat().st_size == end
    with pytest.raises(StorageError):
        writer.append_row(b"failed", b"3" * 1000, 3)
    assert path.stat().st_size == end


def test_closing_cuts_off_what_could_not_be_cut_off_before(path: Path, disk: Disk) -> None:
    writer = ChangelogWriter(path, ROW_SCHEMA)
    end = writer.append_row(b"before", b"1", 1)
    disk.broken = {"write": errno.ENOSPC, "ftruncate": errno.EIO}
    with pytest.raises(StorageError):
        writer.append_row(b"failed", b"2" * 100, 2)
    assert path.stat().st_size > end
    disk.broken.clear()
    writer.close()
    assert path.stat().st_size == end


@pytest.mark.parametrize("name", ["open", "writev", "link"])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EMFILE])
def test_a_changelog_that_cannot_be_made_leaves_nothing(path: Path, disk: Disk, name: str, error: int) -> None:
    disk.broken = {name: error}
    with pytest.raises(StorageError, match="DISK_FAILED") as raised:
        ChangelogWriter(path, ROW_SCHEMA)
    assert raised.value.errno == error
    disk.broken.clear()
    assert list(path.parent.iterdir()) == []
    assert open_below(path.parent) == []
    ChangelogWriter(path, ROW_SCHEMA).close()


def test_a_temporary_name_that_cannot_be_removed_does_no_harm(path: Path, disk: Disk) -> None:
    disk.broken = {"unlink": errno.EIO}
    writer = ChangelogWriter(path, ROW_SCHEMA)
    disk.broken.clear()
    writer.append_row(b"a", b"1", 1)
    writer.close()
    assert keys(path) == [b"a"]


def test_a_write_that_takes_nothing_is_an_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer raises an error and does not loop."""
    writer = ChangelogWriter(path, ROW_SCHEMA)
    monkeypatch.setattr(os, "write", lambda *_: 0)
    with pytest.raises(StorageError):
        writer.append_row(b"a", b"1", 1)
    monkeypatch.undo()
    writer.append_row(b"b", b"2", 2)
    writer.close()
    assert keys(path) == [b"b"]


def test_after_a_failed_sync_the_file_is_written_anew(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel may have dropped the pages that it could not write, and a later sync of the same file proves nothing.
    So what is reported as durable lies in another file, which was synced without an error."""
    failed: set[int] = set()
    synced: set[int] = set()
    real = os.fsync

    def failing(file: int) -> None:
        inode = os.fstat(file).st_ino
        if not failed:
            failed.add(inode)
            raise OSError(errno.EIO, "Input/output error")
        synced.add(inode)
        real(file)

    writer = ChangelogWriter(path, ROW_SCHEMA)
    writer.append_row(b"a", b"1", 1)
    first = path.stat().st_ino
    monkeypatch.setattr(os, "fsync", failing)
    writer.sync()
    second = path.stat().st_ino
    assert failed == {first} and first != second
    assert {second, path.parent.stat().st_ino, path.parent.parent.stat().st_ino} <= synced and first not in synced
    writer.append_row(b"b", b"2", 2)
    writer.close()
    assert keys(path) == [b"a", b"b"]
    assert list(path.parent.iterdir()) == [path]


def test_a_file_that_is_written_anew_is_durable_under_its_name_and_locked(path: Path, disk: Disk) -> None:
    """Its folder had been synced before, when the name was that of the other file."""
    writer = ChangelogWriter(path, ROW_SCHEMA)
    writer.append_row(b"a", b"1", 1)
    writer.sync()
    writer.append_row(b"b", b"2", 2)
    disk.broken = {"fsync": errno.EIO}
    with pytest.raises(StorageError):
        writer.sync()
    disk.broken.clear()
    first = path.stat().st_ino
    disk.calls.clear()
    writer.sync()
    assert path.stat().st_ino != first
    assert disk.calls[disk.calls.index("rename") :].count("fsync") == 3, "the file, its folder and the one around it"
    assert try_adopt(path) is None
    writer.close()
    adopted = try_adopt(path)
    assert adopted is not None
    adopted.close()


@pytest.mark.parametrize("also", ["open", "write", "rename", "pread", "fsync"])
def test_while_a_failed_sync_cannot_be_made_good_nothing_is_acknowledged(path: Path, disk: Disk, also: str) -> None:
    """And when the disk works again, so does the writer."""
    writer = ChangelogWriter(path, ROW_SCHEMA)
    writer.append_row(b"a", b"1", 1)
    disk.broken = {"fsync": errno.EIO, also: errno.EIO}
    for call in (writer.sync, lambda: writer.append_row(b"refused", b"2", 2), writer.sync):
        with pytest.raises(StorageError, match="cannot write anew after a failed sync"):
            call()
    disk.broken.clear()
    assert keys(path) == [b"a"]
    assert list(path.parent.iterdir()) == [path]
    writer.append_row(b"b", b"3", 3)
    writer.sync()
    writer.close()
    assert keys(path) == [b"a", b"b"]


def test_what_the_kernel_dropped_is_not_reported_as_durable(path: Path, disk: Disk) -> None:
    """After the failed sync the file does not read back as it was written."""
    writer = ChangelogWriter(path, ROW_SCHEMA)
    writer.append_row(b"a", b"1", 1)
    kept = writer.end
    writer.append_row(b"b", b"2" * 50, 2)
    disk.broken = {"fsync": errno.EIO}
    with path.open("r+b") as file:
        file.seek(kept)
        file.write(bytes(40))
    with pytest.raises(StorageError):
        writer.sync()
    disk.broken.clear()
    with pytest.raises(StorageError, match=f"the system has lost what was acknowledged from byte {kept} on"):
        writer.sync()
    writer.close()


def test_a_failed_folder_sync_is_repeated(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    broken = True
    real = os.fsync

    def fsync(file: int) -> None:
        if os.path.samestat(os.fstat(file), path.parent.parent.stat()):
            if broken:
                raise OSError(errno.EIO, "Input/output error")
            synced.append("store")
        real(file)

    monkeypatch.setattr(os, "fsync", fsync)
    writer = ChangelogWriter(path, ROW_SCHEMA)
    with pytest.raises(StorageError, match="cannot sync"):
        writer.sync()
    broken = False
    writer.sync()
    writer.close()
    assert synced == ["store"]


def test_a_mark_that_cannot_be_written_costs_nothing(path: Path, disk: Disk) -> None:
    writer = ChangelogWriter(path, ROW_SCHEMA)
    writer.append_row(b"a", b"1", 1)
    end = writer.end
    disk.broken = {"write": errno.ENOSPC}
    writer.sync()
    disk.broken.clear()
    assert path.stat().st_size == end == writer.synced
    writer.append_row(b"b", b"2", 2)
    writer.close()
    assert keys(path) == [b"a", b"b"]


@pytest.fixture(params=["versioned", "key_value"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    catalog = statestore.connect(tmp_path)
    with catalog.create_store("s", kind=request.param, **COLUMNS) as found:
        yield found


def _put(store: Any, key: str) -> None:
    store.put(key, 1, timestamp=1000)


def test_a_handle_that_cannot_sync_gives_up_its_locks(store: Any, disk: Disk) -> None:
    """Closing reports the failure; the next handle continues with the acknowledged records."""
    _put(store, "a")
    disk.broken = {"fsync": errno.EIO}
    with pytest.raises(StateStoreError):
        store.close()
    disk.broken.clear()
    with statestore.connect(store._storage.root.parent).open_store("s") as again:
        _put(again, "b")
        again.commit()
        assert sorted(row["k"] for row in again.scan().read_all().to_pylist()) == ["a", "b"]


def test_a_changelog_that_cannot_be_removed_is_not_applied_again(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit exists, and names it; the next handle removes it."""
    _put(store, "a")
    root = store._storage.root
    (file,) = (root / "changelog").iterdir()
    real = Path.unlink

    def refuse(path: Path, missing_ok: bool = False) -> None:
        if path == file:
            raise OSError(errno.EIO, "Input/output error")
        real(path, missing_ok)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refuse)
        assert store.commit() == 1
    assert file.exists()
    store.close()
    with statestore.connect(root.parent).open_store("s") as again:
        _put(again, "b")
        assert not file.exists()
        again.commit()
        assert again.changes(start_version=2, columns=["k"]).read_all().to_pylist() == [{"k": "b"}]
