"""Types of states and of emitted records as users give them: one type, or columns with types."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.types import DataType, StructField, StructType

from statestore.connector.spark.schema import arrow_schema
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError

VALUE = "value"


def state_type(type_: Any) -> pa.DataType:
    """The type of a state: "bigint", or a struct of columns, "n bigint, last timestamp". InvalidInputError
    INVALID_OPTION."""
    schema = _schema(type_, "state_type")
    return schema.field(0).type if schema.names == [VALUE] else pa.struct(list(schema))


def record_schema(type_: Any) -> pa.Schema:
    """The columns of emitted records; one type is a column ``value``. InvalidInputError INVALID_OPTION."""
    return _schema(type_, "output_type")


def _schema(type_: Any, option: str) -> pa.Schema:
    if isinstance(type_, pa.Schema):
        return type_
    if isinstance(type_, pa.DataType):
        return pa.schema(list(type_) if pa.types.is_struct(type_) else [pa.field(VALUE, type_)])
    kind = _parsed(type_, option) if isinstance(type_, str) else type_
    if isinstance(kind, StructType) and kind.fields:
        return arrow_schema(StructType([StructField(field.name, field.dataType) for field in kind]))
    if isinstance(kind, DataType) and not isinstance(kind, StructType):
        return arrow_schema(StructType([StructField(VALUE, kind)]))
    raise _wrong(type_, option)


def _parsed(text: str, option: str) -> Any:
    try:
        return DataType.fromDDL(text)
    except PySparkException as error:
        raise _wrong(text, option) from error


def _wrong(type_: Any, option: str) -> InvalidInputError:
    return InvalidInputError(
        ErrorCode.INVALID_OPTION,
        f'{option} is {type_!r}; expected a type, like "bigint", or columns, like "n bigint, at timestamp"',
    )
