"""Parts of a type that cannot be decoded: where they stand, and what of a value can be shown in spite of them."""

from __future__ import annotations

from dataclasses import replace

from statestore.formats.flink.serializers.flink_types import (
    FlinkType,
    KryoOf,
    Nullable,
    Opaque,
    OptionOf,
    PojoOf,
    RestOf,
    RowOf,
    TryOf,
    TtlOf,
    TupleOf,
    children,
)

BEHIND = "_and_behind"
"""The end of the name of a field with the bytes of all fields behind it, see `RestOf`."""


def opaque_part(kind: FlinkType) -> Opaque | None:
    """The first part of a type that cannot be decoded, for which its whole value is opaque; None: there is none.

    A subclass of a POJO that cannot be decoded does not count: other values of the POJO can be. Nor do the last field
    and what a Try has thrown, if nothing follows them.
    """
    if isinstance(kind, (TryOf, OptionOf, Nullable, TtlOf)):  # the frame of the value ends what a Try has thrown
        return opaque_part(kind.value)
    inner = children(kind) if isinstance(kind, (TupleOf, RowOf, PojoOf)) else ()
    if len(inner) > 1:  # the frame also ends the last field
        found = next((part for child in inner[:-1] if (part := opaque_inside(child)) is not None), None)
        return found or (None if isinstance(inner[-1], Opaque) else opaque_part(inner[-1]))
    return opaque_inside(kind)


def cut_where_opaque(kind: FlinkType) -> FlinkType:
    """The POJO or tuple whose fields from the first one on that cannot be decoded are one field of `RestOf` bytes.

    It is the same type where that is not needed, where no field is before it, and where subclasses of the POJO have
    other fields behind it.
    """
    if not isinstance(kind, (TupleOf, PojoOf)) or (isinstance(kind, PojoOf) and (kind.registered or kind.unregistered)):
        return kind
    kinds = children(kind)
    names = [name for name, _ in kind.fields] if isinstance(kind, PojoOf) else list(kind.names)
    names = names or [f"f{number}" for number in range(len(kinds))]
    number = next((number for number, each in enumerate(kinds) if opaque_inside(each) is not None), None)
    part = None if number is None else opaque_inside(kinds[number])
    if number is None or part is None:
        return kind
    if number + 1 == len(kinds):
        last = cut_where_opaque(kinds[number])
    elif number > 0:
        last = RestOf(part.serializer, part.class_name, remedy=part.remedy)
        names[number] += BEHIND
    else:
        return kind
    if isinstance(kind, PojoOf):
        return replace(kind, fields=(*kind.fields[:number], (names[number], last)))
    return replace(kind, fields=(*kinds[:number], last), names=(*names[: number + 1],))


def opaque_inside(kind: FlinkType) -> Opaque | None:
    """The first part of a type that cannot be decoded where other bytes may follow; None: there is none."""
    if isinstance(kind, KryoOf):
        return None
    if isinstance(kind, Opaque):
        return kind
    return next((found for child in children(kind) if (found := opaque_inside(child)) is not None), None)
