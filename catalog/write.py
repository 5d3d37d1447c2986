"""Publishing a commit: optimistic, create-only, retried against the newest version until it wins.

Two writers never overwrite each other. The one that loses the race for a version reads what the other committed, places
its records again into that history, and tries the next version; its files of the lost attempt are removed.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from statestore.catalog.current_rows import NewOpenRows, OpenRowsChange, carry_on, give_back
from statestore.catalog.expired_rows import end_expired
from statestore.catalog.log import CommitEntry, Horizon, write_entry
from statestore.catalog.log_checkpoint import CHECKPOINT_INTERVAL, load_snapshot, write_checkpoint
from statestore.catalog.new_files import NewFiles, RowBlock
from statestore.catalog.placing import NewRows
from statestore.catalog.resolve import Hashes, Records, resolve
from statestore.catalog.segment_files import SegmentFiles
from statestore.catalog.snapshot import Snapshot, advance
from statestore.catalog.storage import Storage
from statestore.catalog.store_spec import Windowing
from statestore.formats.errors import ConflictError, StateStoreError
from statestore.formats.key_index import KeyIndex
from statestore.formats.segment_meta import OPEN

MAX_ATTEMPTS = 100


@dataclass(frozen=True)
class Change:
    """What one commit wants to do, independent of the version it will get."""

    operation: str
    records: Records
    stream_time: int | None = None  # of the writer, epoch microseconds; None if it saw no record
    dropped: int = 0
    transaction: tuple[str, int] | None = None
    changelogs: tuple[tuple[str, int], ...] = ()
    expiring: Windowing | None = None  # the rule by which rows end when the stream time moves


def commit_change(files: SegmentFiles, base: Snapshot, change: Callable[[Snapshot], Change | None]) -> Snapshot:
    """Commit what ``change`` makes of the newest snapshot; returns the snapshot that holds it.

    ``change`` is called again for each attempt and may answer None to leave the store as it is. A transaction that is
    in the log already is not repeated: the newest snapshot is returned.
    """
    snapshot = base
    for _ in range(MAX_ATTEMPTS):
        snapshot = load_snapshot(files.storage, base=snapshot)
        wanted = change(snapshot)
        if wanted is None or is_committed(snapshot, wanted.transaction):
            return snapshot
        new, entry, opened = _prepare(files, snapshot, wanted)
        if publish(files.storage, new, entry):
            committed = after_publish(files.storage, snapshot, entry)
            with contextlib.suppress(MemoryError):  # the commit exists, with or without an index for the next
                carry_on(files, committed, opened)
            return committed
        give_back(files, opened.index)
    raise ConflictError(
        "TOO_MANY_CONFLICTS",
        f"store {files.spec.name!r}: lost the race for a version {MAX_ATTEMPTS} times in a row; "
        "reduce the number of writers or retry later",
    )


def is_committed(snapshot: Snapshot, transaction: tuple[str, int] | None) -> bool:
    return transaction is not None and snapshot.versions.find_transaction(*transaction) is not None


def publish(storage: Storage, new: NewFiles, entry: CommitEntry) -> bool:
    """Write the files, then the log entry that makes them exist; False if another commit took the version."""
    storage.create_many(new.buffers)
    try:
        write_entry(storage, entry)
    except ConflictError:
        remove_files(storage, new)
        return False
    return True


def after_publish(storage: Storage, snapshot: Snapshot, entry: CommitEntry) -> Snapshot:
    """The snapshot with the new entry; writes a log checkpoint when one is due.

    The commit exists: a failure here must not look like a failed commit, which would be tried again.
    """
    snapshot = advance(snapshot, entry)
    if snapshot.version % CHECKPOINT_INTERVAL == 0:
        with contextlib.suppress(StateStoreError, OSError):  # the log says the same, only slower
            write_checkpoint(storage, snapshot)
    return snapshot


def remove_files(storage: Storage, new: NewFiles) -> None:
    """Best effort: what stays behind is an orphan that vacuum removes."""
    for name in new.buffers:
        try:
            storage.delete(name)
        except (StateStoreError, OSError):
            continue


def commit_time(snapshot: Snapshot) -> int:
    """Now in epoch microseconds, at least the time of the newest commit, so that commit times never go back."""
    now = time.time_ns() // 1_000_000 * 1_000
    return now if snapshot.version < 0 else max(now, int(snapshot.versions.timestamp[snapshot.version]))


def writer_name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


def new_entry(
    snapshot: Snapshot,
    operation: str,
    new: NewFiles,
    *,
    transaction: tuple[str, int] | None = None,
    stream_time: int | None = None,
    removed: tuple[str, ...] = (),
    rows: int = 0,
    tombstones: int = 0,
    closed: int = 0,
    dropped: int = 0,
    horizon: Horizon | None = None,
    changelogs: tuple[tuple[str, int], ...] = (),
) -> CommitEntry:
    """The log entry for the version after ``snapshot``; stream time never goes back."""
    known = snapshot.stream_time
    if stream_time is None or (known is not None and known > stream_time):
        stream_time = known
    return CommitEntry(
        version=snapshot.version + 1,
        timestamp=commit_time(snapshot),
        operation=operation,  # type: ignore[arg-type]
        writer=writer_name(),
        transaction=transaction,
        stream_time=stream_time,
        added=tuple(new.segments),
        removed=removed,
        closures=tuple(new.closures),
        rows=rows,
        tombstones=tombstones,
        closed=closed,
        bytes=new.bytes,
        dropped=dropped,
        horizon=horizon,
        changelogs=changelogs,
    )


def _prepare(files: SegmentFiles, snapshot: Snapshot, change: Change) -> tuple[NewFiles, CommitEntry, OpenRowsChange]:
    """The files and the entry of the next version, and what it does to the open rows."""
    version = snapshot.version + 1
    found = resolve(files, snapshot, change.records)
    if change.expiring is not None:
        stream_time = max(change.stream_time or snapshot.stream_time_us, snapshot.stream_time_us)
        found = end_expired(files, snapshot, found, change.expiring, stream_time)
    new, opened = NewFiles(), []
    for rows, tombstone in ((found.values, False), (found.tombstones, True)):
        if len(rows.record):
            everything = _is_everything(change.records, rows)
            block = _block(change.records, rows, version, tombstone, everything)
            late = rows.start <= snapshot.stream_time_us
            hashes = found.hashes if everything else found.hashes[rows.record]
            meta = new.add_segment(files.spec, block, "delta", tombstone, late, hashes)
            if rows.by_hash is not None:
                files.know_index(meta, KeyIndex(hashes[rows.by_hash], rows.by_hash.astype(np.uint32)))
            if found.index is not None:
                opened.append(_open_rows(meta.name, rows, hashes))
    new.add_closures([(segment, version, rows, ends) for segment, rows, ends in found.closures])
    entry = new_entry(
        snapshot,
        change.operation,
        new,
        transaction=change.transaction,
        stream_time=change.stream_time,
        rows=len(found.values.record),
        tombstones=len(found.tombstones.record),
        closed=sum(len(rows) for _, rows, _ in found.closures),
        dropped=change.dropped,
        changelogs=change.changelogs,
    )
    return new, entry, OpenRowsChange(found.index, tuple(opened), found.ended, found.known)


def _open_rows(segment: str, rows: NewRows, hashes: Hashes) -> NewOpenRows:
    """Those of a new segment's rows that no version ends, by hash where that order is known."""
    order = np.arange(len(rows.record)) if rows.by_hash is None else rows.by_hash
    still = order[rows.end[order] == OPEN]
    return NewOpenRows(segment, hashes[still], still, rows.start[still])


def _is_everything(records: Records, rows: NewRows) -> bool:
    """Whether the rows are all records in their order, so that no column needs to be gathered."""
    return len(rows.record) == len(records) and np.array_equal(rows.record, np.arange(len(records)))


def _block(records: Records, rows: NewRows, version: int, tombstone: bool, everything: bool) -> RowBlock:
    columns = list(records.keys if tombstone else [*records.keys, *records.values])
    count = len(rows.record)
    if not everything:
        chosen = pa.array(rows.record)
        columns = [column.take(chosen) for column in columns]
    return RowBlock(
        columns,
        rows.start,
        rows.end,
        added=np.full(count, version),
        closed=np.where(rows.end == OPEN, 0, version),
        split=np.zeros(count, bool),
    )
