"""Columns of values as parts of encoded bytes: what encoders of Avro and Protobuf have in common."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statestore.formats.bytes.byte_columns import Cells
from statestore.formats.bytes.byte_parts import Part, joined_parts, spread_cells
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.kernels.arrays import Bools, Ints

_DECIMAL_BYTES = 16


def wrong_value(where: str, found: object, expected: str) -> InvalidInputError:
    """The error for a value that its schema does not have."""
    return InvalidInputError(ErrorCode.WRONG_VALUE, f"{where}: found {found}, expected {expected}")


def refuse_null(column: pa.Array, where: str) -> None:
    """Raise InvalidInputError WRONG_VALUE for a null where the schema has none."""
    if column.null_count:
        raise wrong_value(where, "null", "a value, as the schema has no null there")


def presence(column: pa.Array) -> Bools:
    """Return where the cells are not null."""
    found: Bools = column.is_valid().to_numpy(zero_copy_only=False)
    return found


def of_some(column: pa.Array, has: Bools, parts: Callable[[pa.Array], list[Part]]) -> Cells:
    """The bytes of the cells that have a value, joined of their parts; no bytes for the others."""
    some = column if has.all() else column.filter(pa.array(has))
    found = joined_parts(parts(some), len(some))
    return found if has.all() else spread_cells(found, ~has)


def entries_of(column: pa.Array) -> tuple[Ints, int]:
    """(where the entries of each list or map begin and end, counted from the first one; the first one)."""
    if not len(column):
        return np.zeros(1, np.int64), 0
    stored = np.frombuffer(column.buffers()[1], np.int32, len(column) + 1, 4 * column.offset).astype(np.int64)
    return stored - stored[0], int(stored[0])


def unscaled_numbers(column: pa.Array) -> npt.NDArray[np.uint8]:
    """The digits of decimals as numbers of 16 bytes, big-endian."""
    if not len(column):
        return np.empty((0, _DECIMAL_BYTES), np.uint8)
    stored = np.frombuffer(column.buffers()[1], np.uint8, len(column) * _DECIMAL_BYTES, column.offset * _DECIMAL_BYTES)
    return np.ascontiguousarray(stored.reshape(len(column), _DECIMAL_BYTES)[:, ::-1])
