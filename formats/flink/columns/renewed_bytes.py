"""Bytes of a value that takes the place of a stored one, where columns show less than the bytes hold.

A subclass of a POJO, the kind of a Row and the classes of objects of Kryo stay as the stored value has them. Parts that
are the same keep their bytes, whatever they are. The other parts are written only where what is stored is what would be
written for it (`statestore.formats.flink.columns.value_bytes`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from statestore.formats.bytes.byte_columns import cells_of
from statestore.formats.flink.columns.decoding import decode_cells, decode_records
from statestore.formats.flink.columns.kryo_renewed import kryo_renewed
from statestore.formats.flink.columns.value_bytes import plain_values, value_bytes
from statestore.formats.flink.columns.written_rows import NoBytesError
from statestore.formats.flink.layouts.shapes import Branches
from statestore.formats.flink.layouts.type_layouts import arrow_type, has_column, layout
from statestore.formats.flink.serializers.flink_types import (
    VOID,
    FlinkType,
    KryoOf,
    ListOf,
    MapOf,
    Nullable,
    PojoOf,
    RestOf,
    RowOf,
    SpanOf,
    TtlOf,
    TupleOf,
    children,
)
from statestore.formats.flink.serializers.type_names import shown
from statestore.formats.values.without_pandas import arrow_bytes

_ORIGIN = "a stored value"
_NULL, _PLAIN, _UNREGISTERED, _REGISTERED = 1, 2, 4, 8  # flags of a POJO
_COUNT, _ACCESS = 4, 8


def hides(kind: FlinkType) -> bool:
    """Return whether values of a type may have bytes that their columns do not tell."""
    own = isinstance(kind, KryoOf) or (isinstance(kind, PojoOf) and bool(kind.registered or kind.unregistered))
    return own or (isinstance(kind, RowOf) and kind.kind_bits) or any(map(hides, children(kind)))


def same(one: Any, other: Any) -> bool:
    """Return whether two plain values are the same, in which zeros differ by their sign and a NaN is one."""
    return repr(one) == repr(other)


def decoded(kind: FlinkType, octets: bytes) -> Any:
    """The plain value in these bytes; None for a type without a column. Raises as `decode_cells`."""
    (column,) = decode_cells([kind], cells_of(arrow_bytes([octets])), [True], _ORIGIN)
    return None if column is None else plain_values(column)[0]


def renewed(kind: FlinkType, old: bytes, value: Any) -> bytes:
    """The bytes of a value that takes the place of one with the bytes ``old``.

    Raises NoBytesError for values that cannot be written so.
    """
    before = decoded(kind, old)
    if same(before, value):
        return old
    if hides(kind) and value is None:
        found = _absent(kind)
    elif hides(kind) and before is not None:
        found = _by_parts(kind, old, before, value)
    else:
        if value_bytes(kind, before) != old:
            raise NoBytesError(f"what is stored of {shown(kind)} has bytes that its columns do not tell")
        found = value_bytes(kind, value)
    if not same(decoded(kind, found), value):
        raise NoBytesError(f"{value!r:.80} is no value of {shown(kind)} in the class of the one that is stored")
    return found


def _absent(kind: FlinkType) -> bytes:
    """The bytes of a null."""
    if isinstance(kind, PojoOf):
        return bytes([_NULL])
    return b"\0" if isinstance(kind, KryoOf) else value_bytes(kind, None)


def _by_parts(kind: FlinkType, old: bytes, before: Any, value: Any) -> bytes:
    if isinstance(kind, KryoOf):
        return kryo_renewed(kind, old, before, value)
    if isinstance(kind, PojoOf):
        return _pojo(kind, old, value)
    if isinstance(kind, TupleOf):
        return _members(kind, kind.fields, old, value)
    if isinstance(kind, RowOf):
        return _row(kind, old, before, value)
    if isinstance(kind, TtlOf):
        accessed = value_bytes(TtlOf(VOID), {"last_access": value["last_access"]})[:_ACCESS]
        return accessed + renewed(kind.value, old[_ACCESS:], value["value"])
    if isinstance(kind, Nullable):
        return old[:1] + renewed(kind.value, old[1:], value)
    if isinstance(kind, ListOf):
        return _list(kind, old, before, value)
    if isinstance(kind, MapOf):
        return _map(kind, old, before, value)
    raise NoBytesError(f"values of {shown(kind)} cannot be changed")


def _spans(kinds: Sequence[FlinkType], octets: bytes) -> list[bytes]:
    """The bytes of each part of a value."""
    data = np.frombuffer(octets, np.uint8)
    found = decode_records([SpanOf(each) for each in kinds], data, 0, len(data), 1, [True] * len(kinds), _ORIGIN, True)
    if found.at != len(octets):
        raise NoBytesError(f"{len(octets) - found.at} bytes follow a value")
    return [b"" if column is None else column[0].as_py() for column in found.columns]


def _pojo(kind: PojoOf, old: bytes, value: Mapping[str, Any]) -> bytes:
    """A value of the class that the stored one has, by its flags."""
    shape, flag = layout(kind), old[0]
    assert isinstance(shape, Branches) and shape.column is not None
    inner: FlinkType = kind
    size = case = 1
    if flag == _REGISTERED:
        size, case = 2, 2 + len(kind.unregistered) + old[1]
        inner = kind.registered[old[1]][1]
    elif flag == _UNREGISTERED:
        size = 3 + int.from_bytes(old[1:3], "big")
        names = [name for name, _ in kind.unregistered]
        case = 2 + names.index(old[3:size].decode("utf-8", "surrogatepass"))
        inner = kind.unregistered[case - 2][1]
    elif flag != _PLAIN:
        raise NoBytesError(f"{kind.class_name} has flag {flag}")
    own: dict[int, Any] = {}
    for field, places in zip(shape.column, shape.fields, strict=True):
        mine = [number for of, number in places if of == case]
        if mine:
            own[mine[0]] = value[field.name]
        elif value[field.name] is not None:
            raise NoBytesError(f"the value is of a class without {field.name}, which would have to be null")
    if inner is kind:
        return old[:1] + _fields(kind, old[1:], [own[number] for number in range(len(own))])
    if not isinstance(inner, PojoOf):
        return old[:size] + renewed(inner, old[size:], own.get(-1))
    names = arrow_type(inner)
    return old[:size] + renewed(
        inner, old[size:], {names.field(number).name: each for number, each in sorted(own.items())}
    )


def _fields(kind: PojoOf, old: bytes, cells: Sequence[Any]) -> bytes:
    if any(isinstance(part, RestOf) for _, part in kind.fields):
        raise NoBytesError(f"a field of {kind.class_name} cannot be decoded")
    parts = [Nullable(part) for _, part in kind.fields]
    given = iter(cells)
    return b"".join(
        _nullable(part.value, each, next(given)) if has_column(part.value) else each
        for part, each in zip(parts, _spans(parts, old), strict=True)
    )


def _nullable(kind: FlinkType, old: bytes, value: Any) -> bytes:
    """A byte that says whether the value is null | the value unless it is."""
    if value is None:
        return b"\1"
    if old[0] == 0:
        return b"\0" + renewed(kind, old[1:], value)
    return b"\0" + _written(kind, value)


def _written(kind: FlinkType, value: Any) -> bytes:
    """A value where nothing is stored that tells its classes."""
    if hides(kind):
        raise NoBytesError(f"nothing tells the class of a new value of {shown(kind)}")
    return value_bytes(kind, value)


def _members(kind: FlinkType, parts: Sequence[FlinkType], old: bytes, value: Mapping[str, Any]) -> bytes:
    names = iter([field.name for field in arrow_type(kind)])
    return b"".join(
        renewed(part, each, value[next(names)]) if has_column(part) else each
        for part, each in zip(parts, _spans(parts, old), strict=True)
    )


def _row(kind: RowOf, old: bytes, before: Mapping[str, Any], value: Mapping[str, Any]) -> bytes:
    """A row of the kind that the stored one has."""
    names = [field.name for field in arrow_type(kind)]
    if not all(map(has_column, kind.fields)):
        raise NoBytesError(f"a field of {shown(kind)} has no column")
    start = 2 if kind.kind_bits else 0
    size = -(-(start + len(kind.fields)) // 8)
    bits = np.unpackbits(np.frombuffer(old[:size], np.uint8))
    present = [number for number, name in enumerate(names) if not bits[start + number]]
    spans = dict(zip(present, _spans([kind.fields[number] for number in present], old[size:]), strict=True))
    parts = []
    for number, name in enumerate(names):
        bits[start + number] = value[name] is None
        if value[name] is not None:
            part = kind.fields[number]
            parts.append(renewed(part, spans[number], value[name]) if number in spans else _written(part, value[name]))
    return np.packbits(bits).tobytes() + b"".join(parts)


def _list(kind: ListOf, old: bytes, before: Sequence[Any], value: Sequence[Any]) -> bytes:
    element = Nullable(kind.element) if kind.is_set else kind.element
    spans = _spans([element] * len(before), old[_COUNT:])
    parts = (renewed_element(element, spans, before, place, each) for place, each in enumerate(value))
    return len(value).to_bytes(_COUNT, "big") + b"".join(parts)


def renewed_element(kind: FlinkType, old: Sequence[bytes], before: Sequence[Any], place: int, value: Any) -> bytes:
    """The bytes of an element that comes to a place of a list: those of a stored one that is the same, else it takes
    that of the one which is stored there. Raises as `renewed`.
    """
    for octets, each in zip(old, before, strict=True):
        if same(each, value):
            return octets
    return renewed(kind, old[place], value) if place < len(old) else _written(kind, value)


def _map(kind: MapOf, old: bytes, before: Sequence[Any], value: Sequence[Any]) -> bytes:
    parts = [each for _ in before for each in (kind.key, Nullable(kind.value))]
    spans = _spans(parts, old[_COUNT:])
    stored = {repr(key): (spans[2 * number], spans[2 * number + 1]) for number, (key, _) in enumerate(before)}
    found = []
    for key, each in value:
        octets = stored.get(repr(key))
        if octets is None:
            found.append(_written(kind.key, key) + (b"\1" if each is None else b"\0" + _written(kind.value, each)))
        else:
            found.append(octets[0] + _nullable(kind.value, octets[1], each))
    return len(value).to_bytes(_COUNT, "big") + b"".join(found)
