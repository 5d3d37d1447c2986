"""Joining of the parts of a write: which of their rows a commit can take as they are, and what becomes of the others.

A key that only one part has was resolved by that part. The records of a key that several parts have, or that a part
left, are resolved here, together and against the newest version, range of key hashes by range. Of their rows only ends
change, and some are dropped. If a commit came after a part was resolved, all its keys are resolved again.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statestore.catalog.commits.new_files import NewFiles, RowBlock
from statestore.catalog.commits.parts.staged_parts import OpenedPart, StagedSegment
from statestore.catalog.commits.parts.staging_folder import StagingFolder
from statestore.catalog.commits.record_timelines import Closure, resolve
from statestore.catalog.commits.sorted_records import Records
from statestore.catalog.commits.version_ends import NewRows
from statestore.catalog.log.log_state import LogState
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.kernels.arrays import Bools, Hashes, Ints
from statestore.formats.segments.segment_meta import OPEN
from statestore.formats.values.key_hash import hash_keys

RANGE_ROWS = 1 << 21  # rows of all parts that are compared at a time
VALUES, TOMBSTONES, LEFT = range(3)
DROPPED = -(2**63)  # instead of an end: the commit does not have the row


@dataclass
class JoinedSegment:
    """A segment of a part, and the ends that its rows get, DROPPED for those that go; None: those that they have."""

    staged: StagedSegment
    folder: StagingFolder
    anew: bool  # resolved against another version, which its rows name
    ends: Ints | None = None
    cut: int = DROPPED  # rows that start before are too late

    @property
    def is_unchanged(self) -> bool:
        return self.ends is None and not self.anew and self.cut <= self.staged.meta.min_valid_from


@dataclass
class Joined:
    """The rows of a commit: segments of parts, further rows by whether they are tombstones, and closures."""

    segments: list[JoinedSegment] = field(default_factory=list)
    closures: list[Closure] = field(default_factory=list)
    new: NewFiles = field(default_factory=NewFiles)
    rows: list[int] = field(default_factory=lambda: [0, 0])  # values and tombstones in ``new``
    refused: int = 0


@dataclass(frozen=True)
class JoinedPart:
    """A part in the join; ``anew``: all its keys are resolved again. Records before ``cut`` are too late."""

    opened: OpenedPart
    cut: int
    anew: bool
    values: JoinedSegment | None
    tombstones: JoinedSegment | None
    left_hashes: Hashes

    def segment(self, kind: int) -> JoinedSegment | None:
        return self.values if kind == VALUES else self.tombstones if kind == TOMBSTONES else None


def join_parts(
    files: SegmentFiles, log_state: LogState, opened: Sequence[OpenedPart], cuts: Sequence[int], new: NewFiles
) -> Joined:
    """Return the commit that the parts make, in this order, as the version after ``log_state``.

    ``cuts`` has the time for each part before which its records are too late. Further rows are written to ``new``.
    """
    joined = Joined(new=new)
    parts = [_joined_part(part, log_state, cut) for part, cut in zip(opened, cuts, strict=True)]
    closing = _Closing()
    for low, high in _ranges(parts):
        _join_range(files, log_state, parts, (low, high), joined, closing)
    joined.segments = [s for part in parts for s in (part.values, part.tombstones) if s is not None]
    joined.closures = closing.by_segment()
    joined.refused = sum(_refused(part) for part in parts)
    return joined


def _joined_part(opened: OpenedPart, log_state: LogState, cut: int) -> JoinedPart:
    part = opened.part
    anew = part.version != log_state.version or cut > part.earliest
    values, tombstones = (
        None if s is None else JoinedSegment(s, opened.folder, anew, cut=cut)
        for s in (opened.values, opened.tombstones)
    )
    left = opened.left
    hashes = np.empty(0, np.uint64) if left is None else hash_keys(left[: len(opened.key_names)])
    return JoinedPart(opened, cut, anew, values, tombstones, hashes)


def _refused(part: JoinedPart) -> int:
    late = sum(
        int(np.searchsorted(s.staged.file.int64("valid_from"), part.cut, "left"))
        for s in (part.values, part.tombstones)
        if s is not None and part.cut > s.staged.meta.min_valid_from
    )
    late += int(np.count_nonzero(part.opened.superseded < part.cut))
    left = part.opened.left
    if left is not None:
        late += int(np.count_nonzero(_times(left) < part.cut))
    return part.opened.part.refused + late


def _ranges(parts: Sequence[JoinedPart]) -> list[tuple[int, int]]:
    """Return ranges of key hashes, both ends included, in which the parts have about RANGE_ROWS rows."""
    rows = sum(len(part.left_hashes) for part in parts)
    rows += sum(len(s.staged.rows) for part in parts for s in (part.values, part.tombstones) if s is not None)
    count = max(1, -(-rows // RANGE_ROWS))
    borders = [(n << 64) // count for n in range(count + 1)]
    return [(low, high - 1) for low, high in itertools.pairwise(borders)]


class _Closing:
    """Closures that the parts found, collected by segment."""

    def __init__(self) -> None:
        self._found: dict[str, list[tuple[Ints, Ints]]] = {}

    def add(self, segment: str, rows: Ints, ends: Ints) -> None:
        if len(rows):
            self._found.setdefault(segment, []).append((rows, ends))

    def by_segment(self) -> list[Closure]:
        closures = []
        for segment, found in sorted(self._found.items()):
            rows = np.concatenate([rows for rows, _ in found])
            order = np.argsort(rows, kind="stable")
            closures.append((segment, rows[order], np.concatenate([ends for _, ends in found])[order]))
        return closures


def _join_range(
    files: SegmentFiles,
    log_state: LogState,
    parts: Sequence[JoinedPart],
    hashes: tuple[int, int],
    joined: Joined,
    closing: _Closing,
) -> None:
    contended = _contended(parts, hashes)
    for part in parts:
        if not part.anew:
            _close_alone(part, hashes, contended, closing)
    if not len(contended):
        return
    gathered = _Gathered(files, parts, hashes, contended)
    if not len(gathered.records):
        return
    resolution = resolve(files, log_state, gathered.records, indexed=False)
    for segment, rows, ends in resolution.closures:
        closing.add(segment, rows, ends)
    for tombstone, new_rows in ((False, resolution.values), (True, resolution.tombstones)):
        others = gathered.give_ends(new_rows, TOMBSTONES if tombstone else VALUES)
        if len(others.record):
            block = gathered.block(others, log_state.version + 1, tombstone)
            late = block.start <= log_state.stream_time_us
            joined.new.add_segment(files.spec, block, "delta", tombstone, late)
            joined.new.write(files.storage)
            joined.rows[tombstone] += len(block)


def _contended(parts: Sequence[JoinedPart], hashes: tuple[int, int]) -> Hashes:
    """Return the hashes, ascending, of keys in the range that have to be resolved here."""
    ours, certain = [], [np.empty(0, np.uint64)]
    for part in parts:
        left = np.unique(part.left_hashes[_within(part.left_hashes, hashes)])
        found = [_distinct(s.staged.hashes[_slice(s.staged.hashes, hashes)]) for s in _segments(part)]
        of_part = found[0] if len(found) == 1 and not len(left) else np.unique(np.concatenate((left, *found)))
        ours.append(of_part)
        certain.append(of_part if part.anew else left)
    if len(ours) > 1:
        every = np.concatenate(ours)
        every.sort()
        certain.append(every[1:][every[1:] == every[:-1]])
    return np.unique(np.concatenate(certain))


def _close_alone(part: JoinedPart, hashes: tuple[int, int], contended: Hashes, closing: _Closing) -> None:
    """Take over the closures of a part for the keys that no other part has."""
    if part.opened.ended is None:
        return
    key_hashes, number, row, end = part.opened.ended
    chosen = _slice(key_hashes, hashes)
    key_hashes, number, row, end = key_hashes[chosen], number[chosen], row[chosen], end[chosen]
    alone = ~_among(key_hashes, contended)
    for segment in np.unique(number[alone]).tolist():
        mine = alone & (number == segment)
        closing.add(part.opened.part.segments[segment], row[mine].astype(np.int64), end[mine])


class _Gathered:
    """The records of contended keys of all parts in one range, in the order of their arrival, and where they lie."""

    def __init__(
        self, files: SegmentFiles, parts: Sequence[JoinedPart], hashes: tuple[int, int], contended: Hashes
    ) -> None:
        self._files = files
        self._parts = parts
        pieces = [p for number, part in enumerate(parts) for p in _pieces(number, part, hashes, contended)]
        width = range(len(files.spec.key))
        empty = [pa.array([], field.type) for field in files.spec.key]
        keys = [pa.concat_arrays([empty[n], *(piece.keys[n] for piece in pieces)]) for n in width]
        times, dead = (
            np.concatenate([np.empty(0, kind), *(getattr(piece, name) for piece in pieces)])
            for name, kind in (("times", np.int64), ("tombstones", bool))
        )
        self.records = Records(keys, [], times, dead)
        self._part, self._kind, self._row = (
            np.concatenate([np.empty(0, np.int64), *(getattr(piece, name) for piece in pieces)])
            for name in ("part", "kind", "row")
        )

    def give_ends(self, rows: NewRows, kind: int) -> NewRows:
        """Set the ends of rows that lie in segments of parts; return the others.

        Rows of parts that no resolution returns are dropped: `_pieces` marked all of them so.
        """
        record = rows.record
        own = (self._kind[record] == kind) & (rows.start == self.records.times[record])
        part = self._part[record]
        for number in np.unique(part[own]).tolist():
            segment = self._parts[number].segment(kind)
            assert segment is not None and segment.ends is not None
            mine = own & (part == number)
            segment.ends[self._row[record[mine]]] = rows.end[mine]
        others = np.flatnonzero(~own)
        return NewRows(record[others], rows.start[others], rows.end[others])

    def block(self, rows: NewRows, version: int, tombstone: bool) -> RowBlock:
        """Return rows, which are sorted by start, with their columns."""
        columns = [column.take(pa.array(rows.record)) for column in self.records.keys]
        if not tombstone:
            columns += self._values(rows.record)
        count = len(rows.record)
        closed = np.where(rows.end == OPEN, 0, version)
        return RowBlock(columns, rows.start, rows.end, np.full(count, version), closed, np.zeros(count, bool))

    def _values(self, record: Ints) -> list[pa.Array]:
        """Return the values of left records."""
        part, row = self._part[record], self._row[record]
        order = np.argsort(part, kind="stable")
        back = pa.array(np.argsort(order))
        width = len(self._files.spec.key)
        columns = []
        for n, value in enumerate(self._files.spec.value):
            taken = [pa.array([], value.type)]
            for number in np.unique(part).tolist():
                left = self._parts[number].opened.left
                assert left is not None
                taken.append(left[width + n].take(pa.array(row[order][part[order] == number])))
            columns.append(pa.concat_arrays(taken).take(back))
        return columns


@dataclass(frozen=True)
class _Piece:
    """Records of one part, in the order of their arrival."""

    keys: list[pa.Array]
    times: Ints
    tombstones: Bools
    part: Ints
    kind: Ints
    row: Ints

    def take(self, order: Ints) -> _Piece:
        chosen = pa.array(order)
        keys = [key.take(chosen) for key in self.keys]
        rest = (self.part[order], self.kind[order], self.row[order])
        return _Piece(keys, self.times[order], self.tombstones[order], *rest)


def _pieces(number: int, part: JoinedPart, hashes: tuple[int, int], contended: Hashes) -> list[_Piece]:
    """Return the part's records of contended keys, and mark their rows as dropped until they get an end."""
    names = part.opened.key_names
    pieces = []
    for kind, segment in ((VALUES, part.values), (TOMBSTONES, part.tombstones)):
        if segment is None:
            continue
        staged = segment.staged
        chosen = _slice(staged.hashes, hashes)
        rows = staged.rows[chosen][_among(staged.hashes[chosen], contended)].astype(np.int64)
        if not len(rows):
            continue
        if segment.ends is None:
            segment.ends = segment.folder.copied(staged.file.int64("valid_to"))
        segment.ends[rows] = DROPPED
        times = staged.file.int64("valid_from")[rows]
        rows, times = rows[times >= part.cut], times[times >= part.cut]
        keys = [staged.file.column_array(name).take(pa.array(rows)) for name in names]
        pieces.append(_piece(keys, times, np.full(len(rows), kind == TOMBSTONES), number, kind, rows))
    if len(pieces) == 2:
        pieces = [_by_arrival(part, *pieces)]
    if part.opened.left is not None:
        within = _within(part.left_hashes, hashes) & (_times(part.opened.left) >= part.cut)
        rows = np.flatnonzero(within)
        if len(rows):
            keys = [column.take(pa.array(rows)) for column in part.opened.left[: len(names)]]
            dead = part.opened.left[-1].to_numpy(zero_copy_only=False)[rows]
            pieces.append(_piece(keys, _times(part.opened.left)[rows], dead, number, LEFT, rows))
    return pieces


def _piece(keys: list[pa.Array], times: Ints, dead: Bools, number: int, kind: int, rows: Ints) -> _Piece:
    count = len(rows)
    return _Piece(keys, times, dead, np.full(count, number), np.full(count, kind), rows)


def _by_arrival(part: JoinedPart, values: _Piece, tombstones: _Piece) -> _Piece:
    """Return the rows of both segments of a part in the order in which they arrived."""
    keys = [pa.concat_arrays(pair) for pair in zip(values.keys, tombstones.keys, strict=True)]
    both = _Piece(
        keys,
        np.concatenate((values.times, tombstones.times)),
        np.concatenate((values.tombstones, tombstones.tombstones)),
        *(np.concatenate((getattr(values, name), getattr(tombstones, name))) for name in ("part", "kind", "row")),
    )
    arrivals = part.opened.arrivals
    if arrivals is None:
        return both.take(np.argsort(both.times, kind="stable"))
    assert part.values is not None
    offset = np.where(both.kind == TOMBSTONES, part.values.staged.meta.rows, 0)
    return both.take(np.argsort(arrivals[both.row + offset], kind="stable"))


def _segments(part: JoinedPart) -> list[JoinedSegment]:
    return [segment for segment in (part.values, part.tombstones) if segment is not None]


def _slice(ascending: Hashes, hashes: tuple[int, int]) -> slice:
    low, high = np.array(hashes, np.uint64)
    return slice(int(np.searchsorted(ascending, low, "left")), int(np.searchsorted(ascending, high, "right")))


def _within(values: Hashes, hashes: tuple[int, int]) -> Bools:
    low, high = np.array(hashes, np.uint64)
    chosen: Bools = (values >= low) & (values <= high)
    return chosen


def _distinct(ascending: Hashes) -> Hashes:
    return ascending[np.concatenate(([True], ascending[1:] != ascending[:-1]))] if len(ascending) else ascending


def _among(values: Hashes, ascending: Hashes) -> Bools:
    """Return which values occur in ``ascending``."""
    if not len(ascending):
        return np.zeros(len(values), bool)
    at = np.searchsorted(ascending, values)
    at[at == len(ascending)] = 0
    among: Bools = ascending[at] == values
    return among


def _times(left: list[pa.Array]) -> npt.NDArray[np.int64]:
    times: npt.NDArray[np.int64] = left[-2].view(pa.int64()).to_numpy(zero_copy_only=False)
    return times
