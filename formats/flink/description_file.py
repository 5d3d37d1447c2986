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
``max_parallelism`` where the job does not set it. Types are those of `type_trees`.
"""

from __future__ import annotations

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
from statestore.formats.flink.serializers.flink_types import Basic, FlinkType
from statestore.formats.flink.serializers.type_trees import as_tree, from_tree
from statestore.formats.flink.snapshot.operator_ids import is_operator_id, operator_id
from statestore.formats.values.expansion import parse_json, parse_toml

_VOID = Basic("void")
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
    if state.namespace is not None and state.namespace != _VOID:
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
        namespace = namespace or _VOID
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
