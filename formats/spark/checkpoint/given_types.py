"""The facts about a checkpoint that users give: types of states that no schema file describes, and whether to show
batches that were never committed.

Spark 3.0 and earlier wrote no schema files. Types are given in the syntax of a table's columns, ``k int, at
timestamp``, which stands for every state without a schema file, or by the names of states, ``left=k int; right=k int``.
They are the columns of stored keys and values. Of a join they are those of its keys and of the rows of a side: the
stores of a join add columns of their own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, UnsupportedError, shown
from statestore.formats.spark.checkpoint.schema_files import FamilySchema
from statestore.formats.spark.checkpoint.spark_schema import (
    BOOLEAN,
    LONG,
    ArrayOf,
    Field,
    MapOf,
    SparkType,
    StructOf,
    named_type,
)
from statestore.formats.values.type_syntax import TypeText, parse_type_text, split_items

KEY_TYPE, VALUE_TYPE, UNCOMMITTED = "keyType", "valueType", "uncommitted"
_NAMED = re.compile(r"\s*([\w$.-]+)\s*=(.*)", re.DOTALL)
_SIDE = re.compile(r"(left|right)-(keyToNumValues|keyWithIndexToValue)")
_COUNTS = "keyToNumValues"
_WORDS = {
    "tinyint": "byte",
    "smallint": "short",
    "int": "integer",
    "bigint": "long",
    "real": "float",
    "dec": "decimal",
    "numeric": "decimal",
    "timestamp_ltz": "timestamp",
}
"""Words of SQL for the types that Spark's schemas call by other names."""

ByState = tuple[tuple[str, StructOf], ...]


@dataclass(frozen=True)
class Given:
    """The columns of keys and of values by the name of a state, "" for all; ``uncommitted``: show begun batches."""

    keys: ByState = ()
    values: ByState = ()
    uncommitted: bool = False


NOTHING_GIVEN = Given()


def given_of(options: Mapping[str, str]) -> Given:
    """Parse the options of a read, by their names in lower case. Raises InvalidInputError INVALID_OPTION."""
    keys, values = (_by_state(name, options.get(name.lower(), "")) for name in (KEY_TYPE, VALUE_TYPE))
    text = options.get(UNCOMMITTED, "false").strip().lower()
    if text not in ("true", "false"):
        raise _wrong(f"{UNCOMMITTED} is {shown(options[UNCOMMITTED])}; expected true or false")
    return Given(keys, values, text == "true")


def given_names(given: Given) -> tuple[str, ...]:
    """The names of states for which types are given, "" among them if they stand for all."""
    return tuple(dict.fromkeys(name for name, _ in (*given.keys, *given.values)))


def family_without_schema(given: Given, operator_id: int, store: str, *, matched: bool) -> FamilySchema:
    """The schema of a store without a schema file, as far as types are given.

    ``matched``: rows of a join's side end with whether they were matched, as of join format 2.
    """
    side = _SIDE.fullmatch(store)
    names = names_of(operator_id, store)
    key, value = _of_state(given.keys, names), _of_state(given.values, names)
    if side is not None and side[2] == _COUNTS:
        value = None if key is None else StructOf((Field("value", LONG),))
    elif side is not None:
        key = None if key is None else StructOf((*key.fields, Field("index", LONG)))
        if value is not None and matched:
            value = StructOf((*value.fields, Field("matched", BOOLEAN)))
    opaque = tuple(name for name, kind in (("key", key), ("value", value)) if kind is None)
    return FamilySchema("default", key or StructOf(()), value or StructOf(()), opaque=opaque, recorded=False)


def names_of(operator_id: int, store: str) -> tuple[str, ...]:
    """The names by which types of a store are given, the most exact first."""
    side = _SIDE.fullmatch(store)
    base = "state" if store == "default" else store if side is None else side[1]
    return f"{base}_{operator_id}", base


def _of_state(types: ByState, names: tuple[str, ...]) -> StructOf | None:
    by_name = dict(types)
    return next((by_name[name] for name in (*names, "") if name in by_name), None)


def _by_state(option: str, text: str) -> ByState:
    found: dict[str, StructOf] = {}
    for item in split_items(text):
        named = _NAMED.fullmatch(item)
        name, columns = (named[1], named[2]) if named else ("", item)
        if name in found:
            of = f"of {shown(name)}" if name else "for all states"
            raise _wrong(f"{option} has two types {of}; expected one")
        found[name] = _columns(option, columns.strip())
    return tuple(found.items())


def _columns(option: str, text: str) -> StructOf:
    whole = text if re.match(r"struct\s*<", text, re.IGNORECASE) else f"struct<{text}>"
    expected = "expected columns as in CREATE TABLE, such as name string, n int, or struct<> for none"
    if not text:
        raise _wrong(f"{option} is empty; {expected}")
    try:
        kind = _type_of(parse_type_text(whole))
    except (ValueError, UnsupportedError) as error:
        problem = error.message if isinstance(error, UnsupportedError) else str(error)
        raise _wrong(f"{option} is {shown(text)}: {problem}; {expected}") from error
    assert isinstance(kind, StructOf)
    return kind


def _type_of(text: TypeText) -> SparkType:
    name, members = text.name.removesuffix(" not null"), text.members
    if name == "struct" and members is not None:
        return StructOf(tuple(Field(str(label), _type_of(kind)) for label, kind in members))
    if name == "array" and members is not None and len(members) == 1:
        return ArrayOf(_type_of(members[0][1]))
    if name == "map" and members is not None and len(members) == 2:
        return MapOf(_type_of(members[0][1]), _type_of(members[1][1]))
    if members is not None:
        raise ValueError(f"{name}<…> is no type, or has another number of members")
    if name.startswith("string collate "):
        return named_type(f"string collate {name.split()[-1].upper()}")
    word, numbers = _WORDS.get(name, name), text.numbers
    if word == "decimal" and len(numbers) < 2:
        numbers = (*(numbers or (10,)), 0)
    return named_type(f"{word}({','.join(map(str, numbers))})" if numbers else word)


def _wrong(found: str) -> InvalidInputError:
    return InvalidInputError(ErrorCode.INVALID_OPTION, f"option {found}")
