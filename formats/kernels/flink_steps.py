"""The steps of programs that decode values of Flink, and what stops them. Importing this module does not import numba.

Each step is a row of numbers: the step, its row of places (-1: none are wanted), a, b, target, register, c.
"""

from __future__ import annotations

END = 0  # of a record
FIXED = 1  # a bytes: position
TEXT = 2  # a string, of which the length + a is units + 1: position, units + 1, end
OPTION = 3  # a flag, null if it is a, then b bytes of padding (-1: all that are left) and on to target: 1 if present
SIZED = 4  # n in b bytes, 4 or 2 | n * a bytes: position, n
COUNT = 5  # int32 n, of entries with at least a bytes; on to target for 0: n
AGAIN = 6  # back to target while entries are left in the register
BRANCH = 7  # tag a; target cases from jump b; c names from name register: case
JUMP = 8  # on to target
FIELD = 9  # on to target if bit a of the mask in the register is set
MASK = 10  # a bytes, position kept in the register: position
BIG = 11  # a number of any size, a: with a scale: position, length field
CONSTANT = 12  # a byte ``a``
JOIN = 13  # begin to count joined elements in the register
JOINED = 14  # back to target behind a byte 2C, or the end of the frame: count
MARK = 15  # keep the position in the register
LENGTH = 16  # the length of what lies between register and here
REST = 17  # up to the end of the frame: position, size
BLOCKS = 18  # begin to count entries of blocks in the register
BLOCK = 19  # a block of entries with at least a bytes, on to target behind the last: count of all
BLOCK_NEXT = 20  # back to target while entries are left in the register behind, else to step b
FAIL = 21  # a part that cannot be decoded
MASKED = 22  # int32 n | a bit for each entry; register: entries left, entry, mask; on to target for 0: n, position
UNMASKED = 23  # on to target if the entry's bit is set
MASKED_NEXT = 24  # back to target while entries are left
KEPT = 25  # what lies between the position in the register and here: position, size
CALL = 26  # on to target and back: registers a to a + b are kept on the stack behind register, of at most c numbers
RETURN = 27  # behind the last call: a, b and register as there
FRAME = 28  # int32 n; the end of the n bytes is kept in the register; with a, entries, on to target if n is 0: 0
FRAMED = 29  # the end of the bytes; with a, back to target before it: count
KRYO = 30  # an object of Kryo, of the forms a: position, size, entry on the tape (-1: none)

TAG_EITHER, TAG_INDEX, TAG_POJO, TAG_BYTE = 0, 1, 2, 3  # those of TAG_BYTE stand in the jumps from name register on

DONE = 0
FULL = 1  # the places have no room for the next record
SHORT = 2  # the data ends inside a record
WRONG = 3  # bytes that no value has
OPAQUE = 4  # a part that cannot be decoded

JOINER = 0x2C
"""The byte between joined elements."""
MOST_EMPTY = 1 << 16
"""Entries of a list that has entries without bytes; no real one has any, and a damaged count may say anything."""
