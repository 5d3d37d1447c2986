"""Row filters: a conjunction of comparisons between a column and constants, with SQL's treatment of null.

Doors translate what their users write into `Filter`s. ``mask`` evaluates them exactly on a batch; ``may_match`` judges
a whole segment by its least and greatest value; ``key_lookups`` finds the keys that a conjunction pins.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import ROUND_FLOOR, Decimal, localcontext
from typing import Any, Literal, get_args

import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.errors import InvalidInputError

Op = Literal[
    "=", "<=>", "!=", "<", "<=", ">", ">=", "in", "is_null", "is_not_null", "starts_with", "ends_with", "contains"
]
OPERATORS: tuple[str, ...] = get_args(Op)
SPELLINGS = {"==": "=", "<>": "!=", "is null": "is_null", "is not null": "is_not_null"}
MAX_LOOKUPS = 10_000

_COMPARE = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_TEXT = {"starts_with": pc.starts_with, "ends_with": pc.ends_with, "contains": pc.match_substring}


@dataclass(frozen=True)
class Filter:
    """``column op value``; ``value`` is a sequence for "in" and unused for "is_null" and "is_not_null"."""

    column: str
    op: Op
    value: Any = None


def parse_filters(spec: Any) -> tuple[Filter, ...]:
    """Filters from what users write: None, ("price", ">", 5), a list of such, or Filter objects.

    Raises InvalidInputError INVALID_FILTER naming the part that is not understood.
    """
    if spec is None:
        return ()
    if isinstance(spec, Filter):
        return (_checked(spec),)
    if isinstance(spec, tuple) and len(spec) in (2, 3) and isinstance(spec[0], str):
        return (_from_tuple(spec),)
    if isinstance(spec, list | tuple):
        return tuple(itertools.chain.from_iterable(parse_filters(_not_none(part)) for part in spec))
    raise _invalid(f"{spec!r}; expected a tuple like ('price', '>', 5), or a list of such that must all hold")


def _not_none(part: Any) -> Any:
    if part is None:
        raise _invalid("None inside a list; expected tuples like ('price', '>', 5)")
    return part


def _from_tuple(spec: tuple[Any, ...]) -> Filter:
    op = spec[1]
    if not isinstance(op, str):
        raise _invalid(f"{spec!r}: operator {op!r} is not a text")
    name: Any = SPELLINGS.get(op.lower(), op.lower())
    if name not in OPERATORS:
        raise _invalid(f"{spec!r}: operator {op!r}; expected one of {', '.join(OPERATORS)}")
    if len(spec) == 2 and name not in ("is_null", "is_not_null"):
        raise _invalid(f"{spec!r}: operator {op!r} needs a value")
    return _checked(Filter(spec[0], name, spec[2] if len(spec) == 3 else None))


def _checked(item: Filter) -> Filter:
    if item.op not in OPERATORS:
        raise _invalid(f"operator {item.op!r}; expected one of {', '.join(OPERATORS)}")
    if item.op == "in":
        if isinstance(item.value, str | bytes) or not isinstance(item.value, Iterable):
            raise _invalid(f"column {item.column!r} in {item.value!r}; expected a list of values")
        return Filter(item.column, "in", tuple(item.value))
    return item


def mask(filters: Sequence[Filter], batch: pa.RecordBatch) -> pa.BooleanArray | None:
    """Which rows of ``batch`` pass all filters; never null, None if every row passes without looking.

    Raises InvalidInputError INVALID_FILTER if a value can not be compared with its column.
    """
    parts = [_evaluate(item, batch.column(item.column)) for item in filters]
    known = [part for part in parts if part is not None]
    return functools.reduce(pc.and_, known) if known else None


def _evaluate(item: Filter, column: pa.Array) -> pa.BooleanArray | None:
    if item.op == "is_null":
        return pc.is_null(column)
    if item.op == "is_not_null":
        return None if column.null_count == 0 else pc.is_valid(column)
    if item.op in _TEXT:
        return _without_nulls(_text(item, column))
    if item.op == "in":
        return _any_of(item, column)
    if item.op == "<=>":
        return pc.is_null(column) if item.value is None else _without_nulls(_compare(item, "=", item.value, column))
    return _without_nulls(_compare(item, item.op, item.value, column))


def _without_nulls(found: pa.BooleanArray) -> pa.BooleanArray:
    return pc.fill_null(found, False) if found.null_count else found


def _text(item: Filter, column: pa.Array) -> pa.BooleanArray:
    binary = pa.types.is_binary(column.type) and isinstance(item.value, bytes)
    if not binary and not (pa.types.is_string(column.type) and isinstance(item.value, str)):
        raise _invalid(f"column {item.column!r} ({column.type}) {item.op} {item.value!r}; expected a text")
    return _TEXT[item.op](column, item.value)


def _any_of(item: Filter, column: pa.Array) -> pa.BooleanArray:
    values = [value for value in item.value if value is not None]
    if not pa.types.is_nested(column.type) and not pa.types.is_floating(column.type):
        exact = [_constant(item, value, column.type) for value in values]
        wanted = [scalar for scalar in exact if scalar is not None and scalar.is_valid]
        if all(scalar is None or scalar.type == column.type for scalar in exact):
            return pc.is_in(column, pa.array([s.as_py() for s in wanted], column.type), skip_nulls=True)
    found = [_without_nulls(_compare(item, "=", value, column)) for value in values]
    return functools.reduce(pc.or_, found) if found else _constant_mask(column, False)


def _compare(item: Filter, op: str, value: Any, column: pa.Array) -> pa.BooleanArray:
    """``column op value`` where the column is not null; null elsewhere."""
    if value is None:
        return pa.nulls(len(column), pa.bool_())
    if pa.types.is_nested(column.type):
        return _compare_nested(item, op, value, column)
    if pa.types.is_floating(column.type):
        return _compare_floating(item, op, value, column)
    scalar = _constant(item, value, column.type)
    if scalar is None:
        return _compare_unfitting(item, op, value, column)
    if pa.types.is_decimal(scalar.type) and scalar.type != column.type and pa.types.is_integer(column.type):
        column = column.cast(pa.decimal128(20, 0))
    return _COMPARE[op](column, scalar)


def _constant(item: Filter, value: Any, kind: pa.DataType) -> pa.Scalar | None:
    """``value`` as a scalar of the column's type; None for a number that the type can not hold exactly."""
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return _number(item, value, kind)
    if pa.types.is_date(kind) and isinstance(value, datetime):
        raise _wrong_value(item, value, kind)  # the time of day would be lost
    try:
        if pa.types.is_timestamp(kind) and (kind.tz is None) != (getattr(value, "tzinfo", None) is None):
            raise _wrong_value(item, value, kind)
        return pa.scalar(value, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, TypeError, ValueError) as error:
        raise _wrong_value(item, value, kind) from error


def _number(item: Filter, value: Any, kind: pa.DataType) -> pa.Scalar | None:
    if isinstance(value, bool) or (not isinstance(value, int | float | Decimal) and not hasattr(value, "__index__")):
        raise _wrong_value(item, value, kind)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    exact = Decimal(value) if isinstance(value, int | float | Decimal) else Decimal(value.__index__())
    if exact.is_nan():
        raise _wrong_value(item, value, kind)
    if exact.is_infinite():
        return None
    try:
        if pa.types.is_integer(kind):
            return pa.scalar(int(exact), kind) if exact == exact.to_integral_value() else None
        return pa.scalar(exact, kind)
    except (pa.ArrowInvalid, OverflowError):
        return None


def _compare_unfitting(item: Filter, op: str, value: Any, column: pa.Array) -> pa.BooleanArray:
    """Compare integers or decimals with a number between or beyond those that the type holds."""
    if isinstance(value, float) and math.isnan(value):
        return _valid_as(column, op in ("!=", "<", "<="))  # Spark and DuckDB order NaN after all numbers
    low, high = _limits(column.type)
    number = Decimal(value)
    if number > high or number < low:
        above = number > high
        return _valid_as(column, op == "!=" or op in (("<", "<=") if above else (">", ">=")))
    if op in ("=", "!="):
        return _valid_as(column, op == "!=")
    step = Decimal(1) if pa.types.is_integer(column.type) else Decimal(1).scaleb(-column.type.scale)
    with localcontext(prec=100):
        below = (number / step).to_integral_value(rounding=ROUND_FLOOR) * step
    bound = _number(item, below, column.type)
    if bound is None:
        return _valid_as(column, op in ("<", "<="))
    return (pc.less_equal if op in ("<", "<=") else pc.greater)(column, bound)


def _limits(kind: pa.DataType) -> tuple[Decimal, Decimal]:
    if pa.types.is_decimal(kind):
        greatest = Decimal(10**kind.precision - 1).scaleb(-kind.scale)
        return -greatest, greatest
    return Decimal(-(2 ** (kind.bit_width - 1))), Decimal(2 ** (kind.bit_width - 1) - 1)


def _compare_floating(item: Filter, op: str, value: Any, column: pa.Array) -> pa.BooleanArray:
    """As Spark and DuckDB have it: NaN equals NaN and is greater than every other number."""
    if isinstance(value, bool) or (not isinstance(value, int | float | Decimal) and not hasattr(value, "__float__")):
        raise _wrong_value(item, value, column.type)
    wide = column.cast(pa.float64())
    number = _nearest_float(value)
    nan = pc.is_nan(wide)
    if math.isnan(number):
        return {"=": nan, ">=": nan, "!=": pc.invert(nan), "<": pc.invert(nan)}.get(op) or _valid_as(column, op == "<=")
    if Decimal(number) != Decimal(value) and not math.isinf(number):
        if op in ("=", "!="):
            return _valid_as(column, op == "!=")
        # The constant lies between two doubles: a row that equals the nearest one is on a known side of it.
        beyond = Decimal(number) > Decimal(value)
        less, greater = ("<", ">=") if beyond else ("<=", ">")
        op = less if op in ("<", "<=") else greater
    found = _COMPARE[op](wide, pa.scalar(number, pa.float64()))
    return pc.or_(found, nan) if op in (">", ">=", "!=") else pc.and_(found, pc.invert(nan))


def _nearest_float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _compare_nested(item: Filter, op: str, value: Any, column: pa.Array) -> pa.BooleanArray:
    if op not in ("=", "!="):
        raise _invalid(
            f"column {item.column!r} ({column.type}) {op} …: structs, lists and maps have no order; use = or !="
        )
    try:
        wanted = pa.array([_by_name(value, column.type)], column.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError) as error:
        raise _wrong_value(item, value, column.type) from error
    cell = wanted[0].as_py()
    found = pa.array([None if row is None else row == cell for row in column.to_pylist()], pa.bool_())
    return found if op == "=" else pc.invert(found)


def _by_name(value: Any, kind: pa.DataType) -> Any:
    """A tuple for a struct as a dictionary; other values as they are."""
    if pa.types.is_struct(kind) and isinstance(value, tuple | list) and len(value) == kind.num_fields:
        return {f.name: _by_name(v, f.type) for f, v in zip(kind, value, strict=True)}
    if pa.types.is_struct(kind) and isinstance(value, dict):
        known = {field.name: field.type for field in kind}
        if set(value) != set(known):
            raise ValueError(f"fields {sorted(map(str, value))}")
        return {name: _by_name(cell, known[name]) for name, cell in value.items()}
    if pa.types.is_list(kind) and isinstance(value, tuple | list):
        return [_by_name(v, kind.value_type) for v in value]
    return value


def _valid_as(column: pa.Array, value: bool) -> pa.BooleanArray:
    """``value`` where the column is not null, null elsewhere."""
    return pc.if_else(pc.is_valid(column), pa.scalar(value), pa.scalar(None, pa.bool_()))


def _constant_mask(column: pa.Array, value: bool) -> pa.BooleanArray:
    return pa.repeat(pa.scalar(value), len(column))


def may_match(filters: Sequence[Filter], column: str, low: Any, high: Any, has_null: bool) -> bool:
    """False only if no value from ``low`` to ``high`` (nor null, if ``has_null``) can pass the filters on ``column``.

    Unknown bounds are None, and then everything may match.
    """
    if low is None or high is None:
        return True
    return all(_may_pass(item, low, high, has_null) for item in filters if item.column == column)


def _may_pass(item: Filter, low: Any, high: Any, has_null: bool) -> bool:
    if item.op == "is_null" or (item.op == "<=>" and item.value is None):
        return has_null
    values = item.value if item.op == "in" else (item.value,)
    if any(isinstance(value, float | Decimal) and value != value for value in values):
        return True  # NaN has no place between the bounds
    try:
        return _in_bounds(item.op, item.value, low, high)
    except TypeError:
        return True


def _in_bounds(op: str, value: Any, low: Any, high: Any) -> bool:
    if op in ("=", "<=>"):
        return bool(value is not None and low <= value <= high)
    if op == "in":
        return any(_in_bounds("=", part, low, high) for part in value)
    if op in ("<", "<="):
        return bool(value is not None and (low < value if op == "<" else low <= value))
    if op in (">", ">="):
        return bool(value is not None and (high > value if op == ">" else high >= value))
    if op == "starts_with" and isinstance(value, str) and isinstance(low, str):
        return high >= value and low[: len(value)] <= value
    return True


def key_lookups(filters: Sequence[Filter], key_columns: Sequence[str]) -> list[tuple[Any, ...]] | None:
    """The keys that the filters allow, if "=" or "in" pin every key column to few enough values; else None."""
    if not key_columns:
        return None
    allowed: list[list[Any]] = []
    for name in key_columns:
        values = _pinned(filters, name)
        if values is None:
            return None
        allowed.append(values)
    if math.prod(len(values) for values in allowed) > MAX_LOOKUPS:
        return None
    return list(itertools.product(*allowed))


def _pinned(filters: Sequence[Filter], name: str) -> list[Any] | None:
    for item in filters:
        if item.column == name and item.op in ("=", "<=>"):
            return [] if item.value is None else [item.value]
    for item in filters:
        if item.column == name and item.op == "in":
            return [value for value in item.value if value is not None]
    return None


def _wrong_value(item: Filter, value: Any, kind: pa.DataType) -> InvalidInputError:
    return _invalid(f"column {item.column!r} is {kind} and can not be compared with {value!r} ({type(value).__name__})")


def _invalid(found: str) -> InvalidInputError:
    return InvalidInputError("INVALID_FILTER", f"filter: {found}")
