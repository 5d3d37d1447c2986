"""Where each key's newest row is: one index over all segments, kept in memory from commit to commit.

A bulk writer looks up every key it writes. Without this it searches the key index of the open segment and of every
delta since the last compaction, and reads the ends of all their rows. Every key has at most one open row (its newest
version or tombstone), so one sorted array of key hashes finds them all. The index belongs to one version; a commit of
this process carries it on, anything else makes it stale, and then it is made anew when it is worth it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from statestore.catalog.row_state import newest_ends, views_of
from statestore.catalog.segment_files import SegmentFiles
from statestore.catalog.snapshot import Snapshot
from statestore.formats.segment_meta import OPEN

Ints = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]

MIN_KEYS = 4_096  # smaller commits search the segments: they would not pay for the index
MAX_ROWS = 20_000_000  # 28 bytes each


@dataclass
class CurrentRows:
    """Open rows by the hash of their key, no two of them equal. ``segment`` is a number in ``names``."""

    version: int
    hashes: Hashes
    segment: npt.NDArray[np.int32]
    row: Ints
    start: Ints
    names: list[str]

    def find(self, hashes: Hashes) -> tuple[Ints, Ints]:
        """(position in ``hashes``, entry) of those that are known; ``hashes`` ascend."""
        at = np.searchsorted(self.hashes, hashes)
        inside = np.flatnonzero(at < len(self.hashes))
        known = inside[self.hashes[at[inside]] == hashes[inside]]
        return known, at[known]


@dataclass(frozen=True)
class NewOpenRows:
    """Rows of one new segment that no version ends."""

    segment: str
    hashes: Hashes
    row: Ints
    start: Ints


@dataclass(frozen=True)
class OpenRowsChange:
    """What a commit does to the open rows: those it adds, how many it ends (-1: not known), and, where every key of its
    one segment had an entry in the index, these entries in the order of the rows."""

    added: tuple[NewOpenRows, ...]
    ended: int
    entries: Ints | None


def current_rows(files: SegmentFiles, snapshot: Snapshot, keys: int) -> CurrentRows | None:
    """The index of this snapshot, if a commit of so many keys is worth it and it is not the first such commit."""
    if keys < MIN_KEYS or files.spec.windowing is not None:
        return None
    found = files.current
    if isinstance(found, CurrentRows) and found.version == snapshot.version:
        return found
    files.bulk_commits += 1
    files.current = _build(files, snapshot) if files.bulk_commits > 1 else None
    return files.current if isinstance(files.current, CurrentRows) else None


def carry_on(files: SegmentFiles, snapshot: Snapshot, change: OpenRowsChange) -> None:
    """Bring the index to ``snapshot``, which a commit of this process made. Where the rows that it adds and ends do not
    replace each other one for one the index is given up."""
    found, added = files.current, change.added
    if not isinstance(found, CurrentRows) or found.version != snapshot.version - 1:
        files.current = None
        return
    hashes = np.concatenate([rows.hashes for rows in added]) if added else np.empty(0, np.uint64)
    if len(added) == 1 and bool((hashes[1:] >= hashes[:-1]).all()):
        order: Ints | slice = slice(None)
    else:
        order = np.argsort(hashes)
    hashes = hashes[order]
    if len(added) == 1 and change.entries is not None and len(change.entries) == len(hashes) == change.ended:
        known, entries = np.arange(len(hashes)), change.entries
    else:
        known, entries = found.find(hashes)
    if len(known) != change.ended or bool((hashes[1:] == hashes[:-1]).any()):
        files.current = None
        return
    if not added:
        found.version = snapshot.version
        return
    first = len(found.names)
    found.names += [rows.segment for rows in added]
    segment = np.concatenate([np.full(len(r.row), first + n, np.int32) for n, r in enumerate(added)])[order]
    row, start = (np.concatenate(c)[order] for c in ([r.row for r in added], [r.start for r in added]))
    found.segment[entries], found.row[entries], found.start[entries] = segment[known], row[known], start[known]
    new = np.ones(len(hashes), bool)
    new[known] = False
    if new.any():
        places = np.searchsorted(found.hashes, hashes[new])
        found.hashes = np.insert(found.hashes, places, hashes[new])
        found.segment = np.insert(found.segment, places, segment[new])
        found.row = np.insert(found.row, places, row[new])
        found.start = np.insert(found.start, places, start[new])
    found.version = snapshot.version


def _build(files: SegmentFiles, snapshot: Snapshot) -> CurrentRows | None:
    """None if there are too many rows, or two keys share a hash."""
    views = [v for v in views_of(snapshot.segments, snapshot.closures) if v.meta.role != "belief"]
    views = [v for v in views if v.meta.max_valid_to == OPEN]
    if sum(v.meta.rows for v in views) > MAX_ROWS:
        return None
    parts = []
    for number, view in enumerate(views):
        index = files.index(view.meta)
        rows = index.rows.astype(np.int64)
        is_open = newest_ends(files, view)[rows] == OPEN
        rows = rows[is_open]
        starts = files.segment(view.meta).int64("valid_from")[rows]
        parts.append((index.hashes[is_open], np.full(len(rows), number, np.int32), rows, starts))
    if not parts:
        parts = [(np.empty(0, np.uint64), np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.int64))]
    hashes, segment, row, start = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(hashes, kind="stable")  # sorted runs are merged
    hashes = hashes[order]
    if (hashes[1:] == hashes[:-1]).any():
        return None
    names = [view.meta.name for view in views]
    return CurrentRows(snapshot.version, hashes, segment[order], row[order], start[order], names)
