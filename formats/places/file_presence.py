"""Presence of files, checked so that a failing disk is not mistaken for an absent file.

``os.access``, ``Path.exists`` and ``Path.glob`` return nothing where the system refuses to answer. A reader that takes
that for "there is no newer commit" answers with the past in place of the present. A ``stat`` that raises costs a point
read another microsecond; a call of the C library reports the cause of a failure at no such cost.
"""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

from statestore.formats.places.disk_errors import disk_errors, storage_error

_ABSENT = (errno.ENOENT, errno.ENOTDIR)
_access = ctypes.CDLL(None, use_errno=True).access
_access.argtypes = (ctypes.c_char_p, ctypes.c_int)
_access.restype = ctypes.c_int
_errno = ctypes.get_errno


def is_there(path: bytes) -> bool:
    """Return whether a file or folder has this name, encoded as by `os.fsencode`.

    Raises StorageError DISK_FAILED where the system cannot answer.
    """
    if _access(path, 0) == 0:
        return True
    code = _errno()
    if code in _ABSENT:
        return False
    raise storage_error(OSError(code, os.strerror(code)), "look for", os.fsdecode(path))


def names_in(folder: Path) -> list[str]:
    """The names in a folder, ascending; [] where the folder does not exist. Raises StorageError DISK_FAILED."""
    with disk_errors("list", folder):
        try:
            with os.scandir(folder) as entries:
                return sorted(entry.name for entry in entries)
        except (FileNotFoundError, NotADirectoryError):
            return []
