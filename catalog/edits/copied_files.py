"""The files that a target has as its source has them, copied or linked.

A source is never changed, and never through its target either. So a file becomes a hard link only if no program ever
changes it (`CopiedFile.immutable`). A link adds a name to the file of the source: its content, size and time of
modification stay, its number of names and its time of change do not. Where the file system can, copies share their
blocks with the source until one of them is changed.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from statestore.catalog.edits.receipt import CopiedFiles
from statestore.catalog.edits.target_folder import TargetFolder, wrong_plan
from statestore.formats.edits import CopiedFile
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import ConflictError
from statestore.formats.places.disk_errors import disk_errors
from statestore.formats.places.folder import PARALLEL_REQUESTS
from statestore.formats.places.reading_threads import in_order, processors
from statestore.formats.places.regular_files import open_regular

CHUNK_BYTES = 1 << 20
_SHARE_BLOCKS = 0x40049409
"""The request FICLONE of ioctl, by which a file of Btrfs, XFS and others gets the blocks of another one."""
_CANNOT_LINK = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EACCES)


@dataclass(frozen=True)
class Copy:
    """A file of the target that is copied or linked, by its path; without a digest where the content was not read."""

    path: str
    bytes: int
    sha256: str = ""
    linked: bool = False


def copy_files(
    files: Sequence[CopiedFile], target: TargetFolder, progress: Callable[[int], None] = lambda done: None
) -> CopiedFiles:
    """Bring files of the source into the target; ``progress`` is called with the bytes so far.

    Raises ConflictError SOURCE_CHANGED for a file that is gone or has another size than was planned, StateStoreError
    EDIT_DIFFERS for two files of one path, StorageError DISK_FAILED.
    """
    elsewhere = any(not each.folder.is_local for each in files)
    copies = []
    done = 0
    for copied in in_order(partial(copied_file, target), files, PARALLEL_REQUESTS if elsewhere else processors()):
        copies.append(copied)
        done += copied.bytes
        progress(done)
    return copied_files(copies)


def copied_files(copies: Sequence[Copy]) -> CopiedFiles:
    """Return what the receipt says of copies."""
    lines = sorted("\t".join([each.path, str(each.bytes), each.sha256]) for each in copies)
    return CopiedFiles(
        len(copies),
        sum(each.bytes for each in copies),
        sum(each.linked for each in copies),
        sum(not each.linked and not each.sha256 for each in copies),
        hashlib.sha256("\n".join(lines).encode(errors="surrogateescape")).hexdigest(),
    )


def copied_file(target: TargetFolder, file: CopiedFile) -> Copy:
    """Bring one file into the target, as `copy_files` does."""
    place = target.place(file.path)
    found = _copied_locally(target, file, place) if file.folder.is_local else _fetched(target, file, place)
    if file.bytes is not None and found.bytes != file.bytes:
        raise _changed(f"{_source_of(file)} has {found.bytes} bytes, it had {file.bytes} when it was listed")
    return found


def _source_of(file: CopiedFile) -> str:
    return f"{file.folder.path}/{file.name}"


def _copied_locally(target: TargetFolder, file: CopiedFile, place: Path) -> Copy:
    path = _source_of(file)
    try:
        source = open_regular(path)
    except FileNotFoundError as error:
        raise _changed(f"{path} is gone") from error
    try:
        with disk_errors("copy", path):
            status = os.fstat(source)
            if file.immutable and _linked(path, status, place):
                # The source may have been written a moment ago, and the target is to last.
                os.fsync(source)
                return Copy(file.path, status.st_size, linked=True)
            return _written(target, file, place, source, status)
    finally:
        os.close(source)


def _linked(path: str, status: os.stat_result, place: Path) -> bool:
    """Give the source's file another name; return False where the file system does not allow it."""
    try:
        os.link(path, place)
    except FileExistsError:
        return False  # told by the copy that follows
    except OSError as error:
        if error.errno in _CANNOT_LINK:
            return False
        raise
    made = place.lstat()
    if stat.S_ISREG(made.st_mode) and (made.st_dev, made.st_ino) == (status.st_dev, status.st_ino):
        return True
    place.unlink()  # a link to a file elsewhere, or another file by now
    return False


def _written(target: TargetFolder, file: CopiedFile, place: Path, source: int, status: os.stat_result) -> Copy:
    try:
        made = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, stat.S_IMODE(status.st_mode) & 0o777)
    except FileExistsError as error:
        raise wrong_plan(target.path, f"{file.path} is written twice") from error
    try:
        size, digest = status.st_size, ""
        if not _shares_blocks(made, source):
            size, digest = _hashed_copy(made, partial(os.read, source, CHUNK_BYTES))
        # Some engines tell by the times of files when they were written.
        os.utime(made, ns=(status.st_atime_ns, status.st_mtime_ns))
        os.fchmod(made, stat.S_IMODE(status.st_mode) & 0o777)
        os.fsync(made)
        if os.fstat(made).st_size != size:
            raise wrong_plan(target.path, f"{file.path} has {os.fstat(made).st_size} bytes of {size}")
    finally:
        os.close(made)
    if size != status.st_size:
        raise _changed(f"{_source_of(file)} had {status.st_size} bytes, and {size} while it was copied")
    return Copy(file.path, size, digest)


def _shares_blocks(made: int, source: int) -> bool:
    try:
        fcntl.ioctl(made, _SHARE_BLOCKS, source)
    except OSError:
        return False
    return True


def _hashed_copy(made: int, read: Callable[[], bytes]) -> tuple[int, str]:
    """Write all that ``read`` returns; return the number of bytes and their SHA-256."""
    hasher, size = hashlib.sha256(), 0
    while chunk := read():
        hasher.update(chunk)
        size += len(chunk)
        rest = memoryview(chunk)
        while rest:
            rest = rest[os.write(made, rest) :]
    return size, hasher.hexdigest()


def _fetched(target: TargetFolder, file: CopiedFile, place: Path) -> Copy:
    """Copy a file of another storage."""
    with file.folder.stream(file.name) as source, disk_errors("write", place):
        try:
            made = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        except FileExistsError as error:
            raise wrong_plan(target.path, f"{file.path} is written twice") from error
        try:
            size, digest = _hashed_copy(made, lambda: source.read(CHUNK_BYTES))
            os.fsync(made)
        finally:
            os.close(made)
    return Copy(file.path, size, digest)


def _changed(what: str) -> ConflictError:
    return source_changed([what])


def source_changed(what: Sequence[str]) -> ConflictError:
    """The error for a source that did not stay as it was while it was edited."""
    return ConflictError(
        ErrorCode.SOURCE_CHANGED,
        f"the source changed while it was edited: {'; '.join(what)}. No target was made; stop the job that "
        "writes there and see that nothing removes its files, then repeat the edit",
    )
