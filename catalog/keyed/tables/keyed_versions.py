"""The log of a keyed store as rows of ``$versions``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from statestore.catalog.keyed.snapshots.snapshot_log import SnapshotEntry, SnapshotLog
from statestore.catalog.keyed.tables.keyed_files import new_files
from statestore.catalog.log.version_rows import VERSIONS_SCHEMA, rows_table
from statestore.formats.segments.segment_meta import FileRef


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
