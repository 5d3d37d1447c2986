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
import pyarrow as pa

from statestore.catalog.commits.new_files import RowBlock
from statestore.catalog.log.entries import Horizon
from statestore.catalog.log.log_state import LogState
from statestore.catalog.reads.row_ends import SegmentWithClosures
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.segments.segment_meta import OPEN

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Source:
    """The origin of the rows of a block: number of the input segment, and row in it."""

    segment_index: Ints
    row: Ints

    def take(self, rows: Ints) -> Source:
        return Source(self.segment_index[rows], self.row[rows])


@dataclass(frozen=True)
class Folded:
    """Rows of several segments in input order, with their origins and the belief rows that folding made."""

    rows: RowBlock
    source: Source
    beliefs: RowBlock


def fold(
    files: SegmentFiles, log_state: LogState, segments: list[SegmentWithClosures], *, keep_closures: bool = False
) -> Folded:
    """Read the segments of one shape (values, or tombstones) and fold their closures.

    ``keep_closures``: fold nothing, for a compaction that re-addresses the closures instead.
    """
    blocks, sources, beliefs = [], [], []
    for number, segment in enumerate(segments):
        block = read_block(files, segment)
        kept = np.ones(len(block), bool)
        if not keep_closures:
            beliefs += _apply(files, log_state, segment, block, kept)
            kept &= ~_expired(block, log_state.horizon, segment.meta.tombstone)
        rows = np.flatnonzero(kept)
        blocks.append(block if len(rows) == len(block) else block.take(rows))
        sources.append(Source(np.full(len(rows), number), rows))
    source = Source(np.concatenate([s.segment_index for s in sources]), np.concatenate([s.row for s in sources]))
    width = len(blocks[0].columns)
    empty = read_block(files, segments[0]).take(np.empty(0, np.int64))
    nothing = RowBlock(empty.columns, *_no_rows(), np.empty(0, np.int64))
    return Folded(join_blocks(blocks, width), source, join_blocks([nothing, *beliefs], width))


def read_block(files: SegmentFiles, segment: SegmentWithClosures) -> RowBlock:
    """Return all rows of a segment as stored; the arrays that folding changes are copies."""
    file = files.open_segment(segment.meta)
    names = files.spec.key_names if segment.meta.tombstone else (*files.spec.key_names, *files.spec.value_names)
    return RowBlock(
        [file.column(name) for name in names],
        file.int64("valid_from"),
        file.int64("valid_to").copy(),
        file.int64("_added"),
        file.int64("_closed").copy(),
        file.bools("_split").copy(),
        file.int64("_dropped") if segment.meta.role == "belief" else None,
    )


def join_blocks(blocks: list[RowBlock], width: int) -> RowBlock:
    columns = [_concat([block.columns[i] for block in blocks]) for i in range(width)]
    dropped = [block.dropped for block in blocks if block.dropped is not None]
    return RowBlock(
        columns,
        np.concatenate([block.start for block in blocks]),
        np.concatenate([block.end for block in blocks]),
        np.concatenate([block.added for block in blocks]),
        np.concatenate([block.closed for block in blocks]),
        np.concatenate([block.split for block in blocks]),
        np.concatenate(dropped) if dropped else None,
    )


def _concat(columns: list[pa.Array | pa.ChunkedArray]) -> pa.ChunkedArray:
    chunks = [c for column in columns for c in (column.chunks if isinstance(column, pa.ChunkedArray) else [column])]
    return pa.chunked_array(chunks, type=columns[0].type)


def _no_rows() -> tuple[Ints, Ints, Ints, Ints, npt.NDArray[np.bool_]]:
    none = np.empty(0, np.int64)
    return none, none, none, none, np.empty(0, bool)


def _apply(
    files: SegmentFiles, log_state: LogState, segment: SegmentWithClosures, block: RowBlock, kept: npt.NDArray[np.bool_]
) -> list[RowBlock]:
    """Fold the closures into ``block`` (in place) in commit order; return the belief rows."""
    beliefs = []
    for piece in segment.closures:
        rows, ends = files.closures(piece, segment.meta.rows)
        before = log_state.versions.stream_time_before(np.array([piece.version]))[0]
        replaced = ends <= block.start[rows]
        punctual = (block.end[rows] == OPEN) & (ends >= before) & ~replaced
        revised = rows[~punctual]
        if len(revised):
            was = block.take(revised)
            dropped = np.full(len(revised), piece.version)
            beliefs.append(RowBlock(was.columns, was.start, was.end, was.added, was.closed, was.split, dropped))
        block.split[revised] = True
        block.end[rows] = ends
        block.closed[rows] = piece.version
        kept[rows[replaced]] = False
    return beliefs


def _expired(block: RowBlock, horizon: Horizon | None, tombstone: bool) -> npt.NDArray[np.bool_]:
    """Return a mask of the rows that no readable (version, time) holds."""
    if horizon is None:
        return np.zeros(len(block), bool)
    expired = (block.end <= horizon.time) & (block.closed <= horizon.version)
    if tombstone:  # an open tombstone before the horizon means the same as no row
        expired |= (block.end == OPEN) & (block.start <= horizon.time) & (block.added <= horizon.version)
    return expired
