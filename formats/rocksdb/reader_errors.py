"""Errors of readers of RocksDB directories: for damaged files, and for files that the scanner does not read."""

from __future__ import annotations

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
