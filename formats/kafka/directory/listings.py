"""Entries of the folders of a state directory, hidden ones too, with links as links.

A state directory may come from somewhere else. A symbolic link in it could lead to any file of this machine, so a link
is an entry of its own kind, and nothing follows it. Only the folder that the user names may be a link.
"""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, NotFoundError
from statestore.formats.places.disk_errors import storage_error
from statestore.formats.places.folder import Folder
from statestore.formats.places.foreign_storages import STORAGE_ERRORS
from statestore.formats.places.locations import no_access
from statestore.formats.places.regular_files import open_regular, too_large

Kind = Literal["file", "folder", "other"]

MAX_TEXT_BYTES = 16 << 20
"""Upper bound of an offset file or of the process metadata."""


@dataclass(frozen=True)
class Entry:
    """An entry of a folder. ``modified`` is its time of change in epoch nanoseconds, None where it is not known.

    A kind of ``other`` is a symbolic link, a pipe, a socket or a device.
    """

    name: str
    kind: Kind
    size: int
    modified: int | None


def entries_of(folder: Folder) -> dict[str, Entry]:
    """The entries of a folder by name, ascending; {} where it does not exist.

    Raises StorageError DISK_FAILED or InvalidInputError NO_ACCESS where it cannot be listed. An entry that vanishes
    meanwhile is left out.
    """
    found = _local(folder.path) if folder.is_local else _remote(folder)
    return {entry.name: entry for entry in sorted(found, key=lambda entry: entry.name)}


def is_link(folder: Folder) -> bool:
    """Return whether a local folder is itself a symbolic link."""
    return folder.is_local and Path(folder.path).is_symlink()


def read_text(folder: Folder, name: str) -> bytes | None:
    """The bytes of a small file, None where it does not exist.

    Raises CorruptError FILE_TOO_LARGE, CorruptError NOT_A_FILE for a link, and the errors of the storage.
    """
    path = posixpath.join(folder.path, name)
    if not folder.is_local:
        try:
            data = folder.read_once(name)
        except NotFoundError:
            return None
        if len(data) > MAX_TEXT_BYTES:
            raise too_large(path, len(data), MAX_TEXT_BYTES)
        return data
    try:
        descriptor = open_unlinked(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    with os.fdopen(descriptor, "rb") as file:
        try:
            data = file.read(MAX_TEXT_BYTES + 1)
        except OSError as error:
            raise storage_error(error, "read", path) from error
    if len(data) > MAX_TEXT_BYTES:
        raise too_large(path, len(data), MAX_TEXT_BYTES)
    return data


def open_unlinked(path: str) -> int:
    """Open a regular file that is no symbolic link, and return its descriptor. Raises as `open_regular`."""
    if Path(path).is_symlink():
        raise not_a_file(path)
    return open_regular(path, os.O_RDONLY | os.O_NOFOLLOW)


def not_a_file(path: str) -> CorruptError:
    """The error for a link, a pipe or a device in the place of a file of a store."""
    return CorruptError(
        ErrorCode.NOT_A_FILE,
        f"{path} is a symbolic link, a pipe or a device, expected a regular file; links in a state directory are not "
        "followed: copy the file itself",
    )


def _local(path: str) -> Iterator[Entry]:
    try:
        with os.scandir(path) as listing:
            for entry in listing:
                try:
                    found = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                yield Entry(entry.name, _kind(found.st_mode), found.st_size, found.st_mtime_ns)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise storage_error(error, "list", path) from error


def _kind(mode: int) -> Kind:
    if stat.S_ISREG(mode):
        return "file"
    return "folder" if stat.S_ISDIR(mode) else "other"


def _remote(folder: Folder) -> Iterator[Entry]:
    import pyarrow.fs as pafs

    storage: pafs.FileSystem = folder.filesystem
    try:
        listed = storage.get_file_info(pafs.FileSelector(folder.path, allow_not_found=True))
    except FileNotFoundError:
        return
    except STORAGE_ERRORS as error:
        raise no_access(folder.path, error) from error
    for info in listed:
        if info.type == pafs.FileType.File:
            yield Entry(info.base_name, "file", info.size or 0, info.mtime_ns)
        elif info.type == pafs.FileType.Directory:
            yield Entry(info.base_name, "folder", 0, None)
