"""Numbers of numpy as Arrow columns without nulls.

``pyarrow.array`` and ``to_numpy`` load pandas where it is installed, which takes a third of a second of every process.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def arrow_numbers(values: npt.NDArray[Any]) -> pa.Array:
    """Return integers, doubles or booleans as a column; the memory of contiguous numbers is shared."""
    if values.dtype == np.bool_:
        packed = np.packbits(values, bitorder="little")
        return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(packed)], null_count=0)
    values = np.ascontiguousarray(values)
    kind = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)], null_count=0)


def int64_values(column: pa.Array) -> npt.NDArray[np.int64]:
    """Return times or numbers of 64 bits as numbers, whatever they are where the column is null."""
    if not len(column):
        return np.empty(0, np.int64)
    return np.frombuffer(column.buffers()[1], np.int64, len(column), column.offset * 8)
