"""What readers of RocksDB directories say of damaged files, and of those that they leave alone."""

from __future__ import annotations

from statestore.formats.errors import CorruptError


class Unreadable(Exception):
    """A directory in a form that the scanner of table files does not read, but RocksDB itself may; says which."""


def corrupt(path: str, found: str) -> CorruptError:
    """A file of RocksDB that is damaged."""
    return CorruptError("ROCKSDB_FILE", f"{path}: {found}; the file is damaged, restore it from a copy")
