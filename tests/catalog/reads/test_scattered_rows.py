"""Rows of several segments in an order of their own, by compiled loops and by Arrow, against the rows one by one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.stores.segment_tables import opened, opened_blocks, table_of_all_types

from statestore.catalog.reads import scattered_rows
from statestore.catalog.reads.scattered_rows import GatheredRows
from statestore.formats.errors import CorruptError
from statestore.formats.kernels.arrays import OPEN
from statestore.formats.kernels.gather_kernels import place_rows
from statestore.formats.segments.compressed_write import Compression
from statestore.formats.segments.segment import Segment

ROWS = 400
TABLES = [table_of_all_types(ROWS, seed) for seed in (1, 2, 3)]
SEGMENTS = [
    opened(TABLES[0]),
    opened_blocks([TABLES[1].slice(0, 130), TABLES[1].slice(130, 1), TABLES[1].slice(131)], Compression()),
    opened(TABLES[2]),
]
COLUMNS = TABLES[0].column_names
CELLS = {name: [table.column(name).to_pylist() for table in TABLES] for name in COLUMNS}


def gathered(
    source: list[int],
    row: list[int],
    segments: list[Segment] | None = None,
    kept_bytes: int = 1 << 30,
    compiled: bool = True,
) -> GatheredRows:
    opened_segments = segments or SEGMENTS
    return GatheredRows(
        lambda number: opened_segments[number],
        np.array(source, np.int16),
        np.array(row, np.int32),
        compiled=compiled,
        kept_bytes=kept_bytes,
    )


@settings(max_examples=15, deadline=None)
@given(st.data(), st.lists(st.sampled_from([0, 1, 2]), min_size=1, unique=True), st.booleans())
def test_every_type_is_gathered_in_any_order(data: st.DataObject, numbers: list[int], ordered: bool) -> None:
    random = np.random.default_rng(data.draw(st.integers(0, 1 << 30)))
    count = data.draw(st.integers(1, 200))
    source = random.choice(numbers, count)
    row = random.integers(0, data.draw(st.sampled_from([1, 131, ROWS])), count)
    if ordered:
        order = np.lexsort((row, source))
        source, row = source[order], row[order]
    for compiled in (True, False):
        rows = gathered(source.tolist(), row.tolist(), compiled=compiled)
        for name in COLUMNS:
            found = rows.column(name)
            found.validate(full=True)
            cells = [CELLS[name][s][r] for s, r in zip(source.tolist(), row.tolist(), strict=True)]
            assert found.to_pylist() == cells, name
            assert found.null_count == cells.count(None)
        assert (rows._placed is not None) == compiled


@pytest.mark.parametrize("compiled", [True, False])
def test_times_and_versions_are_numbers(compiled: bool) -> None:
    random = np.random.default_rng(5)
    source, row = random.integers(0, 3, 300), random.integers(0, ROWS, 300)
    chosen = random.integers(0, 300, 50)
    rows = gathered(source.tolist(), row.tolist(), compiled=compiled)
    for name in ("valid_from", "valid_to", "_added", "_closed", "_split"):
        cells = [table.column(name).cast(pa.int64()).to_pylist() for table in TABLES]
        expected = [OPEN if (cell := cells[s][r]) is None else cell for s, r in zip(source, row, strict=True)]
        assert rows.numbers(name).tolist() == expected, name
        assert rows.at(chosen).numbers(name).tolist() == [expected[place] for place in chosen], name


@pytest.mark.parametrize("sizes", [[[5]], [[1, 1, 90, 1], [3]], [[100, 1, 1, 1, 1], [1, 2, 40, 3, 50, 1]], [[8] * 9]])
def test_rows_are_placed_in_batches_of_any_sizes(sizes: list[list[int]]) -> None:
    starts = np.concatenate([np.cumsum([0, *each[:-1]]) for each in sizes])
    bounds = np.cumsum([0, *map(len, sizes)])
    expected = [
        (source, first + row, part, row)
        for source, each in enumerate(sizes)
        for part, (first, size) in enumerate(
            zip(starts[bounds[source] :].tolist(), each, strict=False), int(bounds[source])
        )
        for row in range(size)
    ][::-1]
    source, row = (np.array(each, np.int32) for each in list(zip(*expected, strict=True))[:2])
    part, rows = np.empty(len(row), np.int32), np.empty(len(row), np.int32)
    touched = np.zeros(int(bounds[-1]), bool)
    place_rows(source, row, bounds, starts, part, rows, touched)
    assert list(zip(source.tolist(), row.tolist(), part.tolist(), rows.tolist(), strict=True)) == expected
    assert touched.all()
    place_rows(source[:1], row[:1], bounds, starts, part, rows, (once := np.zeros_like(touched)))
    assert np.flatnonzero(once).tolist() == [expected[0][2]]


def test_no_more_is_decompressed_at_once_than_may_be_kept() -> None:
    size = SEGMENTS[1].meta.file.bytes
    assert gathered([1, 1, 0], [0, 200, 5], kept_bytes=4 * size)._placed is not None
    few = gathered([1, 1, 0], [131, 130, 5], kept_bytes=size)
    assert few._placed is None
    assert few.column("words").to_pylist() == [CELLS["words"][s][r] for s, r in ((1, 131), (1, 130), (0, 5))]
    assert gathered([0, 2], [0, 200], kept_bytes=0)._placed is not None, "views of a file take no memory"


@pytest.mark.parametrize(("position", "wrong"), [(3, 2**31 - 1), (4, 0), (3, -5)])
def test_offsets_that_changed_after_their_check_are_damage(
    monkeypatch: pytest.MonkeyPatch, position: int, wrong: int
) -> None:
    """A loop follows no offset beyond its buffer, nor one that descends, whatever the file says now."""
    segment = opened(TABLES[0])
    column = segment.stored("words", [0])[0]
    offsets = np.frombuffer(column.array.buffers()[1], np.int32).copy()
    offsets[position] = wrong
    changed = column._replace(values=offsets.ctypes.data)
    monkeypatch.setattr(segment, "stored", lambda name, numbers: [changed])
    with pytest.raises(CorruptError, match="words"):
        gathered([0, 0, 0], [2, 3, 1], [segment]).column("words")


def test_texts_beyond_an_array_are_left_to_arrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scattered_rows, "MOST_TEXT", 10)
    row = list(range(50))
    assert gathered([0] * 50, row).column("words").to_pylist() == [CELLS["words"][0][r] for r in row]
