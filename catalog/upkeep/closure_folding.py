"""Folding: pending closures become stored ends, and beliefs of earlier commits become belief rows.

The rules are those of docs/format.md. A first closing that lies at or after the stream time before its commit is
punctual and only fills the end. Any other closing (a late one, a second shortening, a replacement) also copies the
previous row, marked with the commit that dropped that belief, and marks the row split. A replaced row leaves no main
row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from statestore.catalog.log.entries import Horizon
from statestore.catalog.log.log_state import LogState
from statestore.catalog.reads.row_ends import SegmentWithClosures
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.kernels.arrays import Bools, Ints
from statestore.formats.segments.segment_meta import OPEN

Numbers = npt.NDArray[np.int32]


@dataclass(frozen=True)
class FoldedRows:
    """The system columns of rows of one segment, after folding; ``row`` is the row's number in the segment.

    ``dropped`` is the commit that dropped a belief; 0 for other rows. Times are epoch microseconds.
    """

    row: Numbers
    start: Ints
    end: Ints
    added: Ints
    closed: Ints
    split: Bools
    dropped: Ints

    def __len__(self) -> int:
        return len(self.row)

    def take(self, rows: Ints | Bools) -> FoldedRows:
        return FoldedRows(*(column[rows] for column in vars(self).values()))


def fold(
    files: SegmentFiles, log_state: LogState, segment: SegmentWithClosures, chosen: Numbers | None = None
) -> tuple[FoldedRows, list[FoldedRows]]:
    """Return (the rows that stay, the beliefs that folding made) of a segment with all its closures folded.

    ``chosen``: only these rows, ascending.
    """
    rows = stored_rows(files, segment, chosen)
    if segment.closures:
        rows = FoldedRows(rows.row, rows.start, rows.end.copy(), rows.added, *_copies(rows), rows.dropped)
    kept = np.ones(len(rows), bool)
    beliefs = _apply(files, log_state, segment, rows, kept)
    if log_state.horizon is not None:
        kept &= ~_expired(rows, log_state.horizon, segment.meta.tombstone)
    return rows if kept.all() else rows.take(kept), beliefs


def _copies(rows: FoldedRows) -> tuple[Ints, Bools]:
    return rows.closed.copy(), rows.split.copy()


def stored_rows(files: SegmentFiles, segment: SegmentWithClosures, chosen: Numbers | None = None) -> FoldedRows:
    """Return all or the ``chosen`` rows of a segment as stored; all are views of its file where that is possible."""
    file = files.open_segment(segment.meta)
    count = segment.meta.rows if chosen is None else len(chosen)
    rows = slice(None) if chosen is None else chosen
    return FoldedRows(
        np.arange(count, dtype=np.int32) if chosen is None else chosen,
        file.int64("valid_from")[rows],
        file.int64("valid_to")[rows],
        file.int64("_added")[rows],
        file.int64("_closed")[rows],
        file.bools("_split")[rows],
        file.int64("_dropped")[rows] if segment.meta.role == "belief" else never(count),
    )


def never(count: int) -> Ints:
    """Return zeros that take no memory."""
    zeros: Ints = np.broadcast_to(np.int64(0), count)
    return zeros


def _apply(
    files: SegmentFiles, log_state: LogState, segment: SegmentWithClosures, rows: FoldedRows, kept: Bools
) -> list[FoldedRows]:
    """Fold the closures into ``rows`` (in place) in commit order; return the belief rows."""
    beliefs = []
    for piece in segment.closures:
        closed, ends = files.closures(piece, segment.meta.rows)
        if len(rows) < segment.meta.rows:
            closed, ends = _among(rows.row, closed, ends)
        before = log_state.versions.stream_time_before(np.array([piece.version]))[0]
        replaced = ends <= rows.start[closed]
        punctual = (rows.end[closed] == OPEN) & (ends >= before) & ~replaced
        revised = closed[~punctual]
        if len(revised):
            was = rows.take(revised)
            dropped = np.full(len(revised), piece.version)
            beliefs.append(FoldedRows(was.row, was.start, was.end, was.added, was.closed, was.split, dropped))
            rows.split[revised] = True
        rows.end[closed] = ends
        rows.closed[closed] = piece.version
        kept[closed[replaced]] = False
    return beliefs


def _among(row: Numbers, closed: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """Return the closures of the rows in ``row``, which ascends, by their positions there."""
    at = np.searchsorted(row, closed)
    found = at < len(row)
    found[found] = row[at[found]] == closed[found]
    return at[found], ends[found]


def _expired(rows: FoldedRows, horizon: Horizon, tombstone: bool) -> Bools:
    """Return a mask of the rows that no readable (version, time) holds."""
    expired: Bools = (rows.end <= horizon.time) & (rows.closed <= horizon.version)
    if tombstone:  # an open tombstone before the horizon means the same as no row
        expired |= (rows.end == OPEN) & (rows.start <= horizon.time) & (rows.added <= horizon.version)
    return expired
