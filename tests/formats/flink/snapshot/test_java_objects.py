"""Java's object streams, as logical types are written: hostile ones end in an error, quickly."""

from __future__ import annotations

import struct

import pytest
from support.flink.metadata_bytes import i32, utf

from statestore.formats.errors import CorruptError, UnsupportedError
from statestore.formats.flink.serializers.flink_types import Logical
from statestore.formats.flink.serializers.logical_types import UnknownLogicalType, read_logical_type
from statestore.formats.flink.snapshot.data_input import DataInput
from statestore.formats.flink.snapshot.java_objects import JavaEnum, JavaObject, classes_of_object, read_java_object

HEADER = b"\xac\xed\x00\x05"
LOGICAL = "org.apache.flink.table.types.logical."


def described(name: str, fields: list[tuple[str, str]], flags: int = 2, parent: bytes = b"\x70") -> bytes:
    """A class; fields of objects have a type name that is null."""
    made = b"\x72" + utf(name) + bytes(8) + bytes([flags]) + struct.pack(">H", len(fields))
    for code, field in fields:
        made += code.encode() + utf(field) + (b"\x70" if code in "[L" else b"")
    return made + b"\x78" + parent


def made_object(name: str, fields: list[tuple[str, str]], values: bytes, flags: int = 2) -> bytes:
    return b"\x73" + described(name, fields, flags) + values


def text(value: str) -> bytes:
    return b"\x74" + utf(value)


def array_type(element: bytes) -> bytes:
    return made_object(f"{LOGICAL}ArrayType", [("L", "elementType")], element)


def walk(data: bytes) -> object:
    source = DataInput(HEADER + data, "file")
    found = read_java_object(source)
    source.end()
    return found


def test_fields_of_parents_come_first() -> None:
    parent = described("x.Parent", [("I", "n"), ("L", "name")])
    kind = b"\x73" + described("x.Child", [("Z", "yes")], parent=parent)
    found = walk(kind + i32(7) + text("seven") + b"\x01")
    assert found == JavaObject("x.Child", {"n": 7, "name": "seven", "yes": True})


def test_a_reference_is_the_object_before() -> None:
    """Handles: class 0, object 1, text 2."""
    found = walk(made_object("x.Pair", [("L", "a"), ("L", "b")], text("once") + b"\x71" + i32(0x7E0002)))
    assert found == JavaObject("x.Pair", {"a": "once", "b": "once"})


def test_enums_and_what_objects_add_are_read() -> None:
    constant = b"\x7e" + described("x.Root", [], flags=0x12) + text("BIGINT")
    added = b"\x77\x02ab" + constant + b"\x78"
    found = walk(made_object("x.Bag", [], added, flags=3))
    assert found == JavaObject("x.Bag", {}, [b"ab", JavaEnum("x.Root", "BIGINT")])


@pytest.mark.parametrize(
    "data",
    [
        b"\x71" + i32(0x7E0000),
        b"\x79",
        b"\x7b",
        b"\x73\x70",
        b"\x75" + described("[J", []) + i32(2**31 - 1),
        b"\x75" + described("x.Y", []) + i32(0),
        b"\x73" + described("x.Y", [("Q", "odd")]),
        b"\x7c" + bytes([127]) + bytes(7),
        b"\x7a" + i32(-1),
        b"\x7e" + described("x.E", []) + b"\x70",
        made_object("x.Bag", [], b"\x77\x02", flags=3),
    ],
)
def test_what_is_no_object_is_damage(data: bytes) -> None:
    with pytest.raises(CorruptError, match="FLINK_METADATA"):
        walk(data)


def test_a_class_that_is_its_own_parent_is_damage() -> None:
    kind = described("x.Y", [], parent=b"\x71" + i32(0x7E0000))
    with pytest.raises(CorruptError, match="more than 100 parents"):
        walk(b"\x73" + kind)


def test_an_object_that_writes_itself_without_frame_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match=r"x\.Raw"):
        walk(made_object("x.Raw", [], b"", flags=4))


def test_deep_objects_are_refused_before_python_is() -> None:
    data = made_object("x.Link", [("L", "next")], b"")
    with pytest.raises(CorruptError, match="nested deeper than 100"):
        walk(data * 5000)


def test_arrays_of_arrays_become_logical_types() -> None:
    number = made_object(f"{LOGICAL}BigIntType", [], b"")
    found = read_logical_type(DataInput(HEADER + array_type(array_type(number)), "file"))
    assert found == Logical("ARRAY", children=(Logical("ARRAY", children=(Logical("BIGINT"),)),))


def test_a_type_that_contains_itself_is_refused() -> None:
    """Handles: class 0, object 1."""
    with pytest.raises(CorruptError, match="more than 64 levels"):
        read_logical_type(DataInput(HEADER + array_type(b"\x71" + i32(0x7E0001)), "file"))


def test_few_objects_that_stand_for_very_many_types_are_refused() -> None:
    """Maps whose value is their key again: 40 levels would be 2 to the 40 types. Handles: class 2 n, object 2 n + 1."""
    data = made_object(f"{LOGICAL}BigIntType", [], b"")
    for level in reversed(range(40)):
        key = b"\x71" + i32(0x7E0000 + 2 * (level + 1) + 1)
        data = made_object(f"{LOGICAL}MapType", [("L", "keyType"), ("L", "valueType")], data + key)
    with pytest.raises(CorruptError, match="20000 parts"):
        read_logical_type(DataInput(HEADER + data, "file"))


def test_an_unknown_logical_type_is_named_behind_its_object() -> None:
    source = DataInput(HEADER + made_object(f"{LOGICAL}NewType", [], b"") + b"rest", "file")
    with pytest.raises(UnknownLogicalType, match="NewType"):
        read_logical_type(source)
    assert source.take(4) == b"rest"


def test_the_classes_of_an_object_are_those_that_its_stream_describes() -> None:
    parent = described("x.Parent", [("L", "kind")])
    kind = b"\x73" + described("x.Child", [], parent=parent)
    source = DataInput(HEADER + kind + b"\x7e" + described("x.Kind", [], flags=0x12) + text("SAVEPOINT") + b"rest", "f")
    assert classes_of_object(source) == {"x.Child", "x.Parent", "x.Kind"}
    assert source.left == 4
    with pytest.raises(CorruptError, match=r"x\.Raw.*unknown length"):
        classes_of_object(DataInput(HEADER + made_object("x.Raw", [], b"", flags=4), "f"))
