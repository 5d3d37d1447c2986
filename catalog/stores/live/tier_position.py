"""The position of a hot tier: a file that reduces a restart to the tail of the changelog.

The tier holds everything up to commit ``version``. Of later rows it holds those of changelogs before ``changelog``, and
those of that changelog up to ``offset``. It may hold further rows; replaying them again changes nothing.

Marks of databases show whether a RocksDB directory still holds the content of that moment. RocksDB opens a directory
whose MANIFEST has lost its end as the older database without an error, and it does not notice a replaced directory.
Therefore a mark holds the database's id, its last sequence number, and the length and hash of its MANIFEST, which is
only ever appended to.

The lengths of changelogs that a position records show whether acknowledged writes were lost.
"""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import xxhash

from statestore.catalog.commits.changelogs import CHANGELOGS, consumed_ends
from statestore.catalog.log.log_state import LogState
from statestore.catalog.log.storage import Storage, own_folder, sync_folder
from statestore.catalog.log.store_spec import StoreSpec
from statestore.catalog.stores.live.tier_errors import TierBrokenError
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, StateStoreError
from statestore.formats.places.disk_errors import disk_errors
from statestore.formats.places.regular_files import read_regular

FILE = "checkpoint.json"
_MOST_BYTES = 1 << 24
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_MANIFEST = re.compile(r"MANIFEST-(\d{1,18})")
_NAME_BYTES = 256
_CHUNK = 1 << 20


@dataclass(frozen=True)
class TierPosition:
    """The position of a hot tier.

    ``stream_time`` is in epoch milliseconds, ``sequence`` is the last number given to a row, ``dropped`` counts the
    records refused since the last commit, and ``segments`` are the existing databases; a database that holds less than
    its mark is not used.

    ``boot`` is the run of the machine in which the position was written: rows that were never forced to the disk are
    lost at its end from the changelog, but perhaps not from the tier. ``held`` are the changelogs that waited for a
    commit: name, length forced to the disk, length written. By it a changelog that is missing or has lost its end is
    noticed. ``time_ordered`` is whether rows are stored by time, as in a `TimeOrderedTier`.
    """

    store_id: str
    version: int
    changelog: str
    offset: int
    stream_time: int
    sequence: int
    dropped: int
    segments: tuple[DatabaseMark, ...]
    boot: str
    held: tuple[tuple[str, int, int], ...] = ()
    time_ordered: bool = False


def this_boot() -> str:
    """Return an id of the machine's current run; empty where the system has none."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""


def write_position(folder: Path, position: TierPosition) -> None:
    """Replace the position file atomically."""
    folder.mkdir(parents=True, exist_ok=True)
    body = json.dumps(asdict(position), sort_keys=True)
    temporary = folder / f"{FILE}.new"
    temporary.write_text(json.dumps({"checksum": xxhash.xxh3_64_hexdigest(body.encode()), "tier": body}))
    temporary.replace(folder / FILE)


def remove_position(folder: Path) -> None:
    """Remove the position, so that the tier is recreated the next time and no changelog is expected.

    The removal is durable before the changelogs are removed.
    """
    path = folder / FILE
    with disk_errors("remove", path):
        try:
            path.unlink()
        except FileNotFoundError:
            return
        sync_folder(folder)


def read_position(folder: Path) -> TierPosition | None:
    """Return the position; None if there is none or it cannot be trusted, after which the tier is recreated."""
    try:
        document = json.loads(read_regular(folder / FILE, _MOST_BYTES))
        if xxhash.xxh3_64_hexdigest(document["tier"].encode()) != document["checksum"]:
            return None
        fields = json.loads(document["tier"])
        held = tuple((str(name), int(synced), int(written)) for name, synced, written in fields.pop("held", ()))
        segments = tuple(DatabaseMark(**mark) for mark in fields["segments"])
        return TierPosition(**{**fields, "segments": segments, "held": held})
    except (OSError, StateStoreError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


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


class _Extent(NamedTuple):
    """The minimum content of a changelog: ``synced`` bytes on the disk, whole frames up to ``end``."""

    name: str
    synced: int
    end: int


def is_of_this_boot(position: TierPosition) -> bool:
    """Return whether the position was written in this run of the machine, so that no write before it can have been
    lost.
    """
    return position.boot == this_boot() != ""


def expected_extents(
    position: TierPosition, storage: Storage, spec: StoreSpec, log_state: LogState
) -> Iterator[_Extent]:
    """Yield the minimum content of the changelogs that the position names and no commit has taken in.

    After a restart of the machine that is the content that had been forced to the disk. A position of another store, or
    of a version that the log does not have, gives nothing.
    """
    if position.store_id != spec.store_id or position.version > log_state.version:
        return
    done = consumed_ends(storage, log_state, [name for name, _, _ in position.held])
    for name, synced, written in position.held:
        end = written if is_of_this_boot(position) else synced
        if end > done.get(name, 0):
            yield _Extent(name, synced, end)


def missing(storage: Storage, extent: _Extent, found: int | None) -> CorruptError:
    """Return the error for a changelog that has whole frames only up to ``found`` (None: it is missing)."""
    root = own_folder(storage) or Path()
    there = "it is missing" if found is None else f"there are {found}"
    return CorruptError(
        ErrorCode.CHANGELOG_CORRUPT,
        f"{root / CHANGELOGS / extent.name}: {extent.end} bytes of acknowledged writes were there when "
        f"{root / 'live' / FILE} was written, {there} now. Restore the file from a copy; or move {root / 'live'} away, "
        "which is a cache, to go on without the writes that are missing",
    )
