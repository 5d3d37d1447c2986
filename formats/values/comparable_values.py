"""Values in a form in which equal ones have equal bits, so that columns of any type can be hashed and compared.

Floating-point numbers become integers of their bits (one NaN, one zero). Maps become lists of entries in an order that
depends on the keys alone. Structs and lists are converted by their members.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.values.key_hash import hash_keys


def comparable(column: pa.Array) -> pa.Array:
    """Replace floating-point numbers, maps and columns without a type, at any depth of ``column``.

    Returns the same array where there are none.
    """
    kind = column.type
    if not _needs_work(kind):
        return column
    if column.offset:
        column = column.take(pa.array(np.arange(len(column))))
    if pa.types.is_null(kind):
        return column.cast(pa.int8())
    if pa.types.is_floating(kind):
        return _bits(column)
    if pa.types.is_struct(kind):
        fields = [comparable(column.field(i)) for i in range(kind.num_fields)]
        return pa.StructArray.from_arrays(fields, names=[f.name for f in kind], mask=_nulls(column))
    if pa.types.is_map(kind):
        return _sorted_entries(column)
    members = comparable(column.values)
    return pa.ListArray.from_arrays(_offsets(column), members, mask=_nulls(column))


def _needs_work(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(_needs_work(field.type) for field in kind)
    if pa.types.is_list(kind):
        return _needs_work(kind.value_type)
    return bool(pa.types.is_floating(kind) or pa.types.is_map(kind) or pa.types.is_null(kind))


def _bits(column: pa.Array) -> pa.Array:
    width = column.type.bit_width
    values = pc.fill_null(column, 0).to_numpy(zero_copy_only=False) + column.type.to_pandas_dtype()(0)  # -0.0 + 0 is 0
    values[np.isnan(values)] = np.nan
    bits = values.view(f"i{width // 8}")
    return pa.array(bits, mask=column.is_null().to_numpy(zero_copy_only=False)) if column.null_count else pa.array(bits)


def _sorted_entries(column: pa.MapArray) -> pa.Array:
    keys, items = comparable(column.keys), comparable(column.items)
    offsets = _offsets(column)
    starts = offsets.to_numpy()
    owner = np.searchsorted(starts, np.arange(len(keys)), side="right")
    order = pa.array(np.lexsort((hash_keys([keys]), owner)))
    entries = pa.StructArray.from_arrays([keys.take(order), items.take(order)], names=["key", "value"])
    return pa.ListArray.from_arrays(offsets, entries, mask=_nulls(column))


def _offsets(column: pa.Array) -> pa.Array:
    return pa.array(column.offsets.to_numpy())


def _nulls(column: pa.Array) -> pa.Array | None:
    return column.is_null() if column.null_count else None
