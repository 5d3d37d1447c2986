"""Values of numpy and Python as Arrow, and back, without pandas.

``pyarrow.array``, ``pyarrow.scalar`` and ``to_numpy`` load pandas where it is installed, which takes a third of a
second of every process. So what stands between a process and its first answer uses these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_WHOLE = (pa.int8(), pa.int16(), pa.int32(), pa.int64())


def arrow_numbers(values: npt.NDArray[Any], nulls: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Return integers, doubles or booleans as a column; the memory of contiguous numbers is shared.

    ``nulls``: a mask of the rows that are null; None: there are none.
    """
    bits = None if nulls is None or not nulls.any() else pa.py_buffer(np.packbits(~nulls, bitorder="little"))
    absent = 0 if bits is None else -1
    if values.dtype == np.bool_:
        packed = np.packbits(values, bitorder="little")
        return pa.Array.from_buffers(pa.bool_(), len(values), [bits, pa.py_buffer(packed)], null_count=absent)
    values = np.ascontiguousarray(values, values.dtype.newbyteorder("="))
    kind = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, len(values), [bits, pa.py_buffer(values)], null_count=absent)


def arrow_bytes(values: Sequence[bytes]) -> pa.BinaryArray:
    """Return byte strings as a column. Raises ValueError for 2 GiB and more in all, which no such column holds."""
    ends = np.cumsum([0, *map(len, values)])
    if ends[-1] >= 1 << 31:
        raise ValueError(f"{len(values)} byte strings have {ends[-1]} bytes; expected less than 2 GiB")
    data = pa.py_buffer(b"".join(values))
    return pa.Array.from_buffers(
        pa.binary(), len(values), [None, pa.py_buffer(ends.astype(np.int32)), data], null_count=0
    )


def arrow_scalar(value: Any, kind: pa.DataType) -> pa.Scalar:
    """Return a value of Python as a scalar of a type. Raises as `pyarrow.scalar`."""
    if value is None:
        return pa.nulls(1, kind)[0]
    if kind in (pa.string(), pa.binary()) and type(value) is (str if kind == pa.string() else bytes):
        return arrow_bytes([value.encode() if isinstance(value, str) else value]).view(kind)[0]
    if type(value) is bool and kind == pa.bool_():
        return arrow_numbers(np.array([value]))[0]
    if type(value) is int and kind == pa.int64() and -(1 << 63) <= value < 1 << 63:
        return arrow_numbers(np.array([value], np.int64))[0]
    if type(value) is int and kind == pa.int32() and -(1 << 31) <= value < 1 << 31:
        return arrow_numbers(np.array([value], np.int32))[0]
    return pa.scalar(value, kind)


def arrow_values(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return values of Python as a column: structs of texts, bytes and whole numbers without pandas.

    Raises as `pyarrow.array`, and ValueError for texts of 2 GiB and more in all.
    """
    if pa.types.is_struct(kind) and kind.num_fields and all(type(value) is dict for value in values):
        members = [arrow_values([value.get(field.name) for value in values], field.type) for field in kind]
        return pa.StructArray.from_arrays(members, fields=list(kind))
    types = {type(value) for value in values} - {type(None)}
    nulls = np.array([value is None for value in values], np.bool_)
    if (kind == pa.binary() and types <= {bytes}) or (kind == pa.string() and types <= {str}):
        texts = arrow_bytes([value.encode() if isinstance(value, str) else value or b"" for value in values])
        bits = pa.py_buffer(np.packbits(~nulls, bitorder="little")) if nulls.any() else None
        return pa.Array.from_buffers(kind, len(values), [bits, *texts.buffers()[1:]])
    if kind in _WHOLE and types <= {int}:
        low, high = -(1 << (kind.bit_width - 1)), (1 << (kind.bit_width - 1)) - 1
        whole = [value or 0 for value in values]
        if low <= min(whole, default=0) and max(whole, default=0) <= high:
            return arrow_numbers(np.array(whole, f"i{kind.bit_width // 8}"), nulls)
    return pa.array(values, kind)


def bools(column: pa.BooleanArray) -> npt.NDArray[np.bool_]:
    """Return booleans without nulls as numpy's. Raises ValueError where one is null."""
    if column.null_count:
        raise ValueError(f"{column.null_count} of {len(column)} booleans are null")
    if not len(column):
        return np.empty(0, np.bool_)
    bits = np.frombuffer(column.buffers()[1], np.uint8)
    first = column.offset
    found = np.unpackbits(bits[first >> 3 : (first + len(column) + 7) >> 3], bitorder="little")
    return found[first & 7 :][: len(column)].view(np.bool_)


def numbers(column: pa.Array) -> npt.NDArray[Any]:
    """Return integers or doubles as numpy's; the memory is shared. Raises ValueError where one is null."""
    if column.null_count:
        raise ValueError(f"{column.null_count} of {len(column)} numbers are null")
    kind = column.type.to_pandas_dtype()
    if not len(column):
        return np.empty(0, kind)
    return np.frombuffer(column.buffers()[1], kind, len(column), column.offset * np.dtype(kind).itemsize)


def numbers_or_zero(column: pa.Array) -> npt.NDArray[Any]:
    """Return a copy of integers or doubles as numpy's, with zero where one is null."""
    kind = column.type.to_pandas_dtype()
    if not len(column) or column.null_count == len(column):
        return np.zeros(len(column), kind)
    found = np.frombuffer(column.buffers()[1], kind, len(column), column.offset * np.dtype(kind).itemsize).copy()
    if column.null_count:
        found[bools(column.is_null())] = 0
    return found


def int64_values(column: pa.Array) -> npt.NDArray[np.int64]:
    """Return times or numbers of 64 bits as numbers, whatever they are where the column is null."""
    if not len(column):
        return np.empty(0, np.int64)
    return np.frombuffer(column.buffers()[1], np.int64, len(column), column.offset * 8)


def without_nulls(column: pa.BooleanArray) -> pa.BooleanArray:
    """Return booleans, where null is false."""
    return pc.and_(pc.is_valid(column), pc.coalesce(column, pc.is_valid(column))) if column.null_count else column
