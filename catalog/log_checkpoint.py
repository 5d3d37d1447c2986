"""Opening a store fast: the folded log as an Arrow file, and the entries after it (docs/log-format.md)."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from statestore.catalog.log import Horizon, check_file_names, entry_name, read_entry
from statestore.catalog.snapshot import EMPTY, NUMBERS, Snapshot, Versions, advance, versions_from
from statestore.catalog.storage import Storage, StorageExistsError
from statestore.formats.errors import CorruptError, NotFoundError, StateStoreError
from statestore.formats.segment_meta import closure_slice_from_json, segment_meta_from_json, to_json

CHECKPOINT_INTERVAL = 64
FOLDER = "log/_checkpoint/"
FORMAT = b"log-checkpoint/1"
KEPT = 2


def load_snapshot(storage: Storage, version: int | None = None, base: Snapshot | None = None) -> Snapshot:
    """The store as of ``version`` (None: the newest), from ``base`` or the newest checkpoint and the entries after it.

    Raises NotFoundError VERSION_NOT_FOUND for a version that is not there, CorruptError LOG_CORRUPT for damage that
    no checkpoint covers.
    """
    if base is not None and (version is None or base.version <= version):
        return _replay(storage, base, version)
    for name in _checkpoints(storage, version):
        try:
            found = _read_checkpoint(name, storage.read(name))
        except (CorruptError, NotFoundError):
            continue
        return _replay(storage, found, version)
    return _replay(storage, EMPTY, version)


def write_checkpoint(storage: Storage, snapshot: Snapshot) -> None:
    """Fold the log up to ``snapshot`` into one file and remove all but the newest two of these."""
    try:
        storage.create(_checkpoint_name(snapshot.version), _encode_checkpoint(snapshot))
    except StorageExistsError:
        return
    for name in _checkpoints(storage, snapshot.version)[KEPT:]:
        storage.delete(name)


def newest_version(storage: Storage, at_least: int) -> int:
    """The newest version, known to be ``at_least``."""
    while storage.exists(entry_name(at_least + 1)):
        at_least += 1
    return at_least


def _replay(storage: Storage, snapshot: Snapshot, version: int | None) -> Snapshot:
    while version is None or snapshot.version < version:
        if not storage.exists(entry_name(snapshot.version + 1)):
            break
        snapshot = advance(snapshot, read_entry(storage, snapshot.version + 1))
    if snapshot.version < 0:
        raise CorruptError("LOG_CORRUPT", f"{entry_name(0)} is missing; the store has no log, restore it from a copy")
    if version is not None and snapshot.version != version:
        raise NotFoundError(
            "VERSION_NOT_FOUND", f"there is no version {version}; versions 0 to {snapshot.version} were committed"
        )
    return snapshot


def _checkpoints(storage: Storage, version: int | None) -> list[str]:
    """Names of the checkpoints up to ``version``, newest first."""
    names = [item.name for item in storage.list(FOLDER)]
    plain = [n for n in names if n.removeprefix(FOLDER).removesuffix(".arrow").isdigit() and n.endswith(".arrow")]
    return sorted((n for n in plain if version is None or n <= _checkpoint_name(version)), reverse=True)


def _checkpoint_name(version: int) -> str:
    return f"{FOLDER}{version:020d}.arrow"


def _encode_checkpoint(snapshot: Snapshot) -> bytes:
    versions = snapshot.versions
    transactions = versions.transaction
    table = pa.table(
        {
            **{name: pa.array(getattr(versions, name)) for name in NUMBERS},
            "operation": pa.array(versions.operation, pa.string()),
            "writer": pa.array(versions.writer, pa.string()),
            "application": pa.array([None if t is None else t[0] for t in transactions], pa.string()),
            "batch": pa.array([None if t is None else t[1] for t in transactions], pa.int64()),
        }
    )
    state = {
        "version": snapshot.version,
        "segments": [to_json(meta) for meta in snapshot.segments],
        "closures": {name: [to_json(c) for c in pieces] for name, pieces in snapshot.closures.items()},
        "horizon": None if snapshot.horizon is None else [snapshot.horizon.time, snapshot.horizon.version],
        "changelogs": dict(snapshot.changelogs),
    }
    metadata = {b"statestore.format": FORMAT, b"statestore.state": json.dumps(state).encode()}
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema.with_metadata(metadata)) as writer:
        writer.write_table(table.replace_schema_metadata(metadata))
    data = sink.getvalue().to_pybytes()
    # An 8-byte trailer, cut off and compared before Arrow sees the bytes.
    return bytes(data) + xxhash.xxh3_64_digest(data)


def _read_checkpoint(name: str, data: bytes) -> Snapshot:
    body, checksum = data[:-8], data[-8:]
    if len(checksum) < 8 or xxhash.xxh3_64_digest(body) != checksum:
        raise _corrupt(name, "its checksum does not match")
    try:
        table = pa.ipc.open_file(pa.py_buffer(body)).read_all()
        metadata = table.schema.metadata or {}
        if metadata.get(b"statestore.format") != FORMAT:
            raise _corrupt(name, f"format {metadata.get(b'statestore.format')!r}")
        state = json.loads(metadata[b"statestore.state"])
        return _snapshot(state, _versions(table))
    except StateStoreError:
        raise
    except (pa.ArrowException, KeyError, TypeError, ValueError) as error:
        raise _corrupt(name, f"{type(error).__name__}: {error}") from error


def _versions(table: pa.Table) -> Versions:
    applications, batches = table["application"].to_pylist(), table["batch"].to_pylist()
    texts: dict[str, list[Any]] = {
        "operation": table["operation"].to_pylist(),
        "writer": table["writer"].to_pylist(),
        "transaction": [None if a is None else (a, b) for a, b in zip(applications, batches, strict=True)],
    }
    return versions_from({name: table[name].to_numpy().astype(np.int64) for name in NUMBERS}, texts)


def _snapshot(state: dict[str, Any], versions: Versions) -> Snapshot:
    segments = tuple(segment_meta_from_json(meta) for meta in state["segments"])
    closures = {
        name: tuple(closure_slice_from_json(piece) for piece in pieces) for name, pieces in state["closures"].items()
    }
    check_file_names(segments, tuple(piece for pieces in closures.values() for piece in pieces))
    horizon = None if state["horizon"] is None else Horizon(*state["horizon"])
    if len(versions) != state["version"] + 1:
        raise ValueError(f"{len(versions)} commits for version {state['version']}")
    changelogs = {str(name): int(end) for name, end in state["changelogs"].items()}
    return Snapshot(int(state["version"]), versions, segments, closures, horizon, changelogs)


def _corrupt(name: str, found: str) -> CorruptError:
    return CorruptError("LOG_CORRUPT", f"{name}: {found}; remove it, the log entries say the same")
