"""Metadata of the states of a keyed store, from its log and the sizes of its files: files, size, ``$versions``.

No state is read.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from statestore.catalog.keyed.snapshots.snapshot_log import SnapshotEntry, SnapshotLog
from statestore.catalog.keyed.snapshots.snapshot_part import SnapshotPart
from statestore.catalog.keyed.snapshots.unneeded_files import unneeded_files
from statestore.catalog.log.storage import Storage
from statestore.catalog.log.version_rows import VERSIONS_SCHEMA, rows_table
from statestore.catalog.upkeep.vacuum import KEPT_US
from statestore.formats.engine import StateFile, StateSize
from statestore.formats.segments.segment_meta import FileRef

FULL, INCREMENTAL = "state", "database"
"""Roles of files: the rows of one state, or a table file of a database, which may hold all states of a task."""


def files_of(part: SnapshotPart, state: str) -> dict[str, FileRef]:
    """Return the files of a part that may hold rows of a state: of a database, all its table files."""
    if all(spec.name != state for spec in part.states):
        return {}
    found = list(part.shared.values())
    if state in part.tables:
        found.append(part.tables[state].file)
    return {file.name: file for file in found}


def new_files(part: SnapshotPart, state: str) -> dict[str, FileRef]:
    """Return the files of a part that the snapshot on which it builds did not have."""
    return {name: file for name, file in files_of(part, state).items() if name not in part.reused}


def state_files(entry: SnapshotEntry, state: str, kept_snapshots: Iterable[SnapshotEntry]) -> Iterator[StateFile]:
    """Yield the files of a snapshot, each with the first kept snapshot that names it."""
    first: dict[str, int] = {}
    for kept in kept_snapshots:
        for part in kept.parts:
            for name in part.files():
                first.setdefault(name, kept.version)
    for part in entry.parts:
        rows = {table.file.name: table.groups[-1] for table in part.tables.values()}
        role = FULL if part.kind == "full" else INCREMENTAL
        for name, file in files_of(part, state).items():
            yield StateFile(name, role, file.bytes, rows.get(name), first[name], first[name])


def entry_facts(entry: SnapshotEntry, new: Iterable[Mapping[str, FileRef]] | None) -> dict[str, Any]:
    """Return the columns of ``$versions`` that a log entry has.

    ``new`` are the files of the snapshot that no earlier one had, by name; None: unknown.
    """
    application, batch = entry.transaction or (None, None)
    return {
        "operation": entry.operation,
        "writer": entry.writer,
        "application": application,
        "batch": batch,
        "bytes": None if new is None else sum(file.bytes for files in new for file in files.values()),
    }


def entries_table(log: SnapshotLog) -> pa.Table:
    """Return the versions of a store, with the bytes that all states of each snapshot wrote."""
    kept = log.kept_snapshots()
    return rows_table(VERSIONS_SCHEMA, (_row(entry, entry.version in kept) for entry in log.entries))


def _row(entry: SnapshotEntry, readable: bool) -> dict[str, Any]:
    new = [
        {name: file for spec in part.states for name, file in new_files(part, spec.name).items()}
        for part in entry.parts
    ]
    facts = entry_facts(entry, new if readable else None)
    return {"version": entry.version, "timestamp": entry.timestamp, **facts}


def size_of(storage: Storage, kept_snapshots: Sequence[SnapshotEntry], state: str) -> StateSize:
    """Return the size of the files in which the newest snapshot has the state; states of incremental snapshots share
    files.

    ``unreferenced_bytes`` covers the whole store. Raises CorruptError LOG_CORRUPT.
    """
    newest = kept_snapshots[-1]
    listed = {item.name: item.bytes for item in storage.list("")}
    files = {name: file for part in newest.parts for name, file in files_of(part, state).items()}
    needed = {name: file for part in newest.parts for name, file in part.files().items()}
    damage = [f"damaged: {name} is missing" for name in sorted(needed.keys() - listed.keys())]
    damage += [
        f"damaged: {name} has {listed[name]} bytes, expected {file.bytes}"
        for name, file in needed.items()
        if listed.get(name, file.bytes) != file.bytes
    ]
    spare = unneeded_files(storage)
    old = sum(item.bytes for item in spare if item.modified_us <= time.time_ns() // 1000 - KEPT_US)
    due = [f"needs vacuum ({old} bytes of unreferenced files)"] if old else []
    return StateSize(
        bytes=sum(file.bytes for file in files.values()),
        rows=_rows(newest, state),
        files=len(files),
        unreferenced_bytes=sum(item.bytes for item in spare),
        writer=newest.writer,
        problems=(*damage, *due),
        damaged=bool(damage),
    )


def _rows(entry: SnapshotEntry, state: str) -> int | None:
    if any(part.kind != "full" for part in entry.parts):
        return None
    return sum(part.tables[state].groups[-1] for part in entry.parts if state in part.tables)
