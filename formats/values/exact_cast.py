"""Casts of Arrow columns to another type that change no value."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def cast_exactly(column: Any, kind: pa.DataType) -> Any:
    """Cast an Array or ChunkedArray to ``kind``: other encodings, widths, units and zones of the same values.

    Raises pa.ArrowInvalid for a value that ``kind`` cannot hold, pa.ArrowTypeError where the types do not have the same
    kind of values. Text is never parsed, a time without a zone never gets one, floats are never rounded.
    """
    source = column.type
    if source.equals(kind, check_metadata=True):
        return column
    if pa.types.is_dictionary(source):
        decoded = column.dictionary_decode() if isinstance(column, pa.Array) else pc.cast(column, source.value_type)
        return cast_exactly(decoded, kind)
    if not _same_values(source, kind):
        raise pa.ArrowTypeError(f"{source} does not become {kind}")
    if pa.types.is_integer(source) and pa.types.is_decimal(kind):
        # Arrow's cast requires that the target holds every integer of the type; the values here may all be small.
        column = pc.cast(column, pa.decimal256(20 + kind.scale, kind.scale))
    return pc.cast(column, kind, safe=True)


def retyped(column: Any, kind: pa.DataType) -> Any:
    """Return an Array or ChunkedArray in a type, as Arrow's safe cast does; the same one where it has the type.

    Arrow's own cast to the same type makes a list or map of nulls that cannot be read (Arrow 26).
    """
    return column if column.type.equals(kind, check_metadata=True) else column.cast(kind)


def retyped_rows(rows: Any, schema: pa.Schema) -> Any:
    """Return a Table or RecordBatch with the columns of a schema, in their order, each as `retyped` returns it."""
    columns = [retyped(column, field.type) for column, field in zip(rows.columns, schema, strict=True)]
    return type(rows).from_arrays(columns, schema=schema)


def _same_values(source: pa.DataType, kind: pa.DataType) -> bool:
    """Return whether a safe cast between the types either keeps a value or fails."""
    types = pa.types
    if types.is_dictionary(source):
        return _same_values(source.value_type, kind)
    if types.is_null(source) or source == kind:
        return True
    if types.is_integer(source):
        return bool(types.is_integer(kind) or types.is_decimal(kind) or types.is_floating(kind))
    if types.is_floating(source):
        return bool(types.is_floating(kind) and kind.bit_width >= source.bit_width)
    if types.is_timestamp(source) and types.is_timestamp(kind):
        return (source.tz is None) == (kind.tz is None)
    if types.is_struct(source) and types.is_struct(kind):
        return _same_fields(source, kind)
    if types.is_map(source) and types.is_map(kind):
        return _same_values(source.key_type, kind.key_type) and _same_values(source.item_type, kind.item_type)
    if _is_list(source) and _is_list(kind):
        return _same_values(source.value_type, kind.value_type)
    families = (types.is_decimal, types.is_date, types.is_duration, _is_text, _is_binary)
    return any(belongs(source) and belongs(kind) for belongs in families)


def _same_fields(source: pa.DataType, kind: pa.DataType) -> bool:
    """Return whether both have the same names, in any order: Arrow casts structs by name."""
    names = sorted(field.name for field in kind)
    return (
        sorted(field.name for field in source) == names
        and len(set(names)) == len(names)
        and all(_same_values(source.field(name).type, kind.field(name).type) for name in names)
    )


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_binary(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_binary_view(kind)
        or types.is_fixed_size_binary(kind)
    )
