"""Compiled loops that gather chosen rows of a column out of many parts into one buffer.

Part p has the rows ``rows[bounds[p] : bounds[p + 1]]``, which ascend and lie inside the part. Its values begin at
``address[p]``. Row numbers come from statistics and were checked against the buffers; the offsets of texts come from
files and are checked again here. The loops for scattered rows, at the end, gather in an order of their own: row i is
the row ``rows[i]`` of ``part[i]``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from statestore.formats.kernels.addresses import (
    byte_at,
    copy_memory,
    half_at,
    pair_at,
    put_byte,
    put_half,
    put_pair,
    put_word,
    word_at,
)
from statestore.formats.kernels.arrays import Bools, Ints
from statestore.formats.kernels.compiled import I64, U64, inlined, kernel

Rows = npt.NDArray[np.int32]

TOO_MUCH = -2
_SHORT = 32  # texts up to this size are copied as four words where there is room for them


@inlined
def gather_values(address: Ints, bounds: Ints, rows: Rows, width: int, target: int) -> None:
    """Gather values of ``width`` bytes: 1, 2, 4, 8 or 16."""
    first = bounds[0]
    for p in range(len(address)):
        begin, end, base = bounds[p], bounds[p + 1], address[p]
        to = target + width * (begin - first)
        if width == 8:
            for i in range(begin, end):
                put_word(to + 8 * (i - begin), word_at(base + 8 * I64(rows[i])))
        elif width == 4:
            for i in range(begin, end):
                put_half(to + 4 * (i - begin), half_at(base + 4 * I64(rows[i])))
        elif width == 2:
            for i in range(begin, end):
                put_pair(to + 2 * (i - begin), pair_at(base + 2 * I64(rows[i])))
        elif width == 1:
            for i in range(begin, end):
                put_byte(to + (i - begin), byte_at(base + I64(rows[i])))
        else:
            for i in range(begin, end):
                into, source = to + 16 * (i - begin), base + 16 * I64(rows[i])
                put_word(into, word_at(source))
                put_word(into + 8, word_at(source + 8))


@inlined
def gather_bits(address: Ints, bounds: Ints, rows: Rows, target: int) -> Any:
    """Gather bits, and return how many of them are set. All bits of a part with the address 0 are."""
    filled, byte, ones = I64(0), U64(0), I64(0)
    for p in range(len(address)):
        base = address[p]
        for i in range(bounds[p], bounds[p + 1]):
            if base != 0:
                row = I64(rows[i])
                bit = (byte_at(base + (row >> 3)) >> U64(row & 7)) & U64(1)
            else:
                bit = U64(1)
            ones += I64(bit)
            byte |= bit << U64(filled & 7)
            filled += 1
            if filled & 7 == 0:
                put_byte(target + (filled >> 3) - 1, byte)
                byte = U64(0)
    if filled & 7:
        put_byte(target + (filled >> 3), byte)
    return ones


@inlined
def text_room(address: Ints, sizes: Ints, bounds: Ints, rows: Rows, exact: bool) -> Any:
    """Return at most how many bytes the chosen texts have, or ``exact``ly how many. -1 if an offset is wrong.

    ``sizes`` are the bytes of the values of each part.
    """
    total = I64(0)
    for p in range(len(address)):
        begin, end, base, size = bounds[p], bounds[p + 1], address[p], sizes[p]
        if exact:
            for i in range(begin, end):
                low, high = I64(half_at(base + 4 * I64(rows[i]))), I64(half_at(base + 4 * I64(rows[i]) + 4))
                if low > high or high > size:
                    return I64(-1)
                total += high - low
        else:
            low, high = I64(half_at(base + 4 * I64(rows[begin]))), I64(half_at(base + 4 * I64(rows[end - 1]) + 4))
            if low > high or high > size:
                return I64(-1)
            total += high - low
    return total


@inlined
def copy_text(source: int, size: int, room: int, target: int) -> None:
    """Copy a text. ``room``: bytes that may be read from its begin on; as many as ``_SHORT`` may be written."""
    if size <= _SHORT and room >= _SHORT:
        a, b, c, d = word_at(source), word_at(source + 8), word_at(source + 16), word_at(source + 24)
        put_word(target, a)
        put_word(target + 8, b)
        put_word(target + 16, c)
        put_word(target + 24, d)
    elif size > 0:
        copy_memory(target, source, size)


@inlined
def gather_texts(
    address: Ints,
    values: Ints,
    sizes: Ints,
    bounds: Ints,
    rows: Rows,
    offsets: int,
    target: int,
    room: int,
) -> Any:
    """Gather texts and their offsets, and return the bytes of all texts; -1 if stored offsets are wrong.

    ``values`` is where the bytes of each part begin. The target has ``room`` bytes and 32 spare ones.
    """
    total = I64(0)
    at = offsets
    put_half(at, U64(0))
    for p in range(len(address)):
        base, text, size = address[p], values[p], sizes[p]
        for i in range(bounds[p], bounds[p + 1]):
            source = base + 4 * I64(rows[i])
            low, high = I64(half_at(source)), I64(half_at(source + 4))
            if low > high or high > size or high - low > room - total:
                return I64(-1)
            copy_text(text + low, high - low, size - low, target + total)
            total += high - low
            at += 4
            put_half(at, U64(total))
    return total


# Columns of a batch

# Where each column goes: bits of a value, 0 for texts; addresses for its validity bits, for its values or offsets, and
# for its texts; the room that these have, and then their bytes; how many values are not null.
KIND, BITS_AT, VALUES_AT, TEXTS_AT, ROOM, ONES, FIELDS = range(7)
# Where it is in each part: addresses of its validity bits, 0 if no value is null, of its values or offsets, and of its
# texts; the bytes of the texts.
_VALIDITY, _VALUES, _TEXTS, _SIZES = range(4)


@kernel
def text_rooms(layout: Any, places: Any, first: int, stop: int, bounds: Ints, rows: Rows, exact: bool) -> None:
    """Fill in the room that the chosen texts of each column need at most, or ``exact``ly; -1 where an offset is wrong.

    ``places[c, :, first:stop]`` are those of the column c in the parts that have the rows.
    """
    for c in range(len(layout)):
        if layout[c, KIND] == 0:
            offsets, sizes = places[c, _VALUES, first:stop], places[c, _SIZES, first:stop]
            layout[c, ROOM] = text_room(offsets, sizes, bounds, rows, exact)


@kernel
def gather_columns(layout: Any, places: Any, first: int, stop: int, bounds: Ints, rows: Rows) -> Any:
    """Gather all columns of the chosen rows; return the number of a column whose stored offsets are wrong, or -1."""
    count = bounds[len(bounds) - 1] - bounds[0]
    for c in range(len(layout)):
        values, target, bits = places[c, _VALUES, first:stop], layout[c, VALUES_AT], layout[c, KIND]
        if bits == 0:
            texts, sizes = places[c, _TEXTS, first:stop], places[c, _SIZES, first:stop]
            room = layout[c, ROOM]
            layout[c, ROOM] = gather_texts(values, texts, sizes, bounds, rows, target, layout[c, TEXTS_AT], room)
            if layout[c, ROOM] < 0:
                return c
        elif bits == 1:
            gather_bits(values, bounds, rows, target)
        else:
            gather_values(values, bounds, rows, bits >> 3, target)
        layout[c, ONES] = count
        for p in range(first, stop):
            if places[c, _VALIDITY, p] != 0:
                layout[c, ONES] = gather_bits(places[c, _VALIDITY, first:stop], bounds, rows, layout[c, BITS_AT])
                break
    return -1


# Scattered rows


@kernel
def place_rows(source: Any, row: Rows, bounds: Ints, starts: Ints, part: Rows, rows: Rows, touched: Bools) -> None:
    """Find the part of each row, and its number there, and mark these parts.

    ``source`` has the numbers of inputs, of 16 or 32 bits. Input s has the parts ``bounds[s] : bounds[s + 1]``, which
    begin at the rows ``starts``, ascending from 0 on. Parts of an input mostly have about the same number of rows, so
    the part that would have the row, were it so, and its neighbours are tried first.
    """
    share = np.zeros(len(bounds) - 1)
    for s in range(len(share)):
        if bounds[s + 1] - bounds[s] > 1 and starts[bounds[s + 1] - 1] > 0:
            share[s] = (bounds[s + 1] - bounds[s] - 1) / starts[bounds[s + 1] - 1]
    for i in range(len(row)):
        s, wanted = I64(source[i]), I64(row[i])
        begin, end = bounds[s], bounds[s + 1]
        low = min(begin + I64(wanted * share[s]), end - 1)
        if wanted < starts[low]:
            low -= low > begin
        elif low + 1 < end and wanted >= starts[low + 1]:
            low += 1
        if wanted < starts[low] or (low + 1 < end and wanted >= starts[low + 1]):
            low, high = begin, end
            while high - low > 1:
                middle = (low + high) >> 1
                if starts[middle] <= wanted:
                    low = middle
                else:
                    high = middle
        part[i] = low
        touched[low] = True
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
