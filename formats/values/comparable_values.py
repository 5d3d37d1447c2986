"""Values in a form in which equal ones have equal bits, so that columns of any type can be hashed and compared.

Floating-point numbers become integers of their bits, with one NaN and one zero, and so do times, which key hashes have
in microseconds alone. Maps become lists of entries in an order that depends on the keys alone. Structs and lists are
converted by their members.

Engines compare the bytes of keys: to Flink (``BinaryRowData``, ``Double.equals``) and to the state stores of Spark and
Kafka Streams, 0.0 and -0.0 are two keys, so keys are compared ``by_bits``. Where an engine has one zero and one NaN, as
Spark has in grouping keys, its stored keys have them already.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from statestore.formats.values.key_hash import hash_keys
from statestore.formats.values.without_pandas import arrow_numbers, bools, numbers, numbers_or_zero

_INTEGERS = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}


def comparable(column: pa.Array, *, by_bits: bool = False, in_order: bool = False, one_nan: bool = False) -> pa.Array:
    """Replace what key hashes and equality of keys do not know, at any depth of ``column``.

    ``by_bits`` keeps zeros of both signs and NaNs of several bits apart, with ``one_nan`` only the zeros, ``in_order``
    maps whose entries are in another order. Returns the same array where there is nothing to replace.
    """
    kind = column.type
    if not _needs_work(kind):
        return column
    if pa.types.is_dictionary(kind):
        return comparable(column.dictionary_decode(), by_bits=by_bits, in_order=in_order, one_nan=one_nan)
    if column.offset:
        column = column.take(arrow_numbers(np.arange(len(column))))
    if pa.types.is_null(kind):
        return column.cast(pa.int8())
    if pa.types.is_floating(kind):
        kept = by_bits and not one_nan
        return column.view(_INTEGERS[kind.bit_width]) if kept else _bits(column, one_zero=not by_bits)
    if _is_number(kind):
        return column.view(_INTEGERS[kind.bit_width])
    if _is_wide(kind):
        return _as_binary(column)
    if pa.types.is_struct(kind):
        members = [column.field(i) for i in range(kind.num_fields)]
        fields = [comparable(each, by_bits=by_bits, in_order=in_order, one_nan=one_nan) for each in members]
        return pa.StructArray.from_arrays(fields, names=[f.name for f in kind], mask=_nulls(column))
    if pa.types.is_map(kind):
        return _entries(column, by_bits=by_bits, in_order=in_order, one_nan=one_nan)
    if pa.types.is_fixed_size_list(kind):
        return comparable(column.cast(pa.list_(kind.value_field)), by_bits=by_bits, in_order=in_order, one_nan=one_nan)
    items = comparable(column.values, by_bits=by_bits, in_order=in_order, one_nan=one_nan)
    make = pa.LargeListArray if pa.types.is_large_list(kind) else pa.ListArray
    return make.from_arrays(_offsets(column), items, mask=_nulls(column))


def _needs_work(kind: pa.DataType) -> bool:
    types = pa.types
    if types.is_struct(kind):
        return any(_needs_work(field.type) for field in kind)
    if types.is_list(kind) or types.is_large_list(kind):
        return _needs_work(kind.value_type)
    if types.is_floating(kind) or types.is_map(kind) or types.is_null(kind) or types.is_fixed_size_list(kind):
        return True
    return bool(types.is_dictionary(kind) or _is_number(kind) or _is_wide(kind))


def _is_number(kind: pa.DataType) -> bool:
    """Return whether a type is a number of up to 64 bits that key hashes do not know."""
    types = pa.types
    if types.is_timestamp(kind) or types.is_duration(kind):
        return str(kind.unit) != "us"
    return bool(types.is_time(kind) or types.is_date64(kind) or types.is_unsigned_integer(kind))


def _is_wide(kind: pa.DataType) -> bool:
    """Return whether a type has a fixed width that is none of an integer."""
    types = pa.types
    return bool(types.is_fixed_size_binary(kind) or types.is_decimal256(kind) or types.is_interval(kind))


def _as_binary(column: pa.Array) -> pa.Array:
    width = column.type.bit_width // 8
    offsets = pa.py_buffer(np.arange(len(column) + 1, dtype=np.int32) * np.int32(width))
    buffers = [column.buffers()[0], offsets, column.buffers()[1]]
    return pa.Array.from_buffers(pa.binary(), len(column), buffers, column.null_count)


def _bits(column: pa.Array, *, one_zero: bool) -> pa.Array:
    """The bits of numbers with one NaN."""
    width = column.type.bit_width
    values = numbers_or_zero(column)
    if one_zero:
        values += values.dtype.type(0)  # -0.0 + 0 is 0
    values[np.isnan(values)] = np.nan
    return arrow_numbers(values.view(f"i{width // 8}"), bools(column.is_null()) if column.null_count else None)


def _entries(column: pa.MapArray, *, by_bits: bool, in_order: bool, one_nan: bool) -> pa.Array:
    """The entries of maps as lists, sorted by their keys unless ``in_order``."""
    keys = comparable(column.keys, by_bits=True, in_order=in_order, one_nan=one_nan)
    items = comparable(column.items, by_bits=by_bits, in_order=in_order, one_nan=one_nan)
    offsets = _offsets(column)
    if in_order:
        entries = pa.StructArray.from_arrays([keys, items], names=["key", "value"])
        return pa.ListArray.from_arrays(offsets, entries, mask=_nulls(column))
    starts = numbers(offsets)
    owner = np.searchsorted(starts, np.arange(len(keys)), side="right")
    order = arrow_numbers(np.lexsort((hash_keys([keys]), owner)))
    entries = pa.StructArray.from_arrays([keys.take(order), items.take(order)], names=["key", "value"])
    return pa.ListArray.from_arrays(offsets, entries, mask=_nulls(column))


def _offsets(column: pa.Array) -> pa.Array:
    return arrow_numbers(numbers(column.offsets))


def _nulls(column: pa.Array) -> pa.Array | None:
    return column.is_null() if column.null_count else None
