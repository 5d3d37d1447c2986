"""The plan of an import: the operator that is chosen, the key columns of the new store, and each state as it is
registered there.

Everything that cannot be imported is refused here by name, before anything is written.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import pyarrow as pa

from statestore.catalog.keyed.rows.state_rows import prefix_encoder, state_rows
from statestore.catalog.keyed.rows.state_spec import (
    DEFAULT,
    FORBIDDEN_IN_NAMES,
    TAKEN_COLUMNS,
    StateDescriptor,
    StateKind,
    check_columns,
)
from statestore.catalog.log.store_spec import MAX_NAME_BYTES
from statestore.formats.engine import Source, StateAt
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, NotFoundError, StateStoreError, UnsupportedError, shown
from statestore.formats.jobs import (
    KEY,
    LAST_ACCESS,
    MAP_KEY,
    MAP_VALUE,
    NAMESPACE,
    VALUE,
    KeyedKind,
    KeyedOperator,
    OperatorState,
)
from statestore.formats.state_table import column_names
from statestore.formats.values.types import RESERVED_COLUMNS, TIME, make_schema

LastAccess = Literal["keep", "drop"]
_KINDS: dict[KeyedKind, StateKind] = {
    "value": "value",
    "list": "list",
    "map": "map",
    "reducing": "reducing",
    "aggregating": "aggregating",
    "event timers": "timer",
    "processing timers": "timer",
}
_WINDOW = ("start", "end")


@dataclass(frozen=True)
class PlannedState:
    """A state of the source, and its description in the store. ``keeps_access``: values are stored with
    ``last_access``."""

    source: OperatorState
    at: StateAt
    spec: StateDescriptor
    keeps_access: bool


@dataclass(frozen=True)
class ImportPlan:
    """``fields`` are those of a struct key that become columns of their own; () where the key is one column."""

    operator: KeyedOperator
    version: int
    key: pa.Schema
    fields: tuple[str, ...]
    states: tuple[PlannedState, ...]


def import_plan(
    source: Source,
    operator: KeyedOperator,
    version: int,
    *,
    key: Sequence[str] | None,
    whole_key: bool,
    last_access: LastAccess | None,
) -> ImportPlan:
    """Return the plan. Raises UnsupportedError UNSUPPORTED_TYPE or UNSUPPORTED_KEY_TYPE, InvalidInputError WRONG_KEY,
    MISSING_OPTION or INVALID_OPTION."""
    if last_access not in (None, "keep", "drop"):
        raise InvalidInputError(ErrorCode.INVALID_OPTION, f"last_access is {shown(last_access)}; expected keep or drop")
    states = [(each, source.at(each.state, version)) for each in operator.states]
    columns, fields = _key_columns(operator, states, key, whole_key)
    _check_lifetimes(operator, states, last_access)
    planned, problems = [], []
    names = _state_names([each.name for each, _ in states])
    for name, (each, at) in zip(names, states, strict=True):
        try:
            planned.append(_planned(columns, name, each, at, last_access == "keep"))
        except StateStoreError as error:
            problems.append(f"{each.name}: {error.message}")
    if problems:
        raise UnsupportedError(
            ErrorCode.UNSUPPORTED_TYPE,
            f"states of operator {operator.name!r} that cannot be imported: {'; '.join(problems)}. Import the others "
            "with states=",
        )
    return ImportPlan(operator, version, columns, fields, tuple(planned))


def _key_columns(
    operator: KeyedOperator, states: Sequence[tuple[OperatorState, StateAt]], names: Sequence[str] | None, whole: bool
) -> tuple[pa.Schema, tuple[str, ...]]:
    kinds = {at.schema.field(KEY).type for _, at in states}
    if len(kinds) > 1:
        raise UnsupportedError(
            ErrorCode.UNSUPPORTED_KEY_TYPE,
            f"states of operator {operator.name!r} have keys of several types, {', '.join(map(str, kinds))}; import "
            "those of one type with states=",
        )
    (kind,) = kinds
    if pa.types.is_struct(kind) and kind.num_fields and not whole:
        fields, kinds_of = tuple(field.name for field in kind), [field.type for field in kind]
    else:
        fields, kinds_of = (), [kind]
    taken = {*RESERVED_COLUMNS, *TAKEN_COLUMNS, *_namespace_columns(states)}
    found = [f"{KEY}_{name}" if name.lower() in taken else name for name in fields or (KEY,)]
    if names is not None:
        names = column_names(names, "key")
        if len(names) != len(found):
            raise InvalidInputError(
                ErrorCode.WRONG_KEY,
                f"key is {shown(names)}; expected {len(found)} names, for {', '.join(fields or (KEY,))}",
            )
        found = list(names)
    columns = make_schema(pa.schema(list(zip(found, map(_in_microseconds, kinds_of), strict=True))), "key")
    prefix_encoder(columns)
    return columns, fields


def _namespace_columns(states: Sequence[tuple[OperatorState, StateAt]]) -> set[str]:
    schemas = [at.schema for _, at in states]
    kinds = [schema.field(NAMESPACE).type for schema in schemas if NAMESPACE in schema.names]
    return {name.lower() for kind in kinds for name in _namespace_fields(kind)}


def _check_lifetimes(
    operator: KeyedOperator, states: Sequence[tuple[OperatorState, StateAt]], last_access: LastAccess | None
) -> None:
    limited = [each.name for each, at in states if LAST_ACCESS in at.schema.names]
    if limited and last_access is None:
        raise InvalidInputError(
            ErrorCode.MISSING_OPTION,
            f"states {', '.join(limited)} of operator {operator.name!r} have a time to live, which keyed stores do not "
            'have; say last_access="keep" to store each value with the time of its last access, as '
            'struct<value,last_access>, or last_access="drop" to import the values alone',
        )


def _planned(key: pa.Schema, name: str, state: OperatorState, at: StateAt, keep: bool) -> PlannedState:
    if state.undivided:
        raise UnsupportedError(
            ErrorCode.UNSUPPORTED_KEY_TYPE,
            "its keys cannot be told from what follows them in stored keys, which only the job's classes decode; give "
            "the type of the key or the namespace",
        )
    columns, kind = at.schema, _KINDS[state.kind]
    keeps_access = keep and LAST_ACCESS in columns.names
    column = MAP_VALUE if kind == "map" else VALUE
    value = columns.field(column).type if column in columns.names else pa.bool_()
    if keeps_access:
        value = pa.struct([(VALUE, value), (LAST_ACCESS, TIME)])
    user_key = _stored(columns.field(MAP_KEY).type, "map_key", key=True) if kind == "map" else None
    namespace = _namespace(columns.field(NAMESPACE).type) if NAMESPACE in columns.names else pa.schema([])
    spec = StateDescriptor(name, kind, _stored(value, VALUE), user_key, namespace)
    check_columns(key, namespace, name)
    state_rows(spec)  # refuses types that cannot be stored
    return PlannedState(state, at, spec, keeps_access)


def _namespace(kind: pa.DataType) -> pa.Schema:
    columns = _namespace_fields(kind).items()
    return make_schema(pa.schema([(name, _in_microseconds(field)) for name, field in columns]), "key")


def _namespace_fields(kind: pa.DataType) -> dict[str, pa.DataType]:
    """The columns of a namespace, by name: of a time window its start and its end."""
    if not pa.types.is_struct(kind):
        return {NAMESPACE: kind}
    window = tuple(field.name for field in kind) == _WINDOW
    return {f"{'window' if window else NAMESPACE}_{field.name}": field.type for field in kind}


def _stored(kind: pa.DataType, name: str, *, key: bool = False) -> pa.DataType:
    """The type that the store has for a type of the source. Raises UnsupportedError UNSUPPORTED_TYPE."""
    return make_schema({name: _in_microseconds(kind)}, "key" if key else "value").field(0).type


def _in_microseconds(kind: pa.DataType) -> pa.DataType:
    """The type with microseconds for nanoseconds; a value that has nanoseconds is refused when it is read."""
    types = pa.types
    if types.is_timestamp(kind) and kind.unit == "ns":
        return pa.timestamp("us", kind.tz)
    if types.is_duration(kind) and kind.unit == "ns":
        return pa.duration("us")
    if types.is_struct(kind):
        return pa.struct([pa.field(field.name, _in_microseconds(field.type)) for field in kind])
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return pa.list_(_in_microseconds(kind.value_type))
    if types.is_map(kind):
        return pa.map_(_in_microseconds(kind.key_type), _in_microseconds(kind.item_type))
    return kind


# The operator of a source that is imported, the version, and the states of it.


def chosen_operator(source: Source, operator: str | None, version: int | None) -> tuple[KeyedOperator, int]:
    """Return the operator with this name or id, by default the only one, and the version whose states are read.

    Raises UnsupportedError UNSUPPORTED_ENGINE, NotFoundError STATE_NOT_FOUND or VERSION_NOT_FOUND, InvalidInputError
    MISSING_OPTION if there are several operators and none is named.
    """
    recorded = source.keyed_operators(version)
    if recorded is None:
        raise UnsupportedError(
            ErrorCode.UNSUPPORTED_ENGINE,
            f"{source.path} is state of an engine without operators that have keyed state; name a savepoint or "
            "checkpoint that has such operators",
        )
    operators = [each for each in recorded if each.states]
    found = _named(operators, operator, source.path)
    if version is None:
        version = max(source.kept(each.state)[-1] for each in found.states)
    for each in found.states:
        source.check_readable(each.state, version)
    return found, version


def with_states(operator: KeyedOperator, names: Collection[str] | None) -> KeyedOperator:
    """Return the operator with only these of its states, by default all. Raises NotFoundError STATE_NOT_FOUND."""
    if names is None:
        return operator
    names = column_names(names, "states")
    if not names:
        raise InvalidInputError(ErrorCode.INVALID_OPTION, f"states is {shown(names)}; expected a list of names")
    known = {name for each in operator.states for name in (each.name, each.state)}
    for name in names:
        if name not in known:
            raise NotFoundError(
                ErrorCode.STATE_NOT_FOUND,
                f"operator {operator.name!r} has no keyed state {name!r}; "
                f"{_hint(name, [each.name for each in operator.states])}",
            )
    kept = tuple(each for each in operator.states if each.name in names or each.state in names)
    return replace(operator, states=kept)


def _named(operators: Sequence[KeyedOperator], asked: str | None, path: str) -> KeyedOperator:
    names = [each.name for each in operators]
    if not operators:
        raise NotFoundError(ErrorCode.STATE_NOT_FOUND, f"{path} has no operator with keyed state; nothing to import")
    if asked is None:
        if len(operators) > 1:
            raise InvalidInputError(
                ErrorCode.MISSING_OPTION,
                f"{path} has several operators with keyed state, and each becomes a store of its own; name one with "
                f"operator=, as {names[0]!r}: there are {', '.join(names)}",
            )
        return operators[0]
    for each in operators:
        if asked == each.name or asked in each.ids:
            return each
    raise NotFoundError(ErrorCode.STATE_NOT_FOUND, f"{path} has no operator {asked!r}; {_hint(asked, names)}")


def _hint(asked: str, names: Sequence[str]) -> str:
    close = difflib.get_close_matches(asked, names, 1)
    return f"did you mean {close[0]!r}?" if close else f"there are {', '.join(names)}"


# Names of imported states: those of the operator, changed only where a keyed store cannot have them.

_NUMBER_BYTES = 20


def _state_names(names: Sequence[str]) -> list[str]:
    """Return a name for each state, no two of which differ by case only.

    Characters that a state's name cannot have become ``_``, and a name that is taken gets a number behind it.
    """
    taken: set[str] = set()
    found = []
    for name in names:
        free = base = _allowed(name)
        number = 1
        while free.lower() in taken:
            number += 1
            free = f"{base}_{number}"
        taken.add(free.lower())
        found.append(free)
    return found


def _allowed(name: str) -> str:
    allowed = FORBIDDEN_IN_NAMES.sub("_", name).encode()[: MAX_NAME_BYTES - _NUMBER_BYTES].decode(errors="ignore")
    return f"{allowed}_" if allowed == DEFAULT else allowed if allowed.strip() else "state"
