"""Edits that are added to the MANIFEST of a private copy, so that a look-up opens no table file that it does not need.

RocksDB opens every table file of a family and reads its index, also of files whose keys are all outside of the look-up.
A version without these files has the same rows in the ranges that are looked up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from statestore.formats.bytes.crc32c import crc32c
from statestore.formats.places.disk_errors import disk_errors
from statestore.formats.rocksdb.fields import masked
from statestore.formats.rocksdb.key_ranges import KeyRange
from statestore.formats.rocksdb.manifest import (
    DELETED_FILE,
    FAMILY,
    FIRST,
    HEADER,
    LAST,
    MIDDLE,
    PAGE,
    WHOLE,
    TableEntry,
    manifest_of,
    read_families,
)
from statestore.formats.rocksdb.rows import DEFAULT_FAMILY


def keep_tables(directory: Path, family: str, ranges: Sequence[KeyRange]) -> set[int]:
    """Remove from the newest version the table files that hold no key of the ranges; return the numbers of the rest.

    Those of family ``default``, which RocksDB always opens, are removed, too, and those of families that nobody opens
    stay as they are. Raises as `read_families`, and StorageError DISK_FAILED.
    """
    kept: set[int] = set()
    records: list[bytes] = []
    for name, found in read_families(directory).items():
        if name not in (DEFAULT_FAMILY, family):
            continue
        needed = [each for each in found.files if name == family and _meets(each, ranges)]
        kept.update(each.number for each in needed)
        removed = [each for each in found.files if each not in needed]
        if removed:
            records.append(_removal(found.number, removed))
    path = manifest_of(directory)
    with disk_errors("write", path), path.open("ab") as manifest:
        for record in records:
            manifest.write(b"".join(_framed(record, manifest.tell())))
    return kept


def _meets(table: TableEntry, ranges: Sequence[KeyRange]) -> bool:
    return any(
        (each.first is None or table.greatest >= each.first) and (each.stop is None or table.smallest < each.stop)
        for each in ranges
    )


def _removal(family: int, tables: Iterable[TableEntry]) -> bytes:
    edit = _varint(FAMILY) + _varint(family)
    return edit + b"".join(_varint(DELETED_FILE) + _varint(each.level) + _varint(each.number) for each in tables)


def _varint(number: int) -> bytes:
    found = bytearray()
    while number >= 128:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def _framed(record: bytes, at: int) -> Iterator[bytes]:
    """Yield the frames of a record that begins at a byte of the file: none goes beyond the end of a page."""
    rest, is_first = record, True
    while rest or is_first:
        left = PAGE - at % PAGE
        if left < HEADER:
            yield bytes(left)
            at += left
            continue
        part, rest = rest[: left - HEADER], rest[left - HEADER :]
        kind = (FIRST if rest else WHOLE) if is_first else (MIDDLE if rest else LAST)
        payload = bytes([kind]) + part
        yield masked(crc32c(payload)).to_bytes(4, "little") + len(part).to_bytes(2, "little") + payload
        at, is_first = at + HEADER + len(part), False
