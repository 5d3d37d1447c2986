"""Types of values of Kryo while they are looked for: those of some values, joined with those of more of them.

`JSON` is the type of values that have no common type. No column has it: that of such values is string. A map is a
struct of its key and item here, as the type of the keys may not be known. An object of a job's class is a struct whose
fields tell the class, as two classes may have the same fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from statestore.formats.flink.serializers.job_classes import JavaType

JSON = pa.large_string()
_CLASS, _JSON = b"statestore.class", b"statestore.json"
_MICROS, _NANOS = pa.timestamp("us", "UTC"), pa.timestamp("ns", "UTC")
_TYPES: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "char": pa.string(),
    "short": pa.int16(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "java.lang.Boolean": pa.bool_(),
    "java.lang.Byte": pa.int8(),
    "java.lang.Character": pa.string(),
    "java.lang.Short": pa.int16(),
    "java.lang.Integer": pa.int32(),
    "java.lang.Long": pa.int64(),
    "java.lang.Float": pa.float32(),
    "java.lang.Double": pa.float64(),
    "java.time.LocalDate": pa.date32(),
    "java.time.LocalTime": pa.time64("ns"),
    "java.time.LocalDateTime": pa.timestamp("ns"),
    "java.time.Instant": _NANOS,
    "java.time.Duration": pa.duration("ns"),
    "java.util.Date": _MICROS,
    "java.sql.Timestamp": _NANOS,
    "java.util.OptionalInt": pa.int32(),
    "java.util.OptionalLong": pa.int64(),
    "java.util.OptionalDouble": pa.float64(),
}
_LISTS = ("Collection", "List", "Set", "SortedSet", "Queue", "Deque", "ArrayList", "LinkedList", "HashSet", "TreeSet",
          "LinkedHashSet")  # fmt: skip
_MAPS = ("Map", "SortedMap", "NavigableMap", "HashMap", "LinkedHashMap", "TreeMap", "concurrent.ConcurrentMap",
         "concurrent.ConcurrentHashMap")  # fmt: skip


def declared_type(kind: JavaType) -> pa.DataType:
    """The type of a field without regard to its values: null where these tell it."""
    if kind.dimensions:
        inner = JavaType(kind.name, kind.dimensions - 1, kind.arguments, kind.variable)
        return pa.binary() if inner == JavaType("byte") else list_type(declared_type(inner))
    short = kind.name.removeprefix("java.util.")
    if short in _LISTS and len(kind.arguments) == 1:
        return list_type(declared_type(kind.arguments[0]))
    if short in _MAPS and len(kind.arguments) == 2:
        return map_type(*map(declared_type, kind.arguments))
    if short == "Optional" and len(kind.arguments) == 1:
        return declared_type(kind.arguments[0])
    return _TYPES.get(kind.name, pa.null())


def list_type(element: pa.DataType) -> pa.DataType:
    """The type of lists of elements of a type."""
    return JSON if element == JSON else pa.list_(element)


def map_type(key: pa.DataType, item: pa.DataType) -> pa.DataType:
    """The type of maps. A key of a map of Arrow is not of type null."""
    return JSON if JSON in (key, item) else pa.struct({"key": key, "item": item})


def object_type(class_name: str, fields: Iterable[tuple[str, pa.DataType]]) -> pa.DataType:
    """The type of objects of a class; `JSON` for those without fields, as a struct has fields."""
    told = {_CLASS: class_name.encode()}
    found = [pa.field(name, kind, metadata=told) for name, kind in fields]
    return pa.struct(found) if found else JSON


def class_of(kind: pa.DataType) -> str:
    """The class of whose objects this is the type; "" for all other types."""
    if not pa.types.is_struct(kind) or not kind.num_fields:
        return ""
    told: bytes = (kind.field(0).metadata or {}).get(_CLASS, b"")
    return told.decode()


def is_json_field(field: pa.Field) -> bool:
    """Return whether the values of a field of an object have no common type, and are texts of JSON."""
    return _JSON in (field.metadata or {})


def type_of_both(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """The type of values of two types: null for none, `JSON` where they differ."""
    if one.equals(other, check_metadata=True) or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if pa.types.is_integer(one) and pa.types.is_integer(other):
        return pa.int64()
    if pa.types.is_list(one) and pa.types.is_list(other):
        return list_type(type_of_both(one.value_type, other.value_type))
    if not pa.types.is_struct(one) or not pa.types.is_struct(other) or class_of(one) != class_of(other):
        return JSON
    pairs = [(field.name, type_of_both(field.type, other.field(n).type)) for n, field in enumerate(one)]
    return object_type(class_of(one), pairs) if class_of(one) else map_type(*(kind for _, kind in pairs))


def shown_type(found: pa.DataType) -> pa.DataType:
    """The type of the column for a type that was found: string where no value says it."""
    if pa.types.is_null(found) or found == JSON:
        return pa.string()
    if pa.types.is_list(found):
        return pa.list_(shown_type(found.value_type))
    if not pa.types.is_struct(found):
        return found
    if not class_of(found):
        return pa.map_(shown_type(found.field("key").type), shown_type(found.field("item").type))
    fields = []
    for each in found:
        told = {**each.metadata, **({_JSON: b"true"} if each.type == JSON else {})}
        fields.append(pa.field(each.name, shown_type(each.type), metadata=told))
    return pa.struct(fields)
