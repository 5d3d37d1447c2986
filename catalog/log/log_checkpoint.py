"""Log checkpoints (docs/log-format.md): fast opening of a store by the newest one and the entries after it, and the
bytes of their files, in all formats.

Vacuum removes old entries, from the oldest on. A reader that has not looked for a long time may find neither the entry
after its version nor that of its version. Then it starts again from the newest checkpoint.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from statestore.catalog.log.entries import CommitEntry, Horizon, check_horizon, decode_entry, entry_name, read_entry
from statestore.catalog.log.file_table import FileTable, closures_from_json, files_from_json, segments_from_json
from statestore.catalog.log.frames import sealed, unsealed
from statestore.catalog.log.log_checks import (
    COUNT,
    INT64,
    VERSION,
    check_changelog,
    check_closures,
    check_int,
    check_segment,
    check_text,
)
from statestore.catalog.log.log_names import ENTRY, checkpoint_versions, log_checkpoint_name
from statestore.catalog.log.log_state import EMPTY, LogState, advance, check_layout, check_versions
from statestore.catalog.log.source_versions import captured_from_json, captured_to_json
from statestore.catalog.log.storage import Storage, StorageExistsError, local_root
from statestore.catalog.log.store_spec import identity_guard, replaced
from statestore.catalog.log.version_chunks import (
    CHUNK_VERSIONS,
    SCHEMA,
    SCHEMA_WITH_SOURCES,
    ChunkRef,
    VersionChunks,
    check_columns,
    with_sources,
)
from statestore.catalog.log.versions import versions_from
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, NotFoundError, StateStoreError
from statestore.formats.places.regular_files import MAX_METADATA_BYTES
from statestore.formats.segments.ipc_file import read_batches
from statestore.formats.segments.segment_meta import (
    ClosureSlice,
    SegmentMeta,
    closure_slice_from_json,
    segment_meta_from_json,
)

LOG_CHECKPOINT_INTERVAL = 64
KEPT = 2
ENTRIES_AT_ONCE = 1_000
_LISTINGS = 5
# Versions behind the first missing entry at which an entry would be evidence of a gap.
_PROBES = (*range(1, 2 * LOG_CHECKPOINT_INTERVAL), *(1 << power for power in range(7, 40)))
FORMAT = b"log-checkpoint/3"
FORMAT_OF_PAGES = b"log-checkpoint/4"  # with files that have page tables
FORMAT_OF_SOURCES = b"log-checkpoint/5"  # with commits that captured versions of a source
# Without the identity of the store; without chunks, and with a file named wherever it is used.
OLDER_FORMATS = (b"log-checkpoint/1", b"log-checkpoint/2")
UNREADABLE = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError, MemoryError)
"""Errors that Python raises for JSON of an unexpected form."""

CHECKSUM = re.compile("[0-9a-f]{16}")
_FORMAT, _STATE = b"statestore.format", b"statestore.state"


@dataclass(frozen=True)
class _Replayed:
    """A log state and what it was made from; ``whole``: from the entries alone, without a checkpoint."""

    log_state: LogState
    whole: bool


def load_log_state(
    storage: Storage, version: int | None = None, base: LogState | None = None, store: str = ""
) -> LogState:
    """Return the log state of ``version`` (None: the newest), from ``base`` or the newest checkpoint and the entries
    after it.

    ``store`` is the identity that the store has to have (empty: any). Raises NotFoundError VERSION_NOT_FOUND for a
    version that does not exist or is not kept and STORE_REPLACED for another store, CorruptError LOG_CORRUPT for damage
    that no checkpoint covers.
    """
    if base is not None and (version is None or base.version <= version):
        log_state = _replay(storage, base, version)
        if log_state.version == version or not _was_trimmed(storage, log_state.version):
            return _expected(log_state, version, at_least=max(base.version, 0))
        store = store or base.store
    for _ in range(_LISTINGS):
        known = checkpoint_versions(storage)
        replayed = _from_checkpoint(storage, known, version, store)
        if replayed is not None:
            break
    else:
        raise _gap(log_checkpoint_name(known[0]), "it was there when the store was opened")
    at_least = max((found for found in known if version is None or found <= version), default=0)
    log_state = replayed.log_state
    if log_state.version < at_least or log_state.version < 0:
        gap = _gap(entry_name(log_state.version + 1), f"version {at_least} was committed")
        raise _not_kept(storage, known, version) or gap
    if version is None:
        _check_gap(storage, log_state, replayed.whole)
    return _expected(log_state, version, at_least)


def write_log_checkpoint(storage: Storage, log_state: LogState) -> None:
    """Fold the log up to ``log_state`` into one file, and remove older such files.

    The newest two stay, and those of each chunk's end: from them, any version that the log still has can be loaded.
    """
    data = encode_log_checkpoint(log_state, *log_state.versions.folded(storage, log_state.store))
    if len(data) > MAX_METADATA_BYTES:  # a file of this size would be refused by readers
        return
    try:
        guard = identity_guard(log_state.store) if log_state.store else None
        storage.create(log_checkpoint_name(log_state.version), data, guard)
    except StorageExistsError:
        return
    older = [version for version in checkpoint_versions(storage) if version <= log_state.version]
    for version in older[KEPT:]:
        if not is_landmark(version):
            storage.delete(log_checkpoint_name(version))


def is_landmark(version: int) -> bool:
    """Return whether the log checkpoint of a version stays as long as the entries after it."""
    return version > 0 and version % CHUNK_VERSIONS == 0


def _from_checkpoint(storage: Storage, known: list[int], version: int | None, store: str) -> _Replayed | None:
    """Return the log state of ``version``, or the newest that can be read, from the first usable checkpoint of those in
    ``known``; None if checkpoints or the entries after them were removed meanwhile.
    """
    vanished, reading = False, storage
    for found in known:
        if version is not None and found > version:
            continue
        name = log_checkpoint_name(found)
        if version is None:
            reading = storage.beginning("log/", entry_name(found))
        try:
            folded = read_log_checkpoint(name, storage.read(name), storage)
        except CorruptError:
            continue
        except NotFoundError:
            vanished = True
            continue
        if store and folded.store not in ("", store):
            raise replaced(name, store)
        folded = replace(folded, store=folded.store or store)
        break
    else:
        folded = replace(EMPTY, store=store)
        reading = storage.beginning("log/") if version is None else storage
    log_state = _replay(reading, folded, version)
    trimmed = log_state.version != version and _was_trimmed(storage, log_state.version, vanished)
    if trimmed and checkpoint_versions(storage) != known:
        return None
    return _Replayed(log_state, whole=folded.version < 0)


def _replay(storage: Storage, start: LogState, version: int | None) -> LogState:
    """Return the log state of ``version`` (None: the newest), or the last that can be reached from ``start``."""
    log_state = start
    segments: list[SegmentMeta] = []
    closures: list[ClosureSlice] = []
    for entry in _following(storage, start.version, version):
        log_state = advance(log_state, entry)
        segments += entry.added
        closures += entry.closures
    if log_state is not start:
        check_layout(log_state)
        check_versions(log_state, segments, closures)
    return log_state


def _expected(log_state: LogState, version: int | None, at_least: int) -> LogState:
    """Return the log state. Raises CorruptError LOG_CORRUPT if it is older than ``at_least``, a version that is known
    to be committed, and NotFoundError VERSION_NOT_FOUND if it is not that of ``version``.
    """
    if log_state.version < at_least:
        raise _gap(entry_name(log_state.version + 1), f"version {at_least} was committed")
    if version is not None and log_state.version != version:
        raise NotFoundError(
            ErrorCode.VERSION_NOT_FOUND,
            f"there is no version {version}; versions 0 to {log_state.version} were committed",
        )
    return log_state


def _was_trimmed(storage: Storage, version: int, vanished: bool = False) -> bool:
    """Return whether entries after ``version`` were removed, of which none was found.

    Entries are removed from the oldest on. As long as that of ``version`` exists, the next one was not removed, so it
    does not exist yet. If it is gone, a newer checkpoint tells that it was removed, and not lost. ``vanished``: a
    checkpoint was removed since they were listed. Object stores keep their entries.
    """
    if not vanished and (local_root(storage) is None or version < 0 or storage.exists(entry_name(version))):
        return False
    return version < max(checkpoint_versions(storage), default=-1)


def _check_gap(storage: Storage, log_state: LogState, whole: bool) -> None:
    """Raise CorruptError LOG_CORRUPT if an entry lies behind the first missing one, because a commit would take the
    missing entry's place.

    The check is made when a store is opened; a reader that continues from there has seen every entry. Behind a
    checkpoint there are few entries, so only some names are tried: the folder may have a hundred thousand files.
    """
    if local_root(storage) is None:
        return  # the entries were listed when they were read
    following = entry_name(log_state.version + 1)
    if whole:
        later = [item.name for item in storage.list("log/", after=following) if ENTRY.fullmatch(item.name)]
    else:
        tried = (entry_name(log_state.version + 1 + further) for further in _PROBES)
        later = [name for name in tried if storage.exists(name)]
    if later and not storage.exists(following):  # it exists if it was committed just now
        raise _gap(following, f"{later[-1]} was committed")


def _gap(name: str, evidence: str) -> CorruptError:
    return CorruptError(ErrorCode.LOG_CORRUPT, f"{name} is missing, but {evidence}; restore the log from a copy")


def _not_kept(storage: Storage, known: list[int], version: int | None) -> NotFoundError | None:
    """Return the error for a version whose entries were removed behind the horizon; None if they were not."""
    for found in known:
        try:
            name = log_checkpoint_name(found)
            horizon = read_log_checkpoint(name, storage.read(name), storage).horizon
        except (CorruptError, NotFoundError):
            continue
        if version is None or horizon is None or version >= horizon.version:
            return None
        return NotFoundError(
            ErrorCode.VERSION_NOT_FOUND,
            f"the log of version {version} is not kept: the store was expired to version {horizon.version}",
        )
    return None


def _following(storage: Storage, version: int, last: int | None) -> Iterator[CommitEntry]:
    """Yield the entries after version ``version``.

    The first entry is tested for existence, which is cheapest if there is none. The others are read directly, with one
    request each.
    """
    if local_root(storage) is None:
        yield from _following_objects(storage, version, last)
        return
    following = version + 1
    if last is None and not storage.exists(entry_name(following)):
        return
    while last is None or following <= last:
        try:
            entry = read_entry(storage, following)
        except NotFoundError:
            return
        yield entry
        following += 1


def _following_objects(storage: Storage, version: int, last: int | None) -> Iterator[CommitEntry]:
    """Yield the entries after version ``version``, which are read many at a time.

    A reader that looks for a newer commit asks for it by name, because mostly there is none. A listing says how many
    there are, and whether one is missing. It may lag, so the entry behind the last one is always asked for by its name.
    """
    following, known = version + 1, frozenset[str]()
    while last is None or following <= last:
        count = ENTRIES_AT_ONCE if last is None else min(last - following + 1, ENTRIES_AT_ONCE)
        if last is None and (following > version + 1 or storage.is_listing("log/")):
            listed = storage.list("log/", after=entry_name(following - 1) if following else "")
            known = frozenset(item.name for item in listed if ENTRY.fullmatch(item.name))
        if last is None:
            count = next((n for n in range(count) if entry_name(following + n) not in known), count - 1) + 1
        names = [entry_name(following + n) for n in range(count)]
        for name, data in zip(names, storage.read_many(names), strict=True):
            if data is None:
                later = max(known, default="")
                if later > name:
                    raise _gap(name, f"{later} was committed")
                return
            yield decode_entry(name, data)
        following += count


def encode_log_checkpoint(log_state: LogState, chunks: VersionChunks, tail: pa.RecordBatch) -> bytes:
    """Return the file of a log state whose commits are those of ``chunks`` and then ``tail``."""
    files = FileTable()
    state = {
        "version": log_state.version,
        "store": log_state.store,
        "segments": [files.segment(meta) for meta in log_state.segments],
        "closures": [files.closure(piece) for pieces in log_state.closures.values() for piece in pieces],
        "horizon": None if log_state.horizon is None else [log_state.horizon.time, log_state.horizon.version],
        "changelogs": dict(log_state.changelogs),
        "chunks": [[ref.bytes, ref.checksum] for ref in chunks.refs],
        "newest": {application: list(found) for application, found in chunks.newest.items()},
        "complete": chunks.complete,
        "dropped": chunks.dropped,
        "files": files.json,
    }
    stored_format = FORMAT_OF_PAGES if files.has_page_tables else FORMAT
    if log_state.captured is not None:
        state["captured"] = captured_to_json(log_state.captured)
        stored_format, tail = FORMAT_OF_SOURCES, with_sources(tail)
    schema = tail.schema.with_metadata(
        {_FORMAT: stored_format, _STATE: json.dumps(state, separators=(",", ":")).encode()}
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        writer.write_batch(tail.replace_schema_metadata(schema.metadata))
    return sealed(sink.getvalue().to_pybytes())


def read_log_checkpoint(name: str, data: bytes, storage: Storage | None = None) -> LogState:
    """Return the log state in the bytes of the checkpoint file ``name``. Raises CorruptError LOG_CORRUPT for damage.

    The chunks that it names are read from ``storage`` when they are needed.
    """
    body = unsealed(name, data)
    try:
        schema, batches = read_batches(pa.py_buffer(body), _check_schema)
        metadata = schema.metadata or {}
        state = json.loads(metadata[_STATE])
        if log_checkpoint_name(state["version"]) != name:
            raise ValueError(f"version {state['version']!r}")
        table = pa.Table.from_batches(batches, schema.remove_metadata()).combine_chunks()
        check_columns(table)
        tail = table.to_batches()[0] if table.num_rows else pa.RecordBatch.from_pylist([], table.schema)
        if ("captured" in state) != (metadata[_FORMAT] == FORMAT_OF_SOURCES):
            raise ValueError(f"versions of a source in format {metadata[_FORMAT]!r}")
        is_paged = any(len(file) > 4 for file in state.get("files", ()))
        if is_paged != (metadata[_FORMAT] == FORMAT_OF_PAGES) and metadata[_FORMAT] != FORMAT_OF_SOURCES:
            raise ValueError(f"page tables of files in format {metadata[_FORMAT]!r}")
        return _log_state(state, tail, storage, compact=metadata[_FORMAT] not in OLDER_FORMATS)
    except StateStoreError:
        raise
    except UNREADABLE as error:
        raise _corrupt(name, f"{type(error).__name__}: {error}") from error


def _check_schema(schema: pa.Schema) -> None:
    stored_format = (schema.metadata or {}).get(_FORMAT)
    if stored_format not in (FORMAT_OF_SOURCES, FORMAT_OF_PAGES, FORMAT, *OLDER_FORMATS):
        raise ValueError(f"format {stored_format!r}")
    if schema.remove_metadata() != (SCHEMA_WITH_SOURCES if stored_format == FORMAT_OF_SOURCES else SCHEMA):
        raise ValueError(f"columns {schema.remove_metadata()}")


def _log_state(state: dict[str, Any], tail: pa.RecordBatch, storage: Storage | None, compact: bool) -> LogState:
    closures: dict[str, tuple[ClosureSlice, ...]]
    if compact:
        files = files_from_json(state["files"])
        segments = segments_from_json(state["segments"], files)
        by_segment: dict[str, list[ClosureSlice]] = {}
        for piece in closures_from_json(state["closures"], files):
            by_segment.setdefault(piece.segment, []).append(piece)
        closures = {name: tuple(pieces) for name, pieces in by_segment.items()}
        chunks = _chunks(state, storage)
    else:
        segments = tuple(segment_meta_from_json(meta) for meta in state["segments"])
        closures = {
            name: tuple(closure_slice_from_json(piece) for piece in pieces)
            for name, pieces in state["closures"].items()
        }
        chunks = VersionChunks()
    for meta in segments:
        check_segment(meta)
    check_closures([piece for pieces in closures.values() for piece in pieces])
    for name, end in state["changelogs"].items():
        check_changelog(name, end)
    horizon = None if state["horizon"] is None else Horizon(*state["horizon"])
    if horizon is not None:
        check_horizon(horizon)
    versions = versions_from(chunks, tail)
    if len(versions) != state["version"] + 1:
        raise ValueError(f"{len(versions)} commits for version {state['version']}")
    if not tail.num_rows:
        raise ValueError("the newest commits are missing")
    captured = captured_from_json(state["captured"], state["version"]) if "captured" in state else None
    log_state = LogState(
        state["version"], versions, segments, closures, horizon, state["changelogs"], state.get("store", ""), captured
    )
    check_text(log_state.store, "store")
    check_layout(log_state)
    check_versions(log_state, segments, (piece for pieces in closures.values() for piece in pieces))
    return log_state


def _chunks(state: dict[str, Any], storage: Storage | None) -> VersionChunks:
    refs = []
    for number, (length, checksum) in enumerate(state["chunks"]):
        check_int(length, COUNT, "length of a chunk")
        if type(checksum) is not str or not CHECKSUM.fullmatch(checksum):
            raise ValueError(f"checksum of a chunk is {checksum!r}, expected 16 hex digits")
        refs.append(ChunkRef(number * CHUNK_VERSIONS, length, checksum))
    newest = {}
    for application, (batch, version) in state["newest"].items():
        check_text(application, "application")
        check_int(batch, INT64, "newest batch of an application")
        check_int(version, VERSION, "version of a transaction")
        newest[application] = batch, version
    check_int(state["dropped"], COUNT, "dropped")
    if type(state["complete"]) is not bool:
        raise ValueError(f"complete is {state['complete']!r}")
    return VersionChunks(storage, tuple(refs), newest, state["complete"], state["dropped"])


def _corrupt(name: str, problem: str) -> CorruptError:
    return CorruptError(ErrorCode.LOG_CORRUPT, f"{name}: {problem}; remove it, the log entries have the same content")
