"""The commit log: one JSON file per version, created once, never rewritten (docs/log-format.md)."""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Literal, get_args

import xxhash

from statestore.catalog.log.entry_packs import packed_entry
from statestore.catalog.log.file_table import FileTable, closures_from_json, files_from_json, segments_from_json
from statestore.catalog.log.log_checks import (
    COUNT,
    INT64,
    VERSION,
    check_changelog,
    check_choice,
    check_closures,
    check_data_name,
    check_int,
    check_ints,
    check_segment,
    check_text,
)
from statestore.catalog.log.log_names import checkpoint_versions
from statestore.catalog.log.source_versions import SourceVersion, check_source, source_from_json, source_to_json
from statestore.catalog.log.storage import (
    Guard,
    OvertakenError,
    Storage,
    StorageExistsError,
    UnsettledError,
    local_root,
)
from statestore.catalog.log.store_spec import FOLDER, identity_guard
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import (
    CommitUnknownError,
    ConflictError,
    CorruptError,
    InvalidInputError,
    NotFoundError,
    StateStoreError,
    StorageError,
    UnsupportedError,
)
from statestore.formats.places.file_presence import is_there
from statestore.formats.places.regular_files import MAX_METADATA_BYTES
from statestore.formats.segments.segment_meta import (
    ClosureSlice,
    FileRef,
    SegmentMeta,
    closure_slice_from_json,
    segment_meta_from_json,
    to_json,
)

Operation = Literal["create", "write", "overwrite", "compact", "expire", "replace"]
OPERATIONS = get_args(Operation)
REPLACE = "replace"
"""The operation of the last entry of a log whose store was rebuilt in another folder of an object store."""
REPLACED_FORMAT = 4  # of that entry alone, so that no reader goes on from it which does not know it
PAGED_FORMAT = 5  # format 3 with files that have page tables
SOURCED_FORMAT = 6  # format 3 or 5 with the version of a source that the commit captured
FORMAT_VERSION = 3
VERBOSE_FORMAT = 2  # names a file wherever it is used
OLDEST_FORMAT = 1  # without the identity of the store
_COMPACT = (SOURCED_FORMAT, PAGED_FORMAT, REPLACED_FORMAT, FORMAT_VERSION)  # name each file once
PUBLISH_ATTEMPTS = 5
COMMIT_ID = re.compile("([0-9]{1,18})-([0-9a-f]{32})")
_COUNTS = ("rows", "tombstones", "closed", "bytes", "dropped")
# Fields that format 3 leaves out where they have these values.
_ABSENT: dict[str, Any] = {
    "transaction": None, "stream_time": None, "files": [], "added": [], "removed": [], "closures": [], "horizon": None,
    "changelogs": [], "replacement": "", "source": None, **dict.fromkeys(_COUNTS, 0),
}  # fmt: skip
_HEAD, _MIDDLE = b'{"checksum":"', b'","commit":'
_BODY = len(_HEAD) + 16 + len(_MIDDLE)  # where the commit begins


@dataclass(frozen=True)
class Horizon:
    """The earliest state time (epoch microseconds) and the earliest version that can be read after an expiry."""

    time: int
    version: int


@dataclass(frozen=True)
class CommitEntry:
    """The record of a commit. Times are epoch microseconds; ``dropped`` counts late records refused since the last
    commit.

    ``store`` is the identity of the store (`StoreSpec.store_id`; empty in entries of format 1), ``attempt`` is unique
    for each attempt to commit. ``replacement`` is the folder of the store that takes this one's place, only with the
    operation "replace". ``source`` is the version of a source that a commit to a captured store holds.
    """

    version: int
    timestamp: int
    operation: Operation
    writer: str
    transaction: tuple[str, int] | None
    stream_time: int | None
    added: tuple[SegmentMeta, ...]
    removed: tuple[str, ...]
    closures: tuple[ClosureSlice, ...]
    rows: int
    tombstones: int
    closed: int
    bytes: int
    dropped: int
    horizon: Horizon | None
    changelogs: tuple[tuple[str, int], ...]
    store: str = ""
    replacement: str = ""
    source: SourceVersion | None = None
    attempt: str = field(default_factory=lambda: uuid.uuid4().hex, compare=False)

    @property
    def commit_id(self) -> str:
        """The id by which `was_committed` reports the outcome of this attempt."""
        return f"{self.version}-{self.attempt}"


def entry_name(version: int) -> str:
    return f"log/{version:020d}.json"


def newer_entry(storage: Storage, version: int) -> Callable[[], bool]:
    """Return a function that tests for a commit after ``version``; every point read calls it, so it is as direct as
    possible.
    """
    name, root = entry_name(version + 1), local_root(storage)
    return partial(storage.exists, name) if root is None else partial(is_there, os.fsencode(f"{root}/{name}"))


def write_entry(storage: Storage, entry: CommitEntry) -> None:
    """Create the log entry of the commit, while the caller holds a claim (`statestore.catalog.commits.claims`).

    Raises ConflictError VERSION_TAKEN if another commit has the version, NotFoundError STORE_REPLACED if another store
    is at the location, StorageError DISK_FAILED if the commit was not made, CommitUnknownError COMMIT_UNKNOWN if that
    is unknown.

    An object store may repeat a put whose answer was lost and then find its own object, or report "exists" where no
    object is. Therefore the stored object is compared with the sent one, which differs between any two attempts.

    Vacuum removes old entries. A name that does not exist may therefore have existed, so the entry of the version
    before must exist, too. Vacuum removes none while a commit is under way that began before vacuum looked at the log
    (docs/log-format.md, "Trimming").
    """
    name, data = entry_name(entry.version), encode_entry(entry)
    guard = identity_guard(entry.store, entry_name(entry.version - 1)) if entry.version and entry.store else None
    if not published(storage, name, data, guard, entry.commit_id):
        _check_overtaken(storage, entry.version)
        raise ConflictError(
            ErrorCode.VERSION_TAKEN, f"version {entry.version} was committed by another writer; read again and retry"
        )


def _check_overtaken(storage: Storage, version: int) -> None:
    """Raise CorruptError LOG_CORRUPT if an entry is missing that no vacuum removed, because no commit can follow it."""
    before = entry_name(version - 1)
    there = storage.exists(entry_name(version)) or storage.exists(before) or local_root(storage) is None
    if not there and version > max(checkpoint_versions(storage), default=version):
        raise _corrupt(before, "it is missing, but that version was committed")


def published(storage: Storage, name: str, data: bytes, guard: Guard | None, commit_id: str) -> bool:
    """Create the entry ``name`` of a log; return False if another writer has the name. Errors are those of
    `write_entry`.
    """
    for _ in range(PUBLISH_ATTEMPTS):
        try:
            storage.create(name, data, guard)
            return True
        except OvertakenError:
            return False
        except StorageExistsError:
            try:
                return storage.read(name) == data
            except NotFoundError:
                continue
        except StorageError as error:
            if isinstance(error, UnsettledError) or _may_be_there(storage, name, data):
                raise _unknown(commit_id, error) from error
            raise
    return False


def was_committed(storage: Storage, commit_id: str) -> bool:
    """Return whether the attempt with this id (`CommitUnknownError.commit`) is in the log; if it is, it is durable now.

    Raises InvalidInputError INVALID_COMMIT for a value that is not the id of a commit, NotFoundError VERSION_NOT_FOUND
    for a version whose entry was removed since.
    """
    version, attempt = split_commit_id(commit_id)
    try:
        is_ours = read_entry(storage, version).attempt == attempt
    except NotFoundError:
        if version <= max(checkpoint_versions(storage), default=-1):
            raise NotFoundError(
                ErrorCode.VERSION_NOT_FOUND,
                f"the log of version {version} is not kept, so the outcome of commit {commit_id} is not known any more",
            ) from None
        return False
    if is_ours:
        storage.settle(entry_name(version))
    return is_ours


def split_commit_id(commit_id: str) -> tuple[int, str]:
    """Return the version and the attempt in the id of a commit. Raises InvalidInputError INVALID_COMMIT."""
    match = COMMIT_ID.fullmatch(commit_id) if isinstance(commit_id, str) else None
    if match is None:
        raise InvalidInputError(
            ErrorCode.INVALID_COMMIT,
            f"commit is {commit_id!r}; expected the id that a CommitUnknownError has in .commit",
        )
    return int(match[1]), match[2]


def _may_be_there(storage: Storage, name: str, data: bytes) -> bool:
    """Return whether a file exists, or may exist, although its creation failed."""
    try:
        return storage.read(name) == data
    except NotFoundError:
        return False
    except (StateStoreError, OSError):
        return True


def _unknown(commit_id: str, error: StorageError) -> CommitUnknownError:
    known = "was published, and a power failure may take it back"
    if error.code == ErrorCode.REQUEST_FAILED:
        known = "was sent to the object store, which did not answer, so that it may have been published"
    return CommitUnknownError(
        ErrorCode.COMMIT_UNKNOWN,
        f"commit {commit_id} {known} ({error.message}). "
        "Commit again with the same handle, which does not repeat a commit that took place, or call "
        f"store.was_committed({commit_id!r})",
        error.errno,
        error.filename,
        commit_id,
    )


def read_entry(storage: Storage, version: int) -> CommitEntry:
    """Return the entry of a version, which may be in a pack.

    Raises NotFoundError FILE_NOT_FOUND if there is no such version, CorruptError LOG_CORRUPT if it is damaged.
    """
    name = entry_name(version)
    try:
        return decode_entry(name, storage.read(name))
    except NotFoundError:
        packed = None if local_root(storage) is None else packed_entry(storage, version)
        if packed is None:
            raise
    return decode_entry(name, packed)


def encode_entry(entry: CommitEntry) -> bytes:
    """Return the entry as JSON. Raises InvalidInputError INVALID_COMMIT for an entry that could not be read back."""
    try:
        check_entry(entry)
    except ValueError as error:
        raise InvalidInputError(
            ErrorCode.INVALID_COMMIT, f"version {entry.version!r} cannot be recorded: {error}"
        ) from None
    commit = _compact(entry) if entry.store else _oldest(entry)
    data = sealed_json(commit)
    if len(data) > MAX_METADATA_BYTES:
        raise InvalidInputError(
            ErrorCode.INVALID_COMMIT,
            f"version {entry.version} takes {len(data)} bytes of log; expected at most {MAX_METADATA_BYTES}",
        )
    return data


def decode_entry(name: str, data: bytes) -> CommitEntry:
    """Return the entry in the bytes of a log file.

    Raises CorruptError LOG_CORRUPT, which names the file and the damage, and UnsupportedError for a newer format.
    """
    try:
        commit = _verified(name, data)
        if commit["format"] not in (*_COMPACT, VERBOSE_FORMAT, OLDEST_FORMAT):
            raise UnsupportedError(
                ErrorCode.LOG_FORMAT,
                f"{name}: format {commit['format']!r}, but this release reads {SOURCED_FORMAT}; use a newer release",
            )
        entry = _entry(commit)
        check_entry(entry)
    except StateStoreError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise _corrupt(name, f"not a log entry ({type(error).__name__}: {error})") from error
    if entry_name(entry.version) != name:
        raise _corrupt(name, f"it holds version {entry.version}")
    return entry


def check_entry(entry: CommitEntry) -> None:
    """Raise ValueError unless every field has its type and range and every file lies in the store's segments folder."""
    check_int(entry.version, VERSION, "version")
    check_int(entry.timestamp, INT64, "timestamp")
    check_choice(entry.operation, OPERATIONS, "operation")
    check_text(entry.writer, "writer")
    check_text(entry.store, "store")
    check_text(entry.attempt, "id")
    if entry.transaction is not None:
        application, batch = entry.transaction
        check_text(application, "application of the transaction")
        check_int(batch, INT64, "batch of the transaction")
    if entry.stream_time is not None:
        check_int(entry.stream_time, INT64, "stream_time")
    check_ints(entry, _COUNTS, COUNT)
    for meta in entry.added:
        check_segment(meta)
    for segment in entry.removed:
        check_data_name(segment, "removed segment")
    check_closures(entry.closures)
    for file, end in entry.changelogs:
        check_changelog(file, end)
    if entry.horizon is not None:
        check_horizon(entry.horizon)
    check_text(entry.replacement, "replacement")
    is_replaced = FOLDER.fullmatch(entry.replacement) is not None
    if is_replaced != (entry.operation == REPLACE) or (entry.replacement and not is_replaced):
        raise ValueError(f"replacement is {entry.replacement!r} with operation {entry.operation!r}")
    if is_replaced and (entry.added or entry.removed or entry.closures or not entry.store):
        raise ValueError("an entry with a replacement has content, or no store")
    if entry.source is not None:
        check_source(entry.source)
        if entry.operation != "write" or not entry.store:
            raise ValueError(f"operation {entry.operation!r} of store {entry.store!r} with a version of a source")
        if entry.transaction is None or entry.transaction[1] != entry.source.version:
            raise ValueError(f"version {entry.source.version} of a source in transaction {entry.transaction}")


def check_horizon(horizon: Horizon) -> None:
    check_int(horizon.time, INT64, "time of the horizon")
    check_int(horizon.version, VERSION, "version of the horizon")


def canonical_text(name: str, data: bytes) -> bytes:
    """Return the JSON of the entry in the bytes of a log file on one line, as this release writes it.

    It has the same checksum. Raises CorruptError LOG_CORRUPT for bytes that are not an entry.
    """
    if _is_canonical(data):
        return data
    decode_entry(name, data)
    return sealed_json(json.loads(data)["commit"])


def _verified(name: str, data: bytes) -> dict[str, Any]:
    """Return the commit in the bytes of a log file after a comparison of its checksum."""
    document = json.loads(data)
    commit: dict[str, Any] = document["commit"]
    if _is_canonical(data):
        return commit
    actual, expected = json_checksum(commit), document["checksum"]
    if actual != expected:
        raise _corrupt(name, f"checksum {actual}, but the file records {expected}")
    return commit


def _oldest(entry: CommitEntry) -> dict[str, Any]:
    """Return an entry without the identity of a store in format 1."""
    commit: dict[str, Any] = {"format": OLDEST_FORMAT, "id": entry.attempt}
    commit |= {
        name: getattr(entry, name)
        for name in entry.__dataclass_fields__
        if name not in ("attempt", "store", "replacement", "source")
    }
    commit["added"] = [to_json(meta) for meta in entry.added]
    commit["closures"] = [to_json(piece) for piece in entry.closures]
    commit["horizon"] = None if entry.horizon is None else asdict(entry.horizon)
    return commit


def _compact(entry: CommitEntry) -> dict[str, Any]:
    """Return an entry in format 3, 4, 5 or 6: each file once, and no field that has its default."""
    files = FileTable()
    number = REPLACED_FORMAT if entry.operation == REPLACE else FORMAT_VERSION
    commit: dict[str, Any] = {"format": number, "id": entry.attempt}
    for name in ("version", "timestamp", "operation", "writer", "store", "stream_time", "replacement", *_COUNTS):
        commit[name] = getattr(entry, name)
    commit["transaction"] = None if entry.transaction is None else list(entry.transaction)
    commit["added"] = [files.segment(meta) for meta in entry.added]
    commit["removed"] = list(entry.removed)
    commit["closures"] = [files.closure(piece) for piece in entry.closures]
    commit["horizon"] = None if entry.horizon is None else asdict(entry.horizon)
    commit["changelogs"] = [list(pair) for pair in entry.changelogs]
    commit["files"] = files.json
    commit["source"] = None if entry.source is None else source_to_json(entry.source)
    if files.has_page_tables:
        commit["format"] = PAGED_FORMAT
    if entry.source is not None:
        commit["format"] = SOURCED_FORMAT
    return {name: value for name, value in commit.items() if name not in _ABSENT or value != _ABSENT[name]}


def _entry(commit: dict[str, Any]) -> CommitEntry:
    if (commit["format"] == REPLACED_FORMAT) != (commit["operation"] == REPLACE):
        raise ValueError(f"operation {commit['operation']!r} in format {commit['format']}")
    if ("source" in commit) != (commit["format"] == SOURCED_FORMAT):
        raise ValueError(f"a version of a source in format {commit['format']}")
    if commit["format"] in _COMPACT:
        commit = {**_ABSENT, **commit}
        files = files_from_json(commit["files"])
        is_paged = any(file.tail_checksum for file in files)
        if is_paged != (commit["format"] == PAGED_FORMAT) and commit["format"] != SOURCED_FORMAT:
            raise ValueError(f"page tables of files in format {commit['format']}")
        added, closures = segments_from_json(commit["added"], files), closures_from_json(commit["closures"], files)
        del commit["files"]
    else:
        added = tuple(segment_meta_from_json(meta) for meta in commit["added"])
        closures = tuple(closure_slice_from_json(piece) for piece in commit["closures"])
        if any(ref.tail_checksum for ref in (*file_refs(added), *(piece.file for piece in closures))):
            raise ValueError(f"page tables of files in format {commit['format']}")
    fields = {key: value for key, value in commit.items() if key not in ("format", "id")}
    fields["attempt"] = commit["id"]
    if (commit["format"] != OLDEST_FORMAT) != bool(commit.get("store")):
        raise ValueError(f"store is {commit.get('store')!r} in format {commit['format']}")
    fields["added"], fields["closures"], fields["removed"] = added, closures, tuple(commit["removed"])
    fields["horizon"] = None if commit["horizon"] is None else Horizon(**commit["horizon"])
    fields["changelogs"] = tuple((file, end) for file, end in commit["changelogs"])
    if commit["transaction"] is not None:
        application, batch = commit["transaction"]
        fields["transaction"] = (application, batch)
    if commit["format"] == SOURCED_FORMAT:
        fields["source"] = source_from_json(commit["source"])
    return CommitEntry(**fields)


def file_refs(segments: Iterable[SegmentMeta]) -> list[FileRef]:
    """Return the files of segments, and their indexes."""
    return [ref for meta in segments for ref in (meta.file, meta.index) if ref is not None]


def _corrupt(name: str, problem: str) -> CorruptError:
    return CorruptError(
        ErrorCode.LOG_CORRUPT,
        f"{name}: {problem}. The file was changed or damaged after it was written; restore it from a copy",
    )


def sealed_json(commit: dict[str, Any]) -> bytes:
    """Return a commit in canonical form behind its checksum, on one line (docs/log-format.md, "Log entries")."""
    return _sealed(_canonical(commit))


def _is_canonical(data: bytes) -> bool:
    """Return whether the bytes are what `sealed_json` returns for a commit; they can then be hashed as they are."""
    return data == _sealed(data[_BODY:-1])


def json_checksum(commit: dict[str, Any]) -> str:
    """Return the checksum of a commit, whatever the layout in which it was read."""
    return xxhash.xxh3_64_hexdigest(_canonical(commit))


def _sealed(canonical: bytes) -> bytes:
    return b"%b%b%b%b}" % (_HEAD, xxhash.xxh3_64_hexdigest(canonical).encode(), _MIDDLE, canonical)


def _canonical(commit: dict[str, Any]) -> bytes:
    """Return the form of a commit that every release hashes."""
    return json.dumps(commit, sort_keys=True, separators=(",", ":")).encode()
