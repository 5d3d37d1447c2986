"""The log of a keyed store: the committed and the discarded snapshots, which determine the needed files.

The log has one JSON file per version, created once (``catalog.log.entries`` has the names); version 0 is the empty
store. A file is needed while a snapshot that was not discarded names it, which is computed from the entries. At
intervals the part of the log that is still needed is folded into one file, so that opening a store does not read
discarded snapshots. A process keeps the logs that it has read (`shared_log`): each read adds only the entries that
were committed since.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
import uuid
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import xxhash

from statestore.catalog.commits.publish_commit import writer_name
from statestore.catalog.keyed.rows.state_spec import widest
from statestore.catalog.keyed.snapshots.snapshot_part import SnapshotPart, check_stored, part_from_json
from statestore.catalog.log.entries import entry_name, published, split_commit_id
from statestore.catalog.log.log_checkpoint import KEPT, LOG_CHECKPOINT_INTERVAL
from statestore.catalog.log.log_checks import INT64, VERSION, check_choice, check_int, check_text
from statestore.catalog.log.log_names import ENTRY, STORE_FILE
from statestore.catalog.log.storage import Guard, LocalStorage, Storage, StorageExistsError
from statestore.catalog.log.store_spec import StoreSpec, identity_guard, replaced, stored_identity
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import (
    ConflictError,
    CorruptError,
    InvalidInputError,
    NotFoundError,
    StateStoreError,
    UnsupportedError,
)
from statestore.formats.places.object_cache import in_parallel
from statestore.formats.segments.segment_meta import FileRef, file_ref_from_json, to_json

Transaction = tuple[str, int]
FOLDER = "log/_checkpoint/"
FORMAT_VERSION = 1
_SNAPSHOT, _DISCARD = "snapshot", "discard"
_LOG_CHECKPOINT = re.compile(re.escape(FOLDER) + r"([0-9]{20})\.json")
KEPT_LOGS = 64  # in the memory of this process
_known: OrderedDict[tuple[Storage, str], SnapshotLog] = OrderedDict()


@dataclass(frozen=True)
class SnapshotEntry:
    """The record of one version; ``timestamp`` is epoch microseconds.

    A discard names the version that it removes. ``outputs`` are files that a snapshot's batch made beside its state.
    """

    version: int
    timestamp: int
    operation: str
    writer: str
    transaction: Transaction | None
    parts: tuple[SnapshotPart, ...] = ()
    discarded: int | None = None
    outputs: tuple[FileRef, ...] = ()


@dataclass(frozen=True)
class SnapshotLog:
    """All entries by version, from 1 on; snapshots that were discarded long ago come without their parts."""

    entries: tuple[SnapshotEntry, ...]

    @property
    def newest(self) -> int:
        return len(self.entries)

    def kept_snapshots(self) -> dict[int, SnapshotEntry]:
        """Return the snapshots that can be restored, by version, oldest first."""
        gone = {entry.discarded for entry in self.entries if entry.operation == _DISCARD}
        return {e.version: e for e in self.entries if e.operation == _SNAPSHOT and e.version not in gone}

    def files(self) -> dict[str, FileRef]:
        """Return all needed files: those of kept snapshots with their outputs, and the outputs of each
        application's last batch.

        The outputs of a last batch are read again after a crash.
        """
        parts = (part for entry in self.kept_snapshots().values() for part in entry.parts)
        files = {name: file for part in parts for name, file in part.files().items()}
        for entry in self.with_outputs().values():
            files |= {file.name: file for file in entry.outputs}
        return files

    def forsaken(self) -> set[str]:
        """Return the files that were needed and no longer are, as far as the log has them; they are removed or will
        be."""
        named = {name for entry in self.entries for part in entry.parts for name in part.files()}
        return named - self.files().keys()

    def transaction(self, asked: Transaction) -> int | None:
        """Return the version that committed a transaction, even if it was discarded since."""
        return next((entry.version for entry in reversed(self.entries) if entry.transaction == asked), None)

    def outputs(self, version: int) -> tuple[FileRef, ...]:
        """Return the outputs of a version that is kept or is the last of its application.

        Raises NotFoundError VERSION_NOT_FOUND.
        """
        entry = self.with_outputs().get(version)
        if entry is None:
            raise NotFoundError(
                ErrorCode.VERSION_NOT_FOUND,
                f"version {version!r} is neither a kept snapshot nor the last batch of an "
                "application: only the outputs of these are kept",
            )
        return entry.outputs

    def snapshot(self, version: int | None) -> SnapshotEntry | None:
        """Return a kept snapshot, the newest by default; None if there is none yet, and for version 0.

        Raises NotFoundError VERSION_NOT_FOUND, which lists the kept versions.
        """
        kept = self.kept_snapshots()
        if version == 0 or (version is None and not kept):
            return None
        if version is None:
            return kept[max(kept)]
        if version not in kept:
            listed = ", ".join(map(str, kept)) or "none"
            raise NotFoundError(ErrorCode.VERSION_NOT_FOUND, f"no snapshot {version!r} is kept; kept are {listed}")
        return kept[version]

    def last_batches(self) -> list[SnapshotEntry]:
        """Return the newest transaction of each application."""
        last = {entry.transaction[0]: entry for entry in self.entries if entry.transaction is not None}
        return list(last.values())

    def with_outputs(self) -> dict[int, SnapshotEntry]:
        """Return the versions whose outputs are kept."""
        return self.kept_snapshots() | {entry.version: entry for entry in self.last_batches()}


def read_log(storage: Storage, base: SnapshotLog = SnapshotLog(())) -> SnapshotLog:
    """Return the current log, read on from ``base`` or from the newest checkpoint.

    Raises CorruptError LOG_CORRUPT, UnsupportedError LOG_FORMAT.
    """
    log = base if base.entries else _from_log_checkpoint(storage)
    if not isinstance(storage, LocalStorage):
        return SnapshotLog((*log.entries, *_listed_entries(storage, log.newest, anew=not base.entries)))
    entries = list(log.entries)
    while storage.exists(entry_name(len(entries) + 1)):
        entries.append(read_snapshot_entry(storage, len(entries) + 1))
    if not base.entries:
        _check_no_gap(storage, len(entries))
    return SnapshotLog(tuple(entries))


def _listed_entries(storage: Storage, newest: int, anew: bool) -> list[SnapshotEntry]:
    """Return the entries behind ``newest`` of a store in an object store: one look, or a listing and one round of
    reads.
    """
    if not anew and not storage.exists(entry_name(newest + 1)):
        return []
    listed = [item.name for item in storage.list("log/", after=entry_name(newest)) if ENTRY.fullmatch(item.name)]
    last = newest
    while last - newest < len(listed) and listed[last - newest] == entry_name(last + 1):
        last += 1
    if last - newest < len(listed):
        raise _gap(last + 1, listed[last - newest])
    names = [entry_name(version) for version in range(newest + 1, last + 1)]
    found = []
    for version, (name, data) in enumerate(zip(names, storage.read_many(names), strict=True), newest + 1):
        if data is None:
            raise NotFoundError(ErrorCode.FILE_NOT_FOUND, f"{name} was removed while the log was read; read it again")
        found += _decoded(name, data, [version])
    return found


def _gap(missing: int, later: str) -> CorruptError:
    return CorruptError(
        ErrorCode.LOG_CORRUPT,
        f"{entry_name(missing)} is missing, but there is {later}; restore the file from a copy",
    )


def _check_no_gap(storage: Storage, newest: int) -> None:
    """Raise CorruptError LOG_CORRUPT if the entry after ``newest`` is missing while later ones exist.

    Otherwise an older version would be read as the newest, and commits would follow it.
    """
    later = [item.name for item in storage.list("log/", after=entry_name(newest)) if ENTRY.fullmatch(item.name)]
    if later and not storage.exists(entry_name(newest + 1)):  # it may have been committed meanwhile
        raise _gap(newest + 1, later[0])


def read_snapshot_entry(storage: Storage, version: int) -> SnapshotEntry:
    """Return one version from its own file. Raises CorruptError LOG_CORRUPT, NotFoundError FILE_NOT_FOUND."""
    name = entry_name(version)
    (entry,) = _decoded(name, storage.read(name), [version])
    return entry


def log_checkpoints(storage: Storage) -> list[str]:
    """Return the names of the folded logs, newest first."""
    return sorted((item.name for item in storage.list(FOLDER) if _LOG_CHECKPOINT.fullmatch(item.name)), reverse=True)


def read_log_checkpoint(name: str, data: bytes) -> SnapshotLog:
    """Return the log in the bytes of the checkpoint ``name``. Raises CorruptError LOG_CORRUPT."""
    match = _LOG_CHECKPOINT.fullmatch(name)
    assert match is not None
    return SnapshotLog(tuple(_decoded(name, data, range(1, int(match[1]) + 1))))


def _from_log_checkpoint(storage: Storage) -> SnapshotLog:
    for name in log_checkpoints(storage):
        try:
            return read_log_checkpoint(name, storage.read(name))
        except (CorruptError, NotFoundError):
            continue  # the entries have the same content
    return SnapshotLog(())


def publish(storage: Storage, base: SnapshotLog, entry: SnapshotEntry, store_id: str) -> SnapshotLog | None:
    """Create the version behind the ``base`` ones; return the log with it, or None if another writer took the version.

    ``store_id``: "" for a store that has no description yet, so that nobody else knows of it.
    Raises NotFoundError STORE_REPLACED if the store with this identity no longer exists, StorageError if the version
    was not made, CommitUnknownError COMMIT_UNKNOWN if that is unknown.
    """
    guard, attempt = identity_guard(store_id) if store_id else None, uuid.uuid4().hex
    data = _encoded([entry], attempt)
    if not published(storage, entry_name(entry.version), data, guard, f"{entry.version}-{attempt}"):
        return None
    log = SnapshotLog((*base.entries, entry))
    if entry.version % LOG_CHECKPOINT_INTERVAL == 0:
        log = folded(log)
        with contextlib.suppress(StateStoreError, OSError):  # the version exists; the entries have the same content
            _fold(storage, log, guard)
    return log


def was_committed(storage: Storage, commit_id: str) -> bool:
    """Return whether the attempt with this id is in the log (`statestore.catalog.log.entries.was_committed`)."""
    version, attempt = split_commit_id(commit_id)
    name = entry_name(version)
    try:
        data = storage.read(name)
    except NotFoundError:
        return False
    _decoded(name, data, [version])
    if json.loads(data)["log"]["id"] != attempt:
        return False
    storage.settle(name)
    return True


def folded(log: SnapshotLog) -> SnapshotLog:
    """Return the log without parts of discarded snapshots and outputs of older batches, which are no longer needed."""
    kept_snapshots, with_outputs = log.kept_snapshots(), log.with_outputs()
    entries = (
        replace(
            entry,
            parts=entry.parts if entry.version in kept_snapshots else (),
            outputs=entry.outputs if entry.version in with_outputs else (),
        )
        for entry in log.entries
    )
    return SnapshotLog(tuple(entries))


def _fold(storage: Storage, log: SnapshotLog, guard: Guard | None) -> None:
    """Write a checkpoint of a folded log, and remove all but the newest ones."""
    try:
        storage.create(f"{FOLDER}{log.newest:020d}.json", _encoded(log.entries, uuid.uuid4().hex), guard)
    except StorageExistsError:
        return
    for name in log_checkpoints(storage)[KEPT:]:
        storage.delete(name)


def check_complete(parts: Sequence[SnapshotPart], max_parallelism: int) -> None:
    """Raise InvalidInputError INCOMPLETE_SNAPSHOT unless the parts have every key group once."""
    for part in parts:
        if not isinstance(part, SnapshotPart):
            raise InvalidInputError(
                ErrorCode.INCOMPLETE_SNAPSHOT,
                f"a part is a {type(part).__name__}; expected the results of snapshot(…).result() of each backend",
            )
    at = 0
    for part in sorted(parts, key=lambda part: part.key_groups.start):
        if part.key_groups.start != at:
            break
        at = part.key_groups.stop
    else:
        if at == max_parallelism:
            return
    listed = ", ".join(f"{part.key_groups.start} to {part.key_groups.stop - 1}" for part in parts) or "none"
    raise InvalidInputError(
        ErrorCode.INCOMPLETE_SNAPSHOT,
        f"parts with key groups {listed}; expected each of 0 to {max_parallelism - 1} once: commit all parts",
    )


def _encoded(entries: Sequence[SnapshotEntry], attempt: str) -> bytes:
    document = {"format": FORMAT_VERSION, "id": attempt, "versions": [_to_json(entry) for entry in entries]}
    return json.dumps({"checksum": _checksum(document), "log": document}).encode()


def _to_json(entry: SnapshotEntry) -> dict[str, Any]:
    return {
        "version": entry.version,
        "timestamp": entry.timestamp,
        "operation": entry.operation,
        "writer": entry.writer,
        "transaction": entry.transaction,
        "handles": [part.to_json() for part in entry.parts],
        "discarded": entry.discarded,
        "outputs": [to_json(file) for file in entry.outputs],
    }


def _decoded(name: str, data: bytes, versions: Sequence[int]) -> list[SnapshotEntry]:
    try:
        document = json.loads(data)
        log: Mapping[str, Any] = document["log"]
        if document["checksum"] != _checksum(log):
            raise ValueError(f"checksum {_checksum(log)}, but the file records {document['checksum']}")
        if log["format"] != FORMAT_VERSION:
            raise UnsupportedError(
                ErrorCode.LOG_FORMAT,
                f"{name}: log format {log['format']!r}, but this release reads {FORMAT_VERSION}; use a newer release",
            )
        entries = [_entry(each) for each in log["versions"]]
        if [entry.version for entry in entries] != list(versions):
            raise ValueError("its versions are not those of its name")
        return entries
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise CorruptError(
            ErrorCode.LOG_CORRUPT,
            f"{name}: not a log entry ({type(error).__name__}: {error}). The file was changed or damaged after it was "
            "written; restore it from a copy",
        ) from error


def _entry(fields: Mapping[str, Any]) -> SnapshotEntry:
    check_int(fields["version"], VERSION, "version")
    check_int(fields["timestamp"], INT64, "timestamp")
    check_choice(fields["operation"], (_SNAPSHOT, _DISCARD), "operation")
    check_text(fields["writer"], "writer")
    transaction = fields["transaction"]
    if transaction is not None:
        application, batch = transaction
        check_text(application, "application of the transaction")
        check_int(batch, INT64, "batch of the transaction")
        transaction = application, batch
    if fields["discarded"] is not None:
        check_int(fields["discarded"], VERSION, "discarded version")
    outputs = tuple(file_ref_from_json(file) for file in fields["outputs"])
    for file in outputs:
        check_stored(file)
    return SnapshotEntry(
        fields["version"],
        fields["timestamp"],
        fields["operation"],
        fields["writer"],
        transaction,
        tuple(part_from_json(part) for part in fields["handles"]),
        fields["discarded"],
        outputs,
    )


def _checksum(log: Mapping[str, Any]) -> str:
    canonical = json.dumps(log, sort_keys=True, separators=(",", ":"))
    return xxhash.xxh3_64_hexdigest(canonical.encode())


def commit_time(log: SnapshotLog) -> int:
    """Return the current time in epoch microseconds, but at least the time of the newest version."""
    now = time.time_ns() // 1_000_000 * 1_000
    return max(now, log.entries[-1].timestamp) if log.entries else now


def first_snapshot(storage: Storage, spec: StoreSpec, parts: Sequence[SnapshotPart]) -> int:
    """Commit the first snapshot of a store that nobody knows of, because its description is not written yet.

    Raises InvalidInputError INCOMPLETE_SNAPSHOT or INCOMPATIBLE_STATE.
    """
    check_complete(parts, spec.key_groups)
    widest(state for part in parts for state in part.states)
    log = SnapshotLog(())
    entry = SnapshotEntry(1, commit_time(log), "snapshot", writer_name(), None, tuple(parts))
    if publish(storage, log, entry, "") is None:
        raise ConflictError(ErrorCode.STORE_BUSY, f"{storage}: another writer uses the folder {spec.folder!r}")
    return 1


def shared_log(storage: Storage, store_id: str) -> SnapshotLog:
    """Return the log of the store with this identity in ``storage``.

    Raises CorruptError LOG_CORRUPT, and NotFoundError STORE_REPLACED if that store is no longer there: what was opened
    on it must not continue with another store.
    """
    name = storage, store_id
    log = newer_log(storage, store_id, _known.get(name, SnapshotLog(())))
    _known.pop(name, None)
    _known[name] = log
    while len(_known) > KEPT_LOGS:
        _known.popitem(last=False)
    return log


def newer_log(storage: Storage, store_id: str, base: SnapshotLog) -> SnapshotLog:
    """Return the current log, read from the end of ``base`` on; errors are those of `shared_log`."""
    if not _stays(storage, store_id, base):
        base = SnapshotLog(())  # an older copy of the store has taken its place
    newest = read_log(storage, base)
    if newest.newest > base.newest:
        _check_identity(storage, store_id)  # the entries belong to this store, not to one that replaced it meanwhile
    # Without folding, a long-running process would keep the parts of all snapshots that ever existed.
    crossed = newest.newest // LOG_CHECKPOINT_INTERVAL > base.newest // LOG_CHECKPOINT_INTERVAL
    return folded(newest) if crossed else newest


def _stays(storage: Storage, store_id: str, base: SnapshotLog) -> bool:
    """Return whether the log goes on where ``base`` ends, after a check of the store's identity."""

    def look(number: int) -> bool:
        if number:
            return storage.exists(entry_name(base.newest))
        _check_identity(storage, store_id)
        return True

    asked = range(2 if base.entries else 1)
    if isinstance(storage, LocalStorage):
        return all(look(number) for number in asked)
    return all(in_parallel(look, asked))


def _check_identity(storage: Storage, store_id: str) -> None:
    try:
        identity = stored_identity(storage.read(STORE_FILE))
    except NotFoundError:
        identity = None
    if identity != store_id:
        raise replaced(f"keyed store in {storage}", store_id)
