"""Folders of a storage and their files, for engines: listed and read, never written.

An object store answers a request in tens of milliseconds. So a folder with a memory lists no folder twice and fetches
no file twice (`Folder.remembering`), files that will be needed are fetched together (`Folder.fetch`), and what cannot
change is fetched once by a process (`statestore.formats.places.fetched_parts`).
"""

from __future__ import annotations

import contextlib
import posixpath
import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import IO, Any, TypeVar, cast

import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, NotFoundError, StateStoreError
from statestore.formats.places.fetched_parts import is_settled
from statestore.formats.places.foreign_storages import STORAGE_ERRORS
from statestore.formats.places.listings import Entry, EntryKind, entry_at, list_folder
from statestore.formats.places.local_files import FileSystem, LocalFiles, is_local
from statestore.formats.places.locations import Location, no_access, reach_location
from statestore.formats.places.regular_files import is_strange, read_regular_once
from statestore.formats.places.s3_objects import S3Object, SizeError, s3_object

PARALLEL_REQUESTS = 16
MAX_SMALL_BYTES = 64 << 20
"""Upper bound of a file that is read whole; a larger one is not read."""

NUMBER = re.compile(r"0|[1-9][0-9]{0,18}")
"""A name that is a plain number; 007 would be a second 7."""
T = TypeVar("T")
GONE = "no such file any more: it was removed after it was listed; read again"


def _missing(path: str, found: str) -> NotFoundError:
    return NotFoundError(ErrorCode.FILE_NOT_FOUND, f"{path}: {found}")


def _corrupt(path: str, found: str) -> CorruptError:
    return CorruptError(ErrorCode.FILE_DAMAGED, f"{path}: {found}; restore the file from a copy")


def _as_is(stream: IO[bytes], path: str) -> IO[bytes]:
    return stream


@dataclass(frozen=True)
class FileRules:
    """An engine's errors for a missing and for a damaged file, from path and text, and its verification of local
    files: ``verified`` gets a stream and its path, and returns the stream to read in its place."""

    missing: Callable[[str, str], NotFoundError] = _missing
    corrupt: Callable[[str, str], CorruptError] = _corrupt
    verified: Callable[[IO[bytes], str], IO[bytes]] = _as_is
    gone: str = GONE


@dataclass(frozen=True)
class Seen:
    """Listings by path and name, the contents of files that were read, by path, and what was made of either.

    ``covered`` are the data files that were read, by path, and whether a checksum covers their content.
    """

    listings: dict[str, Mapping[str, Entry]] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    made: dict[tuple[str, Hashable], Any] = field(default_factory=dict)
    covered: dict[str, bool] = field(default_factory=dict)


def nowhere(path: str) -> Folder:
    """Return a folder in which there is nothing."""
    return Folder(LocalFiles(), path, seen=Seen({path: {}}))


@dataclass(frozen=True)
class Folder:
    """A folder of a file system; ``path`` has no slash at the end. ``seen``: results that need no further request."""

    filesystem: FileSystem
    path: str
    rules: FileRules = FileRules()
    seen: Seen | None = field(default=None, compare=False, repr=False)

    def at(self, *names: str | int) -> Folder:
        return Folder(self.filesystem, posixpath.join(self.path, *map(str, names)), self.rules, self.seen)

    @property
    def is_local(self) -> bool:
        return is_local(self.filesystem)

    def remembering(self) -> Folder:
        """The folder with a memory, which keeps listings and files of it and of folders reached from it."""
        return self if self.seen is not None else replace(self, seen=Seen())

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle without the memory, so that another process makes its own requests."""
        return Folder, (self.filesystem, self.path, self.rules)

    def fresh(self) -> Folder:
        """The folder without its memory, so that reads see it as it is then."""
        return replace(self, seen=None)

    def once(self, what: Hashable, make: Callable[[], T]) -> T:
        """Return what ``make`` makes of the folder, from its memory where that has it; nobody may change it."""
        if self.seen is None:
            return make()
        key = self.path, what
        if key not in self.seen.made:
            self.seen.made[key] = make()
        found: T = self.seen.made[key]
        return found

    def fetch(self, listings: Iterable[Folder] = (), files: Iterable[tuple[Folder, str | int]] = ()) -> None:
        """List folders and read small files at the same time, for the reads that follow.

        A read that fails is left to these. Local files are skipped, because reading them is fast.
        """
        work = [folder.files for folder in listings] + [_reading(folder, name) for folder, name in files]
        if self.is_local or not work:
            return
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(min(len(work), PARALLEL_REQUESTS)) as pool:
            for future in [pool.submit(call) for call in work]:
                with contextlib.suppress(StateStoreError):
                    future.result()

    def holds(self, *names: str) -> bool:
        """Return whether the folder has folders of all these names: looked up where it is local, else listed."""
        if self.is_local:
            return all(Path(self.path, name).is_dir() for name in names)
        return set(names) <= set(self.folders())

    def files(self) -> dict[str, int]:
        """Sizes of the folder's files by name, without hidden and temporary ones; empty if there is no such folder."""
        return dict(self.once("files", self._files))

    def _files(self) -> dict[str, int]:
        file = EntryKind.FILE
        return {info.base_name: info.size or 0 for info in self.entries() if info.kind is file}

    def folders(self) -> list[str]:
        """Names of the folders in the folder."""
        return sorted(info.base_name for info in self.entries() if info.kind is EntryKind.FOLDER)

    def numbered(self) -> list[int]:
        """Files with a plain number as name, as in the logs of offsets and commits, ascending."""
        return list(self.once("numbered", self._numbered))

    def _numbered(self) -> list[int]:
        return sorted(int(name) for name in self.files() if NUMBER.fullmatch(name))

    def entries(self) -> list[Entry]:
        """The entries of the folder. Raises InvalidInputError NO_ACCESS."""
        if self.seen is not None and self.path in self.seen.listings:
            return list(self.seen.listings[self.path].values())
        try:
            found = list_folder(self.filesystem, self.path)
        except STORAGE_ERRORS as error:
            raise no_access(self.path, error) from error
        if self.seen is not None:
            self.seen.listings[self.path] = {entry.base_name: entry for entry in found}
        return found

    def read_small(self, name: str | int, *, gone: str = "") -> bytes:
        """Read a whole file of at most MAX_SMALL_BYTES.

        Raises the errors of `rules` for a file that is missing (``gone`` says why) or too large, and InvalidInputError
        NO_ACCESS.
        """
        found = self.read_once(name, gone=gone)
        if self.seen is not None:
            self.seen.files[posixpath.join(self.path, str(name))] = found
        return found

    def read_once(self, name: str | int, *, gone: str = "") -> bytes:
        """Read a whole file as `read_small` does; the folder's memory does not keep it."""
        path, gone = posixpath.join(self.path, str(name)), gone or self.rules.gone
        if self.seen is not None and path in self.seen.files:
            return self.seen.files[path]
        if self.is_local and (content := self._read_locally(path, gone)) is not None:
            return content
        item = s3_object(self.filesystem, path)
        if item is None:
            with self.stream(name, gone=gone) as stream:
                found = stream.read(MAX_SMALL_BYTES + 1)
            if len(found) > MAX_SMALL_BYTES:
                raise self._too_large(path)
            return found
        try:
            return self._as_listed(item).read(MAX_SMALL_BYTES)
        except SizeError as error:
            raise self._too_large(path) from error
        except STORAGE_ERRORS as error:
            raise self.failure(path, error, gone) from error

    def _read_locally(self, path: str, gone: str) -> bytes | None:
        """Read a whole local file; None for a large one. Raises as `stream`."""
        try:
            content = read_regular_once(path, MAX_SMALL_BYTES)
        except OSError as error:
            self._refuse_strange(path)
            raise self.failure(path, error, gone) from error
        if content is None or len(content) > MAX_SMALL_BYTES:
            self._refuse_strange(path)
            return None
        with self.rules.verified(BytesIO(content), path) as stream:
            return stream.read()

    def _too_large(self, path: str) -> CorruptError:
        return self.rules.corrupt(path, f"found more than {MAX_SMALL_BYTES} bytes in a metadata file")

    def _as_listed(self, item: S3Object) -> S3Object:
        """The object with its length and time of change, if a listing in the memory has it and it is settled."""
        listings = self.seen.listings if self.seen is not None else {}
        info = listings.get(self.path, {}).get(posixpath.basename(item.path))
        if info is None or info.mtime_ns is None or not is_settled(info.mtime_ns / 1e9):
            return item
        return replace(item, size=info.size, modified=info.mtime_ns // 10**9)

    def stream(self, name: str | int, *, gone: str = "", buffer_bytes: int = 0) -> IO[bytes]:
        """Stream a file's bytes from the first on, verified where the engine has checksums of local files.

        Raises, also while it is read, the errors of `rules` for a file that does not exist (any more; ``gone`` says
        why) or is no file, and InvalidInputError NO_ACCESS.
        """
        path, gone = posixpath.join(self.path, str(name)), gone or self.rules.gone
        if self.seen is not None and path in self.seen.files:
            return BytesIO(self.seen.files[path])
        self._refuse_strange(path)
        try:
            item = s3_object(self.filesystem, path)
            if item is not None:
                opened = item.stream()
            else:
                opened = self.filesystem.open_input_stream(path, compression=None, buffer_size=buffer_bytes)
        except STORAGE_ERRORS as error:
            raise self.failure(path, error, gone) from error
        stream = cast(IO[bytes], _Stream(opened, self, path, gone))
        return self.rules.verified(stream, path) if self.is_local else stream

    def random_access(self, name: str, size: int, *, unique: bool = False, opened: str | None = None) -> RandomAccess:
        """Open a file of ``size`` bytes to read parts of it; no request is made for an object of S3.

        ``unique``: no other file ever has this name. ``opened``: a path that leads to the file, which may have been
        removed since it was opened. Raises as `stream`, now and later, and the error of `rules` for a
        damaged file where it has another size.
        """
        path = posixpath.join(self.path, name)
        item = s3_object(self.filesystem, path)
        if item is not None:
            return RandomAccess(replace(item, size=size, unique=unique), self, path, size)
        self._refuse_strange(opened or path)
        try:
            file = self.filesystem.open_input_file(opened or path)
            if file.size() != size:
                raise self._other_size(path, file.size(), size)
            return RandomAccess(file, self, path, size)
        except STORAGE_ERRORS as error:
            raise self.failure(path, error, self.rules.gone) from error

    def _other_size(self, path: str, found: int, expected: int) -> CorruptError:
        return self.rules.corrupt(path, f"found {found} bytes, expected {expected}")

    def _refuse_strange(self, path: str) -> None:
        """Raise the error for a damaged file for something other than a file: opening a FIFO would block for ever."""
        if self.is_local and is_strange(path):
            raise self.rules.corrupt(path, "found something other than a file")

    def failure(self, path: str, error: Exception, gone: str) -> StateStoreError:
        """The error for a failed read. Object stores may report a missing object like any other failure."""
        lost = isinstance(error, FileNotFoundError)
        if not lost:
            with contextlib.suppress(*STORAGE_ERRORS):
                lost = entry_at(self.filesystem, path).kind is EntryKind.GONE
        return self.rules.missing(path, gone) if lost else no_access(path, error)


def folder_at(location: Location, rules: FileRules = FileRules()) -> Folder:
    """The folder at a location. Raises the errors of `reach_location`."""
    filesystem, path = reach_location(location)
    return Folder(filesystem, path.rstrip("/") or "/", rules)


@dataclass(frozen=True)
class _Stream:
    """A stream whose errors are StateStoreErrors."""

    source: pa.NativeFile | IO[bytes]
    folder: Folder
    path: str
    gone: str

    def read(self, size: int = -1) -> bytes:
        try:
            found: bytes = self.source.read(size)
        except STORAGE_ERRORS as error:
            raise self.folder.failure(self.path, error, self.gone) from error
        return found

    def close(self) -> None:
        self.source.close()

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True)
class RandomAccess:
    """An open file whose errors are StateStoreErrors; several threads may read it."""

    source: pa.NativeFile | S3Object
    folder: Folder
    path: str
    size: int

    def read_at(self, offset: int, size: int) -> bytes:
        """Read ``size`` bytes; fewer only at the end of the file."""
        size = max(0, min(size, self.size - offset))
        try:
            if isinstance(self.source, S3Object):
                return self.source.read_at(offset, size)
            found: bytes = self.source.read_at(size, offset)
        except SizeError as error:
            raise self.folder.rules.corrupt(self.path, f"found {error.size} bytes, expected {self.size}") from error
        except STORAGE_ERRORS as error:
            raise self.folder.failure(self.path, error, self.folder.rules.gone) from error
        return found

    def close(self) -> None:
        if not isinstance(self.source, S3Object):
            self.source.close()

    def __enter__(self) -> RandomAccess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _reading(folder: Folder, name: str | int) -> Callable[[], object]:
    return lambda: folder.read_small(name)
