"""How Kryo writes the classes whose form is public, as numbers for the loop that walks over its objects.

Importing this module does not import numba.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from statestore.formats.kernels.arrays import Bytes, Ints

OPAQUE_FORM = 0
NOTHING_FORM = 1  # the place in each table of forms that has an object without fields
BOOL = 1
BYTE = 2
CHAR = 3
SHORT_FORM = 4
INT = 5  # varint, zigzag
LONG = 6
FLOAT = 7
DOUBLE = 8
VOID = 9
TEXT = 10
BIG_INTEGER = 11  # varint of (bytes + 1), 0 for null | bytes
BIG_DECIMAL = 12  # as a BigInteger | varint scale, zigzag
MILLIS = 13  # varint; a is the tag
MILLIS_NANOS = 14  # varint | varint nanoseconds; a: whether milliseconds lack those of the nanoseconds
TWO_LONGS = 15  # two varints, zigzag, or longs of 8 bytes in Kryo 5: the more significant half first
CONSTANT = 16  # varint of (ordinal + 1), 0 for null; a: number of the enum among those that are known
LIST = 17  # a: a comparator comes first
MAP = 18  # a: a comparator comes first
AS_LIST = 19  # varint count | class of elements | elements (Chill's form of Arrays.asList)
SINGLE = 20  # one element
SINGLE_ENTRY = 21  # key | value
EMPTY_LIST = 22
EMPTY_MAP = 23
OPTIONAL = 24  # the value, with its class
BITS = 25  # varint count | longs of 64 bits
BYTES = 26  # varint of (bytes + 1) | bytes
ARRAY = 27  # varint of (count + 1) | elements of primitive form a
OBJECTS = 28  # varint of (count + 1) | elements, of the final class with form a, or of any with a < 0
NOTHING = 29  # an object without fields, such as a comparator
LOCAL_DATE = 30
LOCAL_TIME = 31
LOCAL_DATE_TIME = 32
INSTANT = 33
DURATION = 34
FLAGGED_TEXT = 36  # text | varint flags (Pattern of Kryo 5)
FLAG = 37  # varint, zigzag, of 0 or 1 (AtomicBoolean)
MAYBE = (
    38  # whether there is one | a number of primitive form a, in Kryo 5 of its full width, and none where there is none
)
ENUM_SET = 39  # class of the constants | varint count | varints of (ordinal + 1)

# Tags of the entries of a tape, beside the forms of leaves above.
NULL = 0
SQL_DATE, SQL_TIME = 40, 41
UUID = 42
TIMESTAMP = 43
EMPTY_TEXT = 44
UTF_TEXT = 45

# Numbers within objects of fields, with the tag of an int.
UNSIGNED = 46  # varint without zigzag, of 32 bits
OFFSET = 47  # seconds: a byte that counts quarters of an hour, or 127 and an int of 4 bytes

# Forms of Scala's classes, which are no tags.
TUPLE = 48  # elements, so many as a says
NUMBERS = 49  # numbers of their full width, of one form or of two: a is 16 times the first and the second, or 0
PAIRS = 50  # varint count | an ordering where a is 1 | tuples of two
ORDERED = 51  # varint count | an ordering | elements
DELTAS = 52  # varint count | the largest, where there is one | varints, each the distance to the one before
SIDE = 53  # the left (a: 0) or right (1) value of an Either
WRAPPED = 54  # the class of the elements, an object of its own | an array
SHOWN = 55  # fields, in forms as those of objects of fields; the first is shown, which tells its class
LAST_SHOWN = 56  # fields, as those of SHOWN; the last is shown
VALUE_OF = 57  # the object of an Enumeration, of form ENUMERATION | the ID of the value, of 4 bytes
ENUMERATION = 58  # an object without bytes; a: its number among the enums; with 1 behind it is a constant itself

# Objects of a job's classes, by their declarations. Nothing in their bytes tells the fields or their types.
OBJECT = 59  # fields, in so many forms from a on as the fourth number says; the form before them is that of the class
CLASS = 60  # whether it has variables of types | its number, beside that of other objects' | whether their types vary
FIELD = 61  # what a field may hold: NULLABLE or so | its form, 0 for an object that tells its class | its hint, or 0
HINT = 62  # what a field's type says of the objects inside: a form of an object, or 0 | the first FIELD | the second
NULLABLE, UNKNOWN = 1, 2
"""How a FIELD of a form that has no back references may be null; UNKNOWN: only null can be read."""
WITHOUT_HINT, TAKES_HINT, UNSURE, NO_HINT = 2, 3, 4, 5
"""Fourth numbers of containers: a list, map, entry or tuple takes no hints, an OPTIONAL takes them, or cannot be read
without, or not with one."""
OF_HINT, OF_FORM = 20, (1 << 19) - 1

# Objects of fields, each in a form of its own: a is the first of these forms, and the fourth number says how many.
# They are also tags, whose entries contain those of the fields.
FIRST_OF_FIELDS = 63
ZONE_OFFSET, ZONE, ZONED_DATE_TIME, OFFSET_DATE_TIME, OFFSET_TIME = range(FIRST_OF_FIELDS, 68)
PERIOD, YEAR, YEAR_MONTH, MONTH_DAY, LOCALE, ADDRESS, FINITE_DURATION, BIG_INT = range(68, 76)
MATH_CONTEXT, CALENDAR, URL = range(76, 79)
MOST_TAGS = 79

SIDES = 6
"""The number of the names of the sides of an Either, among the enums."""

INT_NUMBER, TEXT_NUMBER, LONG_NUMBER, DOUBLE_NUMBER = 2, 3, 9, 10
"""How every Kryo writes its own registered classes: their number + 2."""

TAG, VALUE, MORE, PARENT, BEHIND = range(5)
"""Columns of a tape: what an entry is, its number or position, its second number or size, its container's entry and the
entry behind it and all that it contains."""

MOST_NESTED = 256
MOST_NAMES = 64
MOST_LAST = 4
LAST_BEGIN, LAST_END, LAST_FORM = (MOST_NAMES + 2 + MOST_LAST * place for place in range(3))
"""Places behind the names of a value, for the last names that were searched, by their numbers in their values.

Those beyond `MOST_LAST` share the last place. Values of one column mostly repeat their names.
"""
KNOWN_ROOM = LAST_FORM + MOST_LAST
MOST_UNCOUNTED = 1 << 16
"""Elements without bytes of their own, and most entries that back references may add for each byte of a value."""
MOST_SHARED = 16


class KryoArrays(NamedTuple):
    """Arrays that a walk over records needs for objects of Kryo; a program without such objects has None instead.

    ``rows`` has for each part of the program whether its forms are those of Kryo 2, and where they begin and end in the
    five arrays behind it. The others are those of ``kryo_walk.walk_object``, with what is ``known`` of each part.
    """

    rows: npt.NDArray[np.int64]
    forms: npt.NDArray[np.int64]
    registered: Ints
    names: Bytes
    name_ends: Ints
    name_forms: Ints
    stack: npt.NDArray[np.int64]
    known: npt.NDArray[np.int64]
    refs: Ints
    tape: npt.NDArray[np.int64]
    reached: Ints
