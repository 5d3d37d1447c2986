"""Marks of databases, which show whether a RocksDB directory still holds the content of a certain moment.

RocksDB opens a directory whose MANIFEST has lost its end as the older database without an error, and it does not notice
a replaced directory. Therefore a mark holds the database's id, its last sequence number, and the length and hash of its
MANIFEST, which is only ever appended to.
"""

from __future__ import annotations

import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xxhash

from statestore.catalog.stores.live.tier_errors import TierBrokenError

_MANIFEST = re.compile(r"MANIFEST-(\d{1,18})")
_NAME_BYTES = 256
_CHUNK = 1 << 20


@dataclass(frozen=True)
class DatabaseMark:
    """The mark of one database. ``manifest`` is a file name; the hash covers its first ``manifest_bytes``."""

    segment: int
    identity: str
    sequence: int
    manifest: str
    manifest_bytes: int
    manifest_hash: str


class Marker:
    """Makes marks of one open database; the hashed part of the MANIFEST is not read again."""

    def __init__(self, segment: int, directory: Path) -> None:
        self._segment = segment
        self._directory = directory
        self._identity = _identity(directory)
        self._manifest = ""
        self._bytes = 0
        self._hash = xxhash.xxh3_64()

    def mark(self, database: Any) -> DatabaseMark:
        """Return the mark of the database's current content, which has to be flushed."""
        sequence = database.latest_sequence_number()
        name = _current(self._directory)
        if name != self._manifest:
            self._manifest, self._bytes, self._hash = name, 0, xxhash.xxh3_64()
        with (self._directory / name).open("rb") as file:
            file.seek(self._bytes)
            while chunk := file.read(_CHUNK):
                self._hash.update(chunk)
                self._bytes += len(chunk)
        return DatabaseMark(
            self._segment, self._identity, sequence, self._manifest, self._bytes, self._hash.hexdigest()
        )


def check_directory(directory: Path, mark: DatabaseMark) -> None:
    """Raise TierBrokenError if the database, which is not open yet, is not the marked one or lost content of the
    mark."""
    for entry in directory.iterdir():
        if not stat.S_ISREG(entry.lstat().st_mode):  # RocksDB would wait for ever for the end of a pipe
            raise TierBrokenError(f"{entry} is not a regular file")
    if _identity(directory) != mark.identity:
        raise TierBrokenError(f"{directory} is another database")
    name = _current(directory)
    if name != mark.manifest:
        if _number(name) < _number(mark.manifest):
            raise TierBrokenError(f"{directory} has {name}, expected {mark.manifest} or a later one")
        return  # opened by a process that died before it could make a mark
    left, hash_now = mark.manifest_bytes, xxhash.xxh3_64()
    with (directory / name).open("rb") as file:
        while left and (chunk := file.read(min(left, _CHUNK))):
            hash_now.update(chunk)
            left -= len(chunk)
    if left or hash_now.hexdigest() != mark.manifest_hash:
        raise TierBrokenError(f"{directory / name} was cut or changed")


def check_sequence(directory: Path, database: Any, mark: DatabaseMark) -> None:
    """Raise TierBrokenError if an open database is older than the mark."""
    sequence = database.latest_sequence_number()
    if sequence < mark.sequence:
        raise TierBrokenError(f"{directory} ends at sequence number {sequence}, expected {mark.sequence} or more")


def _current(directory: Path) -> str:
    """Return the name of the MANIFEST in use."""
    name = _start_of(directory / "CURRENT").strip()
    if not _MANIFEST.fullmatch(name):
        raise TierBrokenError(f"{directory}/CURRENT names {name!r}, expected a MANIFEST")
    return name


def _number(manifest: str) -> int:
    match = _MANIFEST.fullmatch(manifest)
    return int(match[1]) if match else -1


def _identity(directory: Path) -> str:
    return _start_of(directory / "IDENTITY").strip()


def _start_of(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(_NAME_BYTES).decode("ascii", "replace")
