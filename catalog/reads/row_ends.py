"""The belief of a commit about each row: the end of the row at version v, or the absence of the row.

These are the rules of docs/format.md ("Belief"). A row counts at v if it was added by then and not dropped. Its end is
the newest closure of a commit up to v, else the stored end if the commit that gave it is not later than v, else open. A
split row whose stored end came later is represented by its belief row. Ends are epoch microseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.kernels.arrays import Ints
from statestore.formats.segments.segment_meta import OPEN, ClosureSlice, SegmentMeta

ABSENT = -(2**63)  # the "end" of a row that a version does not have: before every time


@dataclass(frozen=True)
class SegmentWithClosures:
    """One segment of a log state: its statistics and the closures that are not folded, in version order."""

    meta: SegmentMeta
    closures: tuple[ClosureSlice, ...] = ()

    def until(self, version: int) -> SegmentWithClosures:
        return SegmentWithClosures(self.meta, tuple(c for c in self.closures if c.version <= version))


def newest_ends(files: SegmentFiles, segment: SegmentWithClosures) -> Ints:
    """Return the ends as of the newest version; the end of a replaced row is its own start."""
    return files.newest_ends(segment.meta, segment.closures)


def chosen_ends(files: SegmentFiles, segment: SegmentWithClosures, rows: Ints) -> Ints:
    """Return the ends of these rows as of the newest version, like `newest_ends`, at a cost that follows their
    number."""
    ends: Ints = files.open_segment(segment.meta).int64("valid_to")[rows]
    waiting = np.arange(len(rows))  # positions of rows for which no closure was found yet
    for piece in reversed(segment.closures):
        if not len(waiting):
            break
        closed_rows, new_ends = files.closures(piece, segment.meta.rows)
        asked = rows[waiting]
        at = np.searchsorted(closed_rows, asked)
        at[at == len(closed_rows)] = 0
        hit = closed_rows[at] == asked
        if hit.any():
            ends[waiting[hit]] = new_ends[at[hit]]
            waiting = waiting[~hit]
    return ends


def ends_at(files: SegmentFiles, segment: SegmentWithClosures, version: int) -> Ints:
    """Return the ends in the belief of the commit ``version``; ABSENT where that version does not have the row."""
    file = files.open_segment(segment.meta)
    ends = file.int64("valid_to").copy()
    later = file.int64("_closed") > version
    if later.any():
        ends[later] = np.where(file.bools("_split")[later], ABSENT, OPEN)
    for piece in segment.closures:
        if piece.version <= version:
            rows, new_ends = files.closures(piece, segment.meta.rows)
            ends[rows] = new_ends
    if segment.meta.max_added > version:
        ends[file.int64("_added") > version] = ABSENT
    if segment.meta.role == "belief":
        ends[file.int64("_dropped") <= version] = ABSENT
    return ends


def pair_ends(files: SegmentFiles, segment: SegmentWithClosures, rows: Ints, versions: Ints) -> Ints:
    """Return ends like `ends_at`, for chosen rows, each at its own version."""
    file = files.open_segment(segment.meta)
    ends = file.int64("valid_to")[rows].copy()
    later = file.int64("_closed")[rows] > versions
    ends[later] = np.where(file.bools("_split")[rows][later], ABSENT, OPEN)
    for piece in segment.closures:
        closed_rows, new_ends = files.closures(piece, segment.meta.rows)
        at = np.searchsorted(closed_rows, rows)
        at[at == len(closed_rows)] = 0
        hit = (closed_rows[at] == rows) & (versions >= piece.version)
        ends[hit] = new_ends[at[hit]]
    ends[file.int64("_added")[rows] > versions] = ABSENT
    if segment.meta.role == "belief":
        ends[file.int64("_dropped")[rows] <= versions] = ABSENT
    return ends


def with_closures(
    metas: Sequence[SegmentMeta], closures: Mapping[str, tuple[ClosureSlice, ...]]
) -> list[SegmentWithClosures]:
    """Return these segments with their closures, given by segment name."""
    return [SegmentWithClosures(meta, closures.get(meta.name, ())) for meta in metas]
