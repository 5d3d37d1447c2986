"""The constants of an enum in the order of their numbers, from the code that makes them.

Compilers of Java and Kotlin make each constant by its constructor, with its name and its number first. The order of the
fields is the same, unless a tool has sorted or renamed them. Where code of another form makes the constants, their
numbers are not known.
"""

from __future__ import annotations

from statestore.formats.flink.java_classes.class_file import ENUM, INTEGER, STRING, ClassFile

_LDC, _LDC_W, _DUP, _NEW, _PUT_STATIC = 0x12, 0x13, 0x59, 0xBB, 0xB3
_BIPUSH, _SIPUSH, _ICONST_0, _ICONST_5 = 0x10, 0x11, 0x03, 0x08
_TABLE_SWITCH, _LOOKUP_SWITCH, _WIDE, _IINC = 0xAA, 0xAB, 0xC4, 0x84


def _sizes() -> dict[int, int]:
    """The bytes of each instruction; 1 for those that are not listed."""
    found = dict.fromkeys((_BIPUSH, _LDC, *range(0x15, 0x1A), *range(0x36, 0x3B), 0xA9, 0xBC), 2)
    two = (_SIPUSH, _LDC_W, 0x14, _IINC, *range(0x99, 0xA9), *range(0xB2, 0xB9), _NEW, 0xBD, 0xC0, 0xC1, 0xC6, 0xC7)
    found |= dict.fromkeys(two, 3)
    return found | {0xB9: 5, 0xBA: 5, 0xC5: 4, 0xC8: 5, 0xC9: 5}


_SIZES = _sizes()


def constants_of(found: ClassFile) -> tuple[str, ...] | None:
    """The names of the constants of an enum by their numbers, None where the code does not say them for sure."""
    fields = {each.name for each in found.fields if each.flags & ENUM}
    made: dict[str, tuple[str, int]] = {}  # name and number, by field
    pending: tuple[str, int] | None = None
    code, at = found.initializer, 0
    while at < len(code):
        size = instruction_size(code, at)
        if size is None or at + size > len(code):
            return None
        if code[at] == _NEW and pending is None:
            pending = _made_at(found, code, at)
        elif code[at] == _PUT_STATIC:
            field = _field_at(found, code, at)
            if field in fields:
                if pending is None or field in made:
                    return None
                made[field], pending = pending, None
        at += size
    ordered = sorted(made.values(), key=lambda each: each[1])
    names = tuple(name for name, _ in ordered)
    if set(made) != fields or [number for _, number in ordered] != list(range(len(fields))):
        return None
    return names if len(set(names)) == len(names) else None


def instruction_size(code: bytes, at: int) -> int | None:
    """The bytes of the instruction at a position, None where it has none of its form."""
    kind = code[at]
    if kind == _WIDE:
        return 6 if code[at + 1 : at + 2] == bytes([_IINC]) else 4
    if kind not in (_TABLE_SWITCH, _LOOKUP_SWITCH):
        return _SIZES.get(kind, 1)
    first = (at + 4) & ~3  # behind zeros up to a multiple of four
    numbers = [int.from_bytes(code[each : each + 4], signed=True) for each in range(first, first + 12, 4)]
    cases = numbers[2] - numbers[1] + 1 if kind == _TABLE_SWITCH else 2 * numbers[1]
    if cases < 0:
        return None
    return first + (12 if kind == _TABLE_SWITCH else 8) + 4 * cases - at


def _made_at(found: ClassFile, code: bytes, at: int) -> tuple[str, int] | None:
    """The name and the number of the constant that code from a position on makes: new, dup, the name, the number.

    A constant with a body is of a class inside the enum.
    """
    constants = found.constants
    made = constants.class_name(int.from_bytes(code[at + 1 : at + 3]))
    if (made != found.name and not made.startswith(f"{found.name}$")) or code[at + 3 : at + 4] != bytes([_DUP]):
        return None
    name, at = _pushed(found, code, at + 4, STRING)
    number, _ = _pushed(found, code, at, INTEGER)
    return (name, number) if isinstance(name, str) and isinstance(number, int) else None


def _pushed(found: ClassFile, code: bytes, at: int, kind: int) -> tuple[str | int | None, int]:
    """The text or number that an instruction pushes, None for others, and the position behind the instruction."""
    sign, low, both = code[at : at + 1], code[at + 1 : at + 2], code[at + 1 : at + 3]
    if not sign:
        return None, at
    if sign[0] in (_LDC, _LDC_W):
        size = 2 if sign[0] == _LDC else 3
        number = int.from_bytes(low if sign[0] == _LDC else both)
        if found.constants.kind(number) != kind:
            return None, at
        return found.constants.string(number) if kind == STRING else found.constants.integer(number), at + size
    if kind == STRING:
        return None, at
    if _ICONST_0 <= sign[0] <= _ICONST_5:
        return sign[0] - _ICONST_0, at + 1
    if sign[0] == _BIPUSH:
        return int.from_bytes(low, signed=True), at + 2
    return (int.from_bytes(both, signed=True), at + 3) if sign[0] == _SIPUSH else (None, at)


def _field_at(found: ClassFile, code: bytes, at: int) -> str:
    """The name of the field of the class that an instruction sets, "" for those of others."""
    owner, name = found.constants.field(int.from_bytes(code[at + 1 : at + 3]))
    return name if owner == found.name else ""
