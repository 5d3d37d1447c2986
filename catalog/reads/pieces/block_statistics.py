"""The statistics of all blocks of a log state as columns, so that a plan judges hundreds of blocks in a few steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from statestore.formats.kernels.arrays import Bools, Ints
from statestore.formats.segments.segment_meta import SegmentMeta

# Columns of the table. MAX_DROPPED is -1 but for belief segments.
SEGMENT, FIRST, ROWS, MIN_FROM, MAX_FROM, MIN_TO, MAX_TO, MIN_ADDED, LAST_CLOSED, SPLIT_CLOSED, LATE_ADDED = range(11)
MAX_DROPPED = 11
_COLUMNS = 12


@dataclass(frozen=True)
class BlockStatistics:
    """A row for each block of the segments without tombstones, in the order of the log state.

    SEGMENT is the position of its segment in ``segments``, FIRST its first row. The whole of a segment without blocks
    is one block.
    """

    segments: Sequence[SegmentMeta] = ()
    table: Ints = field(default_factory=lambda: np.empty((_COLUMNS, 0), np.int64))
    by_segment: dict[str, Ints] = field(default_factory=dict)

    def of(self, segments: Sequence[SegmentMeta]) -> BlockStatistics:
        """Return the statistics of other segments, some of which may be the same."""
        by_segment = {
            meta.name: known if (known := self.by_segment.get(meta.name)) is not None else _table(meta)
            for meta in segments
            if not meta.tombstone
        }
        tables = []
        for number, meta in enumerate(segments):
            if not meta.tombstone:
                mine = by_segment[meta.name].copy()
                mine[SEGMENT] = number
                tables.append(mine)
        table = np.concatenate(tables, axis=1) if tables else np.empty((_COLUMNS, 0), np.int64)
        return BlockStatistics(segments, table, by_segment)

    def touched(self, low: int, high: int, version: int, newest: bool) -> Ints:
        """Return the blocks that may have rows of a window of state times, as the version ``version`` believes them."""
        table = self.table
        found: Bools = (table[MIN_ADDED] <= version) & (table[MIN_FROM] <= high)
        if newest:
            found &= (table[MAX_TO] > low) & (table[MAX_DROPPED] < 0)
        else:
            found &= (table[MAX_TO] > low) | (table[LAST_CLOSED] > version)
            found &= (table[MAX_DROPPED] < 0) | (table[MAX_DROPPED] > version)
        return np.flatnonzero(found)


def _table(meta: SegmentMeta) -> Ints:
    """Return the statistics of one segment, by columns. A number that does not fit is refused by the caller's log."""
    dropped = meta.max_dropped if meta.role == "belief" else -1
    rows = [
        (
            0,
            first,
            block.rows,
            block.min_valid_from,
            block.max_valid_from,
            block.min_valid_to,
            block.max_valid_to,
            block.min_added,
            block.last_closed,
            block.split_closed,
            block.late_added,
            dropped,
        )
        for first, block in meta.spans()
    ]
    return np.array(rows, np.int64).reshape(-1, _COLUMNS).T.copy()
