"""The files in which a snapshot has a state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from statestore.catalog.keyed.snapshots.snapshot_log import SnapshotEntry
from statestore.catalog.keyed.snapshots.snapshot_part import SnapshotPart
from statestore.formats.engine import StateFile
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
