"""Byte strings in one buffer as Arrow columns and numbers, in numpy and in compiled loops."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.rocksdb.compiled_loops import compiled_or_not  # noqa: F401

from statestore.formats.bytes import byte_columns
from statestore.formats.bytes.byte_columns import Cells, cells_of, gather, sized_cells
from statestore.formats.errors import InvalidInputError

pytestmark = pytest.mark.usefixtures("compiled_or_not")

CELLS = st.lists(st.none() | st.binary(max_size=9))


def cells_in(column: list[bytes | None], order: np.ndarray) -> Cells:
    """The cells of a column of which all bytes lie in one buffer, in another order."""
    data = np.frombuffer(b"".join(cell or b"" for cell in column) or b"\0", np.uint8)
    size = np.array([len(cell or b"") for cell in column], np.int64)
    start = np.concatenate([np.zeros(1, np.int64), np.cumsum(size)])[: len(column)].astype(np.int64)
    nulls = np.array([column[number] is None for number in order], np.bool_)
    return Cells(data, start[order], size[order], nulls if nulls.any() else None)


@settings(deadline=None)  # the first example may load compiled code
@given(CELLS, st.randoms(use_true_random=False))
def test_cells_in_any_order_become_a_binary_array(column: list[bytes | None], rng: random.Random) -> None:
    order = np.array(rng.sample(range(len(column)), len(column)), np.int64)
    found = cells_in(column, order).binary()
    found.validate(full=True)
    assert found.to_pylist() == [column[number] for number in order]


@settings(deadline=None)
@given(CELLS, st.data())
def test_cells_with_gaps_become_a_binary_array(column: list[bytes | None], data: st.DataObject) -> None:
    kept = np.flatnonzero(data.draw(st.lists(st.booleans(), min_size=len(column), max_size=len(column))))
    found = cells_in(column, kept).binary()
    found.validate(full=True)
    assert found.to_pylist() == [column[number] for number in kept]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.string()])
def test_cells_of_a_slice_of_a_column(kind: pa.DataType) -> None:
    column = pa.array(["left", "out", None, "", "text"], kind).slice(1)
    cells = cells_of(column)
    assert cells.nulls.tolist() == [False, True, False, False]
    assert cells.size.tolist() == [3, 0, 0, 4]
    assert cells.copied().to_pylist() == cells.binary().to_pylist() == [b"out", None, b"", b"text"]
    assert cells.select(np.array([3, 1])).binary().to_pylist() == [b"text", None]
    assert cells_of(column.slice(0, 0)).binary().to_pylist() == []


def test_a_column_of_its_own_is_returned_and_a_copy_is_compact() -> None:
    column = pa.array([b"much", b"more", b"few"], pa.binary()).slice(2)
    cells = cells_of(column)
    assert cells.binary() is column
    assert cells.copied().offset == 0
    assert cells.copied().buffers()[2].size == 3


def test_a_size_of_minus_one_is_null() -> None:
    cells = sized_cells(np.frombuffer(b"abc", np.uint8), np.array([0, 9, 1]), np.array([1, -1, 2]))
    assert cells.copied().to_pylist() == [b"a", None, b"bc"]
    assert sized_cells(cells.data, cells.start[:1], cells.size[:1]).missing is None


def test_a_cell_that_is_too_short_raises_the_error_of_the_caller() -> None:
    cells = cells_of(pa.array([b"abc", b"d"], pa.binary()))
    assert cells.behind(1, "a row", ValueError).copied().to_pylist() == [b"bc", b""]
    with pytest.raises(ValueError, match="a row: found 1 bytes, expected at least 2"):
        cells.behind(2, "a row", ValueError)


def test_a_column_of_more_bytes_than_arrow_takes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells may overlap, so a few bytes claim to be many."""
    monkeypatch.setattr(byte_columns, "_MOST_BYTES", 5)
    cells = Cells(np.zeros(4, np.uint8), np.zeros(2, np.int64), np.array([4, 4]))
    with pytest.raises(InvalidInputError, match="BATCH_TOO_LARGE"):
        cells.copied()
    with pytest.raises(ValueError, match="found 8 bytes in one column of a batch, expected at most 5"):
        cells.copied(ValueError)


@pytest.mark.parametrize("form", ["<i8", "<u8", "<f8", "<i4", "<f4", "<u4", ">i8", ">i4", "<i2", "u1"])
def test_numbers_are_read_where_they_lie(form: str) -> None:
    data = np.arange(40, dtype=np.uint8)[::-1].copy()
    positions = np.array([3, 0, 32, 17])
    found = gather(data, positions, form)
    assert found.dtype == np.dtype(form).newbyteorder("=")
    assert found.tolist() == [np.frombuffer(data.tobytes(), form, 1, at)[0].item() for at in positions.tolist()]
    assert gather(data[:0], np.zeros(1, np.int64), form).tolist() == [0]
