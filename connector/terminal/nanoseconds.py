"""Times with nanoseconds, which Python's times do not have, as columns that Python's values can show."""

from __future__ import annotations

import pyarrow as pa


def python_column(column: pa.Array) -> pa.Array:
    """The column with its times in microseconds if these hold every one exactly, else with all of them as text."""
    if not _has_nanoseconds(column.type):
        return column
    try:
        return column.cast(_with(column.type, None))
    except pa.ArrowInvalid:
        return column.cast(_with(column.type, pa.string()))


def _is_nanoseconds(kind: pa.DataType) -> bool:
    return bool((pa.types.is_timestamp(kind) or pa.types.is_time64(kind)) and kind.unit == "ns")


def _has_nanoseconds(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_has_nanoseconds(kind.field(number).type) for number in range(kind.num_fields))
    return _is_nanoseconds(kind)


def _with(kind: pa.DataType, text: pa.DataType | None) -> pa.DataType:
    """The type with times in microseconds, or of the type ``text``, in place of those in nanoseconds."""
    if _is_nanoseconds(kind):
        return text or (pa.timestamp("us", kind.tz) if pa.types.is_timestamp(kind) else pa.time64("us"))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_with(field.type, text)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_with(kind.key_type, text), _with(kind.item_type, text))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_with(kind.value_type, text)))
    return kind
