"""One step of a compaction: fewer, folded segments with the same answer at every kept (version, time).

Open rows become open segments in order of start. Ended rows become closed segments: in order of end, cut into blocks of
rows that ended at about the same time, each sorted by start. What earlier commits believed becomes belief segments. A
step writes block by block, so its memory is that of the system columns of its rows and of one block. Rules and figures:
docs/format.md, docs/decisions/010-compaction.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from statestore.catalog.commits.new_files import NewFiles
from statestore.catalog.log.log_state import LogState
from statestore.catalog.reads.belief import SegmentWithClosures
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.catalog.upkeep.closure_folding import FoldedRows, Inputs, Numbers, fold
from statestore.catalog.upkeep.compaction_plan import Rewriting, Step
from statestore.catalog.upkeep.compaction_rules import Rules
from statestore.catalog.upkeep.segment_output import Output, write_output
from statestore.formats.kernels.arrays import Ints
from statestore.formats.segments.segment_meta import OPEN, ClosureSlice, Role, SegmentMeta
from statestore.formats.values.packed_sort import positions_in_order


@dataclass
class Rewrite:
    """Replaced segments, and the new location of each row: (number in ``new.segments``, row there), -1 if gone."""

    new: NewFiles
    removed: list[SegmentMeta] = field(default_factory=list)
    moved: dict[str, tuple[Numbers, Numbers]] = field(default_factory=dict)


def run_step(
    files: SegmentFiles,
    log_state: LogState,
    step: Step,
    rules: Rules,
    new: NewFiles,
    stop: Callable[[], bool] = lambda: False,
) -> Rewrite:
    """Write the files of a step and record them in ``new``, without publishing them.

    Raises GivenUpError if ``stop``, which is asked before each block, answers True.
    """
    rewrite = Rewrite(new)
    for rewriting in step.rewritings:
        if rewriting.segments[0].meta.role == "belief":
            _rewrite_beliefs(files, log_state, rewrite, rewriting, rules)
        else:
            _rewrite(files, log_state, rewrite, rewriting, step.live, rules, stop)
    return rewrite


def _rewrite(
    files: SegmentFiles,
    log_state: LogState,
    rewrite: Rewrite,
    rewriting: Rewriting,
    live: int,
    rules: Rules,
    stop: Callable[[], bool],
) -> None:
    segments = rewriting.segments
    inputs = Inputs(files, (*segments, *rewriting.beliefs), rules.kept_bytes)
    rows, beliefs = fold(files, log_state, inputs, range(len(segments)))
    number, place = np.full(len(rows), -1, np.int32), np.full(len(rows), -1, np.int32)
    output = Output(files, log_state, rewrite.new, inputs, segments[0].meta.tombstone, stop)
    for role, blocks, cold in outputs(rows, rewriting, live, rules, by_starts=not files.is_local):
        begin = 0
        for block in blocks:
            positions = block.astype(np.intp)
            number[positions] = len(rewrite.new.segments)
            place[positions] = np.arange(begin, begin + len(block), dtype=np.int32)
            begin += len(block)
        write_output(output, rows, role, blocks, cold)
    rewrite.moved |= _moves(segments, rows, number, place)
    del number, place
    if rewriting.beliefs:
        beliefs.append(inputs.stored(range(len(segments), len(inputs.segments)), log_state.version))
    if beliefs:
        made = FoldedRows.joined(beliefs)
        write_output(output, made, "belief", [in_order(made.start)], False)
    rewrite.removed += [segment.meta for segment in (*rewriting.beliefs, *segments)]


def _moves(
    segments: Sequence[SegmentWithClosures], rows: FoldedRows, number: Numbers, place: Numbers
) -> dict[str, tuple[Numbers, Numbers]]:
    """Return the new location of each row of the segments; ``rows`` went to ``place`` of the output ``number``."""
    bounds = np.searchsorted(rows.source, np.arange(len(segments) + 1))
    moves = {}
    for segment, begin, end in zip(segments, bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        moved = number[begin:end], place[begin:end]
        if end - begin < segment.meta.rows:
            kept, moved = moved, (np.full(segment.meta.rows, -1, np.int32), np.full(segment.meta.rows, -1, np.int32))
            for all_rows, those in zip(moved, kept, strict=True):
                all_rows[rows.row[begin:end]] = those
        moves[segment.meta.name] = moved
    return moves


def _rewrite_beliefs(
    files: SegmentFiles, log_state: LogState, rewrite: Rewrite, rewriting: Rewriting, rules: Rules
) -> None:
    inputs = Inputs(files, rewriting.segments, rules.kept_bytes)
    rows = inputs.stored(range(len(rewriting.segments)), log_state.version)
    output = Output(files, log_state, rewrite.new, inputs, rewriting.segments[0].meta.tombstone)
    write_output(output, rows, "belief", [in_order(rows.start)], False)
    rewrite.removed += [segment.meta for segment in rewriting.segments]


def outputs(
    rows: FoldedRows, rewriting: Rewriting, live: int, rules: Rules, by_starts: bool
) -> Iterator[tuple[Role, list[Numbers], bool]]:
    """Yield (role, blocks of positions in ``rows``, whether to compress) of each segment to write.

    ``by_starts``: blocks of ended rows are cut by their starts, too, which pays in an object store (`_by_starts`).
    """
    per_row = max(v.meta.file.bytes / v.meta.rows for v in rewriting.segments)
    if rewriting.mixed:
        if len(rows):
            yield "delta", [in_order(rows.start)], False
        return
    is_open = rows.end > (OPEN - 1 if rewriting.through is None else rewriting.through)
    opened = np.flatnonzero(is_open).astype(np.int32)
    if len(opened):
        ordered = opened.take(in_order(rows.start.take(opened)))
        for part in _parts(ordered, rules.open_bytes / per_row):
            yield "open" if rewriting.through is None else "delta", [part], False
    ended = np.flatnonzero(~is_open).astype(np.int32)
    if not len(ended):
        return
    ordered = ended.take(in_order(rows.end.take(ended)))
    block_rows = max(int(rules.block_share * live), rules.block_rows)
    for span in _windows(rows.end, ordered, rewriting.window):
        for file in _parts(span, rules.file_rows):
            blocks = _parts(file, block_rows)
            if by_starts:
                blocks = _by_starts(rows.start, blocks, rules)
            yield "closed", [block.take(in_order(rows.start.take(block))) for block in blocks], rewriting.cold


def _windows(ends: Ints, ordered: Numbers, window: tuple[int, int] | None) -> list[Numbers]:
    if window is None:
        return [ordered]
    low = int(np.searchsorted(ends[ordered], window[0], "left"))
    high = int(np.searchsorted(ends[ordered], window[1], "right"))
    return [span for span in np.split(ordered, [low, high]) if len(span)]


def _by_starts(starts: Ints, blocks: list[Numbers], rules: Rules) -> list[Numbers]:
    """Return the rows of blocks, which ascend by their ends, in blocks of rows that also started at about one time.

    Those that started first come first, and among them those that ended first. So a read as of an old moment finds
    what it needs of many blocks in one place, and the rows of a key stay in order.
    """
    rows = np.concatenate(blocks)
    slices = -(-len(blocks) // rules.slice_blocks)
    bounds = np.sort(starts[rows])[[len(rows) * number // slices for number in range(1, slices)]]
    slice_of = [np.searchsorted(bounds, starts[block], "right") for block in blocks]
    least = max(len(rows) // len(blocks) // 4, 1)
    found: list[Numbers] = []
    for number in range(slices):
        joined = np.empty(0, np.int32)
        for block, part in zip(blocks, slice_of, strict=True):
            joined = np.concatenate([joined, block[part == number]])
            if len(joined) >= least:
                found.append(joined)
                joined = joined[:0]
        if len(joined):
            found.append(joined)
    return found


def _parts(rows: Numbers, limit: float) -> list[Numbers]:
    """Return rows in parts of about equal size, of at most ``limit`` rows."""
    return np.array_split(rows, -(-len(rows) // max(int(limit), 1)))


def in_order(times: Ints) -> Numbers:
    """Return the positions of times in ascending order, equal times in the order of their positions."""
    if not len(times):
        return np.empty(0, np.int32)
    return positions_in_order((times - times.min()).view(np.uint64))


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
            parts.setdefault(key, []).append((new_row[mine].astype(np.int64), ends[mine]))
    result = []
    for (version, name), found in sorted(parts.items()):
        rows = np.concatenate([r for r, _ in found])
        ends = np.concatenate([e for _, e in found])
        order = np.argsort(rows)
        result.append((name, version, rows[order], ends[order]))
    return result
