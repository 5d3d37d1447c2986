"""Schemas between Arrow and Spark: all columns nullable, timestamps in UTC."""

from __future__ import annotations

import inspect
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas import types as spark_types
from pyspark.sql.types import StructField, StructType

from statestore.formats.errors import UnsupportedError
from statestore.formats.types import shown_type

_to_arrow: Any = spark_types.to_arrow_schema
# Spark 4.0 writes UTC unless told otherwise, later releases want to be told.
_ZONE = {"timezone": "UTC"} if "timezone" in inspect.signature(_to_arrow).parameters else {}


def spark_schema(schema: pa.Schema) -> StructType:
    """The Spark types of a table's columns, all nullable.

    Raises UnsupportedError UNSUPPORTED_TYPE for one that Spark does not take from Python, such as a calendar interval.
    """
    return StructType([_spark_field(field) for field in schema])


def _spark_field(field: pa.Field) -> StructField:
    schema = pa.schema([field.with_nullable(True)])
    try:
        found: StructType = spark_types.from_arrow_schema(schema, prefer_timestamp_ntz=True)
    except PySparkException as error:
        raise UnsupportedError(
            "UNSUPPORTED_TYPE",
            f"column {field.name!r} is {shown_type(field.type)}, which Spark does not take from Python; name the other "
            "columns with option columns, or read it in Python or DuckDB",
        ) from error
    return found.fields[0]


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema in which Spark exchanges such rows with Python."""
    return _to_arrow(schema, **_ZONE)
