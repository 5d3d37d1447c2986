"""The shapes of Avro values as Flink writes them, which is not Avro's own binary encoding.

Integers have their full width, a string, bytes, an enum and a union's branch an int32 before them; arrays and maps are
blocks of a varlong count and so many entries, and end with a byte 0. Source:
``org.apache.flink.formats.avro.utils.DataOutputEncoder``. Logical types become Arrow's; one that is not known here is
ignored, as Avro's specification demands.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import UnsupportedError, shown
from statestore.formats.flink.layouts.shapes import (
    MOST_DIGITS,
    Again,
    Branches,
    Fixed,
    Repeated,
    Routines,
    Shape,
    Sized,
    Struct,
    field_of,
    struct_of,
    with_column,
)
from statestore.formats.flink.serializers.flink_types import MOST_DEPTH
from statestore.formats.values.avro_names import candidates, full_name
from statestore.formats.values.expansion import Expansion, parse_json

_NULL = Struct(None, ())
_UTF8 = Sized(pa.string(), 1, "utf-8")
_PRIMITIVES: dict[str, Shape] = {
    "null": _NULL,
    "boolean": Fixed(pa.bool_(), 1, "boolean"),
    "int": Fixed(pa.int32(), 4, "int"),
    "long": Fixed(pa.int64(), 8, "int"),
    "float": Fixed(pa.float32(), 4, "float"),
    "double": Fixed(pa.float64(), 8, "float"),
    "bytes": Sized(pa.binary(), 1, "bytes"),
    "string": _UTF8,
}
_LOGICAL = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "timestamp-nanos"): pa.timestamp("ns", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("long", "local-timestamp-nanos"): pa.timestamp("ns"),
}
_Known = dict[str, Shape | None]


def avro_layout(schema: str, class_name: str) -> Shape:
    """The shape of the values of a schema, given as JSON.

    A record inside of itself is shown as its bytes. Raises UnsupportedError FLINK_UNSUPPORTED for a text that is no
    schema, and for a schema whose values are all null.
    """
    try:
        found = parse_json(schema)
    except ValueError as error:
        raise _unsupported(f"a text that is no JSON ({error})", class_name) from None
    reader = _Schema(class_name)
    shape = reader.shape(found, {}, "", 0)
    if shape.column is None:
        raise _unsupported("no values but null", class_name)
    return Routines(shape.column, shape, tuple(reader.bodies.items())) if reader.bodies else shape


def _unsupported(what: str, class_name: str) -> UnsupportedError:
    return UnsupportedError(
        ErrorCode.FLINK_UNSUPPORTED,
        f"Avro schema of {class_name}: found {what}, expected a schema of Avro; read the other columns",
    )


class _Schema:
    """A reader of one schema; ``class_name`` is for messages."""

    def __init__(self, class_name: str) -> None:
        self._class_name = class_name
        self._again: set[str] = set()
        self._expansion = Expansion(self._wrong)
        self.bodies: dict[str, Shape] = {}
        """Records that contain themselves, by their full names."""

    def shape(self, found: Any, known: _Known, space: str, depth: int) -> Shape:
        if depth > MOST_DEPTH:
            raise self._wrong(f"types nested deeper than {MOST_DEPTH}")
        if not isinstance(found, str):
            self._expansion.add()
        if isinstance(found, list):
            return self._union(found, known, space, depth)
        if isinstance(found, str):
            return self._named(found, known, space)
        if not isinstance(found, dict) or "type" not in found:
            raise self._wrong(shown(found))
        form = found["type"]
        if form in ("record", "error"):
            return self._record(found, known, space, depth)
        if form == "enum":
            names = self._texts(found.get("symbols"))
            return self._define(found, known, space, Fixed(pa.string(), 4, "enum", names))
        if form == "fixed":
            size = found.get("size")
            if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < 2**31:
                raise self._wrong(f"the size {shown(size)} of a fixed")
            fixed = self._decimal(found, Fixed(pa.binary(), size, "bytes"), "big decimal")
            return self._define(found, known, space, fixed)
        if form == "array":
            part = with_column(self.shape(found.get("items"), known, space, depth + 1))
            return Repeated(pa.list_(field_of("item", part)), "blocks", part)
        if form == "map":
            part = with_column(self.shape(found.get("values"), known, space, depth + 1))
            entry = pa.struct([pa.field("key", pa.string(), nullable=False), field_of("value", part)])
            return Repeated(pa.map_(pa.string(), field_of("value", part)), "blocks", Struct(entry, (_UTF8, part)))
        return self._logical(found, self.shape(form, known, space, depth + 1))

    def _union(self, branches: list[Any], known: _Known, space: str, depth: int) -> Shape:
        shapes = [self.shape(branch, known, space, depth + 1) for branch in branches]
        cases = tuple(None if shape is _NULL else shape for shape in shapes)
        others = [case for case in cases if case is not None]
        if not others:
            raise self._wrong(f"the union {shown(branches)}")
        if len(others) == 1:
            return Branches(others[0].column, "index", cases)
        names = [_name_of(branch) for branch, case in zip(branches, cases, strict=True) if case is not None]
        fields = tuple(((number, -1),) for number, case in enumerate(cases) if case is not None)
        return Branches(struct_of(names, tuple(others)), "index", cases, fields)

    def _named(self, name: str, known: _Known, space: str) -> Shape:
        if name in _PRIMITIVES:
            self._expansion.add()
            return _PRIMITIVES[name]
        for full in candidates(name, space):
            if full in known:
                self._expansion.add_named(full)
                shape = known[full]
                if shape is None:  # the record is not read to its end
                    self._again.add(full)
                    return Again(pa.binary(), full, f"Avro record {full}, which contains itself")
                return shape
        raise self._wrong(f"type {shown(name)}")

    def _define(self, found: dict[str, Any], known: _Known, space: str, shape: Shape) -> Shape:
        known[self._full_name(found, space)[0]] = shape
        return shape

    def _full_name(self, found: dict[str, Any], space: str) -> tuple[str, str]:
        """(full name, namespace) of a record, enum or fixed."""
        name = full_name(found, space)
        if name is None:
            raise self._wrong(shown(found))
        return name

    def _record(self, found: dict[str, Any], known: _Known, space: str, depth: int) -> Shape:
        name, own = self._full_name(found, space)
        known[name], before = None, self._expansion.types
        fields = found.get("fields")
        if not isinstance(fields, list) or not all(isinstance(field, dict) for field in fields):
            raise self._wrong(f"the fields {shown(fields)} of record {name!r}")
        names = self._texts([field.get("name") for field in fields])
        parts = tuple(with_column(self.shape(field.get("type"), known, own, depth + 1)) for field in fields)
        record = Struct(struct_of(list(names), parts), parts)
        known[name] = record
        self._expansion.define(name, before)
        if name in self._again:
            self.bodies[name] = record
        return record

    def _texts(self, found: Any) -> tuple[str, ...]:
        if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
            raise self._wrong(f"the names {shown(found)}")
        return tuple(found)

    def _logical(self, found: dict[str, Any], shape: Shape) -> Shape:
        if isinstance(shape, Sized) and shape.form == "bytes":
            return self._decimal(found, shape, "decimal")
        if isinstance(shape, Fixed) and shape.form == "int":
            base = "int" if shape.width == 4 else "long"
            column = _LOGICAL.get((base, str(found.get("logicalType"))))
            return shape if column is None else Fixed(column, shape.width, "int")
        return shape

    def _decimal(self, found: dict[str, Any], shape: Fixed | Sized, form: str) -> Shape:
        digits, scale = found.get("precision"), found.get("scale", 0)
        fits = isinstance(digits, int) and isinstance(scale, int) and 0 <= scale <= digits <= MOST_DIGITS
        if found.get("logicalType") != "decimal" or not fits or not digits:
            return shape  # an invalid logical type is ignored, and Arrow has none of more digits
        column = pa.decimal128(digits, scale)
        return Fixed(column, shape.width, form) if isinstance(shape, Fixed) else Sized(column, 1, form)

    def _wrong(self, what: str) -> UnsupportedError:
        return _unsupported(what, self._class_name)


def _name_of(branch: Any) -> str:
    if isinstance(branch, str):
        return branch.rpartition(".")[2]
    named = isinstance(branch, dict) and isinstance(branch.get("name"), str)
    return str(branch["name"]).rpartition(".")[2] if named else str(branch["type"])
