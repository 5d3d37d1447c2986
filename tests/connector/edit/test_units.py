"""Units are equal where their bits are, against dicts of Python."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from statestore.connector.edit.row_changes import with_one_zero
from statestore.connector.edit.units import Units, repeated_row, unit_numbers
from statestore.formats.values.equal_hashes import first_of_each

SCHEMA = pa.schema([("k", pa.struct([("a", pa.string()), ("b", pa.float64())])), ("n", pa.int64())])
CELLS = st.fixed_dictionaries(
    {
        "k": st.none()
        | st.fixed_dictionaries({"a": st.sampled_from(["x", "", None]), "b": st.sampled_from([0.0, -0.0, 1.5, None])}),
        "n": st.sampled_from([None, 0, 1]),
    }
)
ROWS = st.lists(CELLS, max_size=12)


def bits(row: dict[str, Any]) -> object:
    key = row["k"]
    inner = None if key is None else (key["a"], None if key["b"] is None else struct.pack("d", key["b"]))
    return inner, row["n"]


def table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, SCHEMA)


@given(ROWS)
def test_equal_units_have_one_number(rows: list[dict[str, Any]]) -> None:
    numbers = unit_numbers(table(rows), ("k", "n"))
    for one, first in zip(rows, numbers, strict=True):
        for other, second in zip(rows, numbers, strict=True):
            assert (bits(one) == bits(other)) == (first == second)
    distinct = list(dict.fromkeys(map(bits, rows)))
    assert [bits(rows[row]) for row in first_of_each(numbers)] == distinct
    again = repeated_row(numbers)
    assert (again is None) == (len(distinct) == len(rows))
    assert again is None or bits(rows[again]) in map(bits, rows[:again])


@given(ROWS, ROWS)
def test_units_are_found(known: list[dict[str, Any]], rows: list[dict[str, Any]]) -> None:
    units, asked = Units.of(table(known), ("k", "n")), table(rows)
    keys = [bits(row) for row in units.keys.to_pylist()]
    assert keys == list(dict.fromkeys(map(bits, known)))
    found = units.find(asked).tolist()
    assert found == [keys.index(bits(row)) if bits(row) in keys else -1 for row in rows]
    rest = Units.of(asked, ("k", "n")).without(units)
    assert not units.have(rest.keys).any()
    assert units.joined(rest).have(asked).all()


def test_one_zero_and_one_nan() -> None:
    other = np.array([0x7FF8000000000001], np.uint64).view(np.float64)[0]
    keys = pa.StructArray.from_arrays([pa.array([-0.0, 1.5, None, other])], names=["b"])
    found = with_one_zero(keys).field(0)
    assert found.to_pylist()[:3] == [0.0, 1.5, None]
    assert not np.signbit(found[0].as_py()) and found.slice(3).buffers()[1].to_pybytes()[-8:] == struct.pack(
        "d", np.nan
    )
