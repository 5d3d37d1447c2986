"""Messages of Protobuf from a descriptor set, and the column types of their values.

A descriptor set (``google/protobuf/descriptor.proto``) is what ``protoc --descriptor_set_out=FILE --include_imports``
writes. Supported are proto2 and proto3 without groups and extensions. A message inside itself stays bytes, because a
column type cannot contain itself.

    int32, sint32, sfixed32     int32           uint32, fixed32    int64
    int64, sint64, sfixed64     int64           uint64, fixed64    decimal(20)
    enum                        the name as text; a number without a name as that number in text
    message                     struct
    repeated, map<K, V>         list, map
"""

from __future__ import annotations

import base64
import binascii
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import pyarrow as pa

from statestore.formats.bytes.field_reader import varint_reader
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, UnsupportedError, shown
from statestore.formats.values.expansion import Expansion

PREFIX = "protobuf:"
PLAIN_PREFIX = "protobuf-plain:"
CONTENT = "base64,"
"""Begins a descriptor set as text, which stands where a path would."""

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Wire types."""

_MOST_DEPTH = 50
MOST_NUMBER = (1 << 29) - 1
_TYPES: dict[int, tuple[str, int, pa.DataType]] = {
    1: ("double", FIXED64, pa.float64()),
    2: ("float", FIXED32, pa.float32()),
    3: ("int64", VARINT, pa.int64()),
    4: ("uint64", VARINT, pa.decimal128(20, 0)),
    5: ("int32", VARINT, pa.int32()),
    6: ("fixed64", FIXED64, pa.decimal128(20, 0)),
    7: ("fixed32", FIXED32, pa.int64()),
    8: ("bool", VARINT, pa.bool_()),
    9: ("string", BYTES, pa.string()),
    11: ("message", BYTES, pa.binary()),
    12: ("bytes", BYTES, pa.binary()),
    13: ("uint32", VARINT, pa.int64()),
    14: ("enum", VARINT, pa.string()),
    15: ("sfixed32", FIXED32, pa.int32()),
    16: ("sfixed64", FIXED64, pa.int64()),
    17: ("sint32", VARINT, pa.int32()),
    18: ("sint64", VARINT, pa.int64()),
}
_REPEATED = 3

Shape = Literal["one", "list", "map"]


@dataclass(frozen=True)
class ProtoField:
    """A field of a message.

    ``form`` is its type in Protobuf, ``wire`` that type's wire type, ``column`` the type of its column. A field that is
    absent is null where it ``has_presence``, else the default of its type. Of the fields of one ``oneof`` the last one
    counts. ``message`` is the type of a message, None for one inside itself; for a map it has the fields key and value.
    ``symbols`` are the names of an enum, ``first`` the one that is its default; where it is ``closed``, a number
    without a name is as if it were absent.
    """

    name: str
    number: int
    form: str
    wire: int
    column: pa.DataType
    shape: Shape = "one"
    has_presence: bool = False
    oneof: int | None = None
    message: ProtoMessage | None = None
    symbols: Mapping[int, str] = field(default_factory=dict)
    first: str = ""
    closed: bool = False


@dataclass(frozen=True)
class ProtoMessage:
    """A message: its full name, its fields, and the type of its column.

    ``paths`` are its positions among the messages of its file, as Confluent's serializers write them: with and without
    the entries of maps, which some of them count.
    """

    name: str
    fields: tuple[ProtoField, ...]
    column: pa.StructType
    paths: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True)
class _Fields:
    """The fields of one message of a descriptor set, by number."""

    of: Mapping[int, list[int | bytes]]

    def text(self, number: int) -> str:
        found = self.of.get(number, [b""])[-1]
        if isinstance(found, int):
            raise _wrong(f"a number as field {number}", "a text")
        try:
            return found.decode()
        except UnicodeDecodeError:
            raise _wrong(shown(found), "a text in UTF-8") from None

    def number(self, number: int, default: int = 0) -> int:
        found = self.of.get(number, [default])[-1]
        if not isinstance(found, int):
            raise _wrong(f"bytes as field {number}", "a number")
        return found

    def parts(self, number: int) -> list[_Fields]:
        return [_parsed(part) for part in self.of.get(number, []) if isinstance(part, bytes)]


@dataclass(frozen=True)
class _Definition:
    """A message or an enum of a descriptor set. ``proto3``: the syntax of its file."""

    content: _Fields
    proto3: bool
    paths: tuple[tuple[int, ...], ...] = ()

    @property
    def is_map_entry(self) -> bool:
        return any(options.number(7) for options in self.content.parts(7))


def is_protobuf(serde: str) -> bool:
    """Return whether a serde of this name is one of Protobuf."""
    return serde.startswith((PREFIX, PLAIN_PREFIX))


@functools.lru_cache(maxsize=64)
def parse_message(text: str) -> ProtoMessage:
    """Parse "base64,CONTENT#package.Message", a descriptor set and the message to read.

    Raises InvalidInputError WRONG_SCHEMA, UnsupportedError UNSUPPORTED_SERDE.
    """
    content, mark, name = text.rpartition("#")
    if not mark or not name or not content.startswith(CONTENT):
        raise _wrong(shown(text[:80]), "FILE#package.Message, a descriptor set and the name of a message in it")
    try:
        data = base64.b64decode(content.removeprefix(CONTENT), validate=True)
    except (binascii.Error, ValueError) as error:
        raise _wrong(str(error), "base64") from None
    messages, enums = _definitions(data)
    if name not in messages:
        raise _wrong(f"no message {name!r}", f"one of {', '.join(sorted(messages)[:20]) or 'its messages'}")
    return _Types(messages, enums).message(name, ())


def _wrong(found: str, expected: str) -> InvalidInputError:
    return InvalidInputError(
        ErrorCode.WRONG_SCHEMA,
        f"Protobuf schema: found {found}, expected {expected}; write it with protoc --descriptor_set_out=FILE "
        "--include_imports",
    )


def _unsupported(what: str) -> UnsupportedError:
    return UnsupportedError(
        ErrorCode.UNSUPPORTED_SERDE,
        f"Protobuf schema with {what}; expected messages of proto2 or proto3 without groups; read the values as bytes",
    )


def _parsed(data: bytes) -> _Fields:
    found: dict[int, list[int | bytes]] = {}
    for number, value in _walk(data):
        found.setdefault(number, []).append(value)
    return _Fields(found)


_varint = varint_reader(lambda _: _wrong("a number that does not end", "a descriptor set"))


def _walk(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(data):
        tag, at = _varint(data, at, len(data))
        wire = tag & 7
        if wire == VARINT:
            value, at = _varint(data, at, len(data))
            yield tag >> 3, value
            continue
        size = {FIXED64: 8, FIXED32: 4}.get(wire)
        if wire == BYTES:
            size, at = _varint(data, at, len(data))
        if size is None or size > len(data) - at:
            raise _wrong(f"a field of wire type {wire} that does not end", "a descriptor set")
        yield tag >> 3, data[at : at + size]
        at += size


def _definitions(data: bytes) -> tuple[dict[str, _Definition], dict[str, _Definition]]:
    """Messages and enums by full name."""
    messages: dict[str, _Definition] = {}
    enums: dict[str, _Definition] = {}
    files = _parsed(data).parts(1)
    if not files:
        raise _wrong("no file in it", "a descriptor set")
    for file in files:
        syntax, space = file.text(12), file.text(2)
        if syntax not in ("", "proto2", "proto3"):
            raise _unsupported(f"syntax {shown(syntax)}")
        proto3 = syntax == "proto3"
        nothing: tuple[int, ...] = ()
        waiting = [(file, 4, 5, space, nothing, nothing)]
        while waiting:
            parent, of_messages, of_enums, prefix, path, short = waiting.pop()
            for enum in parent.parts(of_enums):
                enums[_joined(prefix, enum.text(1))] = _Definition(enum, proto3)
            entries = 0
            for place, message in enumerate(parent.parts(of_messages)):
                name, own, without_entries = _joined(prefix, message.text(1)), (*path, place), (*short, place - entries)
                if len(own) > _MOST_DEPTH:
                    raise _unsupported(f"messages nested deeper than {_MOST_DEPTH}")
                messages[name] = _Definition(message, proto3, tuple(dict.fromkeys((own, without_entries))))
                entries += messages[name].is_map_entry
                waiting.append((message, 3, 4, name, own, without_entries))
    return messages, enums


def _joined(space: str, name: str) -> str:
    return f"{space}.{name}" if space else name


class _Types:
    """Types of messages, with a limit on how many fields they have together."""

    def __init__(self, messages: Mapping[str, _Definition], enums: Mapping[str, _Definition]) -> None:
        self.messages, self.enums = messages, enums
        self.expansion = Expansion(_unsupported)

    def message(self, name: str, outer: tuple[str, ...]) -> ProtoMessage:
        """The type of a message inside the messages ``outer``."""
        if len(outer) > _MOST_DEPTH:
            raise _unsupported(f"messages nested deeper than {_MOST_DEPTH}")
        found = self.messages[name]
        fields = tuple(self._field(each, found, (*outer, name)) for each in found.content.parts(2))
        names, numbers = [each.name for each in fields], [each.number for each in fields]
        if len(set(names)) < len(names) or len(set(numbers)) < len(numbers):
            raise _wrong(f"message {name!r} with a field twice", "fields of different names and numbers")
        column = pa.struct([pa.field(each.name, each.column) for each in fields])
        return ProtoMessage(name, fields, column, found.paths)

    def _field(self, content: _Fields, owner: _Definition, outer: tuple[str, ...]) -> ProtoField:
        self.expansion.add()
        name, number = content.text(1), content.number(3)
        if content.number(5) not in _TYPES:
            raise _unsupported(f"field {name!r}, a group or of an unknown type")
        if not name or not 0 < number <= MOST_NUMBER:
            raise _wrong(f"field {shown(name)} with number {number}", "a name, and a number from 1 to 536870911")
        form, wire, column = _TYPES[content.number(5)]
        repeated, in_entry = content.number(4) == _REPEATED, owner.is_map_entry
        oneof = content.number(9) if 9 in content.of else None
        presence = not in_entry and (not owner.proto3 or oneof is not None or form == "message")
        found = ProtoField(name, number, form, wire, column, "one", presence and not repeated, oneof)
        type_name = content.text(6).removeprefix(".")
        if form == "enum":
            return _repeated(self._enum(found, type_name), repeated)
        if form != "message":
            return _repeated(found, repeated)
        if type_name not in self.messages:
            raise _wrong(f"field {name!r} of message {shown(type_name)}", "a message of the same descriptor set")
        if type_name in outer:
            return _repeated(found, repeated)
        message = self.message(type_name, outer)
        if repeated and self.messages[type_name].is_map_entry:
            return self._map(found, message)
        return _repeated(replace(found, column=message.column, message=message), repeated)

    def _map(self, found: ProtoField, entry: ProtoMessage) -> ProtoField:
        parts = {each.number: each for each in entry.fields}
        if set(parts) != {1, 2} or parts[1].form in ("message", "bytes", "float", "double", "enum"):
            raise _wrong(f"map {found.name!r} with the fields {', '.join(entry.column.names)}", "a key and a value")
        # Protobuf leaves out an entry with a number that has no name; here it is shown as its number.
        fields = parts[1], replace(parts[2], closed=False)
        entry = ProtoMessage(entry.name, fields, pa.struct([pa.field(each.name, each.column) for each in fields]))
        return replace(found, column=pa.map_(parts[1].column, parts[2].column), message=entry, shape="map")

    def _enum(self, found: ProtoField, type_name: str) -> ProtoField:
        if type_name not in self.enums:
            raise _wrong(f"field {found.name!r} of enum {shown(type_name)}", "an enum of the same descriptor set")
        enum = self.enums[type_name]
        symbols: dict[int, str] = {}
        for value in enum.content.parts(2):
            symbols.setdefault(_int32(value.number(2)), value.text(1))
        if not symbols:
            raise _wrong(f"enum {type_name!r} without values", "names of values")
        return replace(found, symbols=symbols, first=next(iter(symbols.values())), closed=not enum.proto3)


def _repeated(found: ProtoField, repeated: bool) -> ProtoField:
    return replace(found, column=pa.list_(found.column), shape="list") if repeated else found


def _int32(number: int) -> int:
    number &= 0xFFFFFFFF
    return number - (1 << 32) if number >= 1 << 31 else number
