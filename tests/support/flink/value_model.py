"""A plain writer of Flink's values, from the format's description, hypothesis strategies of types and values, and their
columns as they are decoded.

A value is what the column's Arrow array is made of: dictionaries for structs, pairs for maps, integers for times.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import strategies as st

from statestore.formats.bytes.byte_columns import Cells, cells_of
from statestore.formats.flink.columns import decoding, kryo_json
from statestore.formats.flink.columns.decoding import decode_cells
from statestore.formats.flink.layouts.shapes import least_bytes
from statestore.formats.flink.layouts.type_layouts import arrow_type, has_column, layout
from statestore.formats.flink.serializers.flink_types import (
    ArrayOf,
    Basic,
    EitherOf,
    EnumOf,
    FlinkType,
    Joined,
    ListOf,
    MapOf,
    MaskedListOf,
    Nullable,
    OptionOf,
    PojoOf,
    PrimitiveArray,
    PythonElements,
    PythonValue,
    RowOf,
    StringArray,
    TimerOf,
    TraversableOf,
    TryOf,
    TtlOf,
    TupleOf,
    UnionOf,
)

ORIGIN = "state 'x' of operator 'op'"


def cells(*rows: bytes | None) -> Cells:
    return cells_of(pa.array(rows, pa.binary()))


def column_of(kind: FlinkType, *rows: bytes | None) -> pa.Array:
    """The column that values of a type are decoded to, each in a cell of its own."""
    (column,) = decode_cells([kind], cells(*rows), [True], ORIGIN)
    assert column is not None
    column.validate(full=True)
    assert column.type == arrow_type(kind)
    return column


def decoded(kind: FlinkType, *rows: bytes | None) -> list[Any]:
    """The values of `column_of`."""
    found: list[Any] = column_of(kind, *rows).to_pylist()
    return found


@contextmanager
def walking(compiled: bool) -> Iterator[None]:
    """Decode by the compiled loop, or interpreted, however much is decoded."""
    with (
        mock.patch.object(decoding, "_is_compiled", lambda stored: compiled),
        mock.patch.object(kryo_json, "_is_compiled", lambda entries: compiled),
    ):
        yield


_LEAST = -(2**63)
_FORMS = {"long": ">q", "int": ">i", "short": ">h", "byte": ">b", "float": ">f", "double": ">d", "boolean": ">?"}


def in_each_way(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Decode interpreted, and by the compiled loop: the function of a fixture."""
    with walking(request.param):
        yield request.param


def int32(number: int) -> bytes:
    return struct.pack(">i", number)


def int64(number: int) -> bytes:
    return struct.pack(">q", number)


def varint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + varint(number >> 7)


def text(value: str | None, more: int = 1) -> bytes:
    """A string, its length + ``more`` before it: 1 in ``StringSerializer``, 0 in ``StringValueSerializer``."""
    if value is None:
        return b"\0"
    units = struct.unpack(f"<{len(value.encode('utf-16-le')) // 2}H", value.encode("utf-16-le"))
    return varint(len(units) + more) + b"".join(map(varint, units))


def utf(value: str) -> bytes:
    """A string of Java's ``writeUTF``: one to three bytes for each UTF-16 unit, NUL has two."""
    found = bytearray()
    for (unit,) in struct.iter_unpack(">H", value.encode("utf-16-be")):
        if 0 < unit < 0x80:
            found.append(unit)
        elif unit < 0x800:
            found += bytes([0xC0 | unit >> 6, 0x80 | unit & 0x3F])
        else:
            found += bytes([0xE0 | unit >> 12, 0x80 | unit >> 6 & 0x3F, 0x80 | unit & 0x3F])
    return struct.pack(">H", len(found)) + found


def big_integer(value: int | None) -> bytes:
    if value is None:
        return int32(0)
    if value in (0, 1, 10):
        return int32({0: 1, 1: 2, 10: 3}[value])
    size = (value if value >= 0 else ~value).bit_length() // 8 + 1
    return int32(size + 4) + value.to_bytes(size, "big", signed=True)


def _basic(name: str, value: Any) -> bytes:
    if name in _FORMS:
        return struct.pack(_FORMS[name], value)
    if name == "string":
        return text(value)
    if name == "string_value":
        return text(value, 0)
    if name == "utf":
        return utf(value)
    if name == "char":
        return bytes(value.encode("utf-16-be"))
    if name == "biginteger":
        return big_integer(None if value is None else int(value))
    if name == "bigdecimal":  # the values here have a plain form
        whole, _, fraction = (value or "").partition(".")
        return big_integer(None) if value is None else big_integer(int(whole + fraction)) + int32(len(fraction))
    if name == "date":
        return int64(_LEAST if value is None else value // 1000)
    if name == "instant":
        return int64(_LEAST) + int32(-(2**31)) if value is None else int64(value // 10**9) + int32(value % 10**9)
    if name == "sql_timestamp":
        if value is None:
            return int64(_LEAST) + int32(0)
        return int64(value // 10**6) + int32(value % 10**9)
    if name == "local_time":
        if value is None:
            return b"\x80" + struct.pack(">hi", -(2**15), -(2**31))
        second = value // 10**9
        return bytes([second // 3600, second // 60 % 60, second % 60]) + int32(value % 10**9)
    if name == "time_window":
        return int64(value["start"] // 1000) + int64(value["end"] // 1000)
    return {"void": b"\0", "null_value": b""}[name]


def encoded(kind: FlinkType, value: Any) -> bytes:
    """The bytes of a value."""
    if isinstance(kind, Basic):
        return _basic(kind.name, value)
    if isinstance(kind, PrimitiveArray):
        if kind.element == "byte":
            return int32(len(value)) + bytes(value)
        return int32(len(value)) + b"".join(_basic(kind.element, each) for each in value)
    if isinstance(kind, StringArray):
        return int32(len(value)) + b"".join(map(text, value))
    if isinstance(kind, ListOf) and kind.is_set:
        return int32(len(value)) + b"".join(_flagged(kind.element, each, b"\1", b"\0") for each in value)
    if isinstance(kind, ListOf):
        return int32(len(value)) + b"".join(encoded(kind.element, each) for each in value)
    if isinstance(kind, Joined):
        return b",".join(encoded(kind.element, each) for each in value)
    if isinstance(kind, ArrayOf):
        return int32(len(value)) + b"".join(_flagged(kind.element, each, b"\0", b"\1") for each in value)
    if isinstance(kind, TraversableOf) and kind.is_map:
        pairs = [b"\1" + record(_pair(kind), each) for each in value]
        return int32(len(value)) + b"".join(pairs)
    if isinstance(kind, TraversableOf):
        return int32(len(value)) + b"".join(_flagged(kind.element, each, b"\0", b"\1") for each in value)
    if isinstance(kind, OptionOf):
        return _flagged(kind.value, value, b"\0", b"\1")
    if isinstance(kind, MaskedListOf):
        bits = "".join("1" if each is None else "0" for each in value).ljust((len(value) + 7) // 8 * 8, "0")
        mask = int(bits or "0", 2).to_bytes(len(bits) // 8, "big")
        return int32(len(value)) + mask + b"".join(encoded(kind.element, each) for each in value if each is not None)
    if isinstance(kind, MapOf):
        pairs = [encoded(kind.key, key) + _flagged(kind.value, each, b"\1", b"\0") for key, each in value]
        return int32(len(value)) + b"".join(pairs)
    if isinstance(kind, Nullable):
        return _flagged(kind.value, value, b"\1" + bytes(kind.padding), b"\0")
    if isinstance(kind, (PythonValue, PythonElements)):
        return _of_python(kind, value)
    return _of_fields(kind, value)


def _of_python(kind: PythonValue | PythonElements, value: Any) -> bytes:
    inner = kind.value if isinstance(kind, PythonValue) else kind.element
    octets = b"".join(encoded(inner, each) for each in ([value] if isinstance(kind, PythonValue) else value))
    return int32(len(octets)) + octets


def _of_fields(kind: FlinkType, value: Any) -> bytes:
    if isinstance(kind, TupleOf):
        return b"".join(encoded(each, value[f"f{number}"]) for number, each in enumerate(kind.fields))
    if isinstance(kind, RowOf):
        cells = [value[f"f{number}"] for number in range(len(kind.fields))]
        bits = ("00" if kind.kind_bits else "") + "".join("1" if cell is None else "0" for cell in cells)
        mask = int(bits.ljust((len(bits) + 7) // 8 * 8, "0"), 2).to_bytes((len(bits) + 7) // 8, "big")
        written = [encoded(each, cell) for each, cell in zip(kind.fields, cells, strict=True) if cell is not None]
        return mask + b"".join(written)
    if isinstance(kind, EnumOf):
        number = kind.constants.index(value)
        return int32(kind.ids[number] if kind.ids else number)
    if isinstance(kind, TryOf):
        if value["success"] is not None:
            return b"\1" + encoded(kind.value, value["success"])
        return b"\0" + encoded(kind.failure, value["failure"])
    if isinstance(kind, EitherOf):
        if value["left"] is not None:
            return b"\1" + encoded(kind.left, value["left"])
        return b"\0" + encoded(kind.right, value["right"])
    if isinstance(kind, UnionOf):
        tag, name, each = next(case for case in kind.cases if value[case[1]] is not None)
        return bytes([tag]) + encoded(each, value[name])
    if isinstance(kind, TtlOf):
        return int64(value["last_access"] // 1000) + encoded(kind.value, value["value"])
    if isinstance(kind, TimerOf):
        flipped = struct.pack(">Q", (value["timestamp"] + 2**63))
        return flipped + encoded(kind.key, value["key"]) + encoded(kind.namespace, value.get("namespace"))
    assert isinstance(kind, PojoOf)
    return _pojo(kind, value)


def _pojo(kind: PojoOf, value: Any) -> bytes:
    if value is None:
        return b"\1"
    own = {name for name, _ in kind.fields}
    for name, each in kind.unregistered:
        assert isinstance(each, PojoOf)
        if any(value.get(field) is not None for field, _ in each.fields if field not in own):
            return b"\4" + struct.pack(">H", len(name)) + name.encode() + _pojo(each, value)
    return b"\2" + b"".join(_flagged(each, value.get(name), b"\1", b"\0") for name, each in kind.fields)


def _pair(kind: TraversableOf) -> tuple[FlinkType, ...]:
    assert isinstance(kind.element, TupleOf)
    return kind.element.fields


def _flagged(kind: FlinkType, value: Any, null: bytes, present: bytes) -> bytes:
    return null if value is None else present + encoded(kind, value)


def record(kinds: Sequence[FlinkType], row: Sequence[Any]) -> bytes:
    return b"".join(encoded(kind, value) for kind, value in zip(kinds, row, strict=True))


_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
_LONGS = st.integers(-(2**63), 2**63 - 1)
_SPAN = st.integers(-(2**62), 2**62)
_BASICS: dict[str, st.SearchStrategy[Any]] = {
    "string": st.none() | _TEXTS,
    "string_value": _TEXTS,
    "utf": _TEXTS,
    "long": _LONGS,
    "int": st.integers(-(2**31), 2**31 - 1),
    "short": st.integers(-(2**15), 2**15 - 1),
    "byte": st.integers(-128, 127),
    "boolean": st.booleans(),
    "float": st.floats(allow_nan=False, width=32),
    "double": st.floats(allow_nan=False),
    "char": st.characters(max_codepoint=0xD7FF),
    "biginteger": st.none() | st.integers(-(2**90), 2**90).map(str),
    "bigdecimal": st.none() | st.decimals(-(10**12), 10**12, places=3).map(str),
    "date": st.none() | st.integers(-(2**52), 2**52).map(lambda millis: millis * 1000),
    "instant": st.none() | _SPAN,
    "sql_timestamp": st.none() | _SPAN,
    "local_time": st.none() | st.integers(0, 86_400 * 10**9 - 1),
    "time_window": st.fixed_dictionaries(
        {name: st.integers(-(2**40), 2**40).map(lambda m: m * 1000) for name in ("start", "end")}
    ),
}
_VOID = ("void", "null_value")
_ARRAYS = ("byte", "short", "int", "long", "float", "double", "boolean")
_ENUMS = EnumOf("a.E", ("RED", "GREEN")), EnumOf("a.Scala$", ("RED", "GREEN", "BLUE"), (7, -1, 2**31 - 1))
_leaves = st.sampled_from([*map(Basic, (*_BASICS, *_VOID)), *map(PrimitiveArray, _ARRAYS), StringArray(), *_ENUMS])
_PLAIN = Basic("long")


def _pojo_types(fields: tuple[FlinkType, ...], further: FlinkType) -> FlinkType:
    own = tuple((f"a{number}", each) for number, each in enumerate(fields))
    subclass = PojoOf("a.Sub", (*own, ("z", further)))
    return PojoOf("a.Base", own, (), (("a.Sub", subclass),))


def has_bytes(kind: FlinkType) -> bool:
    """Whether each value of a type has at least one byte."""
    return least_bytes(layout(kind)) > 0


def _inner(kinds: st.SearchStrategy[FlinkType]) -> st.SearchStrategy[FlinkType]:
    several = st.lists(kinds, min_size=1, max_size=4).map(tuple)
    return st.one_of(
        st.builds(ListOf, kinds, st.booleans()),
        kinds.map(ArrayOf),
        kinds.map(MaskedListOf),
        kinds.map(TraversableOf),
        st.builds(lambda value: TraversableOf(TupleOf((Basic("long"), value)), True), kinds),
        kinds.map(OptionOf),
        st.just(TryOf(_PLAIN, Basic("boolean"))),
        st.builds(MapOf, st.sampled_from([Basic("int"), Basic("long")]), kinds),
        st.builds(Nullable, kinds, st.integers(0, 3)),
        several.map(TupleOf),
        st.builds(RowOf, several, st.booleans()),
        st.builds(_pojo_types, several, kinds),
        st.builds(EitherOf, st.just(_PLAIN), st.just(Basic("boolean"))),
        st.just(UnionOf(((3, "one", _PLAIN), (9, "two", Basic("int"))))),
        kinds.map(TtlOf),
        kinds.filter(has_column).map(PythonValue),
        kinds.filter(has_bytes).map(PythonElements),
        st.builds(TimerOf, kinds, st.just(Basic("void")) | kinds),
    )


types = st.recursive(_leaves, _inner, max_leaves=8).filter(has_column)
"""Types of all forms; void ones are inside of others."""


def values(kind: FlinkType) -> st.SearchStrategy[Any]:
    """Values of a type, None only where its bytes can say so."""
    if isinstance(kind, Basic):
        return st.none() if kind.name in _VOID else _BASICS[kind.name]
    if isinstance(kind, PrimitiveArray):
        if kind.element == "byte":
            return st.binary(max_size=5)
        return st.lists(_BASICS[kind.element], max_size=4)
    if isinstance(kind, StringArray):
        return st.lists(_BASICS["string"], max_size=3)
    if isinstance(kind, ListOf):
        element = values(kind.element)
        return st.lists(st.none() | element if kind.is_set else element, max_size=3)
    if isinstance(kind, TraversableOf) and kind.is_map:
        return st.lists(st.tuples(*map(values, _pair(kind))), max_size=3)
    if isinstance(kind, (ArrayOf, MaskedListOf, TraversableOf)):
        return st.lists(st.none() | values(kind.element), max_size=10)
    if isinstance(kind, MapOf):
        return st.lists(st.tuples(values(kind.key), st.none() | values(kind.value)), max_size=3)
    if isinstance(kind, (Nullable, OptionOf)):
        return st.none() | values(kind.value)
    if isinstance(kind, PythonValue):
        return values(kind.value)
    if isinstance(kind, PythonElements):
        return st.lists(values(kind.element), max_size=4)
    if isinstance(kind, EnumOf):
        return st.sampled_from(kind.constants)
    if isinstance(kind, TupleOf):
        return st.fixed_dictionaries({f"f{number}": values(each) for number, each in enumerate(kind.fields)})
    if isinstance(kind, RowOf):
        cells = {f"f{number}": st.none() | values(each) for number, each in enumerate(kind.fields)}
        return st.fixed_dictionaries(cells)
    return _values_of_choices(kind)


def _one_of(none: dict[str, Any], name: str, value: Any) -> dict[str, Any]:
    return {**none, name: value}


def _values_of_choices(kind: FlinkType) -> st.SearchStrategy[Any]:
    if isinstance(kind, EitherOf):
        return st.one_of(
            values(kind.left).map(lambda value: {"left": value, "right": None}),
            values(kind.right).map(lambda value: {"left": None, "right": value}),
        )
    if isinstance(kind, TryOf):
        return st.one_of(
            values(kind.value).map(lambda value: {"success": value, "failure": None}),
            values(kind.failure).map(lambda value: {"success": None, "failure": value}),
        )
    if isinstance(kind, UnionOf):
        none = {name: None for _, name, _ in kind.cases}
        return st.one_of([values(each).map(partial(_one_of, none, name)) for _, name, each in kind.cases])
    if isinstance(kind, TtlOf):
        return st.fixed_dictionaries(
            {"value": values(kind.value), "last_access": st.integers(0, 2**41).map(lambda m: m * 1000)}
        )
    if isinstance(kind, TimerOf):
        parts = {"timestamp": _LONGS, "key": values(kind.key)}
        if kind.namespace != Basic("void"):
            parts["namespace"] = values(kind.namespace)
        return st.fixed_dictionaries(parts)
    assert isinstance(kind, PojoOf)
    names = [field.name for field in arrow_type(kind)]
    known = dict(kind.fields)
    for _, each in kind.unregistered:
        assert isinstance(each, PojoOf)
        known = {**dict(each.fields), **known}
    return st.none() | st.fixed_dictionaries({name: st.none() | values(known[name]) for name in names})
