"""Files of Protobuf as text (``.proto``) to descriptors, which ``protobuf_schema`` reads.

A registry has the text of a schema. Read is what decides how bytes are laid out: messages, enums, fields, maps, oneofs,
and the names of types as they stand in the text, which are resolved where all files are known. Options, services,
extensions and reserved numbers are skipped. Groups and editions are refused.

The result is a ``FileDescriptorProto``, as protoc writes it, but for what was skipped; the type of a field is left out
where it is a name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NoReturn

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, UnsupportedError, shown

_MOST_DEPTH = 50
_MOST_INT = (1 << 31) - 1
_OPTIONAL, _REQUIRED, _REPEATED = 1, 2, 3
_LABELS = {"optional": _OPTIONAL, "required": _REQUIRED, "repeated": _REPEATED}
_TYPES = (
    "double float int64 uint64 int32 fixed64 fixed32 bool string group message bytes uint32 enum sfixed32 sfixed64 "
    "sint32 sint64"
)
_SCALARS = {name: number for number, name in enumerate(_TYPES.split(), 1) if name not in ("group", "message", "enum")}
_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/)
    |(?P<name>[A-Za-z_]\w*)
    |(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\w*)
    |(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<sign>[{}\[\]()<>=;,.:+/-])""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_INTEGER = re.compile(r"(?:0[xX][0-9a-fA-F]{1,16}|0[0-7]{0,22}|[1-9][0-9]{0,19})")
_OPENING, _CLOSING = frozenset("{[("), frozenset("}])")


def file_descriptor(text: str, name: str = "") -> bytes:
    """The descriptor of the file with this text. Raises InvalidInputError WRONG_SCHEMA, UnsupportedError."""
    return _File(_Tokens(text)).read(name)


@dataclass
class _Message:
    """A message while it is read. ``oneofs``: the names of real ones; ``optional``: fields of proto3 with presence."""

    name: str
    fields: list[tuple[bytes, str | None]] = field(default_factory=list)
    nested: list[bytes] = field(default_factory=list)
    enums: list[bytes] = field(default_factory=list)
    oneofs: list[str] = field(default_factory=list)

    def content(self) -> bytes:
        """The ``DescriptorProto``. A field with presence of proto3 has a oneof of its own, behind the real ones."""
        names, written = list(self.oneofs), []
        for data, alone in self.fields:
            if alone is not None:
                data += _number(9, len(names)) + _number(17, 1)
                names.append(f"_{alone}")
            written.append(_bytes(2, data))
        parts = [_text(1, self.name), *written]
        parts += [_bytes(3, each) for each in self.nested] + [_bytes(4, each) for each in self.enums]
        return b"".join([*parts, *(_bytes(8, _text(1, each)) for each in names)])


class _Tokens:
    """The tokens of a text, one after the other."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._found = self._walk()
        self.kind, self.token, self.at = "", "", 0
        self.packed: bool | None = None
        self.next()

    def _walk(self) -> Iterator[tuple[str, str, int]]:
        at = 1 if self._text[:1] == "\ufeff" else 0
        while at < len(self._text):
            match = _TOKEN.match(self._text, at)
            if match is None:
                self.at = at
                self.wrong("a token", shown(self._text[at : at + 20]))
            if match.lastgroup != "space":
                yield str(match.lastgroup), match[0], at
            at = match.end()
        while True:
            yield "end", "", len(self._text)

    @property
    def line(self) -> int:
        return self._text.count("\n", 0, self.at) + 1

    def next(self) -> str:
        """Return the token, and go on behind it."""
        token = self.token
        self.kind, self.token, self.at = next(self._found)
        return token

    def takes(self, token: str) -> bool:
        """Step behind this token; return whether it is here."""
        if self.token != token or self.kind in ("text", "end"):
            return False
        self.next()
        return True

    def expect(self, token: str) -> None:
        if not self.takes(token):
            self.wrong(repr(token))

    def name(self) -> str:
        if self.kind != "name":
            self.wrong("a name")
        return self.next()

    def dotted(self) -> str:
        """A name with dots, which may begin with one."""
        parts = ["" if self.takes(".") else None]
        found = [part for part in parts if part is not None] + [self.name()]
        while self.takes("."):
            found.append(self.name())
        return ".".join(found)

    def string(self) -> str:
        if self.kind != "text":
            self.wrong("a text in quotes")
        found = ""
        while self.kind == "text":
            found += self.next()[1:-1]
        return found

    def integer(self) -> int:
        sign = -1 if self.takes("-") else 1
        if self.kind != "number" or _INTEGER.fullmatch(self.token) is None:
            self.wrong("a whole number")
        text = self.next()
        number = sign * int(text, 16 if text[:2] in ("0x", "0X") else 8 if text[0] == "0" else 10)
        if not -_MOST_INT - 1 <= number <= _MOST_INT:
            self.wrong("a number of 32 bits", str(number))
        return number

    def skip(self, *ends: str) -> str:
        """Go behind the next of these tokens that lies in no brackets, and return it."""
        depth = 0
        while depth or self.token not in ends or self.kind != "sign":
            if self.kind == "end":
                self.wrong(" or ".join(map(repr, ends)))
            if self.kind == "sign":
                depth += (self.token in _OPENING) - (self.token in _CLOSING)
            if depth < 0:
                self.wrong(" or ".join(map(repr, ends)))
            self.next()
        return self.next()

    def statements(self) -> Iterator[None]:
        """Stop at each statement between braces."""
        self.expect("{")
        while not self.takes("}"):
            if not self.takes(";"):
                yield

    def numbered(self) -> int:
        """The number of a field or a symbol, up to the end of its statement; then `packed` is its option."""
        self.expect("=")
        number = self.integer()
        self.packed = None
        more = self.takes("[")
        while more:
            if self.takes("packed") and self.takes("="):
                self.packed = self.token == "true"
            more = self.skip(",", "]") == ","
        self.expect(";")
        return number

    def wrong(self, expected: str, found: str | None = None) -> NoReturn:
        what = found or ("the end" if self.kind == "end" else shown(self.token, 40))
        raise InvalidInputError(
            ErrorCode.WRONG_SCHEMA,
            f"Protobuf schema as text, line {self.line}: found {what}, expected {expected}; give the .proto file as "
            "protoc takes it, or a descriptor set",
        )

    def unsupported(self, what: str) -> NoReturn:
        raise UnsupportedError(
            ErrorCode.UNSUPPORTED_SERDE,
            f"Protobuf schema as text, line {self.line}: found {what}; expected messages of proto2 or proto3 without "
            "groups; read the values as bytes",
        )


class _File:
    """The statements of a file."""

    def __init__(self, tokens: _Tokens) -> None:
        self.tokens = tokens
        self.proto3 = False

    def read(self, name: str) -> bytes:
        tokens, head, package = self.tokens, _text(1, name), b""
        messages: list[bytes] = []
        enums: list[bytes] = []
        if tokens.token == "edition":
            tokens.unsupported("an edition")
        if tokens.takes("syntax"):
            tokens.expect("=")
            syntax = tokens.string()
            if syntax not in ("proto2", "proto3"):
                tokens.unsupported(f"syntax {shown(syntax, 40)}")
            self.proto3 = syntax == "proto3"
            tokens.expect(";")
        while tokens.kind != "end":
            if tokens.takes(";"):
                continue
            word = tokens.name()
            if word == "package":
                package = _text(2, tokens.dotted())
                tokens.expect(";")
            elif word == "import":
                if tokens.kind == "name":
                    tokens.next()  # public or weak
                head += _text(3, tokens.string())
                tokens.expect(";")
            elif word == "message":
                messages.append(self._message(0))
            elif word == "enum":
                enums.append(self._enum())
            elif word in ("option", "service", "extend"):
                self._skip(word)
            else:
                tokens.wrong("message, enum, import, package, option, service or extend", shown(word, 40))
        parts = [_bytes(4, each) for each in messages] + [_bytes(5, each) for each in enums]
        return head + package + b"".join(parts) + (_text(12, "proto3") if self.proto3 else b"")

    def _skip(self, word: str) -> None:
        tokens = self.tokens
        if word == "option":
            if tokens.token == "message_set_wire_format":
                tokens.unsupported("message_set_wire_format")
            tokens.skip(";")
            return
        if word != "extend":
            tokens.name()
            tokens.expect("{")
            tokens.skip("}")
            return
        tokens.dotted()
        tokens.expect("{")
        while not tokens.takes("}"):  # a group here would be a message, and count among those of the file
            if tokens.token == "group":
                tokens.unsupported("a group")
            if tokens.kind == "end":
                tokens.wrong("'}'")
            if tokens.takes("["):
                tokens.skip("]")
                continue
            tokens.next()

    def _message(self, depth: int) -> bytes:
        tokens = self.tokens
        if depth >= _MOST_DEPTH:
            tokens.unsupported(f"messages nested deeper than {_MOST_DEPTH}")
        found = _Message(tokens.name())
        for _ in tokens.statements():
            word = tokens.token if tokens.kind == "name" else ""
            if word == "message":
                tokens.next()
                found.nested.append(self._message(depth + 1))
            elif word == "enum":
                tokens.next()
                found.enums.append(self._enum())
            elif word in ("extensions", "reserved"):
                tokens.skip(";")
            elif word in ("extend", "option"):
                tokens.next()
                self._skip(word)
            elif word == "oneof":
                tokens.next()
                self._oneof(found)
            else:
                self._field(found)
        return found.content()

    def _oneof(self, owner: _Message) -> None:
        tokens = self.tokens
        owner.oneofs.append(tokens.name())
        for _ in tokens.statements():
            if tokens.takes("option"):
                tokens.skip(";")
            else:
                self._field(owner, len(owner.oneofs) - 1)

    def _field(self, owner: _Message, oneof: int | None = None) -> None:
        tokens = self.tokens
        label = _LABELS.get(tokens.token) if tokens.kind == "name" else None
        if label is not None:
            if oneof is not None or (label == _REQUIRED and self.proto3):
                tokens.wrong("a field without a label")
            tokens.next()
        kind = tokens.dotted()
        if kind == "group":
            tokens.unsupported("a group")
        if kind == "map" and tokens.takes("<"):
            if label is not None or oneof is not None:
                tokens.wrong("a map without a label, outside of a oneof", "a map")
            key = _type_of(tokens.dotted())
            tokens.expect(",")
            value = _type_of(tokens.dotted())
            tokens.expect(">")
            name = tokens.name()
            number = tokens.numbered()
            entry = _Message(_entry_name(name))
            for place, (each, form) in enumerate((("key", key), ("value", value)), 1):
                entry.fields.append((_text(1, each) + _number(3, place) + _number(4, _OPTIONAL) + form, None))
            owner.nested.append(entry.content() + _bytes(7, _number(7, 1)))
            label, form = _REPEATED, _text(6, entry.name)
        else:
            if label is None and oneof is None and not self.proto3:
                tokens.wrong("optional, required or repeated before it, as proto2 has it", shown(kind, 40))
            form = _type_of(kind)
            name = tokens.name()
            number = tokens.numbered()
        alone = name if self.proto3 and label == _OPTIONAL else None
        data = _text(1, name) + _number(3, number) + _number(4, label or _OPTIONAL) + form
        if tokens.packed is not None:
            data += _bytes(8, _number(2, int(tokens.packed)))
        owner.fields.append((data if oneof is None else data + _number(9, oneof), alone))

    def _enum(self) -> bytes:
        tokens = self.tokens
        found = _text(1, tokens.name())
        for _ in tokens.statements():
            name = tokens.name()
            if name in ("option", "reserved") and tokens.token != "=":
                tokens.skip(";")
                continue
            found += _bytes(2, _text(1, name) + _number(2, tokens.numbered()))
        return found


def _type_of(name: str) -> bytes:
    """The field ``type``, or ``type_name``, of a ``FieldDescriptorProto``."""
    return _number(5, _SCALARS[name]) if name in _SCALARS else _text(6, name)


def _entry_name(name: str) -> str:
    """The name of the message of a map's entries, as protoc makes it."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_")) + "Entry"


def varint(number: int) -> bytes:
    """A number above or equal to 0 in the form of Protobuf."""
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def _number(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value & 0xFFFFFFFFFFFFFFFF)


def _bytes(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def _text(number: int, text: str) -> bytes:
    return _bytes(number, text.encode())
