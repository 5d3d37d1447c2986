"""The file that describes a job: `statestore describe` prints it in TOML, and a restore is checked against it.

    [operators.counts]
    id = "b5c8d46f3e7b141acf271f12622e752b"
    uid = "counts"
    parallelism = 2
    max_parallelism = 128
    key = "string"

    [operators.counts.states.total]
    kind = "value"
    value = "long"

A file in JSON has the same tables. ``uid`` or ``id`` is needed; the rest may be left out where it is not known, and
``max_parallelism`` where the job does not set it.

A basic type is its name, ``"string"``. Another is a table whose ``type`` names it, with its parts:
``{type = "list", element = "long"}``, ``{type = "pojo", class_name = "shop.Person", fields = {age = "int"}}``. Parts
that are left out have the value that is most common. A file holds every type without loss.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, shown
from statestore.formats.flink.job_description import (
    OPERATOR_FORMS,
    Backend,
    DescribedOperator,
    DescribedState,
    JobDescription,
)
from statestore.formats.flink.serializers.backend_header import StateKind
from statestore.formats.flink.serializers.flink_types import (
    BASIC_WIDTHS,
    MOST_DEPTH,
    VOID,
    ArrayOf,
    AvroOf,
    Basic,
    EitherOf,
    EnumOf,
    FlinkType,
    KryoOf,
    ListOf,
    Logical,
    MapOf,
    MaskedListOf,
    Nullable,
    Opaque,
    OptionOf,
    PojoOf,
    PrimitiveArray,
    RawOf,
    RowDataOf,
    RowOf,
    SortedLong,
    StringArray,
    TableValue,
    TimerOf,
    TraversableOf,
    TryOf,
    TtlOf,
    TupleOf,
    UnionOf,
)
from statestore.formats.flink.snapshot.operator_ids import is_operator_id, operator_id
from statestore.formats.values.expansion import parse_json, parse_toml

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_OPERATOR_KEYS = ("id", "uid", "parallelism", "max_parallelism", "backend", "key", "states")
_STATE_KEYS = ("kind", "namespace", "map_key", "value")
_KEYED_FORMS: tuple[str, ...] = tuple(each for each in get_args(StateKind) if each != "unknown")


def describe_job(job: JobDescription) -> str:
    """The text of a file that describes a job."""
    parts = [
        f"# The operators of the job of {_comment(job.name)} and their states. Correct what the new job has "
        "otherwise, and\n# give this file: statestore inspect SAVEPOINT --compatible-with FILE"
    ]
    for each in job.operators:
        parts.append("\n".join(_operator_lines(each)))
        parts += ["\n".join(_state_lines(each, state)) for state in each.states]
    return "\n\n".join(parts) + "\n"


def _operator_lines(operator: DescribedOperator) -> Iterator[str]:
    yield f"[operators.{_key(operator.label)}]"
    if operator.error is not None:
        yield f"# some of its state cannot be read: {_comment(operator.error.message)}"
    if operator.has_uid is False:
        yield "# without uid: Flink makes the id from the job's graph, and another graph has another id"
    yield f"id = {_text(operator.id)}"
    if operator.has_uid and operator_id(operator.label) == operator.id:
        yield f"uid = {_text(operator.label)}"
    if operator.parallelism is not None:
        yield f"parallelism = {operator.parallelism}"
    if operator.max_parallelism is not None:
        if operator.may_be_default:
            yield "# Flink's own choice for this parallelism; if the job sets it, say so:"
            yield f"# max_parallelism = {operator.max_parallelism}"
        else:
            yield f"max_parallelism = {operator.max_parallelism}"
    if operator.backend is not None:
        yield f"backend = {_text(operator.backend)}"
    if operator.key is not None:
        yield f"key = {_value(as_tree(operator.key))}"


def _state_lines(operator: DescribedOperator, state: DescribedState) -> Iterator[str]:
    yield f"[operators.{_key(operator.label)}.states.{_key(state.name)}]"
    yield f"kind = {_text(state.form)}"
    if state.namespace is not None and state.namespace != VOID:
        yield f"namespace = {_value(as_tree(state.namespace))}"
    if state.map_key is not None:
        yield f"map_key = {_value(as_tree(state.map_key))}"
    yield f"value = {_value(as_tree(state.value))}"


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _text(name)


def _text(text: str) -> str:
    """A text in TOML. Half a surrogate pair, which TOML cannot hold, becomes "?"."""
    return json.dumps(text.encode("utf-8", "replace").decode(), ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(name)} = {_value(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, str):
        return _text(value)
    return json.dumps(value)


def _comment(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def read_description(text: str, name: str) -> JobDescription:
    """The job that a text in TOML or JSON describes; ``name`` is the file's, for errors.

    Raises InvalidInputError INVALID_OPTION, and FLINK_TYPE for a type.
    """
    tables = _parsed(text, name)
    operators = tables.get("operators")
    if not isinstance(operators, dict) or len(tables) > 1:
        raise _wrong(name, f"found {', '.join(map(repr, tables)) or 'nothing'}, expected tables [operators.NAME] alone")
    found = tuple(_operator(label, table, f"{name}, operator {label}") for label, table in operators.items())
    ids = [each.id for each in found]
    twice = next((each for each in found if ids.count(each.id) > 1), None)
    if twice is not None:
        raise _wrong(name, f"found two operators with id {twice.id}, expected one")
    return JobDescription(name, found, is_whole=True)


def _parsed(text: str, name: str) -> Mapping[str, Any]:
    try:
        tables = parse_json(text) if text.lstrip().startswith("{") else parse_toml(text)
    except ValueError as error:
        raise _wrong(name, f"found {error}, expected TOML or JSON") from None
    if not isinstance(tables, dict):
        raise _wrong(name, f"found {shown(tables)}, expected tables")
    return tables


def _operator(label: str, table: Any, where: str) -> DescribedOperator:
    _check_keys(table, _OPERATOR_KEYS, where)
    uid, number = _optional(table, "uid", str, where), _optional(table, "id", str, where)
    if uid is None and number is None:
        raise _wrong(where, "found neither uid nor id, expected one of them")
    if number is not None and not is_operator_id(number):
        raise _wrong(where, f"found id {shown(number)}, expected 32 hexadecimal digits")
    if uid is not None and number is not None and number.lower() != operator_id(uid):
        raise _wrong(
            where, f"found id {number}, expected {operator_id(uid)}, which uid {uid!r} has; leave out one of both"
        )
    parallelism = _positive(table, "parallelism", where)
    most = _positive(table, "max_parallelism", where)
    backend = _optional(table, "backend", str, where)
    if backend is not None and backend not in get_args(Backend):
        raise _wrong(where, f"found backend {shown(backend)}, expected {' or '.join(get_args(Backend))}")
    states = table.get("states", {})
    if not isinstance(states, dict):
        raise _wrong(where, f"found states {shown(states)}, expected tables")
    return DescribedOperator(
        (number or operator_id(uid or "")).lower(),
        label,
        has_uid=None if uid is None else True,
        parallelism=parallelism,
        max_parallelism=most,
        backend=backend,
        key=_type(table, "key", where),
        states=tuple(_state(name, each, f"{where}, state {name}") for name, each in states.items()),
    )


def _state(name: str, table: Any, where: str) -> DescribedState:
    _check_keys(table, _STATE_KEYS, where)
    kind = _optional(table, "kind", str, where)
    if kind not in (*_KEYED_FORMS, "unknown", *OPERATOR_FORMS):
        raise _wrong(where, f"found kind {shown(kind)}, expected {', '.join((*_KEYED_FORMS, *OPERATOR_FORMS))}")
    value, map_key = _type(table, "value", where), _type(table, "map_key", where)
    if value is None:
        raise _wrong(where, "found no value, expected its type")
    if (map_key is not None) != (kind == "broadcast"):
        raise _wrong(where, "found a map_key or none, expected one for broadcast state alone")
    namespace = _type(table, "namespace", where)
    if kind in (*OPERATOR_FORMS, "timers"):
        if namespace is not None:
            raise _wrong(where, f"found a namespace, expected none for kind {kind}")
    else:
        namespace = namespace or VOID
    return DescribedState(name, kind, value, namespace, map_key)


def _check_keys(table: Any, known: tuple[str, ...], where: str) -> None:
    if not isinstance(table, dict):
        raise _wrong(where, f"found {shown(table)}, expected a table")
    strange = [each for each in table if each not in known]
    if strange:
        raise _wrong(where, f"found {', '.join(map(repr, strange))}, expected some of {', '.join(known)}")


def _optional(table: Mapping[str, Any], key: str, kind: type[Any], where: str) -> Any:
    value = table.get(key)
    if value is not None and type(value) is not kind:
        raise _wrong(where, f"found {key} {shown(value)}, expected a {'text' if kind is str else 'number'}")
    return value


def _positive(table: Mapping[str, Any], key: str, where: str) -> int | None:
    value: int | None = _optional(table, key, int, where)
    if value is not None and value < 1:
        raise _wrong(where, f"found {key} {value}, expected a number from 1 on")
    return value


def _type(table: Mapping[str, Any], key: str, where: str) -> FlinkType | None:
    return from_tree(table[key], f"{where}, {key}") if key in table else None


def _wrong(where: str, problem: str) -> InvalidInputError:
    return InvalidInputError(
        ErrorCode.INVALID_OPTION, f"{where}: {problem}; statestore describe prints such a file of a snapshot"
    )


# Types as texts, lists and tables


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
    "option": OptionOf,
    "try": TryOf,
    "collection": TraversableOf,
    "union": UnionOf,
    "masked list": MaskedListOf,
    "time to live": TtlOf,
    "timer": TimerOf,
    "sql": Logical,
    "row data": RowDataOf,
    "table value": TableValue,
    "raw value": RawOf,
    "avro": AvroOf,
    "opaque": Opaque,
}
_NAMES = {kind: name for name, kind in _CLASSES.items()}
_NO_PART = {"declared", "is_declared"}


def as_tree(kind: FlinkType) -> Tree:
    """The tree of a type that a serializer snapshot gives."""
    if isinstance(kind, Basic) and kind == Basic(kind.name):
        return kind.name
    if isinstance(kind, KryoOf):
        kind = Opaque(kind.serializer, kind.class_name)
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
    if depth > MOST_DEPTH:
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
    if wanted in ("tuple[str, ...]", "tuple[int, ...]"):
        return tuple(_made(wanted[6:9], each, where, depth) for each in value)
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
