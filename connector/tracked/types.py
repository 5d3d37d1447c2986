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


def state_type(given: Any) -> pa.DataType:
    """The type of a state: "bigint", or a struct of columns, "n bigint, last timestamp". InvalidInputError
    INVALID_OPTION."""
    found = _schema(given, "state_type")
    return found.field(0).type if found.names == [VALUE] else pa.struct(list(found))


def record_schema(given: Any) -> pa.Schema:
    """The columns of emitted records; one type is a column ``value``. InvalidInputError INVALID_OPTION."""
    return _schema(given, "output_type")


def _schema(given: Any, option: str) -> pa.Schema:
    if isinstance(given, pa.Schema):
        return given
    if isinstance(given, pa.DataType):
        return pa.schema(list(given) if pa.types.is_struct(given) else [pa.field(VALUE, given)])
    kind = _parsed(given, option) if isinstance(given, str) else given
    if isinstance(kind, StructType) and kind.fields:
        return arrow_schema(StructType([StructField(field.name, field.dataType) for field in kind]))
    if isinstance(kind, DataType) and not isinstance(kind, StructType):
        return arrow_schema(StructType([StructField(VALUE, kind)]))
    raise _wrong(given, option)


def _parsed(text: str, option: str) -> Any:
    try:
        return DataType.fromDDL(text)
    except PySparkException as error:
        raise _wrong(text, option) from error


def _wrong(given: Any, option: str) -> InvalidInputError:
    return InvalidInputError(
        ErrorCode.INVALID_OPTION,
        f'{option} is {given!r}; expected a type, like "bigint", or columns, like "n bigint, at timestamp"',
    )
