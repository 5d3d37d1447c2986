"""Compiled loops over the slots of many rows: ``byte_columns`` and ``unsafe_row`` in one pass each, not in numpy."""

from __future__ import annotations

from typing import Any

from statestore.formats.kernels.arrays import Bools, Bytes, Ints, U32s
from statestore.formats.kernels.compiled import I64, U64, Halves, half_word, inlined, kernel, store_word, word

_MOST = 2**31 - 1
_WHOLE = U64(0xFFFFFFFF)  # numba widens smaller numbers to 64 bits


@kernel
def words_at(data: Bytes, byte_offset: Ints, words: Ints) -> bool:
    """Read the eight bytes at each position; returns false if one is outside ``data``."""
    for i in range(len(byte_offset)):
        if byte_offset[i] < 0 or byte_offset[i] > len(data) - 8:
            return False
        words[i] = I64(word(data, byte_offset[i]))
    return True


@kernel
def halves_at(data: Bytes, byte_offset: Ints, halves: Halves) -> bool:
    """Read the four bytes at each position; returns false if one is outside ``data``."""
    for i in range(len(byte_offset)):
        if byte_offset[i] < 0 or byte_offset[i] > len(data) - 4:
            return False
        halves[i] = half_word(data, byte_offset[i])
    return True


@kernel
def bits_at(data: Bytes, start: Ints, number: int, bits: Bools) -> int:
    """Read bit ``number`` of the bitmap at each start; returns how many are set, -1 for a bitmap outside ``data``."""
    byte, shift = number >> 3, number & 7
    count = 0
    for i in range(len(start)):
        if start[i] < 0 or start[i] + byte >= len(data):
            return -1
        bit = (data[start[i] + byte] >> shift) & 1
        bits[i] = bit != 0
        count += bit
    return count


@kernel
def measure_strings(data: Bytes, byte_offset: Ints, base: Ints, limit: Ints, nulls: Bools, offsets: Halves) -> int:
    """Fill in the Arrow offsets of the strings that the slots at ``byte_offset`` point to; returns the size of all of
    them.

    ``nulls`` may be empty. A negative number is returned for a malformed row: for a string that is not inside the
    ``limit`` bytes of its row, or for more bytes of strings than there are.
    """
    total = 0
    offsets[0] = 0
    for i in range(len(byte_offset)):
        if len(nulls) == 0 or not nulls[i]:
            if byte_offset[i] < 0 or byte_offset[i] > len(data) - 8:
                return -1
            slot = I64(word(data, byte_offset[i]))
            size, offset = slot & 0xFFFFFFFF, slot >> 32
            if offset < 0 or offset + size > limit[i] or base[i] < 0 or base[i] + offset + size > len(data):
                return -1
            total += size
            if total > len(data) or total > _MOST:
                return -1
        offsets[i + 1] = total
    return total


@kernel
def copy_strings(data: Bytes, byte_offset: Ints, base: Ints, offsets: Halves, target: Bytes) -> None:
    """Copy the strings that ``measure_strings`` found to be inside ``data``, one after another."""
    for i in range(len(byte_offset)):
        at, end = I64(offsets[i]), I64(offsets[i + 1])
        if at == end:
            continue
        start = base[i] + (I64(word(data, byte_offset[i])) >> 32) - at
        while at + 8 <= end:
            store_word(target, at, word(data, start + at))
            at += 8
        while at < end:
            target[at] = data[start + at]
            at += 1


@kernel
def are_inside(data: Bytes, byte_offset: Ints, base: Ints, limit: Ints, nulls: Bools) -> bool:
    """Return whether all that the slots at ``byte_offset`` point to is inside the ``limit`` bytes of its row.

    ``nulls`` may be empty.
    """
    for i in range(len(byte_offset)):
        if len(nulls) == 0 or not nulls[i]:
            if byte_offset[i] < 0 or byte_offset[i] > len(data) - 8:
                return False
            slot = I64(word(data, byte_offset[i]))
            size, offset = slot & 0xFFFFFFFF, slot >> 32
            if offset < 0 or offset + size > limit[i] or base[i] < 0 or base[i] + offset + size > len(data):
                return False
    return True


@kernel
def copy_spans(data: Bytes, start: Ints, offsets: Halves, target: Bytes) -> bool:
    """Copy byte strings one after another, to ``offsets`` in ``target``; returns false if one is outside ``data``."""
    for i in range(len(start)):
        at, end = I64(offsets[i]), I64(offsets[i + 1])
        source = start[i] - at
        if start[i] < 0 or end < at or end > len(target) or source + end > len(data):
            return False
        while at + 8 <= end:
            store_word(target, at, word(data, source + at))
            at += 8
        while at < end:
            target[at] = data[source + at]
            at += 1
    return True


@inlined
def _turned(x: Any, bits: int) -> Any:
    return ((x << U64(bits)) | (x >> U64(32 - bits))) & _WHOLE


@inlined
def _mixed(h: Any, k: Any) -> Any:
    k = (_turned((k * U64(0xCC9E2D51)) & _WHOLE, 15) * U64(0x1B873593)) & _WHOLE
    return (_turned(h ^ k, 13) * U64(5) + U64(0xE6546B64)) & _WHOLE


@kernel
def mix_cells(data: Bytes, start: Ints, size: Ints, known: Bools, state: U32s) -> bool:
    """Add the bytes of each cell that is ``known`` to its state of Murmur3, as Spark does: words, then the last bytes
    one by one as signed numbers. Returns False if a cell lies outside ``data``.
    """
    for i in range(len(start)):
        if not known[i]:
            continue
        at, stop = start[i], start[i] + size[i]
        if at < 0 or stop < at or stop > len(data):
            return False
        h = U64(state[i])
        while at + 4 <= stop:
            h = _mixed(h, half_word(data, at))
            at += 4
        while at < stop:
            last = I64(data[at])
            h = _mixed(h, U64(last - (last >> 7 << 8)) & _WHOLE)
            at += 1
        state[i] = h
    return True
