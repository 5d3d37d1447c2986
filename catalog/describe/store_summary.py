"""The content of a store and the upkeep that it needs, from its log and the sizes of its files.

Segments are not read, except for the ends of rows in a segment with both open and closed rows: the number of keys is
unknown without them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np

from statestore.catalog.commits.changelogs import CHANGELOGS, OURS, consumed_ends
from statestore.catalog.describe.captured_summary import CaptureSummary, capture_summary, oldest_row
from statestore.catalog.describe.table_summary import TableSummary
from statestore.catalog.log.leases import Lease
from statestore.catalog.log.log_state import LogState, file_names
from statestore.catalog.log.storage import ObjectInfo, Storage, own_folder
from statestore.catalog.log.store_locations import own_bytes, tier_bytes
from statestore.catalog.log.store_spec import StoreSpec
from statestore.catalog.reads.belief import SegmentWithClosures, newest_ends, with_closures
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.catalog.reads.versioned_table import VersionedTable
from statestore.catalog.upkeep.compaction_plan import is_due
from statestore.catalog.upkeep.vacuum import LEFT_BEHIND, run_vacuum
from statestore.formats.changelogs.changelog import read_changelog
from statestore.formats.errors import CorruptError, NotFoundError
from statestore.formats.places.disk_errors import storage_error
from statestore.formats.places.file_presence import names_in
from statestore.formats.segments.segment_meta import OPEN

MAX_COUNTED_BYTES = 1 << 23  # longer changelogs are reported in bytes only

Found = TypeVar("Found")


def summarize(storage: Storage, spec: StoreSpec, seen: tuple[LogState, Lease | None] | None = None) -> TableSummary:
    """Return the summary of a store in the state ``seen``, or as it is now.

    Raises CorruptError LOG_CORRUPT if the content of the store cannot be determined.
    """
    files = SegmentFiles(storage, spec)
    # Without a lease a file that vacuum removes meanwhile would be taken for damage.
    log_state, lease = files.log.leased() if seen is None else seen
    listed = storage.list("")
    needed = file_names(log_state)
    spare = [item for item in listed if item.name not in needed and LEFT_BEHIND.fullmatch(item.name)]
    damage = _missing(listed, needed)
    unfolded = _unless_damaged(damage, lambda: _open_rows(files, log_state))
    pending_bytes, pending = _unless_damaged(damage, lambda: _uncommitted(storage, log_state)) or (0, None)
    capture = _capture(storage, spec, (log_state, lease), damage)
    problems = [f"damaged: {problem}" for problem in damage]
    values = [m for m in log_state.segments if not m.tombstone and m.role != "belief"]
    rows = sum(m.rows for m in values)
    deltas = sum(m.role == "delta" for m in log_state.segments)
    if unfolded is not None and is_due(log_state):
        problems.append(f"needs compaction ({deltas} deltas)")
    if pending or (pending is None and pending_bytes):
        count = "" if pending is None else f"{pending} "
        problems.append(f"{count}uncommitted puts ({pending_bytes} bytes of changelog)")
    removable = _removable(files, log_state, spare)
    if removable:
        problems.append(f"needs vacuum ({removable} bytes of unreferenced files)")
    versions = log_state.versions
    return TableSummary(
        version=log_state.version,
        oldest_version=0 if log_state.horizon is None else log_state.horizon.version,
        keys=None if unfolded is None else sum(unfolded[m.name] for m in values),
        rows=rows,
        first_time=min((m.min_valid_from for m in values), default=None),
        last_time=log_state.stream_time,
        kept_from=None if log_state.horizon is None else log_state.horizon.time,
        segments=len(log_state.segments),
        deltas=deltas,
        bytes=sum(item.bytes for item in listed if item.name in needed),
        disk_bytes=sum(item.bytes for item in listed) + own_bytes(storage),
        changelog_bytes=pending_bytes,
        uncommitted=pending,
        cache_bytes=tier_bytes(storage, listed),
        unreferenced_bytes=sum(item.bytes for item in spare),
        last_commit=versions.timestamp_at(log_state.version),
        writer=versions.writer_at(log_state.version),
        problems=tuple(problems),
        damaged=bool(damage),
        notes=() if capture is None else capture.notes(),
        details=() if capture is None else capture.details(),
        captured=None if capture is None else capture.as_json(),
    )


def _capture(
    storage: Storage, spec: StoreSpec, seen: tuple[LogState, Lease | None], damage: list[str]
) -> CaptureSummary | None:
    if spec.captured is None:
        return None
    oldest = _unless_damaged(damage, lambda: oldest_row(VersionedTable(storage, spec, seen)))
    return capture_summary(spec, seen[0], oldest)


def _unless_damaged(damage: list[str], find: Callable[[], Found]) -> Found | None:
    """Return the result of ``find``; None if files are damaged, after the damage is added to ``damage``."""
    try:
        return find()
    except (CorruptError, NotFoundError) as error:
        if not any(reported in error.message for reported in damage):
            damage.append(str(error))
        return None


def _missing(listed: list[ObjectInfo], needed: set[str]) -> list[str]:
    return [f"{name} is missing" for name in sorted(needed - {item.name for item in listed})]


def _open_rows(files: SegmentFiles, log_state: LogState) -> dict[str, int]:
    """Return the number of open rows of each segment."""
    return {
        segment.meta.name: _open_rows_of(files, segment)
        for segment in with_closures(log_state.segments, log_state.closures)
    }


def _open_rows_of(files: SegmentFiles, segment: SegmentWithClosures) -> int:
    meta, closures = segment.meta, segment.closures
    if meta.max_valid_to != OPEN or meta.role == "belief":
        return 0
    if meta.min_valid_to == OPEN and len(closures) < 2:
        return meta.rows - sum(piece.count for piece in closures)
    if meta.min_valid_to == OPEN:  # a row may be closed more than once
        closed = [files.closures(piece, meta.rows)[0] for piece in closures]
        return meta.rows - len(np.unique(np.concatenate(closed)))
    return int(np.count_nonzero(newest_ends(files, segment) == OPEN))


def _uncommitted(storage: Storage, log_state: LogState) -> tuple[int, int | None]:
    """Return (bytes, puts) that are acknowledged and not committed; puts is None where counting would take long."""
    root = own_folder(storage)
    if root is None:
        return 0, 0
    size, puts = 0, 0
    paths = [root / CHANGELOGS / name for name in names_in(root / CHANGELOGS) if OURS.fullmatch(name)]
    ends = consumed_ends(storage, log_state, [path.name for path in paths])
    for path in paths:
        done = ends.get(path.name, 0)
        with contextlib.suppress(FileNotFoundError):  # committed in the meantime
            behind = _size(path) - done
            if behind > 0:
                size += behind
                if size <= MAX_COUNTED_BYTES:
                    puts += sum(batch.num_rows for batch, _ in read_changelog(path, None, done))
    if size > MAX_COUNTED_BYTES:
        return size, None
    return (size, puts) if puts else (0, 0)  # a file without records has only its schema


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        raise
    except OSError as error:
        raise storage_error(error, "look at", path) from error


def _removable(files: SegmentFiles, log_state: LogState, spare: list[ObjectInfo]) -> int:
    """Return the bytes that `vacuum` would free."""
    return sum(item.bytes for item in run_vacuum(files, log_state, None, dry_run=True)) if spare else 0
