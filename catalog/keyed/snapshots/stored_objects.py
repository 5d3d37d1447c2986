"""Files of snapshots in an object store: objects of unique names, put once and never changed.

What is put is hashed on the way, so a file is read once. Large files go in parts, so that none is in memory whole. What
is restored comes through the cache of objects, in which a file is compared with its checksums; table files are then
hard links to its copies where the file system has both.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO, Any

from statestore.catalog.keyed.snapshots.commit_lock import MOST_AGE_US
from statestore.catalog.keyed.snapshots.written_file import NewFile, file_missing, read_region
from statestore.catalog.log.storage_objects import ObjectStorage
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import ConflictError, NotFoundError, StateStoreError
from statestore.formats.places.disk_errors import disk_errors
from statestore.formats.places.object_cache import CachedObject, fetch_all, in_parallel
from statestore.formats.segments.regions import REGION_BYTES, VerifiedBytes, check_length, missing_parts
from statestore.formats.segments.segment_meta import FileRef

WHOLE_BYTES = 16 << 20
"""A larger file is put in parts."""
FETCHED_BYTES = 256 << 20
"""About so much is fetched at a time, for which there is memory where the cache has no disk."""


@dataclass(frozen=True)
class Upload:
    """A file on its way to an object store: ``sink`` is an unnamed local file, which the system removes."""

    storage: ObjectStorage
    sink: IO[bytes]
    check: Callable[[], None]

    def finish(self, name: str) -> None:
        """Put what was written. Raises StorageError REQUEST_FAILED."""
        size = self.sink.tell()
        self.sink.seek(0)
        if size <= WHOLE_BYTES:
            _put(self.storage, name, self.sink.read())
        else:
            _put_in_parts(self.storage, name, self._pieces())

    def _pieces(self) -> Iterator[bytes]:
        while piece := self.sink.read(REGION_BYTES):
            self.check()
            yield piece


@contextmanager
def uploaded(storage: ObjectStorage, check: Callable[[], None], scratch: Path | None) -> Iterator[Upload]:
    """Yield a file to write and then to `Upload.finish`. Raises StorageError DISK_FAILED or REQUEST_FAILED."""
    folder = Path(tempfile.gettempdir()) if scratch is None else scratch
    with disk_errors("write a temporary file in", folder), tempfile.TemporaryFile(dir=folder) as sink:
        yield Upload(storage, sink, check)


def upload_file(storage: ObjectStorage, subfolder: str, source: Path, check: Callable[[], None]) -> FileRef:
    """Put a file that does not change, and return its reference; ``check`` is called every MiB."""
    name = f"{subfolder}/{uuid.uuid4().hex}{source.suffix}"
    with disk_errors("open", source):
        data = source.open("rb")
    with data:
        if os.fstat(data.fileno()).st_size <= WHOLE_BYTES:
            whole = BytesIO()
            file = NewFile(name, whole, check)
            while piece := read_region(data, source):
                file.write(piece)
            _put(storage, name, whole.getbuffer())
        else:
            file = NewFile(name, _Nowhere(), check)
            _put_in_parts(storage, name, _hashed(file, data, source))
    return file.ref()


class _Nowhere(BytesIO):
    """A sink that keeps nothing: the bytes are sent while they are hashed."""

    def write(self, data: Any) -> int:
        return len(data)


def _hashed(file: NewFile, data: IO[bytes], source: Path) -> Iterator[bytes]:
    while piece := read_region(data, source):
        file.write(piece)
        yield piece


def _put(storage: ObjectStorage, name: str, data: bytes | memoryview) -> None:
    try:
        storage.create_many({name: data})
    except BaseException:
        _remove(storage, name)
        raise


def _put_in_parts(storage: ObjectStorage, name: str, pieces: Iterator[bytes]) -> None:
    try:
        storage.create_in_parts(name, pieces)
    except BaseException:
        _remove(storage, name)
        raise


def _remove(storage: ObjectStorage, name: str) -> None:
    """Remove what a failed put may have left; vacuum removes what stays, or what appears later."""
    with contextlib.suppress(StateStoreError):
        storage.delete(name)


def download_files(storage: ObjectStorage, shared: Mapping[Path, FileRef], private: Mapping[Path, FileRef]) -> None:
    """Make objects regular files at these paths, as `stored_files.link_files` says."""
    wanted = [*shared.items(), *private.items()]
    while wanted:
        portion = [wanted.pop(0)]
        size = portion[0][1].bytes
        while wanted and size + wanted[0][1].bytes <= FETCHED_BYTES:
            portion.append(wanted.pop(0))
            size += portion[-1][1].bytes
        with _explained(storage, [file for _, file in portion]):
            objects = _fetched(storage, [file for _, file in portion])
            for (target, _), found in zip(portion, objects, strict=True):
                _place(found, target, may_link=target in shared)


def _fetched(storage: ObjectStorage, files: Sequence[FileRef]) -> list[CachedObject]:
    """Return objects whose bytes are all here and verified; their requests are sent at the same time."""
    objects = [storage.opened(file) for file in files]
    verified = [VerifiedBytes(file, found) for file, found in zip(files, objects, strict=True)]
    fetch_all(
        [
            (found, part)
            for file, found in zip(files, objects, strict=True)
            for part in missing_parts(file, found, [(0, file.bytes)])
        ]
    )
    for each in verified:
        each.verify_all()
    return objects


def _place(found: CachedObject, target: Path, *, may_link: bool) -> None:
    with disk_errors("write", target):
        if may_link and found.link_to(target):
            return
        with target.open("xb") as file:
            file.write(found.buffer)


@contextmanager
def opened_object(storage: ObjectStorage, file: FileRef, anew: bool) -> Iterator[VerifiedBytes]:
    """Open an object; its regions are fetched when they are read. See `stored_files.opened`."""
    found = storage.opened_anew(file) if anew else storage.opened(file)
    with _explained(storage, [file]):
        yield VerifiedBytes(file, found)


@contextmanager
def _explained(storage: ObjectStorage, files: Sequence[FileRef]) -> Iterator[None]:
    """Raise NotFoundError SNAPSHOT_FILE_MISSING for an object that is gone, even if it existed a moment ago."""
    try:
        yield
    except NotFoundError as error:
        if error.code != ErrorCode.FILE_NOT_FOUND:
            raise
        gone = next((file.name for file in files if file.name in error.message), files[0].name)
        raise file_missing(storage.shown(gone)) from None


def check_objects(storage: ObjectStorage, files: Sequence[FileRef]) -> None:
    """Check that objects which are about to be committed exist, have their lengths, and are young enough.

    Raises NotFoundError SNAPSHOT_FILE_MISSING, CorruptError SEGMENT_TRUNCATED, ConflictError SNAPSHOT_TOO_OLD.
    """
    now = time.time_ns() // 1000
    for file, about in zip(files, in_parallel(lambda file: storage.look(file.name), files), strict=True):
        if about is None:
            raise file_missing(storage.shown(file.name))
        check_length(file, about.bytes)
        if now - about.modified_us > MOST_AGE_US:
            raise ConflictError(
                ErrorCode.SNAPSHOT_TOO_OLD,
                f"{storage.shown(file.name)} was written {(now - about.modified_us) // 3_600_000_000} hours ago, so "
                f"vacuum might remove it before this commit names it; commit within {MOST_AGE_US // 3_600_000_000} "
                "hours: take the snapshot again",
            )
