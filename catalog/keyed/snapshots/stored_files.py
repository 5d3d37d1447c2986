"""Files of snapshots in a store: written whole or not at all, with checksums of the written bytes.

A store in a local directory is written and mapped here, one in an object store through
`statestore.catalog.keyed.snapshots.stored_objects`.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

import pyarrow as pa

from statestore.catalog.keyed.snapshots.written_file import NewFile, file_missing, no_check, read_region
from statestore.catalog.log.storage import LocalStorage, Storage, sync_folder
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import NotFoundError, StateStoreError, StorageError
from statestore.formats.places.disk_errors import disk_errors, storage_error
from statestore.formats.places.regular_files import map_regular
from statestore.formats.segments.ipc_file import metadata_ranges
from statestore.formats.segments.regions import VerifiedBytes
from statestore.formats.segments.segment_meta import FileRef

if TYPE_CHECKING:
    from statestore.catalog.log.storage_objects import ObjectStorage

Item = TypeVar("Item")
PARALLEL_UPLOADS = 8
UNFINISHED = ".tmp"
_NO_HARD_LINK = (errno.EXDEV, errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


@contextmanager
def new_file(
    storage: Storage,
    subfolder: str,
    suffix: str,
    check: Callable[[], None] = no_check,
    scratch: Path | None = None,
) -> Iterator[NewFile]:
    """Create a file ``<subfolder>/<unique><suffix>`` in the store; it exists and is durable when the block ends well.

    ``scratch`` is where a file for an object store is written first, by default the system's temporary directory.
    Raises StorageError DISK_FAILED, also for refusals of the system within the block, or REQUEST_FAILED, and
    NotFoundError SNAPSHOT_FILE_MISSING if another process removed the file meanwhile.
    """
    name = f"{subfolder}/{uuid.uuid4().hex}{suffix}"
    if isinstance(storage, LocalStorage):
        with _new_local(storage.root, name, check) as file:
            yield file
        return
    from statestore.catalog.keyed.snapshots.stored_objects import uploaded

    with uploaded(cast("ObjectStorage", storage), check, scratch) as sent:
        yield NewFile(name, sent.sink, check)
        sent.finish(name)


@contextmanager
def _new_local(folder: Path, name: str, check: Callable[[], None]) -> Iterator[NewFile]:
    subfolder = name.rpartition("/")[0]
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


def remove_if_possible(storage: Storage, files: Iterable[FileRef]) -> None:
    """Remove stored files that are no longer needed; files that cannot be removed are left to vacuum."""
    if not isinstance(storage, LocalStorage):
        with contextlib.suppress(StateStoreError):
            storage.delete_many([file.name for file in files])
        return
    for file in files:
        with contextlib.suppress(OSError):
            (storage.root / file.name).unlink(missing_ok=True)


def store_copy(storage: Storage, subfolder: str, source: Path, check: Callable[[], None] = no_check) -> FileRef:
    """Store a copy of a file; ``check`` is called every MiB and may raise to end the copying.

    A file that goes to an object store must not change meanwhile.
    """
    if not isinstance(storage, LocalStorage):
        from statestore.catalog.keyed.snapshots.stored_objects import upload_file

        return upload_file(cast("ObjectStorage", storage), subfolder, source, check)
    with new_file(storage, subfolder, source.suffix, check) as target:
        with disk_errors("open", source):
            data = source.open("rb")
        with data:
            while chunk := read_region(data, source):
                target.write(chunk)
        return target.ref()


def side_by_side(storage: Storage, write: Callable[[Item], None], items: Sequence[Item]) -> None:
    """Call ``write``, which stores a file, for each item; several at the same time for an object store."""
    if isinstance(storage, LocalStorage) or len(items) < 2:
        for item in items:
            write(item)
        return
    with ThreadPoolExecutor(min(len(items), PARALLEL_UPLOADS)) as pool:
        list(pool.map(write, items))


def store_batches(
    storage: Storage,
    subfolder: str,
    schema: pa.Schema,
    batches: Iterator[pa.RecordBatch],
    check: Callable[[], None] = no_check,
    scratch: Path | None = None,
) -> FileRef | None:
    """Store an Arrow file of batches, which are written as they come; return None if there are none.

    ``scratch``: see `new_file`.
    """
    first = next(batches, None)
    if first is None:
        return None
    starts: list[int] = []
    with new_file(storage, subfolder, ".arrow", check, scratch) as target:
        with pa.ipc.new_file(
            pa.PythonFile(target, "w"), schema, options=pa.ipc.IpcWriteOptions(compression=None)
        ) as writer:
            for batch in itertools.chain((first,), batches):
                starts.append(target.bytes)
                writer.write_batch(batch)
            body_end = target.bytes
        target.sink.flush()
        where = target.sink.name if isinstance(target.sink.name, str) else f"/dev/fd/{target.sink.fileno()}"
        with pa.memory_map(where) as written:
            ranges = metadata_ranges(written.read_buffer(), starts, body_end)
        return replace(target.ref(), metadata_ranges=ranges)


_MOST_KNOWN = 10_000
_KNOWN_GOOD: dict[tuple[str, int, int, int], str] = {}
"""Checksums of files that this process has compared, by path, inode, size and modification time."""


def link_files(storage: Storage, shared: Mapping[Path, FileRef], private: Mapping[Path, FileRef]) -> None:
    """Make stored files regular files at the given paths: ``shared`` ones, which nobody writes to, may be links.

    Raises NotFoundError SNAPSHOT_FILE_MISSING, CorruptError SEGMENT_CORRUPT or SEGMENT_TRUNCATED, StorageError.
    """
    if not isinstance(storage, LocalStorage):
        from statestore.catalog.keyed.snapshots.stored_objects import download_files

        download_files(cast("ObjectStorage", storage), shared, private)
        return
    for target, file in shared.items():
        _link_or_copy(storage, file, target, read_only=True)
    for target, file in private.items():
        _link_or_copy(storage, file, target, read_only=False)


def _link_or_copy(storage: LocalStorage, file: FileRef, target: Path, *, read_only: bool) -> None:
    source = checked(storage, file)
    with _there(storage.root, file, "copy"):
        if not read_only:
            shutil.copyfile(source, target)
            return
        try:
            os.link(source, target)
        except OSError as error:
            if error.errno not in _NO_HARD_LINK:
                raise
            shutil.copyfile(source, target)


def check_there(storage: Storage, files: Sequence[FileRef]) -> None:
    """Check that files that are about to be committed exist and have their lengths; their bytes are not compared.

    Raises NotFoundError SNAPSHOT_FILE_MISSING or CorruptError SEGMENT_TRUNCATED; for an object store also ConflictError
    SNAPSHOT_TOO_OLD.
    """
    if not isinstance(storage, LocalStorage):
        from statestore.catalog.keyed.snapshots.stored_objects import check_objects

        check_objects(cast("ObjectStorage", storage), files)
        return
    for file in files:
        with opened(storage, file):
            pass


def checked(storage: LocalStorage, file: FileRef) -> Path:
    """Return the path of a stored file after comparing all its regions.

    A process compares a file once, unless the file has changed since.
    """
    path = storage.root / file.name
    with opened(storage, file) as verified:
        with _there(storage.root, file, "look at"):
            about = path.stat()
        identity = str(path), about.st_ino, about.st_size, about.st_mtime_ns
        if _KNOWN_GOOD.get(identity) != file.checksums:
            verified.verify_all()
            if len(_KNOWN_GOOD) >= _MOST_KNOWN:
                _KNOWN_GOOD.clear()
            _KNOWN_GOOD[identity] = file.checksums
    return path


@contextmanager
def opened(storage: Storage, file: FileRef, *, anew: bool = False) -> Iterator[VerifiedBytes]:
    """Map a stored file, or open an object; its bytes are fetched and compared when they are read.

    ``anew``: the bytes are those of the store, not of a copy that was fetched before. Raises NotFoundError
    SNAPSHOT_FILE_MISSING, also within the block, CorruptError SEGMENT_TRUNCATED or NOT_A_FILE, StorageError.
    """
    if not isinstance(storage, LocalStorage):
        from statestore.catalog.keyed.snapshots.stored_objects import opened_object

        with opened_object(cast("ObjectStorage", storage), file, anew) as verified:
            yield verified
        return
    with _there(storage.root, file, "map"):
        data = map_regular(storage.root / file.name)
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
                raise file_missing(path) from None
        raise storage_error(error, doing, path) from error
