"""The file of a log checkpoint: its bytes, in all formats, and its checks (docs/log-format.md, "Log checkpoints")."""

from __future__ import annotations

import json
import re
from typing import Any

import pyarrow as pa

from statestore.catalog.log.entries import Horizon, check_horizon
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
from statestore.catalog.log.log_names import log_checkpoint_name
from statestore.catalog.log.log_state import LogState, check_layout, check_versions
from statestore.catalog.log.storage import Storage
from statestore.catalog.log.version_chunks import CHUNK_VERSIONS, SCHEMA, ChunkRef, VersionChunks, check_columns
from statestore.catalog.log.versions import versions_from
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, StateStoreError
from statestore.formats.segments.ipc_file import read_batches
from statestore.formats.segments.segment_meta import ClosureSlice, closure_slice_from_json, segment_meta_from_json

FORMAT = b"log-checkpoint/3"
FORMAT_OF_PAGES = b"log-checkpoint/4"  # with files that have page tables
# Without the identity of the store; without chunks, and with a file named wherever it is used.
OLDER_FORMATS = (b"log-checkpoint/1", b"log-checkpoint/2")
UNREADABLE = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError, MemoryError)
"""Errors that Python raises for JSON of an unexpected form."""

CHECKSUM = re.compile("[0-9a-f]{16}")
_FORMAT, _STATE = b"statestore.format", b"statestore.state"


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
    schema = SCHEMA.with_metadata({_FORMAT: stored_format, _STATE: json.dumps(state, separators=(",", ":")).encode()})
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
        tail = table.to_batches()[0] if table.num_rows else pa.RecordBatch.from_pylist([], SCHEMA)
        is_paged = any(len(file) > 4 for file in state.get("files", ()))
        if is_paged != (metadata[_FORMAT] == FORMAT_OF_PAGES):
            raise ValueError(f"page tables of files in format {metadata[_FORMAT]!r}")
        return _log_state(state, tail, storage, compact=metadata[_FORMAT] not in OLDER_FORMATS)
    except StateStoreError:
        raise
    except UNREADABLE as error:
        raise _corrupt(name, f"{type(error).__name__}: {error}") from error


def _check_schema(schema: pa.Schema) -> None:
    stored_format = (schema.metadata or {}).get(_FORMAT)
    if stored_format not in (FORMAT_OF_PAGES, FORMAT, *OLDER_FORMATS):
        raise ValueError(f"format {stored_format!r}")
    if schema.remove_metadata() != SCHEMA:
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
    log_state = LogState(
        state["version"], versions, segments, closures, horizon, state["changelogs"], state.get("store", "")
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
