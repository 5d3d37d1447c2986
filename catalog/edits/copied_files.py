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
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from statestore.catalog.edits.receipt import Copied, CopiedFiles
from statestore.catalog.edits.target_errors import source_changed, wrong_plan
from statestore.catalog.edits.target_folder import TargetFolder
from statestore.formats.edits import CopiedFile
from statestore.formats.errors import ConflictError
from statestore.formats.places.disk_errors import disk_errors, storage_error
from statestore.formats.places.folder import PARALLEL_REQUESTS
from statestore.formats.places.reading_threads import in_order, processors
from statestore.formats.places.regular_files import open_regular

if TYPE_CHECKING:
    from statestore.catalog.edits.targets import MadeTarget

CHUNK_BYTES = 1 << 20
_GROUP_FILES, _GROUP_BYTES = 64, 4 << 20
_SHARE_BLOCKS = 0x40049409
"""The request FICLONE of ioctl, by which a file of Btrfs, XFS and others gets the blocks of another one."""
_CANNOT_SHARE = (errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV)
_sharing_nothing: set[tuple[int, int]] = set()
"""File systems, by their devices, of which the second shares no blocks with the first."""
_CANNOT_LINK = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EACCES)


def copy_files(
    files: Sequence[CopiedFile],
    target: MadeTarget,
    stages: Sequence[Sequence[str]] = (),
    progress: Callable[[int], None] = lambda done: None,
) -> CopiedFiles:
    """Bring files of the source into the target; ``progress`` is called with the bytes so far.

    Files of ``stages`` are held where the target appears file by file. Raises ConflictError SOURCE_CHANGED for a file
    that is gone or has another size than was planned, StateStoreError EDIT_DIFFERS for two files of one path,
    StorageError DISK_FAILED or REQUEST_FAILED.
    """
    copies = []
    done = 0
    for copied in _copies(files, target, frozenset(path for stage in stages for path in stage)):
        copies.append(copied)
        done += copied.bytes
        progress(done)
    return copied_files(copies)


def copied_files(copies: Sequence[Copied]) -> CopiedFiles:
    """Return what the receipt says of copies."""
    lines = sorted("\t".join([each.path, str(each.bytes), each.sha256]) for each in copies)
    return CopiedFiles(
        len(copies),
        sum(each.bytes for each in copies),
        sum(each.linked for each in copies),
        sum(not each.linked and not each.sha256 for each in copies),
        hashlib.sha256("\n".join(lines).encode(errors="surrogateescape")).hexdigest(),
    )


def _copies(files: Sequence[CopiedFile], target: MadeTarget, last: frozenset[str]) -> Iterator[Copied]:
    copies: Iterator[Copied]
    if not isinstance(target, TargetFolder):
        from statestore.catalog.edits.object_copies import COPIES_AT_ONCE, ObjectCopies

        copies = in_order(ObjectCopies(target, last).copied, files, COPIES_AT_ONCE)
    elif any(not each.folder.is_local for each in files):
        copies = in_order(partial(copied_file, target), files, PARALLEL_REQUESTS)
    else:
        several = in_order(lambda some: [copied_file(target, each) for each in some], _groups(files), processors())
        copies = chain.from_iterable(several)
    for file, copied in zip(files, copies, strict=True):
        check_size(file, copied)
        yield copied


def check_size(file: CopiedFile, copied: Copied) -> None:
    """Raise ConflictError SOURCE_CHANGED for a file that has another size than was planned."""
    if file.bytes is not None and copied.bytes != file.bytes:
        raise _changed(f"{_source_of(file)} has {copied.bytes} bytes, it had {file.bytes} when it was listed")


def _groups(files: Iterable[CopiedFile]) -> Iterator[list[CopiedFile]]:
    """Yield files in groups for one thread each: to hand over a small file would take as long as to copy it."""
    group: list[CopiedFile] = []
    size = 0
    for file in files:
        group.append(file)
        size += file.bytes or 0
        if len(group) == _GROUP_FILES or size >= _GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def copied_file(target: TargetFolder, file: CopiedFile) -> Copied:
    """Bring one file into the target, as `copy_files` does."""
    place = target.place(file.path)
    return _copied_locally(target, file, place) if file.folder.is_local else _fetched(target, file, place)


def _source_of(file: CopiedFile) -> str:
    return f"{file.folder.path}/{file.name}"


def _copied_locally(target: TargetFolder, file: CopiedFile, place: Path) -> Copied:
    path = _source_of(file)
    try:
        source = open_regular(path)
    except FileNotFoundError as error:
        raise _changed(f"{path} is gone") from error
    except OSError as error:
        raise storage_error(error, "copy", path) from error
    try:
        with disk_errors("copy", path):
            status = os.fstat(source)
            if file.immutable and _linked(path, status, place):
                return Copied(file.path, status.st_size, linked=True)
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


def _written(target: TargetFolder, file: CopiedFile, place: Path, source: int, status: os.stat_result) -> Copied:
    try:
        made = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, stat.S_IMODE(status.st_mode) & 0o777)
    except FileExistsError as error:
        raise wrong_plan(target.path, f"{file.path} is written twice") from error
    try:
        size, digest, new, mode = status.st_size, "", os.fstat(made), stat.S_IMODE(status.st_mode) & 0o777
        if not _shares_blocks(made, source, (new.st_dev, status.st_dev)):
            # One byte more than a small file has tells that it has grown, without a buffer of a whole chunk.
            read = partial(os.read, source, min(CHUNK_BYTES, status.st_size + 1))
            size, digest = _hashed_copy(made, read, status.st_size)
        # Some engines tell by the times of files when they were written.
        os.utime(made, ns=(status.st_atime_ns, status.st_mtime_ns))
        if stat.S_IMODE(new.st_mode) != mode:
            os.fchmod(made, mode)
    finally:
        os.close(made)
    if size != status.st_size:
        raise _changed(f"{_source_of(file)} had {status.st_size} bytes, and {size} while it was copied")
    return Copied(file.path, size, digest)


def _shares_blocks(made: int, source: int, devices: tuple[int, int]) -> bool:
    if devices in _sharing_nothing:
        return False
    try:
        fcntl.ioctl(made, _SHARE_BLOCKS, source)
    except OSError as error:
        if error.errno in _CANNOT_SHARE:
            _sharing_nothing.add(devices)
        return False
    return True


def _hashed_copy(made: int, read: Callable[[], bytes], expected: int | None = None) -> tuple[int, str]:
    """Write all that ``read`` returns; return the number of bytes and their SHA-256.

    A file of less than a chunk that has ``expected`` bytes has ended with them.
    """
    hasher, size = hashlib.sha256(), 0
    while chunk := read():
        hasher.update(chunk)
        size += len(chunk)
        rest = memoryview(chunk)
        while rest:
            rest = rest[os.write(made, rest) :]
        if size == expected and size < CHUNK_BYTES:
            break
    return size, hasher.hexdigest()


def _fetched(target: TargetFolder, file: CopiedFile, place: Path) -> Copied:
    """Copy a file of another storage."""
    with file.folder.stream(file.name) as source, disk_errors("write", place):
        try:
            made = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        except FileExistsError as error:
            raise wrong_plan(target.path, f"{file.path} is written twice") from error
        try:
            size, digest = _hashed_copy(made, lambda: source.read(CHUNK_BYTES))
        finally:
            os.close(made)
    return Copied(file.path, size, digest)


def _changed(what: str) -> ConflictError:
    return source_changed([what])
