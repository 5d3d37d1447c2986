"""The columns of Flink's types."""

from __future__ import annotations

import pyarrow as pa

from statestore.formats.flink.layouts.shapes import field_of
from statestore.formats.flink.layouts.type_layouts import layout
from statestore.formats.flink.serializers.flink_types import FlinkType


def arrow_type(kind: FlinkType) -> pa.DataType:
    """The type of the column of a type of Flink; null for a void type, which has no column.

    Raises UnsupportedError FLINK_UNSUPPORTED for a type that has no column.
    """
    column = layout(kind).column
    return pa.null() if column is None else column


def has_column(kind: FlinkType) -> bool:
    """Return whether a type of Flink has a column; a void type has none. Errors as `arrow_type`."""
    return layout(kind).column is not None


def arrow_field(name: str, kind: FlinkType) -> pa.Field:
    """The field of the column of a type of Flink. Bytes that only the job's classes decode say so in its metadata.

    Errors as `arrow_type`.
    """
    shape = layout(kind)
    return pa.field(name, pa.null()) if shape.column is None else field_of(name, shape)
