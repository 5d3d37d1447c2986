"""What is told of a named state when it is registered, and whether it may be told differently later."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import pyarrow as pa

from statestore.formats.errors import InvalidInputError
from statestore.formats.types import schema_from_json, schema_to_json, type_name

Kind = Literal["value", "list", "map", "reducing", "aggregating"]
KINDS: tuple[Kind, ...] = get_args(Kind)
DEFAULT = "default"
"""RocksDB's own column family, which no state may be called."""
_WIDER = (pa.int8(), pa.int16(), pa.int32(), pa.int64())


@dataclass(frozen=True)
class StateSpec:
    """``value`` is the type of a value, an element, a map's value or an accumulator; ``user_key`` that of a map's keys.
    ``namespace`` has no column for a state without one (Flink's void namespace)."""

    name: str
    kind: Kind
    value: pa.DataType
    user_key: pa.DataType | None
    namespace: pa.Schema

    def to_json(self) -> dict[str, Any]:
        keys = [] if self.user_key is None else [pa.field("user_key", self.user_key)]
        schema = schema_to_json(pa.schema([*keys, pa.field("value", self.value)]))
        return {"name": self.name, "kind": self.kind, "columns": schema, "namespace": schema_to_json(self.namespace)}


def spec_from_json(found: dict[str, Any]) -> StateSpec:
    columns = schema_from_json(found["columns"])
    keys = [field.type for field in columns][:-1]
    namespace = pa.schema([field.with_nullable(False) for field in schema_from_json(found["namespace"])])
    return StateSpec(found["name"], found["kind"], columns.field(-1).type, keys[0] if keys else None, namespace)


def migrated(old: StateSpec, new: StateSpec) -> StateSpec | None:
    """None where ``new`` is as the state was; ``new`` where rows have to be written again: fields were added at the end
    of a struct, or integers and floats widened.

    Raises InvalidInputError INCOMPATIBLE_STATE, with both sides.
    """
    if old.kind != new.kind:
        raise _incompatible(old, new, f"it is a {old.kind} state, not a {new.kind} state")
    if (old.user_key, old.namespace) != (new.user_key, new.namespace):
        raise _incompatible(old, new, "the keys of a map and namespaces are parts of stored keys, and can not change")
    if old.value == new.value:
        return None
    if not _is_wider(old.value, new.value):
        raise _incompatible(old, new, "fields may be added at the end of a struct, and numbers widened")
    return replace(new)


def _is_wider(old: pa.DataType, new: pa.DataType) -> bool:
    if old == new or (pa.types.is_float32(old) and pa.types.is_float64(new)):
        return True
    if old in _WIDER and new in _WIDER:
        return _WIDER.index(old) <= _WIDER.index(new)
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        if old.num_fields > new.num_fields:
            return False
        return all(
            a.name == b.name and _is_wider(a.type, b.type)
            for a, b in zip(old, itertools.islice(new, old.num_fields), strict=True)
        )
    if pa.types.is_list(old) and pa.types.is_list(new):
        return _is_wider(old.value_type, new.value_type)
    if pa.types.is_map(old) and pa.types.is_map(new):
        return bool(old.key_type == new.key_type) and _is_wider(old.item_type, new.item_type)
    return False


def _incompatible(old: StateSpec, new: StateSpec, why: str) -> InvalidInputError:
    return InvalidInputError(
        "INCOMPATIBLE_STATE", f"state {old.name!r}: {why}; stored is {told(old)}, asked for is {told(new)}"
    )


def told(spec: StateSpec) -> str:
    """A state for people: ``map<string,bigint> by window_start timestamp``."""
    kind = type_name(spec.value)
    if spec.user_key is not None:
        kind = f"{type_name(spec.user_key)} -> {kind}"
    by = ", ".join(f"{field.name} {type_name(field.type)}" for field in spec.namespace)
    return f"{spec.kind} of {kind}" + (f" by {by}" if by else "")


def check_name(name: Any) -> str:
    """InvalidInputError INVALID_NAME for what can not be the name of a state."""
    if not isinstance(name, str) or not name.strip() or name == DEFAULT or len(name.encode()) > 200:
        raise InvalidInputError(
            "INVALID_NAME",
            f"state name {name!r}; expected a text of 1 to 200 bytes other than {DEFAULT!r}, which RocksDB uses itself",
        )
    return name
