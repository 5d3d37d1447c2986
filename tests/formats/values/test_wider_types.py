"""The common type of two types: each value of either is the same in it, whichever comes first."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from statestore.formats.values.wider_types import cast_wider, widest_type

INT, BIGINT, DOUBLE, REAL = pa.int32(), pa.int64(), pa.float64(), pa.float32()


def struct(**fields: pa.DataType) -> pa.DataType:
    return pa.struct(list(fields.items()))


CASES: list[tuple[pa.DataType, pa.DataType, pa.DataType | None]] = [
    (pa.int8(), BIGINT, BIGINT),
    (INT, pa.int16(), INT),
    (REAL, DOUBLE, DOUBLE),
    (INT, REAL, DOUBLE),
    (INT, DOUBLE, DOUBLE),
    (BIGINT, DOUBLE, None),
    (pa.string(), BIGINT, None),
    (pa.null(), BIGINT, BIGINT),
    (pa.decimal128(5, 2), pa.decimal128(6, 4), pa.decimal128(7, 4)),
    (pa.decimal128(38, 0), pa.decimal128(38, 2), None),
    (struct(a=BIGINT), struct(a=INT, b=pa.string()), struct(a=BIGINT, b=pa.string())),
    (struct(a=INT, b=REAL), struct(b=DOUBLE), struct(a=INT, b=DOUBLE)),
    (struct(a=INT), struct(a=pa.string()), None),
    (pa.struct([("a", INT), ("a", INT)]), struct(a=INT), None),
    (pa.list_(INT), pa.list_(BIGINT), pa.list_(BIGINT)),
    (pa.list_(struct(a=INT)), pa.list_(struct(a=BIGINT, c=INT)), pa.list_(struct(a=BIGINT, c=INT))),
    (pa.map_(pa.string(), REAL), pa.map_(pa.string(), DOUBLE), pa.map_(pa.string(), DOUBLE)),
    (pa.map_(pa.string(), struct(a=INT)), pa.map_(pa.string(), struct(a=INT, b=INT)),
     pa.map_(pa.string(), struct(a=INT, b=INT))),
    (pa.map_(INT, INT), pa.map_(BIGINT, INT), None),
]  # fmt: skip


@pytest.mark.parametrize(("first", "second", "wide"), CASES, ids=str)
def test_the_widest_type_whichever_comes_first(first: pa.DataType, second: pa.DataType, wide: pa.DataType) -> None:
    assert widest_type(first, second) == wide
    assert _fields(widest_type(second, first)) == _fields(wide)


def _fields(kind: pa.DataType | None) -> Any:
    """The type without the order of the fields of structs."""
    if kind is None or not pa.types.is_nested(kind):
        return kind
    if pa.types.is_struct(kind):
        return {field.name: _fields(field.type) for field in kind}
    return [_fields(kind.field(number).type) for number in range(kind.num_fields)]


VALUES: list[tuple[pa.DataType, pa.DataType, list[Any], list[Any]]] = [
    (INT, BIGINT, [1, None, -(2**31)], [1, None, -(2**31)]),
    (REAL, DOUBLE, [0.5, None, float("inf")], [0.5, None, float("inf")]),
    (pa.decimal128(3, 1), pa.decimal128(9, 4), [Decimal("9.5"), None], [Decimal("9.5000"), None]),
    (struct(a=INT), struct(b=INT, a=BIGINT), [{"a": 1}, None, {"a": None}],
     [{"b": None, "a": 1}, None, {"b": None, "a": None}]),
    (pa.list_(struct(a=INT)), pa.list_(struct(a=BIGINT, c=INT)), [[{"a": 1}, None], None, []],
     [[{"a": 1, "c": None}, None], None, []]),
    (pa.map_(pa.string(), struct(a=INT)), pa.map_(pa.string(), struct(a=BIGINT, b=INT)), [[("x", {"a": 1})], None, []],
     [[("x", {"a": 1, "b": None})], None, []]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "wide", "given", "expected"), VALUES, ids=str)
def test_values_stay_as_they_are(kind: pa.DataType, wide: pa.DataType, given: list[Any], expected: list[Any]) -> None:
    for column in (pa.array(given, kind), pa.array([given[0], *given], kind).slice(1)):
        found = cast_wider(column, wide)
        found.validate(full=True)
        assert (found.type, found.to_pylist()) == (wide, expected)
