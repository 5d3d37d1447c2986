"""Filters evaluated in plain Python, and columns of numbers near the constants they are compared with."""

from __future__ import annotations

import operator
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from support.key_strategies import LIMITS

COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<=>": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
ORDERINGS = st.sampled_from(sorted(COMPARE))
TEXT: dict[str, Callable[[Any, Any], bool]] = {
    "starts_with": lambda row, value: bool(row.startswith(value)),
    "ends_with": lambda row, value: bool(row.endswith(value)),
    "contains": lambda row, value: value in row,
}
INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint64()]
DECIMALS = [pa.decimal128(4, 2), pa.decimal128(38, 0), pa.decimal128(38, 20)]
DOUBLES = [pa.float32(), pa.float64()]
EDGES = [edge + step for edge in [0, 2**53, *LIMITS.values(), 2**64, 10**38] for step in (-1, 0, 1)]
NUMBERS: st.SearchStrategy[Any] = (
    st.sampled_from([sign * edge for edge in EDGES for sign in (1, -1)])
    | st.integers(-3, 3)
    | st.floats()
    | st.sampled_from([0.1, 0.5, -0.0, 1.5, 1e300, float(np.float32(0.1))])
    | st.decimals(-5, 5, places=3)
    | st.sampled_from([Decimal("0.1"), Decimal("1e999999"), Decimal("-1e-999999"), Decimal("Infinity"), 10**400])
)


def holds(op: str, row: Any, value: Any) -> bool:
    """Return whether SQL selects the row, with Python's exact comparisons of numbers and NaN after all of them."""
    if op == "in":
        return any(holds("=", row, one) for one in value)
    if op == "is_null" or (op == "<=>" and value is None):
        return row is None
    if op == "is_not_null":
        return row is not None
    if row is None or value is None:
        return False
    if op in TEXT:
        return TEXT[op](row, value)
    row_nan, value_nan = row != row, value != value
    if row_nan or value_nan:
        return COMPARE[op](row_nan, value_nan)
    return COMPARE[op](row, value)


@st.composite
def number_columns(draw: st.DrawFn) -> tuple[pa.DataType, list[Any]]:
    """Rows near the constants: each is a constant rounded into the type, where it fits."""
    kind = draw(st.sampled_from([*INTEGERS, *DECIMALS, *DOUBLES]))
    rows: list[Any] = [None]
    for number in draw(st.lists(NUMBERS, max_size=6)):
        try:
            if kind not in DOUBLES and not abs(number) < 10**40:
                continue
            if pa.types.is_integer(kind):
                rows.append(pa.scalar(int(number), kind).as_py())
            elif pa.types.is_decimal(kind):
                rows.append(pa.scalar(round(Decimal(number), kind.scale), kind).as_py())
            else:
                rows.append(pa.scalar(float(number), kind).as_py())
        except (ArithmeticError, ValueError):
            continue
    return kind, rows
