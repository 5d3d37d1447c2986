"""Spark's types as its schema JSON writes them (``DataType.json``), and the Arrow types that hold them.

boolean, byte .. long, float, double    bool, int8 .. int64, float, double
string, char, varchar, any collation    string
binary, void                            binary, null
date, timestamp, timestamp_ntz, time    date32, timestamp[us, UTC], timestamp[us], time64[ns]
decimal(p,s)                            decimal128(p, s)
interval day to second (and parts)      duration[us]
interval year to month (and parts)      int32, months
interval (calendar)                     month_day_nano_interval
array, map, struct                      list, map, struct; a struct's names may repeat
variant                                 struct<value: binary, metadata: binary>, Spark's binary form
user-defined types                      their sqlType
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from statestore.formats.spark.damage import corrupt_row, unsupported

MAX_DEPTH = 64


@dataclass(frozen=True)
class Plain:
    """A type without parameters; ``form`` is the numpy type of its slot, None where it lies behind the slots."""

    name: str
    arrow: pa.DataType
    form: str | None = None


@dataclass(frozen=True)
class DecimalOf:
    """decimal(precision, scale), 1 <= precision <= 38."""

    precision: int
    scale: int


@dataclass(frozen=True)
class ArrayOf:
    """An array; elements may be null whatever the schema says."""

    element: SparkType


@dataclass(frozen=True)
class MapOf:
    """A map; keys are never null."""

    key: SparkType
    value: SparkType


@dataclass(frozen=True)
class Field:
    """A member of a struct; ``metadata`` is Spark's, as JSON."""

    name: str
    type: SparkType
    nullable: bool = True
    metadata: str = "{}"


@dataclass(frozen=True)
class StructOf:
    """A struct or the schema of a row."""

    fields: tuple[Field, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.fields)

    def without(self, *names: str) -> StructOf:
        """The struct less the fields of these names."""
        return StructOf(tuple(field for field in self.fields if field.name not in names))


SparkType = Plain | DecimalOf | ArrayOf | MapOf | StructOf

STRING = Plain("string", pa.string())
BINARY = Plain("binary", pa.binary())
VOID = Plain("void", pa.null())
LONG = Plain("long", pa.int64(), "<i8")
# The mark is Spark's own, by which it knows a variant in Arrow.
_VARIANT_METADATA = pa.field("metadata", pa.binary(), nullable=False, metadata={"variant": "true"})
VARIANT = Plain("variant", pa.struct([pa.field("value", pa.binary(), nullable=False), _VARIANT_METADATA]))
CALENDAR_INTERVAL = Plain("interval", pa.month_day_nano_interval())
DAY_TIME = Plain("day-time interval", pa.duration("us"), "<i8")
YEAR_MONTH = Plain("year-month interval", pa.int32(), "<i4")
TIME = Plain("time", pa.time64("ns"), "<i8")

_PLAIN = {
    kind.name: kind
    for kind in (
        Plain("boolean", pa.bool_(), "<u1"),
        Plain("byte", pa.int8(), "<i1"),
        Plain("short", pa.int16(), "<i2"),
        Plain("integer", pa.int32(), "<i4"),
        LONG,
        Plain("float", pa.float32(), "<f4"),
        Plain("double", pa.float64(), "<f8"),
        Plain("date", pa.date32(), "<i4"),
        Plain("timestamp", pa.timestamp("us", "UTC"), "<i8"),
        Plain("timestamp_ntz", pa.timestamp("us"), "<i8"),
        STRING,
        BINARY,
        VOID,
        VARIANT,
        CALENDAR_INTERVAL,
    )
}
_PLAIN["null"] = VOID
_PATTERNS = (
    (re.compile(r"(?:char|varchar)\(\d+\)|string collate \S+"), STRING),
    (re.compile(r"time\(\d\)|time"), TIME),
    (re.compile(r"interval (?:year|month)(?: to month)?"), YEAR_MONTH),
    (re.compile(r"interval (?:day|hour|minute|second)(?: to (?:hour|minute|second))?"), DAY_TIME),
)
_DECIMAL = re.compile(r"decimal\(\s*(\d{1,2})\s*,\s*(\d{1,2})\s*\)")


def parse_schema(text: str) -> StructOf:
    """The struct that a schema JSON describes.

    Raises CorruptError SPARK_STATE_ROW for JSON that is no schema, UnsupportedError SPARK_STATE_UNSUPPORTED for a type
    that can not be read.
    """
    try:
        found = _type_of(json.loads(text), MAX_DEPTH)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise corrupt_row(f"schema: found {text[:200]!r}, expected the JSON of a struct") from error
    if not isinstance(found, StructOf):
        raise corrupt_row(f"schema: found {text[:200]!r}, expected a struct")
    return found


def _type_of(node: Any, depth: int) -> SparkType:
    if depth == 0:
        raise unsupported(f"a schema nested deeper than {MAX_DEPTH}")
    if isinstance(node, str):
        return _named(node)
    kind = node["type"]
    if kind == "struct":
        return StructOf(tuple(_field_of(field, depth - 1) for field in node["fields"]))
    if kind == "array":
        return ArrayOf(_type_of(node["elementType"], depth - 1))
    if kind == "map":
        return MapOf(_type_of(node["keyType"], depth - 1), _type_of(node["valueType"], depth - 1))
    if kind == "udt":
        return _type_of(node["sqlType"], depth - 1)
    raise unsupported(f"type {str(kind)[:80]!r}; expected a type of Spark 4.3 or earlier")


def _field_of(node: Any, depth: int) -> Field:
    kind = _type_of(node["type"], depth)
    return Field(str(node["name"]), kind, bool(node.get("nullable", True)), json.dumps(node.get("metadata", {})))


def _named(name: str) -> SparkType:
    if name in _PLAIN:
        return _PLAIN[name]
    if decimal := _DECIMAL.fullmatch(name):
        precision, scale = int(decimal[1]), int(decimal[2])
        if 1 <= precision <= 38 and scale <= precision:
            return DecimalOf(precision, scale)
    for pattern, kind in _PATTERNS:
        if pattern.fullmatch(name):
            return kind
    raise unsupported(f"type {name[:80]!r}; expected a type of Spark 4.3 or earlier")


def arrow_type(kind: SparkType) -> pa.DataType:
    """The Arrow type of columns of this type."""
    if isinstance(kind, Plain):
        return kind.arrow
    if isinstance(kind, DecimalOf):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, ArrayOf):
        return pa.list_(pa.field("element", arrow_type(kind.element)))
    if isinstance(kind, MapOf):
        return pa.map_(arrow_type(kind.key), arrow_type(kind.value))
    return pa.struct(arrow_fields(kind))


def arrow_fields(schema: StructOf) -> list[pa.Field]:
    """One nullable Arrow field per member; Spark's own schemas of state call every column nullable."""
    return [pa.field(field.name, arrow_type(field.type)) for field in schema.fields]
