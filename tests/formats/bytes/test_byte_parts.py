"""Byte strings put together of parts, against plain Python that does it row by row."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from statestore.formats.bytes.byte_columns import Cells, cells_of
from statestore.formats.bytes.byte_parts import (
    Part,
    cells_of_groups,
    joined_parts,
    number_cells,
    repeated,
    sizes_of,
    spread_cells,
    zero_cells,
)

short = st.binary(max_size=5)
cells = st.lists(short, max_size=8)


def made(strings: list[bytes | None]) -> Cells:
    return cells_of(pa.array(strings, pa.binary()))


def content(found: Cells) -> list[bytes]:
    return [found.cell(number) for number in range(len(found))]


@given(st.data(), st.integers(0, 6))
def test_parts_of_each_row_follow_each_other(data: st.DataObject, rows: int) -> None:
    strings = st.lists(st.none() | short, min_size=rows, max_size=rows)
    parts: list[Part] = []
    expected = [b""] * rows
    for shared in data.draw(st.lists(st.booleans(), max_size=5)):
        if shared:
            part = data.draw(short)
            parts.append(part)
            expected = [row + part for row in expected]
        else:
            column = data.draw(strings)
            order = data.draw(st.permutations(range(rows)))  # cells that do not follow each other
            parts.append(made([column[at] for at in order]).select(np.argsort(order)) if rows else made([]))
            expected = [row + (cell or b"") for row, cell in zip(expected, column, strict=True)]
    assert content(joined_parts(parts, rows)) == expected
    assert sizes_of(parts, rows).tolist() == [len(row) for row in expected]


@given(cells, st.data())
def test_cells_between_nulls_and_in_groups(strings: list[bytes], data: st.DataObject) -> None:
    nulls = np.array(data.draw(st.permutations([False] * len(strings) + [True] * 3)))
    left = iter(strings)
    assert content(spread_cells(made(list(strings)), nulls)) == [b"" if null else next(left) for null in nulls]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(strings)), max_size=3)))
    offsets = np.array([0, *cuts, len(strings)])
    groups = [b"".join(strings[begin:end]) for begin, end in pairwise(offsets)]
    assert content(cells_of_groups(made(list(strings)), offsets)) == groups


def test_numbers_zeros_and_repeated_bytes() -> None:
    assert content(number_cells(np.array([1, 258], ">u2"))) == [b"\0\1", b"\1\2"]
    assert content(zero_cells(np.array([0, 3, 1]))) == [b"", b"\0\0\0", b"\0"]
    assert content(repeated(b"ab", 2)) == [b"ab", b"ab"]
    assert content(repeated(b"", 2)) == [b"", b""]
