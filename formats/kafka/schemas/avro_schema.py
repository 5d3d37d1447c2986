"""Avro schemas, as JSON, and the column types of their values.

Supported are all types of Avro 1.12 except records that contain themselves. A union of several types is a struct with a
nullable field for each type but null, named by the type; of a row one of them has a value, and null is a null struct.
Logical types become Arrow's: dates, times, timestamps, decimals; a logical type that is not known here is ignored, as
the specification demands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, UnsupportedError, shown
from statestore.formats.values.avro_names import candidates, full_name
from statestore.formats.values.expansion import Expansion, parse_json
from statestore.formats.values.unique_names import unique_names

PLAIN_PREFIX = "avro-plain:"
_PREFIXES = ("avro:", PLAIN_PREFIX, "avro-apicurio:", "avro-glue:")

_MOST_DIGITS = 38
_MOST_DEPTH = 50


class NoDefault:
    """The default of a field that has none; null is one."""


@dataclass(frozen=True)
class AvroField:
    """A field of a record for a reader: its default as JSON, and the names that writers gave it."""

    default: Any = NoDefault
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True)
class AvroType:
    """A type of Avro: ``form`` is its name in the specification, with "nullable" for a union of null and one type.

    ``column`` is the type of its column. ``parts`` are the types of the fields of a record, of the entries of an array
    or a map, of the branches of a union, or of what is nullable. ``names`` are the fields of a record or the symbols of
    an enum, ``size`` is that of a fixed, and ``null_branch`` the position of null in the union.

    For a reader of other schemas: ``name`` and ``aliases`` are full names of a record, enum or fixed; ``fields`` belong
    to ``parts``; ``default`` is the symbol of an enum that stands for symbols which it lacks.
    """

    form: str
    column: pa.DataType
    parts: tuple[AvroType, ...] = ()
    names: tuple[str, ...] = ()
    size: int = 0
    null_branch: int = 0
    name: str = ""
    aliases: tuple[str, ...] = ()
    fields: tuple[AvroField, ...] = ()
    default: str | None = None

    @property
    def branches(self) -> tuple[AvroType, ...]:
        """The types of a union, in its order; of another type, itself."""
        if self.form == "nullable":
            return (NULL, *self.parts) if self.null_branch == 0 else (*self.parts, NULL)
        return self.parts if self.form == "union" else (self,)

    @property
    def is_union(self) -> bool:
        return self.form in ("nullable", "union")

    @property
    def base(self) -> AvroType:
        """The type without its logical type."""
        form = self.form.removeprefix("decimal ")
        column = _PRIMITIVES.get(form, pa.binary() if form == "fixed" else self.column)
        return self if column == self.column else replace(self, form=form, column=column)

    @property
    def shown(self) -> str:
        """Words for messages."""
        return f"{self.form} {self.name}" if self.name else "union" if self.is_union else self.form


def is_avro(serde: str) -> bool:
    """Return whether a serde of this name is one of Avro."""
    return serde.startswith(_PREFIXES)


def parse_schema(text: str, references: Sequence[str] = ()) -> AvroType:
    """Parse a schema; ``references`` are schemas that define types which it names, each before those that name it.

    Raises InvalidInputError WRONG_SCHEMA, UnsupportedError UNSUPPORTED_SERDE.
    """
    known = _Known()
    for reference in references:
        _parse(_json(reference), known, "", 0)
    return _parse(_json(text), known, "", 0)


def _json(text: str) -> Any:
    try:
        return parse_json(text)
    except ValueError as error:
        raise _wrong(shown(text), f"JSON ({error})") from None


class _Known(dict[str, AvroType | None]):
    """The types that a schema has defined so far, by full name, with the number of types that they expand to."""

    def __init__(self) -> None:
        super().__init__()
        self.expansion = Expansion(_unsupported)


def _wrong(found: str, expected: str) -> InvalidInputError:
    return InvalidInputError(ErrorCode.WRONG_SCHEMA, f"Avro schema: found {found}, expected {expected}")


def _unsupported(what: str) -> UnsupportedError:
    return UnsupportedError(
        ErrorCode.UNSUPPORTED_SERDE,
        f"Avro schema with {what}; expected a schema without recursion; read the values as bytes",
    )


def _parse(found: Any, known: _Known, space: str, depth: int) -> AvroType:
    if depth > _MOST_DEPTH:
        raise _unsupported(f"types nested deeper than {_MOST_DEPTH}")
    if not isinstance(found, str):
        known.expansion.add()
    if isinstance(found, list):
        return _union(found, known, space, depth)
    if isinstance(found, str):
        return _named(found, known, space)
    if not isinstance(found, dict) or "type" not in found:
        raise _wrong(shown(found), "the name of a type, an object with a type, or a list")
    form = found["type"]
    if form in ("record", "error"):
        return _record(found, known, space, depth)
    if form == "enum":
        symbols = _texts(found.get("symbols"), "symbols of an enum")
        default = found.get("default")
        if default is not None and default not in symbols:
            raise _wrong(f"the default {shown(default)} of an enum", "one of its symbols")
        return _define(found, known, space, AvroType("enum", pa.string(), names=tuple(symbols), default=default))
    if form == "fixed":
        size = found.get("size")
        if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < 2**31:
            raise _wrong(shown(size), "the size of a fixed")
        kind = AvroType("fixed", pa.binary(), size=size)
        return _define(found, known, space, _logical(found, kind))
    if form == "array":
        part = _parse(found.get("items"), known, space, depth + 1)
        return AvroType("array", pa.list_(part.column), (part,))
    if form == "map":
        part = _parse(found.get("values"), known, space, depth + 1)
        return AvroType("map", pa.map_(pa.string(), part.column), (part,))
    return _logical(found, _parse(form, known, space, depth + 1))


def _union(branches: list[Any], known: _Known, space: str, depth: int) -> AvroType:
    parts = tuple(_parse(branch, known, space, depth + 1) for branch in branches)
    kinds = [part.name or part.base.form for part in parts]
    if not parts or len(set(kinds)) < len(kinds) or any(part.is_union for part in parts):
        raise _wrong(f"the union {shown(branches)}", "types in it, each once, and no union")
    others = [part for part in parts if part.form != "null"]
    if len(parts) == 2 and len(others) == 1:
        return AvroType("nullable", others[0].column, tuple(others), null_branch=int(parts[0] is others[0]))
    if len(parts) == 1:
        return AvroType("union", parts[0].column, parts)
    names = unique_names([(part.name or part.base.form).rpartition(".")[2] for part in others])
    return AvroType("union", pa.struct([pa.field(*each) for each in zip(names, _columns(others), strict=True)]), parts)


def _columns(parts: Sequence[AvroType]) -> list[pa.DataType]:
    return [part.column for part in parts]


def _named(name: str, known: _Known, space: str) -> AvroType:
    if name in _PRIMITIVES:
        known.expansion.add()
        return AvroType(name, _PRIMITIVES[name])
    for full in candidates(name, space):
        if full in known:
            known.expansion.add_named(full)
            kind = known[full]
            if kind is None:
                raise _unsupported(f"the record {name!r}, which contains itself")
            return kind
    raise _wrong(f"type {shown(name)}", "a type of Avro, or one that the schema defines before")


def _full_name(found: dict[str, Any], space: str) -> tuple[str, str]:
    """(full name, namespace) of a record, enum or fixed."""
    name = full_name(found, space)
    if name is None:
        raise _wrong(shown(found), "a name")
    return name


def _define(found: dict[str, Any], known: _Known, space: str, kind: AvroType) -> AvroType:
    name, own = _full_name(found, space)
    kind = replace(kind, name=name, aliases=_aliases(found, own))
    known[name] = kind
    return kind


def _aliases(found: dict[str, Any], space: str) -> tuple[str, ...]:
    """The full names of a type's aliases."""
    aliases = _texts(found.get("aliases", []), "aliases")
    return tuple(alias if "." in alias or not space else f"{space}.{alias}" for alias in aliases)


def _record(found: dict[str, Any], known: _Known, space: str, depth: int) -> AvroType:
    name, own = _full_name(found, space)
    known[name], before = None, known.expansion.types
    fields = found.get("fields")
    if not isinstance(fields, list) or not all(isinstance(field, dict) for field in fields):
        raise _wrong(shown(fields), f"the fields of record {name!r}")
    names = _texts([field.get("name") for field in fields], f"names of the fields of record {name!r}")
    parts = [_parse(field.get("type"), known, own, depth + 1) for field in fields]
    column = pa.struct([pa.field(field, part.column) for field, part in zip(names, parts, strict=True)])
    others = tuple(
        AvroField(field.get("default", NoDefault), tuple(_texts(field.get("aliases", []), "aliases of a field")))
        for field in fields
    )
    kind = AvroType(
        "record", column, tuple(parts), tuple(names), name=name, aliases=_aliases(found, own), fields=others
    )
    known[name] = kind
    known.expansion.define(name, before)
    return kind


def _texts(found: Any, what: str) -> list[str]:
    if not isinstance(found, list) or not all(isinstance(text, str) for text in found) or len(set(found)) < len(found):
        raise _wrong(shown(found), f"{what}, each once")
    return found


def _logical(found: dict[str, Any], kind: AvroType) -> AvroType:
    name = found.get("logicalType")
    if name == "decimal" and kind.form in ("bytes", "fixed"):
        digits, scale = found.get("precision"), found.get("scale", 0)
        fits = isinstance(digits, int) and isinstance(scale, int) and 0 <= scale <= digits <= _MOST_DIGITS
        if fits and digits:
            return replace(kind, form=f"decimal {kind.form}", column=pa.decimal128(digits, scale))
        return kind  # an invalid logical type is ignored, and Arrow has none of more digits
    column = _LOGICAL.get((kind.form, str(name)))
    return kind if column is None else replace(kind, column=column)


_PRIMITIVES = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
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
NULL = AvroType("null", pa.null())
