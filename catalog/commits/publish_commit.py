"""Publishing a commit: optimistic, create-only, retried against the newest version until it succeeds.

Two writers never overwrite each other. A writer that loses the race for a version reads the other commit, resolves its
records again against that history, and tries the next version. The files of the lost attempt are removed.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from statestore.catalog.commits.claims import claim
from statestore.catalog.commits.new_files import NewFiles, RowBlock
from statestore.catalog.commits.open_rows import NewOpenRows, OpenRowsChange, carry_on, give_back
from statestore.catalog.commits.record_timelines import Closure, Resolution, end_expired, resolve
from statestore.catalog.commits.sorted_records import Records
from statestore.catalog.commits.version_ends import NewRows
from statestore.catalog.commits.writer_state import writer_of
from statestore.catalog.log.entries import CommitEntry, Horizon, write_entry
from statestore.catalog.log.log_checkpoint import LOG_CHECKPOINT_INTERVAL, write_log_checkpoint
from statestore.catalog.log.log_state import LogState, advance
from statestore.catalog.log.source_versions import SourceVersion
from statestore.catalog.log.storage import Storage, local_root
from statestore.catalog.log.store_spec import Windowing
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CommitUnknownError, ConflictError, StateStoreError
from statestore.formats.kernels.arrays import Hashes, Ints
from statestore.formats.kernels.compiled_use import is_loaded
from statestore.formats.segments.key_index import KeyIndex
from statestore.formats.segments.segment_meta import OPEN

MAX_ATTEMPTS = 100
MOST_SECONDS = 12 * 3600  # half of what vacuum waits for in an object store


@dataclass(frozen=True)
class WrittenRows:
    """Files of new rows and closures, which exist, how many values and tombstones they have, and the effect on the open
    rows."""

    new: NewFiles
    values: int
    tombstones: int
    opened: OpenRowsChange


class ManyRecords(Protocol):
    """Records that are too many to be resolved at once (`statestore.catalog.commits.divided_records`)."""

    def __len__(self) -> int: ...

    def all(self) -> Records:
        """Return them at once, for a commit that cannot be divided."""

    def write(self, files: SegmentFiles, log_state: LogState, claimed: str) -> WrittenRows:
        """Write them as rows of the version after ``log_state``; leave no file if that fails."""


@dataclass(frozen=True)
class Change:
    """The content of one commit, independent of the version that it gets."""

    operation: str
    records: Records | ManyRecords
    stream_time: int | None = None  # of the writer, epoch microseconds; None if it has no record
    dropped: int = 0
    transaction: tuple[str, int] | None = None
    changelogs: tuple[tuple[str, int], ...] = ()
    expiring: Windowing | None = None  # the rule by which rows end when the stream time moves
    source: SourceVersion | None = None  # the version of a source that the commit captures


def commit_change(files: SegmentFiles, base: LogState, change: Callable[[LogState], Change | None]) -> LogState:
    """Commit the change that ``change`` returns for the newest log state, and return the log state with the commit.

    ``change`` is called again for each attempt. It may return None to leave the store as it is. A transaction that the
    log already has is not repeated: the newest log state is returned. If an error is raised, the commit was not made,
    except for CommitUnknownError, after which `statestore.catalog.log.entries.was_committed` reports the outcome.
    """
    log_state = base
    if files.is_local:  # the guard of an entry in an object store looks again
        files.log.check_identity()
    files.log.settle()
    # The claim is taken before the log is read, so that trimming of the log cannot overtake the commit, however long
    # the process stops in between.
    writer = writer_of(files)
    with files.log.or_replaced(), writer.publishing, claim(files.storage) as claimed:
        for _ in range(MAX_ATTEMPTS):
            log_state, _lease = files.log.leased(log_state, commits=True, alone=writer.is_alone)
            attempted = change(log_state)
            if attempted is None or is_committed(log_state, attempted.transaction):
                return log_state
            writer.is_alone = False
            committed = _attempt(files, log_state, attempted, claimed)
            writer.is_alone = committed is not None and not files.spec.has_hot_tier
            if committed is not None:
                return committed
    raise too_many_conflicts(files)


def too_many_conflicts(files: SegmentFiles) -> ConflictError:
    return ConflictError(
        ErrorCode.TOO_MANY_CONFLICTS,
        f"store {files.spec.name!r}: lost the race for a version {MAX_ATTEMPTS} times in a row; "
        "reduce the number of writers or retry later",
    )


def _attempt(files: SegmentFiles, log_state: LogState, change: Change, claimed: str) -> LogState | None:
    """Return the log state with the change as the next version; None if another commit took the version."""
    prepared = _prepare(files, log_state, change, claimed)
    try:
        if not prepared.written:
            files.storage.create_many(prepared.new.buffers)
        published = publish(files.storage, prepared.new, prepared.entry)
    except CommitUnknownError:
        raise
    except StateStoreError:  # any other exception (such as an interrupt) leaves the outcome unknown
        remove_files(files.storage, prepared.new)
        raise
    if not published:
        give_back(files, prepared.opened.index)
        return None
    committed = after_publish(files.storage, log_state, prepared.entry)
    with contextlib.suppress(Exception):  # the commit exists, with or without an index for the next one
        carry_on(files, committed, prepared.opened)
    return committed


def is_committed(log_state: LogState, transaction: tuple[str, int] | None) -> bool:
    return transaction is not None and log_state.versions.find_transaction(*transaction) is not None


def publish(storage: Storage, new: NewFiles, entry: CommitEntry) -> bool:
    """Write the log entry that makes existing files part of the store; return whether it was written.

    If another commit took the version, the files are removed. Raises ConflictError FILES_TOO_OLD in an object store
    whose vacuum may soon take them for those of a dead writer.
    """
    check_age(storage, new, entry.version)
    try:
        write_entry(storage, entry)
    except ConflictError:
        remove_files(storage, new)
        return False
    return True


def check_age(storage: Storage, new: NewFiles, version: int) -> None:
    """Raise ConflictError FILES_TOO_OLD for files in an object store that vacuum may soon take for those of a dead
    writer.
    """
    if local_root(storage) is None and time.monotonic() - new.begun > MOST_SECONDS:
        raise ConflictError(
            ErrorCode.FILES_TOO_OLD,
            f"version {version}: the first file of the commit was written {MOST_SECONDS // 3600} hours ago, and "
            "vacuum removes files of that age that no commit names; commit again, in smaller parts",
        )


def after_publish(storage: Storage, log_state: LogState, entry: CommitEntry) -> LogState:
    """Return the log state with the new entry, and write a log checkpoint when one is due.

    The commit exists. A failure here must not look like a failed commit, because that would be repeated.
    """
    log_state = advance(log_state, entry)
    if log_state.version % LOG_CHECKPOINT_INTERVAL == 0:
        with contextlib.suppress(Exception):  # the log has the same content, read more slowly
            write_log_checkpoint(storage, log_state)
    return log_state


def remove_files(storage: Storage, new: NewFiles) -> None:
    """Delete the files where possible; a remaining file is an orphan that vacuum removes."""
    for name in new.names:
        try:
            storage.delete(name)
        except (StateStoreError, OSError):
            continue


def commit_time(log_state: LogState) -> int:
    """Return the current time in epoch microseconds, but at least the time of the newest commit.

    Commit times therefore never decrease.
    """
    now = time.time_ns() // 1_000_000 * 1_000
    return now if log_state.version < 0 else max(now, log_state.versions.timestamp_at(log_state.version))


def writer_name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


def new_entry(
    log_state: LogState,
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
    replacement: str = "",
    source: SourceVersion | None = None,
) -> CommitEntry:
    """Return the log entry for the version after ``log_state``; stream time never decreases."""
    newest_time = log_state.stream_time
    if stream_time is None or (newest_time is not None and newest_time > stream_time):
        stream_time = newest_time
    return CommitEntry(
        version=log_state.version + 1,
        timestamp=commit_time(log_state),
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
        store=log_state.store,
        replacement=replacement,
        source=source,
    )


@dataclass(frozen=True)
class _Prepared:
    """Files and entry of the next version, and its effect on the open rows; ``written``: the files exist already."""

    new: NewFiles
    entry: CommitEntry
    opened: OpenRowsChange
    written: bool


def _prepare(files: SegmentFiles, log_state: LogState, change: Change, claimed: str) -> _Prepared:
    records = change.records
    if not isinstance(records, Records):
        if change.expiring is None:
            written = records.write(files, log_state, claimed)
            entry = _entry(log_state, change, (written.values, written.tombstones), written.new)
            return _Prepared(written.new, entry, written.opened, written=True)
        records = records.all()
    resolution = resolve(files, log_state, records, checked=False)
    if resolution.unchecked is not None:
        prepared = _prepare_at_once(files, log_state, change, records, resolution, resolution.unchecked, claimed)
        if prepared is not None:
            return prepared
        give_back(files, resolution.index)
        resolution = resolve(files, log_state, records, indexed=False)
    if change.expiring is not None:
        stream_time = max(change.stream_time or log_state.stream_time_us, log_state.stream_time_us)
        resolution = end_expired(files, log_state, resolution, change.expiring, stream_time)
    new = NewFiles(claimed)
    opened = add_rows(files, log_state, records, resolution, new)
    new.add_closures(closure_parts(log_state, resolution.closures))
    return _prepared(log_state, change, resolution, new, opened, written=False)


def _prepare_at_once(
    files: SegmentFiles,
    log_state: LogState,
    change: Change,
    records: Records,
    resolution: Resolution,
    check: Callable[[], list[Closure] | None],
    claimed: str,
) -> _Prepared | None:
    """Write the rows while another thread compares the keys of the ended rows and writes the closures.

    Either task takes as long as the other. The tombstones have a thread, too, because each file waits for the disk.
    Returns None, and leaves no file, if the comparison failed.
    """

    new, closing = NewFiles(claimed), NewFiles(claimed)

    def close_rows() -> bool:
        closures = check()
        if closures is None:
            return False
        closing.add_closures(closure_parts(log_state, closures))
        files.storage.create_many(closing.buffers)
        return True

    closed = False
    try:
        with ThreadPoolExecutor(2) as others:  # for each commit: permanent threads would not survive a fork
            closed_rows = others.submit(close_rows)
            opened = add_rows(files, log_state, records, resolution, new)
            buffers = list(new.buffers.items())
            tombstones = others.submit(files.storage.create_many, dict(buffers[1:]))
            files.storage.create_many(dict(buffers[:1]))
        tombstones.result()
        closed = closed_rows.result()
    finally:
        if not closed:
            remove_files(files.storage, new)
            remove_files(files.storage, closing)
    if not closed:
        return None
    new.buffers |= closing.buffers
    new.closures += closing.closures
    return _prepared(log_state, change, resolution, new, opened, written=True)


def _prepared(
    log_state: LogState,
    change: Change,
    resolution: Resolution,
    new: NewFiles,
    opened: tuple[NewOpenRows, ...],
    written: bool,
) -> _Prepared:
    counts = len(resolution.values.record), len(resolution.tombstones.record)
    emptied = np.empty(0, np.uint64) if resolution.emptied is None else resolution.emptied
    change_of_open = OpenRowsChange(resolution.index, opened, resolution.ended, resolution.known, emptied)
    return _Prepared(new, _entry(log_state, change, counts, new), change_of_open, written)


def _entry(log_state: LogState, change: Change, counts: tuple[int, int], new: NewFiles) -> CommitEntry:
    """Return the log entry of a change; ``counts``: values and tombstones that it adds."""
    return new_entry(
        log_state,
        change.operation,
        new,
        transaction=change.transaction,
        stream_time=change.stream_time,
        rows=counts[0],
        tombstones=counts[1],
        closed=sum(piece.count for piece in new.closures),
        dropped=change.dropped,
        changelogs=change.changelogs,
        source=change.source,
    )


def add_rows(
    files: SegmentFiles,
    log_state: LogState,
    records: Records,
    resolution: Resolution,
    new: NewFiles,
    keep_indexes: bool = True,
) -> tuple[NewOpenRows, ...]:
    """Add segments of the new rows; return the open rows among them, if there is an index to carry forward.

    Without ``keep_indexes``, key indexes that have a file are not kept in memory.
    """
    version, opened = log_state.version + 1, []
    for rows, tombstone in ((resolution.values, False), (resolution.tombstones, True)):
        if len(rows.record):
            everything = is_everything(records, rows)
            block = block_of(records, rows, version, tombstone, everything)
            late = rows.start <= log_state.stream_time_us
            hashes = resolution.hashes if everything else resolution.hashes[rows.record]
            meta = new.add_segment(files.spec, block, "delta", tombstone, late, hashes)
            if rows.by_hash is not None and (keep_indexes or meta.index is None):
                files.know_index(meta, KeyIndex(hashes[rows.by_hash], rows.by_hash.astype(np.uint32)))
            if resolution.index is not None:
                opened.append(_open_rows(meta.name, rows, hashes))
    return tuple(opened)


def closure_parts(log_state: LogState, closures: list[Closure]) -> list[tuple[str, int, Ints, Ints]]:
    return [(segment, log_state.version + 1, rows, ends) for segment, rows, ends in closures]


def _open_rows(segment_name: str, rows: NewRows, hashes: Hashes) -> NewOpenRows:
    """Return the rows of a new segment that no version ends, in hash order where that order is known.

    ``hashes`` are those of the rows.
    """
    if rows.by_hash is not None and is_loaded():
        from statestore.formats.kernels.key_kernels import open_in_order

        count = len(rows.record)
        opened, (found, start) = np.empty(count, np.uint64), np.empty((2, count), np.int64)
        filled = open_in_order(rows.by_hash, rows.end, rows.start, hashes, opened, found, start)
        return NewOpenRows(segment_name, opened[:filled], found[:filled], start[:filled])
    order = np.arange(len(rows.record)) if rows.by_hash is None else rows.by_hash
    still = order[rows.end[order] == OPEN]
    return NewOpenRows(segment_name, hashes[still], still, rows.start[still])


def is_everything(records: Records, rows: NewRows) -> bool:
    """Return whether the rows are all records in their order, so that no column needs to be gathered."""
    return len(rows.record) == len(records) and np.array_equal(rows.record, np.arange(len(records)))


def block_of(records: Records, rows: NewRows, version: int, tombstone: bool, everything: bool) -> RowBlock:
    """Return new rows of the version with their columns; ``everything``: the rows are all records in their order."""
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
