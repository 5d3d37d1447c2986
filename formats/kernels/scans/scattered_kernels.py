"""Compiled loops that gather rows of many parts in an order of their own: row i is the row ``rows[i]`` of ``part[i]``.

The values of part p begin at ``address[p]``. Parts and rows were made of statistics and lie inside the buffers; the
offsets of texts come from files and are checked here.
"""

from __future__ import annotations

from typing import Any

from statestore.formats.kernels.arrays import Ints
from statestore.formats.kernels.compiled import I64, U64, kernel
from statestore.formats.kernels.scans.addresses import (
    byte_at,
    half_at,
    pair_at,
    put_byte,
    put_half,
    put_pair,
    put_word,
    word_at,
)
from statestore.formats.kernels.scans.gather_kernels import Rows, copy_text

TOO_MUCH = -2


@kernel
def place_rows(source: Any, row: Rows, bounds: Ints, starts: Ints, part: Rows, rows: Rows) -> None:
    """Find the part of each row, and its number there.

    ``source`` has the numbers of inputs, of 16 or 32 bits. Input s has the parts ``bounds[s] : bounds[s + 1]``, which
    begin at the rows ``starts``, ascending from 0 on. Rows of one part often follow each other, so the part found last
    is tried first.
    """
    last = bounds[:-1].copy()
    for i in range(len(row)):
        s, wanted = I64(source[i]), I64(row[i])
        end, low = bounds[s + 1], last[s]
        if wanted < starts[low] or (low + 1 < end and wanted >= starts[low + 1]):
            low, high = bounds[s], end
            while high - low > 1:
                middle = (low + high) >> 1
                if starts[middle] <= wanted:
                    low = middle
                else:
                    high = middle
            last[s] = low
        part[i] = low
        rows[i] = wanted - starts[low]


@kernel
def scattered_values(address: Ints, part: Rows, rows: Rows, width: int, target: int) -> None:
    """Gather values of ``width`` bytes: 1, 2, 4, 8 or 16."""
    if width == 8:
        for i in range(len(rows)):
            put_word(target + 8 * i, word_at(address[part[i]] + 8 * I64(rows[i])))
    elif width == 4:
        for i in range(len(rows)):
            put_half(target + 4 * i, half_at(address[part[i]] + 4 * I64(rows[i])))
    elif width == 2:
        for i in range(len(rows)):
            put_pair(target + 2 * i, pair_at(address[part[i]] + 2 * I64(rows[i])))
    elif width == 1:
        for i in range(len(rows)):
            put_byte(target + i, byte_at(address[part[i]] + I64(rows[i])))
    else:
        for i in range(len(rows)):
            source = address[part[i]] + 16 * I64(rows[i])
            put_word(target + 16 * i, word_at(source))
            put_word(target + 16 * i + 8, word_at(source + 8))


@kernel
def scattered_bits(address: Ints, part: Rows, rows: Rows, target: int) -> Any:
    """Gather bits, and return how many of them are set. All bits of a part with the address 0 are."""
    byte, ones = U64(0), I64(0)
    for i in range(len(rows)):
        base = address[part[i]]
        if base != 0:
            row = I64(rows[i])
            bit = (byte_at(base + (row >> 3)) >> U64(row & 7)) & U64(1)
        else:
            bit = U64(1)
        ones += I64(bit)
        byte |= bit << U64(i & 7)
        if i & 7 == 7:
            put_byte(target + (i >> 3), byte)
            byte = U64(0)
    if len(rows) & 7:
        put_byte(target + (len(rows) >> 3), byte)
    return ones


@kernel
def scattered_offsets(address: Ints, sizes: Ints, part: Rows, rows: Rows, most: int, begins: Rows, offsets: int) -> Any:
    """Fill in the offsets of the gathered texts, and where each one begins in its part; return the bytes of all texts.

    ``sizes`` are the bytes of the texts of each part. Returns -1 if a stored offset is wrong, TOO_MUCH for more than
    ``most`` bytes.
    """
    total = I64(0)
    put_half(offsets, U64(0))
    for i in range(len(rows)):
        p = part[i]
        source = address[p] + 4 * I64(rows[i])
        low, high = I64(half_at(source)), I64(half_at(source + 4))
        if low > high or high > sizes[p]:
            return I64(-1)
        total += high - low
        if total > most:
            return I64(TOO_MUCH)
        begins[i] = low
        put_half(offsets + 4 * i + 4, U64(total))
    return total


@kernel
def scattered_texts(values: Ints, sizes: Ints, part: Rows, begins: Rows, offsets: int, target: int) -> None:
    """Copy the texts whose ``begins`` and ``offsets`` were filled in; the target has 32 spare bytes."""
    at = I64(0)
    for i in range(len(begins)):
        p = part[i]
        end = I64(half_at(offsets + 4 * i + 4))
        begin = I64(begins[i])
        copy_text(values[p] + begin, end - at, sizes[p] - begin, target + at)
        at = end
