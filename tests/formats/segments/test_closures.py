"""Closure lists: the closures written for a segment are those read for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st
from pyarrow import ipc
from support.properties import few_or_many

from statestore.formats.errors import CorruptError, InvalidInputError
from statestore.formats.segments.closures import Part, encode_closures, read_closures
from statestore.formats.segments.segment_meta import ClosureSlice

rows_to_ends = st.dictionaries(st.integers(0, 2**32 - 1), st.integers(-(2**62), 2**62), min_size=1, max_size=20)


def _part(segment: str, version: int, closures: dict[int, int]) -> Part:
    return segment, version, np.array(list(closures), np.int64), np.array(list(closures.values()), np.int64)


def _example() -> tuple[pa.Buffer, tuple[ClosureSlice, ...]]:
    return encode_closures("c.arrow", [_part("a", 3, {5: 50, 1: 10}), _part("b", 3, {0: 7}), _part("a", 4, {1: 9})])


@few_or_many(25, 100, st.lists(rows_to_ends, min_size=1, max_size=5))
def test_round_trip(parts: list[dict[int, int]]) -> None:
    """Every part comes back as its own slice, rows ascending."""
    data, slices = encode_closures("c.arrow", [_part(f"s{n}", n, part) for n, part in enumerate(parts)])
    assert [(piece.segment, piece.version) for piece in slices] == [(f"s{n}", n) for n in range(len(parts))]
    for part, piece in zip(parts, slices, strict=True):
        rows, ends = read_closures(piece, data)
        assert list(zip(rows.tolist(), ends.tolist(), strict=True)) == sorted(part.items())
        assert piece.min_valid_to == min(part.values())


def test_file_is_plain_arrow() -> None:
    """Any Arrow tool reads it; `segment` counts the slices."""
    data, slices = _example()
    table = ipc.open_file(data).read_all()
    assert table.column("segment").to_pylist() == [0, 0, 1, 2]
    assert table.column("row").to_pylist() == [1, 5, 0, 1]
    assert table.column("valid_to").cast(pa.int64()).to_pylist() == [10, 50, 7, 9]
    assert table.schema.field("valid_to").type == pa.timestamp("us", tz="UTC")
    assert [(piece.offset, piece.count) for piece in slices] == [(0, 2), (2, 1), (3, 1)]


def test_arrays_are_views() -> None:
    """Rows and ends are not copied and cannot be written to."""
    data, slices = _example()
    for array in read_closures(slices[0], data):
        assert data.address < array.ctypes.data < data.address + data.size
        assert not array.flags.writeable


def test_every_flipped_byte_is_refused() -> None:
    """No damaged byte gets as far as Arrow."""
    data, slices = _example()
    for position in range(data.size):
        content = bytearray(data.to_pybytes())
        content[position] ^= 1 << (position % 8)
        with pytest.raises(CorruptError):
            read_closures(slices[0], pa.py_buffer(bytes(content)))


def test_every_truncation_is_refused() -> None:
    """A file of any other length is refused."""
    data, slices = _example()
    for length in range(data.size):
        with pytest.raises(CorruptError, match="truncated"):
            read_closures(slices[0], data.slice(0, length))


@pytest.mark.parametrize(
    "change", [{"offset": -1}, {"offset": 3}, {"count": 0}, {"count": 9}, {"min_valid_to": 11}, {"offset": 1}]
)
def test_slice_that_the_file_does_not_hold(change: dict[str, Any]) -> None:
    """A commit whose slice does not fit the file is refused, never answered with other rows."""
    data, slices = _example()
    with pytest.raises(CorruptError):
        read_closures(replace(slices[0], **change), data)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([], "no parts"),
        ([("a", 1, np.array([], np.int64), np.array([], np.int64))], "0 rows of a get 0 ends"),
        ([("a", 1, np.array([1, 2]), np.array([5]))], "2 rows of a get 1 ends"),
        ([("a", 1, np.array([2, 1, 2]), np.array([5, 6, 7]))], "closed twice at version 1"),
        ([("a", 1, np.array([2**32]), np.array([5]))], "do not fit 32 bits"),
        ([("a", 1, np.array([-1]), np.array([5]))], "do not fit 32 bits"),
    ],
)
def test_invalid_parts(parts: list[Part], message: str) -> None:
    """Nothing is written that could not be read."""
    with pytest.raises(InvalidInputError, match=message) as caught:
        encode_closures("c.arrow", parts)
    assert caught.value.code == "INVALID_CLOSURES"
