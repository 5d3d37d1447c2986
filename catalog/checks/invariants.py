"""Invariants of a store's layout, as functions that tests and `verify` call.

Each function returns a list of violations in words, which is empty if there is none. The numbers are those of
docs/format.md, "Invariants". The functions read whole columns, so they cost as much as a scan of the store.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statestore.catalog.log.log_state import LogState
from statestore.catalog.reads.row_ends import SegmentWithClosures, ends_at, newest_ends, with_closures
from statestore.catalog.reads.scan import TimeRange, plan
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.catalog.upkeep.compaction import SEAL_MIN_ROWS, SEAL_RATIO
from statestore.formats.segments.segment_meta import OPEN
from statestore.formats.values.key_equality import keys_equal
from statestore.formats.values.key_hash import hash_keys

Ints = npt.NDArray[np.int64]


def layout_violations(files: SegmentFiles, log_state: LogState) -> list[str]:
    """Check the invariants that do not depend on a chosen version and time."""
    violations: list[str] = []
    for segment in with_closures(log_state.segments, log_state.closures):
        violations += segment_violations(files, log_state, segment)
        violations += closure_violations(files, segment)
    return violations + commit_violations(log_state)


def segment_violations(files: SegmentFiles, log_state: LogState, segment: SegmentWithClosures) -> list[str]:
    """Check that rows are sorted, and that the statistics by which reads prune are those of the rows."""
    meta, file = segment.meta, files.open_segment(segment.meta)
    starts, ends = file.int64("valid_from"), file.int64("valid_to")
    added, closed, split = file.int64("_added"), file.int64("_closed"), file.bools("_split")
    late = starts <= log_state.versions.stream_time_before(added)
    punctual = closed[(added < closed) & ~split]
    expected = {
        "rows": len(starts),
        "min_valid_from": int(starts.min()),
        "max_valid_from": int(starts.max()),
        "min_valid_to": int(ends.min()),
        "max_valid_to": int(ends.max()),
        "min_added": int(added.min()),
        "max_added": int(added.max()),
        "last_closed": int(punctual.max(initial=0)),
        "split_closed": int(closed[split].max(initial=0)),
        "late_added": int(added[late].max(initial=0)),
    }
    if meta.role == "belief":
        expected["max_dropped"] = int(file.int64("_dropped").max())
    violations = [
        f"{meta.name}: {name} is {getattr(meta, name)} in the log, {value} in the rows"
        for name, value in expected.items()
        if getattr(meta, name) != value
    ]
    if (starts[1:] < starts[:-1]).any():
        violations.append(f"{meta.name}: rows are not sorted by valid_from")
    if (ends <= starts).any():
        violations.append(f"{meta.name}: a row ends at or before its start")
    if ((closed == 0) != (ends == OPEN)).any():
        violations.append(
            f"{meta.name}: a row is open but a commit closed it, or it has an end but no commit closed it"
        )
    if not np.array_equal(
        hash_keys([file.column_array(n) for n in files.spec.key_names])[files.index(meta).rows],
        files.index(meta).hashes,
    ):
        violations.append(f"{meta.name}: the key index does not lead to the rows with those keys")
    return violations


def closure_violations(files: SegmentFiles, segment: SegmentWithClosures) -> list[str]:
    """Check invariant 1: ends only shrink, and a rewritten segment has only closures newer than the ends of its own
    rows.
    """
    violations = []
    file = files.open_segment(segment.meta)
    ends = file.int64("valid_to").copy()
    version = 0
    for piece in segment.closures:
        rows, new_ends = files.closures(piece, segment.meta.rows)
        if piece.version <= version:
            violations.append(f"{segment.meta.name}: closures are not in the order of their commits")
        version = piece.version
        if (new_ends >= ends[rows]).any():
            violations.append(f"{segment.meta.name}: commit {version} does not shorten a row it closes")
        if (new_ends < file.int64("valid_from")[rows]).any():
            violations.append(f"{segment.meta.name}: commit {version} closes a row before its start")
        if (file.int64("_closed")[rows] >= version).any():
            violations.append(
                f"{segment.meta.name}: commit {version} closes a row that a later commit has already closed"
            )
        if int(new_ends.min(initial=OPEN)) != piece.min_valid_to:
            violations.append(
                f"{segment.meta.name}: the least end of the closures of commit {version} is not the one in the log"
            )
        ends[rows] = new_ends
    return violations


def commit_violations(log_state: LogState) -> list[str]:
    """Check that commit times and stream times never decrease."""
    versions = log_state.versions
    violations = []
    for name in ("timestamp", "stream_time"):
        column = getattr(versions, name)
        if (column[1:] < column[:-1]).any():
            violations.append(f"log: {name} goes back from one commit to the next")
    return violations


def uniqueness_violations(files: SegmentFiles, log_state: LogState, version: int) -> list[str]:
    """Check invariant 2: in the belief of a version, no key has two rows (values or tombstones) at one moment."""
    keys, hashes, starts, ends = [], [], [], []
    for segment in with_closures(log_state.segments, log_state.closures):
        file = files.open_segment(segment.meta)
        end = ends_at(files, segment, version)
        start = file.int64("valid_from")
        rows = np.flatnonzero(end > start)
        columns = [file.column_array(n).take(pa.array(rows)) for n in files.spec.key_names]
        keys.append(columns)
        hashes.append(hash_keys(columns))
        starts.append(start[rows])
        ends.append(end[rows])
    if not starts:
        return []
    joined = [pa.concat_arrays([k[i] for k in keys]) for i in range(len(files.spec.key))]
    all_hashes, start, end = np.concatenate(hashes), np.concatenate(starts), np.concatenate(ends)
    order = np.lexsort((start, all_hashes))
    neighbours = np.flatnonzero(
        (all_hashes[order][1:] == all_hashes[order][:-1]) & (start[order][1:] < end[order][:-1])
    )
    left, right = order[neighbours], order[neighbours + 1]
    same = keys_equal(joined, left, joined, right)
    return [f"version {version}: {int(same.sum())} keys have two rows at one moment"] if same.any() else []


@dataclass(frozen=True)
class Touched:
    """The rows that a read of one moment touches, the live ones, and the bound of invariant 5 for the dead ones."""

    rows: int
    live: int
    bound: int

    @property
    def dead(self) -> int:
        return self.rows - self.live


def touched(files: SegmentFiles, log_state: LogState, moment: int, version: int | None = None) -> Touched:
    """Check invariant 5: dead rows touched <= x live (closed or open segments) + late segments spanning T + deltas."""
    window = _window(log_state, moment, version)
    rows = live = spare = 0
    for piece in plan(files, log_state, window, ()):
        ends = ends_at(files, piece.segment, window.version)[: piece.stop]
        rows += piece.stop
        live += int(np.count_nonzero(ends > window.clamped(log_state).low))
        if piece.segment.meta.role in ("delta", "late", "belief"):
            spare += piece.stop
    now = sum(int(np.count_nonzero(newest_ends(files, v) == OPEN)) for v in _value_segments(log_state))
    return Touched(rows, live, int(max(SEAL_RATIO * max(live, now), SEAL_MIN_ROWS)) + spare)


def _value_segments(log_state: LogState) -> list[SegmentWithClosures]:
    segments = with_closures(log_state.segments, log_state.closures)
    return [v for v in segments if v.meta.role in ("open", "delta") and not v.meta.tombstone]


def pruning_violations(files: SegmentFiles, log_state: LogState, moment: int, version: int | None = None) -> list[str]:
    """Check invariant 4: a segment passed uncut has no dead row, a skipped one no live row."""
    window = _window(log_state, moment, version)
    clamped = window.clamped(log_state)
    pieces = {p.segment.meta.name: p for p in plan(files, log_state, window, ())}
    violations = []
    for segment in with_closures(log_state.segments, log_state.closures):
        if segment.meta.tombstone:
            continue
        starts = files.open_segment(segment.meta).int64("valid_from")
        live = (starts <= clamped.high) & (ends_at(files, segment, window.version) > clamped.low)
        piece = pieces.get(segment.meta.name)
        read = np.zeros(len(starts), bool)
        if piece is not None:
            read[piece.start : piece.stop] = True
        if (live & ~read).any():
            violations.append(f"{segment.meta.name}: a read as of {moment} at {window.version} skips a live row")
        if piece is not None and not piece.cut and not live[read].all():
            violations.append(f"{segment.meta.name}: a read as of {moment} at {window.version} passes a dead row uncut")
    return violations


def _window(log_state: LogState, moment: int, version: int | None) -> TimeRange:
    chosen = log_state.version if version is None else version
    return TimeRange(moment, moment, chosen, chosen == log_state.version)
