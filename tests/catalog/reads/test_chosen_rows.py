"""Chosen rows of many parts, gathered by compiled loops and by Arrow, against the rows of the table one by one."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.stores.segment_tables import opened, opened_blocks, table_of_all_types

from statestore.catalog.reads import gathered_columns
from statestore.catalog.reads.belief import SegmentWithClosures
from statestore.catalog.reads.chosen_rows import (
    ChosenRows,
    Part,
    all_chosen,
    stored_columns,
)
from statestore.catalog.reads.gathered_columns import GatheredColumns, TooMuchTextError, rows_between
from statestore.formats.errors import CorruptError
from statestore.formats.segments.compressed_write import Compression
from statestore.formats.segments.stored_column import StoredColumn

ROWS = 400
BOTH = pytest.mark.parametrize("compiled", [True, False])


TABLES = [table_of_all_types(ROWS, 1), table_of_all_types(ROWS, 2)]
SEGMENTS = [
    opened(TABLES[0]),
    opened_blocks([TABLES[1].slice(0, 150), TABLES[1].slice(150)], Compression()),
]
COLUMNS = [name for name in TABLES[0].column_names if name != "valid_to"]


def chosen(rows: list[list[int]]) -> ChosenRows:
    """Return the choice of these rows of each segment, with a part for each batch."""
    found = []
    for segment, mine in zip(SEGMENTS, rows, strict=True):
        for number, first, end in segment.parts(0, segment.rows):
            begin = segment.first_row(number)
            local = np.array([row - begin for row in mine if begin <= row < begin + end], np.int32)
            part = Part(segment, SegmentWithClosures(segment.meta), number, first, end - first, begin, True)
            found.append(ChosenRows([part], np.array([0, len(local)]), local, None))
    return all_chosen(found)


def expected(name: str, rows: list[list[int]]) -> list[object]:
    return [
        cell
        for table, mine in zip(TABLES, rows, strict=True)
        for cell in table.column(name).combine_chunks().take(pa.array(mine, pa.int64())).to_pylist()
    ]


def check(compiled: bool, rows: list[list[int]], cuts: list[float]) -> None:
    choice = chosen(rows)
    bounds = sorted({0, choice.count, *(int(cut * choice.count) for cut in cuts)})
    columns = GatheredColumns(choice, COLUMNS, compiled)
    batches = [columns.rows(rows_between(choice, first, stop)) for first, stop in pairwise(bounds)]
    for number, name in enumerate(COLUMNS):
        arrays = [batch[number] for batch in batches]
        for array in arrays:
            array.validate(full=True)
            assert array.null_count == sum(cell is None for cell in array.to_pylist())
        assert [cell for array in arrays for cell in array.to_pylist()] == expected(name, rows), name


@st.composite
def choices(draw: st.DrawFn) -> list[list[int]]:
    """Rows of each segment, ascending: spread, dense, in runs, or all."""
    found = []
    for seed in draw(st.lists(st.integers(0, 1 << 30), min_size=2, max_size=2)):
        random = np.random.default_rng(seed)
        keep: npt.NDArray[np.bool_] = random.random(ROWS) < draw(st.sampled_from([0.0, 0.02, 0.5, 0.97, 1.0]))
        if draw(st.booleans()):
            keep &= np.repeat(random.random(ROWS // 40) < 0.7, 40)
        found.append(np.flatnonzero(keep).tolist())
    return found


@settings(max_examples=12, deadline=None)
@given(choices().filter(any), st.lists(st.floats(0, 1), max_size=3))
def test_every_type_is_gathered_from_every_layout(rows: list[list[int]], cuts: list[float]) -> None:
    for compiled in (True, False):
        check(compiled, rows, cuts)


def test_offsets_that_changed_after_their_check_are_damage() -> None:
    """A loop follows no offset beyond its buffer, nor one that descends, whatever the file says now."""
    for dense in (True, False):
        rows = list(range(60)) if dense else list(range(0, 60, 2))
        for position, wrong in ((2, 2**31 - 1), (3, 0), (2, -5)):
            segment = opened(TABLES[0])
            part = Part(segment, SegmentWithClosures(segment.meta), 0, 0, segment.rows, 0, True)
            choice = ChosenRows([part], np.array([0, len(rows)]), np.array(rows, np.int32), None)
            column = GatheredColumns(choice, ["words"], True)
            offsets = np.frombuffer(column._stored[0][0].array.buffers()[1], np.int32).copy()
            offsets[position + (1 if dense else 0)] = wrong
            column._places[0, 1] = offsets.ctypes.data
            with pytest.raises(CorruptError, match="words"):
                column.rows(rows_between(choice, 0, len(rows)))


@BOTH
def test_texts_beyond_an_array_are_refused_before_they_are_copied(
    monkeypatch: pytest.MonkeyPatch, compiled: bool
) -> None:
    if compiled:
        monkeypatch.setattr(gathered_columns, "MOST_TEXT", 100)
        choice = chosen([list(range(50)), []])
        with pytest.raises(TooMuchTextError):
            GatheredColumns(choice, ["words"], True).rows(rows_between(choice, 0, choice.count))
    else:
        choice = chosen([list(range(50)), list(range(50))])
        column = GatheredColumns(choice, ["words"], False)

        def too_much(arrays: list[pa.Array]) -> pa.Array:
            raise pa.ArrowInvalid("offset overflow while concatenating arrays")

        monkeypatch.setattr(pa, "concat_arrays", too_much)
        with pytest.raises(TooMuchTextError):
            column.rows(rows_between(choice, 0, choice.count))


def test_a_column_without_addresses_is_gathered_by_arrow(monkeypatch: pytest.MonkeyPatch) -> None:
    choice = chosen([[1, 2, 5], [7]])
    columns = stored_columns(choice.parts, "int64")
    bare = [StoredColumn(column.array, 0, 0, 0, 0) for column in columns]
    monkeypatch.setattr(gathered_columns, "stored_columns", lambda parts, name: bare)
    gathered = GatheredColumns(choice, ["int64"], True)
    assert gathered.rows(rows_between(choice, 0, 4))[0].to_pylist() == expected("int64", [[1, 2, 5], [7]])
