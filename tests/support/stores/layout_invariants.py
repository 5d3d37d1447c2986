"""Invariants of a store's layout that only tests check: they hold by construction, and cost more than a scan.

Each function returns a list of violations in words, which is empty if there is none.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from statestore.catalog.checks.invariants import closure_violations, segment_violations
from statestore.catalog.log.log_state import LogState
from statestore.catalog.reads.row_ends import ends_at, views_of
from statestore.catalog.reads.scan import TimeRange, plan
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.values.key_equality import keys_equal
from statestore.formats.values.key_hash import hash_keys


def layout_violations(files: SegmentFiles, snapshot: LogState) -> list[str]:
    """Check the invariants that do not depend on a chosen version and time."""
    found: list[str] = []
    for view in views_of(snapshot.segments, snapshot.closures):
        found += segment_violations(files, snapshot, view)
        found += closure_violations(files, view)
    return found + commit_violations(snapshot)


def commit_violations(snapshot: LogState) -> list[str]:
    """Check that commit times and stream times never decrease."""
    versions = snapshot.versions
    found = []
    for name in ("timestamp", "stream_time"):
        column = getattr(versions, name)
        if (column[1:] < column[:-1]).any():
            found.append(f"log: {name} goes back from one commit to the next")
    return found


def uniqueness_violations(files: SegmentFiles, snapshot: LogState, version: int) -> list[str]:
    """Check invariant 2: in the belief of a version, no key has two rows (values or tombstones) at one moment."""
    keys, hashes, starts, ends = [], [], [], []
    for view in views_of(snapshot.segments, snapshot.closures):
        segment = files.segment(view.meta)
        end = ends_at(files, view, version)
        start = segment.int64("valid_from")
        rows = np.flatnonzero(end > start)
        columns = [segment.column_array(n).take(pa.array(rows)) for n in files.spec.key_names]
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


def pruning_violations(files: SegmentFiles, snapshot: LogState, moment: int, version: int | None = None) -> list[str]:
    """Check invariant 4: a segment passed uncut has no dead row, a skipped one no live row."""
    window = _window(snapshot, moment, version)
    clamped = window.clamped(snapshot)
    pieces = {p.view.meta.name: p for p in plan(files, snapshot, window, ())}
    found = []
    for view in views_of(snapshot.segments, snapshot.closures):
        if view.meta.tombstone:
            continue
        starts = files.segment(view.meta).int64("valid_from")
        live = (starts <= clamped.high) & (ends_at(files, view, window.version) > clamped.low)
        piece = pieces.get(view.meta.name)
        read = np.zeros(len(starts), bool)
        if piece is not None:
            read[piece.start : piece.stop] = True
        if (live & ~read).any():
            found.append(f"{view.meta.name}: a read as of {moment} at {window.version} skips a live row")
        if piece is not None and not piece.cut and not live[read].all():
            found.append(f"{view.meta.name}: a read as of {moment} at {window.version} passes a dead row uncut")
    return found


def _window(snapshot: LogState, moment: int, version: int | None) -> TimeRange:
    chosen = snapshot.version if version is None else version
    return TimeRange(moment, moment, chosen, chosen == snapshot.version)
