"""Intervals that Spark does not exchange with Python: passed as numbers, and made intervals again in the DataFrame.

    interval year to month (or year, or month)    int, the months
    interval (months, days and microseconds)      struct<months:int,days:int,microseconds:bigint>

PySpark has no Arrow form for either, so a Python source can return only numbers. The metadata of such a column holds
the type of Spark's own source under ``statestore.type``, and `with_intervals` converts the column to that type.
"""

from __future__ import annotations

import importlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    CalendarIntervalType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StructField,
    StructType,
    YearMonthIntervalType,
)

from statestore.connector.identifiers import spark_quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

REAL_TYPE = "statestore.type"
"""The key in a column's metadata that holds its type as JSON, with its intervals."""
PARTS = StructType(
    [StructField("months", IntegerType()), StructField("days", IntegerType()), StructField("microseconds", LongType())]
)
_ARROW_PARTS = [pa.field("months", pa.int32()), pa.field("days", pa.int32()), pa.field("microseconds", pa.int64())]
_CALENDAR = pa.month_day_nano_interval()
_CELL = np.dtype([("months", "<i4"), ("days", "<i4"), ("nanoseconds", "<i8")])


def in_numbers(real: DataType) -> DataType:
    """The type in which a Python source returns values of ``real``."""
    if isinstance(real, YearMonthIntervalType):
        return IntegerType()
    if isinstance(real, CalendarIntervalType):
        return PARTS
    if isinstance(real, ArrayType):
        return ArrayType(in_numbers(real.elementType), real.containsNull)
    if isinstance(real, MapType):
        return MapType(in_numbers(real.keyType), in_numbers(real.valueType), real.valueContainsNull)
    if isinstance(real, StructType):
        return StructType([StructField(f.name, in_numbers(f.dataType), f.nullable, f.metadata) for f in real])
    return real


def numbers_field(name: str, real: DataType, *, marked: bool = True) -> StructField:
    """A column of type ``real`` as a Python source returns it; ``marked`` records ``real`` in its metadata."""
    kind = in_numbers(real)
    return StructField(name, kind, True, {REAL_TYPE: real.json()} if marked and kind != real else None)


def calendar_parts(column: pa.Array) -> pa.Array:
    """``column`` with calendar intervals at any depth replaced by structs of their parts; the same array if it has
    none."""
    kind = column.type
    if not has_calendar(kind):
        return column
    missing = column.is_null() if column.null_count else None
    if kind == _CALENDAR:
        cells = np.frombuffer(column.buffers()[1], _CELL)[column.offset : column.offset + len(column)]
        micros = cells["nanoseconds"] // 1000
        parts = [pa.array(cells["months"].copy()), pa.array(cells["days"].copy()), pa.array(micros)]
        return pa.StructArray.from_arrays(parts, fields=_ARROW_PARTS, mask=missing)
    if pa.types.is_struct(kind):
        members = [calendar_parts(column.field(number)) for number in range(kind.num_fields)]
        fields = [field.with_type(member.type) for field, member in zip(kind, members, strict=True)]
        return pa.StructArray.from_arrays(members, fields=fields, mask=missing)
    if pa.types.is_map(kind):
        pair = [calendar_parts(column.keys), calendar_parts(column.items)]
        fields = [kind.key_field.with_type(pair[0].type), kind.item_field.with_type(pair[1].type)]
        inside, target = pa.StructArray.from_arrays(pair, fields=fields), pa.map_(*fields)
    else:
        inside = calendar_parts(column.values)
        target = pa.list_(kind.value_field.with_type(inside.type))
    return pa.Array.from_buffers(target, len(column), column.buffers()[:2], offset=column.offset, children=[inside])


def has_calendar(kind: pa.DataType) -> bool:
    """Return whether the type is a calendar interval, or holds one at any depth."""
    if kind == _CALENDAR:
        return True
    return pa.types.is_nested(kind) and any(has_calendar(kind.field(i).type) for i in range(kind.num_fields))


def with_intervals(frame: DataFrame) -> DataFrame:
    """The frame of a Python source with real intervals; the same frame if it has none."""
    fields = frame.schema.fields
    if not any(REAL_TYPE in field.metadata for field in fields):
        return frame
    connect = type(frame).__module__.startswith("pyspark.sql.connect")
    functions = importlib.import_module(f"pyspark.sql{'.connect' if connect else ''}.functions")
    columns = []
    for field in fields:
        column = functions.col(spark_quoted(field.name))
        if REAL_TYPE in field.metadata:
            real = _real_type(field.metadata[REAL_TYPE])
            column = _converted(functions, column, field.dataType, real).alias(field.name)
        columns.append(column)
    return frame.select(*columns)


def _real_type(text: str) -> DataType:
    whole = {"name": "column", "type": json.loads(text), "nullable": True, "metadata": {}}
    return StructType.fromJson({"type": "struct", "fields": [whole]}).fields[0].dataType


def _converted(f: Any, column: Column, kind: DataType, real: DataType) -> Column:
    """The numbers of ``column`` converted to ``real``; ``f`` are the functions of the column's kind of session."""
    made: Column
    if isinstance(real, YearMonthIntervalType):
        made = f.make_ym_interval(f.lit(0), column).cast(real)
    elif isinstance(real, CalendarIntervalType):
        # As text: make_interval takes seconds of at most 18 digits.
        months, days, micros = (column.getField(name).cast("string") for name in PARTS.names)
        words = [months, f.lit(" months "), days, f.lit(" days "), micros, f.lit(" microseconds")]
        made = f.concat(*words).cast(real)
    elif isinstance(kind, StructType) and isinstance(real, StructType):
        made = column  # only changed fields are replaced, so filters on the others can still be pushed down
        for inner, outer in zip(kind.fields, real.fields, strict=True):
            if _differs(inner.dataType, outer.dataType):
                part = _converted(f, column.getField(inner.name), inner.dataType, outer.dataType)
                made = made.withField(spark_quoted(inner.name), part)
    elif isinstance(kind, ArrayType) and isinstance(real, ArrayType):
        element, wanted = kind.elementType, real.elementType
        made = f.transform(column, lambda each: _converted(f, each, element, wanted))
    elif isinstance(kind, MapType) and isinstance(real, MapType):
        made = _converted_map(f, column, kind, real)
    else:
        made = column
    return made


def _converted_map(f: Any, column: Column, kind: MapType, real: MapType) -> Column:
    if _differs(kind.keyType, real.keyType):
        column = f.transform_keys(column, lambda key, _: _converted(f, key, kind.keyType, real.keyType))
    if _differs(kind.valueType, real.valueType):
        column = f.transform_values(column, lambda _, value: _converted(f, value, kind.valueType, real.valueType))
    return column


def _differs(kind: DataType, real: DataType) -> bool:
    return kind.simpleString() != real.simpleString()
