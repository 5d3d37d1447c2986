"""Parts that only class files of Scala have: objects, values of an ``Enumeration``, and lazy vals.

An ``object`` is the only instance of a class whose name ends with $, in its static field ``MODULE$``. A lazy val is a
field, and a bit in a field ``bitmap$0`` says whether it has its value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from statestore.formats.flink.java_classes.class_file import (
    CONSTRUCTOR,
    FIELD,
    INTEGER,
    LAZY,
    LONG,
    METHOD,
    STATIC,
    STRING,
    ClassFile,
)
from statestore.formats.flink.java_classes.enum_constants import instruction_size
from statestore.formats.flink.serializers.job_classes import JobField

ENUMERATION = "scala.Enumeration"
_VALUE = "Lscala/Enumeration$Value;"
_BITMAP = "bitmap$"
_MOST_VALUES = 1 << 12
"""Upper bound of the IDs of an Enumeration; larger ones are not known."""
_ALOAD_0, _RETURN, _GET_FIELD, _PUT_FIELD, _PUT_STATIC = 0x2A, 0xB1, 0xB4, 0xB5, 0xB3
_INVOKE_VIRTUAL, _INVOKE_SPECIAL, _IAND, _LAND, _IFEQ, _IFNE = 0xB6, 0xB7, 0x7E, 0x7F, 0x99, 0x9A
_ICONST_0, _ICONST_5, _LCONST_0, _LCONST_1, _BIPUSH, _SIPUSH = 0x03, 0x08, 0x09, 0x0A, 0x10, 0x11
_LDC, _LDC_W, _LDC2_W = 0x12, 0x13, 0x14


def is_object(file: ClassFile) -> bool:
    """Return whether the class is that of an ``object``."""
    own = f"L{file.name.replace('.', '/')};"
    return file.name.endswith("$") and any(
        each.name == "MODULE$" and each.flags & STATIC and each.descriptor == own for each in file.fields
    )


def object_name(class_name: str) -> str:
    """The name of an ``object`` without its package and what it is in."""
    return re.split(r"[.$]", class_name.rstrip("$"))[-1]


def with_lazy(file: ClassFile, fields: Sequence[JobField]) -> tuple[JobField, ...] | None:
    """Fields with the bits of lazy vals; None where one is not known."""
    lazy = {name.removesuffix(LAZY): code for name, code in file.codes if name.endswith(LAZY)}
    names = {each.name for each in fields}
    found = []
    for each in fields:
        if each.name in lazy:
            place = _bit_of(file, lazy[each.name])
            if place is None or place[0] not in names:
                return None
            found.append(replace(each, bitmap=place[0], bit=place[1]))
        else:
            found.append(each)
    return tuple(found)


def _bit_of(file: ClassFile, code: bytes) -> tuple[str, int] | None:
    """The field and the bit in it that a method tests before it computes a lazy val."""
    field, mask = "", 1
    for at, kind in _instructions(code):
        if not field:
            if kind == _GET_FIELD:
                owner, name, _ = file.constants.member(_number(code, at), FIELD)
                field = name if owner == file.name and name.startswith(_BITMAP) else ""
        elif kind in (_IFEQ, _IFNE, _IAND, _LAND):
            return (field, mask) if mask else None
        else:
            pushed = _pushed(file, code, at, kind)
            if pushed is None or isinstance(pushed, str):
                return None
            mask = pushed
    return None


def values_of(file: ClassFile) -> tuple[str, ...] | None:
    """The values of an Enumeration by their IDs, as ``toString`` shows them; None where the code does not say them.

    The constructor has to do nothing but to make the values, one by one, each for a val.
    """
    constructors = [code for name, code in file.codes if name == CONSTRUCTOR]
    fields = {each.name for each in file.fields if each.descriptor == _VALUE and not each.flags & STATIC}
    if len(constructors) != 1:
        return None
    values: dict[int, str] = {}
    made: set[str] = set()
    next_id, waiting = 0, False
    name = ""
    given: list[int | str] = []
    for at, kind in _instructions(constructors[0]):
        if kind in (_ALOAD_0, _RETURN, _PUT_STATIC):
            continue
        if kind == _INVOKE_SPECIAL:
            owner, called, descriptor = file.constants.member(_number(constructors[0], at), METHOD)
            if (owner, called) != (ENUMERATION, CONSTRUCTOR) or descriptor not in ("()V", "(I)V") or made:
                return None
            next_id = _id_in(given, 0)
            given = []
        elif kind == _INVOKE_VIRTUAL:
            owner, called, descriptor = file.constants.member(_number(constructors[0], at), METHOD)
            form = re.fullmatch(r"\((I?)((?:Ljava/lang/String;)?)\)", descriptor.removesuffix(_VALUE))
            if owner != file.name or called != "Value" or form is None or waiting:
                return None
            if [type(each) for each in given] != [int] * bool(form[1]) + [str] * bool(form[2]):
                return None
            next_id, waiting = _id_in(given, next_id), True
            name = next((each for each in given if isinstance(each, str)), "")
            given = []
        elif kind == _PUT_FIELD:
            owner, field, _ = file.constants.member(_number(constructors[0], at), FIELD)
            is_new = owner == file.name and field in fields and field not in made
            if not waiting or not is_new or next_id in values or not 0 <= next_id < _MOST_VALUES:
                return None
            values[next_id], waiting = name or field, False
            made.add(field)
            next_id += 1
        else:
            pushed = _pushed(file, constructors[0], at, kind)
            if pushed is None:
                return None
            given.append(pushed)
    if made != fields or not made or waiting:
        return None
    return tuple(values.get(number, "") for number in range(max(values) + 1))


def _id_in(given: list[int | str], default: int) -> int:
    return next((each for each in given if isinstance(each, int)), default)


def _instructions(code: bytes) -> Iterator[tuple[int, int]]:
    """The positions and kinds of instructions, up to the first that has no form."""
    at = 0
    while at < len(code):
        size = instruction_size(code, at)
        if size is None or at + size > len(code):
            yield at, -1
            return
        yield at, code[at]
        at += size


def _number(code: bytes, at: int) -> int:
    return int.from_bytes(code[at + 1 : at + 3])


def _pushed(file: ClassFile, code: bytes, at: int, kind: int) -> int | str | None:
    """The number or text that an instruction pushes, None for others."""
    constants = file.constants
    if _ICONST_0 <= kind <= _ICONST_5:
        return kind - _ICONST_0
    if kind in (_LCONST_0, _LCONST_1):
        return kind - _LCONST_0
    if kind in (_BIPUSH, _SIPUSH):
        return int.from_bytes(code[at + 1 : at + (2 if kind == _BIPUSH else 3)], signed=True)
    if kind in (_LDC, _LDC_W, _LDC2_W):
        number = code[at + 1] if kind == _LDC else _number(code, at)
        tag = constants.kind(number)
        if tag == STRING:
            return constants.string(number)
        if tag in (INTEGER, LONG):
            return constants.integer(number) if tag == INTEGER else constants.long(number)
    return None
