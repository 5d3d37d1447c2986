"""The MANIFEST of a RocksDB directory: which table files hold each column family, and on which level.

``CURRENT`` names the file. It is a log of version edits in pages of 32 KiB: a record is checksum (u32), length (u16),
type (1 whole, 2 first, 3 middle, 4 last; 5 to 8 the same with the log's number before), payload. An edit is a list of
tagged fields. Edits of an atomic group count only if the whole group is there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from statestore.formats.bytes.crc32c import crc32c
from statestore.formats.places.regular_files import MAX_METADATA_BYTES, read_regular
from statestore.formats.rocksdb.fields import Fields, Malformed, masked
from statestore.formats.rocksdb.rocksdb_errors import Unreadable, corrupt

BYTEWISE = b"leveldb.BytewiseComparator"
_NAME = re.compile(rb"MANIFEST-\d{1,20}\n?")
_LOG = re.compile(r"\d{1,20}\.log")
PAGE, HEADER, _NUMBERED_HEADER = 32768, 7, 11
WHOLE, FIRST, MIDDLE, LAST = 1, 2, 3, 4

# Tags of the fields of an edit (RocksDB's VersionEdit).
_COMPARATOR, _LOG_NUMBER, _NEXT_FILE, _LAST_SEQUENCE, _COMPACT_CURSOR, DELETED_FILE, _NEW_FILE = 1, 2, 3, 4, 5, 6, 7
_PREVIOUS_LOG, _MIN_LOG_TO_KEEP = 9, 10
_NEW_FILE_2, _NEW_FILE_3, _NEW_FILE_4 = 100, 102, 103
FAMILY, _ADD_FAMILY, _DROP_FAMILY, _MAX_FAMILY, _ATOMIC_GROUP = 200, 201, 202, 203, 300
_ADD_BLOBS, _BLOB_GARBAGE, _END_OF_BLOBS = 400, 401, 0
_MAY_SKIP = 1 << 13
_MUST_BE = {_LOG_NUMBER: "log number", _NEXT_FILE: "next file number", _LAST_SEQUENCE: "last sequence number"}
_FILE_FIELDS_END, _FILE_MUST_KNOW, _FILE_OLDEST_BLOBS = 1, 1 << 6, 4


class _CutOff(Unreadable):
    """The end of the file is inside of a record, or of a group of edits."""


@dataclass(frozen=True)
class TableEntry:
    """A live table file. Its least key is the user key ``smallest`` in the version (sequence and type) ``newest``, its
    greatest one ``greatest`` in the version ``oldest``.

    ``has_blobs``: values of its rows are in blob files.
    """

    number: int
    level: int
    size: int
    smallest: bytes
    newest: int
    greatest: bytes
    oldest: int
    has_blobs: bool = False

    @property
    def name(self) -> str:
        return f"{self.number:06d}.sst"


@dataclass(frozen=True)
class FamilyFiles:
    """A column family and its table files, by level and then by least key; those of level 0 from new to old."""

    name: str
    files: tuple[TableEntry, ...]
    number: int = 0


@dataclass
class _Family:
    name: str
    files: dict[int, TableEntry] = field(default_factory=dict)
    comparator: bytes = BYTEWISE
    log_number: int = 0


@dataclass
class _Replay:
    families: dict[int, _Family]
    min_log: int = 0
    next_file: int = 0
    seen: set[int] = field(default_factory=set)
    """Tags of the fields that were read."""
    broken: _CutOff | None = None


def read_families(directory: Path) -> dict[str, FamilyFiles]:
    """The column families of a directory by name.

    Raises CorruptError ROCKSDB_FILE, and `Unreadable` where the state is not all in table files that the scanner reads:
    with blob files, a write-ahead log with records, or another order of keys.
    """
    path, replay = _replayed(directory)
    with os.scandir(directory) as entries:
        logs = {entry.name: entry.stat().st_size for entry in entries if _LOG.fullmatch(entry.name)}
    return _families(replay, str(path), str(directory), logs)


def families_of(files: Mapping[str, bytes], where: str) -> dict[str, FamilyFiles]:
    """The column families of a directory whose files other than tables are given by name. Raises as `read_families`;
    ``where`` names the directory in errors.
    """
    name = _named(files.get("CURRENT", b""), where)
    if name not in files:
        raise corrupt(where, f"found no {name}, which CURRENT names")
    logs = {each: len(content) for each, content in files.items() if _LOG.fullmatch(each)}
    return _families(_replay_of(files[name], f"{where}, {name}"), f"{where}, {name}", where, logs)


def _families(replay: _Replay, path: str, where: str, logs: Mapping[str, int]) -> dict[str, FamilyFiles]:
    if replay.broken is not None:
        raise replay.broken
    missing = [name for tag, name in _MUST_BE.items() if tag not in replay.seen]
    if missing:
        raise corrupt(path, f"found no {' and no '.join(missing)} in it")
    _check_logs(where, logs, replay)
    return {each.name: _checked(number, each, where) for number, each in replay.families.items()}


@dataclass(frozen=True)
class FileChanges:
    """An edit of the table files of a column family, by its number; ``other``: a family comes or goes."""

    family: int
    added: tuple[TableEntry, ...]
    removed: tuple[int, ...]
    other: bool


def changes_after(earlier: bytes, later: bytes, path: str) -> Iterator[FileChanges]:
    """Yield the edits that a MANIFEST has got after it was ``earlier``, with which it begins. Raises as
    `read_families`."""
    for payload in islice(_records(later, path), sum(1 for _ in _records(earlier, path)), None):
        edit = Fields(payload)
        fields = []
        try:
            while edit.left:
                tag = edit.varint()
                fields.append((tag, _field(tag, edit)))
        except Malformed as error:
            raise corrupt(path, f"found a damaged version edit: {error}") from error
        yield FileChanges(
            next((int(value) for tag, value in fields if tag == FAMILY), 0),
            tuple(value for _, value in fields if isinstance(value, TableEntry)),
            tuple(value for tag, value in fields if tag == DELETED_FILE),
            any(tag in (_ADD_FAMILY, _DROP_FAMILY) for tag, _ in fields),
        )


def next_file_number(directory: Path) -> int:
    """Return the number from which on RocksDB numbers the files that it makes after the last whole edit.

    A table file of that number or a greater one is in no version of the directory: its rows are written, and the edit
    that names it is not there yet, or was cut off. Raises CorruptError ROCKSDB_FILE, and `Unreadable` for an edit whose
    fields are not known.
    """
    return _replayed(directory)[1].next_file


@dataclass(frozen=True)
class UnlistedTables:
    """The table files of a directory that its MANIFEST, the file ``name``, does not list.

    ``newer`` are numbered as those that are made after its last edit; ``others`` are left over from a compaction, or
    were listed by an edit that is lost. ``is_cut``: the MANIFEST ends within a record or a group of edits.
    """

    name: str
    newer: tuple[str, ...]
    others: tuple[str, ...]
    is_cut: bool


def unlisted_tables(directory: Path, tables: Iterable[str]) -> UnlistedTables:
    """Compare the names of table files (``000012.sst``) with a MANIFEST. Raises as `next_file_number`."""
    path, replay = _replayed(directory)
    listed = {number for family in replay.families.values() for number in family.files}
    spare = sorted((int(name.partition(".")[0]), name) for name in tables)
    spare = [each for each in spare if each[0] not in listed]
    newer = tuple(name for number, name in spare if number >= replay.next_file)
    others = tuple(name for number, name in spare if number < replay.next_file)
    return UnlistedTables(path.name, newer, others, replay.broken is not None)


def manifest_of(directory: Path) -> Path:
    """Return the MANIFEST that CURRENT names. Raises CorruptError ROCKSDB_FILE."""
    current = directory / "CURRENT"
    try:
        name = read_regular(current, MAX_METADATA_BYTES)[:64]
    except OSError as error:
        raise corrupt(str(directory), f"cannot be opened as RocksDB ({error})") from error
    return directory / _named(name, str(current))


def _named(current: bytes, path: str) -> str:
    """The name that the content of CURRENT is."""
    if not _NAME.fullmatch(current):
        raise corrupt(path, f"found {current!r}, expected the name of a MANIFEST file")
    return current.decode().strip()


def _replayed(directory: Path) -> tuple[Path, _Replay]:
    """Return the MANIFEST that CURRENT names, and what its edits say."""
    path = manifest_of(directory)
    try:
        data = read_regular(path, MAX_METADATA_BYTES)
    except OSError as error:
        raise corrupt(str(directory), f"cannot be opened as RocksDB ({error})") from error
    return path, _replay_of(data, str(path))


def _replay_of(data: bytes, path: str) -> _Replay:
    """Return what the edits of a MANIFEST say."""
    replay = _Replay({0: _Family("default")})
    groups = _groups(_records(data, path), path)
    while True:
        try:
            group = next(groups)
        except StopIteration:
            return replay
        except _CutOff as error:
            replay.broken = error
            return replay
        for edit in group:
            try:
                _apply(edit, replay)
            except Malformed as error:
                raise corrupt(path, f"found a damaged version edit: {error}") from error


def _checked(number: int, family: _Family, where: str) -> FamilyFiles:
    if family.comparator != BYTEWISE:
        raise Unreadable(f"keys of {where} are ordered by {family.comparator!r}")
    for file in family.files.values():
        if file.has_blobs:
            raise Unreadable(f"table file {file.number} refers to blob files")
    return FamilyFiles(family.name, tuple(sorted(family.files.values(), key=_read_order)), number)


def _read_order(file: TableEntry) -> tuple[int, int, bytes, int]:
    """The sort key of a file.

    Two files of a level may begin with one user key, of which the newer versions come first.
    """
    return (file.level, -file.number, b"", 0) if file.level == 0 else (file.level, 0, file.smallest, -file.newest)


def _check_logs(where: str, logs: Mapping[str, int], replay: _Replay) -> None:
    """Raise `Unreadable` for a write-ahead log, of which ``logs`` has the sizes by name, that may be needed."""
    needed = max(replay.min_log, min((f.log_number for f in replay.families.values()), default=0))
    for name, size in logs.items():
        if int(name.removesuffix(".log")) >= needed and size:
            raise Unreadable(f"{where}/{name} may hold records that are in no table file yet")


def _records(data: bytes, path: str) -> Iterator[bytes]:
    """Yield whole records. RocksDB decides about a record that breaks off at the end."""
    at, parts = 0, bytearray()
    within = False
    while at + HEADER <= len(data):
        left = PAGE - at % PAGE
        if left < HEADER:
            at += left
            continue
        size, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        if kind == 0 and size == 0 and not any(data[at:]):  # space that was allocated in advance
            at = len(data)
            break
        header = HEADER if kind <= LAST else _NUMBERED_HEADER
        if not 1 <= kind <= 2 * LAST or header + size > left:
            raise corrupt(path, f"byte {at}: found a record of type {kind} and {size} bytes")
        if at + header + size > len(data):
            break
        crc = masked(crc32c(data[at + 6 : at + header + size]))
        if crc != int.from_bytes(data[at : at + 4], "little"):
            raise corrupt(path, f"byte {at}: the checksum of a record of {size} bytes does not match")
        kind = (kind - 1) % LAST + 1
        if (kind in (WHOLE, FIRST)) == within:
            raise corrupt(path, f"byte {at}: found part {kind} of a record in the wrong place")
        parts += data[at + header : at + header + size]
        at += header + size
        within = kind in (FIRST, MIDDLE)
        if not within:
            yield bytes(parts)
            parts.clear()
    if within or at < len(data):
        raise _CutOff(f"{path} ends within a record")


def _groups(records: Iterator[bytes], path: str) -> Iterator[list[Fields]]:
    """Yield groups of edits that count together, all or none."""
    group: list[Fields] = []
    for record in records:
        group.append(Fields(record))
        try:
            remaining = _remaining(Fields(record))
        except Malformed as error:
            raise corrupt(path, f"found a damaged version edit: {error}") from error
        if not remaining:
            yield group
            group = []
    if group:
        raise _CutOff(f"{path} ends within a group of version edits")


def _remaining(edit: Fields) -> int:
    """Number of edits of the same atomic group that follow an edit. The field may be anywhere in the edit."""
    remaining = 0
    while edit.left:
        tag = edit.varint()
        if tag == _ATOMIC_GROUP:
            remaining = edit.varint()
        else:
            _field(tag, edit)
    return remaining


def _apply(edit: Fields, replay: _Replay) -> None:
    fields = []
    while edit.left:
        tag = edit.varint()
        fields.append((tag, _field(tag, edit)))
    replay.seen.update(tag for tag, _ in fields)
    number = next((int(value) for tag, value in fields if tag == FAMILY), 0)
    for tag, value in fields:
        if tag == _NEXT_FILE:
            replay.next_file = max(replay.next_file, int(value))
        elif tag == _MIN_LOG_TO_KEEP:
            replay.min_log = max(replay.min_log, int(value))
        elif tag == _ADD_FAMILY:
            replay.families[number] = _Family(value.decode("utf-8", "replace"))
    if any(tag == _DROP_FAMILY for tag, _ in fields):
        replay.families.pop(number, None)
        return
    family = replay.families.get(number)
    if family is None:
        raise Malformed(f"an edit of the unknown column family {number}")
    for tag, value in fields:
        if tag == _COMPARATOR:
            family.comparator = value
        elif tag == _LOG_NUMBER:
            family.log_number = int(value)
        elif tag == DELETED_FILE:
            family.files.pop(value, None)
    for _, value in fields:
        if isinstance(value, TableEntry):
            family.files[value.number] = value


def _field(tag: int, edit: Fields) -> Any:
    """Read the value of a field of any type; fields without a use here are skipped."""
    if tag in (_LOG_NUMBER, _NEXT_FILE, _LAST_SEQUENCE, _PREVIOUS_LOG, _MIN_LOG_TO_KEEP, FAMILY, _MAX_FAMILY):
        return edit.varint()
    if tag == _ATOMIC_GROUP:
        return edit.varint()
    if tag in (_COMPARATOR, _ADD_FAMILY):
        return edit.string()
    if tag == _DROP_FAMILY:
        return None
    if tag == _COMPACT_CURSOR:
        edit.varint()
        return edit.string()
    if tag == DELETED_FILE:
        edit.varint()  # skip the level: a number names a file on one level only
        return edit.varint()
    if tag in (_NEW_FILE, _NEW_FILE_2, _NEW_FILE_3, _NEW_FILE_4):
        return _new_file(tag, edit)
    if tag in (_ADD_BLOBS, _BLOB_GARBAGE):
        return _blob_file(tag, edit)
    if tag & _MAY_SKIP:
        return edit.string()
    raise Unreadable(f"the MANIFEST has a field {tag} that is not known")


def _new_file(tag: int, edit: Fields) -> TableEntry:
    level, number = edit.varint(), edit.varint()
    if tag == _NEW_FILE_3 and edit.varint():
        raise Unreadable(f"table file {number} lies in another folder")
    size, smallest, greatest = edit.varint(), edit.string(), edit.string()
    if tag != _NEW_FILE:
        edit.varint()
        edit.varint()
    has_blobs = tag == _NEW_FILE_4 and _file_fields(edit, number)
    if len(smallest) < 8 or len(greatest) < 8:
        raise Malformed(f"table file {number} with a key of {min(len(smallest), len(greatest))} bytes")
    if level > 64:
        raise Malformed(f"table file {number} on level {level}")
    newest, oldest = (int.from_bytes(key[-8:], "little") for key in (smallest, greatest))
    return TableEntry(number, level, size, smallest[:-8], newest, greatest[:-8], oldest, has_blobs)


def _file_fields(edit: Fields, number: int) -> bool:
    """Read the fields of a table file that have tags; return whether it refers to blob files."""
    has_blobs = False
    while (tag := edit.varint()) != _FILE_FIELDS_END:
        value = edit.string()
        if tag == _FILE_OLDEST_BLOBS:
            has_blobs = True
        elif tag == 65:
            if value != b"\0":
                raise Unreadable(f"table file {number} lies in another folder")
        elif tag & _FILE_MUST_KNOW:
            raise Unreadable(f"table file {number} has a field {tag} that is not known")
    return has_blobs


def _blob_file(tag: int, edit: Fields) -> None:
    """Read a blob file that is added (number, blobs, bytes, checksum), or what of one is not used any more."""
    for _ in range(3):
        edit.varint()
    if tag == _ADD_BLOBS:
        edit.string()  # the name of the checksum
        edit.string()
    while (custom := edit.varint()) != _END_OF_BLOBS:
        edit.string()
        if custom & _FILE_MUST_KNOW:
            raise Unreadable(f"a blob file has a field {custom} that is not known")


# The frames of a MANIFEST that must be whole, checked without its checksums and without the compiled loops.
#
# RocksDB takes a record that breaks off, and a record of type 0 without bytes, for the end of what was written before
# a crash: it then opens an older state of the database, and says nothing. So a damaged length loses rows. A
# checkpoint's MANIFEST has its exact size, and nothing in it breaks off. RocksDB itself checks the checksums of the
# records.


def broken_frame(data: bytes) -> str | None:
    """The first fault in the frames of a whole MANIFEST, None if there is none. Source: RocksDB's ``log::Reader``."""
    at, within = 0, False
    while at < len(data):
        left = min(PAGE - at % PAGE, len(data) - at)
        if left < HEADER and left == PAGE - at % PAGE:  # too little for a record: the rest of a page
            if any(data[at : at + left]):
                return f"byte {at}: found bytes behind the last record of a page"
            at += left
            continue
        size, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6] if left >= HEADER else 0
        header = HEADER if kind <= LAST else _NUMBERED_HEADER
        if not 1 <= kind <= 2 * LAST or header + size > left:
            return f"byte {at}: found a record of type {kind} and {size} bytes, expected a whole one"
        kind = (kind - 1) % LAST + 1
        if (kind in (WHOLE, FIRST)) == within:
            return f"byte {at}: found part {kind} of a record in the wrong place"
        at += header + size
        within = kind in (FIRST, MIDDLE)
    return "the last record is not whole" if within or not data else None
