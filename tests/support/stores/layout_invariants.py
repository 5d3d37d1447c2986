"""Invariants of a store's layout that only tests check: they hold by construction, and cost more than a scan.

Each function returns a list of violations in words, which is empty if there is none.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from statestore.catalog.checks.verify_files import closure_violations, segment_violations
from statestore.catalog.log.log_state import LogState
from statestore.catalog.reads.belief import TimeRange, ends_at, with_closures
from statestore.catalog.reads.plan import plan
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.values.key_equality import keys_equal
from statestore.formats.values.key_hash import hash_keys


def layout_violations(files: SegmentFiles, log_state: LogState) -> list[str]:
    """Check the invariants that do not depend on a chosen version and time."""
    violations: list[str] = []
    for segment in with_closures(log_state.segments, log_state.closures):
        violations += segment_violations(files, log_state, segment)
        violations += closure_violations(files, segment)
    return violations + commit_violations(log_state)


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


def pruning_violations(files: SegmentFiles, log_state: LogState, moment: int, version: int | None = None) -> list[str]:
    """Check invariant 4: a segment passed uncut has no dead row, a skipped one no live row."""
    window = _window(log_state, moment, version)
    clamped = window.clamped(log_state)
    pieces = plan(files, log_state, window, ())
    violations = []
    for segment in with_closures(log_state.segments, log_state.closures):
        if segment.meta.tombstone:
            continue
        starts = files.open_segment(segment.meta).int64("valid_from")
        live = (starts <= clamped.high) & (ends_at(files, segment, window.version) > clamped.low)
        read, uncut = np.zeros(len(starts), bool), np.zeros(len(starts), bool)
        for piece in pieces:
            if piece.segment.meta.name == segment.meta.name:
                read[piece.start : piece.stop] = True
                uncut[piece.start : piece.stop] = not piece.cut
        if (live & ~read).any():
            violations.append(f"{segment.meta.name}: a read as of {moment} at {window.version} skips a live row")
        if not live[uncut].all():
            violations.append(f"{segment.meta.name}: a read as of {moment} at {window.version} passes a dead row uncut")
    return violations


def _window(log_state: LogState, moment: int, version: int | None) -> TimeRange:
    chosen = log_state.version if version is None else version
    return TimeRange(moment, moment, chosen, chosen == log_state.version)
