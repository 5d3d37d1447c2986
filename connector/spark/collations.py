"""Collations in the types of a DataFrame."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from statestore.connector.collated_keys import collated_key


def check_frame_keys(schema: StructType, names: Iterable[str]) -> None:
    """Raise UnsupportedError COLLATED_KEY for a column among ``names`` that Spark does not compare byte by byte, as a
    store compares its keys. Spark's own state refuses such keys as well."""
    asked = {name.lower() for name in names if isinstance(name, str)}
    for field in schema.fields:
        if field.name.lower() in asked and is_collated(field.dataType):
            raise collated_key(field.name, field.dataType.simpleString())


def is_collated(kind: DataType) -> bool:
    """Return whether the type is a text with a collation, or holds one at any depth."""
    if isinstance(kind, ArrayType):
        return is_collated(kind.elementType)
    if isinstance(kind, MapType):
        return is_collated(kind.keyType) or is_collated(kind.valueType)
    if isinstance(kind, StructType):
        return any(is_collated(field.dataType) for field in kind)
    return isinstance(kind, StringType) and kind.collation != "UTF8_BINARY"
