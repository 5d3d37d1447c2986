"""Storage of a store's files: create-only writes, whole reads, mapped reads, listing and deletion.

The interface has only the operations that a commit needs, so that an object store can implement it
(`statestore.catalog.log.storage_objects`). No file is ever overwritten.
"""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import (
    InvalidInputError,
    NotFoundError,
    StateStoreError,
    StorageError,
    UnsupportedError,
)
from statestore.formats.places.disk_errors import disk_errors, storage_error
from statestore.formats.places.file_presence import is_there
from statestore.formats.places.object_cache import CachedObject
from statestore.formats.places.regular_files import MAX_METADATA_BYTES, map_regular, read_regular
from statestore.formats.segments.segment_meta import FileRef

Data: TypeAlias = "bytes | pa.Buffer"
Written = TypeVar("Written")
TEMPORARY = ".tmp-"
CREATE_ATTEMPTS = 5
POLL = 0.01  # seconds between two looks at a lock or a claim that somebody else holds
_NO_PARTS = {"", ".", ".."}  # of a name that stays below its folder
NO_HARD_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


class ObjectInfo(NamedTuple):
    """A stored file: name below the store, length, time of the last change in epoch microseconds."""

    name: str
    bytes: int
    modified_us: int


@dataclass(frozen=True)
class Guard:
    """A file of the store that decides whether another file may be created.

    ``check`` gets the bytes of the guard, or None if it is absent, and raises unless they belong to the store that the
    writer means. The guard is read in the directory in which the new file appears, so writers of a replaced store never
    extend the store in its place.

    ``after`` is a file that has to exist in the directory of the new file just before it appears, after a look which
    found that the new file does not exist. Object stores, from which no such file is removed, do not look.
    """

    name: str
    check: Callable[[bytes | None], None]
    after: str = ""


class StorageExistsError(StateStoreError):
    """A create-only write found an existing file of that name."""


class OvertakenError(StorageExistsError):
    """A create-only write found that the file before it (`Guard.after`) is gone."""


class UnsettledError(StorageError):
    """A file may exist under its name and may not: its directory could not be synced, so that a power failure may
    remove it, or an object store did not answer, so that it may have been created or yet be."""


class Storage(Protocol):
    """Files of one store, by relative names with slashes. Missing files raise NotFoundError FILE_NOT_FOUND."""

    def create(self, name: str, data: Data, guard: Guard | None = None) -> None:
        """Write a new file durably and atomically.

        Raises StorageExistsError if a file has that name, UnsettledError if the file exists now and may not be durable,
        any other error if the file does not exist.
        """

    def settle(self, name: str) -> None:
        """Make an existing file, with all directories that lead to it, survive a power failure."""

    def create_many(self, files: Mapping[str, Data]) -> None:
        """Write new files of unique names durably; no reader reads them before a commit names them."""

    def read(self, name: str) -> bytes: ...

    def read_many(self, names: Sequence[str]) -> list[bytes | None]:
        """Return the bytes of each file, None for a missing one; an object store reads them at the same time."""

    def map(self, name: str) -> pa.Buffer:
        """Return the file's bytes, without copying them if the storage permits it."""

    def opened(self, ref: FileRef) -> pa.Buffer | CachedObject:
        """Return the bytes of a data file that a commit names: mapped, or fetched when they are verified."""

    def fetch_ahead(self, wanted: Iterable[tuple[FileRef, Sequence[tuple[int, int]] | None]]) -> None:
        """Fetch what is read next of data files, as ranges (offset, length), None for all of a file, at the same time.

        A local storage does nothing.
        """

    def exists(self, name: str) -> bool: ...

    def state(self, name: str) -> Hashable:
        """Return a value that differs if another file has taken this name; None if there is no file."""

    def list(self, prefix: str, after: str = "") -> list[ObjectInfo]:
        """Return the files in the folder ``prefix`` (ending in a slash; empty: all) and below, in the order of names.

        With ``after``, only files whose names sort after it are returned, at little cost for the others.
        """

    def beginning(self, prefix: str, after: str = "") -> Storage:
        """Return the storage with a listing under way, which the next `list` with these arguments returns.

        A local storage begins nothing.
        """

    def is_listing(self, prefix: str) -> bool:
        """Return whether a listing of the folder is under way."""

    def within(self, folder: str) -> Storage:
        """Return the storage of a store whose files, but for its description, are in ``folder`` below it."""

    def delete(self, name: str) -> None:
        """Remove a file; a missing file is not an error."""

    def delete_many(self, names: Sequence[str]) -> None:
        """Remove files; missing files are no error."""


def check_name(name: str) -> str:
    """Return ``name`` if it is a plain relative path. Raises InvalidInputError INVALID_NAME otherwise."""
    parts = name.split("/")
    if not name or not _NO_PARTS.isdisjoint(parts) or "\\" in name or "\0" in name:
        raise InvalidInputError(ErrorCode.INVALID_NAME, f"file name {name!r}; expected a relative path without '..'")
    return name


def check_folder(prefix: str) -> str:
    """Return ``prefix`` if it is empty (everything) or a plain relative path with a slash at its end.

    Raises InvalidInputError INVALID_NAME otherwise.
    """
    if prefix and not prefix.endswith("/"):
        raise InvalidInputError(ErrorCode.INVALID_NAME, f"folder {prefix!r}; expected a slash at its end")
    return prefix and check_name(prefix[:-1]) + "/"


def missing(where: str) -> NotFoundError:
    return NotFoundError(
        ErrorCode.FILE_NOT_FOUND,
        f"{where} does not exist; it was removed or never written; restore it from a copy",
    )


@dataclass(frozen=True)
class LocalStorage:
    """A directory. Publishing is a temporary file, fsync, hard link and fsync of the directory: crash-safe and
    atomic."""

    root: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "_prefix", f"{self.root}/")

    def __str__(self) -> str:
        return str(self.root)

    def create(self, name: str, data: Data, guard: Guard | None = None) -> None:
        path = self._path(name)
        for _ in range(CREATE_ATTEMPTS):
            with disk_errors("write", path):
                self._make_folder(path.parent)
                if self._created(path, data, guard):
                    break
        else:
            raise StorageError(
                ErrorCode.DISK_FAILED, f"{path}: its temporary file was removed while it was written; try again"
            )
        try:
            sync_folder(path.parent)
        except OSError as error:
            failed = storage_error(error, "sync its directory after writing", path)
            raise UnsettledError(failed.code, failed.message, failed.errno, failed.filename) from error

    def _created(self, path: Path, data: Data, guard: Guard | None) -> bool:
        """Link the new file to its name, in the directory in which the guard was read.

        Returns False if another process removed the temporary file meanwhile.
        """
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        temporary = f"{TEMPORARY}{uuid.uuid4().hex}"
        try:
            if guard is not None:
                guard.check(_read_guard(folder, path, self.root, guard))
            _write_synced(temporary, data, folder)
            if guard is not None and guard.after and _is_overtaken(folder, path.name, Path(guard.after).name):
                raise OvertakenError(ErrorCode.FILE_EXISTS, f"{path} existed and was removed: {guard.after} is gone")
            os.link(temporary, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except FileExistsError:
            raise StorageExistsError(ErrorCode.FILE_EXISTS, f"{path} exists; files are never overwritten") from None
        except FileNotFoundError:
            return False
        except OSError as error:
            if error.errno not in NO_HARD_LINKS:
                raise
            raise UnsupportedError(
                ErrorCode.NO_HARD_LINKS,
                f"{path}: the file system of {path.parent} has no hard links, which commits need; put "
                "the store on another file system",
            ) from error
        finally:
            with contextlib.suppress(OSError):  # vacuum removes a temporary file that stays
                os.unlink(temporary, dir_fd=folder)
            os.close(folder)
        return True

    def create_many(self, files: Mapping[str, Data]) -> None:
        folders = set()
        with contextlib.ExitStack() as opened:
            written: list[tuple[Path, int]] = []
            for name, data in files.items():
                path = self._path(name)
                with disk_errors("write", path):
                    self._make_folder(path.parent)
                    file = _create(path)
                    opened.callback(os.close, file)
                    _write_all(file, data)
                written.append((path, file))
                folders.add(path.parent)
            for path, file in written:  # the first sync often takes the later files to the disk, too
                with disk_errors("write", path):
                    os.fsync(file)
        for folder in folders:
            with disk_errors("sync", folder):
                sync_folder(folder)

    def create_streamed(self, name: str, write: Callable[[int], Written]) -> Written:
        """Create a file of a unique name durably by ``write``, which gets a descriptor open for reading and writing.

        No reader reads the file before a commit names it. Return what ``write`` returns.
        """
        path = self._path(name)
        with disk_errors("write", path):
            self._make_folder(path.parent)
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
            try:
                written = write(file)
                os.fsync(file)
            finally:
                os.close(file)
            sync_folder(path.parent)
        return written

    def link_many(self, files: Mapping[str, str]) -> None:
        """Give files that are durable, by their paths, unique names in the store; their own names stay."""
        folders = set()
        for name, existing in files.items():
            path = self._path(name)
            with disk_errors("link", path):
                self._make_folder(path.parent)
                os.link(existing, path)
            folders.add(path.parent)
        for folder in folders:
            with disk_errors("sync", folder):
                sync_folder(folder)

    def settle(self, name: str) -> None:
        path = self._path(name)
        inside = len(Path(name).parents)  # the next two directories name the store and the warehouse
        for number, folder in enumerate(list(path.parents)[: inside + 2]):
            try:
                with disk_errors("sync", folder):
                    sync_folder(folder)
            except StorageError as error:
                if number < inside or error.errno not in (errno.EACCES, errno.EPERM):
                    raise

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

    def read_many(self, names: Sequence[str]) -> list[bytes | None]:
        found: list[bytes | None] = []
        for name in names:
            try:
                found.append(self.read(name))
            except NotFoundError:
                found.append(None)
        return found

    def opened(self, ref: FileRef) -> pa.Buffer:
        return self.map(ref.name)

    def fetch_ahead(self, wanted: Iterable[tuple[FileRef, Sequence[tuple[int, int]] | None]]) -> None:
        """Do nothing: files are mapped, and the system reads ahead."""

    def exists(self, name: str) -> bool:
        # This is the quickest test, because every point read looks for a new commit.
        if ".." in name or "//" in name or "\0" in name or name[:1] == "/":
            check_name(name)
        return is_there(os.fsencode(self._prefix + name))  # type: ignore[attr-defined]

    def state(self, name: str) -> Hashable:
        path = self._prefix + name  # type: ignore[attr-defined]
        try:
            about = os.stat(path)  # noqa: PTH116 - a third of what a Path costs
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise storage_error(error, "look at", Path(path)) from error
        return about.st_dev, about.st_ino, about.st_size, about.st_ctime_ns

    def list(self, prefix: str, after: str = "") -> list[ObjectInfo]:
        folder = self.root / check_folder(prefix)
        with disk_errors("list", folder):
            return sorted(_files(folder, prefix, after))

    def beginning(self, prefix: str, after: str = "") -> LocalStorage:
        return self

    def is_listing(self, prefix: str) -> bool:
        return False

    def within(self, folder: str) -> LocalStorage:
        raise UnsupportedError(
            ErrorCode.UNSUPPORTED_FORMAT,
            f"{self.root}: the files of this store are in its folder {folder!r}, which only object stores have; "
            "read it where it was",
        )

    def delete(self, name: str) -> None:
        path = self._path(name)
        with disk_errors("remove", path):
            path.unlink(missing_ok=True)

    def delete_many(self, names: Sequence[str]) -> None:
        for name in names:
            self.delete(name)

    def _path(self, name: str) -> Path:
        return self.root / check_name(name)

    def _make_folder(self, folder: Path) -> None:
        """Create a directory of the store, but not the store's own: a dropped store would come back."""
        if not folder.is_dir():
            if self.root not in (folder, folder.parent):
                self._make_folder(folder.parent)
            folder.mkdir(exist_ok=True)
            sync_folder(folder.parent)


def local_root(storage: Storage) -> Path | None:
    """Return the directory of a local store; None for other storages."""
    return storage.root if isinstance(storage, LocalStorage) else None


def own_folder(storage: Storage, make: bool = False) -> Path | None:
    """Return the directory for what writers of this machine keep: changelogs, locks and hot tiers.

    It is the store's own where that is local. None: there is no such directory. ``make``: create it where it does not
    exist, but not that of a local store, which may have been dropped.
    """
    if isinstance(storage, LocalStorage):
        return storage.root
    folder: Path | None = getattr(storage, "local", None)
    if make and folder is not None:
        with disk_errors("make the directory", folder):
            make_directories(folder)
    return folder


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
                about = entry.stat()
                yield ObjectInfo(name, about.st_size, about.st_mtime_ns // 1000)


def _read_guard(folder: int, path: Path, root: Path, guard: Guard) -> bytes | None:
    """Return the guard's bytes, read relative to the opened directory and not by the store's path."""
    way = "../" * len(path.parent.relative_to(root).parts) + guard.name
    try:
        file = os.open(way, os.O_RDONLY | os.O_NONBLOCK, dir_fd=folder)
    except (FileNotFoundError, NotADirectoryError):
        return None
    with os.fdopen(file, "rb") as opened:
        return opened.read()


def _is_overtaken(folder: int, name: str, before: str) -> bool:
    """Return whether neither a file nor the one before it exists; the order of the two looks matters."""
    return not _is_in(folder, name) and not _is_in(folder, before)


def _is_in(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _write_synced(name: str, data: Data, folder: int) -> None:
    """Write a new file below the directory ``folder``, and force its bytes to the disk."""
    file = _create(name, folder)
    try:
        _write_all(file, data)
        os.fsync(file)
    finally:
        os.close(file)


def _create(path: Path | str, folder: int | None = None) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=folder)


def _write_all(file: int, data: Data) -> None:
    view = memoryview(data)
    while len(view):
        view = view[os.write(file, view) :]


def sync_folder(folder: Path) -> None:
    """Force the creations, renames and removals in a directory to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directories(folder: Path) -> None:
    """Create a directory and its missing parents, each forced to the disk in its own parent."""
    if not folder.is_dir():
        make_directories(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)
