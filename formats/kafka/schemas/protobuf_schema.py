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
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import pyarrow as pa

from statestore.formats.bytes.field_reader import varint_reader
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, UnsupportedError, shown
from statestore.formats.kafka.schemas.proto_text import file_descriptor, varint
from statestore.formats.kafka.schemas.well_known_protos import WELL_KNOWN
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
_MESSAGE, _ENUM = 11, 14
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")

Shape = Literal["one", "list", "map"]


@dataclass(frozen=True)
class ProtoField:
    """A field of a message.

    ``form`` is its type in Protobuf, ``wire`` that type's wire type, ``column`` the type of its column. A field that is
    absent is null where it ``has_presence``, else the default of its type. Of the fields of one ``oneof`` the last one
    counts. ``message`` is the type of a message, None for one inside itself; for a map it has the fields key and value.
    ``symbols`` are the names of an enum, ``first`` the one that is its default; where it is ``closed``, a number
    without a name is as if it were absent. Writers have the numbers of a ``packed`` list in one value.
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
    packed: bool = False


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

    def texts(self, number: int) -> list[str]:
        return [_Fields({number: [part]}).text(number) for part in self.of.get(number, [])]

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
    found = _Definitions(_files((content,)))
    if name not in found.messages:
        raise _wrong(f"no message {name!r}", f"one of {', '.join(sorted(found.messages)[:20]) or 'its messages'}")
    return _Types(found).message(name, ())


@functools.lru_cache(maxsize=256)
def message_of(texts: tuple[str, ...], name: str) -> ProtoMessage:
    """The message of a schema of a registry: of the last file of its texts, because indexes count within a file.

    A text is a ``.proto`` file, or in base64 a descriptor, or "base64,SET". Raises as `parse_message`.
    """
    found = _Definitions(_files(texts))
    if name not in found.own:
        others = ", ".join(sorted(each for each in found.own if not found.messages[each].is_map_entry)[:20]) or "none"
        raise _wrong(f"no message {name!r} in the file of the schema", f"one of its own messages, {others}")
    return _Types(found).message(name, ())


@functools.lru_cache(maxsize=256)
def messages_at(texts: tuple[str, ...]) -> Mapping[tuple[int, ...], tuple[str, ...]]:
    """The names of the messages of a schema's own file by their index: two where counted entries of maps matter."""
    found = _Definitions(_files(texts))
    by_path: dict[tuple[int, ...], tuple[str, ...]] = {}
    for name in found.own:
        if not found.messages[name].is_map_entry:
            for path in found.messages[name].paths:
                by_path[path] = (*by_path.get(path, ()), name)
    return by_path


def message_index(data: bytes) -> tuple[int, ...] | None:
    """The index in front of a message, as Confluent's serializers write it; None where there is none."""
    try:
        count, at = _varint(data, 0, len(data))
        index = [0] if count == 0 else []
        for _ in range(min(count >> 1, _MOST_DEPTH + 1)):
            number, at = _varint(data, at, len(data))
            index.append(number >> 1)
    except InvalidInputError:
        return None
    return tuple(index)


# Messages of other versions of a schema

_WIDER = {
    "bool": {"int32", "int64", "uint32", "uint64"},
    "enum": {"int32", "int64"},
    "int32": {"int64", "enum"},
    "uint32": {"uint64", "int64"},
    "sint32": {"sint64"},
    "string": {"bytes"},
}
"""The other types by which values of a type are the same."""


def difference(writer: ProtoMessage, reader: ProtoMessage) -> str | None:
    """Return words for what the writer's values cannot be by the reader; None where all can.

    Protobuf reads any bytes by any message: what does not fit is skipped or cut, and then a value is lost or another
    one. A reader may have more fields or fewer, other names, and types with more room; what else differs is named.
    """
    waiting, seen = [(writer, reader)], set()
    while waiting:
        ours, theirs = waiting.pop()
        if (ours.name, theirs.name) in seen:
            continue
        seen.add((ours.name, theirs.name))
        fields = {each.number: each for each in theirs.fields}
        for written in ours.fields:
            other = fields.get(written.number)
            if other is None:
                continue
            if not _fits(written, other):
                return (
                    f"field {written.number} of message {theirs.name} is {_shown(other)} {other.name}, and was written "
                    f"as {_shown(written)} {written.name}"
                )
            if written.message is not None and other.message is not None:
                waiting.append((written.message, other.message))
    return None


def _fits(field: ProtoField, other: ProtoField) -> bool:
    shapes = field.shape == other.shape or (field.shape == "one" and other.shape == "list")
    if other.form == "enum" and other.closed and field.form != "enum":
        return False  # a number without a name would be left out
    return shapes and (field.form == other.form or other.form in _WIDER.get(field.form, ()))


def _shown(field: ProtoField) -> str:
    return {"one": "", "list": "repeated ", "map": "map "}[field.shape] + field.form


# Descriptor sets


def set_of(text: str) -> bytes:
    """The descriptor set of a file as text. Raises as `file_descriptor`."""
    file = file_descriptor(text)
    return bytes([0x0A]) + varint(len(file)) + file


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


def _files(texts: tuple[str, ...]) -> list[_Fields]:
    """The files of a schema, its own one at last, behind those that it imports and that everybody has."""
    found: list[_Fields] = []
    for text in texts:
        if text.startswith(CONTENT):
            found += _parsed(_bytes_of(text.removeprefix(CONTENT))).parts(1)
        elif _BASE64.fullmatch(text.strip()):
            found.append(_parsed(_bytes_of(text.strip())))
        else:
            found.append(_parsed(file_descriptor(text)))
    if not found:
        raise _wrong("no file in it", "a descriptor set")
    there = {file.text(1) for file in found}
    wanted = [path for file in found for path in file.texts(3)]
    for path in wanted:
        if path in WELL_KNOWN and path not in there:
            there.add(path)
            found.insert(0, _parsed(file_descriptor(WELL_KNOWN[path], path)))
    return found


def _bytes_of(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise _wrong(str(error), "base64") from None


class _Definitions:
    """The messages and enums of files by full name; ``own`` are names of messages of the last file.

    The first definition of a message that stands in several files counts, but those of the last file before all.
    """

    def __init__(self, files: list[_Fields]) -> None:
        self.messages: dict[str, _Definition] = {}
        self.enums: dict[str, _Definition] = {}
        self.packages: set[str] = set()
        for file in files:
            self.own = self._add(file)

    def _add(self, file: _Fields) -> set[str]:
        messages, own = self.messages, set()
        syntax, space = file.text(12), file.text(2)
        if syntax not in ("", "proto2", "proto3"):
            raise _unsupported(f"syntax {shown(syntax)}")
        proto3 = syntax == "proto3"
        parts = space.split(".")
        self.packages |= {".".join(parts[:count]) for count in range(1, len(parts) + 1)}
        nothing: tuple[int, ...] = ()
        waiting = [(file, 4, 5, space, nothing, nothing)]
        while waiting:
            parent, of_messages, of_enums, prefix, path, short = waiting.pop()
            for enum in parent.parts(of_enums):
                self.enums[_joined(prefix, enum.text(1))] = _Definition(enum, proto3)
            entries = 0
            for place, message in enumerate(parent.parts(of_messages)):
                name, own_path, without_entries = (
                    _joined(prefix, message.text(1)),
                    (*path, place),
                    (*short, place - entries),
                )
                if len(own_path) > _MOST_DEPTH:
                    raise _unsupported(f"messages nested deeper than {_MOST_DEPTH}")
                messages[name] = _Definition(message, proto3, tuple(dict.fromkeys((own_path, without_entries))))
                own.add(name)
                entries += messages[name].is_map_entry
                waiting.append((message, 3, 4, name, own_path, without_entries))
        return own

    def resolved(self, name: str, scope: str) -> str:
        """The full name of a type that a field of message ``scope`` names, by the rules of Protobuf.

        The innermost scope that has the first part of a name has the rest of it, too, or nobody has.
        """
        if name.startswith("."):
            return name[1:]
        first, dot, _ = name.partition(".")
        while True:
            place = _joined(scope, first)
            is_type = place in self.messages or place in self.enums
            if is_type or (dot and place in self.packages) or not scope:
                return _joined(scope, name)
            scope = scope.rpartition(".")[0]


def _joined(space: str, name: str) -> str:
    return f"{space}.{name}" if space else name


class _Types:
    """Types of messages, with a limit on how many fields they have together."""

    def __init__(self, found: _Definitions) -> None:
        self.messages, self.enums, self.resolved = found.messages, found.enums, found.resolved
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
        type_name = self.resolved(content.text(6), outer[-1]) if 6 in content.of else ""
        kind = content.number(5) or (_ENUM if type_name in self.enums else _MESSAGE if type_name else 0)
        if kind not in _TYPES:
            raise _unsupported(f"field {name!r}, a group or of an unknown type")
        if not name or not 0 < number <= MOST_NUMBER:
            raise _wrong(f"field {shown(name)} with number {number}", "a name, and a number from 1 to 536870911")
        form, wire, column = _TYPES[kind]
        repeated, in_entry = content.number(4) == _REPEATED, owner.is_map_entry
        oneof = content.number(9) if 9 in content.of else None
        presence = not in_entry and (not owner.proto3 or oneof is not None or form == "message")
        found = ProtoField(name, number, form, wire, column, "one", presence and not repeated, oneof)
        found = replace(found, packed=repeated and wire != BYTES and _is_packed(content, owner))
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


def _is_packed(content: _Fields, owner: _Definition) -> bool:
    """Return whether writers pack a list of numbers: by its option packed, else where the file is of proto3."""
    options = content.parts(8)
    return bool(options[-1].number(2)) if options and 2 in options[-1].of else owner.proto3


def _repeated(found: ProtoField, repeated: bool) -> ProtoField:
    return replace(found, column=pa.list_(found.column), shape="list") if repeated else found


def _int32(number: int) -> int:
    number &= 0xFFFFFFFF
    return number - (1 << 32) if number >= 1 << 31 else number
