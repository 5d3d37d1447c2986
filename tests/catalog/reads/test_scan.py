"""Scans and histories against rows one by one, by each way to read them, and their batches and marks."""

from __future__ import annotations

import importlib
import tempfile
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.properties import few_or_many
from support.stores.scan_loops import WAYS, read_by
from support.stores.versioned_checks import HORIZON, check_answers
from support.stores.versioned_pair import Pair

import statestore
from statestore.catalog.log.log_state import EMPTY, LogState
from statestore.catalog.log.version_chunks import NUMBERS, TEXTS
from statestore.catalog.reads import chosen_rows, scan
from statestore.catalog.reads.belief import NOW, TimeRange, live_rows, live_starts
from statestore.catalog.reads.plan import CHUNK_ROWS, extremes, plan, splits_of
from statestore.catalog.reads.scan import JOINED_ROWS, joined, live_batches, read_split
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.catalog.reads.versioned_table import VersionedTable
from statestore.formats.kernels import compiled_use
from statestore.formats.kernels.arrays import ABSENT, Ints
from statestore.formats.segments.closures import encode_closures
from statestore.formats.segments.ipc_file import Batches, encode_file
from statestore.formats.segments.segment_columns import end_column, time_column
from statestore.formats.segments.segment_meta import OPEN, ClosureSlice, FileRef
from statestore.formats.segments.segment_write import RowsOfBlock, write_blocks
from statestore.formats.state_table import MARK_TYPE, SHARED_MARKS, Query, all_live

# A segment of several blocks with pending closures


NAME = "segments/blocks.arrow"
VERSION, LAST_TIME = 6, 2_000_000


@dataclass(frozen=True)
class Stored:
    """A store of one segment, and its rows with the closures of each version."""

    files: SegmentFiles
    log_state: LogState
    start: Ints
    end: Ints
    added: Ints
    closed: Ints
    closures: list[tuple[int, Ints, Ints]]  # version, rows, new ends

    def ends(self, version: int) -> Ints:
        """Return the ends in the belief of a version, row by row."""
        newest: dict[int, int] = {}
        for known, rows, new_ends in self.closures:
            if known <= version:
                newest.update(zip(rows.tolist(), new_ends.tolist(), strict=True))
        found = []
        for row, end in enumerate(self.end.tolist()):
            believed = newest.get(row, OPEN if self.closed[row] > version else end)
            found.append(ABSENT if self.added[row] > version else believed)
        return np.array(found)

    def expected(self, window: TimeRange) -> list[tuple[int, int, int | None]]:
        """Return (number of the row, start, end) of the rows of a window."""
        ends = self.ends(window.version)
        rows = np.flatnonzero((self.start <= window.high) & (ends > window.low) & (ends > self.start))
        return [(r, int(self.start[r]), None if ends[r] == OPEN else int(ends[r])) for r in rows.tolist()]


def stored(folder: Path, seed: int, closing: tuple[int, ...]) -> Stored:
    """Write a segment of blocks of 1 to 100 rows; closures fall only into the blocks of these numbers."""
    random = np.random.default_rng(seed)
    with statestore.connect(folder).create_store("s", key={"k": "bigint"}, value={"v": "bigint"}) as store:
        shared = store._files
    files = SegmentFiles(shared.storage, shared.spec)
    sizes = random.integers(1, 100, 6)
    first = np.concatenate(([0], np.cumsum(sizes)))
    parts: list[pa.Table] = []
    for number, size in enumerate(sizes.tolist()):
        start = np.sort(random.integers(number * 100_000, number * 100_000 + 300_000, size)) * 2
        ended = random.random(size) < 0.4
        end = np.where(ended, start + 1 + 2 * random.integers(0, 200_000, size), OPEN)
        added = random.integers(1, 3, size)
        parts.append(
            pa.table(
                {
                    "k": first[number] + np.arange(size),
                    "v": first[number] + np.arange(size),
                    "valid_from": time_column(start),
                    "valid_to": end_column(end),
                    "_added": added,
                    "_closed": np.where(ended, 3, 0),
                    "_split": np.zeros(size, bool),
                }
            )
        )
    data: list[pa.Buffer] = []

    def write(name: str, schema: pa.Schema, batches: Batches) -> FileRef:
        encoded, ref = encode_file(name, schema, batches)
        data.append(encoded)
        return ref

    schema = files.spec.segment_schema(False, False)
    blocks = [RowsOfBlock(part.cast(schema), part["_added"].to_numpy() > 1) for part in parts]
    meta = write_blocks(write, NAME, schema, blocks, role="closed", tombstone=False, key_names=["k"])
    meta = replace(meta, key_groups=(0, files.spec.key_groups - 1))
    files.storage.create(NAME, data[0])
    whole = pa.concat_tables(parts)
    start, end = (whole[name].cast(pa.int64()).fill_null(OPEN).to_numpy() for name in ("valid_from", "valid_to"))
    closures: list[tuple[int, Ints, Ints]] = []
    left = np.flatnonzero(end == OPEN)
    left = left[np.isin(np.searchsorted(first, left, "right") - 1, closing)]
    slices: list[ClosureSlice] = []
    for version in (4, 5, 6):
        rows = np.sort(random.choice(left, len(left) // 3, replace=False))
        if not len(rows):
            continue
        ends = start[rows] + np.where(random.random(len(rows)) < 0.1, 0, 2 * random.integers(0, 300_000, len(rows)) + 1)
        if closures:  # ends only shrink
            before: dict[int, int] = dict(zip(*(a.tolist() for a in _joined(closures)), strict=True))
            ends = np.minimum(ends, np.array([before.get(row, OPEN) for row in rows.tolist()]))
        closures.append((version, rows, ends))
        encoded, pieces = encode_closures(f"closures/{version}.arrow", [(NAME, version, rows, ends)])
        files.storage.create(f"closures/{version}.arrow", encoded)
        slices += pieces
    versions = EMPTY.versions
    for _ in range(VERSION + 1):
        numbers = {**dict.fromkeys(NUMBERS, 0), "stream_time": LAST_TIME}
        versions = versions.append(numbers, dict.fromkeys(TEXTS))
    log_state = LogState(VERSION, versions, (meta,), {NAME: tuple(slices)} if slices else {}, store=files.spec.store_id)
    added, closed = (whole[name].to_numpy() for name in ("_added", "_closed"))
    return Stored(files, log_state, start, end, added, closed, closures)


def _joined(closures: list[tuple[int, Ints, Ints]]) -> tuple[Ints, Ints]:
    return np.concatenate([rows for _, rows, _ in closures]), np.concatenate([ends for _, _, ends in closures])


def _read(store: Stored, window: TimeRange) -> list[tuple[int, int, int | None]]:
    pieces = plan(store.files, store.log_state, window, ())
    columns = ("v", "valid_from", "valid_to")
    found = []
    for split in splits_of(pieces, window, rows_per_split=120):
        for batch in read_split(store.files, split, columns):
            times = [batch.column(name).cast(pa.int64()).to_pylist() for name in columns]
            found += list(zip(*times, strict=True))
    return sorted(found)


@pytest.mark.quick("pieces-4*", "compiled-4*")
@pytest.mark.parametrize(("seed", "closing"), [(1, (0, 1, 2, 3, 4, 5)), (2, (2,)), (3, ()), (4, (0, 5))])
@pytest.mark.parametrize("way", WAYS)
def test_rows_of_blocks_are_those_of_a_check_of_each_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, closing: tuple[int, ...], way: str
) -> None:
    monkeypatch.setattr(scan, "CHUNK_ROWS", 30)
    monkeypatch.setattr(chosen_rows, "GROUP_ROWS", 70)
    read_by(monkeypatch, way)
    store = stored(tmp_path, seed, closing)
    random = np.random.default_rng(seed)
    for moment in [0, NOW, LAST_TIME, *random.integers(0, LAST_TIME, 12).tolist()]:
        for version in (VERSION, int(random.integers(1, VERSION))):
            for width in (0, int(random.integers(1, 100_000))):
                window = TimeRange(moment, min(moment + width, NOW), version, version == VERSION)
                expected = store.expected(window)
                assert _read(store, window) == expected
                pieces = plan(store.files, store.log_state, window, ())
                assert sum(live_rows(store.files, piece, window) for piece in pieces) == len(expected)
                starts = [s for piece in pieces for s in live_starts(store.files, piece, window).tolist()]
                assert sorted(starts) == sorted(start for _, start, _ in expected)
                bounds = (min(starts), max(starts)) if starts else (None, None)
                assert extremes(store.files, pieces, window, "valid_from") == bounds
                for piece in pieces:
                    live = {row for row, _, _ in expected if piece.start <= row < piece.stop}
                    assert piece.cut or len(live) == piece.rows


@pytest.mark.parametrize("way", WAYS)
def test_ends_of_rows_that_live_now_are_neither_read_nor_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setattr(scan, "JOINED_ROWS", 1)
    read_by(monkeypatch, way)
    store, window = stored(tmp_path, 4, (0, 5)), TimeRange(NOW, NOW, VERSION, True)
    found: list[pa.Array] = []
    for split in splits_of(plan(store.files, store.log_state, window, ()), window, rows_per_split=120):
        found += [batch.column("valid_to") for batch in read_split(store.files, split, ("v", "valid_to"))]
    assert len(found) > 1
    assert len({ends.buffers()[1].address for ends in found}) == 1
    for ends in found:
        assert ends.null_count == len(ends)
        assert (np.frombuffer(ends.buffers()[1], np.int64, len(ends), 8 * ends.offset) == OPEN).all()


def test_closures_of_one_block_leave_the_others_uncut(tmp_path: Path) -> None:
    """At every moment a block is cut only if one of its rows in the prefix is dead."""
    store = stored(tmp_path, 2, (2,))
    cut = []
    for moment in range(0, LAST_TIME, 50_000):
        window = TimeRange(moment, moment, VERSION, True)
        live = {row for row, _, _ in store.expected(window)}
        for piece in plan(store.files, store.log_state, window, ()):
            cut.append(piece.cut)
            spans = [span for span in store.log_state.segments[0].spans() if span[0] == piece.start]
            if spans[0][1].min_valid_to > moment:
                assert piece.cut == (not live.issuperset(range(piece.start, piece.stop)))
    assert True in cut and False in cut


def test_keys_of_uncut_blocks_of_a_whole_segment_have_exact_bounds(tmp_path: Path) -> None:
    store = stored(tmp_path, 3, ())
    meta = store.log_state.segments[0]
    window = TimeRange(0, NOW, VERSION, True)  # every row at some time
    pieces = [replace(piece, cut=False) for piece in plan(store.files, store.log_state, window, ())]
    assert len(pieces) == len(meta.blocks)
    assert extremes(store.files, pieces, window, "k") == (0, meta.rows - 1)
    assert extremes(store.files, pieces[1:], window, "k") is None


# Random histories with late, deleted and half-compacted rows


keys, values, times = st.sampled_from("abcd"), st.one_of(st.none(), st.integers(0, 9)), st.integers(0, HORIZON - 1)
puts = st.lists(st.tuples(keys, values, times), min_size=1, max_size=6)
steps = st.one_of(
    st.tuples(st.just("write"), puts),
    st.tuples(st.just("write"), puts),
    st.tuples(st.just("compact"), st.booleans()),
)


@few_or_many(3, 20, st.lists(steps, min_size=4, max_size=12), st.sampled_from([None, 5]))
def test_each_way_answers_as_the_model(program: list[tuple[str, Any]], retention: int | None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        pair = Pair(folder, retention, False)
        for name, argument in program:
            pair.step(name, argument)
        pair.step("commit", None)
        for way in WAYS:
            with pytest.MonkeyPatch.context() as patch:
                read_by(patch, way)
                check_answers(pair.store, pair.model, [None, *range(0, HORIZON, 5)])
        pair.store.close()


@pytest.mark.parametrize("compiled", [True, False])
def test_small_pieces_are_read_as_one_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiled: bool) -> None:
    """Each commit leaves a segment; a batch costs its consumer as much as a thousand rows."""
    monkeypatch.setattr(scan, "copies_pay", lambda rows: compiled)
    with statestore.connect(tmp_path).create_store("s", key={"k": "bigint"}, value={"v": "string"}) as store:
        for number in range(20):
            store.put(number, f"value {number}", number * 10)
            store.put(number // 2, None, number * 10 + 5)
            store.commit()
        batches = list(store.scan(as_of=120))
    assert len(batches) == 1
    assert sorted(batches[0]["k"].to_pylist()) == list(range(6, 13))


def test_loops_are_used_when_enough_rows_were_copied_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading them takes as long as copying a million rows, and numba itself as ten million."""
    monkeypatch.setattr(compiled_use, "_copied_before", 0)
    monkeypatch.setattr(compiled_use, "is_loaded", lambda: True)
    assert not compiled_use.copies_pay(999_999)
    assert compiled_use.copies_pay(1)
    monkeypatch.setattr(compiled_use, "is_loaded", lambda: False)
    monkeypatch.setattr(compiled_use, "_copied_before", 0)
    loaded: list[str] = []
    monkeypatch.setattr(importlib, "import_module", loaded.append)
    assert not compiled_use.copies_pay(9_999_999)
    assert loaded == []
    compiled_use.copies_pay(1)
    assert loaded == [compiled_use.COMPILED]


# Batches without dead rows, against Arrow's own filter


ROWS = 6_000
BATCH = pa.RecordBatch.from_pydict(
    {
        "n": np.arange(ROWS),
        "s": [None if n % 7 == 0 else f"text {n}" for n in range(ROWS)],
        "b": [n % 3 == 0 for n in range(ROWS)],
        "l": [[n] * (n % 4) for n in range(ROWS)],
    }
)


def _mask(lengths: list[int], first: bool) -> np.ndarray:
    """Runs of these lengths, dead and live in turn, up to the rows of the batch."""
    states = np.arange(len(lengths)) % 2 == int(not first)
    return np.resize(np.repeat(states, lengths), ROWS) if lengths else np.full(ROWS, first)


@given(st.lists(st.sampled_from([1, 2, 3, 100, 200, 2_000, 3_000]), max_size=40), st.booleans())
@settings(max_examples=60, deadline=None)
def test_rows_are_those_of_a_filter(lengths: list[int], first: bool) -> None:
    keep = _mask(lengths, first)
    found = list(live_batches(BATCH, keep))
    assert pa.Table.from_batches(found, BATCH.schema) == pa.Table.from_batches([BATCH.filter(pa.array(keep))])
    assert all(batch.num_rows for batch in found)


def test_long_runs_are_not_copied() -> None:
    keep = np.ones(ROWS, bool)
    keep[[10, 11, 2_500]] = False
    found = list(live_batches(BATCH, keep))
    assert [batch.num_rows for batch in found] == [1_022, 1_024, 1_023, 2_048, 880]
    data = BATCH.column("n").buffers()[1]
    shared = [batch.column("n").buffers()[1].address == data.address for batch in found]
    assert shared == [False, True, False, True, True]


def test_small_batches_are_joined_and_large_ones_passed() -> None:
    parts = [BATCH.slice(at, 60) for at in range(0, ROWS, 60)]
    large = BATCH.slice(0, JOINED_ROWS)
    found = list(joined([*parts[:50], large, *parts[50:]]))
    assert [batch.num_rows for batch in found] == [JOINED_ROWS, ROWS]
    assert found[1].equals(BATCH)
    assert list(joined([])) == [] and list(joined([BATCH.slice(0, 0)])) == []


def test_joining_holds_few_rows() -> None:
    small = BATCH.slice(0, JOINED_ROWS - 1)
    found = list(joined([small] * 200))
    assert sum(batch.num_rows for batch in found) == 200 * small.num_rows
    assert all(batch.num_rows < CHUNK_ROWS + JOINED_ROWS for batch in found) and len(found) == 2


# Rows with marks: those that are marked as live are the rows of the answer


SECOND = 1_000


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> VersionedTable:
    """A store whose rows are dead in long runs (every row of the first commits), in places, and nowhere."""
    random = np.random.default_rng(5)
    with statestore.connect(tmp_path_factory.mktemp("w")).create_store(
        "s", key={"k": "bigint"}, value={"n": "bigint"}
    ) as store:
        for commit, keys in enumerate([range(200), range(150), range(3, 200, 9), range(300, 340)]):
            times = commit * SECOND + np.sort(random.integers(0, 900, len(keys)))
            store.put_all(pa.table({"k": list(keys), "n": random.integers(0, 9, len(keys)), "timestamp": times}))
            store.commit()
        assert isinstance(store.table, VersionedTable)
        return store.table


QUERIES = [
    *(Query(as_of=as_of, version=version) for as_of, version in product((None, 0, 1_500_000), (None, 1, 2))),
    Query(mode="history"),
    Query(mode="history", start_time=1_000_000, end_time=1_200_000, version=3),
]


@pytest.mark.parametrize("chunk", [pytest.param(1, marks=pytest.mark.slow), 7, 64, 1 << 17])
def test_live_rows_are_the_answer(table: VersionedTable, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "CHUNK_ROWS", chunk)
    monkeypatch.setattr(scan, "SPARSE", 3)
    for query in QUERIES:
        splits = table.splits(query)
        answer = [tuple(r.values()) for s in splits for b in table.read(s, query) for r in b.to_pylist()]
        found: list[tuple[Any, ...]] = []
        for part in table.masked_splits(splits):
            rows = [tuple(r.values()) for b in table.read_marked(part.split, query) for r in b.to_pylist()]
            live = [True] * len(rows) if part.marks is None else part.marks.is_valid().to_pylist()
            assert sum(live) == part.live, query
            found += [row for row, lives in zip(rows, live, strict=True) if lives]
        assert sorted(found, key=str) == sorted(answer, key=str), query


@pytest.mark.local_files
def test_pieces_are_whole_marked_or_copied(table: VersionedTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of dead rows are not read at all."""
    monkeypatch.setattr(scan, "CHUNK_ROWS", 50)
    parts = table.masked_splits(table.splits(Query()))
    assert [part.marks is None for part in parts].count(False) == 1
    assert sum(len(part.marks) if part.marks is not None else part.live or 0 for part in parts) < 200 + 150 + 22 + 40
    assert not any(table.is_mapped(part.split, ["valid_to"]) for part in parts)
    assert all(table.is_mapped(part.split, ["n"]) for part in parts if part.marks is not None)


@pytest.mark.parametrize("rows", [0, 1, SHARED_MARKS, SHARED_MARKS + 1])
def test_marks_of_live_rows_have_no_nulls(rows: int) -> None:
    marks = all_live(rows)
    assert (len(marks), marks.null_count, marks.type) == (rows, 0, MARK_TYPE)
    marks.validate(full=True)


def test_marks_are_in_the_order_of_rows_where_small_pieces_come_before_large_ones(tmp_path: Path) -> None:
    """Were small pieces read together, apart from large ones, the marks would be those of other rows."""
    with statestore.connect(tmp_path).create_store("s", key={"k": "bigint"}, value={"n": "bigint"}) as store:
        for commit, keys in enumerate([range(10), range(5, 5_000), range(4_000, 4_005)]):
            times = [commit * 10_000 + number for number in range(len(keys))]
            store.put_all(pa.table({"k": list(keys), "n": [commit] * len(keys), "timestamp": times}))
            store.commit()
        table = store.table
        assert isinstance(table, VersionedTable)
        found: dict[int, int] = {}
        for part in table.masked_splits(table.splits(Query())):
            rows = pa.Table.from_batches(table.read_marked(part.split, Query()))
            live = rows if part.marks is None else rows.filter(part.marks.is_valid())
            found.update(zip(live["k"].to_pylist(), live["n"].to_pylist(), strict=True))
        assert found == {k: 2 if 4_000 <= k < 4_005 else 1 if k >= 5 else 0 for k in range(5_000)}
