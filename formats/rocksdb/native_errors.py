"""Classification of RocksDB's errors, which rocksdict raises as plain exceptions: disk failure or damage."""

from __future__ import annotations

import errno
import os

_REFUSALS = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EMFILE,
    errno.ENFILE,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOMEM,
    errno.EAGAIN,
    errno.EIO,
)


def system_error(error: BaseException) -> OSError | None:
    """The operating system's error behind a RocksDB error; None where RocksDB found damage, or a file missing.

    RocksDB's statuses begin with their kind ("Corruption: …", "IO error: No such file or directory: …"). Errors of the
    system end with the system's own words.
    """
    if isinstance(error, OSError):
        return None if error.errno == errno.ENOENT else error
    text = str(error)
    if "Corruption" in text or os.strerror(errno.ENOENT) in text:
        return None
    for number in _REFUSALS:
        if os.strerror(number) in text:
            return OSError(number, os.strerror(number))
    return OSError(errno.EIO, text) if "IO error" in text else None
