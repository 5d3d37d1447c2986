"""Cells are the same if all their bits are: of floats, times, texts, structs and lists."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import strategies as st
from support.properties import few_or_many

from statestore.formats.kafka.edits.edited_units import same_cells

FLOATS = st.sampled_from([0.0, -0.0, 1.5, float("nan"), float("inf")])
NUMBERS = st.integers(-2, 2)
TEXTS = st.sampled_from(["", "a", "b", "é"])
PAIR = pa.struct([pa.field("a", pa.float64()), pa.field("b", pa.list_(pa.string()))])
KINDS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.float64(), FLOATS),
    (pa.float32(), FLOATS),
    (pa.int64(), NUMBERS),
    (pa.timestamp("us", "UTC"), NUMBERS),
    (pa.string(), TEXTS),
    (pa.binary(), TEXTS.map(str.encode)),
    (pa.bool_(), st.booleans()),
    (PAIR, st.fixed_dictionaries({"a": st.none() | FLOATS, "b": st.none() | st.lists(st.none() | TEXTS, max_size=2)})),
    (pa.map_(pa.string(), pa.float64()), st.lists(st.tuples(TEXTS, FLOATS), max_size=2)),
]


def bits(cell: Any) -> str:
    """A text that two cells share only if their bits are the same."""
    if isinstance(cell, float):
        return struct.pack(">d", cell).hex()
    if isinstance(cell, dict):
        return str({name: bits(part) for name, part in sorted(cell.items())})
    return str([bits(part) for part in cell]) if isinstance(cell, list | tuple) else repr(cell)


@pytest.mark.parametrize(("kind", "cells"), KINDS, ids=[str(kind) for kind, _ in KINDS])
@few_or_many(15, 200, data=st.data())
def test_cells_are_the_same_by_their_bits(
    kind: pa.DataType, cells: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    pairs = data.draw(st.lists(st.tuples(st.none() | cells, st.none() | cells), max_size=8))
    # A part of a longer column, as the rows of an edit are.
    one, other = (pa.array([None, *(pair[side] for pair in pairs)], kind).slice(1) for side in (0, 1))
    assert same_cells(one, other).tolist() == [bits(left) == bits(right) for left, right in pairs]
