"""The size of one state of a keyed store, from its log and the sizes of its files: no state is read."""

from __future__ import annotations

import time
from collections.abc import Sequence

from statestore.catalog.keyed.snapshots.snapshot_log import SnapshotEntry
from statestore.catalog.keyed.snapshots.unneeded_files import unneeded_files
from statestore.catalog.keyed.tables.keyed_files import files_of
from statestore.catalog.log.storage import Storage
from statestore.catalog.upkeep.vacuum import KEPT_US
from statestore.formats.engine import StateSize


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
