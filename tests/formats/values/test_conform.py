"""Tables converted to a store's columns: every lossless conversion is made, others are refused."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.key_strategies import LIMITS, key_types
from support.properties import few_or_many

from statestore.formats.errors import InvalidInputError
from statestore.formats.values.types import conform

NOON = datetime(2020, 1, 1, 12, tzinfo=UTC)
POINT = pa.struct([("x", pa.int32()), ("y", pa.string())])
INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]


def conformed(values: list[Any], given_type: pa.DataType, wanted: pa.DataType) -> list[Any]:
    """The values converted as a batch and as a table of two chunks, which must agree."""
    schema = pa.schema([pa.field("x", wanted, nullable=False)])
    batch = pa.RecordBatch.from_arrays([pa.array(values, given_type)], ["x"])
    result = conform(batch, schema)
    table = conform(pa.Table.from_batches([batch, batch]), schema)
    for found in (result, table):
        assert found.column("x").type.equals(wanted, check_metadata=True)
        found.validate(full=True)
    answer: list[Any] = result.column("x").to_pylist()
    assert table.column("x").to_pylist() == answer * 2
    return answer


def message_of(data: Any, schema: pa.Schema) -> str:
    with pytest.raises(InvalidInputError) as caught:
        conform(data, schema)
    assert caught.value.code == "WRONG_SCHEMA"
    return caught.value.message


@pytest.mark.parametrize(
    ("values", "given_type", "wanted"),
    [
        (["a", None], pa.large_string(), pa.string()),
        (["a", None], pa.string_view(), pa.string()),
        (["a", None, "a"], pa.dictionary(pa.int8(), pa.string()), pa.string()),
        (["a", None], pa.dictionary(pa.int8(), pa.large_string()), pa.string()),
        ([7, None], pa.dictionary(pa.int8(), pa.int32()), pa.int64()),
        ([b"a", None], pa.large_binary(), pa.binary()),
        ([b"ab", None], pa.binary(2), pa.binary()),
        ([None, None], pa.null(), pa.string()),
        ([1.5, None], pa.float32(), pa.float64()),
        ([2**53, None], pa.int64(), pa.float64()),
        ([Decimal("1.50"), None], pa.decimal128(10, 2), pa.decimal128(5, 1)),
        ([Decimal("1.5"), None], pa.decimal128(10, 1), pa.decimal128(38, 20)),
        ([Decimal("1.5"), None], pa.decimal256(50, 1), pa.decimal128(10, 2)),
        ([NOON, None], pa.timestamp("s", "UTC"), pa.timestamp("us", "UTC")),
        ([NOON, None], pa.timestamp("ns", "UTC"), pa.timestamp("us", "UTC")),
        ([NOON, None], pa.timestamp("us", "Europe/Berlin"), pa.timestamp("us", "UTC")),
        ([NOON.replace(tzinfo=None)], pa.timestamp("ns"), pa.timestamp("us")),
        ([date(2020, 1, 1), None], pa.date64(), pa.date32()),
        ([timedelta(days=1), None], pa.duration("ns"), pa.duration("us")),
        ([["a"], [], None], pa.large_list(pa.large_string()), pa.list_(pa.string())),
        ([["a", "b"], None], pa.list_(pa.string(), 2), pa.list_(pa.string())),
        ([[1]], pa.list_(pa.field("element", pa.int64(), nullable=False)), pa.list_(pa.int32())),
        ([[1]], pa.list_(pa.field("element", pa.int32())), pa.list_(pa.int32())),
        ([[None], []], pa.list_(pa.null()), pa.list_(pa.int32())),
        ([["a"]], pa.list_(pa.dictionary(pa.int8(), pa.string())), pa.list_(pa.string())),
        ([{"y": "a", "x": 1}, None], pa.struct([("y", pa.large_string()), ("x", pa.int64())]), POINT),
        ([[(1, "a")], None], pa.map_(pa.int64(), pa.large_string()), pa.map_(pa.int32(), pa.string())),
    ],
    ids=str,
)
def test_the_same_values_in_another_type(values: list[Any], given_type: pa.DataType, wanted: pa.DataType) -> None:
    """Encodings, widths, units, zones and the order of struct fields."""
    assert conformed(values, given_type, wanted) == values


@given(
    st.sampled_from(INTEGERS),
    st.sampled_from([*INTEGERS[:4], pa.float32(), pa.float64(), pa.decimal128(10, 2), pa.decimal128(38, 38)]),
    st.lists(st.none() | st.integers(-300, 300) | st.integers(-LIMITS[64] - 1, 2**64 - 1), min_size=1, max_size=4),
)
def test_integers_keep_their_values_or_are_refused(
    given_type: pa.DataType, wanted: pa.DataType, values: list[int | None]
) -> None:
    """Every integer that fits is taken, whatever its type could have held."""
    try:
        pa.array(values, given_type)
    except (OverflowError, pa.ArrowInvalid):
        return
    try:
        found = conformed(values, given_type, wanted)
    except InvalidInputError as error:
        assert "x" in error.message
        assert not all(fits(value, wanted) for value in values if value is not None)
    else:
        assert found == values


def fits(value: int, kind: pa.DataType) -> bool:
    if pa.types.is_decimal(kind):
        return abs(value) < int(10 ** (kind.precision - kind.scale))
    if pa.types.is_floating(kind):
        return abs(value) <= 2 ** (24 if kind.bit_width == 32 else 53)
    return -LIMITS[kind.bit_width] - 1 <= value <= LIMITS[kind.bit_width]


@few_or_many(25, 100, st.data())
def test_what_is_of_the_type_is_handed_on(data: st.DataObject) -> None:
    """All key types, without a copy."""
    kind, _ = data.draw(key_types())
    cells = pa.array([None] * data.draw(st.integers(0, 3)), kind)
    found = conform(pa.RecordBatch.from_arrays([cells], ["x"]), pa.schema([("x", kind)]))
    assert found.column("x").equals(cells)
    assert [b and b.address for b in found.column("x").buffers()] == [b and b.address for b in cells.buffers()]


@pytest.mark.parametrize(
    ("values", "given_type", "wanted"),
    [
        (["1"], pa.string(), pa.int64()),
        ([1], pa.int64(), pa.string()),
        ([b"a"], pa.binary(), pa.string()),
        (["a"], pa.string(), pa.binary()),
        ([1], pa.int64(), pa.bool_()),
        ([True], pa.bool_(), pa.int64()),
        ([1.0], pa.float64(), pa.int64()),
        ([1.5], pa.float64(), pa.float32()),
        ([1.5], pa.float64(), pa.decimal128(10, 2)),
        ([Decimal("1.0")], pa.decimal128(5, 1), pa.float64()),
        ([Decimal("1.55")], pa.decimal128(5, 2), pa.decimal128(5, 1)),
        ([Decimal("155")], pa.decimal128(5, 0), pa.decimal128(2, 0)),
        ([2**53 + 1], pa.int64(), pa.float64()),
        ([2**31], pa.int64(), pa.int32()),
        ([1001], pa.timestamp("ns", "UTC"), pa.timestamp("us", "UTC")),
        ([2**62], pa.timestamp("s", "UTC"), pa.timestamp("us", "UTC")),
        ([NOON.replace(tzinfo=None)], pa.timestamp("us"), pa.timestamp("us", "UTC")),
        ([NOON], pa.timestamp("us", "UTC"), pa.timestamp("us")),
        ([date(2020, 1, 1)], pa.date32(), pa.timestamp("us")),
        ([1577880000000], pa.int64(), pa.timestamp("us", "UTC")),
        ([[2**40]], pa.list_(pa.int64()), pa.list_(pa.int32())),
        ([{"x": 1}], pa.struct([("x", pa.int32())]), POINT),
        ([{"x": 1, "z": "a"}], pa.struct([("x", pa.int32()), ("z", pa.string())]), POINT),
        ([[1]], pa.list_(pa.int64()), pa.int64()),
    ],
    ids=str,
)
def test_values_that_would_change_are_refused(values: Any, given_type: pa.DataType, wanted: pa.DataType) -> None:
    """The message names the column, the found type and the expected one."""
    data = pa.RecordBatch.from_arrays([pa.array(values, given_type)], ["price"])
    message = message_of(data, pa.schema([("price", wanted)]))
    assert "'price'" in message
    assert str(given_type) in message


def test_columns_are_put_in_order() -> None:
    """Columns are ordered by name."""
    table = pa.table({"b": [1], "a": ["x"]})
    found = conform(table, pa.schema([("a", pa.string()), ("b", pa.int64())]))
    assert found.to_pylist() == [{"a": "x", "b": 1}]
    assert found.column_names == ["a", "b"]


def test_wrong_columns_are_all_named() -> None:
    """Missing, unknown and doubled ones, with what was found and expected."""
    data = pa.RecordBatch.from_arrays([pa.array([1])] * 3, ["a", "a", "z"])
    message = message_of(data, pa.schema([("a", pa.int64()), ("b", pa.int64())]))
    for part in ("missing: b", "unknown: z", "given twice: a", "found a, a, z", "expected a, b"):
        assert part in message


def test_nulls_are_left_to_the_caller() -> None:
    """The caller knows whether a null is an error, and reports it with the store's name."""
    schema = pa.schema([pa.field("x", pa.int64(), nullable=False)])
    assert conform(pa.table({"x": [None, 1]}), schema).column("x").null_count == 1
