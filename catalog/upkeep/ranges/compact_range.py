"""The compaction of one range of keys, in any process that sees the store's files.

A task reads the rows of its range from all segments that are compacted, folds them, and writes segments that have no
other keys. It shares nothing with the process that publishes the compaction but the store's files: the log says which
segments there are, and the names of new files begin with the claim that the other process holds.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statestore.catalog.commits.new_files import NewFiles
from statestore.catalog.commits.publish_commit import remove_files
from statestore.catalog.log.log_checkpoint import load_log_state
from statestore.catalog.log.log_state import LogState
from statestore.catalog.log.storage import Storage
from statestore.catalog.log.store_spec import StoreSpec
from statestore.catalog.reads.belief import SegmentWithClosures, with_closures
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.catalog.upkeep.closure_folding import FoldedRows, Inputs, fold
from statestore.catalog.upkeep.compaction import in_order, outputs
from statestore.catalog.upkeep.compaction_plan import Rewriting
from statestore.catalog.upkeep.compaction_rules import Rules
from statestore.catalog.upkeep.segment_output import Output, write_output
from statestore.formats.kernels.arrays import Ints
from statestore.formats.segments.ipc_file import encode_file, open_file, verify_column
from statestore.formats.segments.regions import VerifiedBytes, corrupt
from statestore.formats.segments.segment_meta import (
    OPEN,
    ClosureSlice,
    FileRef,
    SegmentMeta,
    file_ref_from_json,
    segment_meta_from_json,
    to_json,
)
from statestore.formats.values.key_hash import hash_keys

Numbers = npt.NDArray[np.int32]
Part = tuple[SegmentWithClosures, Numbers]  # a segment, and its rows in the range
HASHES = 1 << 64
_Closed = tuple[str, int, Ints, Ints]  # segment, version, rows ascending, their ends in epoch microseconds

SCHEMA = pa.schema([pa.field(name, pa.int32(), nullable=False) for name in ("old", "row", "new", "place")])
GONE = -1


@dataclass(frozen=True)
class RangePlan:
    """A compaction of the segments ``inputs`` of a version, by ranges of keys; can be pickled."""

    storage: Storage
    spec: StoreSpec
    version: int
    claim: str
    inputs: tuple[str, ...]
    ranges: tuple[KeyRange, ...]
    rules: Rules


@dataclass(frozen=True)
class RangeResult:
    """The files of one range: its segments, where rows moved to, the bytes written and the number of rows read.

    The numbers of new segments in ``moves`` are positions in ``segments``, those of old ones positions in the plan's
    ``inputs``.
    """

    segments: tuple[SegmentMeta, ...]
    moves: tuple[FileRef, ...]
    rows: int

    def to_json(self) -> str:
        segments, moves = ([to_json(each) for each in several] for several in (self.segments, self.moves))
        return json.dumps({"segments": segments, "moves": moves, "rows": self.rows})


def result_from_json(text: str) -> RangeResult:
    """Return the result that a task sent."""
    found = json.loads(text)
    segments = tuple(segment_meta_from_json(each) for each in found["segments"])
    return RangeResult(segments, tuple(file_ref_from_json(each) for each in found["moves"]), int(found["rows"]))


def compact_range(plan: RangePlan, number: int) -> str:
    """Write the files of one range and return its result as a text. A task that fails removes its files."""
    files = SegmentFiles(plan.storage, plan.spec)
    new = NewFiles(plan.claim)
    try:
        return _RangeTask(files, plan, new).run(plan.ranges[number]).to_json()
    except BaseException:
        remove_files(files.storage, new)
        raise


class _RangeTask:
    """The work of one attempt of a task."""

    def __init__(self, files: SegmentFiles, plan: RangePlan, new: NewFiles) -> None:
        self._files = files
        self._rules = plan.rules
        self._new = new
        self._log_state = load_log_state(files.storage, version=plan.version, store=plan.spec.store_id)
        self._inputs = _named(self._log_state, plan.inputs)
        self._numbers = {name: number for number, name in enumerate(plan.inputs)}
        self._moves: list[FileRef] = []

    def run(self, keys: KeyRange) -> RangeResult:
        total = 0
        for tombstone in (False, True):
            parts = [
                (segment, rows)
                for segment in self._inputs
                if segment.meta.tombstone == tombstone and len(rows := _rows_in_range(self._files, segment.meta, keys))
            ]
            total += sum(len(rows) for _, rows in parts)
            self._rewrite_all(parts)
        return RangeResult(tuple(self._new.segments), tuple(self._moves), total)

    def _rewrite_all(self, parts: Sequence[Part]) -> None:
        """Rewrite the rows of values or of tombstones, as many at a time as a step of a compaction reads."""
        main = sorted((p for p in parts if p[0].meta.role != "belief"), key=lambda p: p[0].meta.min_valid_to)
        beliefs = list(_within((p for p in parts if p[0].meta.role == "belief"), self._rules.step_rows))
        groups = list(_within(main, self._rules.step_rows))
        for number, group in enumerate(groups):
            self._rewrite(group, beliefs.pop() if beliefs and number == len(groups) - 1 else [])
        for older in beliefs:
            self._rewrite([], older)

    def _rewrite(self, parts: Sequence[Part], older: Sequence[Part]) -> None:
        """Rewrite rows of segments, and beliefs in ``older`` with those that folding makes."""
        whole = [*parts, *older]
        segments = tuple(segment for segment, _ in whole)
        inputs = Inputs(self._files, segments, self._rules.kept_bytes, [rows for _, rows in whole])
        output = Output(self._files, self._log_state, self._new, inputs, segments[0].meta.tombstone)
        beliefs: list[FoldedRows] = []
        if parts:
            rows, beliefs = fold(self._files, self._log_state, inputs, range(len(parts)))
            self._write(output, segments[: len(parts)], rows)
        if older:
            beliefs.append(inputs.stored(range(len(parts), len(whole)), self._log_state.version))
        if beliefs:
            made = FoldedRows.joined(beliefs)
            write_output(output, made, "belief", [in_order(made.start)], False)

    def _write(self, output: Output, segments: tuple[SegmentWithClosures, ...], rows: FoldedRows) -> None:
        """Write the rows that stay, and where they went."""
        live = int(np.count_nonzero(rows.end == OPEN))
        new, place = np.full(len(rows), GONE, np.int32), np.full(len(rows), GONE, np.int32)
        for role, blocks, cold in outputs(
            rows, Rewriting(segments, cold=True), live, self._rules, by_starts=not self._files.is_local
        ):
            number, begin = len(self._new.segments), 0
            write_output(output, rows, role, blocks, cold)
            for block in blocks:
                new[block] = number
                place[block] = np.arange(begin, begin + len(block), dtype=np.int32)
                begin += len(block)
        if len(rows):
            old = np.array([self._numbers[s.meta.name] for s in segments], np.int32)[rows.source]
            order = np.argsort(old, kind="stable")  # rows of one segment ascend
            moved = _MovedRows(old[order], rows.row[order], new[order], place[order])
            self._moves.append(write_moves(self._files.storage, self._new, moved))


def _named(log_state: LogState, names: Iterable[str]) -> list[SegmentWithClosures]:
    """Return the segments with these names."""
    chosen = set(names)
    return [v for v in with_closures(log_state.segments, log_state.closures) if v.meta.name in chosen]


def _within(parts: Iterable[Part], limit: int) -> Iterator[list[Part]]:
    """Yield parts in groups of at most ``limit`` rows, but of at least one part each."""
    group: list[Part] = []
    room = limit
    for part in parts:
        if group and len(part[1]) > room:
            yield group
            group, room = [], limit
        group.append(part)
        room -= len(part[1])
    if group:
        yield group


@dataclass(frozen=True)
class KeyRange:
    """The keys whose hashes lie from ``first`` to ``last``, both included. Ranges of a store's keys share no key."""

    first: int
    last: int


def key_ranges(count: int, key_groups: int) -> tuple[KeyRange, ...]:
    """Return about ``count`` ranges of equal size that together have every key once.

    They are ranges of whole key groups, unless there are more ranges than key groups.
    """
    if count <= key_groups:
        groups = [n * key_groups // count for n in range(count + 1)]
        borders = [-(-(group << 32) // key_groups) << 32 for group in groups]
    else:
        borders = [n * HASHES // count for n in range(count + 1)]
    return tuple(KeyRange(first, last - 1) for first, last in itertools.pairwise(borders))


def _rows_in_range(files: SegmentFiles, meta: SegmentMeta, keys: KeyRange) -> Numbers:
    """Return the rows of a segment whose keys lie in a range, ascending."""
    first, last = np.uint64(keys.first), np.uint64(keys.last)
    if meta.index is None:  # an index made here would stay in memory
        file = files.open_segment(meta)
        hashes = hash_keys([file.column_array(name) for name in files.spec.key_names])
        return np.flatnonzero((hashes >= first) & (hashes <= last)).astype(np.int32)
    index = files.index(meta)
    low, high = np.searchsorted(index.hashes, first, "left"), np.searchsorted(index.hashes, last, "right")
    return np.sort(index.rows[low:high]).astype(np.int32)


@dataclass(frozen=True)
class _MovedRows:
    """Old and new places of rows: the number of the old segment and the row there, ascending, and of the new one.

    The process that publishes the compaction needs them only if commits came meanwhile: their closures name rows at
    their old places. No commit names the file. It belongs to the claim of the compaction, like the segments, so vacuum
    removes what a dead one leaves.

    ``new`` is GONE where the row has no new place.
    """

    old: Numbers
    row: Numbers
    new: Numbers
    place: Numbers

    def of_closures(self, number: int, rows: Ints) -> tuple[Ints, Numbers, Numbers]:
        """Return (positions in ``rows``, new segments, rows there) for rows of the old segment ``number``."""
        low, high = np.searchsorted(self.old, (number, number + 1))
        mine = self.row[low:high]
        at = np.searchsorted(mine, rows)
        found = at < len(mine)
        found[found] = mine[at[found]] == rows[found]
        positions, at = np.flatnonzero(found), at[found] + low
        kept = self.new[at] != GONE
        return positions[kept], self.new[at[kept]], self.place[at[kept]]


def write_moves(storage: Storage, new: NewFiles, moved: _MovedRows) -> FileRef:
    """Write the moves to a file of the claim that ``new`` has."""
    name = new.new_name(".moves.arrow")
    new.written[name] = 0  # so that it is removed if the task fails
    batch = pa.RecordBatch.from_arrays([pa.array(column) for column in vars(moved).values()], schema=SCHEMA)
    data, ref = encode_file(name, SCHEMA, [batch])
    storage.create_many({name: data})
    return ref


def _read_moves(storage: Storage, ref: FileRef, new_segments: Sequence[SegmentMeta]) -> _MovedRows:
    """Read the moves of one file. Raises CorruptError SEGMENT_CORRUPT for a row that no new segment has."""
    verified = VerifiedBytes(ref, storage.opened(ref))
    _, batches = open_file(verified, lambda stored: _check_schema(ref, stored))
    if len(batches) != 1:
        raise corrupt(ref, f"it has {len(batches)} batches, expected one")
    columns: list[Any] = [verify_column(verified, batches[0], n).to_numpy() for n in range(len(SCHEMA))]
    moved = _MovedRows(*columns)
    rows = np.array([meta.rows for meta in new_segments], np.int64)
    kept = moved.new != GONE
    new, place = moved.new[kept], moved.place[kept]
    if len(new) and (new.min() < 0 or new.max() >= len(rows) or place.min() < 0 or (place >= rows[new]).any()):
        raise corrupt(ref, "it moves rows to places that no new segment has")
    return moved


def _check_schema(ref: FileRef, stored: pa.Schema) -> None:
    if not stored.equals(SCHEMA):
        raise corrupt(ref, "it is no list of moved rows")


def moved_closures(
    files: SegmentFiles,
    removed: Sequence[SegmentMeta],
    pieces: Iterable[ClosureSlice],
    moves: Iterable[tuple[Sequence[SegmentMeta], FileRef]],
) -> list[_Closed]:
    """Return closures on removed segments at the rows' new locations, one file of moves after the other.

    ``moves`` has each file with the new segments that its numbers mean.
    """
    numbers = {meta.name: number for number, meta in enumerate(removed)}
    closed = [
        (numbers[piece.segment], piece.version, *files.closures(piece, removed[numbers[piece.segment]].rows))
        for piece in pieces
    ]
    found: dict[tuple[int, str], list[tuple[Ints, Ints]]] = {}
    for new_segments, ref in moves:
        moved = _read_moves(files.storage, ref, new_segments)
        for number, version, rows, ends in closed:
            positions, new, place = moved.of_closures(number, rows)
            for target in np.unique(new).tolist():
                mine = new == target
                parts = found.setdefault((version, new_segments[target].name), [])
                parts.append((place[mine].astype(np.int64), ends[positions[mine]]))
    result = []
    for (version, name), parts in sorted(found.items()):
        rows, ends = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        order = np.argsort(rows)
        result.append((name, version, rows[order], ends[order]))
    return result
