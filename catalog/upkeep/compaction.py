"""Compaction: fewer, folded segments with the same answer at every kept (version, time).

A *minor* compaction merges deltas and re-addresses their closures. A *major* one separates the rows of the open segment
and the deltas: open rows become the new open segment, closed rows become closed segments in order of end, and rows that
end before the newest closed segment become late segments, cut by end likewise. A *fold* rewrites a closed segment only
for its pending closures and late rows. A *cold merge* joins neighbours. Rules and figures: docs/format.md,
docs/decisions/017-compaction.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from statestore.catalog.commits.new_files import NewFiles, RowBlock, late_rows
from statestore.catalog.log.log_state import LogState
from statestore.catalog.reads.row_ends import SegmentWithClosures, newest_ends, with_closures
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.catalog.upkeep.closure_folding import Folded, Source, fold, join_blocks, read_block
from statestore.formats.segments.segment_meta import OPEN, ClosureSlice, Role, SegmentMeta

Ints = npt.NDArray[np.int64]

SEAL_RATIO = 0.5  # x: closed rows in the open segment and deltas, in units of live rows, that make a major due
SEAL_MIN_ROWS = 100_000  # a smaller store can be read as it is
MINOR_DELTAS = 64
FOLD_RATIO = 0.25  # f
COLD_RATIO = 0.8
LATE_MIN_ROWS = 16_384  # late rows are not cut into files smaller than this
BELIEF_FILES = 8


@dataclass
class Rewrite:
    """Replaced segments, and the new location of each row: (number in ``new.segments``, row there), -1 if gone."""

    new: NewFiles = field(default_factory=NewFiles)
    removed: list[SegmentMeta] = field(default_factory=list)
    moved: dict[str, tuple[Ints, Ints]] = field(default_factory=dict)


@dataclass(frozen=True)
class Backlog:
    """The numbers that decide whether a major compaction is due."""

    live: int
    closed: int
    deltas: int


def compact(files: SegmentFiles, log_state: LogState, full: bool, claimed: str = "") -> Rewrite:
    """Return the rewrite that is due by the defaults, or (``full``) of everything that can be folded, without
    publishing it.

    ``claimed`` is the claim under which its files will be created.
    """
    rewrite = Rewrite(NewFiles(claimed))
    for tombstone in (False, True):
        segments = [v for v in with_closures(log_state.segments, log_state.closures) if v.meta.tombstone == tombstone]
        recent = [v for v in segments if v.meta.role in ("open", "delta")]
        load = _backlog(files, recent)
        sealed = [v for v in segments if v.meta.role in ("closed", "late")]
        if recent and _major_due(load, recent, full):
            _major(files, log_state, rewrite, recent, sealed, load.live)
        elif load.deltas >= MINOR_DELTAS:
            _minor(files, log_state, rewrite, [v for v in recent if v.meta.role == "delta"])
        for group in _fold_groups(sealed, load.live, full):
            _refold(files, log_state, rewrite, group, load.live)
    _merge_beliefs(files, log_state, rewrite, full)
    return rewrite


def _backlog(files: SegmentFiles, recent: list[SegmentWithClosures]) -> Backlog:
    rows = closed = 0
    for segment in recent:
        rows += segment.meta.rows
        closed += int(np.count_nonzero(newest_ends(files, segment) != OPEN))
    return Backlog(rows - closed, closed, sum(v.meta.role == "delta" for v in recent))


def _major_due(load: Backlog, recent: list[SegmentWithClosures], full: bool) -> bool:
    if full:
        return load.deltas > 0 or any(v.closures for v in recent)
    return load.closed >= max(SEAL_RATIO * load.live, SEAL_MIN_ROWS)


def _major(
    files: SegmentFiles,
    log_state: LogState,
    rewrite: Rewrite,
    recent: list[SegmentWithClosures],
    sealed: list[SegmentWithClosures],
    live: int,
) -> None:
    folded = fold(files, log_state, recent)
    tombstone = recent[0].meta.tombstone
    is_open = folded.rows.end == OPEN
    border = max((v.meta.max_valid_to for v in sealed if v.meta.role == "closed"), default=-(2**63))
    late = ~is_open & (folded.rows.end < border)
    destinations = _Destinations(len(folded.rows))
    writer = _Writer(files, log_state, rewrite, folded, tombstone, destinations)
    writer.add_segment("open", np.flatnonzero(is_open))
    for rows in _by_end(folded.rows, np.flatnonzero(~is_open & ~late), int(max(SEAL_RATIO * live, SEAL_MIN_ROWS))):
        writer.add_segment("closed", rows)
    borders = np.sort(np.array([v.meta.max_valid_to for v in sealed], np.int64))
    for rows in _late_cuts(folded.rows, np.flatnonzero(late), borders):
        writer.add_segment("late", rows)
    writer.beliefs()
    _record_moves(rewrite, recent, folded.source, destinations)


def _minor(files: SegmentFiles, log_state: LogState, rewrite: Rewrite, deltas: list[SegmentWithClosures]) -> None:
    folded = fold(files, log_state, deltas, keep_closures=True)
    destinations = _Destinations(len(folded.rows))
    writer = _Writer(files, log_state, rewrite, folded, deltas[0].meta.tombstone, destinations)
    writer.add_segment("delta", np.arange(len(folded.rows)))
    _record_moves(rewrite, deltas, folded.source, destinations)
    rewrite.new.add_closures(moved_closures(files, rewrite, [c for segment in deltas for c in segment.closures]))


def _fold_groups(sealed: list[SegmentWithClosures], live: int, full: bool) -> list[list[SegmentWithClosures]]:
    """Return the closed segments to rewrite with the late segments among their ends, and cold neighbours to merge."""
    closed = sorted((v for v in sealed if v.meta.role == "closed"), key=lambda v: v.meta.max_valid_to)
    late = [v for v in sealed if v.meta.role == "late"]
    groups: list[list[SegmentWithClosures]] = []
    taken: set[str] = set()
    for segment in closed:
        mine = [s for s in late if s.meta.name not in taken and _ends_overlap(s.meta, segment.meta)]
        pending = sum(c.count for v in (segment, *mine) for c in v.closures)
        load = pending + sum(s.meta.rows for s in mine)
        if load and (full or load >= FOLD_RATIO * segment.meta.rows):
            groups.append([segment, *mine])
            taken.update(v.meta.name for v in groups[-1])
    rest = [v for v in late if v.meta.name not in taken and full and v.closures]
    groups += [[v] for v in rest]
    cold = [v for v in closed if v.meta.name not in taken and not v.closures]
    return groups + _cold_neighbours(cold, live)


def _cold_neighbours(cold: list[SegmentWithClosures], live: int) -> list[list[SegmentWithClosures]]:
    groups: list[list[SegmentWithClosures]] = []
    pack: list[SegmentWithClosures] = []
    limit = max(COLD_RATIO * live, SEAL_MIN_ROWS)
    for segment in cold:
        if sum(v.meta.rows for v in pack) + segment.meta.rows > limit:
            groups, pack = ([*groups, pack] if len(pack) > 1 else groups), []
        pack.append(segment)
    return [*groups, pack] if len(pack) > 1 else groups


def _ends_overlap(left: SegmentMeta, right: SegmentMeta) -> bool:
    return left.min_valid_to <= right.max_valid_to and right.min_valid_to <= left.max_valid_to


def _refold(
    files: SegmentFiles, log_state: LogState, rewrite: Rewrite, group: list[SegmentWithClosures], live: int
) -> None:
    folded = fold(files, log_state, group)
    destinations = _Destinations(len(folded.rows))
    writer = _Writer(files, log_state, rewrite, folded, group[0].meta.tombstone, destinations)
    role: Role = "closed" if any(v.meta.role == "closed" for v in group) else "late"
    limit = int(max(COLD_RATIO * live, SEAL_MIN_ROWS, max(v.meta.rows for v in group)))
    for rows in _by_end(folded.rows, np.arange(len(folded.rows)), limit):
        writer.add_segment(role, rows)
    writer.beliefs()
    _record_moves(rewrite, group, folded.source, destinations)


def _merge_beliefs(files: SegmentFiles, log_state: LogState, rewrite: Rewrite, full: bool) -> None:
    for tombstone in (False, True):
        segments = [
            SegmentWithClosures(m) for m in log_state.segments if m.role == "belief" and m.tombstone == tombstone
        ]
        if len(segments) < (2 if full else BELIEF_FILES):
            continue
        blocks = [read_block(files, v) for v in segments]
        joined = join_blocks(blocks, len(blocks[0].columns))
        joined = joined.take(np.argsort(joined.start, kind="stable"))
        rewrite.new.add_segment(files.spec, joined, "belief", tombstone, late_rows(log_state, joined))
        rewrite.removed += [v.meta for v in segments]


class _Destinations:
    """The location to which each folded row is written; a row that is not written has row -1."""

    def __init__(self, count: int) -> None:
        self.segment_index = np.full(count, -1, np.int64)
        self.row = np.full(count, -1, np.int64)


@dataclass(frozen=True)
class _Writer:
    files: SegmentFiles
    log_state: LogState
    rewrite: Rewrite
    folded: Folded
    tombstone: bool
    destinations: _Destinations

    def add_segment(self, role: Role, rows: Ints) -> None:
        """Write these folded rows, sorted by start, as one segment."""
        if not len(rows):
            return
        rows = rows[np.argsort(self.folded.rows.start[rows], kind="stable")]
        block = self.folded.rows.take(rows)
        late = late_rows(self.log_state, block)
        self.destinations.segment_index[rows] = len(self.rewrite.new.segments)
        self.rewrite.new.add_segment(self.files.spec, block, role, self.tombstone, late)
        self.destinations.row[rows] = np.arange(len(rows))

    def beliefs(self) -> None:
        block = self.folded.beliefs
        if len(block):
            block = block.take(np.argsort(block.start, kind="stable"))
            late = late_rows(self.log_state, block)
            self.rewrite.new.add_segment(self.files.spec, block, "belief", self.tombstone, late)


def _by_end(block: RowBlock, rows: Ints, limit: int) -> list[Ints]:
    """Return rows in order of end, in parts of at most ``limit`` rows and about equal size."""
    if not len(rows):
        return []
    ordered = rows[np.argsort(block.end[rows], kind="stable")]
    return np.array_split(ordered, -(-len(ordered) // limit))


def _late_cuts(block: RowBlock, rows: Ints, borders: Ints) -> list[Ints]:
    """Return late rows cut where the sealed segments end, in parts of at least LATE_MIN_ROWS rows."""
    ordered = rows[np.argsort(block.end[rows], kind="stable")]
    cuts: list[Ints] = []
    begin = 0
    for stop in [*np.searchsorted(block.end[ordered], borders, side="right").tolist(), len(ordered)]:
        if stop - begin >= LATE_MIN_ROWS or (stop == len(ordered) and stop > begin):
            cuts.append(ordered[begin:stop])
            begin = stop
    return cuts


def _record_moves(
    rewrite: Rewrite, segments: list[SegmentWithClosures], source: Source, destinations: _Destinations
) -> None:
    for number, segment in enumerate(segments):
        mine = source.segment_index == number
        segment_index = np.full(segment.meta.rows, -1, np.int64)
        row = np.full(segment.meta.rows, -1, np.int64)
        segment_index[source.row[mine]] = destinations.segment_index[mine]
        row[source.row[mine]] = destinations.row[mine]
        rewrite.moved[segment.meta.name] = (segment_index, row)
        rewrite.removed.append(segment.meta)


def moved_closures(
    files: SegmentFiles, rewrite: Rewrite, pieces: list[ClosureSlice]
) -> list[tuple[str, int, Ints, Ints]]:
    """Return closures on rewritten segments with the new locations of their rows: (segment, version, rows, ends)."""
    parts: dict[tuple[int, str], list[tuple[Ints, Ints]]] = {}
    for piece in pieces:
        moved = rewrite.moved[piece.segment]
        rows, ends = files.closures(piece, len(moved[0]))
        new_index, new_row = (array[rows] for array in moved)
        for number in np.unique(new_index[new_index >= 0]).tolist():
            mine = new_index == number
            key = (piece.version, rewrite.new.segments[number].name)
            parts.setdefault(key, []).append((new_row[mine], ends[mine]))
    result = []
    for (version, name), found in sorted(parts.items()):
        rows = np.concatenate([r for r, _ in found])
        ends = np.concatenate([e for _, e in found])
        order = np.argsort(rows)
        result.append((name, version, rows[order], ends[order]))
    return result
