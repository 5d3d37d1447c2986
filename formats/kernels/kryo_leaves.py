"""Objects of Kryo that are lists of leaves, such as sets of bits, numbers, and leaves whose parts are objects.

Written for numba as ``kryo_walk`` is. A list returns the entry behind it and the position behind it in the data, or
-SHORT, -WRONG, -FULL or -OPAQUE. ``keep``: write the list to the tape, from entry ``n`` on.
"""

from __future__ import annotations

from typing import Any

from statestore.formats.kernels.flink_steps import FULL, OPAQUE, SHORT, WRONG
from statestore.formats.kernels.kryo_forms import (
    BEHIND,
    BIG_INT,
    BIG_INTEGER,
    BOOL,
    BYTE,
    CHAR,
    CONSTANT,
    DOUBLE,
    ENUMERATION,
    FLAG,
    INT,
    LIST,
    LOCAL_DATE,
    LOCAL_TIME,
    LONG,
    MAYBE,
    MORE,
    NULL,
    OFFSET,
    PARENT,
    SHORT_FORM,
    TAG,
    UNSIGNED,
    VALUE,
    VALUE_OF,
)
from statestore.formats.kernels.kryo_parts import (
    class_form,
    field_number,
    fixed,
    local_date,
    local_time,
    maybe,
    signed,
    varint,
    varlong,
)

_MOST_BIT = 0x7FFFFFFF


def put(tape: Any, n: int, tag: int, value: int, more: int, parent: int) -> int:
    """Write an entry, and return the number of the next one."""
    tape[TAG, n], tape[VALUE, n], tape[MORE, n], tape[PARENT, n], tape[BEHIND, n] = tag, value, more, parent, n + 1
    return n + 1


def put_part(tape: Any, n: int, part: int, parent: int) -> int:
    """Write the date or the time of day of a `date_time` as a value of its own, and return the next entry's number.

    ``part`` is what the references have for it: -2 less twice the entry of the whole, and 1 less for the time.
    """
    whole = (-2 - part) >> 1
    if (-2 - part) & 1 == 1:
        return put(tape, n, LOCAL_TIME, 0, int(tape[MORE, whole]), parent)
    return put(tape, n, LOCAL_DATE, int(tape[VALUE, whole]), 0, parent)


def repeat(tape: Any, source: int, n: int, parent: int) -> int:
    """Write an entry and all that it contains once more, from entry ``n`` on, and return the number of the next one.

    ``source`` is the entry, or below -1 a part as in `put_part`.
    """
    if source < -1:
        return put_part(tape, n, source, parent)
    size = int(tape[BEHIND, source]) - source
    for k in range(size):
        tape[TAG, n + k] = tape[TAG, source + k]
        tape[VALUE, n + k] = tape[VALUE, source + k]
        tape[MORE, n + k] = tape[MORE, source + k]
        tape[PARENT, n + k] = tape[PARENT, source + k] - source + n
        tape[BEHIND, n + k] = tape[BEHIND, source + k] - source + n
    tape[PARENT, n] = parent
    return n + size


def bits(data: Any, at: int, end: int, is_old: bool, keep: bool, tape: Any, n: int, parent: int) -> tuple[int, int]:
    """The numbers of the bits that are 1: varint count | longs of 64 bits."""
    size, at = varint(data, at, end, 5)
    if at < 0:
        return n, at
    if size > (end - at) // 8:
        return n, -SHORT
    if keep:
        inner, room = n, tape.shape[1]
        n = put(tape, n, LIST, 0, 0, parent)
        for k in range(64 * size):
            byte = at + (k >> 6 << 3) + (7 - (k >> 3 & 7) if is_old else k >> 3 & 7)
            if int(data[byte]) >> (k & 7) & 1 == 1:
                if n >= room:
                    return n, -FULL
                n = put(tape, n, INT, k, 0, inner)
        tape[BEHIND, inner] = n
    return n, at + size * 8


def deltas(data: Any, at: int, end: int, keep: bool, tape: Any, n: int, parent: int) -> tuple[int, int]:
    """The numbers of the bits that are 1: varint count | the largest | each as its distance to the one before."""
    size, at = varint(data, at, end, 5)
    if at < 0:
        return n, at
    if size > 0:
        _, at = varint(data, at, end, 5)
        if at < 0:
            return n, at
    if size > end - at:
        return n, -SHORT
    inner, value = n, 0
    if keep:
        if n + size >= tape.shape[1]:
            return n, -FULL
        n = put(tape, n, LIST, 0, 0, parent)
        tape[BEHIND, inner] = inner + size + 1
    for _ in range(size):
        step, at = varint(data, at, end, 5)
        if at < 0:
            return n, at
        value += step
        if value > _MOST_BIT:
            return n, -WRONG
        if keep:
            n = put(tape, n, INT, value, 0, inner)
    return n, at


def constants(data: Any, at: int, end: int, number: int, keep: bool, tape: Any, n: int, parent: int) -> tuple[int, int]:
    """Constants of the enum of a number: varint count | varints of (ordinal + 1)."""
    size, at = varint(data, at, end, 5)
    if at < 0:
        return n, at
    if size > end - at:
        return n, -SHORT
    inner = n
    if keep:
        if n + size >= tape.shape[1]:
            return n, -FULL
        n = put(tape, n, LIST, 0, 0, parent)
        tape[BEHIND, inner] = inner + size + 1
    for _ in range(size):
        value, at = varint(data, at, end, 5)
        if at < 0:
            return n, at
        if value == 0:
            return n, -WRONG
        if keep:
            n = put(tape, n, CONSTANT, value - 1, number, inner)
    return n, at


def numbers(
    data: Any, at: int, end: int, pair: int, is_list: bool, keep: bool, tape: Any, n: int, parent: int
) -> tuple[int, int]:
    """One number or two of their full widths, of the forms ``pair >> 4`` and ``pair & 15``, or 0.

    ``is_list``: in a list of their own, else in that of ``parent``.
    """
    if keep and n + 2 >= tape.shape[1]:
        return n, -FULL
    inner = parent
    if keep and is_list:
        inner = n
        n = put(tape, n, LIST, 0, 0, parent)
    for k in range(2):
        form = pair >> 4 if k == 0 else pair & 15
        if form != 0:
            width = 4 if form == INT else 8
            if width > end - at:
                return n, -SHORT
            if keep:
                n = put(tape, n, form, fixed(data, at, width, True), 0, inner)
            at += width
    if keep and is_list:
        tape[BEHIND, inner] = n
    return n, at


def date_part(
    data: Any, at: int, end: int, is_time: bool, keep: bool, is_kept: bool, tape: Any, n: int, refs: Any, objects: int
) -> tuple[int, int, int]:
    """A date or a time of day that is an object of its own: its number, the number of objects, the position behind it.

    Java shares them: all midnights are one object, and times of one day that follow from one another have one date.
    """
    column = MORE if is_time else VALUE
    marker, at = varint(data, at, end, 5)
    if at < 0:
        return 0, objects, at
    if marker == 0 or marker - 2 >= objects:
        return 0, objects, -WRONG
    if marker == 1:
        if keep:
            refs[objects] = (-3 if is_time else -2) - 2 * n if is_kept else -1
        value, at = local_time(data, at, end, True) if is_time else local_date(data, at, end, True)
        return value, objects + 1, at
    if not is_kept:
        return 0, objects, at
    source = int(refs[marker - 2])
    if source >= 0:
        if source >= n or int(tape[TAG, source]) != (LOCAL_TIME if is_time else LOCAL_DATE):
            return 0, objects, -WRONG
        return int(tape[column, source]), objects, at
    if source == -1:
        return 0, objects, -OPAQUE
    whole = (-2 - source) >> 1
    if whole >= n or ((-2 - source) & 1 == 1) != is_time:
        return 0, objects, -WRONG
    return int(tape[column, whole]), objects, at


def date_time(
    data: Any, at: int, end: int, keep: bool, is_kept: bool, tape: Any, n: int, refs: Any, objects: int
) -> tuple[int, int, int, int]:
    """A date and a time of day of Kryo 2: their numbers, the number of objects, and the position behind."""
    time = 0
    date, objects, at = date_part(data, at, end, False, keep, is_kept, tape, n, refs, objects)
    if at >= 0:
        time, objects, at = date_part(data, at, end, True, keep, is_kept, tape, n, refs, objects)
    return date, time, objects, at


def named_leaf(
    kind: int,
    data: Any,
    at: int,
    end: int,
    forms: Any,
    names: Any,
    name_ends: Any,
    name_forms: Any,
    registered: Any,
    known: Any,
    refs: Any,
    objects: int,
    keep: bool,
    entry: int,
) -> tuple[int, int, int, int, int]:
    """A leaf that begins with an object and its class: tag, value, more, the number of objects, the position behind it.

    A value of an Enumeration is the object of the Enumeration, which Chill writes, and the ID. A ``BigInt`` is a
    ``BigInteger``, and from Scala 2.13 on a long behind it: the number where the first is null, else the least long.
    ``entry`` is that of the leaf, or -1 where it is not kept.
    """
    form, at = class_form(data, at, end, names, name_ends, name_forms, registered, known)
    if at < 0:
        return kind, 0, 0, objects, at
    if kind == BIG_INT and form < 0:
        value, at = varlong(data, at, end)
        return BIG_INT, signed(value), 0, objects, at
    if form <= 0 or int(forms[form, 0]) != (ENUMERATION if kind == VALUE_OF else BIG_INTEGER):
        return kind, 0, 0, objects, -OPAQUE
    marker, at = varint(data, at, end, 5)
    if at < 0:
        return kind, 0, 0, objects, at
    if marker == 0 or marker - 2 >= objects:
        return kind, 0, 0, objects, -WRONG
    if marker == 1:
        if keep:
            refs[objects] = -1 if kind == VALUE_OF else entry
        objects += 1
    if kind == VALUE_OF:
        if end - at < 4:
            return kind, 0, 0, objects, -SHORT
        value = fixed(data, at, 4, True)
        return CONSTANT, value, int(forms[form, 2]), objects, at + 4 if value >= 0 else -OPAQUE
    if marker != 1:
        return kind, 0, 0, objects, -OPAQUE
    size, at = varint(data, at, end, 5)
    if at < 0:
        return kind, 0, 0, objects, at
    if size < 2:
        return kind, 0, 0, objects, -WRONG
    if size - 1 > end - at:
        return kind, 0, 0, objects, -SHORT
    value, at = at, at + size - 1
    k = 0
    while k < 9 and at + k < end and int(data[at + k]) == 0xFF:
        k += 1
    return BIG_INTEGER, value, size - 1, objects, at + 9 if k == 9 else at


def one_number(kind: int, data: Any, at: int, end: int, form: int, is_old: bool) -> tuple[int, int, int]:
    """A number, a bit or a character: its tag, its value, and the position behind it (negative as in `varint`).

    ``form`` is the form of the number that a MAYBE may have.
    """
    value = 0
    if kind in (INT, FLAG):
        value, at = varint(data, at, end, 5)
        if at < 0:
            return kind, 0, at
        value, is_wrong = signed(value), value >> 32 != 0
        if kind == FLAG:
            is_wrong = is_wrong or value < 0 or value > 1
        return BOOL if kind == FLAG else INT, value, -WRONG if is_wrong else at
    if kind == LONG:
        value, at = varlong(data, at, end)
        return LONG, signed(value), at
    if kind == MAYBE:
        present, value, at = maybe(data, at, end, form, is_old)
        return form if present == 1 else NULL, value, at
    if kind in (UNSIGNED, OFFSET):
        value, at = field_number(data, at, end, kind == OFFSET)
        return INT, value, at
    width = 1 if kind in (BOOL, BYTE) else 2 if kind in (CHAR, SHORT_FORM) else 4
    if kind == DOUBLE:
        width = 8
    if width > end - at:
        return kind, 0, -SHORT
    value = fixed(data, at, width, is_old)
    return kind, value, -WRONG if kind == BOOL and value != 0 and value != 1 else at + width
