"""Trimming of the log: old entries move into packs, and entries before the horizon go (docs/log-format.md, "Trimming").

A log entry exists to be found by its version. Readers and writers that last looked a long time ago may ask for entries
that are gone, so the order of all steps matters:

- A checkpoint that covers the entries, and the pack that has their content, exist durably before an entry is removed.
- Entries go from the oldest on. As long as an entry exists, the one after it was not removed.
- No entry goes while a commit is under way that began before this process looked at the log. A commit that begins later
  takes the newest version, which is hundreds of versions away.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from statestore.catalog.commits.changelogs import CHANGELOGS
from statestore.catalog.commits.claims import claims_in, held_claims
from statestore.catalog.log.entries import canonical_text, entry_name
from statestore.catalog.log.entry_packs import (
    PACKED_VERSIONS,
    PACKS,
    encode_pack,
    first_of_pack,
    open_pack,
    pack_name,
)
from statestore.catalog.log.log_checkpoint import read_log_checkpoint
from statestore.catalog.log.log_names import ENTRY, LOG_CHECKPOINT, checkpoint_versions, log_checkpoint_name
from statestore.catalog.log.log_state import LogState
from statestore.catalog.log.storage import POLL, ObjectInfo, Storage, StorageExistsError, local_root
from statestore.catalog.log.store_spec import identity_guard
from statestore.catalog.log.version_chunks import read_chunk
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.changelogs.changelog import made_at
from statestore.formats.errors import CorruptError, NotFoundError, StateStoreError
from statestore.formats.places.file_presence import names_in

KEPT_ENTRIES = 512
PORTION = 16  # entries that are read or removed between two pauses
CLAIM_WAIT = 5.0  # seconds
PACK = re.compile(re.escape(PACKS) + r"([0-9]{20})\.arrow")
_DATA_FILE = re.compile(rb"segments/[0-9A-Za-z_-][0-9A-Za-z._-]*")


def pack_limit(log_state: LogState) -> int:
    """Return the version up to which entries can be in packs."""
    return first_of_pack(max(0, log_state.version - KEPT_ENTRIES))


def trim_log(
    files: SegmentFiles, newest: LogState, cutoff: int, dry_run: bool, pause: Callable[[], None] = lambda: None
) -> list[ObjectInfo]:
    """Pack old entries, remove (or only list) those that are packed, and those of versions that cannot be read since
    the last expiry and were committed before ``cutoff`` (epoch microseconds).

    ``pause`` is called after each `PORTION` of entries. Object stores have no claims, so their logs stay as they are.
    """
    storage, root = files.storage, local_root(files.storage)
    limit = pack_limit(newest)
    if root is None or not newest.store or not limit:
        return []
    log = _Log(storage)
    folded = _newest_folded(storage, limit)
    if folded is None:
        return []
    start = _kept_from(storage, root, folded, log, min(limit, _horizon(folded)), cutoff)
    removable = log.before(start)
    for first in range(start, limit, PACKED_VERSIONS):
        entries = log.entries_in(first)
        if entries and not dry_run and not _is_packed(storage, newest.store, first, entries, pause):
            break  # what remains must have no hole, so later entries stay, too
        removable += [log.entries[version] for version in entries]
    removable += log.checkpoints_before(start)
    if not removable or dry_run:
        return removable
    storage.settle(log_checkpoint_name(folded.version))
    if not _commits_ended(root):
        return []
    files.log.check_identity()
    for number, item in enumerate(removable):
        storage.delete(item.name)
        if number % PORTION == 0:
            pause()
    return removable


def data_files_since(storage: Storage, version: int, newest: int, among: set[str]) -> set[str]:
    """Return those of the data files ``among`` that an entry after ``version`` and up to ``newest`` names.

    A file that an entry adds, removes or closes rows of was there at that version or at the one before. Raises
    CorruptError LOG_CORRUPT or NotFoundError FILE_NOT_FOUND for an entry that cannot be read.
    """
    found: set[str] = set()
    following = version + 1
    while following <= newest:
        name = entry_name(following)
        try:
            texts: Iterable[bytes] = [canonical_text(name, storage.read(name))]
            after = following + 1
        except NotFoundError:
            texts = open_pack(storage, first_of_pack(following)).texts(following - 1)
            after = first_of_pack(following) + PACKED_VERSIONS
        for text in texts:
            found |= among.intersection(match.decode() for match in _DATA_FILE.findall(text))
        following = after
    return found


class _Log:
    """The files of a log by version, as they were listed."""

    def __init__(self, storage: Storage) -> None:
        listed = storage.list("log/")
        self.entries = {int(item.name[4:24]): item for item in listed if ENTRY.fullmatch(item.name)}
        self.packs = {int(match[1]): item for item in listed if (match := PACK.fullmatch(item.name))}
        self.checkpoints = {int(match[1]): item for item in listed if (match := LOG_CHECKPOINT.fullmatch(item.name))}

    def entries_in(self, first: int) -> list[int]:
        return [version for version in range(first, first + PACKED_VERSIONS) if version in self.entries]

    def before(self, start: int) -> list[ObjectInfo]:
        """Return the packs and entries before ``start``, in the order of their versions."""
        found = [(version, item) for kind in (self.packs, self.entries) for version, item in kind.items()]
        return [item for version, item in sorted(found) if version < start]

    def checkpoints_before(self, start: int) -> list[ObjectInfo]:
        return [item for version, item in sorted(self.checkpoints.items()) if version < start]


def _newest_folded(storage: Storage, limit: int) -> LogState | None:
    """Return the log state of the newest checkpoint that can be read; None if it does not cover ``limit``."""
    for version in checkpoint_versions(storage):
        if version < limit:
            return None
        with contextlib.suppress(CorruptError, NotFoundError):
            name = log_checkpoint_name(version)
            return read_log_checkpoint(name, storage.read(name), storage)
    return None


def _horizon(folded: LogState) -> int:
    return 0 if folded.horizon is None else folded.horizon.version


def _kept_from(storage: Storage, root: Path, folded: LogState, log: _Log, limit: int, cutoff: int) -> int:
    """Return the first version whose entry has to stay.

    It has a checkpoint, so that it and all later versions can be loaded. The list of commits before it is in chunks
    that can be read. No changelog is as old, because the log may have to tell how much of it is committed.
    """
    start = first_of_pack(limit)
    start = min(start, first_of_pack(min([*_made(root), start])))
    oldest = min([*log.entries, *log.packs], default=0)
    while start > oldest and not (folded.versions.timestamp_at(start) <= cutoff and _has_checkpoint(storage, start)):
        start -= PACKED_VERSIONS
    if start <= oldest:
        return max(0, start)
    if len(folded.versions.chunks) < start:
        return first_of_pack(oldest)
    for ref in folded.versions.chunks.refs:
        if oldest - PACKED_VERSIONS < ref.first < start:
            try:
                read_chunk(storage, ref)
            except (CorruptError, NotFoundError):
                return first_of_pack(oldest)
    return start


def _made(root: Path) -> Iterable[int]:
    """Yield the newest version at the creation of each changelog; 0 where it is not known."""
    for name in names_in(root / CHANGELOGS):
        try:
            yield max(0, made_at(root / CHANGELOGS / name))
        except (StateStoreError, FileNotFoundError):
            yield 0


def _has_checkpoint(storage: Storage, version: int) -> bool:
    try:
        name = log_checkpoint_name(version)
        read_log_checkpoint(name, storage.read(name), storage)
    except (CorruptError, NotFoundError):
        return False
    return True


def _is_packed(storage: Storage, store: str, first: int, entries: list[int], pause: Callable[[], None]) -> bool:
    """Return whether a pack has the content of these entries, after it was made if that is possible."""
    texts: dict[int, bytes] = {}
    try:
        for version in entries:
            texts[version] = canonical_text(entry_name(version), storage.read(entry_name(version)))
            if version % PORTION == 0:
                pause()
    except (CorruptError, NotFoundError):  # it stays where it is, and reading it reports the damage
        return False
    found = _is_content_of_pack(storage, first, texts)
    if found is None and len(texts) == PACKED_VERSIONS:
        data = encode_pack(store, first, list(texts.values()))
        if data is not None:
            try:
                storage.create(pack_name(first), data, identity_guard(store))
                found = True
            except StorageExistsError:  # another process or thread made it in the meantime; that one counts
                found = _is_content_of_pack(storage, first, texts)
    return bool(found)


def _is_content_of_pack(storage: Storage, first: int, texts: Mapping[int, bytes]) -> bool | None:
    """Return whether the pack has these entries; None if it is missing, or was damaged and can be made again."""
    try:
        packed = dict(open_pack(storage, first).entries())
    except NotFoundError:
        return None
    except CorruptError:
        if len(texts) < PACKED_VERSIONS:
            return False
        storage.delete(pack_name(first))
        return None
    return all(packed[version] == text for version, text in texts.items())


def _commits_ended(root: Path) -> bool:
    """Wait until the commits that are under way have ended; return False if one takes too long."""
    deadline = time.monotonic() + CLAIM_WAIT
    held = held_claims(root, claims_in(root))
    while held:
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL)
        held = held_claims(root, held)
    return True
