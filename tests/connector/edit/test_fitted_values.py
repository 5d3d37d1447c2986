"""Values fit the columns of a state as they are, or are refused: nothing is rounded, cut off or left out."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from statestore.connector.duckdb.attach import connect
from statestore.connector.edit.fitted_values import fitted, in_type, with_rows, with_values
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError

POINT = pa.struct([pa.field("x", pa.int32(), nullable=False), pa.field("y", pa.string())])
UTC_TIME = pa.timestamp("us", "UTC")


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with connect(allow_external_access=False) as opened:
        yield opened


def fit(connection: duckdb.DuckDBPyConnection, expression: str, kind: pa.DataType) -> pa.Array:
    rows: pa.Table = connection.sql(f"SELECT {expression} AS v UNION ALL SELECT NULL").to_arrow_table()
    found = fitted(rows, pa.schema([pa.field("v", kind)]), "state", connection)
    column = found.column("v").chunk(0)
    column.validate(full=True)
    assert column.type == kind and column[1].as_py() is None
    return column


@pytest.mark.parametrize(
    ("expression", "kind", "value"),
    [
        ("26", pa.int64(), 26),
        ("26.0", pa.int8(), 26),
        ("26e0", pa.int16(), 26),
        ("' -26 '", pa.int32(), -26),
        ("true", pa.int32(), 1),
        ("0.1", pa.float64(), 0.1),
        ("0.5", pa.float32(), 0.5),
        ("CAST(0.1 AS FLOAT)", pa.float32(), pa.scalar(0.1, pa.float32()).as_py()),
        ("1", pa.float64(), 1.0),
        ("'nan'::DOUBLE", pa.float32(), pytest.approx(float("nan"), nan_ok=True)),
        ("1.50", pa.decimal128(10, 2), Decimal("1.50")),
        ("'1.5'", pa.decimal128(10, 2), Decimal("1.50")),
        ("0.25e0", pa.decimal128(10, 2), Decimal("0.25")),
        ("'text'", pa.large_string(), "text"),
        ("26", pa.string(), "26"),
        ("'\\x00a'::BLOB", pa.binary(2), b"\x00a"),
        ("'abc'::BLOB", pa.string(), "abc"),
        ("' -16777216'", pa.float32(), -16777216.0),
        ("'-inf'", pa.float64(), float("-inf")),
        ("'2024-05-01 09:30:00.123456000+02'", UTC_TIME, datetime(2024, 5, 1, 7, 30, 0, 123456, UTC)),
        ("TIMESTAMPTZ '2024-05-01 09:30:00+02'", UTC_TIME, datetime(2024, 5, 1, 7, 30, tzinfo=UTC)),
        ("TIMESTAMP '2024-05-01 09:30:00'", UTC_TIME, datetime(2024, 5, 1, 9, 30, tzinfo=UTC)),
        ("'2024-05-01 09:30:00.123'", pa.timestamp("ms"), datetime(2024, 5, 1, 9, 30, 0, 123000)),
        ("TIMESTAMP '2024-05-01 00:00:00'", pa.date32(), date(2024, 5, 1)),
        ("'2024-05-01'", pa.date32(), date(2024, 5, 1)),
        ("{'y': 'b', 'x': 1}", POINT, {"x": 1, "y": "b"}),
        ("{'X': 1, 'Y': NULL}", POINT, {"x": 1, "y": None}),
        ("[1, NULL]", pa.list_(pa.field("element", pa.int16())), [1, None]),
        ("[{'x': 1, 'y': 'b'}]", pa.list_(POINT), [{"x": 1, "y": "b"}]),
        ("MAP {'a': 1}", pa.map_(pa.string(), pa.int64()), [("a", 1)]),
        ("MAP {'a': {'x': 1, 'y': 'b'}}", pa.map_(pa.string(), POINT), [("a", {"x": 1, "y": "b"})]),
    ],
)
def test_what_fits_is_kept(
    connection: duckdb.DuckDBPyConnection, expression: str, kind: pa.DataType, value: Any
) -> None:
    assert fit(connection, expression, kind)[0].as_py() == value


@pytest.mark.parametrize(
    ("expression", "kind"),
    [
        ("2.7", pa.int64()),
        ("2.7e0", pa.int64()),
        ("'2.7'", pa.int64()),
        ("'two'", pa.int64()),
        ("300", pa.int8()),
        ("-1", pa.uint8()),
        ("2", pa.bool_()),
        ("9007199254740993", pa.float64()),
        ("16777217", pa.float32()),
        ("0.1e0", pa.float32()),
        ("'16777217'", pa.float32()),
        ("'9007199254740993'", pa.float64()),
        ("'1e39'", pa.float32()),
        ("'-1e400'", pa.float64()),
        ("'\\xFF'::BLOB", pa.string()),
        ("'infinity'", pa.date32()),
        ("'-infinity'", UTC_TIME),
        ("'2024-05-01 09:30:00.1234567+02'", UTC_TIME),
        ("1.505", pa.decimal128(10, 2)),
        ("'1.505'", pa.decimal128(10, 2)),
        ("123456789.5", pa.decimal128(4, 2)),
        ("'abc'::BLOB", pa.binary(2)),
        ("TIMESTAMP '2024-05-01 09:30:00'", pa.date32()),
        ("'2024-05-01 09:30:00'", pa.date32()),
        ("TIMESTAMP '2024-05-01 09:30:00.123456'", pa.timestamp("ms")),
        ("'2024-05-01 09:30:00.1234567'", pa.timestamp("us")),
        ("{'x': 1}", POINT),
        ("row(1, 'b')", POINT),
        ("{'x': 1, 'y': 'b', 'z': 2}", POINT),
        ("{'x': 1.5, 'y': 'b'}", POINT),
        ("'{\"x\": 1}'", POINT),
        ("{'x': 1, 'y': 'b'}", pa.string()),
        ("[1.5]", pa.list_(pa.int32())),
        ("[{'x': 1, 'y': 'b', 'z': 2}]", pa.list_(POINT)),
        ("MAP {'a': 1.5}", pa.map_(pa.string(), pa.int64())),
        ("1", pa.list_(pa.int32())),
    ],
)
def test_what_does_not_fit_is_refused(
    connection: duckdb.DuckDBPyConnection, expression: str, kind: pa.DataType
) -> None:
    with pytest.raises(InvalidInputError, match="'v' of 'state'") as refused:
        fit(connection, expression, kind)
    assert refused.value.code == ErrorCode.WRONG_VALUE


def test_a_field_is_set_and_the_others_stay() -> None:
    structs = pa.array(
        [{"x": 1, "y": "a"}, {"x": 2, "y": None}, None], pa.struct([("x", pa.int32()), ("y", pa.string())])
    )
    found = with_values(structs.slice(1), ["x"], pa.array([5, 6], pa.int32()))
    assert found.to_pylist() == [{"x": 5, "y": None}, None]


def test_some_rows_get_other_values() -> None:
    column = pa.array([[1], None, [2, 3]], pa.list_(pa.int32()))
    found = with_rows(column, pa.array([2, 0]).to_numpy(), pa.array([[9], None], column.type))
    assert found.to_pylist() == [None, None, [9]]


def test_slices_of_nested_values_take_another_type() -> None:
    kind = pa.list_(pa.struct([("a", pa.int64())]))
    column = pa.array([[{"a": 1}], None, [], [{"a": 2}, None]], kind).slice(1)
    wanted = pa.list_(pa.field("element", pa.struct([pa.field("a", pa.int64())])))
    assert in_type(column, wanted).to_pylist() == [None, [], [{"a": 2}, None]]
