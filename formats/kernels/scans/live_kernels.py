"""A compiled loop that judges the rows of many parts of segments: which of them a window of state time has.

It is the numpy code of ``statestore.catalog.reads.scan`` in one pass, with the rules of docs/format.md ("Belief").
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from statestore.formats.kernels.arrays import Ints
from statestore.formats.kernels.compiled import I64, U64, inlined, kernel
from statestore.formats.kernels.scans.addresses import byte_at, copy_memory, half_at, word_at

Rows = npt.NDArray[np.int32]
Numbers = npt.NDArray[np.int64]  # of two dimensions

OPEN = 2**63 - 1
ABSENT = -(2**63)

# Columns of the table of parts. An address of 0 says that the column need not be read.
FIRST, COUNT, BEFORE = 0, 1, 2  # the first row within its batch, the number of rows, and the first row in the segment
JUDGED, MARKS = 3, 4  # whether rows may not belong to the window; the marks of all rows of the segment
ENDS, STARTS, ADDED, CLOSED, SPLIT, DROPPED = 5, 6, 7, 8, 9, 10  # columns of the batch
RUNS, STOP_RUNS = 11, 12  # the runs of closures of the segment
PART_COLUMNS = 13

# Columns of the table of runs of closures: addresses of rows (u32), ends (i64) and numbers (u32), how many there are,
# and the number from which on closures do not count.
RUN_ROWS, RUN_ENDS, RUN_NUMBERS, RUN_COUNT, RUN_LIMIT = 0, 1, 2, 3, 4
RUN_COLUMNS = 5


@inlined
def _lower_bound(rows: int, count: int, row: int) -> Any:
    """The position of the first of ascending rows that is not less than ``row``."""
    low, high = I64(0), I64(count)
    while low < high:
        middle = (low + high) >> 1
        if I64(half_at(rows + 4 * middle)) < row:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def live_rows(
    parts: Numbers, runs: Numbers, low: int, high: int, version: int, rows: Rows, ends: Ints, bounds: Ints
) -> None:
    """Fill in the rows of each part that belong to the window [low, high], and their ends.

    Part p has ``rows[bounds[p] : bounds[p + 1]]``, counted in its batch. There is room for all rows of all parts, and
    for one more. Ends are filled in for the parts that have an address of ends or of marks. ``version`` is a commit, or
    one after all of them.
    """
    filled = I64(0)
    for p in range(len(parts)):
        bounds[p] = filled
        first, count, before = parts[p, FIRST], parts[p, COUNT], parts[p, BEFORE]
        judged, stored = parts[p, JUDGED] != 0, parts[p, ENDS]
        if parts[p, MARKS] != 0:
            marks = parts[p, MARKS]
            for i in range(count):
                row = before + i
                rows[filled] = first + i
                ends[filled] = OPEN
                filled += I64((byte_at(marks + (row >> 3)) >> U64(row & 7)) & U64(1))
            continue
        if stored == 0:
            for i in range(count):
                rows[filled + i] = first + i
            filled += count
            continue
        # The ends of all rows are made where they go. Later those of live rows are moved to the front.
        copy_memory(ends.ctypes.data + 8 * filled, stored + 8 * first, 8 * count)
        mine = ends[filled : filled + count]
        if parts[p, CLOSED] != 0:
            closed, split = parts[p, CLOSED] + 8 * first, parts[p, SPLIT]
            for i in range(count):
                if I64(word_at(closed + 8 * i)) > version:
                    row = first + i
                    is_split = (byte_at(split + (row >> 3)) >> U64(row & 7)) & U64(1)
                    mine[i] = ABSENT if is_split else OPEN
        for r in range(parts[p, RUNS], parts[p, STOP_RUNS]):
            at = _lower_bound(runs[r, RUN_ROWS], runs[r, RUN_COUNT], before)
            while at < runs[r, RUN_COUNT]:
                row = I64(half_at(runs[r, RUN_ROWS] + 4 * at)) - before
                if row >= count:
                    break
                if I64(half_at(runs[r, RUN_NUMBERS] + 4 * at)) < runs[r, RUN_LIMIT]:
                    mine[row] = I64(word_at(runs[r, RUN_ENDS] + 8 * at))
                at += 1
        if parts[p, ADDED] != 0:
            added = parts[p, ADDED] + 8 * first
            for i in range(count):
                if I64(word_at(added + 8 * i)) > version:
                    mine[i] = ABSENT
        if parts[p, DROPPED] != 0:
            dropped = parts[p, DROPPED] + 8 * first
            for i in range(count):
                if I64(word_at(dropped + 8 * i)) <= version:
                    mine[i] = ABSENT
        if not judged:
            for i in range(count):
                rows[filled + i] = first + i
            filled += count
        elif low == high:
            for i in range(count):
                end = mine[i]
                rows[filled] = first + i
                ends[filled] = end
                filled += I64(end > low)
        else:
            starts = parts[p, STARTS] + 8 * first
            for i in range(count):
                end = mine[i]
                rows[filled] = first + i
                ends[filled] = end
                filled += I64(end > low) & I64(end > I64(word_at(starts + 8 * i)))
    bounds[len(parts)] = filled
