"""Walking Java's object serialization stream: what an object holds, as plain data. No class is ever loaded or made.

Source: the Java Object Serialization Specification, chapter 6 (protocol version 2). Flink writes objects of its own
this way into the snapshots of SQL's serializers, each as a stream with its own header.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import UnsupportedError, shown
from statestore.formats.flink.snapshot.data_input import DataInput

MAX_DEPTH = 100
_HEADER = b"\xac\xed\x00\x05"
_NULL, _REFERENCE, _CLASS_DESC, _OBJECT, _STRING, _ARRAY, _CLASS, _BLOCK, _END, _RESET = range(0x70, 0x7A)
_LONG_BLOCK, _EXCEPTION, _LONG_STRING, _PROXY, _ENUM = range(0x7A, 0x7F)
_FIRST_HANDLE = 0x7E0000
_WRITE_METHOD, _SERIALIZABLE, _EXTERNALIZABLE, _BLOCK_DATA = 1, 2, 4, 8
_WIDTHS = {"B": 1, "C": 2, "D": 8, "F": 4, "I": 4, "J": 8, "S": 2, "Z": 1, "L": 1, "[": 1}


@dataclass
class JavaClass:
    """A description of a class: its name, its own fields as (type code, name), and its parent's description."""

    name: str
    flags: int = 0
    fields: tuple[tuple[str, str], ...] = ()
    parent: JavaClass | None = None


@dataclass
class JavaObject:
    """An object: fields of its class and all parents by name, and what its ``writeObject`` added."""

    class_name: str
    fields: dict[str, Any] = field(default_factory=dict)
    added: list[Any] = field(default_factory=list)


@dataclass
class JavaEnum:
    """A constant of an enum."""

    class_name: str
    constant: str


class _Unframed(Exception):
    """An object that writes itself without a frame, so that its end is unknown."""

    def __init__(self, class_name: str) -> None:
        super().__init__(class_name)
        self.class_name = class_name


def read_java_object(data: DataInput) -> Any:
    """The object of the stream that starts at the position of ``data``, which is moved behind it.

    An object is a `JavaObject`, a `JavaEnum`, a `JavaClass`, a text, a number, a list (an array) or None. Objects that
    are met twice are one object in Python, so the result can have cycles. Raises CorruptError FLINK_METADATA where the
    bytes do not follow the grammar or nest deeper than 100 objects, UnsupportedError FLINK_UNSUPPORTED for an object
    that writes itself without any frame.
    """
    try:
        return _opened(data).content()
    except _Unframed as error:
        raise UnsupportedError(
            ErrorCode.FLINK_UNSUPPORTED,
            f"{data.path}: the Java object of class {error.class_name} at byte {data.at} has no frame, so nothing "
            "behind it can be read; take the savepoint without this type",
        ) from None


def classes_of_object(data: DataInput) -> frozenset[str]:
    """Move behind an object as `read_java_object`; return the names of all classes that its stream describes.

    Raises CorruptError FLINK_METADATA, also for an object that writes itself without any frame.
    """
    stream = _opened(data)
    try:
        stream.content()
    except _Unframed as error:
        found = shown(error.class_name)
        raise data.error(f"found class {found} with data of unknown length, expected blocks") from None
    return frozenset(each.name for each in stream.handles if isinstance(each, JavaClass))


def _opened(data: DataInput) -> _Stream:
    start = data.at
    header = data.take(min(len(_HEADER), data.left), "the header of a Java object")
    if header != _HEADER:
        raise data.error(f"found {header.hex() or 'the end'}, expected a Java object ({_HEADER.hex()})", start)
    return _Stream(data)


class _Stream:
    def __init__(self, data: DataInput) -> None:
        self.data = data
        self.handles: list[Any] = []
        self.depth = 0

    def content(self) -> Any:
        with self.deeper():
            tag = self.data.u8("a tag of a Java object")
            if tag == _NULL:
                return None
            if tag == _REFERENCE:
                return self.referred()
            if tag in (_CLASS_DESC, _PROXY):
                return self.described(tag)
            if tag == _OBJECT:
                return self.object()
            if tag in (_STRING, _LONG_STRING):
                return self.text(tag)
            if tag == _ARRAY:
                return self.array()
            if tag == _CLASS:
                kind = self.class_description()
                self.handles.append(kind)
                return kind
            if tag == _ENUM:
                return self.enum()
            if tag in (_BLOCK, _LONG_BLOCK):
                return self.block(tag)
            raise self.wrong_tag(tag)

    def object(self) -> JavaObject:
        kind = self.expect_class("an object")
        made = JavaObject(kind.name)
        self.handles.append(made)
        for part in reversed(self.lineage(kind)):
            if part.flags & _SERIALIZABLE:
                for code, name in part.fields:
                    made.fields[name] = self.value(code)
                if part.flags & _WRITE_METHOD:
                    made.added += self.until_end()
            elif part.flags & _EXTERNALIZABLE:
                if not part.flags & _BLOCK_DATA:
                    raise _Unframed(part.name)
                made.added += self.until_end()
        return made

    def lineage(self, kind: JavaClass) -> list[JavaClass]:
        """A class and its parents; a stream may claim that a class is its own parent."""
        found: list[JavaClass] = []
        part: JavaClass | None = kind
        while part is not None:
            if len(found) >= MAX_DEPTH:
                raise self.data.error(f"found Java class {kind.name} with more than {MAX_DEPTH} parents")
            found.append(part)
            part = part.parent
        return found

    def until_end(self) -> list[Any]:
        """Walk over all that ``writeObject`` added, up to the tag that ends it."""
        found: list[Any] = []
        while self.data.left and self.data.data[self.data.at] != _END:
            found.append(self.content())
        self.data.u8("the end of a Java object")
        return found

    def class_description(self) -> JavaClass | None:
        tag = self.data.u8("a tag of a Java class")
        if tag == _NULL:
            return None
        if tag == _REFERENCE:
            found = self.referred()
            if not isinstance(found, JavaClass):
                raise self.data.error("found a reference to an object, expected one to a Java class")
            return found
        if tag in (_CLASS_DESC, _PROXY):
            with self.deeper():
                return self.described(tag)
        raise self.wrong_tag(tag)

    def expect_class(self, of: str) -> JavaClass:
        found = self.class_description()
        if found is None:
            raise self.data.error(f"found no class for {of} in a Java object")
        return found

    def described(self, tag: int) -> JavaClass:
        data = self.data
        if tag == _PROXY:
            kind = JavaClass("a proxy", _SERIALIZABLE)
            self.handles.append(kind)
            number = data.count(data.i32("the number of interfaces"), 2, "interfaces")
            for _ in range(number):
                data.utf("an interface")
        else:
            kind = JavaClass(data.utf("the name of a Java class"))
            data.skip(8, "the version of a Java class")
            self.handles.append(kind)
            kind.flags = data.u8("the flags of a Java class")
            number = data.count(data.u16("the number of fields"), 3, "fields")
            kind.fields = tuple(self.field() for _ in range(number))
        self.until_end()
        kind.parent = self.class_description()
        return kind

    def field(self) -> tuple[str, str]:
        code = chr(self.data.u8("the type of a field"))
        if code not in _WIDTHS:
            raise self.data.error(f"found type {code!r} of a field of a Java class", self.data.at - 1)
        name = self.data.utf("the name of a field")
        if code in "[L":
            self.content()  # the type's name
        return code, name

    def value(self, code: str) -> Any:
        data = self.data
        if code == "I":
            return data.i32("a field of a Java object")
        if code == "Z":
            return data.u8("a field of a Java object") != 0
        if code in "[L":
            return self.content()
        return data.take(_WIDTHS[code], "a field of a Java object")  # nothing here needs its number

    def array(self) -> list[Any]:
        kind = self.expect_class("an array")
        made: list[Any] = []
        self.handles.append(made)
        code = kind.name[1:2]
        if kind.name[:1] != "[" or code not in _WIDTHS:
            raise self.data.error(f"found Java class {kind.name[:80]!r} of an array")
        number = self.data.count(self.data.i32("the length of an array"), _WIDTHS[code], "elements of an array")
        if code in "[L":
            made += (self.content() for _ in range(number))
        else:
            self.data.skip(number * _WIDTHS[code], "an array")  # numbers: nothing here needs them
        return made

    def enum(self) -> JavaEnum:
        made = JavaEnum(self.expect_class("an enum").name, "")
        self.handles.append(made)
        constant = self.content()
        if not isinstance(constant, str):
            raise self.data.error("found an object for the constant of a Java enum, expected a text")
        made.constant = constant
        return made

    def text(self, tag: int) -> str:
        place = len(self.handles)
        self.handles.append("")
        if tag == _STRING:
            found = self.data.utf("a text of a Java object")
        else:
            size = self.data.i64("the length of a text")
            found = self.data.take(size, "a text").decode("utf-8", "replace")
        self.handles[place] = found
        return found

    def block(self, tag: int) -> bytes:
        size = self.data.u8("the length of a block") if tag == _BLOCK else self.data.i32("the length of a block")
        return self.data.take(size, "a block of a Java object")

    def referred(self) -> Any:
        number = self.data.i32("a reference in a Java object") - _FIRST_HANDLE
        if not 0 <= number < len(self.handles):
            raise self.data.error(f"found a reference to object {number} of {len(self.handles)}", self.data.at - 4)
        return self.handles[number]

    def wrong_tag(self, tag: int) -> Exception:
        return self.data.error(f"found tag {tag:#04x} in a Java object", self.data.at - 1)

    @contextmanager
    def deeper(self) -> Iterator[None]:
        if self.depth >= MAX_DEPTH:
            raise self.data.error(f"found Java objects nested deeper than {MAX_DEPTH} levels")
        self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1
