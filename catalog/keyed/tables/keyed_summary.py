"""What a keyed store keeps of one state, from its log and the sizes of its files: no state is read."""

from __future__ import annotations

import time
from dataclasses import dataclass

from statestore.catalog.describe.store_summary import KEPT_US
from statestore.catalog.keyed.snapshots.snapshot_log import Entry
from statestore.catalog.keyed.snapshots.unneeded_files import unneeded_files
from statestore.catalog.keyed.tables.keyed_metadata import files_of
from statestore.catalog.keyed.tables.keyed_table import KeyedTable
from statestore.catalog.log.storage import LocalStorage


@dataclass(frozen=True)
class KeyedSummary:
    """``oldest`` and ``newest`` are kept snapshots, ``snapshots`` how many there are; ``first_time`` and ``last_time``
    (epoch microseconds) when these were committed. ``rows`` of the newest, None where nobody has counted them.
    ``bytes`` are those of the files that the newest has the state in; states of incremental snapshots share them.
    ``unreferenced_bytes`` are those of the whole store. ``problems``: what is damaged, or to do."""

    oldest: int
    newest: int
    snapshots: int
    first_time: int
    last_time: int
    rows: int | None
    files: int
    bytes: int
    unreferenced_bytes: int
    writer: str
    problems: tuple[str, ...]
    damaged: bool


def summarize_keyed(table: KeyedTable) -> KeyedSummary:
    """Raises NotFoundError NO_SNAPSHOT or STATE_NOT_FOUND, CorruptError LOG_CORRUPT."""
    kept = list(table.log().retained().values())
    first, last = table.kept_versions()
    newest = kept[-1]
    table.state_of(newest)
    listed = {item.name: item.bytes for item in LocalStorage(table.root).list("")}
    files = {name: file for part in newest.handles for name, file in files_of(part, table.state).items()}
    needed = {name: file for part in newest.handles for name, file in part.files().items()}
    damage = [f"damaged: {name} is missing" for name in sorted(needed.keys() - listed.keys())]
    damage += [
        f"damaged: {name} has {listed[name]} bytes of {file.bytes}"
        for name, file in needed.items()
        if listed.get(name, file.bytes) != file.bytes
    ]
    spare = unneeded_files(LocalStorage(table.root))
    old = sum(item.bytes for item in spare if item.modified_us <= time.time_ns() // 1000 - KEPT_US)
    due = [f"needs vacuum ({old} bytes of unreferenced files)"] if old else []
    return KeyedSummary(
        oldest=first,
        newest=last,
        snapshots=len(kept),
        first_time=kept[0].timestamp,
        last_time=newest.timestamp,
        rows=_rows(newest, table.state),
        files=len(files),
        bytes=sum(file.bytes for file in files.values()),
        unreferenced_bytes=sum(item.bytes for item in spare),
        writer=newest.writer,
        problems=(*damage, *due),
        damaged=bool(damage),
    )


def _rows(entry: Entry, state: str) -> int | None:
    if any(part.kind != "full" for part in entry.handles):
        return None
    return sum(part.tables[state].groups[-1] for part in entry.handles if state in part.tables)
