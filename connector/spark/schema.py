"""Schemas between Arrow and Spark: all columns nullable, timestamps in UTC."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas import types as spark_types
from pyspark.sql.types import ArrayType, CalendarIntervalType, DataType, MapType, StringType, StructField, StructType

from statestore.connector.collated_keys import collated_key
from statestore.connector.spark.intervals import numbers_field
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import UnsupportedError
from statestore.formats.values.declared_types import COLUMN_METADATA, declared_type
from statestore.formats.values.types import shown_field

_to_arrow: Any = spark_types.to_arrow_schema
# Spark 4.0 writes UTC by default; later releases require the time zone as an argument.
_ZONE: dict[str, Any] = {"timezone": "UTC"} if "timezone" in inspect.signature(_to_arrow).parameters else {}
_LENGTH = re.compile(r"(?:char|varchar)\(\d+\)")
_COLLATED = "string collate "


def spark_schema(schema: pa.Schema, *, marked: bool = True, event_times: bool = True) -> StructType:
    """The Spark types of a table's columns, all nullable; intervals that Spark does not exchange with Python are
    numbers.

    The metadata of columns with such intervals holds their type, unless ``marked=False``. ``event_times=False`` leaves
    out Spark's own metadata, which in a stream would promise a watermark that is never computed. Raises
    UnsupportedError UNSUPPORTED_TYPE for a type that Spark does not have.
    """
    kinds = [_column_type(field) if event_times else _bare(_column_type(field)) for field in schema]
    fields = [numbers_field(name, kind, marked=marked) for name, kind in zip(schema.names, kinds, strict=True)]
    if marked and event_times:
        for found, field in zip(fields, schema, strict=True):
            found.metadata = {**(found.metadata or {}), **(_metadata(field) or {})}
    return StructType(fields)


def _column_type(field: pa.Field) -> DataType:
    try:
        return _spark_type(field)
    except PySparkException as error:
        raise UnsupportedError(
            ErrorCode.UNSUPPORTED_TYPE,
            f"column {field.name!r} is {shown_field(field)}, which Spark does not take from Python; name the other "
            "columns with option columns, or read it in Python or DuckDB",
        ) from error


def _spark_type(field: pa.Field) -> DataType:
    """Spark's type for the field, with its collations and intervals as they were declared."""
    kind, declared = field.type, declared_type(field)
    if declared is not None and not _LENGTH.fullmatch(declared):  # Spark reads these as strings
        own_type = _declared(declared)
        if own_type is not None:
            return own_type
    if kind == pa.month_day_nano_interval():
        return CalendarIntervalType()
    if pa.types.is_list(kind):
        return ArrayType(_spark_type(kind.value_field))
    if pa.types.is_map(kind):
        return MapType(_spark_type(kind.key_field), _spark_type(kind.item_field))
    if pa.types.is_struct(kind) and not spark_types.is_variant(kind):
        return StructType([StructField(each.name, _spark_type(each), each.nullable, _metadata(each)) for each in kind])
    plain: StructType = spark_types.from_arrow_schema(pa.schema([field]), prefer_timestamp_ntz=True)
    return plain.fields[0].dataType


def _metadata(field: pa.Field) -> dict[str, Any] | None:
    stated = (field.metadata or {}).get(COLUMN_METADATA)
    metadata: dict[str, Any] | None = None if stated is None else json.loads(stated)
    return metadata


def _declared(name: str) -> DataType | None:
    """The type that Spark calls by this name; None if this release does not have it."""
    if name.startswith(_COLLATED):
        return StringType(name.removeprefix(_COLLATED))
    whole = {"name": "column", "type": name, "nullable": True, "metadata": {}}
    try:
        parsed = StructType.fromJson({"type": "struct", "fields": [whole]}).fields[0].dataType
        arrow_schema(StructType([numbers_field("column", parsed)]))
    except (PySparkException, UnsupportedError, ValueError):
        return None
    return parsed


def arrow_schema(schema: StructType, *, large: bool = False) -> pa.Schema:
    """The Arrow schema in which Spark exchanges such rows with Python; ``large``: with 64-bit offsets of strings.

    Raises UnsupportedError UNSUPPORTED_TYPE, which names the column that cannot be exchanged.
    """
    try:
        return _to_arrow(schema, prefers_large_types=large, **_ZONE)
    except PySparkException as error:
        raise UnsupportedError(ErrorCode.UNSUPPORTED_TYPE, _not_exchanged(schema)) from error


def _not_exchanged(schema: StructType) -> str:
    for field in schema:
        try:
            _to_arrow(StructType([field]), **_ZONE)
        except PySparkException:
            return (
                f"column {field.name!r} is {field.dataType.simpleString()}, which PySpark does not exchange with "
                "Python; leave it out, or cast it to a string or a number"
            )
    return "PySpark does not exchange these columns with Python"


def same_type(one: DataType, other: DataType) -> bool:
    """Return whether two types hold the same values under the same names, whatever the metadata of their fields."""
    return _bare(one) == _bare(other)


def _bare(kind: DataType) -> DataType:
    if isinstance(kind, ArrayType):
        return ArrayType(_bare(kind.elementType), kind.containsNull)
    if isinstance(kind, MapType):
        return MapType(_bare(kind.keyType), _bare(kind.valueType), kind.valueContainsNull)
    if isinstance(kind, StructType):
        return StructType([StructField(each.name, _bare(each.dataType), each.nullable) for each in kind])
    return kind


# Collations in the types of a DataFrame.


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
