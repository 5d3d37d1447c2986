"""Errors of readers of RocksDB directories: for damaged files, and for files that the scanner does not read."""

from __future__ import annotations

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError


class Unreadable(Exception):
    """A directory in a form that the scanner of table files does not read, but RocksDB itself may.

    The message names it.
    """


def corrupt(path: str, found: str) -> CorruptError:
    """The error for a damaged file of RocksDB."""
    return CorruptError(ErrorCode.ROCKSDB_FILE, f"{path}: {found}; the file is damaged, restore it from a copy")
