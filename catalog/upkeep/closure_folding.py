"""Folding: pending closures become stored ends, and beliefs of earlier commits become belief rows.

The rules are those of docs/format.md. A first closing that lies at or after the stream time before its commit is
punctual and only fills the end. Any other closing (a late one, a second shortening, a replacement) also copies the
previous row, marked with the commit that dropped that belief, and marks the row split. A replaced row leaves no main
row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from statestore.catalog.log.entries import Horizon
from statestore.catalog.log.log_state import LogState
from statestore.catalog.reads.belief import SegmentWithClosures
from statestore.catalog.reads.fetching import fetch_segments
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.kernels.arrays import Bools, Ints
from statestore.formats.segments.decoded_columns import DecodedColumns
from statestore.formats.segments.segment import Segment
from statestore.formats.segments.segment_meta import OPEN

Numbers = npt.NDArray[np.int32]
Versions = npt.NDArray[np.int32 | np.int64]


@dataclass(frozen=True)
class FoldedRows:
    """Rows of several segments: the number of the segment, the row in it, and the system columns after folding.

    ``dropped`` is the commit that dropped a belief; 0 for other rows. Times are epoch microseconds. Numbers of versions
    take four bytes where these suffice.
    """

    source: npt.NDArray[np.int16 | np.int32]
    row: Numbers
    start: Ints
    end: Ints
    added: Versions
    closed: Versions
    split: Bools
    dropped: Versions

    def __len__(self) -> int:
        return len(self.row)

    def take(self, rows: Ints | Numbers) -> FoldedRows:
        # numpy converts other positions for each column, which takes three times as long as to take the rows.
        positions = rows.astype(np.intp, copy=False)
        columns: list[Any] = [
            column.take(positions) if column.strides != (0,) else never(len(positions))
            for column in vars(self).values()
        ]
        return FoldedRows(*columns)

    @staticmethod
    def joined(parts: Sequence[FoldedRows]) -> FoldedRows:
        """Return the rows of at least one part, one after the other."""
        if len(parts) == 1:
            return parts[0]
        names = [field.name for field in fields(FoldedRows)]
        return FoldedRows(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


class Inputs:
    """The segments that a rewriting reads, opened for it alone.

    What it decompresses displaces no column that readers use, and goes with it. ``kept_bytes`` bounds that memory.
    ``chosen``: only these rows of each segment are read, which ascend; None for all.
    """

    def __init__(
        self,
        files: SegmentFiles,
        segments: Sequence[SegmentWithClosures],
        kept_bytes: int,
        chosen: Sequence[Numbers] | None = None,
    ) -> None:
        kept = DecodedColumns(kept_bytes)
        self.segments = segments
        self.kept_bytes = kept_bytes
        self._chosen = chosen
        self._files = files
        fetch_segments(files, segments)
        self._opened = [files.open_apart(segment.meta, kept) for segment in segments]

    def opened(self, number: int) -> Segment:
        """Return an input; the length of its file is checked at each use, because it is mapped."""
        self._files.check_length(self.segments[number].meta.file)
        return self._opened[number]

    def count(self, number: int) -> int:
        """Return the number of rows that are read of an input."""
        return self.segments[number].meta.rows if self._chosen is None else len(self._chosen[number])

    def stored(self, numbers: range, newest: int) -> FoldedRows:
        """Return the rows of the segments of these numbers as stored; ``newest`` is the greatest version."""
        metas = [self.segments[number].meta for number in numbers]
        counts = [self.count(number) for number in numbers]
        total = sum(counts)
        version = np.int32 if newest < 1 << 31 else np.int64
        beliefs = any(meta.role == "belief" for meta in metas)
        rows = FoldedRows(
            np.repeat(np.array(numbers, np.int16 if numbers.stop < 1 << 15 else np.int32), counts),
            np.empty(total, np.int32),
            np.empty(total, np.int64),
            np.empty(total, np.int64),
            np.empty(total, version),
            np.empty(total, version),
            np.empty(total, bool),
            np.zeros(total, version) if beliefs else never(total),
        )
        begin = 0
        for number, meta in zip(numbers, metas, strict=True):
            file, mine = self.opened(number), slice(begin, begin + self.count(number))
            chosen = None if self._chosen is None else self._chosen[number]
            taken = slice(None) if chosen is None else chosen
            rows.row[mine] = np.arange(meta.rows, dtype=np.int32) if chosen is None else chosen
            rows.start[mine] = file.int64_rows("valid_from", 0, meta.rows)[taken]
            rows.end[mine] = file.int64_rows("valid_to", 0, meta.rows)[taken]
            rows.added[mine] = file.int64_rows("_added", 0, meta.rows)[taken]
            rows.closed[mine] = file.int64_rows("_closed", 0, meta.rows)[taken]
            rows.split[mine] = file.bools_rows("_split", 0, meta.rows)[taken]
            if meta.role == "belief":
                rows.dropped[mine] = file.int64_rows("_dropped", 0, meta.rows)[taken]
            begin = mine.stop
        return rows


def fold(
    files: SegmentFiles, log_state: LogState, inputs: Inputs, numbers: range
) -> tuple[FoldedRows, list[FoldedRows]]:
    """Return (the rows that stay, the beliefs that folding made) of these inputs with all their closures folded."""
    rows = inputs.stored(numbers, log_state.version)
    kept = np.ones(len(rows), bool)
    beliefs, begin = [], 0
    for number in numbers:
        segment = inputs.segments[number]
        mine = slice(begin, begin + inputs.count(number))
        part = FoldedRows(*(column[mine] for column in vars(rows).values()))
        beliefs += _apply(files, log_state, segment, part, kept[mine])
        if log_state.horizon is not None:
            kept[mine] &= ~_expired(part, log_state.horizon, segment.meta.tombstone)
        begin = mine.stop
    return rows if kept.all() else _compacted(rows, kept), beliefs


def _compacted(rows: FoldedRows, kept: Bools) -> FoldedRows:
    """Return the rows of a mask, in the memory of all rows."""
    positions = np.flatnonzero(kept)
    count = len(positions)
    for column in vars(rows).values():
        if column.strides != (0,):
            column[:count] = column.take(positions)
    return FoldedRows(*(column[:count] for column in vars(rows).values()))


def never(count: int) -> Versions:
    """Return zeros that take no memory."""
    zeros: Versions = np.broadcast_to(np.int32(0), count)
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
            dropped = np.full(len(revised), piece.version, rows.added.dtype)
            beliefs.append(replace(was, dropped=dropped))
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
