"""Conversion of operating system errors to StorageError, so that callers handle one error for a failing disk."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import StorageError

_ADVICE = {
    errno.ENOSPC: "free space on the disk, then repeat the call",
    errno.EDQUOT: "free space in the quota, then repeat the call",
    errno.EMFILE: "close files or raise the limit of open files (ulimit -n), then repeat the call",
    errno.ENFILE: "close files or raise the system's limit of open files, then repeat the call",
    errno.EACCES: "give this user access to the file, then repeat the call",
    errno.ENAMETOOLONG: "choose a shorter name: most file systems take 255 bytes, with what is added while writing",
    errno.EROFS: "mount the file system for writing, then repeat the call",
}


def storage_error(error: OSError, doing: str, path: object) -> StorageError:
    """Convert ``error`` to StorageError DISK_FAILED, naming the operation ("write", "sync", …) and the file."""
    if isinstance(error, StorageError):
        return error
    reason = error.strerror or str(error)
    advice = _ADVICE.get(error.errno or 0, "repeat the call once the disk works again")
    return StorageError(
        ErrorCode.DISK_FAILED, f"{path}: cannot {doing}: {reason}; {advice}", error.errno, os.fspath(str(path))
    )


@contextlib.contextmanager
def disk_errors(doing: str, path: object) -> Iterator[None]:
    """Convert an OSError raised inside the block with `storage_error`."""
    try:
        yield
    except OSError as error:
        if isinstance(error, StorageError):
            raise
        raise storage_error(error, doing, path) from error
