"""The rows of many pieces that belong to a window, found in one pass.

That is done by a compiled loop, or by numpy where it is not loaded. Pieces are cut into parts: consecutive rows of one
record batch of a segment, as compiled loops take them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from statestore.catalog.reads.belief import Piece, SegmentWithClosures, TimeRange, judged, open_marks
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.kernels.arrays import Ints
from statestore.formats.segments.segment import Segment
from statestore.formats.segments.segment_meta import OPEN
from statestore.formats.segments.stored_column import StoredColumn

Rows = npt.NDArray[np.int32]
GROUP_ROWS = 1 << 17  # rows of parts that are judged at once


class Part(NamedTuple):
    """``length`` rows from ``first`` on of the batch ``number``, the first of which is the row ``row`` of the segment.

    ``cut``: some of them may not belong to the answer.
    """

    file: Segment
    segment: SegmentWithClosures
    number: int
    first: int
    length: int
    row: int
    cut: bool

    @property
    def piece(self) -> Piece:
        return Piece(self.segment, self.row, self.row + self.length, self.cut)


def groups_of_parts(files: SegmentFiles, pieces: Iterable[Piece]) -> Iterator[list[Part]]:
    """Yield the parts of these pieces in their order, so many at once as have at most GROUP_ROWS rows."""
    group: list[Part] = []
    room = GROUP_ROWS
    file: Segment | None = None
    for piece in pieces:
        segment = piece.segment
        if file is None or file.meta is not segment.meta:
            file = files.open_segment(segment.meta)
        row = piece.start
        for number, first, end in file.parts(piece.start, piece.stop):
            while first < end:
                length = min(end - first, room)
                group.append(Part(file, segment, number, first, length, row, piece.cut))
                first, row, room = first + length, row + length, room - length
                if not room:
                    yield group
                    group, room = [], GROUP_ROWS
                    file = files.open_segment(segment.meta)  # a scan may take hours
    if group:
        yield group


def by_segment(parts: Iterable[Part]) -> Iterator[list[Part]]:
    """Yield neighbours that are of one segment together."""
    for _, mine in groupby(parts, key=attrgetter("file")):
        yield list(mine)


def stored_columns(parts: Iterable[Part], name: str) -> list[StoredColumn]:
    """Return the column of each part's batch."""
    found: list[StoredColumn] = []
    for mine in by_segment(parts):
        found += mine[0].file.stored(name, [part.number for part in mine])
    return found


@dataclass(frozen=True)
class ChosenRows:
    """Rows ``rows[bounds[p] : bounds[p + 1]]`` of part p, ascending and counted in its batch, and their ends.

    Ends are epoch microseconds; None if they were not asked for.
    """

    parts: list[Part]
    bounds: Ints
    rows: Rows
    ends: Ints | None

    @property
    def count(self) -> int:
        return len(self.rows)

    def only(self, chosen: list[int]) -> ChosenRows:
        """Return what belongs to the parts of these numbers."""
        spans = [slice(*self.bounds[p : p + 2].tolist()) for p in chosen]
        lengths = np.array([0, *(span.stop - span.start for span in spans)], np.int64)
        return ChosenRows(
            [self.parts[p] for p in chosen],
            np.cumsum(lengths),
            _joined([self.rows[span] for span in spans], np.dtype(np.int32)),
            None if self.ends is None else _joined([self.ends[span] for span in spans], np.dtype(np.int64)),
        )


def all_chosen(several: list[ChosenRows]) -> ChosenRows:
    """Return several choices as one, without the parts that have no rows."""
    if len(several) == 1 and (several[0].bounds[1:] > several[0].bounds[:-1]).all():
        return several[0]
    parts: list[Part] = []
    lengths = []
    for one in several:
        counts = np.diff(one.bounds)
        lengths.append(counts[counts > 0])
        parts += [part for part, count in zip(one.parts, counts.tolist(), strict=True) if count]
    ends = [one.ends for one in several if one.ends is not None]
    return ChosenRows(
        parts,
        np.cumsum(np.concatenate([np.zeros(1, np.int64), *lengths])),
        _joined([one.rows for one in several], np.dtype(np.int32)),
        _joined(ends, np.dtype(np.int64)) if len(ends) == len(several) else None,
    )


def chosen_rows(
    files: SegmentFiles, parts: list[Part], window: TimeRange, shows_ends: bool, compiled: bool
) -> ChosenRows:
    """Return the rows of parts that belong to the window."""
    if compiled:
        return _compiled(files, parts, window, shows_ends)
    rows: list[Rows] = []
    ends: list[Ints] = []
    for part in parts:
        live, changed = judged(files, part.piece, part.row, part.row + part.length, window, shows_ends)
        mine = np.arange(part.length, dtype=np.int32) if live is None else np.flatnonzero(live).astype(np.int32)
        rows.append(mine + np.int32(part.first))
        if shows_ends:
            if changed is None:
                changed = part.file.int64_rows("valid_to", part.row, part.row + part.length)
            ends.append(changed if live is None else changed[mine])
    bounds = np.cumsum([0, *map(len, rows)])
    return ChosenRows(
        parts,
        bounds,
        _joined(rows, np.dtype(np.int32)),
        _joined(ends, np.dtype(np.int64)) if shows_ends else None,
    )


def _joined(arrays: list[Any], kind: np.dtype[Any]) -> Any:
    if not arrays:
        return np.empty(0, kind)
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _compiled(files: SegmentFiles, parts: list[Part], window: TimeRange, shows_ends: bool) -> ChosenRows:
    from statestore.formats.kernels.belief_kernels import ENDS, PART_COLUMNS, RUN_COLUMNS, live_rows

    tables = _Tables(files, window, shows_ends)
    for mine in by_segment(parts):
        tables.add(mine)
    most = sum(part.length for part in parts)
    needs_ends = shows_ends or any(part[ENDS] for part in tables.parts)
    rows, ends = np.empty(most + 1, np.int32), np.empty(most + 1 if needs_ends else 0, np.int64)
    bounds = np.empty(len(parts) + 1, np.int64)
    live_rows(
        np.array(tables.parts, np.int64).reshape(-1, PART_COLUMNS),
        np.array(tables.runs, np.int64).reshape(-1, RUN_COLUMNS),
        window.low,
        window.high,
        OPEN if window.newest else window.version,
        rows,
        ends,
        bounds,
    )
    count = int(bounds[-1])
    # Most of the room may be unused, and the rows are kept until there are enough for a batch.
    spare = count < most // 2
    rows, ends = rows[:count], ends[:count]
    if spare:
        rows, ends = rows.copy(), ends.copy()
    return ChosenRows(parts, bounds, rows, ends if shows_ends else None)


class _Tables:
    """The tables of `live_rows`, and what must be held while their addresses are used."""

    def __init__(self, files: SegmentFiles, window: TimeRange, shows_ends: bool) -> None:
        self.parts: list[tuple[int, ...]] = []
        self.runs: list[tuple[int, ...]] = []
        self._files = files
        self._window = window
        self._shows_ends = shows_ends
        self._held: list[object] = []

    def add(self, parts: list[Part]) -> None:
        """Add neighbours of one segment."""
        segment, window = parts[0].segment, self._window
        is_cut = any(part.cut for part in parts)
        if not is_cut and not self._shows_ends:
            self.parts += [(p.first, p.length, p.row, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0) for p in parts]
            return
        marks = open_marks(self._files, segment, window) if is_cut else None
        if marks is not None:
            self._held.append(marks)
            address = marks.address
            self.parts += [(p.first, p.length, p.row, 1, address, 0, 0, 0, 0, 0, 0, 0, 0) for p in parts]
            return
        meta, belief = segment.meta, segment.meta.role == "belief"
        past = not window.newest
        columns = [
            self._values(parts, "valid_to", True),
            self._values(parts, "valid_from", window.low < window.high),
            self._values(parts, "_added", past and meta.max_added > window.version),
        ]
        closes = past and (belief or max(meta.last_closed, meta.split_closed) > window.version)
        columns += [self._values(parts, name, closes) for name in ("_closed", "_split")]
        columns.append(self._values(parts, "_dropped", past and belief))
        first, stop = len(self.runs), len(self.runs) + self._add_runs(segment)
        for part, *addresses in zip(parts, *columns, strict=True):
            judged_or_shown = part.cut or self._shows_ends
            found = addresses if judged_or_shown else [0] * len(addresses)
            self.parts.append((part.first, part.length, part.row, int(part.cut), 0, *found, first, stop))

    def _values(self, parts: list[Part], name: str, needed: bool) -> list[int]:
        if not needed:
            return [0] * len(parts)
        columns = parts[0].file.stored(name, [part.number for part in parts])
        self._held.append(columns)
        return [column.values for column in columns]

    def _add_runs(self, segment: SegmentWithClosures) -> int:
        if not segment.closures:
            return 0
        pending = self._files.pending(segment.meta, segment.closures)
        self._held.append(pending)
        limit = len(segment.closures)
        self.runs += [(*run, limit) for run in pending.addresses]
        return len(pending.addresses)
