"""Fast opening of a store: the folded log as an Arrow file, and the entries after it (docs/log-format.md)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import xxhash

from statestore.catalog.log.entries import OPERATIONS, CommitEntry, Horizon, check_horizon, entry_name, read_entry
from statestore.catalog.log.log_checks import check_changelog, check_closure, check_segment, check_text
from statestore.catalog.log.log_state import EMPTY, NUMBERS, LogState, Versions, advance, check_layout, versions_from
from statestore.catalog.log.storage import Storage, StorageExistsError
from statestore.catalog.log.store_identity import identity_guard, replaced
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, NotFoundError, StateStoreError
from statestore.formats.places.regular_files import MAX_METADATA_BYTES
from statestore.formats.segments.ipc_file import read_batches
from statestore.formats.segments.segment_meta import closure_slice_from_json, segment_meta_from_json, to_json

LOG_CHECKPOINT_INTERVAL = 64
FOLDER = "log/_checkpoint/"
FORMAT = b"log-checkpoint/2"
OLDER_FORMATS = (b"log-checkpoint/1",)  # without the identity of the store
KEPT = 2
CHECKSUM_BYTES = 8
SCHEMA = pa.schema(
    [
        *(pa.field(name, pa.int64()) for name in NUMBERS),
        pa.field("operation", pa.string()),
        pa.field("writer", pa.string()),
        pa.field("application", pa.string()),
        pa.field("batch", pa.int64()),
    ]
)
ENTRY = re.compile(r"log/[0-9]{20}\.json")
UNREADABLE = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError, MemoryError)
"""Errors that Python raises for JSON of an unexpected form."""

NAME = re.compile(re.escape(FOLDER) + r"([0-9]{20})\.arrow")


def load_log_state(
    storage: Storage, version: int | None = None, base: LogState | None = None, store: str = ""
) -> LogState:
    """Return the log state of ``version`` (None: the newest), from ``base`` or the newest checkpoint and the entries
    after it.

    ``store`` is the identity that the store has to have (empty: any). Raises NotFoundError VERSION_NOT_FOUND for a
    version that does not exist and STORE_REPLACED for another store, CorruptError LOG_CORRUPT for damage that no
    checkpoint covers.
    """
    if base is not None and (version is None or base.version <= version):
        return _replay(storage, base, version, at_least=max(base.version, 0))
    names = _log_checkpoints(storage, version)
    at_least = _version_of(names[0]) if names else 0
    for name in names:
        try:
            folded = read_log_checkpoint(name, storage.read(name))
        except (CorruptError, NotFoundError):
            continue
        if store and folded.store not in ("", store):
            raise replaced(name, store)
        folded = replace(folded, store=folded.store or store)
        return _without_gap(storage, _replay(storage, folded, version, at_least))
    return _without_gap(storage, _replay(storage, replace(EMPTY, store=store), version, at_least))


def write_log_checkpoint(storage: Storage, log_state: LogState) -> None:
    """Fold the log up to ``log_state`` into one file and remove all but the newest two such files."""
    data = _encode_log_checkpoint(log_state)
    if len(data) > MAX_METADATA_BYTES:  # a file of this size would be refused by readers
        return
    try:
        guard = identity_guard(log_state.store) if log_state.store else None
        storage.create(_log_checkpoint_name(log_state.version), data, guard)
    except StorageExistsError:
        return
    for name in _log_checkpoints(storage, log_state.version)[KEPT:]:
        storage.delete(name)


def _replay(storage: Storage, start: LogState, version: int | None, at_least: int) -> LogState:
    """Return the log state of ``version`` by replaying entries on ``start``.

    ``at_least`` is a version that is known to be committed: if the log ends before it, the log has a gap.
    """
    log_state = start
    for entry in _following(storage, start.version, version):
        log_state = advance(log_state, entry)
    if log_state.version < at_least:
        raise _gap(entry_name(log_state.version + 1), f"version {at_least} was committed")
    if version is not None and log_state.version != version:
        raise NotFoundError(
            ErrorCode.VERSION_NOT_FOUND,
            f"there is no version {version}; versions 0 to {log_state.version} were committed",
        )
    if log_state is not start:
        check_layout(log_state)
        _check_versions(log_state)
    return log_state


def _check_versions(log_state: LogState) -> None:
    """Raise CorruptError LOG_CORRUPT if a segment or closure names a commit later than the log state."""
    for meta in log_state.segments:
        named = meta.max_added, meta.last_closed, meta.split_closed, meta.late_added, meta.max_dropped
        if max(named) > log_state.version:
            raise _later(log_state, meta.name)
    for name, pieces in log_state.closures.items():
        if any(piece.version > log_state.version for piece in pieces):
            raise _later(log_state, name)


def _later(log_state: LogState, name: str) -> CorruptError:
    return CorruptError(
        ErrorCode.LOG_CORRUPT,
        f"version {log_state.version}: {name} has rows of a later version; restore the log from a copy",
    )


def _without_gap(storage: Storage, log_state: LogState) -> LogState:
    """Return ``log_state`` if no entry lies behind the first missing one, because a commit would take the missing
    entry's place.

    The check is made when a store is opened; a reader that continues from there has seen every entry.
    """
    following = entry_name(log_state.version + 1)
    later = [item.name for item in storage.list("log/", after=following) if ENTRY.fullmatch(item.name)]
    if later and not storage.exists(following):  # it exists if it was committed just now
        raise _gap(following, f"{later[-1]} was committed")
    return log_state


def _gap(name: str, evidence: str) -> CorruptError:
    return CorruptError(ErrorCode.LOG_CORRUPT, f"{name} is missing, but {evidence}; restore the log from a copy")


def _following(storage: Storage, version: int, last: int | None) -> Iterator[CommitEntry]:
    """Yield the entries after version ``version``.

    The first entry is tested for existence, which is cheapest if there is none. The others are read directly, with one
    request each.
    """
    following = version + 1
    if (last is not None and following > last) or not storage.exists(entry_name(following)):
        return
    while last is None or following <= last:
        try:
            entry = read_entry(storage, following)
        except NotFoundError:
            return
        yield entry
        following += 1


def _log_checkpoints(storage: Storage, version: int | None) -> list[str]:
    """Return the names of the checkpoints up to ``version``, newest first."""
    names = [item.name for item in storage.list(FOLDER) if NAME.fullmatch(item.name)]
    return sorted((name for name in names if version is None or _version_of(name) <= version), reverse=True)


def _log_checkpoint_name(version: int) -> str:
    return f"{FOLDER}{version:020d}.arrow"


def _version_of(name: str) -> int:
    match = NAME.fullmatch(name)
    assert match is not None
    return int(match[1])


def _encode_log_checkpoint(log_state: LogState) -> bytes:
    versions = log_state.versions
    transactions = versions.transaction
    table = pa.table(
        {
            **{name: pa.array(getattr(versions, name)) for name in NUMBERS},
            "operation": versions.operation,
            "writer": versions.writer,
            "application": [None if t is None else t[0] for t in transactions],
            "batch": [None if t is None else t[1] for t in transactions],
        },
        schema=SCHEMA,
    )
    state = {
        "version": log_state.version,
        "store": log_state.store,
        "segments": [to_json(meta) for meta in log_state.segments],
        "closures": {name: [to_json(c) for c in pieces] for name, pieces in log_state.closures.items()},
        "horizon": None if log_state.horizon is None else [log_state.horizon.time, log_state.horizon.version],
        "changelogs": dict(log_state.changelogs),
    }
    metadata = {b"statestore.format": FORMAT, b"statestore.state": json.dumps(state).encode()}
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, SCHEMA.with_metadata(metadata)) as writer:
        writer.write_table(table.replace_schema_metadata(metadata))
    data = sink.getvalue().to_pybytes()
    # The checksum is a trailer, which is cut off and compared before Arrow reads the bytes.
    return bytes(data) + xxhash.xxh3_64_digest(data)


def read_log_checkpoint(name: str, data: bytes) -> LogState:
    """Return the log state in the bytes of the checkpoint file ``name``. Raises CorruptError LOG_CORRUPT for damage."""
    body, checksum = data[:-CHECKSUM_BYTES], data[-CHECKSUM_BYTES:]
    if len(checksum) < CHECKSUM_BYTES or xxhash.xxh3_64_digest(body) != checksum:
        raise _corrupt(name, "its checksum does not match")
    try:
        schema, batches = read_batches(pa.py_buffer(body), _check_schema)
        state = json.loads((schema.metadata or {})[b"statestore.state"])
        if state["version"] != _version_of(name):
            raise ValueError(f"version {state['version']!r}")
        return _log_state(state, _versions(pa.Table.from_batches(batches, schema)))
    except StateStoreError:
        raise
    except UNREADABLE as error:
        raise _corrupt(name, f"{type(error).__name__}: {error}") from error


def _check_schema(schema: pa.Schema) -> None:
    stored_format = (schema.metadata or {}).get(b"statestore.format")
    if stored_format not in (FORMAT, *OLDER_FORMATS):
        raise ValueError(f"format {stored_format!r}")
    if schema.remove_metadata() != SCHEMA:
        raise ValueError(f"columns {schema.remove_metadata()}")


def _versions(table: pa.Table) -> Versions:
    required = [*NUMBERS, "operation", "writer"]
    if nulls := [name for name in required if table[name].null_count]:
        raise ValueError(f"nulls in {nulls}")
    operations = table["operation"].to_pylist()
    if not set(operations) <= set(OPERATIONS):
        raise ValueError(f"operations {set(operations) - set(OPERATIONS)}")
    applications, batches = table["application"].to_pylist(), table["batch"].to_pylist()
    texts: dict[str, list[Any]] = {
        "operation": operations,
        "writer": table["writer"].to_pylist(),
        "transaction": [None if a is None else (a, b) for a, b in zip(applications, batches, strict=True)],
    }
    return versions_from({name: table[name].to_numpy() for name in NUMBERS}, texts)


def _log_state(state: dict[str, Any], versions: Versions) -> LogState:
    segments = tuple(segment_meta_from_json(meta) for meta in state["segments"])
    closures = {
        name: tuple(closure_slice_from_json(piece) for piece in pieces) for name, pieces in state["closures"].items()
    }
    for meta in segments:
        check_segment(meta)
    for piece in (piece for pieces in closures.values() for piece in pieces):
        check_closure(piece)
    for name, end in state["changelogs"].items():
        check_changelog(name, end)
    horizon = None if state["horizon"] is None else Horizon(*state["horizon"])
    if horizon is not None:
        check_horizon(horizon)
    if len(versions) != state["version"] + 1:
        raise ValueError(f"{len(versions)} commits for version {state['version']}")
    log_state = LogState(
        state["version"], versions, segments, closures, horizon, state["changelogs"], state.get("store", "")
    )
    check_text(log_state.store, "store")
    check_layout(log_state)
    _check_versions(log_state)
    return log_state


def _corrupt(name: str, problem: str) -> CorruptError:
    return CorruptError(ErrorCode.LOG_CORRUPT, f"{name}: {problem}; remove it, the log entries have the same content")
