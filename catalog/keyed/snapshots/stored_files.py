"""Files of snapshots in a store's folder: written whole or not at all, with checksums of the written bytes."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import xxhash

from statestore.catalog.log.storage import sync_folder
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import NotFoundError, StorageError
from statestore.formats.places.disk_errors import disk_errors, storage_error
from statestore.formats.places.regular_files import map_regular
from statestore.formats.segments.ipc_file import metadata_ranges
from statestore.formats.segments.regions import REGION_BYTES, VerifiedBytes
from statestore.formats.segments.segment_meta import FileRef

UNFINISHED = ".tmp"
_NO_HARD_LINK = (errno.EXDEV, errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


@dataclass
class NewFile:
    """A file that is being written, with the interface that pyarrow expects; ``check`` is called between its
    regions."""

    name: str
    sink: IO[bytes]
    check: Callable[[], None]
    bytes: int = 0
    checksums: list[str] = field(default_factory=list)
    _hash: Any = field(default_factory=xxhash.xxh3_64)

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        at = 0
        while at < len(view):
            taken = min(len(view) - at, REGION_BYTES - self.bytes % REGION_BYTES)
            self._hash.update(view[at : at + taken])
            self.sink.write(view[at : at + taken])
            self.bytes, at = self.bytes + taken, at + taken
            if self.bytes % REGION_BYTES == 0:
                self._region()
                self.check()
        return len(view)

    def tell(self) -> int:
        return self.bytes

    @property
    def closed(self) -> bool:
        return self.sink.closed

    def flush(self) -> None:
        """Do nothing: the file is flushed at the end."""

    def close(self) -> None:
        """Do nothing: `new_file` finishes the file after its writer is done."""

    def ref(self) -> FileRef:
        """Return the reference to the file as it is now; nothing may be written later."""
        if self.bytes % REGION_BYTES:
            self._region()
        return FileRef(self.name, self.bytes, "".join(self.checksums))

    def _region(self) -> None:
        self.checksums.append(self._hash.hexdigest())
        self._hash = xxhash.xxh3_64()


def _no_check() -> None:
    """Do nothing: the write cannot be cancelled."""


@contextmanager
def new_file(folder: Path, subfolder: str, suffix: str, check: Callable[[], None] = _no_check) -> Iterator[NewFile]:
    """Create a file ``<subfolder>/<unique><suffix>`` in the store's folder; it exists and is durable when the block
    ends well.

    Raises StorageError DISK_FAILED, also for refusals of the system within the block, and NotFoundError
    SNAPSHOT_FILE_MISSING if another process removed the file meanwhile.
    """
    name = f"{subfolder}/{uuid.uuid4().hex}{suffix}"
    unfinished = folder / f"{name}{UNFINISHED}"
    try:
        with disk_errors("write", folder / name):
            if not (folder / subfolder).is_dir():
                (folder / subfolder).mkdir(exist_ok=True)
                sync_folder(folder)
            with unfinished.open("wb") as sink:
                yield NewFile(name, sink, check)
                sink.flush()
                os.fsync(sink.fileno())
            unfinished.rename(folder / name)
            sync_folder(folder / subfolder)
    except BaseException as error:
        for left in (folder / name, unfinished):
            with contextlib.suppress(OSError):  # vacuum removes a file that stays
                left.unlink(missing_ok=True)
        if isinstance(error, StorageError) and error.errno == errno.ENOENT and error.filename == str(folder / name):
            raise NotFoundError(
                ErrorCode.SNAPSHOT_FILE_MISSING,
                f"{unfinished} was removed while it was written, by vacuum(older_than=0) or with the whole store; "
                "repeat the call",
            ) from error
        raise


def remove_if_possible(folder: Path, files: Iterable[FileRef]) -> None:
    """Remove stored files that are no longer needed; files that cannot be removed are left to vacuum."""
    for file in files:
        with contextlib.suppress(OSError):
            (folder / file.name).unlink(missing_ok=True)


def store_copy(folder: Path, subfolder: str, source: Path, check: Callable[[], None] = _no_check) -> FileRef:
    """Store a copy of a file; ``check`` is called every MiB and may raise to end the copying."""
    with new_file(folder, subfolder, source.suffix, check) as target:
        with disk_errors("open", source):
            data = source.open("rb")
        with data:
            while chunk := _read(data, source):
                target.write(chunk)
        return target.ref()


def _read(data: IO[bytes], source: Path) -> bytes:
    with disk_errors("read", source):
        return data.read(REGION_BYTES)


def store_batches(
    folder: Path,
    subfolder: str,
    schema: pa.Schema,
    batches: Iterator[pa.RecordBatch],
    check: Callable[[], None] = _no_check,
) -> FileRef | None:
    """Store an Arrow file of batches, which are written as they come; return None if there are none."""
    first = next(batches, None)
    if first is None:
        return None
    starts: list[int] = []
    with new_file(folder, subfolder, ".arrow", check) as target:
        with pa.ipc.new_file(
            pa.PythonFile(target, "w"), schema, options=pa.ipc.IpcWriteOptions(compression=None)
        ) as writer:
            for batch in itertools.chain((first,), batches):
                starts.append(target.bytes)
                writer.write_batch(batch)
            body_end = target.bytes
        target.sink.flush()
        with pa.memory_map(target.sink.name) as written:
            ranges = metadata_ranges(written.read_buffer(), starts, body_end)
        return replace(target.ref(), metadata_ranges=ranges)


_MOST_KNOWN = 10_000
_KNOWN_GOOD: dict[tuple[str, int, int, int], str] = {}
"""Checksums of files that this process has compared, by path, inode, size and modification time."""


def link_or_copy(folder: Path, file: FileRef, target: Path, *, read_only: bool) -> None:
    """Link or copy a stored file to another name, as a link if it is read only.

    Raises NotFoundError SNAPSHOT_FILE_MISSING, CorruptError SEGMENT_CORRUPT or SEGMENT_TRUNCATED, StorageError.
    """
    source = checked(folder, file)
    with _there(folder, file, "copy"):
        if not read_only:
            shutil.copyfile(source, target)
            return
        try:
            os.link(source, target)
        except OSError as error:
            if error.errno not in _NO_HARD_LINK:
                raise
            shutil.copyfile(source, target)


def check_there(folder: Path, file: FileRef) -> None:
    """Check that a file that is about to be committed exists and has its length; its bytes are not compared.

    Raises NotFoundError SNAPSHOT_FILE_MISSING or CorruptError SEGMENT_TRUNCATED.
    """
    with opened(folder, file):
        pass


def checked(folder: Path, file: FileRef) -> Path:
    """Return the path of a stored file after comparing all its regions.

    A process compares a file once, unless the file has changed since.
    """
    path = folder / file.name
    with opened(folder, file) as verified:
        with _there(folder, file, "look at"):
            about = path.stat()
        identity = str(path), about.st_ino, about.st_size, about.st_mtime_ns
        if _KNOWN_GOOD.get(identity) != file.checksums:
            verified.verify_all()
            if len(_KNOWN_GOOD) >= _MOST_KNOWN:
                _KNOWN_GOOD.clear()
            _KNOWN_GOOD[identity] = file.checksums
    return path


@contextmanager
def opened(folder: Path, file: FileRef) -> Iterator[VerifiedBytes]:
    """Map a stored file; its bytes are compared when they are read.

    Raises NotFoundError SNAPSHOT_FILE_MISSING, CorruptError SEGMENT_TRUNCATED or NOT_A_FILE, StorageError.
    """
    with _there(folder, file, "map"):
        data = map_regular(folder / file.name)
    yield VerifiedBytes(file, data)


@contextmanager
def _there(folder: Path, file: FileRef, doing: str) -> Iterator[None]:
    """Raise NotFoundError SNAPSHOT_FILE_MISSING for a file that is gone, even if it existed a moment ago.

    Other refusals of the system are raised as StorageError DISK_FAILED.
    """
    path = folder / file.name
    try:
        yield
    except OSError as error:
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            with disk_errors("look for", path):
                gone = not path.exists()
            if gone:
                raise NotFoundError(
                    ErrorCode.SNAPSHOT_FILE_MISSING,
                    f"{path} is missing, but a snapshot needs it; restore it from a copy, or use another snapshot",
                ) from None
        raise storage_error(error, doing, path) from error
