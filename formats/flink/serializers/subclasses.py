"""Subclasses of a job's POJO that a user declares, because a file does not say how their values are written.

Flink notes the serializer of a subclass when it first writes or copies a value of it. The heap backend, operator state
and changelogs write a snapshot's header before its values, so the header may not have it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.flink.serializers.declared import as_flink_writes
from statestore.formats.flink.serializers.flink_types import (
    FlinkType,
    ListOf,
    MapOf,
    Nullable,
    PojoOf,
    SubclassBytes,
    TupleOf,
    replaced,
)
from statestore.formats.flink.serializers.opaque_parts import opaque_part

_DECLARED = re.compile(r"(binary|struct\s*<.*>)\s+extends\s+(\S+)", re.IGNORECASE | re.DOTALL)
_BYTES = "binary"


@dataclass(frozen=True)
class Subclass:
    """A class whose values a state of class ``base`` has.

    ``fields`` are those that ``base`` does not have. None: the values are shown as bytes, where a frame ends them.
    """

    name: str
    base: str
    fields: tuple[tuple[str, FlinkType], ...] | None


def is_subclass(text: str) -> bool:
    """Return whether a declaration is that of a subclass."""
    return _DECLARED.fullmatch(text.strip()) is not None


def subclass_of(name: str, text: str) -> Subclass:
    """The subclass that a user declares by a text for which `is_subclass`. Raises InvalidInputError FLINK_TYPE."""
    found = _DECLARED.fullmatch(text.strip())
    assert found is not None
    if found[1].lower() == _BYTES:
        return Subclass(name, found[2], None)
    written = as_flink_writes(found[1])
    assert isinstance(written, TupleOf)
    fields = zip(written.names, map(_as_field, written.fields), strict=True)
    return Subclass(name, found[2], tuple(fields))


def _as_field(kind: FlinkType) -> FlinkType:
    """The type of a field of a POJO, which Flink finds in its class: lists and maps may be null, and so may their
    elements and keys (``NullableListTypeInfo``, ``NullableMapTypeInfo``).
    """
    if isinstance(kind, ListOf):
        return Nullable(ListOf(_nullable(_as_field(kind.element))))
    if isinstance(kind, MapOf):
        return Nullable(MapOf(_nullable(_as_field(kind.key)), _as_field(kind.value)))
    return kind


def _nullable(kind: FlinkType) -> FlinkType:
    return kind if isinstance(kind, Nullable) else Nullable(kind)


def remedy_for(name: str, base: str) -> str:
    """The option to give for a subclass whose values cannot be read."""
    return (
        f"give --type 'class:{name}=struct<...> extends {base}' with the fields that it has beyond those of {base}, or "
        "binary in place of struct<...> to see its values as bytes where nothing follows them"
    )


def with_subclasses(kind: PojoOf, declared: Sequence[Subclass]) -> PojoOf:
    """The POJO with the subclasses of it that are declared with fields, unless the file describes them.

    Raises InvalidInputError FLINK_TYPE for a field that the POJO has, too.
    """
    known = {name for name, _ in (*kind.registered, *kind.unregistered)}
    added = [
        (each.name, _pojo(each, each.fields, kind))
        for each in declared
        if each.fields is not None and each.base == kind.class_name and each.name not in known
    ]
    if not added:
        return kind
    return replace(kind, unregistered=tuple(sorted((*kind.unregistered, *added), key=lambda each: each[0])))


def with_bytes(kind: FlinkType, declared: Sequence[Subclass]) -> FlinkType:
    """The POJO whose subclasses that are declared as bytes are shown so; only where a frame ends its values.

    A subclass that can be decoded is.
    """
    wanted = {each.name for each in declared if isinstance(kind, PojoOf) and each.base == kind.class_name}
    wanted -= {each.name for each in declared if each.fields is not None}
    if not isinstance(kind, PojoOf) or not wanted:
        return kind

    def shown(found: tuple[tuple[str, FlinkType], ...]) -> tuple[tuple[str, FlinkType], ...]:
        return tuple(
            (name, SubclassBytes("a serializer", name) if name in wanted and opaque_part(each) else each)
            for name, each in found
        )

    known = {name for name, _ in (*kind.registered, *kind.unregistered)}
    added = [(name, SubclassBytes("a serializer", name)) for name in wanted - known]
    unregistered = sorted((*shown(kind.unregistered), *added), key=lambda each: each[0])
    return replace(kind, registered=shown(kind.registered), unregistered=tuple(unregistered))


def _pojo(declared: Subclass, own: tuple[tuple[str, FlinkType], ...], kind: PojoOf) -> PojoOf:
    """The type of a subclass: Flink writes the fields of a POJO in the order of their names."""
    inherited = dict(kind.fields)
    twice = next((name for name, _ in own if name in inherited), None)
    if twice is not None:
        raise InvalidInputError(
            ErrorCode.FLINK_TYPE,
            f"option type has field {twice} for class {declared.name}, which class {kind.class_name} has, too; "
            "expected the other fields alone",
        )
    fields = sorted((*kind.fields, *own), key=lambda each: each[0].encode("utf-16-be", "surrogatepass"))
    return PojoOf(declared.name, tuple(fields), is_declared=True)


def has_declared(found: object) -> bool:
    """Whether a type, or one in a dataclass or tuple that holds types, has a subclass that a user declares."""
    met = False

    def note(kind: FlinkType) -> FlinkType:
        nonlocal met
        met = met or (isinstance(kind, PojoOf) and kind.is_declared)
        return kind

    replaced(found, note)
    return met
