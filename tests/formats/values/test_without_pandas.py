"""Conversions between numpy, Python and Arrow that load no pandas, compared with pyarrow's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore.formats.values.without_pandas import (
    arrow_bytes,
    arrow_numbers,
    arrow_scalar,
    bools,
    int64_values,
    numbers,
    without_nulls,
)

FLAGS = st.lists(st.booleans(), max_size=40)


@given(FLAGS, st.data())
def test_booleans_come_back(flags: list[bool], data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(flags)))
    assert bools(pa.array(flags, pa.bool_()).slice(first)).tolist() == flags[first:]
    assert arrow_numbers(np.array(flags, np.bool_)).equals(pa.array(flags, pa.bool_()))


@given(st.lists(st.one_of(st.none(), st.booleans()), max_size=40))
def test_null_is_false(flags: list[bool | None]) -> None:
    column = pa.array(flags, pa.bool_())
    assert without_nulls(column).equals(pc.fill_null(column, False))


@pytest.mark.parametrize("kind", [np.int8, np.int32, np.int64, np.uint64, np.float32, np.float64])
def test_numbers_with_nulls_are_those_of_arrow(kind: Any) -> None:
    values, nulls = np.arange(19).astype(kind), np.arange(19) % 3 == 1
    for mask in (None, nulls, np.zeros(19, np.bool_)):
        assert arrow_numbers(values, mask).equals(pa.array(values, mask=mask))
    assert arrow_numbers(values[::-2]).equals(pa.array(values[::-2]))
    assert arrow_numbers(values.astype(values.dtype.newbyteorder(">"))).equals(pa.array(values))
    assert numbers(pa.array(values).slice(5, 7)).tolist() == values[5:12].tolist()
    assert numbers(pa.array(values[:0])).dtype == kind


def test_nulls_are_refused_where_a_number_is_expected() -> None:
    with pytest.raises(ValueError, match="1 of 2 numbers are null"):
        numbers(pa.array([1, None]))
    with pytest.raises(ValueError, match="1 of 2 booleans are null"):
        bools(pa.array([True, None]))


def test_times_are_numbers() -> None:
    assert int64_values(pa.array([3, 4, 5], pa.timestamp("us")).slice(1)).tolist() == [4, 5]


@given(st.lists(st.binary(max_size=9), max_size=20))
def test_byte_strings_are_those_of_arrow(values: list[bytes]) -> None:
    assert arrow_bytes(values).equals(pa.array(values, pa.binary()))


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (b"", pa.binary()),
        (b"ab", pa.binary()),
        ("é", pa.string()),
        (None, pa.string()),
        (5, pa.int64()),
        (-(1 << 63), pa.int64()),
        (-1, pa.int32()),
        (True, pa.bool_()),
        (1.5, pa.float64()),
        ([1], pa.list_(pa.int64())),
    ],
)
def test_scalars_are_those_of_arrow(value: Any, kind: pa.DataType) -> None:
    assert arrow_scalar(value, kind).equals(pa.scalar(value, kind))
    assert arrow_scalar(value, kind).type == kind


def test_a_number_beyond_its_type_is_refused_as_by_arrow() -> None:
    with pytest.raises((pa.ArrowInvalid, OverflowError)):
        arrow_scalar(1 << 40, pa.int32())
