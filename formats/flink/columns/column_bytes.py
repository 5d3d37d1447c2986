"""Bytes of a column of values: those of `statestore.formats.flink.columns.value_bytes`, for many values at once.

Numbers, short texts, and tuples and POJOs of such are written by numpy and Arrow, other values one by one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.bytes.byte_columns import cells_of
from statestore.formats.flink.columns.value_bytes import plain_values, value_bytes
from statestore.formats.flink.layouts.type_layouts import has_column
from statestore.formats.flink.serializers.flink_types import VOID, Basic, FlinkType, Nullable, PojoOf, TtlOf, TupleOf
from statestore.formats.values.without_pandas import arrow_bytes, arrow_scalar

_FORMS = {"long": ">i8", "int": ">i4", "short": ">i2", "byte": "i1", "float": ">f4", "double": ">f8"}
_SHORT = 126  # UTF-16 units of a text whose length is one byte
_NOTHING = arrow_scalar(b"", pa.binary())


def column_bytes(kind: FlinkType, column: pa.Array) -> pa.BinaryArray:
    """The bytes that Flink's serializer writes for each value of a column. Raises as `value_bytes`."""
    found = _at_once(kind, column)
    return _one_by_one(kind, column) if found is None else found


def _one_by_one(kind: FlinkType, column: pa.Array) -> pa.BinaryArray:
    return arrow_bytes([value_bytes(kind, each) for each in plain_values(column)])


def _at_once(kind: FlinkType, column: pa.Array) -> pa.BinaryArray | None:
    """The bytes of all values; None where there is no quicker way than one by one."""
    if kind == VOID:
        return _repeated(b"\0", len(column))
    if column.null_count:
        return None
    if isinstance(kind, Basic):
        return _texts(column) if kind.name == "string" else _numbers(kind.name, column)
    if isinstance(kind, Nullable) and has_column(kind.value):
        return _joined([b"\0"], [_at_once(kind.value, column)], len(column))
    if isinstance(kind, TupleOf) and all(map(has_column, kind.fields)):
        return _joined([], [_at_once(*each) for each in _members(kind.fields, column)], len(column))
    if isinstance(kind, PojoOf) and not kind.registered and not kind.unregistered:  # one class
        parts = [part for _, part in kind.fields]
        if all(map(has_column, parts)):
            fields = [_at_once(Nullable(part), field) for part, field in _members(parts, column)]
            return _joined([b"\2"], fields, len(column))
    if isinstance(kind, TtlOf) and has_column(kind.value):
        value, accessed = (pc.struct_field(column, [name]) for name in ("value", "last_access"))
        return _joined([], [_millis(accessed), _at_once(kind.value, value)], len(column))
    return None


def _members(kinds: Sequence[FlinkType], column: pa.StructArray) -> list[tuple[FlinkType, pa.Array]]:
    return [(kind, pc.struct_field(column, [number])) for number, kind in enumerate(kinds)]


def _joined(front: Sequence[bytes], parts: Sequence[pa.Array | None], count: int) -> pa.BinaryArray | None:
    if not count or not (front or parts) or any(part is None for part in parts):
        return None
    return pc.binary_join_element_wise(*(_repeated(each, count) for each in front), *parts, _NOTHING)


def _repeated(octets: bytes, count: int) -> pa.BinaryArray:
    return pa.repeat(arrow_scalar(octets, pa.binary()), count)


def _numbers(name: str, column: pa.Array) -> pa.BinaryArray | None:
    if name == "boolean":
        return _fixed(np.asarray(column.cast(pa.uint8())), "u1")
    if name not in _FORMS:
        return None
    numbers = column.to_numpy(zero_copy_only=False)
    if name in ("float", "double"):  # Java writes one NaN
        numbers = np.where(np.isnan(numbers), np.array(np.nan, numbers.dtype), numbers)
    return _fixed(numbers, _FORMS[name])


def _millis(column: pa.Array) -> pa.BinaryArray | None:
    """Timestamps as epoch milliseconds."""
    if column.null_count:
        return None
    micros = np.asarray(column.view(pa.int64()))
    return None if (micros % 1000).any() else _fixed(micros // 1000, ">i8")


def _fixed(numbers: npt.NDArray[np.generic], form: str) -> pa.BinaryArray:
    data = np.ascontiguousarray(numbers.astype(form))
    ends = np.arange(len(data) + 1, dtype=np.int32) * np.int32(data.itemsize)
    return pa.Array.from_buffers(pa.binary(), len(data), [None, pa.py_buffer(ends), pa.py_buffer(data)])


def _texts(column: pa.Array) -> pa.BinaryArray | None:
    sizes = cells_of(column).size
    plain = np.asarray(pc.string_is_ascii(column)) & (sizes <= _SHORT)
    lengths = _fixed(np.minimum(sizes + 1, _SHORT + 1), "u1")
    found = pc.binary_join_element_wise(lengths, column.cast(pa.binary()), _NOTHING)
    if plain.all():
        return found
    others = pa.array(~plain)
    return pc.replace_with_mask(found, others, _one_by_one(Basic("string"), column.filter(others)))
