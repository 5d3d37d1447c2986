"""A registered state's kind and types, and the later registrations that are compatible with them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import pyarrow as pa

from statestore.catalog.log.log_checks import check_choice, check_text
from statestore.catalog.log.store_spec import MAX_NAME_BYTES
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.values.types import schema_from_json, schema_to_json, type_name
from statestore.formats.values.wider_types import widest_type

StateKind = Literal["value", "list", "map", "reducing", "aggregating", "timer"]
KINDS: tuple[StateKind, ...] = get_args(StateKind)
DEFAULT = "default"
"""RocksDB's own column family; no state may have this name."""
TAKEN_COLUMNS = ("value", "user_key", "position", "_group", "_one", "_due")
"""Columns that tables of states have beside the key and the namespace."""
FORBIDDEN_IN_NAMES = re.compile(r"[/\\\x00-\x1f$.\ud800-\udfff]")
_INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_EXACT_AS_DOUBLE = (pa.int8(), pa.int16(), pa.int32(), pa.float32())


@dataclass(frozen=True)
class StateDescriptor:
    """The name, kind and types of a state.

    ``value`` is the type of a value, an element, a map's value or an accumulator; ``user_key`` is the type of a map's
    keys. ``namespace`` has no column for a state without namespaces (Flink's void namespace).
    """

    name: str
    kind: StateKind
    value: pa.DataType
    user_key: pa.DataType | None
    namespace: pa.Schema

    def to_json(self) -> dict[str, Any]:
        keys = [] if self.user_key is None else [pa.field("user_key", self.user_key)]
        schema = schema_to_json(pa.schema([*keys, pa.field("value", self.value)]))
        return {"name": self.name, "kind": self.kind, "columns": schema, "namespace": schema_to_json(self.namespace)}


def spec_from_json(fields: dict[str, Any]) -> StateDescriptor:
    """Return the state in the JSON of `StateDescriptor.to_json`. Raises ValueError for other JSON."""
    check_text(fields["name"], "name of a state")
    check_choice(fields["kind"], KINDS, "kind of a state")
    *keys, value = schema_from_json(fields["columns"])
    if len(keys) != (fields["kind"] == "map"):
        raise ValueError(f"a {fields['kind']} state with {len(keys)} columns of keys")
    namespace = pa.schema([field.with_nullable(False) for field in schema_from_json(fields["namespace"])])
    return StateDescriptor(
        check_name(fields["name"]), fields["kind"], value.type, keys[0].type if keys else None, namespace
    )


def migrated(old: StateDescriptor, new: StateDescriptor) -> StateDescriptor | None:
    """Return ``new`` if rows have to be rewritten, because a struct has more fields or numbers are wider; None if not.

    Raises InvalidInputError INCOMPATIBLE_STATE, which names both types.
    """
    if old.kind != new.kind:
        raise _incompatible(old, new, f"it is a {old.kind} state and cannot become a {new.kind} state")
    if (old.user_key, old.namespace) != (new.user_key, new.namespace):
        raise _incompatible(old, new, "the keys of a map and namespaces are parts of stored keys, and cannot change")
    if old.value == new.value:
        return None
    if not _is_wider(old.value, new.value):
        raise _incompatible(old, new, "fields may be added to a struct, and numbers widened; nothing else may change")
    return new


def widest(specs: Iterable[StateDescriptor]) -> dict[str, StateDescriptor]:
    """Return one state for each name, in the type to which all states of that name can be migrated.

    Raises InvalidInputError INCOMPATIBLE_STATE.
    """
    by_name: dict[str, StateDescriptor] = {}
    for spec in specs:
        widest_so_far = by_name.setdefault(spec.name, spec)
        if widest_so_far.value != spec.value and _is_wider(spec.value, widest_so_far.value):
            migrated(spec, widest_so_far)
        else:
            by_name[spec.name] = migrated(widest_so_far, spec) or widest_so_far
    return by_name


def merged(first: StateDescriptor, second: StateDescriptor) -> StateDescriptor:
    """Return the state in a type in which the rows of both can be read, regardless of which one is older.

    Raises InvalidInputError INCOMPATIBLE_STATE.
    """
    kind = widest_type(first.value, second.value)
    if kind is None:
        return migrated(first, second) or first  # raises an error that names the difference
    wide = replace(first, value=kind)
    migrated(replace(second, value=kind), wide)
    return wide


def _is_wider(old: pa.DataType, new: pa.DataType) -> bool:
    """Return whether every value of ``old`` is a value of ``new``."""
    types = pa.types
    if old == new or (old in _EXACT_AS_DOUBLE and types.is_float64(new)):
        return True
    if old in _INTEGERS and new in _INTEGERS:
        return _INTEGERS.index(old) < _INTEGERS.index(new)
    if types.is_decimal(old) and types.is_decimal(new):
        return bool(old.scale <= new.scale and old.precision - old.scale <= new.precision - new.scale)
    if types.is_struct(old) and types.is_struct(new):
        fields = {field.name: field.type for field in new}
        return all(field.name in fields and _is_wider(field.type, fields[field.name]) for field in old)
    if types.is_list(old) and types.is_list(new):
        return _is_wider(old.value_type, new.value_type)
    if types.is_map(old) and types.is_map(new):
        return bool(old.key_type == new.key_type) and _is_wider(old.item_type, new.item_type)
    return False


def _incompatible(old: StateDescriptor, new: StateDescriptor, why: str) -> InvalidInputError:
    return InvalidInputError(
        ErrorCode.INCOMPATIBLE_STATE,
        f"state {old.name!r}: {why}; stored is {description(old)}, asked for is {description(new)}",
    )


def description(spec: StateDescriptor) -> str:
    """Return a readable description of a state: ``map of string -> bigint by window_start timestamp``."""
    kind = type_name(spec.value)
    if spec.user_key is not None:
        kind = f"{type_name(spec.user_key)} -> {kind}"
    by = ", ".join(f"{field.name} {type_name(field.type)}" for field in spec.namespace)
    return f"{spec.kind} of {kind}" + (f" by {by}" if by else "")


def check_name(name: Any) -> str:
    """Return the name. Raises InvalidInputError INVALID_NAME if it cannot be the name of a state."""
    if (
        not isinstance(name, str)
        or not name.strip()
        or name == DEFAULT
        or FORBIDDEN_IN_NAMES.search(name)
        or len(name.encode()) > MAX_NAME_BYTES
    ):
        raise InvalidInputError(
            ErrorCode.INVALID_NAME,
            f"state name {name!r}; expected a text of 1 to {MAX_NAME_BYTES} bytes without dot, "
            f"slash, dollar or control character, other than {DEFAULT!r}, which RocksDB reserves",
        )
    return name


def check_columns(key: pa.Schema, namespace: pa.Schema, state: str) -> None:
    """Raise InvalidInputError WRONG_SCHEMA if a namespace has the name of another column of the state's table."""
    taken = {*(name.lower() for name in key.names), *TAKEN_COLUMNS}
    shared = [name for name in namespace.names if name.lower() in taken]
    if shared:
        raise InvalidInputError(
            ErrorCode.WRONG_SCHEMA,
            f"state {state!r}: its table already has the columns {shared}; rename these namespace columns",
        )
