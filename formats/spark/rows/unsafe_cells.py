"""Stored UnsafeRows as cells that Spark takes as they are: nothing is decoded, and every pointer is checked.

Spark reads a struct of a row in the form in which state stores keep it, without a check of its own. A pointer that
leads out of the row would let it read any memory. So only types whose pointers are checked here are passed on.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from statestore.formats.bytes.byte_columns import Cells, row_kernels
from statestore.formats.kernels.arrays import Bools
from statestore.formats.spark.checkpoint.spark_schema import BINARY, STRING, DecimalOf, Plain, SparkType, StructOf
from statestore.formats.spark.checkpoint.state_errors import corrupt_row
from statestore.formats.spark.rows.unsafe_row import MAX_LONG_DIGITS, slots_of, targets_of

_WIDEST_DECIMAL = 16


def is_checkable(schema: StructOf) -> bool:
    """Return whether rows of the schema can be passed on."""
    return bool(schema.fields) and all(_is_checkable(field.type) for field in schema.fields)


def _is_checkable(kind: SparkType) -> bool:
    if isinstance(kind, StructOf):
        return is_checkable(kind)
    return (
        isinstance(kind, DecimalOf) or kind in (STRING, BINARY) or (isinstance(kind, Plain) and kind.form is not None)
    )


def unsafe_cells(rows: Cells, schema: StructOf) -> pa.BinaryArray:
    """The rows as binary cells. Raises CorruptError SPARK_STATE_ROW for a row that points out of itself."""
    check_rows(rows, schema)
    return rows.copied(corrupt_row)


def check_rows(rows: Cells, schema: StructOf) -> None:
    """Raise CorruptError SPARK_STATE_ROW unless each row has all slots, and all that they point to is inside it."""
    for kind, slots in slots_of(rows, schema, _points):
        kernels = row_kernels()
        if kind in (STRING, BINARY) and kernels is not None:
            nulls: Bools = np.empty(0, np.bool_) if slots.nulls is None else slots.nulls
            if kernels.are_inside(slots.data, slots.slot_offset, slots.base, slots.limit, nulls):
                continue  # otherwise the slower check says which row it is
        inside = targets_of(slots.present())
        if isinstance(kind, StructOf):
            check_rows(inside, kind)
        elif isinstance(kind, DecimalOf) and len(inside):
            least, most = int(inside.size.min()), int(inside.size.max())
            if not 1 <= least <= most <= _WIDEST_DECIMAL:
                raise corrupt_row(f"found a decimal of {least} to {most} bytes, expected 1 to {_WIDEST_DECIMAL}")


def _points(kind: SparkType) -> bool:
    """Return whether a slot of the type holds the place of the value."""
    if isinstance(kind, DecimalOf):
        return kind.precision > MAX_LONG_DIGITS
    return not (isinstance(kind, Plain) and kind.form is not None)
