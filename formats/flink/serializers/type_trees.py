"""Types of Flink as texts, lists and tables, so that a file in TOML or JSON holds them without loss.

A basic type is its name, ``"string"``. Another is a table whose ``type`` names it, with its parts:
``{type = "list", element = "long"}``, ``{type = "pojo", class_name = "shop.Person", fields = {age = "int"}}``. Parts
that are left out have the value that is most common.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, shown
from statestore.formats.flink.serializers.flink_types import (
    BASIC_WIDTHS,
    ArrayOf,
    AvroOf,
    Basic,
    EitherOf,
    EnumOf,
    FlinkType,
    ListOf,
    Logical,
    MapOf,
    MaskedListOf,
    Nullable,
    Opaque,
    PojoOf,
    PrimitiveArray,
    RowDataOf,
    RowOf,
    SortedLong,
    StringArray,
    TableValue,
    TimerOf,
    TtlOf,
    TupleOf,
    UnionOf,
)

Tree = str | list[Any] | dict[str, Any] | int | bool
_CLASSES: Mapping[str, type[Any]] = {
    "basic": Basic,
    "sorted long": SortedLong,
    "primitive array": PrimitiveArray,
    "string array": StringArray,
    "list": ListOf,
    "map": MapOf,
    "array": ArrayOf,
    "nullable": Nullable,
    "tuple": TupleOf,
    "row": RowOf,
    "enum": EnumOf,
    "pojo": PojoOf,
    "either": EitherOf,
    "union": UnionOf,
    "masked list": MaskedListOf,
    "time to live": TtlOf,
    "timer": TimerOf,
    "sql": Logical,
    "row data": RowDataOf,
    "table value": TableValue,
    "avro": AvroOf,
    "opaque": Opaque,
}
_NAMES = {kind: name for name, kind in _CLASSES.items()}
_NO_PART = {"declared"}
_MOST_DEPTH = 64


def as_tree(kind: FlinkType) -> Tree:
    """The tree of a type that a serializer snapshot gives."""
    if isinstance(kind, Basic) and kind == Basic(kind.name):
        return kind.name
    parts: dict[str, Any] = {"type": _NAMES[type(kind)]}
    for each in dataclasses.fields(kind):  # type: ignore[arg-type]
        value = getattr(kind, each.name)
        if each.name not in _NO_PART and value != each.default:
            parts[each.name] = _part(value)
    return parts


def _part(value: Any) -> Any:
    if isinstance(value, FlinkType):
        return as_tree(value)
    if isinstance(value, tuple):
        if value and all(isinstance(each, tuple) and len(each) == 2 for each in value):
            return {name: as_tree(kind) for name, kind in value}
        return [_part(each) for each in value]
    return value


def from_tree(tree: Any, where: str, depth: int = 0) -> FlinkType:
    """The type of a tree. Raises InvalidInputError FLINK_TYPE; ``where`` names the place of the tree."""
    if depth > _MOST_DEPTH:
        raise InvalidInputError(ErrorCode.FLINK_TYPE, f"{where}: found types within {depth} others, expected fewer")
    if isinstance(tree, str):
        if tree not in BASIC_WIDTHS:
            raise InvalidInputError(
                ErrorCode.FLINK_TYPE,
                f"{where}: found type {shown(tree)}, expected one of {', '.join(BASIC_WIDTHS)}, or a table as "
                "statestore describe prints it",
            )
        return Basic(tree)
    name = tree.get("type") if isinstance(tree, dict) else None
    if not isinstance(tree, dict) or not isinstance(name, str) or name not in _CLASSES:
        found = tree if name is None else name
        raise InvalidInputError(
            ErrorCode.FLINK_TYPE,
            f"{where}: found {shown(found)}, expected a type's name, or a table with type = one of "
            f"{', '.join(_CLASSES)}",
        )
    kind = _CLASSES[name]
    fields = {each.name: each for each in dataclasses.fields(kind) if each.name not in _NO_PART}
    strange = [each for each in tree if each not in fields and each != "type"]
    missing = [each.name for each in fields.values() if each.default is dataclasses.MISSING and each.name not in tree]
    if strange or missing:
        raise InvalidInputError(
            ErrorCode.FLINK_TYPE,
            f"{where}: found type {name} with {', '.join(tree)}, expected {', '.join(fields) or 'nothing besides'}",
        )
    parts = {
        each: _made(str(fields[each].type), value, f"{where}.{each}", depth + 1)
        for each, value in tree.items()
        if each != "type"
    }
    found_type: FlinkType = kind(**parts)
    if isinstance(found_type, Basic):
        from_tree(found_type.name, where)  # refuses names that no basic type has
    return found_type


def _made(wanted: str, value: Any, where: str, depth: int) -> Any:
    """A part of a type, by the annotation of its field."""
    if wanted in ("str", "int", "bool"):
        if type(value).__name__ != wanted:
            raise _unlike(value, {"str": "a text", "int": "a number", "bool": "true or false"}[wanted], where)
        return value
    if wanted in ("FlinkType", "Logical"):
        found = from_tree(value, where, depth)
        if wanted == "Logical" and not isinstance(found, Logical):
            raise _unlike(value, "a table with type = 'sql'", where)
        return found
    if wanted == "tuple[tuple[str, FlinkType], ...]":
        if value == []:
            return ()
        if not isinstance(value, dict):
            raise _unlike(value, "a table of names with their types", where)
        return tuple((name, from_tree(each, f"{where}.{name}", depth)) for name, each in value.items())
    if not isinstance(value, list):
        raise _unlike(value, "a list", where)
    if wanted == "tuple[str, ...]":
        return tuple(_made("str", each, where, depth) for each in value)
    if wanted == "tuple[tuple[int, str, FlinkType], ...]":
        return tuple(_case(each, where, depth) for each in value)
    inner = "Logical" if wanted.startswith("tuple[Logical") else "FlinkType"
    return tuple(_made(inner, each, f"{where}[{number}]", depth) for number, each in enumerate(value))


def _case(value: Any, where: str, depth: int) -> tuple[int, str, FlinkType]:
    if not isinstance(value, list) or len(value) != 3:
        raise _unlike(value, "[tag, name, type]", where)
    return _made("int", value[0], where, depth), _made("str", value[1], where, depth), from_tree(value[2], where, depth)


def _unlike(value: Any, expected: str, where: str) -> InvalidInputError:
    return InvalidInputError(ErrorCode.FLINK_TYPE, f"{where}: found {shown(value)}, expected {expected}")
