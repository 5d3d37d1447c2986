"""The belief of a commit about each row: the end of the row at version v, or the absence of the row.

These are the rules of docs/format.md ("Belief"). A row counts at v if it was added by then and not dropped. Its end is
the newest closure of a commit up to v, else the stored end if the commit that gave it is not later than v, else open. A
split row whose stored end came later is represented by its belief row. Ends are epoch microseconds.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter

import numpy as np
import pyarrow as pa

from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.kernels.arrays import Ints
from statestore.formats.segments.segment import Segment
from statestore.formats.segments.segment_meta import OPEN, ClosureSlice, SegmentMeta

ABSENT = -(2**63)  # the "end" of a row that a version does not have: before every time
DENSE_SHARE = 8  # from this part of the rows on, one copy of all ends is quicker than a search for each row


@dataclass(frozen=True)
class SegmentWithClosures:
    """One segment of a log state: its statistics and the closures that are not folded, in version order."""

    meta: SegmentMeta
    closures: tuple[ClosureSlice, ...] = ()

    @cached_property
    def pending(self) -> int:
        """Number of its closures."""
        return sum(piece.count for piece in self.closures)

    def until(self, version: int) -> SegmentWithClosures:
        if not self.closures or self.closures[-1].version <= version:
            return self
        count = bisect_right(self.closures, version, key=attrgetter("version"))
        return SegmentWithClosures(self.meta, self.closures[:count])

    def since(self, version: int) -> tuple[ClosureSlice, ...]:
        """Return the closures of the commit ``version`` and of later ones."""
        if not self.closures or self.closures[-1].version < version:
            return ()
        return self.closures[bisect_left(self.closures, version, key=attrgetter("version")) :]


def newest_ends(files: SegmentFiles, segment: SegmentWithClosures) -> Ints:
    """Return the ends as of the newest version; the end of a replaced row is its own start."""
    return files.newest_ends(segment.meta, segment.closures)


def changed_ends(files: SegmentFiles, segment: SegmentWithClosures, start: int, stop: int) -> Ints | None:
    """Return what `newest_ends` has for the rows [start, stop); None if these are the stored ends."""
    if not segment.closures:
        return None
    pending, count = files.pending(segment.meta, segment.closures), len(segment.closures)
    if not pending.touches(start, stop, count):
        return None
    ends = files.open_segment(segment.meta).int64_rows("valid_to", start, stop).copy()
    pending.apply(ends, start, count)
    return ends


def ends_between(files: SegmentFiles, segment: SegmentWithClosures, start: int, stop: int) -> Ints:
    """Return what `newest_ends` has for the rows [start, stop), without a copy where no closure is pending."""
    changed = changed_ends(files, segment, start, stop)
    return files.open_segment(segment.meta).int64_rows("valid_to", start, stop) if changed is None else changed


def chosen_ends(files: SegmentFiles, segment: SegmentWithClosures, rows: Ints) -> Ints:
    """Return what `newest_ends` has for these rows, in their order."""
    if len(rows) > segment.meta.rows // DENSE_SHARE:
        return newest_ends(files, segment)[rows]
    ends = cells_of(files.open_segment(segment.meta), "valid_to", rows)
    if segment.closures:
        files.pending(segment.meta, segment.closures).update(ends, rows, len(segment.closures))
    return ends


def dead_rows(files: SegmentFiles, segment: SegmentWithClosures) -> int:
    """Return the number of rows that are not open as of the newest version."""
    meta = segment.meta
    if not segment.closures and meta.open_rows is not None:
        return meta.rows - meta.open_rows
    return meta.rows - files.open_marks(meta, segment.closures).open


def blocks_with_closures(files: SegmentFiles, segment: SegmentWithClosures) -> list[bool]:
    """Return, for each block of the segment, whether one of its rows has a pending closure."""
    spans = segment.meta.spans()
    if not segment.closures or len(spans) == 1:
        return [bool(segment.closures)] * len(spans)
    pending, count = files.pending(segment.meta, segment.closures), len(segment.closures)
    return [pending.touches(first, first + block.rows, count) for first, block in spans]


def ends_at(
    files: SegmentFiles, segment: SegmentWithClosures, version: int, start: int = 0, stop: int | None = None
) -> Ints:
    """Return the ends of the rows [start, stop) in the belief of the commit ``version``.

    The end is ABSENT where that version does not have the row.
    """
    meta = segment.meta
    stop = meta.rows if stop is None else stop
    file = files.open_segment(meta)
    ends = file.int64_rows("valid_to", start, stop).copy()
    # A later end of a row that this version has is one of ``last_closed`` or of a split row.
    if meta.role == "belief" or max(meta.last_closed, meta.split_closed) > version:
        later = file.int64_rows("_closed", start, stop) > version
        if later.any():
            ends[later] = np.where(file.bools_rows("_split", start, stop)[later], ABSENT, OPEN)
    known = segment.until(version)
    if known.closures:
        files.pending(meta, known.closures).apply(ends, start, len(known.closures))
    if meta.max_added > version:
        ends[file.int64_rows("_added", start, stop) > version] = ABSENT
    if meta.role == "belief":
        ends[file.int64_rows("_dropped", start, stop) <= version] = ABSENT
    return ends


def pair_ends(files: SegmentFiles, segment: SegmentWithClosures, rows: Ints, versions: Ints) -> Ints:
    """Return ends like `ends_at`, for chosen rows, each at its own version."""
    file = files.open_segment(segment.meta)
    ends = cells_of(file, "valid_to", rows)
    if not len(rows):
        return ends
    later = np.flatnonzero(cells_of(file, "_closed", rows) > versions)
    if len(later):
        ends[later] = np.where(cells_of(file, "_split", rows[later]) != 0, ABSENT, OPEN)
    if segment.closures:
        pending = files.pending(segment.meta, segment.closures)
        numbers = np.minimum(pending.numbers_at(versions), len(segment.closures))
        pending.update(ends, rows, numbers)
    ends[cells_of(file, "_added", rows) > versions] = ABSENT
    if segment.meta.role == "belief":
        ends[cells_of(file, "_dropped", rows) <= versions] = ABSENT
    return ends


def cells_of(file: Segment, name: str, rows: Ints) -> Ints:
    """Return the numbers of a column at these rows. Of a segment with blocks only their batches are read."""
    if not file.meta.blocks:
        return file.bools(name)[rows].astype(np.int64) if name == "_split" else file.int64(name)[rows]
    cells: Ints = np.array(file.take(name, rows).cast(pa.int64()).fill_null(OPEN))
    return cells


def with_closures(
    metas: Sequence[SegmentMeta], closures: Mapping[str, tuple[ClosureSlice, ...]]
) -> list[SegmentWithClosures]:
    """Return these segments with their closures, given by segment name."""
    return [SegmentWithClosures(meta, closures.get(meta.name, ())) for meta in metas]
