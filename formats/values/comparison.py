"""Exact comparison of columns with constants: as Python compares the numbers, whatever the column's type can hold.

A number between or beyond the values of a type is never rounded to one of them: no double equals ``Decimal("0.1")``,
and every ``tinyint`` is less than 1000. NaN equals NaN and is greater than every other number, as in Spark and DuckDB.
Text, times and nested values follow ``statestore.formats.values.canonical``. Results are null where the column is null.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import ROUND_FLOOR, Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.errors import InvalidInputError, StateStoreError
from statestore.formats.kernels.arrays import Bools
from statestore.formats.values.canonical import ErrorPath, canonical, plain
from statestore.formats.values.comparable_values import comparable
from statestore.formats.values.key_equality import keys_equal
from statestore.formats.values.key_hash import hash_keys
from statestore.formats.values.python_times import with_parts
from statestore.formats.values.types import normal_type
from statestore.formats.values.without_pandas import arrow_numbers, arrow_scalar, arrow_values, bools, without_nulls

Number = int | float | Decimal

_COMPARE: dict[str, Callable[..., pa.BooleanArray]] = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_TEXT: dict[str, Callable[..., pa.BooleanArray]] = {
    "starts_with": pc.starts_with,
    "ends_with": pc.ends_with,
    "contains": pc.match_substring,
}
_WIDE = Context(prec=100)  # more digits than any decimal column


def compare(column: pa.Array, op: str, value: Any, error_path: ErrorPath) -> pa.BooleanArray:
    """Evaluate ``column op value`` for = != < <= > >=; null where the column is null, everywhere if ``value`` is None.

    Raises InvalidInputError with ``error_path.code`` if the two cannot be compared.
    """
    column, error_path = _decoded(column, error_path)
    if value is None or pa.types.is_null(column.type):
        return pa.nulls(len(column), pa.bool_())
    if _is_number(column.type):
        return _compare_number(column, op, _number(value, error_path))
    if pa.types.is_nested(column.type):
        return _compare_nested(column, op, value, error_path)
    return _COMPARE[op](column, _scalar(canonical(error_path)(value), column.type))


def same_key(column: pa.Array, value: Any, error_path: ErrorPath) -> pa.BooleanArray:
    """Return whether the column equals a key; never null.

    At any depth 0.0 and -0.0 are two values, NaN is one, null equals null, and the order of a map's entries is ignored.
    Raises InvalidInputError with ``error_path.code`` for a value that the column cannot have.
    """
    column, error_path = _decoded(column, error_path)
    if value is None:
        return arrow_numbers(np.zeros(len(column), np.bool_))
    return arrow_numbers(_same(column, canonical(error_path)(value), as_key=True))


def has_floats(kind: pa.DataType) -> bool:
    """Return whether a type has floating-point numbers at any depth."""
    return pa.types.is_floating(kind) or any(has_floats(field.type) for field in _fields(kind))


def has_maps(kind: pa.DataType) -> bool:
    """Return whether a type has maps at any depth."""
    return bool(pa.types.is_map(kind)) or any(has_maps(field.type) for field in _fields(kind))


def _fields(kind: pa.DataType) -> list[pa.Field]:
    return [kind.field(number) for number in range(kind.num_fields)]


def any_of(column: pa.Array, values: Sequence[Any], error_path: ErrorPath) -> pa.BooleanArray:
    """Return whether the column equals one of ``values`` other than None; never null. Raises as ``compare`` does."""
    column, error_path = _decoded(column, error_path)
    present = [value for value in values if value is not None]
    if not present or pa.types.is_null(column.type):
        return arrow_numbers(np.zeros(len(column), np.bool_))
    if pa.types.is_floating(column.type):
        return _any_double(pc.cast(column, pa.float64()), [_number(value, error_path) for value in present])
    if pa.types.is_integer(column.type) and set(map(type, present)) == {int}:
        low, high = _limits(column.type)
        return pc.is_in(column, arrow_values([value for value in present if low <= value <= high], column.type))
    if _is_number(column.type):
        limits = [_floor(_number(value, error_path), column.type) for value in present]
        return pc.is_in(column, arrow_values([limit for limit, exact in limits if exact], column.type))
    if pa.types.is_nested(column.type):
        _check_equality(column.type, present[0], error_path)
        wanted = [*map(canonical(error_path), present)]
        if len(wanted) > _FEW_STRUCTS and _is_plain_struct(column.type):
            return arrow_numbers(_any_struct(column, wanted))
        return arrow_numbers(functools.reduce(np.logical_or, [_same(column, value) for value in wanted]))
    if set(map(type, present)) == {str}:
        return pc.is_in(column, _texts_as_set(tuple(present), error_path))
    return pc.is_in(column, _as_set(present, error_path))


def _as_set(values: Sequence[Any], error_path: ErrorPath) -> pa.Array:
    convert, kind = canonical(error_path), error_path.kind
    found = [convert(value) for value in values]
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        found = [_scalar(value, kind) for value in found]
    return arrow_values(found, kind)


@functools.lru_cache(maxsize=4)
def _texts_as_set(values: tuple[str, ...], error_path: ErrorPath) -> pa.Array:
    """Return the set of some texts. Each batch of a read asks for it, and thousands of texts take milliseconds."""
    return _as_set(values, error_path)


_FEW_STRUCTS = 8
"""Structs that are compared one by one; of more, hashes are, because each of a thousand would meet each row."""


def _is_plain_struct(kind: pa.DataType) -> bool:
    """Return whether a type is a struct of named texts, bytes, numbers and times, whose equal values have one form."""
    names = [field.name for field in kind] if pa.types.is_struct(kind) else []
    return bool(names) and len(set(names)) == len(names) and all(_is_plain(field.type) for field in kind)


def _is_plain(kind: pa.DataType) -> bool:
    types = pa.types
    is_text = types.is_string(kind) or types.is_binary(kind) or types.is_boolean(kind)
    is_time = types.is_date32(kind) or (types.is_timestamp(kind) and kind.unit == "us")
    return is_text or is_time or types.is_signed_integer(kind) or _is_plain_struct(kind)


def _any_struct(column: pa.Array, values: Sequence[Any]) -> Bools:
    """Test equality with one of canonical values; inside structs null equals null."""
    convert = plain(column.type, list)
    assert convert is not None
    given = arrow_values([convert(value) for value in values], column.type)
    ours, theirs = hash_keys([column]), hash_keys([given])
    order = np.argsort(theirs, kind="stable")
    theirs = theirs[order]
    first, behind = np.searchsorted(theirs, ours), np.searchsorted(theirs, ours, "right")
    rows, same = np.flatnonzero((first < behind) & ~_invalid(column)), np.zeros(len(column), np.bool_)
    first, behind = first[rows], behind[rows]
    while len(rows):  # most once: values that differ and have one hash are rare
        same[rows] |= keys_equal([column], rows, [given], order[first])
        first += 1
        more = ~same[rows] & (first < behind)
        rows, first, behind = rows[more], first[more], behind[more]
    return same


def match_text(column: pa.Array, op: str, value: Any, error_path: ErrorPath) -> pa.BooleanArray:
    """Evaluate starts_with, ends_with or contains on text or bytes. Nulls and errors are those of ``compare``."""
    column, error_path = _decoded(column, error_path)
    if not (pa.types.is_string(column.type) or pa.types.is_binary(column.type)):
        raise error_path.wrong(value, f"{op} needs a column of text or bytes")
    if value is None:
        return pa.nulls(len(column), pa.bool_())
    return _TEXT[op](column, canonical(error_path)(value))


def _decoded(column: pa.Array, error_path: ErrorPath) -> tuple[pa.Array, ErrorPath]:
    """The column in the one encoding that stores use; other tables may hold large or dictionary-encoded strings."""
    if pa.types.is_integer(column.type) or pa.types.is_null(column.type):
        return column, error_path
    try:
        kind = _compared_as(column.type, error_path.path)
    except StateStoreError as error:
        raise InvalidInputError(error_path.code, f"{error.message}; a filter can only ask whether it is null") from None
    return (column, error_path) if column.type == kind else (pc.cast(column, kind), replace(error_path, kind=kind))


def _compared_as(kind: pa.DataType, what: str) -> pa.DataType:
    """The type in which a column is compared: that of stores, and types of engines that no store has.

    Raises UnsupportedError UNSUPPORTED_TYPE.
    """
    types = pa.types
    if types.is_null(kind) or types.is_time(kind):
        return kind
    if (types.is_timestamp(kind) or types.is_duration(kind)) and kind.unit == "ns":
        return kind
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return pa.list_(_compared_as(kind.value_type, f"{what}, element"))
    if types.is_map(kind):
        return pa.map_(_compared_as(kind.key_type, f"{what}, key"), _compared_as(kind.item_type, f"{what}, value"))
    if types.is_struct(kind):
        return pa.struct([pa.field(each.name, _compared_as(each.type, f"{what}.{each.name}")) for each in kind])
    return normal_type(kind, what)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_floating(kind))


def _number(value: Any, error_path: ErrorPath) -> Number:
    if isinstance(value, np.integer | np.floating):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise error_path.wrong(value)
    if isinstance(value, Decimal) and value.is_nan():
        raise error_path.wrong(value, "write float('nan')")
    return value


def _compare_number(column: pa.Array, op: str, value: Number) -> pa.BooleanArray:
    if pa.types.is_floating(column.type):
        return _compare_double(pc.cast(column, pa.float64()), op, value)
    if value != value:
        return _constant(column, op in ("!=", "<", "<="))
    limit, exact = _floor(value, column.type)
    return _compare_with_floor(column, op, limit, exact)


def _compare_double(column: pa.Array, op: str, value: Number) -> pa.BooleanArray:
    nan = pc.is_nan(column)
    if value != value:
        if op in ("=", ">="):
            return nan
        return pc.invert(nan) if op in ("!=", "<") else _constant(column, op == "<=")
    limit, exact = _floor(value, pa.float64())
    numbers = _compare_with_floor(column, op, limit, exact)
    return pc.or_(numbers, nan) if op in ("!=", ">", ">=") else pc.and_not(numbers, nan)


def _compare_with_floor(column: pa.Array, op: str, limit: Any, exact: bool) -> pa.BooleanArray:
    """Evaluate ``column op v``: ``limit`` is the type's greatest value up to v, ``exact`` whether it equals v."""
    if limit is None:
        return _constant(column, op in ("!=", ">", ">="))
    if not exact:
        if op in ("=", "!="):
            return _constant(column, op == "!=")
        op = "<=" if op in ("<", "<=") else ">"
    return _COMPARE[op](column, arrow_scalar(limit, column.type))


def _floor(value: Number, kind: pa.DataType) -> tuple[Any, bool]:
    """The type's greatest value that is not above ``value`` (None without one), and whether it equals ``value``."""
    if value != value:
        return None, False
    if pa.types.is_floating(kind):
        return _floor_double(value)
    low, high = _limits(kind)
    if value < low:
        return None, False
    if value >= high:
        return high, value == high
    if pa.types.is_integer(kind):
        whole = math.floor(value)
        return whole, whole == value
    unit = Decimal(1).scaleb(-kind.scale)
    floor = Decimal(value).quantize(unit, ROUND_FLOOR, _WIDE)
    return floor, floor == value


def _floor_double(value: Number) -> tuple[float, bool]:
    try:
        nearest = float(value)
    except OverflowError:
        nearest = math.inf if value > 0 else -math.inf
    below = nearest if nearest <= value else math.nextafter(nearest, -math.inf)
    return below, below == value


def _limits(kind: pa.DataType) -> tuple[Number, Number]:
    if pa.types.is_decimal(kind):
        high = Decimal(10**kind.precision - 1).scaleb(-kind.scale, _WIDE)
        return high.copy_negate(), high
    bits = kind.bit_width
    return (0, 2**bits - 1) if pa.types.is_unsigned_integer(kind) else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _any_double(column: pa.Array, values: list[Number]) -> pa.BooleanArray:
    """Membership of floats. Arrow's set keeps 0.0 and -0.0 apart, and has one NaN that stands for all."""
    limits = [_floor_double(value) for value in values if value == value]
    exact = [limit for limit, hit in limits if hit]
    exact += [0.0, -0.0] if 0.0 in exact else []
    exact += [math.nan] if any(value != value for value in values) else []
    return pc.is_in(column, pa.array(exact, pa.float64()))


def _compare_nested(column: pa.Array, op: str, value: Any, error_path: ErrorPath) -> pa.BooleanArray:
    if op not in ("=", "!="):
        raise error_path.wrong(value, f"structs and lists have no order, {op} needs one")
    _check_equality(column.type, value, error_path)
    same = _same(column, canonical(error_path)(value))
    return pa.array(same if op == "=" else ~same, mask=_invalid(column))


def _check_equality(kind: pa.DataType, value: Any, error_path: ErrorPath) -> None:
    if pa.types.is_map(kind):
        raise error_path.wrong(value, "maps have no one equality")
    for number in range(kind.num_fields):
        _check_equality(kind.field(number).type, value, error_path)


def _same(column: pa.Array, value: Any, *, as_key: bool = False) -> Bools:
    """Test equality with a canonical value; inside structs and lists null equals null. ``as_key``: see `same_key`."""
    if value is None:
        return _invalid(column)
    if pa.types.is_struct(column.type):
        same = ~_invalid(column)
        for number, member in enumerate(value):
            same &= _same(column.field(number), member, as_key=as_key)
        return same
    if pa.types.is_list(column.type):
        return _same_list(column, value, as_key=as_key)
    if pa.types.is_map(column.type):
        return _same_map(column, value)
    if not pa.types.is_floating(column.type):
        return bools(without_nulls(pc.equal(column, _scalar(value, column.type))))
    same = bools(without_nulls(_compare_double(pc.cast(column, pa.float64()), "=", value)))
    if as_key and value == 0:
        same &= np.signbit(pc.fill_null(column, 0).to_numpy(zero_copy_only=False)) == np.signbit(value)
    return same


def _same_list(column: pa.Array, members: tuple[Any, ...], *, as_key: bool) -> Bools:
    """Compare the first members of the lists of the right length, then the second ones of those still equal, etc."""
    offsets = column.offsets.to_numpy().astype(np.int64)
    rows = np.flatnonzero(~_invalid(column) & (np.diff(offsets) == len(members)))
    for position, member in enumerate(members):
        if not len(rows):
            break
        cells = column.values.take(pa.array(offsets[rows] + position))
        rows = rows[_same(cells, member, as_key=as_key)]
    same = np.zeros(len(column), np.bool_)
    same[rows] = True
    return same


def _same_map(column: pa.Array, entries: tuple[tuple[Any, Any], ...]) -> Bools:
    """Compare maps, in whatever order their entries are."""
    convert = plain(column.type, list)
    assert convert is not None
    # Arrow refuses nanoseconds of numpy for a type with a zone.
    plain_type = with_parts(column.type, lambda kind: pa.timestamp("ns") if kind == pa.timestamp("ns", "UTC") else None)
    given = pa.array([convert(entries)], plain_type).cast(column.type)
    ours, theirs = comparable(column, by_bits=True), comparable(given, by_bits=True)
    return keys_equal([ours], np.arange(len(ours)), [theirs], np.zeros(len(ours), np.int64)) & ~_invalid(column)


def _scalar(value: Any, kind: pa.DataType) -> pa.Scalar:
    """Return a canonical value as Arrow's. Arrow refuses nanoseconds of numpy for a type with a zone."""
    if isinstance(value, np.datetime64 | np.timedelta64):
        return pa.scalar(value.astype(np.int64), pa.int64()).cast(kind)  # canonical ones are in nanoseconds
    return arrow_scalar(value, kind)


def _invalid(column: pa.Array) -> Bools:
    return bools(pc.is_null(column))


def _constant(column: pa.Array, value: bool) -> pa.BooleanArray:
    """An array of ``value`` where the column is not null, null elsewhere."""
    return pc.if_else(pc.is_valid(column), pa.scalar(value), pa.scalar(None, pa.bool_()))
