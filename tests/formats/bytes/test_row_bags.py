"""Bags of stored rows compared with a plain multiset, with compiled loops and without them."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore.formats.bytes import row_bags
from statestore.formats.bytes.byte_columns import cells_of
from statestore.formats.bytes.row_bags import NO_ROWS, RowBag, bag_of, bags_of_text, text_of_bags
from statestore.formats.kernels import compiled_use, key_kernels

assert key_kernels and compiled_use.is_loaded()  # by the import of kernels

Rows = list[tuple[bytes, bytes]]
CELLS = st.sampled_from([b"", b"a", b"b", b"ab", b"\0", bytes(40), bytes(range(90))])
ROWS = st.lists(st.tuples(CELLS, CELLS), max_size=6)


def bag(rows: Rows) -> RowBag:
    return bag_of(*(cells_of(pa.array([row[side] for row in rows], pa.binary())) for side in (0, 1)))


@given(ROWS, ROWS)
def test_bags_are_equal_as_their_rows_are(ours: Rows, theirs: Rows) -> None:
    assert (bag(ours) == bag(theirs)) == (Counter(ours) == Counter(theirs))
    assert bag(ours + theirs) == bag(theirs) + bag(ours) and bag([]) == NO_ROWS


@given(ROWS)
def test_sums_are_the_same_without_compiled_loops(rows: Rows) -> None:
    compiled = bag(rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_bags, "is_loaded", lambda: False)
        assert bag(rows) == compiled


@given(st.lists(st.dictionaries(st.text(max_size=3), ROWS.map(bag), max_size=3), max_size=3))
def test_a_text_keeps_bags(pieces: list[dict[str, RowBag]]) -> None:
    assert bags_of_text(text_of_bags(pieces)) == pieces
