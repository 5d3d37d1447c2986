"""Entries of a folder: names with kinds, sizes and times, listed once and without hidden and temporary files.

A local folder is listed by the system itself, and only the names that are returned are looked at: half of the files of
a checkpoint are hidden ones with checksums.
"""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

import pyarrow.fs as pafs

_FOLDER, _FILE = pafs.FileType.Directory, pafs.FileType.File
_OTHER, _GONE = pafs.FileType.Unknown, pafs.FileType.NotFound


class Entry(NamedTuple):
    """A name in a folder; ``type`` is that of what a link leads to. Sizes are those of files, and None otherwise."""

    base_name: str
    type: pafs.FileType
    size: int | None
    mtime_ns: int | None


def list_folder(filesystem: pafs.FileSystem, path: str) -> list[Entry]:
    """Return the entries of a folder, none if there is no such folder. Raises OSError and the errors of the storage."""
    try:
        if isinstance(filesystem, pafs.LocalFileSystem):
            return _listed_locally(path)
        listed = filesystem.get_file_info(pafs.FileSelector(path, allow_not_found=True))
    except (FileNotFoundError, NotADirectoryError):  # a missing bucket and a file: not covered by allow_not_found
        return []
    found = [Entry(info.base_name, info.type, info.size, info.mtime_ns) for info in listed if _has_name(info)]
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
                found.append(Entry(name, _GONE, None, None))
                continue
            if stat.S_ISREG(status.st_mode):
                found.append(Entry(name, _FILE, status.st_size, status.st_mtime_ns))
            else:
                kind = _FOLDER if stat.S_ISDIR(status.st_mode) else _OTHER
                found.append(Entry(name, kind, None, status.st_mtime_ns))
    return found


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
