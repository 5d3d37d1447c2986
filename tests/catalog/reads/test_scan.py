"""Scans and histories of a segment of several blocks with pending closures, against its rows one by one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from support.stores.scan_loops import WAYS, read_by

import statestore
from statestore.catalog.log.log_state import EMPTY, LogState
from statestore.catalog.log.version_chunks import NUMBERS, TEXTS
from statestore.catalog.reads import chosen_rows, scan
from statestore.catalog.reads.belief import NOW, TimeRange, live_rows, live_starts
from statestore.catalog.reads.plan import extremes, plan, splits_of
from statestore.catalog.reads.scan import read_split
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.kernels.arrays import ABSENT, Ints
from statestore.formats.segments.closures import encode_closures
from statestore.formats.segments.ipc_file import Batches, encode_file
from statestore.formats.segments.segment_meta import OPEN, ClosureSlice, FileRef
from statestore.formats.segments.segment_write import RowsOfBlock, end_column, time_column, write_blocks

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
