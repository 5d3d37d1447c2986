"""Objects of Kryo that are lists of leaves: sets of bits and of constants, and tuples of numbers.

Written for numba as ``kryo_walk`` is. Each returns the entry behind the list and the position behind it in the data, or
-SHORT, -WRONG or -FULL. ``keep``: write the list to the tape, from entry ``n`` on.
"""

from __future__ import annotations

from typing import Any

from statestore.formats.kernels.flink_steps import FULL, SHORT, WRONG
from statestore.formats.kernels.kryo_forms import (
    BEHIND,
    CONSTANT,
    INT,
    LIST,
    MORE,
    PARENT,
    TAG,
    VALUE,
)
from statestore.formats.kernels.kryo_parts import fixed, varint

_MOST_BIT = 0x7FFFFFFF


def put(tape: Any, n: int, tag: int, value: int, more: int, parent: int) -> int:
    """Write an entry, and return the number of the next one."""
    tape[TAG, n], tape[VALUE, n], tape[MORE, n], tape[PARENT, n], tape[BEHIND, n] = tag, value, more, parent, n + 1
    return n + 1


def repeat(tape: Any, source: int, n: int, parent: int) -> int:
    """Write an entry and all that it contains once more, from entry ``n`` on, and return the number of the next one."""
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
