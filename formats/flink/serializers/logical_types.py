"""The logical types of Flink SQL, out of their Java objects in serializer snapshots.

Source: the classes of package ``org.apache.flink.table.types.logical`` of Flink 1.20 and 2.3.
"""

from __future__ import annotations

from typing import Any

from statestore.formats.flink.serializers.flink_types import MOST_DEPTH, Logical
from statestore.formats.flink.snapshot.data_input import DataInput
from statestore.formats.flink.snapshot.java_objects import JavaEnum, JavaObject, read_java_object

MAX_TYPES = 20_000
"""Types of one tree. Objects may refer to one another, so that a short stream can stand for a tree without end."""

_PACKAGE = "org.apache.flink.table.types.logical."
_SIMPLE = {
    "BooleanType": "BOOLEAN",
    "TinyIntType": "TINYINT",
    "SmallIntType": "SMALLINT",
    "IntType": "INTEGER",
    "BigIntType": "BIGINT",
    "FloatType": "FLOAT",
    "DoubleType": "DOUBLE",
    "CharType": "STRING",
    "VarCharType": "STRING",
    "BinaryType": "BYTES",
    "VarBinaryType": "BYTES",
    "DateType": "DATE",
    "TimeType": "TIME",
    "YearMonthIntervalType": "YEAR_MONTH",
    "DayTimeIntervalType": "DAY_TIME",
    "RawType": "RAW",
    "SymbolType": "RAW",
    "VariantType": "VARIANT",
    "BitmapType": "BITMAP",
}
_NOTHING = "org.apache.flink.table.dataview.NullSerializer"
_TIMESTAMPS = {"TimestampType": "TIMESTAMP", "LocalZonedTimestampType": "TIMESTAMP_LTZ"}


class UnknownLogicalType(Exception):
    """A logical type whose layout in a row is not known; the text names its class."""


def read_logical_type(data: DataInput) -> Logical:
    """The logical type that is written as a Java object at the position of ``data``, which is moved behind it.

    Raises CorruptError FLINK_METADATA for damaged bytes, UnsupportedError FLINK_UNSUPPORTED for an object that cannot
    be walked, and, with the position already behind the object, `UnknownLogicalType`.
    """
    start = data.at
    found = read_java_object(data)
    return _Types(data, start).convert(found, 0)


class _Types:
    def __init__(self, data: DataInput, start: int) -> None:
        self.data = data
        self.start = start
        self.left = MAX_TYPES

    def convert(self, found: Any, depth: int) -> Logical:
        self.left -= 1
        if depth > MOST_DEPTH or self.left < 0:
            raise self.wrong(f"a type of more than {MOST_DEPTH} levels or {MAX_TYPES} parts")
        if not isinstance(found, JavaObject):
            raise self.wrong(f"{type(found).__name__} for a logical type")
        name = found.class_name.removeprefix(_PACKAGE)
        if name == found.class_name:
            raise UnknownLogicalType(name)
        if name == "RawType" and self.serializer(found) == _NOTHING:
            return Logical("ABSENT")
        if name in _SIMPLE:
            return Logical(_SIMPLE[name])
        if name in _TIMESTAMPS:
            return Logical(_TIMESTAMPS[name], self.number(found, "precision", 0, 9))
        if name == "DecimalType":
            precision = self.number(found, "precision", 1, 38)
            return Logical("DECIMAL", precision, self.number(found, "scale", 0, precision))
        if name == "ArrayType":
            return self.parametric("ARRAY", found, ("elementType",), depth)
        if name == "MapType":
            return self.parametric("MAP", found, ("keyType", "valueType"), depth)
        if name == "MultisetType":
            return self.parametric("MULTISET", found, ("elementType",), depth)
        if name == "RowType":
            return self.row(self.listed(found, "fields"), depth)
        if name == "StructuredType":
            return self.row(self.attributes(found), depth)
        if name == "DistinctType":
            return self.convert(found.fields.get("sourceType"), depth + 1)
        if name == "LegacyTypeInformationType" and self.root(found) in ("RAW", "STRUCTURED_TYPE"):
            return Logical("RAW")
        raise UnknownLogicalType(found.class_name)

    def parametric(self, root: str, found: JavaObject, names: tuple[str, ...], depth: int) -> Logical:
        parts = tuple(self.convert(found.fields.get(name), depth + 1) for name in names)
        return Logical(root, children=tuple(Logical("RAW") if each.root == "ABSENT" else each for each in parts))

    def row(self, members: list[Any], depth: int) -> Logical:
        names, kinds = [], []
        for member in members:
            if not isinstance(member, JavaObject) or not isinstance(member.fields.get("name"), str):
                raise self.wrong("a field of a row without a name")
            names.append(member.fields["name"])
            kinds.append(self.convert(member.fields.get("type"), depth + 1))
        return Logical("ROW", children=tuple(kinds), names=tuple(names))

    def attributes(self, found: JavaObject) -> list[Any]:
        """The attributes of a structured type, those of its parents first (``LogicalTypeChecks.getFieldNames``)."""
        chain = [found]
        while (parent := chain[-1].fields.get("superType")) is not None:
            if not isinstance(parent, JavaObject) or len(chain) > MOST_DEPTH:
                raise self.wrong("a structured type with a parent that is no type")
            chain.append(parent)
        return [each for part in reversed(chain) for each in self.listed(part, "attributes")]

    def listed(self, found: JavaObject, name: str) -> list[Any]:
        """The elements of a list, which Java may have wrapped as unmodifiable or written as an array."""
        value = found.fields.get(name)
        for _ in range(3):
            if not isinstance(value, JavaObject):
                break
            inner = value.fields.get("list", value.fields.get("c", value.fields.get("a")))
            if inner is None:
                if value.class_name == "java.util.Collections$SingletonList":
                    return [value.fields.get("element")]
                return [each for each in value.added if not isinstance(each, bytes)]
            value = inner
        if isinstance(value, list):
            return value
        if isinstance(value, JavaObject):
            return [each for each in value.added if not isinstance(each, bytes)]
        raise self.wrong(f"no list for {name} of {found.class_name}")

    def number(self, found: JavaObject, name: str, least: int, most: int) -> int:
        number = found.fields.get(name)
        if not isinstance(number, int) or not least <= number <= most:
            raise self.wrong(f"{name} {number} of {found.class_name}, expected {least} to {most}")
        return number

    @staticmethod
    def serializer(found: JavaObject) -> str:
        serializer = found.fields.get("serializer")
        return serializer.class_name if isinstance(serializer, JavaObject) else ""

    @staticmethod
    def root(found: JavaObject) -> str:
        root = found.fields.get("typeRoot")
        return root.constant if isinstance(root, JavaEnum) else ""

    def wrong(self, problem: str) -> Exception:
        return self.data.error(f"found {problem}", self.start)
