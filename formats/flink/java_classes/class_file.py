"""The parts of a class file that say how objects of the class are written: names, flags, fields and signatures.

Nothing is loaded or run, and no number of the file is trusted. Classes of Kotlin and Scala have the same form.
Source: The Java Virtual Machine Specification, chapter 4, "The class File Format".
"""

from __future__ import annotations

from dataclasses import dataclass

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.flink.snapshot.data_input import DataInput

STATIC, FINAL, TRANSIENT, INTERFACE, ABSTRACT = 0x8, 0x10, 0x80, 0x200, 0x400
SYNTHETIC, ENUM = 0x1000, 0x4000
MOST_BYTES = 16 << 20
"""Upper bound of a class file; real ones have up to 1 MB."""
_MAGIC = 0xCAFEBABE - (1 << 32)
UTF8, INTEGER, LONG, CLASS, STRING, FIELD, METHOD, NAME_AND_TYPE = 1, 3, 5, 7, 8, 9, 10, 12
_SIZES = {3: 4, 4: 4, 5: 8, 6: 8, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2, 17: 4, 18: 4, 19: 2, 20: 2}
"""The bytes of each kind of constant behind its tag, but for texts, which have a length."""
_TWO_PLACES = (5, 6)  # of a long and a double
_INITIALIZER, CONSTRUCTOR, LAZY = "<clinit>", "<init>", "$lzycompute"
"""Names of methods; a lazy val of Scala is computed by one with its name and `LAZY`."""


class ClassInput(DataInput):
    """A `FieldReader` of a class file, whose errors are InvalidInputError INVALID_OPTION and name the file."""

    __slots__ = ()

    def error(self, problem: str, at: int | None = None) -> InvalidInputError:  # type: ignore[override]
        place = self.at if at is None else at
        return InvalidInputError(
            ErrorCode.INVALID_OPTION,
            f"option classes: {self.path}: at byte {place} of {self.stop}: {problem}; expected a class file of Java, "
            "build or copy it again",
        )


class Constants:
    """The constants of a class, each found by its number; a text is decoded when it is asked for."""

    def __init__(self, source: ClassInput) -> None:
        self._source = source
        self._places: list[tuple[int, int]] = [(0, 0)]  # tag, and the position behind it
        count = source.u16("the number of constants")
        while len(self._places) < count:
            tag = source.u8("the kind of a constant")
            size = source.u16("the length of a text") if tag == UTF8 else _SIZES.get(tag)
            if size is None:
                raise source.error(f"found constant of kind {tag}", source.at - 1)
            self._places.append((tag, source.at))
            source.skip(size, "a constant")
            if tag in _TWO_PLACES:
                self._places.append((0, 0))

    def kind(self, number: int) -> int:
        """The tag of a constant, 0 where there is none of this number."""
        return self._places[number][0] if number < len(self._places) else 0

    def text(self, number: int) -> str:
        at = self._at(number, UTF8)
        size = int.from_bytes(self._source.data[at - 2 : at])
        return self._source.modified_utf8(bytes(self._source.data[at : at + size]), "a text", at)

    def class_name(self, number: int) -> str:
        """The binary name of a class, "" for none."""
        return self.text(self._number(self._at(number, CLASS))).replace("/", ".") if number else ""

    def string(self, number: int) -> str:
        return self.text(self._number(self._at(number, STRING)))

    def integer(self, number: int) -> int:
        at = self._at(number, INTEGER)
        return int.from_bytes(self._source.data[at : at + 4], signed=True)

    def long(self, number: int) -> int:
        at = self._at(number, LONG)
        return int.from_bytes(self._source.data[at : at + 8], signed=True)

    def field(self, number: int) -> tuple[str, str]:
        """The class of a field that code names, and its name."""
        owner, name, _ = self.member(number, FIELD)
        return owner, name

    def member(self, number: int, kind: int) -> tuple[str, str, str]:
        """The class of a field or a method that code names, its name and its descriptor."""
        at = self._at(number, kind)
        named = self._at(self._number(at + 2), NAME_AND_TYPE)
        return self.class_name(self._number(at)), self.text(self._number(named)), self.text(self._number(named + 2))

    def _number(self, at: int) -> int:
        return int.from_bytes(self._source.data[at : at + 2])

    def _at(self, number: int, kind: int) -> int:
        found = self.kind(number)
        if found != kind:
            raise self._source.error(f"found constant {number} of kind {found}, expected kind {kind}")
        return self._places[number][1]


@dataclass(frozen=True)
class FieldOfClass:
    """A field: ``signature`` is that with generic types, "" for none, ``annotations`` are descriptors of types."""

    name: str
    descriptor: str
    flags: int
    signature: str = ""
    annotations: tuple[str, ...] = ()


@dataclass(frozen=True)
class ClassFile:
    """A class. ``superclass`` is "" for ``java.lang.Object``, ``initializer`` the code that sets its static fields.

    ``codes`` are the names and the code of constructors and of methods that compute lazy vals.
    """

    name: str
    superclass: str
    interfaces: tuple[str, ...]
    flags: int
    fields: tuple[FieldOfClass, ...]
    constants: Constants
    signature: str = ""
    annotations: tuple[str, ...] = ()
    initializer: bytes = b""
    codes: tuple[tuple[str, bytes], ...] = ()


def read_class_file(data: bytes, path: str) -> ClassFile:
    """Parse a class file, which ``path`` names in errors. Raises InvalidInputError INVALID_OPTION."""
    source = ClassInput(data, path)
    found = source.i32("the first four bytes")
    if found != _MAGIC:
        raise source.error(f"found bytes {found & 0xFFFFFFFF:08x}, expected cafebabe", 0)
    source.skip(4, "the version")
    constants = Constants(source)
    flags = source.u16("the flags")
    name, superclass = constants.class_name(source.u16("the class")), constants.class_name(source.u16("the superclass"))
    interfaces = tuple(constants.class_name(source.u16("an interface")) for _ in range(source.u16("interfaces")))
    fields = []
    for _ in range(source.u16("the number of fields")):
        own = source.u16("the flags of a field")
        called, descriptor = constants.text(source.u16("a name")), constants.text(source.u16("a descriptor"))
        told = _attributes(source, constants)
        own |= SYNTHETIC if "Synthetic" in told else 0  # as compilers before Java 5 mark it
        fields.append(FieldOfClass(called, descriptor, own, *_generic(told, constants, path)))
    initializer, codes = b"", []
    for _ in range(source.u16("the number of methods")):
        source.skip(2, "the flags of a method")
        called = constants.text(source.u16("a name"))
        source.skip(2, "a descriptor")
        told = _attributes(source, constants)
        if called in (_INITIALIZER, CONSTRUCTOR) or called.endswith(LAZY):
            code = ClassInput(told.get("Code", bytes(8)), path)
            code.skip(4, "the sizes of a frame")
            codes.append((called, code.sized("the code of a method")))
            if called == _INITIALIZER:
                _, initializer = codes.pop()
    told = _attributes(source, constants)
    source.end()
    flags = _inner_flags(told.get("InnerClasses", b"\0\0"), name, constants, path) or flags
    signature, annotations = _generic(told, constants, path)
    return ClassFile(
        name, superclass, interfaces, flags, tuple(fields), constants, signature, annotations, initializer, tuple(codes)
    )


def _attributes(source: ClassInput, constants: Constants) -> dict[str, bytes]:
    """The attributes of a class, a field or a method, by name."""
    found: dict[str, bytes] = {}
    for _ in range(source.u16("the number of attributes")):
        name = constants.text(source.u16("the name of an attribute"))
        found[name] = source.sized(f"attribute {name}")
    return found


def _inner_flags(data: bytes, name: str, constants: Constants, path: str) -> int:
    """The flags of a class inside another, which are those that its source has; 0 for one that is in none.

    Reflection, and so Kryo, takes these: old compilers mark a class without a name as final, which it is not there.
    """
    source = ClassInput(data, path)
    for _ in range(source.u16("the number of inner classes")):
        inner = source.u16("an inner class")
        source.skip(4, "the outer class and the name")
        flags = source.u16("the flags of an inner class")
        if constants.class_name(inner) == name:
            return flags
    return 0


def _generic(told: dict[str, bytes], constants: Constants, path: str) -> tuple[str, tuple[str, ...]]:
    """The signature and the types of the annotations among attributes."""
    signature = ""
    if "Signature" in told:
        signature = constants.text(ClassInput(told["Signature"], path).u16("the number of a signature"))
    if "RuntimeVisibleAnnotations" not in told:
        return signature, ()
    return signature, tuple(_annotations(ClassInput(told["RuntimeVisibleAnnotations"], path), constants))


def _annotations(source: ClassInput, constants: Constants) -> list[str]:
    """The types of annotations."""
    found = []
    for _ in range(source.u16("the number of annotations")):
        found.append(constants.text(source.u16("the type of an annotation")))
        _skip_elements(source, [source.u16("the number of elements")])
    return found


_MOST_NESTED = 64  # annotations and arrays in one another


def _skip_elements(source: ClassInput, left: list[int]) -> None:
    """Move behind the elements of an annotation, of which ``left`` has the number.

    While an annotation or array is read, it has the number of those that follow in each: of an annotation n names and
    values, of an array n values as -1 - n.
    """
    while left:
        if left[-1] in (0, -1):
            left.pop()
            continue
        if left[-1] > 0:
            source.skip(2, "the name of an element")
            left[-1] -= 1
        else:
            left[-1] += 1
        tag = chr(source.u8("the kind of an element"))
        if tag in "BCDFIJSZsc":
            source.skip(2, "a constant")
        elif tag == "e":
            source.skip(4, "a constant of an enum")
        elif tag == "@":
            source.skip(2, "the type of an annotation")
            left.append(source.u16("the number of elements"))
        elif tag == "[":
            left.append(-1 - source.u16("the number of elements"))
        else:
            raise source.error(f"found an element of kind {tag!r} in an annotation", source.at - 1)
        if len(left) > _MOST_NESTED:
            raise source.error(f"found annotations in one another more than {_MOST_NESTED} times")
