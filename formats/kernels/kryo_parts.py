"""Parts of what Kryo writes: numbers, texts, dates and classes, as ``kryo_walk`` reads them.

Written for numba as ``kryo_walk`` is. Each returns the position behind a part, or -SHORT or -WRONG if there is none.
"""

from __future__ import annotations

from typing import Any

from statestore.formats.kernels.flink_steps import OPAQUE, SHORT, WRONG
from statestore.formats.kernels.kryo_forms import (
    BIG_DECIMAL,
    BYTES,
    DOUBLE,
    DOUBLE_NUMBER,
    EMPTY_TEXT,
    INT,
    INT_NUMBER,
    LAST_BEGIN,
    LAST_END,
    LAST_FORM,
    LOCAL_DATE,
    LOCAL_TIME,
    LONG,
    LONG_NUMBER,
    MILLIS,
    MOST_LAST,
    MOST_NAMES,
    NULL,
    OPAQUE_FORM,
    TEXT,
    TEXT_NUMBER,
    TIMESTAMP,
    TWO_LONGS,
    UTF_TEXT,
    UUID,
)


def varint(data: Any, at: int, end: int, most: int) -> tuple[int, int]:
    """A varint of at most ``most`` bytes, and the position behind it: -SHORT or -WRONG if there is none."""
    value, shift = 0, 0
    while True:
        if at >= end:
            return 0, -SHORT
        byte = int(data[at])
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift >= 7 * most:
            return 0, -WRONG


def varlong(data: Any, at: int, end: int) -> tuple[int, int]:
    """A varint of 64 bits, of which the ninth byte has 8, and the position behind it: -SHORT if there is none."""
    value, shift = 0, 0
    while True:
        if at >= end:
            return 0, -SHORT
        byte = int(data[at])
        at += 1
        if shift == 56:
            return value | (byte << 56), at
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def signed(value: int) -> int:
    """The number of a varint in zigzag."""
    return ((value >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(value & 1)


def wrapped(value: int) -> int:
    """The number of a varint without zigzag, of 64 bits."""
    return (value & 0x7FFFFFFFFFFFFFFF) + ((value >> 63) & 1) * -0x8000000000000000


def fixed(data: Any, at: int, width: int, big: bool) -> int:
    """A signed number of so many bytes."""
    value = 0
    for k in range(width):
        value = (value << 8) | int(data[at + k if big else at + width - 1 - k])
    if width == 8:
        return wrapped(value)
    return value - ((value >> (8 * width - 1)) << (8 * width))


def flagged(data: Any, at: int, end: int) -> tuple[int, int, int]:
    """A bit, a varint of which the first byte has 6 bits, and the position behind it (negative as in `varint`)."""
    if at >= end:
        return 0, 0, -SHORT
    byte = int(data[at])
    at += 1
    flag, value = byte >> 7, byte & 0x3F
    if byte & 0x40:
        more, at = varint(data, at, end, 4)
        value |= more << 6
    return flag, value, at


def text(data: Any, at: int, end: int) -> tuple[int, int, int, int]:
    """A string: its tag, where its characters begin, their bytes, and the position behind (negative as in `varint`)."""
    if at >= end:
        return 0, 0, 0, -SHORT
    if int(data[at]) < 0x80:
        start = at
        while at < end and int(data[at]) < 0x80:
            at += 1
        if at >= end:
            return 0, 0, 0, -SHORT
        return TEXT, start, at + 1 - start, at + 1
    _, units, at = flagged(data, at, end)
    if at < 0:
        return 0, 0, 0, at
    if units == 0:
        return NULL, 0, 0, at
    if units == 1:
        return EMPTY_TEXT, at, 0, at
    start = at
    for _ in range(units - 1):
        if at >= end:
            return 0, 0, 0, -SHORT
        byte = int(data[at])
        at += 1 if byte < 0x80 else 2 if byte < 0xE0 else 3
        if 0x80 <= byte < 0xC0 or byte >= 0xF0:
            return 0, 0, 0, -WRONG
    if at > end:
        return 0, 0, 0, -SHORT
    return UTF_TEXT, start, at - start, at


def usual_leaf(data: Any, at: int, end: int, number: int, is_old: bool) -> tuple[int, int, int, int]:
    """A text in ASCII or a number behind the number of its class: tag, value, more, and the position behind it.

    The position is negative for all else, for back references, and for what is damaged.
    """
    value, more = 0, 0
    if number == TEXT_NUMBER:
        if end - at < 2 or int(data[at]) != 1 or int(data[at + 1]) >= 0x80:
            return NULL, 0, 0, -WRONG
        value = at + 1
        at = value
        while at < end and int(data[at]) < 0x80:
            at += 1
        if at >= end:
            return NULL, 0, 0, -SHORT
        return TEXT, value, at + 1 - value, at + 1
    if number == LONG_NUMBER:
        value, at = varlong(data, at, end)
        return LONG, signed(value), more, at
    if number == INT_NUMBER:
        value, at = varint(data, at, end, 5)
        if value >> 32 != 0:
            return NULL, 0, 0, -WRONG
        return INT, signed(value), more, at
    if number == DOUBLE_NUMBER and end - at >= 8:
        return DOUBLE, fixed(data, at, 8, is_old), more, at + 8
    return NULL, 0, 0, -WRONG


def sized(data: Any, at: int, end: int, kind: int) -> tuple[int, int, int, int]:
    """Bytes or a big number behind their count: tag, position, size, and the position behind (negative as in `varint`).

    The size of a ``BigDecimal`` has its scale in front, in higher bits.
    """
    size, at = varint(data, at, end, 5)
    if at < 0:
        return NULL, 0, 0, at
    if size == 0:
        return NULL, 0, 0, at
    value, more = at, size - 1
    if more > end - at:
        return NULL, 0, 0, -SHORT
    at += more
    if kind == BYTES:
        return kind, value, more, at
    if more == 0:
        return NULL, 0, 0, -WRONG
    if kind == BIG_DECIMAL:  # the scale follows the digits, and is read again with them
        if more >= 1 << 24:
            return NULL, 0, 0, -OPAQUE
        size, at = varint(data, at, end, 5)
        if at < 0:
            return NULL, 0, 0, at
        if size >> 32 != 0:
            return NULL, 0, 0, -WRONG
        more = (signed(size) << 24) | more
    return kind, value, more, at


def instant_or_id(data: Any, at: int, end: int, kind: int, a: int, is_old: bool) -> tuple[int, int, int, int]:
    """Milliseconds, with nanoseconds, or the two longs of a UUID: tag, value, more, and the position behind them."""
    more = 0
    if kind == TWO_LONGS and not is_old:
        if end - at < 16:
            return NULL, 0, 0, -SHORT
        return UUID, fixed(data, at, 8, False), fixed(data, at + 8, 8, False), at + 16
    value, at = varlong(data, at, end)
    if at < 0:
        return NULL, 0, 0, at
    if kind == TWO_LONGS:
        more, at = varlong(data, at, end)
        return UUID, signed(value), signed(more), at
    value = wrapped(value)
    if kind == MILLIS:
        return a, value, 0, at
    more, at = varint(data, at, end, 5)
    if at < 0:
        return NULL, 0, 0, at
    if more > 999999999:
        return NULL, 0, 0, -WRONG
    return TIMESTAMP, value + (more // 1000000 if a == 1 else 0), more, at


def maybe(data: Any, at: int, end: int, form: int, is_old: bool) -> tuple[int, int, int]:
    """Whether there is a number of a primitive form, the number, and the position behind (negative as in `varint`)."""
    value = 0
    if at >= end:
        return 0, 0, -SHORT
    present = int(data[at])
    at += 1
    if present > 1:
        return 0, 0, -WRONG
    if is_old and form != DOUBLE:
        value, at = varlong(data, at, end)
        return present, signed(value), at
    if is_old or present == 1:
        width = 4 if form == INT else 8
        if width > end - at:
            return 0, 0, -SHORT
        value = fixed(data, at, width, is_old)
        at += width
    return present, value, at


def named_form(data: Any, start: int, size: int, last: int, names: Any, name_ends: Any, name_forms: Any) -> int:
    """The form of the class of a name, 0 if it is not known. The last byte of a name has a bit more, unless 0."""
    low, high = 0, len(name_forms)
    while low < high:
        middle = (low + high) // 2
        begin, stop = int(name_ends[middle]), int(name_ends[middle + 1])
        order, k = 0, 0
        while order == 0 and k < size and begin + k < stop:
            byte = int(data[start + k])
            if k == size - 1:
                byte &= last
            order = byte - int(names[begin + k])
            k += 1
        if order == 0:
            order = size - (stop - begin)
        if order == 0:
            return int(name_forms[middle])
        if order < 0:
            high = middle
        else:
            low = middle + 1
    return OPAQUE_FORM


def local_date(data: Any, at: int, end: int, is_old: bool) -> tuple[int, int]:
    """Year * 512 + month * 32 + day, and the position behind it (negative as in `varint`)."""
    month, day = 0, 0
    if is_old:
        if end - at < 4:
            return 0, -SHORT
        day, month = fixed(data, at, 2, True), fixed(data, at + 2, 2, True)
        at += 4
    year, at = varint(data, at, end, 5)
    if at < 0:
        return 0, at
    if year >> 32 != 0:
        return 0, -WRONG
    if is_old:
        year = signed(year)
    else:
        year = year - ((year >> 31) << 32)
        if end - at < 2:
            return 0, -SHORT
        month, day = int(data[at]), int(data[at + 1])
        at += 2
    if month < 1 or month > 12 or day < 1 or day > 31 or year < -999999999 or year > 999999999:
        return 0, -WRONG
    return year * 512 + month * 32 + day, at


def local_time(data: Any, at: int, end: int, is_old: bool) -> tuple[int, int]:
    """The nanosecond of the day, and the position behind it (negative as in `varint`)."""
    hour, minute, second, nano, parts = 0, 0, 0, 0, 0
    if is_old:
        if end - at < 2:
            return 0, -SHORT
        hour, minute = int(data[at]), int(data[at + 1])
        nano, at = varint(data, at + 2, end, 5)
        if at < 0:
            return 0, at
        nano = signed(nano)
        if at >= end:
            return 0, -SHORT
        second = int(data[at])
        at += 1
    else:
        while parts < 3:  # the last part that is not 0 has all bits turned over; only nanoseconds follow as a varint
            if at >= end:
                return 0, -SHORT
            part = int(data[at])
            at += 1
            last = part >= 0x80
            if last:
                part = 0xFF - part
            if parts == 0:
                hour = part
            elif parts == 1:
                minute = part
            else:
                second = part
            parts = 4 if last else parts + 1
        if parts == 3:
            nano, at = varint(data, at, end, 5)
            if at < 0:
                return 0, at
    if hour > 23 or minute > 59 or second > 59 or nano < 0 or nano > 999999999:
        return 0, -WRONG
    return ((hour * 60 + minute) * 60 + second) * 1000000000 + nano, at


def date_or_time(data: Any, at: int, end: int, kind: int, is_old: bool) -> tuple[int, int, int]:
    """A date as a number, a time of day as another, and the position behind them (negative as in `varint`)."""
    value, more = 0, 0
    if kind != LOCAL_TIME:
        value, at = local_date(data, at, end, is_old)
    if at >= 0 and kind != LOCAL_DATE:
        more, at = local_time(data, at, end, is_old)
    return value, more, at


def moment(data: Any, at: int, end: int, is_duration: bool, is_old: bool) -> tuple[int, int, int]:
    """Seconds, nanoseconds, and the position behind them (negative as in `varint`)."""
    value, more = 0, 0
    if is_old:
        more, at = varint(data, at, end, 5)
        if at < 0:
            return 0, 0, at
        more = signed(more)
    if is_duration and not is_old:
        if end - at < 8:
            return 0, 0, -SHORT
        value = fixed(data, at, 8, False)
        at += 8
    else:
        value, at = varlong(data, at, end)
        if at < 0:
            return 0, 0, at
        value = signed(value) if is_old else wrapped(value)
    if not is_old:
        more, at = varint(data, at, end, 5)
        if at < 0:
            return 0, 0, at
    if more < 0 or more > 999999999:
        return 0, 0, -WRONG
    return value, more, at


def field_number(data: Any, at: int, end: int, is_offset: bool) -> tuple[int, int]:
    """A varint of 32 bits without zigzag, or an offset in seconds; the position behind (negative as in `varint`)."""
    value = 0
    if is_offset:
        if at >= end:
            return 0, -SHORT
        value = fixed(data, at, 1, False) * 900
        at += 1
        if value == 127 * 900:
            if end - at < 4:
                return 0, -SHORT
            value = fixed(data, at, 4, False)
            at += 4
        if value < -64800 or value > 64800:
            return 0, -WRONG
        return value, at
    value, at = varint(data, at, end, 5)
    if at < 0:
        return 0, at
    if value >> 32 != 0:
        return 0, -WRONG
    return value - ((value >> 31) << 32), at


def class_form(
    data: Any, at: int, end: int, names: Any, name_ends: Any, name_forms: Any, registered: Any, known: Any
) -> tuple[int, int]:
    """The form of the class at a position, -1 for null, and the position behind it (negative as in `varint`).

    ``known`` has the number of classes that were named in this value, and their forms; behind them are the bytes of the
    names that were searched last, by position in the same data, and their forms.
    """
    number, at = varint(data, at, end, 5)
    if at < 0:
        return 0, at
    if number == 0:
        return -1, at
    if number > 1:
        if number - 2 >= len(registered):
            return 0, -OPAQUE
        return int(registered[number - 2]), at
    number, at = varint(data, at, end, 5)
    if at < 0:
        return 0, at
    if number < known[0]:
        return int(known[number + 1]), at
    if number > known[0]:
        return 0, -WRONG
    if number >= MOST_NAMES:
        return 0, -OPAQUE
    slot = number if number < MOST_LAST else MOST_LAST - 1
    last, stop = int(known[LAST_BEGIN + slot]), int(known[LAST_END + slot])
    if 0 < stop - last <= end - at:
        k = 0
        while last + k < stop and data[at + k] == data[last + k]:
            k += 1
        if last + k == stop:  # a text tells its own end, so the same bytes are the same text
            known[0] = number + 1
            known[number + 1] = known[LAST_FORM + slot]
            return int(known[LAST_FORM + slot]), at + k
    begin = at
    tag, start, size, at = text(data, at, end)
    if at < 0:
        return 0, at
    if size == 0:
        return 0, -WRONG
    found = named_form(data, start, size, 0x7F if tag == TEXT else 0xFF, names, name_ends, name_forms)
    known[0] = number + 1
    known[number + 1] = found
    known[LAST_BEGIN + slot], known[LAST_END + slot], known[LAST_FORM + slot] = begin, at, found
    return found, at


def class_object(
    data: Any,
    at: int,
    end: int,
    names: Any,
    name_ends: Any,
    name_forms: Any,
    registered: Any,
    known: Any,
    refs: Any,
    objects: int,
    keep: bool,
) -> tuple[int, int]:
    """The number of objects behind a class that is an object, and the position behind it (negative as in `varint`)."""
    marker, at = varint(data, at, end, 5)
    if at < 0:
        return objects, at
    if marker != 1:
        return objects, -WRONG if marker == 0 or marker - 2 >= objects else at
    if keep:
        refs[objects] = -1
    _, at = class_form(data, at, end, names, name_ends, name_forms, registered, known)
    if at < 0:
        return objects, at
    if at >= end:
        return objects, -SHORT
    return objects + 1, at + 1 if int(data[at]) <= 1 else -WRONG
