"""Objects written by Java's ``ObjectOutputStream``, to find where they end and which classes they have.

No object is made of them. Source: the Java Object Serialization Specification, chapter 6.
"""

from __future__ import annotations

from dataclasses import dataclass

from statestore.formats.errors import shown
from statestore.formats.flink.snapshot.data_input import DataInput

MAX_DEPTH = 64
HEADER = bytes.fromhex("aced0005")

_NULL, _REFERENCE, _CLASS_DESCRIPTION, _OBJECT, _STRING, _ARRAY, _CLASS, _BLOCK, _END = range(0x70, 0x79)
_LONG_BLOCK, _LONG_STRING, _ENUM = 0x7A, 0x7C, 0x7E
_FIRST_HANDLE = 0x7E0000
_WRITE_METHOD, _SERIALIZABLE, _EXTERNALIZABLE, _BLOCK_DATA = 1, 2, 4, 8
_WIDTHS = {"B": 1, "C": 2, "D": 8, "F": 4, "I": 4, "J": 8, "S": 2, "Z": 1}
_REFERENCES = "L["


@dataclass(frozen=True)
class _Class:
    """A class: its flags, the type codes of its fields, and its superclass."""

    name: str
    flags: int
    fields: str
    parent: _Class | None
    depth: int


def skip_object(source: DataInput) -> frozenset[str]:
    """Move behind the header of a stream and the one object in it; return the names of all classes.

    Raises CorruptError FLINK_METADATA.
    """
    start = source.at
    found = source.take(min(len(HEADER), source.left), "a Java object")
    if found != HEADER:
        raise source.error(f"found {found.hex() or 'the end'}, expected a Java object ({HEADER.hex()})", start)
    walk = _Walk(source)
    walk.content(0)
    return frozenset(each.name for each in walk.handles if each is not None)


class _Walk:
    """A walk over one stream. ``handles`` are the things that later bytes refer to: classes, and None for others."""

    def __init__(self, source: DataInput) -> None:
        self.source = source
        self.handles: list[_Class | None] = []

    def content(self, depth: int) -> int:
        """Move behind an object, string, array and the like; return its type byte."""
        source = self.source
        if depth > MAX_DEPTH:
            raise source.error(f"found more than {MAX_DEPTH} Java objects inside each other, expected fewer")
        tag = source.u8("the type of a Java object")
        if tag in (_NULL, _END):
            pass
        elif tag == _REFERENCE:
            self._referred()
        elif tag == _STRING:
            self.handles.append(None)
            source.skip(source.u16("the length of a text"), "a text")
        elif tag == _LONG_STRING:
            self.handles.append(None)
            source.skip(source.i64("the length of a text"), "a text")
        elif tag == _BLOCK:
            source.skip(source.u8("the length of a block"), "a block of data")
        elif tag == _LONG_BLOCK:
            source.skip(source.i32("the length of a block"), "a block of data")
        elif tag == _CLASS_DESCRIPTION:
            source.at -= 1
            self._class(depth)
        elif tag in (_OBJECT, _ARRAY, _CLASS, _ENUM):
            kind = self._class(depth + 1)
            self.handles.append(None)
            self._body(tag, kind, depth + 1)
        else:
            raise source.error(f"found type {tag:#04x} of a Java object, expected 0x70 to 0x7e", source.at - 1)
        return tag

    def _body(self, tag: int, kind: _Class | None, depth: int) -> None:
        if kind is None:
            raise self.source.error("found a Java object without class, expected one")
        if tag == _ENUM:
            self.content(depth)
        elif tag == _ARRAY:
            self._array(kind, depth)
        elif tag == _OBJECT:
            chain = []
            at: _Class | None = kind
            while at is not None:
                chain.append(at)
                at = at.parent
            for each in reversed(chain):
                self._fields(each, depth)

    def _fields(self, kind: _Class, depth: int) -> None:
        if kind.flags & _EXTERNALIZABLE:
            if not kind.flags & _BLOCK_DATA:
                raise self.source.error(f"found class {shown(kind.name)} with data of unknown length, expected blocks")
            self._annotation(depth)
            return
        for code in kind.fields:
            if code in _REFERENCES:
                self.content(depth)
            else:
                self.source.skip(_WIDTHS[code], "a field")
        if kind.flags & _WRITE_METHOD:
            self._annotation(depth)

    def _array(self, kind: _Class, depth: int) -> None:
        code = kind.name[1:2]
        number = self.source.i32("the length of an array")
        width = 1 if code in _REFERENCES else _WIDTHS.get(code, 1)
        self.source.count(number, width, "elements of an array")
        if code in _WIDTHS:
            self.source.skip(number * width, "an array")
        else:
            for _ in range(number):
                self.content(depth)

    def _annotation(self, depth: int) -> None:
        while self.content(depth) != _END:
            pass

    def _class(self, depth: int) -> _Class | None:
        """Read the description of a class, a reference to one, or null."""
        source = self.source
        if depth > MAX_DEPTH:
            raise source.error(f"found more than {MAX_DEPTH} Java classes inside each other, expected fewer")
        tag = source.u8("the type of a Java class")
        if tag == _NULL:
            return None
        if tag == _REFERENCE:
            return self._referred()
        if tag != _CLASS_DESCRIPTION:
            raise source.error(f"found type {tag:#04x} of a Java class, expected 0x70 to 0x72", source.at - 1)
        name = source.utf("the name of a Java class")
        source.skip(8, "the version of a Java class")
        handle = len(self.handles)
        self.handles.append(None)
        flags = source.u8("the flags of a Java class")
        codes = []
        for _ in range(source.count(source.u16("fields"), 3, "fields")):
            codes.append(chr(source.u8("the type of a field")))
            if codes[-1] not in _WIDTHS and codes[-1] not in _REFERENCES:
                raise source.error(f"found type {codes[-1]!r} of a field, expected a letter of a type", source.at - 1)
            source.skip(source.u16("the length of a name"), "a name")
            if codes[-1] in _REFERENCES:
                self.content(depth + 1)
        self._annotation(depth + 1)
        parent = self._class(depth + 1)
        found = _Class(name, flags, "".join(codes), parent, parent.depth + 1 if parent else 0)
        if found.depth > MAX_DEPTH:
            raise source.error(f"found more than {MAX_DEPTH} superclasses of {shown(name)}, expected fewer")
        self.handles[handle] = found
        return found

    def _referred(self) -> _Class | None:
        """Read a reference to something before."""
        at = self.source.at
        number = self.source.i32("a reference") - _FIRST_HANDLE
        if not 0 <= number < len(self.handles):
            raise self.source.error(f"found a reference to object {number} of {len(self.handles)}, expected one", at)
        return self.handles[number]
