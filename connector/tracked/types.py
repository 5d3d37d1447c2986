"""Types of states and of emitted records, as users tell them: one type, or columns with types."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.types import DataType, StructField, StructType

from statestore.connector.spark.schema import arrow_schema
from statestore.formats.errors import InvalidInputError

VALUE = "value"


def state_type(told: Any) -> pa.DataType:
    """The type of a state: "bigint", or a struct of columns, "n bigint, last timestamp". InvalidInputError
    INVALID_OPTION."""
    found = _schema(told, "state_type")
    return found.field(0).type if found.names == [VALUE] else pa.struct(list(found))


def record_schema(told: Any) -> pa.Schema:
    """The columns of emitted records; one type is a column ``value``. InvalidInputError INVALID_OPTION."""
    return _schema(told, "output_type")


def _schema(told: Any, option: str) -> pa.Schema:
    if isinstance(told, pa.Schema):
        return told
    if isinstance(told, pa.DataType):
        return pa.schema(list(told) if pa.types.is_struct(told) else [pa.field(VALUE, told)])
    kind = _parsed(told, option) if isinstance(told, str) else told
    if isinstance(kind, StructType) and kind.fields:
        return arrow_schema(StructType([StructField(field.name, field.dataType) for field in kind]))
    if isinstance(kind, DataType) and not isinstance(kind, StructType):
        return arrow_schema(StructType([StructField(VALUE, kind)]))
    raise _wrong(told, option)


def _parsed(text: str, option: str) -> Any:
    try:
        return DataType.fromDDL(text)
    except PySparkException as error:
        raise _wrong(text, option) from error


def _wrong(told: Any, option: str) -> InvalidInputError:
    return InvalidInputError(
        "INVALID_OPTION",
        f'{option} is {told!r}; expected a type, like "bigint", or columns, like "n bigint, at timestamp"',
    )
