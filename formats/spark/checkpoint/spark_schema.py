"""Spark's types as its schema JSON writes them (``DataType.json``), and the Arrow types that hold them.

boolean, byte .. long, float, double    bool, int8 .. int64, float, double
string, char(n), varchar(n)             string; with a collation, too
binary, void                            binary, null
date, timestamp, timestamp_ntz, time    date32, timestamp[us, UTC], timestamp[us], time64[ns]
decimal(p,s)                            decimal128(p, s)
interval day to second (and parts)      duration[us]
interval year to month (and parts)      int32, the months: 14 for INTERVAL '1-2' YEAR TO MONTH
interval (calendar)                     month_day_nano_interval
array, map, struct                      list, map, struct; a struct's names may repeat
variant                                 struct<value: binary, metadata: binary>, Spark's binary form
geometry, geography                     struct<srid: int32, wkb: binary>
user-defined types                      their sqlType

The metadata of the field (``statestore.formats.values.declared_types``) holds what Arrow does not have: collations,
lengths of char and varchar, fields of intervals, the precision of times, the system of coordinates. It also holds
Spark's own metadata, such as the delay of a watermark, as PySpark writes it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from statestore.formats.spark.checkpoint.state_errors import corrupt_row, unsupported
from statestore.formats.values.declared_types import COLUMN_METADATA, DECLARED
from statestore.formats.values.expansion import parse_json

MAX_DEPTH = 64
"""The key under which PySpark keeps Spark's metadata in an Arrow field."""


@dataclass(frozen=True)
class Plain:
    """A type that contains no other type; ``form`` is the numpy type of its slot, None where it lies behind the slots.

    ``declared`` is Spark's name of the type where the Arrow type is not complete. Comparisons ignore it: equal types
    are stored alike.
    """

    name: str
    arrow: pa.DataType
    form: str | None = None
    declared: str | None = field(default=None, compare=False)


@dataclass(frozen=True)
class DecimalOf:
    """decimal(precision, scale), 1 <= precision <= 38."""

    precision: int
    scale: int


@dataclass(frozen=True)
class ArrayOf:
    """An array; elements may be null whatever the schema says about them."""

    element: SparkType


@dataclass(frozen=True)
class MapOf:
    """A map; keys are never null."""

    key: SparkType
    value: SparkType


@dataclass(frozen=True)
class Field:
    """A member of a struct; ``metadata`` is Spark's, as JSON, without the collations, which belong to the type."""

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
        """The struct without the fields of these names."""
        return StructOf(tuple(field for field in self.fields if field.name not in names))


SparkType = Plain | DecimalOf | ArrayOf | MapOf | StructOf

STRING = Plain("string", pa.string())
BINARY = Plain("binary", pa.binary())
VOID = Plain("void", pa.null())
BOOLEAN = Plain("boolean", pa.bool_(), "<u1")
LONG = Plain("long", pa.int64(), "<i8")
# The mark is Spark's own, by which Spark recognises a variant in Arrow.
_VARIANT_METADATA = pa.field("metadata", pa.binary(), nullable=False, metadata={"variant": "true"})
_VARIANT_FIELDS = [pa.field("value", pa.binary(), nullable=False), _VARIANT_METADATA]
VARIANT = Plain("variant", pa.struct(_VARIANT_FIELDS), declared="variant")
CALENDAR_INTERVAL = Plain("interval", pa.month_day_nano_interval())
_SPATIAL_FIELDS = [pa.field("srid", pa.int32(), nullable=False), pa.field("wkb", pa.binary(), nullable=False)]
SPATIAL = Plain("geometry or geography", pa.struct(_SPATIAL_FIELDS))
DAY_TIME = Plain("day-time interval", pa.duration("us"), "<i8")
YEAR_MONTH = Plain("year-month interval", pa.int32(), "<i4")
TIME = Plain("time", pa.time64("ns"), "<i8")

_PLAIN = {
    kind.name: kind
    for kind in (
        BOOLEAN,
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
    (re.compile(r"(?:char|varchar)\(\d+\)|string collate [A-Za-z0-9_]+"), STRING),
    (re.compile(r"time\(\d\)|time"), TIME),
    (re.compile(r"interval (?:year|month)(?: to month)?"), YEAR_MONTH),
    (re.compile(r"interval (?:day|hour|minute|second)(?: to (?:hour|minute|second))?"), DAY_TIME),
    (re.compile(r"(?:geometry|geography)(?:\([\w:, -]+\))?"), SPATIAL),
)
# The Arrow types are complete without these names.
_UNDECLARED = ("interval day to second", "string collate UTF8_BINARY")
_COLLATIONS = "__COLLATIONS"  # the key in the metadata of a field
_DECIMAL = re.compile(r"decimal\(\s*(\d{1,2})\s*,\s*(\d{1,2})\s*\)")


def parse_schema(text: str) -> StructOf:
    """The struct that a schema JSON describes.

    Raises CorruptError SPARK_STATE_ROW for JSON that is not a schema, UnsupportedError SPARK_STATE_UNSUPPORTED for a
    type that cannot be read.
    """
    try:
        found = _type_of(parse_json(text), MAX_DEPTH, {}, "")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise corrupt_row(f"schema: found {text[:200]!r}, expected the JSON of a struct") from error
    if not isinstance(found, StructOf):
        raise corrupt_row(f"schema: found {text[:200]!r}, expected a struct")
    return found


def _type_of(node: Any, depth: int, collations: Mapping[str, Any], path: str) -> SparkType:
    """The type of a JSON value; ``collations`` are the enclosing field's, by path such as ``name.element``."""
    if depth == 0:
        raise unsupported(f"a schema nested deeper than {MAX_DEPTH}")
    if isinstance(node, str):
        return _collated(named_type(node), collations.get(path))
    kind = node["type"]
    if kind == "struct":
        return StructOf(tuple(_field_of(each, depth - 1) for each in node["fields"]))
    if kind == "array":
        return ArrayOf(_type_of(node["elementType"], depth - 1, collations, f"{path}.element"))
    if kind == "map":
        key = _type_of(node["keyType"], depth - 1, collations, f"{path}.key")
        return MapOf(key, _type_of(node["valueType"], depth - 1, collations, f"{path}.value"))
    if kind == "udt":
        return _type_of(node["sqlType"], depth - 1, collations, path)
    raise unsupported(f"type {str(kind)[:80]!r}; expected a type of Spark 4.3 or earlier")


def _field_of(node: Any, depth: int) -> Field:
    name, metadata = str(node["name"]), node.get("metadata", {})
    kind = _type_of(node["type"], depth, metadata.get(_COLLATIONS, {}), name)
    own = {key: value for key, value in metadata.items() if isinstance(value, bool | int | float | str)}
    return Field(name, kind, bool(node.get("nullable", True)), json.dumps(own))


def _collated(kind: SparkType, collation: Any) -> SparkType:
    """The type with a collation; ``collation`` is its provider and name, such as ``icu.UNICODE_CI``."""
    if collation is None or not isinstance(kind, Plain) or kind != STRING:
        return kind
    return named_type(f"string collate {str(collation).partition('.')[2]}")


def named_type(name: str) -> SparkType:
    """The type of this name, as Spark's schemas write it. Raises UnsupportedError SPARK_STATE_UNSUPPORTED."""
    if name in _PLAIN:
        return _PLAIN[name]
    if decimal := _DECIMAL.fullmatch(name):
        precision, scale = int(decimal[1]), int(decimal[2])
        if 1 <= precision <= 38 and scale <= precision:
            return DecimalOf(precision, scale)
    for pattern, kind in _PATTERNS:
        if pattern.fullmatch(name):
            return kind if name in _UNDECLARED else replace(kind, declared=name)
    raise unsupported(f"type {name[:80]!r}; expected a type of Spark 4.3 or earlier")


def has_collation(kind: SparkType) -> bool:
    """Return whether Spark compares values of the type, or any inside of them, other than byte by byte."""
    if isinstance(kind, StructOf):
        return any(has_collation(each.type) for each in kind.fields)
    if isinstance(kind, ArrayOf):
        return has_collation(kind.element)
    if isinstance(kind, MapOf):
        return has_collation(kind.key) or has_collation(kind.value)
    return isinstance(kind, Plain) and (kind.declared or "").startswith("string collate ")


def arrow_type(kind: SparkType) -> pa.DataType:
    """The Arrow type of columns of this type."""
    if isinstance(kind, Plain):
        return kind.arrow
    if isinstance(kind, DecimalOf):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, ArrayOf):
        return pa.list_(arrow_field("element", kind.element))
    if isinstance(kind, MapOf):
        key = arrow_field("key", kind.key, nullable=False)
        return pa.map_(key, arrow_field("value", kind.value))
    return pa.struct(arrow_fields(kind))


def arrow_fields(schema: StructOf) -> list[pa.Field]:
    """One nullable Arrow field per member; Spark's own schemas of state call every column nullable."""
    return [arrow_field(each.name, each.type, metadata=each.metadata) for each in schema.fields]


def arrow_field(name: str, kind: SparkType, *, nullable: bool = True, metadata: str = "{}") -> pa.Field:
    """An Arrow field with Spark's name of its type; ``metadata`` is Spark's, as JSON."""
    stated: dict[bytes, bytes] = {}
    if isinstance(kind, Plain) and kind.declared is not None:
        stated[DECLARED] = kind.declared.encode()
    if metadata != "{}":
        stated[COLUMN_METADATA] = metadata.encode()
    return pa.field(name, arrow_type(kind), nullable, stated or None)


# Numbers for struct fields that share a name: Spark's state has them (sum, sum), DuckDB and Python sources do not


def unique_fields(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_type(_unique(field.type)) for field in schema])


def _unique(kind: pa.DataType) -> pa.DataType:
    """A type in whose structs no two fields have one name, ignoring case: sum, sum_1, sum_2."""
    if pa.types.is_map(kind):
        key, item = (field.with_type(_unique(field.type)) for field in (kind.key_field, kind.item_field))
        return pa.map_(key, item)
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_unique(kind.value_type)))
    if not pa.types.is_struct(kind):
        return kind
    taken: set[str] = set()
    fields = []
    for own in kind:
        name, number = own.name, 0
        while name.lower() in taken:
            number += 1
            name = f"{own.name}_{number}"
        taken.add(name.lower())
        fields.append(own.with_name(name).with_type(_unique(own.type)))
    return pa.struct(fields)


def renamed(batch: pa.RecordBatch) -> pa.RecordBatch:
    schema = unique_fields(batch.schema)
    if schema.equals(batch.schema):
        return batch
    columns = [_with_type(column, field.type) for column, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _with_type(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Rename the fields of values; only the levels around renamed fields are made anew."""
    if kind.equals(column.type):
        return column
    if pa.types.is_struct(kind):
        children = [_with_type(column.field(number), field.type) for number, field in enumerate(kind)]
        missing = column.is_null() if column.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=missing)
    if pa.types.is_map(kind):
        parts = [_with_type(column.keys, kind.key_type), _with_type(column.items, kind.item_type)]
        inside = pa.StructArray.from_arrays(parts, fields=[kind.key_field, kind.item_field])
    else:
        inside = _with_type(column.values, kind.value_type)
    own_buffers = column.buffers()[:2]
    return pa.Array.from_buffers(kind, len(column), own_buffers, offset=column.offset, children=[inside])
