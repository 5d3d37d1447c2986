"""Errors of readers of RocksDB directories: for damaged files, and for files that the scanner does not read."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, StateStoreError


class Unreadable(Exception):
    """A directory in a form that the scanner of table files does not read, but RocksDB itself may.

    The message names it.
    """


def corrupt(path: str, found: str) -> CorruptError:
    """The error for a damaged file of RocksDB."""
    return CorruptError(ErrorCode.ROCKSDB_FILE, f"{path}: {found}; the file is damaged, restore it from a copy")


@contextmanager
def naming(copy: Path, original: str) -> Iterator[None]:
    """Let errors of a block that reads a private copy name the original: the copy is gone when somebody reads them."""
    try:
        yield
    except StateStoreError as error:
        error.message = in_terms_of(original, copy, error.message)
        error.args = (error.code, error.message)
        raise


def in_terms_of(original: str, copy: Path, text: str) -> str:
    """The text of an error with the original's path in place of the copy's."""
    for path in (os.path.realpath(copy), str(copy)):
        text = text.replace(path, original)
    return text


# Classification of RocksDB's errors, which rocksdict raises as plain exceptions: disk failure or damage


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
