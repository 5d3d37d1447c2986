"""Types of engines that stores do not have, in forms which lose nothing.

null, of a column that is always null       tinyint, always null
struct without fields                       boolean, true where there is one
unsigned integers                           the next wider signed integer, decimal(20, 0) for the widest
half-precision floats                       float
times and durations of nanoseconds          bigint, the number of nanoseconds
times of day                                bigint, the number of their units
calendar intervals                          struct of months, days and nanoseconds
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

_UNSIGNED = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20)}
_INTERVAL = pa.struct([("months", pa.int32()), ("days", pa.int32()), ("nanoseconds", pa.int64())])
_INTERVAL_BYTES = np.dtype([("months", "<i4"), ("days", "<i4"), ("nanoseconds", "<i8")])


def storable(kind: pa.DataType) -> pa.DataType:
    """Return the type in which a store can hold values of ``kind``: the same where it has it."""
    types = pa.types
    if types.is_null(kind):
        return pa.int8()
    if types.is_struct(kind):
        return pa.struct([field.with_type(storable(field.type)) for field in kind]) if kind.num_fields else pa.bool_()
    if types.is_map(kind):
        return pa.map_(storable(kind.key_type), storable(kind.item_type))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return pa.list_(storable(kind.value_type))
    if kind in _UNSIGNED:
        return _UNSIGNED[kind]
    if types.is_float16(kind):
        return pa.float32()
    if types.is_interval(kind):
        return _INTERVAL
    return pa.int64() if _is_number_of_units(kind) else kind


def in_storable_type(column: pa.Array) -> pa.Array:
    """Return a column in the type that `storable` returns for its own."""
    kind, types = column.type, pa.types
    wanted = storable(kind)
    if wanted == kind:
        return column
    if types.is_null(kind):
        return pa.nulls(len(column), wanted)
    if types.is_struct(kind):
        if not kind.num_fields:
            return pa.array(np.ones(len(column), bool), mask=_nulls(column))
        members = [in_storable_type(column.field(number)) for number in range(kind.num_fields)]
        return pa.StructArray.from_arrays(members, fields=list(wanted), mask=_null_array(column))
    if types.is_map(kind) or types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return _of_items(column, wanted)
    if types.is_interval(kind):
        return _intervals(column)
    if _is_number_of_units(kind):
        return column.view(pa.int32() if types.is_time32(kind) else pa.int64()).cast(pa.int64())
    return column.cast(wanted)


def _is_number_of_units(kind: pa.DataType) -> bool:
    if pa.types.is_time(kind):
        return True
    return bool((pa.types.is_timestamp(kind) or pa.types.is_duration(kind)) and kind.unit == "ns")


def _of_items(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Return a column of lists or maps with their items in storable types."""
    kind = column.type
    if pa.types.is_fixed_size_list(kind) or pa.types.is_large_list(kind):
        column = column.cast(pa.list_(kind.value_field))
    elif column.offset:
        column = column.take(pa.array(np.arange(len(column))))
    mask = _null_array(column)
    if pa.types.is_map(kind):
        keys, items = in_storable_type(column.keys), in_storable_type(column.items)
        made = pa.MapArray.from_arrays(column.offsets, keys, items, wanted, mask=mask)
        return made
    return pa.ListArray.from_arrays(column.offsets, in_storable_type(column.values), wanted, mask=mask)


def _intervals(column: pa.Array) -> pa.Array:
    data = column.buffers()[1]
    parts = np.frombuffer(data, _INTERVAL_BYTES, len(column), column.offset * _INTERVAL_BYTES.itemsize)
    members = [pa.array(np.ascontiguousarray(parts[name])) for name in _INTERVAL_BYTES.names or ()]
    return pa.StructArray.from_arrays(members, fields=list(_INTERVAL), mask=_null_array(column))


def _nulls(column: pa.Array) -> np.ndarray | None:
    return column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None


def _null_array(column: pa.Array) -> pa.Array | None:
    return column.is_null() if column.null_count else None
