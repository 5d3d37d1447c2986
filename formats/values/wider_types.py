"""The narrowest type that holds every value of two types unchanged."""

from __future__ import annotations

import pyarrow as pa

_INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_EXACT_AS_DOUBLE = (pa.int8(), pa.int16(), pa.int32(), pa.float32(), pa.float64())
_MOST_DIGITS = 38


def widest_type(first: pa.DataType, second: pa.DataType) -> pa.DataType | None:
    """The type to which values of both types can be cast, in whichever order they are given; None if there is none.

    Integers, floats and decimals become wider. Structs get the fields of both, in the order of ``first``.
    """
    types = pa.types
    if first == second or types.is_null(second):
        return first
    if types.is_null(first):
        return second
    if first in _INTEGERS and second in _INTEGERS:
        return max(first, second, key=_INTEGERS.index)
    if first in _EXACT_AS_DOUBLE and second in _EXACT_AS_DOUBLE:
        return pa.float64()
    if types.is_decimal(first) and types.is_decimal(second):
        return _widest_decimal(first, second)
    if types.is_struct(first) and types.is_struct(second):
        return _widest_struct(first, second)
    if types.is_list(first) and types.is_list(second):
        member = widest_type(first.value_type, second.value_type)
        return None if member is None else pa.list_(first.value_field.with_type(member).with_nullable(True))
    if types.is_map(first) and types.is_map(second) and first.key_type == second.key_type:
        item = widest_type(first.item_type, second.item_type)
        return None if item is None else pa.map_(first.key_type, item)
    return None


def _widest_decimal(first: pa.DataType, second: pa.DataType) -> pa.DataType | None:
    scale = max(first.scale, second.scale)
    digits = scale + max(first.precision - first.scale, second.precision - second.scale)
    return pa.decimal128(digits, scale) if digits <= _MOST_DIGITS else None


def _widest_struct(first: pa.StructType, second: pa.StructType) -> pa.DataType | None:
    theirs = {field.name: field for field in second}
    if len(theirs) < second.num_fields or len({field.name for field in first}) < first.num_fields:
        return None
    found = []
    for field in first:
        other = theirs.pop(field.name, None)
        kind = field.type if other is None else widest_type(field.type, other.type)
        if kind is None:
            return None
        found.append(pa.field(field.name, kind))
    return pa.struct([*found, *(pa.field(field.name, field.type) for field in theirs.values())])


def cast_wider(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast ``column`` to a type that `widest_type` found for its type and another one; missing fields become null."""
    given = column.type
    if given == kind:
        return column
    if pa.types.is_struct(given):
        own = {field.name: number for number, field in enumerate(given)}
        members = [
            cast_wider(column.field(own[field.name]), field.type)
            if field.name in own
            else pa.nulls(len(column), field.type)
            for field in kind
        ]
        return pa.StructArray.from_arrays(members, fields=list(kind), mask=_nulls(column))
    return column.cast(kind)


def _nulls(column: pa.Array) -> pa.Array | None:
    return column.is_null() if column.null_count else None
