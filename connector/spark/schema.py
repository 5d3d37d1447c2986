"""Schemas between Arrow and Spark: all columns nullable, timestamps in UTC."""

from __future__ import annotations

import inspect
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas import types as spark_types
from pyspark.sql.types import StructType

_to_arrow: Any = spark_types.to_arrow_schema
# Spark 4.0 writes UTC unless told otherwise, later releases want to be told.
_ZONE = {"timezone": "UTC"} if "timezone" in inspect.signature(_to_arrow).parameters else {}


def spark_schema(schema: pa.Schema) -> StructType:
    """The Spark types of a table's columns, all nullable."""
    nullable = pa.schema([field.with_nullable(True) for field in schema])
    found: StructType = spark_types.from_arrow_schema(nullable, prefer_timestamp_ntz=True)
    return found


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema in which Spark exchanges such rows with Python."""
    return _to_arrow(schema, **_ZONE)
