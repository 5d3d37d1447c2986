"""Entries of a folder: names with kinds, sizes and times, listed once and without hidden and temporary files.

A local folder is listed by the system itself, and only the names that are returned are looked at: half of the files of
a checkpoint are hidden ones with checksums.
"""

from __future__ import annotations

import errno
import os
import posixpath
import stat
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from statestore.formats.places.local_files import FileSystem, is_local

if TYPE_CHECKING:
    import pyarrow.fs as pafs


class EntryKind(Enum):
    """The kinds of entries that a name stands for. The values are pyarrow's names."""

    FILE = "File"
    FOLDER = "Directory"
    OTHER = "Unknown"
    GONE = "NotFound"


class Entry(NamedTuple):
    """A name in a folder; ``kind`` is that of what a link leads to. Sizes are those of files, and None otherwise."""

    base_name: str
    kind: EntryKind
    size: int | None
    mtime_ns: int | None


def entry_at(filesystem: FileSystem, path: str) -> Entry:
    """Return what is at a path, also where that is nothing. Raises OSError and the errors of the storage."""
    if not is_local(filesystem):
        storage: pafs.FileSystem = filesystem
        return _entry(storage.get_file_info(path))
    name = posixpath.basename(path)
    try:
        return _local_entry(name, os.stat(path))  # noqa: PTH116
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            raise
        return Entry(name, EntryKind.GONE, None, None)
    except ValueError as error:  # a NUL in the path
        raise pa.ArrowInvalid(f"{path!r}: {error}") from None


def list_folder(filesystem: FileSystem, path: str) -> list[Entry]:
    """Return the entries of a folder, none if there is no such folder. Raises OSError and the errors of the storage."""
    try:
        if is_local(filesystem):
            return _listed_locally(path)
        import pyarrow.fs as pafs

        storage: pafs.FileSystem = filesystem
        listed = storage.get_file_info(pafs.FileSelector(path, allow_not_found=True))
    except (FileNotFoundError, NotADirectoryError):  # a missing bucket and a file: not covered by allow_not_found
        return []
    found = [_entry(info) for info in listed if _has_name(info)]
    return [entry for entry in found if _is_shown(entry.base_name)]


def _listed_locally(path: str) -> list[Entry]:
    found = []
    with os.scandir(path) as entries:
        for entry in entries:
            name = entry.name
            if not _is_shown(name) or not (name.isascii() or _is_utf8(name)):
                continue
            try:
                status = entry.stat()
            except FileNotFoundError:  # a link to nothing, or removed meanwhile
                found.append(Entry(name, EntryKind.GONE, None, None))
                continue
            found.append(_local_entry(name, status))
    return found


def _local_entry(name: str, status: os.stat_result) -> Entry:
    if stat.S_ISREG(status.st_mode):
        return Entry(name, EntryKind.FILE, status.st_size, status.st_mtime_ns)
    kind = EntryKind.FOLDER if stat.S_ISDIR(status.st_mode) else EntryKind.OTHER
    return Entry(name, kind, None, status.st_mtime_ns)


def _entry(info: pafs.FileInfo) -> Entry:
    return Entry(info.base_name, EntryKind(info.type.name), info.size, info.mtime_ns)


def _is_shown(name: str) -> bool:
    return not name.startswith(".") and not name.endswith(".tmp")


def _is_utf8(name: str) -> bool:
    """Return whether a name is UTF-8, as are those of all engines."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _has_name(info: pafs.FileInfo) -> bool:
    try:
        return bool(info.base_name)
    except UnicodeDecodeError:
        return False
