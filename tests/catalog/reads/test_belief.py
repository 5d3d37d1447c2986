"""Ends of rows, asked of many log states in any order, against a replay of the files by Arrow alone."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from support.stores.format_reader import read_rows

import statestore
from statestore.catalog.log.log_state import LogState
from statestore.catalog.log.storage import local_root
from statestore.catalog.reads import belief, segment_files
from statestore.catalog.reads.belief import SegmentWithClosures
from statestore.catalog.reads.carried_states import BoundedCache
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.catalog.upkeep import segment_output
from statestore.formats.errors import CorruptError
from statestore.formats.kernels.arrays import ABSENT, Ints, U32s
from statestore.formats.segments.segment_meta import OPEN, Block, ClosureSlice

COMMITS, KEYS = 24, 40


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> tuple[statestore.VersionedStore, list[LogState]]:
    """A store with late and deleted rows and two compactions, and its log state after each commit."""
    chance = random.Random(5)
    catalog = statestore.connect(tmp_path_factory.mktemp("ends"))
    catalog.create_store("s", key={"k": "bigint"}, value={"v": "bigint"}).close()
    store: statestore.VersionedStore = catalog.open_store("s", auto_compact=False)
    found = []
    for commit in range(COMMITS):
        for step in range(chance.randint(1, 30)):
            late = chance.randint(1, 100) if chance.random() < 0.2 else 0
            moment = max(0, 30 * commit + step - late)
            value = None if chance.random() < 0.1 else step
            store.put(chance.randrange(KEYS), value, timestamp=moment)
        store.commit()
        found.append(store._log_state)
        if commit in (10, 17):
            with pytest.MonkeyPatch.context() as patch:  # Arrow cannot read coded numbers
                patch.setattr(segment_output, "COLD", replace(segment_output.COLD, coded=False))
                store.compact(full=commit == 17)
            found.append(store._log_state)
    return store, found


@pytest.fixture
def files(states: tuple[statestore.VersionedStore, list[LogState]]) -> SegmentFiles:
    """Opened files of the store that this test has alone."""
    shared = states[0]._files
    return SegmentFiles(shared.storage, shared.spec)


class Replay:
    """The rows of one segment and its closures, read by Arrow without the code under test."""

    def __init__(self, root: Path, segment: SegmentWithClosures) -> None:
        columns = _arrow(root / segment.meta.name)
        self.segment = segment
        self.start = columns["valid_from"].cast(pa.int64()).to_pylist()
        self.stored = [OPEN if e is None else e for e in columns["valid_to"].cast(pa.int64()).to_pylist()]
        self.added, self.closed = columns["_added"].to_pylist(), columns["_closed"].to_pylist()
        self.split = columns["_split"].to_pylist()
        self.dropped = columns["_dropped"].to_pylist() if segment.meta.role == "belief" else [OPEN] * segment.meta.rows
        self.closures: list[tuple[int, int, int]] = []
        for piece in segment.closures:
            part = _arrow(root / piece.file.name).slice(piece.offset, piece.count)
            ends = [OPEN if e is None else e for e in part["valid_to"].cast(pa.int64()).to_pylist()]
            self.closures += [(piece.version, row, end) for row, end in zip(part["row"].to_pylist(), ends, strict=True)]

    def newest(self) -> list[int]:
        ends = list(self.stored)
        for _, row, end in self.closures:
            ends[row] = end
        return ends

    def at(self, version: int) -> list[int]:
        ends = []
        for row, end in enumerate(self.stored):
            if self.closed[row] is not None and self.closed[row] > version:
                end = ABSENT if self.split[row] else OPEN
            for known, closed, new_end in self.closures:
                if closed == row and known <= version:
                    end = new_end
            if self.added[row] > version or self.dropped[row] <= version:
                end = ABSENT
            ends.append(end)
        return ends


def _root(store: statestore.VersionedStore) -> Path:
    root = local_root(store._files.storage)
    assert root is not None
    return Path(root)


@cache
def _arrow(path: Path) -> pa.Table:
    found = pa.ipc.open_file(pa.memory_map(str(path)))
    if found.schema.metadata[b"statestore.format"] == b"segment/3":  # Arrow does not read coded numbers
        return read_rows(pa.py_buffer(path.read_bytes()))
    return found.read_all()


def _segments(states: list[LogState]) -> list[SegmentWithClosures]:
    return [segment for state in states for segment in belief.with_closures(state.segments, state.closures)]


def _blocks_of(segment: SegmentWithClosures, cut: int) -> SegmentWithClosures:
    """Return the segment as if it had two blocks, for questions that look at their rows only."""
    whole = segment.meta.spans()[0][1]
    blocks: tuple[Block, ...] = (replace(whole, rows=cut), replace(whole, rows=segment.meta.rows - cut))
    return SegmentWithClosures(replace(segment.meta, blocks=blocks), segment.closures)


def _check(files: SegmentFiles, root: Path, segment: SegmentWithClosures, chance: random.Random) -> None:
    """Ask one question of each kind about a segment of a log state."""
    replay, rows = Replay(root, segment), segment.meta.rows
    newest, version = replay.newest(), chance.randint(0, COMMITS)
    start = chance.randrange(rows)
    stop = chance.randint(start, rows)
    chosen = np.array([chance.randrange(rows) for _ in range(chance.randint(0, 5))], np.int64)
    versions = np.array([chance.randint(0, COMMITS) for _ in chosen], np.int64)
    questions: list[Callable[[], None]] = [
        lambda: _same(belief.newest_ends(files, segment), newest),
        lambda: _same(belief.ends_between(files, segment, start, stop), newest[start:stop]),
        lambda: _same(belief.chosen_ends(files, segment, chosen), [newest[row] for row in chosen]),
        lambda: _same(belief.ends_at(files, segment, version), replay.at(version)),
        lambda: _same(belief.ends_at(files, segment, version, start, stop), replay.at(version)[start:stop]),
        lambda: _same(
            belief.pair_ends(files, segment, chosen, versions),
            [replay.at(asked)[row] for row, asked in zip(chosen.tolist(), versions.tolist(), strict=True)],
        ),
        lambda: _same([belief.dead_rows(files, segment)], [sum(end != OPEN for end in newest)]),
    ]
    if rows > 1:
        cut = chance.randrange(1, rows)
        closed = {row for _, row, _ in replay.closures}
        expected = [any(row < cut for row in closed), any(row >= cut for row in closed)]
        blocks = _blocks_of(segment, cut)
        questions.append(lambda: _same(belief.blocks_with_closures(files, blocks), expected))
    chance.shuffle(questions)
    for question in questions[: chance.randint(1, len(questions))]:
        question()


def _same(found: object, expected: list[int] | list[bool]) -> None:
    assert list(found) == expected  # type: ignore[call-overload]


@pytest.mark.parametrize("budget", [0, 3_000, 1 << 20])
def test_log_states_in_any_order_have_their_own_ends(
    states: tuple[statestore.VersionedStore, list[LogState]], files: SegmentFiles, budget: int
) -> None:
    store, found = states
    files._carried, files._marks = BoundedCache(budget), BoundedCache(budget // 4)
    chance = random.Random(budget)
    for segment in chance.sample(_segments(found), 80):
        _check(files, _root(store), segment, chance)
        assert files._carried.used <= budget


def test_threads_that_ask_different_log_states_get_their_own_ends(
    states: tuple[statestore.VersionedStore, list[LogState]], files: SegmentFiles
) -> None:
    store, found = states
    files._carried = BoundedCache(20_000)
    several = [segment for segment in _segments(found) if len(segment.closures) > 5]
    asked = random.Random(1).sample(several * 5, 150)

    def ask(number: int) -> None:
        _check(files, _root(store), asked[number], random.Random(number))

    with ThreadPoolExecutor(4) as threads:
        assert not [error for error in threads.map(lambda number: ask(number), range(len(asked))) if error]


def test_only_new_closures_are_read_for_a_later_log_state(
    states: tuple[statestore.VersionedStore, list[LogState]], files: SegmentFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = states[1][10]  # before the first compaction
    segment = max(belief.with_closures(last.segments, last.closures), key=lambda v: len(v.closures))
    earlier = SegmentWithClosures(segment.meta, segment.closures[:-2])
    read: list[ClosureSlice] = []
    inner = SegmentFiles._closure_slice

    def noted(self: SegmentFiles, piece: ClosureSlice, rows: int) -> tuple[U32s, Ints]:
        read.append(piece)
        return inner(self, piece, rows)

    monkeypatch.setattr(SegmentFiles, "_closure_slice", noted)
    one = np.zeros(1, np.int64)
    for _ in range(2):
        belief.pair_ends(files, earlier, one, one)
        belief.dead_rows(files, earlier)
    assert sorted(p.version for p in read) == sorted([p.version for p in earlier.closures] * 2)
    read.clear()
    belief.pair_ends(files, segment, one, one)
    belief.dead_rows(files, segment)
    belief.pair_ends(files, earlier, one, one)
    assert [p.version for p in read] == [p.version for p in segment.closures[-2:]] * 2


@pytest.mark.local_files
def test_large_closure_files_are_mapped_and_their_length_is_looked_at_again(
    states: tuple[statestore.VersionedStore, list[LogState]], files: SegmentFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, found = states
    segment = next(each for each in _segments(found) if len(each.closures) > 1)
    (first, *_), rows = segment.closures, segment.meta.rows
    copied = files.closures(first, rows)
    used = files._carried.used
    assert used > first.file.bytes
    files.forget()
    monkeypatch.setattr(segment_files, "MAPPED_BYTES", 0)
    for column, other in zip(files.closures(first, rows), copied, strict=True):
        assert column.tolist() == other.tolist()
    assert files._carried.used == used - first.file.bytes
    path = _root(store) / first.file.name
    data = path.read_bytes()
    try:
        path.write_bytes(data + b"x")
        with pytest.raises(CorruptError, match="SEGMENT_TRUNCATED"):
            files.closures(first, rows)
    finally:
        path.write_bytes(data)


def test_ends_without_pending_closures_are_not_copied(
    states: tuple[statestore.VersionedStore, list[LogState]], files: SegmentFiles
) -> None:
    for segment in _segments(states[1][10:11]):
        closed = [row for _, row, _ in Replay(_root(states[0]), segment).closures]
        first = max(closed, default=-1) + 1
        stored = files.open_segment(segment.meta).int64("valid_to")
        ends = belief.ends_between(files, segment, first, segment.meta.rows)
        assert np.shares_memory(ends, stored) or first == segment.meta.rows


def test_a_closure_file_that_two_commits_record_differently_is_refused(
    states: tuple[statestore.VersionedStore, list[LogState]], files: SegmentFiles
) -> None:
    segment = next(s for s in _segments(states[1]) if s.closures)
    piece = segment.closures[0]
    files.closures(piece, segment.meta.rows)
    other = replace(piece, file=replace(piece.file, checksums="0" * len(piece.file.checksums)))
    with pytest.raises(CorruptError, match="checksum"):
        files.closures(other, segment.meta.rows)
    with pytest.raises(CorruptError, match="which has 0 rows"):
        files.closures(piece, 0)
