"""Row-wise equality of keys agrees with equality of their canonical values."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st
from support.key_strategies import key_tables
from support.properties import few_or_many

from statestore.formats.kernels import compiled_use
from statestore.formats.values import key_equality
from statestore.formats.values.key_codec import KeyCodec
from statestore.formats.values.key_equality import keys_equal

NESTED = pa.list_(pa.list_(pa.string()))


@pytest.fixture(autouse=True, params=["plain", "compiled"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """By numpy and Arrow, and strings by the compiled loop."""
    loaded = request.param == "compiled"
    if loaded:
        importlib.import_module(compiled_use.COMPILED)
    monkeypatch.setattr(key_equality, "is_loaded", lambda: loaded)


def _all_pairs(rows: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    grid = np.indices((rows, rows))
    return grid[0].ravel(), grid[1].ravel()


@few_or_many(10, 100, key_tables(), st.data())
def test_equal_exactly_if_canonical_values_are(
    table: tuple[pa.Schema, list[tuple[Any, ...]]], data: st.DataObject
) -> None:
    """Every row against every row of a slice of the same keys."""
    schema, keys = table
    columns = KeyCodec(schema).to_columns(keys)
    start = data.draw(st.integers(0, len(keys) - 1))
    left, right = _all_pairs(len(keys) - start)
    found = keys_equal(columns, left + start, [column.slice(start) for column in columns], right)
    assert found.tolist() == [keys[a + start] == keys[b + start] for a, b in zip(left, right, strict=True)]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([None, [], [None], [[]], [[], None], [["a"]], [["a", None]], [["b"]], [["a"], []]], NESTED),
        pa.array([None, {"a": None}, {"a": 0}, {"a": 1}], pa.struct([("a", pa.int64())])),
        pa.array([None, False, True]),
        pa.array([None, "", "a", "b", "ab"], pa.large_string()),
    ],
)
def test_different_rows_differ(column: pa.Array) -> None:
    """Null, empty and their nestings are all different; each equals itself."""
    left, right = _all_pairs(len(column))
    assert (keys_equal([column], left, [column], right) == (left == right)).all()


def test_values_under_nulls_do_not_matter() -> None:
    """Two null slots are equal whatever they hold; a null differs from the value it hides."""
    values = pa.array(["x", "y", "x"])
    hidden = pa.StringArray.from_buffers(3, values.buffers()[1], values.buffers()[2], pa.py_buffer(b"\x04"))
    rows, other = np.array([0, 0, 2]), np.array([1, 2, 2])
    assert keys_equal([hidden], rows, [hidden], other).tolist() == [True, False, True]


def test_all_columns_count() -> None:
    """A key is equal if each of its columns is; positions of 32 bits do as well."""
    columns = [pa.array(["a", "a", "b"]), pa.array([1, 2, 1])]
    rows = np.array([0, 1, 2], np.uint32)
    assert keys_equal(columns, np.zeros(3, np.uint32), columns, rows).tolist() == [True, False, False]


def test_long_strings_are_compared_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow's take stops at 2 GiB of strings, so that rows are cut by their bytes; single long ones pass."""
    monkeypatch.setattr(key_equality, "_TAKE_BYTES", 10)
    column = pa.array(["aaaa", "bbbb", "x" * 50, "cccc", "dddd", "eeee", ""])
    rows = np.array([0, 1, 2, 3, 4, 5, 6, 2, 2])
    other = np.array([0, 0, 2, 3, 3, 5, 6, 2, 1])
    assert (keys_equal([column], rows, [column], other) == (rows == other)).all()


@pytest.mark.parametrize("kind", [pa.string(), pa.int64(), NESTED, pa.struct([("a", NESTED)]), pa.decimal128(5, 1)])
def test_no_rows(kind: pa.DataType) -> None:
    """Neither of empty columns nor of others."""
    nothing = np.empty(0, np.int64)
    for column in (pa.array([], kind), pa.nulls(3, kind)):
        assert keys_equal([column], nothing, [column], nothing).tolist() == []


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (pa.int64(), pa.int32()),
        (pa.string(), pa.int64()),
        (pa.list_(pa.int64()), pa.int64()),
        (pa.list_(pa.int64()), pa.list_(pa.int32())),
        (pa.struct([("a", pa.int64())]), pa.int64()),
        (pa.struct([("a", pa.int64())]), pa.struct([("a", pa.int64()), ("b", pa.int64())])),
    ],
)
def test_different_types_are_refused(left: pa.DataType, right: pa.DataType) -> None:
    nothing = np.empty(0, np.int64)
    with pytest.raises(TypeError, match="cannot be compared"):
        keys_equal([pa.array([], left)], nothing, [pa.array([], right)], nothing)


def test_rows_and_columns_have_to_match() -> None:
    column = pa.array([1])
    with pytest.raises(ValueError, match="as many rows"):
        keys_equal([column], np.zeros(1, np.int64), [column], np.zeros(2, np.int64))
    with pytest.raises(ValueError, match="shorter"):
        keys_equal([column, column], np.zeros(1, np.int64), [column], np.zeros(1, np.int64))
