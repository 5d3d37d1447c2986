"""Where a store's files live: create-only writes, whole reads, mapped reads, listing and deletion.

The interface is what a commit needs and no more, so that an object store can stand behind it
(`statestore.catalog.storage_objects`). Nothing is ever overwritten.
"""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias

import pyarrow as pa

from statestore.formats.errors import InvalidInputError, NotFoundError, StateStoreError, UnsupportedError
from statestore.formats.regular_files import MAX_METADATA_BYTES, map_regular, read_regular

Data: TypeAlias = "bytes | pa.Buffer"
TEMPORARY = ".tmp-"
NO_HARD_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


class ObjectInfo(NamedTuple):
    """A stored file: name below the store, length, time of the last change in epoch microseconds."""

    name: str
    bytes: int
    modified_us: int


class StorageExistsError(StateStoreError):
    """A create-only write found a file of that name."""


class Storage(Protocol):
    """Files of one store, by relative names with slashes. Missing ones raise NotFoundError FILE_NOT_FOUND."""

    def create(self, name: str, data: Data) -> None:
        """Write a new file durably and atomically; StorageExistsError if there is one of that name."""

    def create_many(self, files: Mapping[str, Data]) -> None:
        """Write new files of unique names durably; a reader knows of none before a commit names it."""

    def read(self, name: str) -> bytes: ...

    def map(self, name: str) -> pa.Buffer:
        """The file's bytes without copying them where the storage can."""

    def exists(self, name: str) -> bool: ...

    def list(self, prefix: str, after: str = "") -> list[ObjectInfo]:
        """Files in the folder ``prefix`` (ending in a slash; empty: all) and below, in order of name; with ``after``
        only those whose names sort after it, at little cost for the others."""

    def delete(self, name: str) -> None:
        """Remove a file; one that is gone already is no error."""


def check_name(name: str) -> str:
    """``name`` if it is a plain relative path; InvalidInputError INVALID_NAME otherwise."""
    parts = name.split("/")
    if not name or any(part in ("", ".", "..") for part in parts) or "\\" in name or "\0" in name:
        raise InvalidInputError("INVALID_NAME", f"file name {name!r}; expected a relative path without '..'")
    return name


def check_folder(prefix: str) -> str:
    """``prefix`` if it is empty (everything) or a plain relative path with a slash at its end."""
    if prefix and not prefix.endswith("/"):
        raise InvalidInputError("INVALID_NAME", f"folder {prefix!r}; expected a slash at its end")
    return prefix and check_name(prefix[:-1]) + "/"


def missing(where: str) -> NotFoundError:
    return NotFoundError(
        "FILE_NOT_FOUND",
        f"{where} is not there; it was removed (by vacuum, if a reader was older than its limit) or never written",
    )


@dataclass(frozen=True)
class LocalStorage:
    """A directory. Publishing is temporary file, fsync, hard link, fsync of the directory: crash-safe and atomic."""

    root: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "_prefix", f"{self.root}/")

    def create(self, name: str, data: Data) -> None:
        path = self._path(name)
        self._make_folder(path.parent)
        temporary = path.parent / f"{TEMPORARY}{uuid.uuid4().hex}"
        try:
            _write_synced(temporary, data)
            try:
                os.link(temporary, path)
            except FileExistsError:
                raise StorageExistsError("FILE_EXISTS", f"{path} exists; files are never overwritten") from None
            except OSError as error:
                if error.errno not in NO_HARD_LINKS:
                    raise
                raise UnsupportedError(
                    "NO_HARD_LINKS",
                    f"{path}: the file system of {path.parent} has no hard links, on which commits rest; "
                    "put the store on another file system",
                ) from error
        finally:
            with contextlib.suppress(FileNotFoundError):
                temporary.unlink()
        sync_folder(path.parent)

    def create_many(self, files: Mapping[str, Data]) -> None:
        folders = set()
        for name, data in files.items():
            path = self._path(name)
            self._make_folder(path.parent)
            _write_synced(path, data)
            folders.add(path.parent)
        for folder in folders:
            sync_folder(folder)

    def read(self, name: str) -> bytes:
        path = self._path(name)
        try:
            return read_regular(path, MAX_METADATA_BYTES)
        except (FileNotFoundError, NotADirectoryError):
            raise missing(str(path)) from None

    def map(self, name: str) -> pa.Buffer:
        path = self._path(name)
        try:
            return map_regular(path)
        except (FileNotFoundError, NotADirectoryError):
            raise missing(str(path)) from None

    def exists(self, name: str) -> bool:
        # The quickest way there is, because every point read looks for a new commit.
        if ".." in name or "//" in name or "\0" in name or name[:1] == "/":
            check_name(name)
        return os.access(self._prefix + name, os.F_OK)  # type: ignore[attr-defined]

    def list(self, prefix: str, after: str = "") -> list[ObjectInfo]:
        folder = self.root / check_folder(prefix)
        return sorted(_files(folder, prefix, after))

    def delete(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._path(name).unlink()

    def _path(self, name: str) -> Path:
        return self.root / check_name(name)

    def _make_folder(self, folder: Path) -> None:
        if not folder.is_dir():
            self._make_folder(folder.parent)
            folder.mkdir(exist_ok=True)
            sync_folder(folder.parent)


def local_root(storage: Storage) -> Path | None:
    """The directory of a local store, None for other storages."""
    return storage.root if isinstance(storage, LocalStorage) else None


def _files(folder: Path, prefix: str, after: str) -> Iterator[ObjectInfo]:
    try:
        entries = list(os.scandir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in entries:
        name = f"{prefix}{entry.name}"
        if entry.is_dir(follow_symlinks=False):
            yield from _files(Path(entry.path), f"{name}/", after)
        elif name > after and entry.is_file(follow_symlinks=False):
            with contextlib.suppress(FileNotFoundError):
                found = entry.stat()
                yield ObjectInfo(name, found.st_size, found.st_mtime_ns // 1000)


def _write_synced(path: Path, data: Data) -> None:
    with path.open("xb", buffering=0) as file:
        view = memoryview(data)
        while len(view):
            view = view[file.write(view) :]
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """What was created, renamed or removed in it outlives a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
