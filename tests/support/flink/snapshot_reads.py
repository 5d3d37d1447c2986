"""Snapshots of Flink read for tests: their states and rows, their files, every handle, and whether the tree changed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa

from statestore.formats.flink.engine import open_state
from statestore.formats.flink.snapshot.handles import KeyGroupHandle, RocksHandle, StreamHandle
from statestore.formats.flink.snapshot.metadata import SnapshotMetadata
from statestore.formats.flink.snapshot.snapshot_files import SnapshotFiles
from statestore.formats.flink.source import FlinkSource
from statestore.formats.places.folder import folder_at
from statestore.formats.places.locations import parse_location


def source_at(place: Path | str, options: Mapping[str, str] | None = None) -> FlinkSource:
    """The source at a snapshot or a folder of snapshots."""
    found = open_state(parse_location(place), options or {})
    assert isinstance(found, FlinkSource)
    return found


def rows_of(source: FlinkSource, state: str, version: int | None = None) -> pa.Table:
    """All rows of a state in the newest snapshot, or in that of a version, without filters."""
    at = source.at(state, source.newest(state) if version is None else version)
    batches = [rows for part in at.parts(()) for rows in at.rows(part, at.schema.names, ())]
    return pa.Table.from_batches(batches, at.schema)


def files_at(place: Path | str) -> SnapshotFiles:
    """The files of the snapshot in a folder, local or by URI."""
    return SnapshotFiles(folder_at(parse_location(place)))


def rocks_of(found: SnapshotMetadata) -> Iterator[tuple[str, RocksHandle]]:
    """Ids of operators and their RocksDB handles, one a subtask."""
    for operator in found.operators:
        for subtask in operator.subtasks:
            if isinstance(subtask.managed_keyed, RocksHandle):
                yield operator.id, subtask.managed_keyed


def streams_of(found: SnapshotMetadata) -> Iterator[StreamHandle]:
    """Every stream of every subtask."""
    for operator in found.operators:
        for subtask in operator.subtasks:
            for keyed in (subtask.managed_keyed, subtask.raw_keyed):
                if isinstance(keyed, KeyGroupHandle):
                    yield keyed.stream
                if isinstance(keyed, RocksHandle):
                    yield keyed.meta
                    yield from (handle for _, handle in (*keyed.shared, *keyed.private))
            for state in (subtask.managed_operator, subtask.raw_operator):
                if state is not None:
                    yield state.stream


def tree_of(folder: Path) -> dict[str, tuple[object, ...]]:
    """Every entry below a folder: kind, links to it, size, time of change and content."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(folder.rglob("*")):
        facts = path.lstat()
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        name = str(path.relative_to(folder))
        found[name] = (facts.st_mode, facts.st_nlink, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, content)
    return found
