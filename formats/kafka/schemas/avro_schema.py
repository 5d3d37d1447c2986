"""Avro schemas, as JSON, and the column types of their values.

Supported are all types of Avro 1.12 except unions of more than one type besides null, and records that contain
themselves. Logical types become Arrow's: dates, times, timestamps, decimals; a logical type that is not known here is
ignored, as the specification demands.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, UnsupportedError, shown
from statestore.formats.values.avro_names import candidates, full_name
from statestore.formats.values.expansion import Expansion, parse_json

PREFIX = "avro:"
PLAIN_PREFIX = "avro-plain:"

_MOST_DIGITS = 38
_MOST_DEPTH = 50


@dataclass(frozen=True)
class AvroType:
    """A type of Avro: ``form`` is its name in the specification, with "nullable" for a union of null and one type.

    ``column`` is the type of its column. ``parts`` are the types of the fields of a record, of the entries of an array
    or a map, or of what is nullable. ``names`` are the fields of a record or the symbols of an enum, ``size`` is that
    of a fixed, and ``null_branch`` the position of null in the union.
    """

    form: str
    column: pa.DataType
    parts: tuple[AvroType, ...] = ()
    names: tuple[str, ...] = ()
    size: int = 0
    null_branch: int = 0


def is_avro(serde: str) -> bool:
    """Return whether a serde of this name is one of Avro."""
    return serde.startswith((PREFIX, PLAIN_PREFIX))


def parse_schema(text: str) -> AvroType:
    """Parse a schema. Raises InvalidInputError WRONG_SCHEMA, UnsupportedError UNSUPPORTED_SERDE."""
    try:
        found = parse_json(text)
    except ValueError as error:
        raise _wrong(shown(text), f"JSON ({error})") from None
    return _parse(found, _Known(), "", 0)


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
        f"Avro schema with {what}; expected types of one shape, unions of null and one type, and no recursion; read "
        "the values as bytes",
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
        return _define(found, known, space, AvroType("enum", pa.string(), names=tuple(symbols)))
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
    parts = [_parse(branch, known, space, depth + 1) for branch in branches]
    others = [part for part in parts if part.form != "null"]
    if len(parts) == 2 and len(others) == 1:
        return AvroType("nullable", others[0].column, tuple(others), null_branch=int(parts[0] is others[0]))
    raise _unsupported(f"the union {shown(branches)}")


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
    known[_full_name(found, space)[0]] = kind
    return kind


def _record(found: dict[str, Any], known: _Known, space: str, depth: int) -> AvroType:
    name, own = _full_name(found, space)
    known[name], before = None, known.expansion.types
    fields = found.get("fields")
    if not isinstance(fields, list) or not all(isinstance(field, dict) for field in fields):
        raise _wrong(shown(fields), f"the fields of record {name!r}")
    names = _texts([field.get("name") for field in fields], f"names of the fields of record {name!r}")
    parts = [_parse(field.get("type"), known, own, depth + 1) for field in fields]
    column = pa.struct([pa.field(field, part.column) for field, part in zip(names, parts, strict=True)])
    kind = AvroType("record", column, tuple(parts), tuple(names))
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
            return AvroType(f"decimal {kind.form}", pa.decimal128(digits, scale), size=kind.size)
        return kind  # an invalid logical type is ignored, and Arrow has none of more digits
    column = _LOGICAL.get((kind.form, str(name)))
    return kind if column is None else AvroType(kind.form, column)


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
