"""Compiled loops over the slots of many rows: the numpy code of ``byte_spans`` and ``unsafe_row`` in one pass each."""

from __future__ import annotations

from statestore.formats.kernels.compiled import I64, Bytes, Flags, Halves, Longs, half_word, kernel, store_word, word

_MOST = 2**31 - 1


@kernel
def words_at(data: Bytes, byte_offset: Longs, words: Longs) -> bool:
    """Read the eight bytes at each position; returns false if one is outside ``data``."""
    for i in range(len(byte_offset)):
        if byte_offset[i] < 0 or byte_offset[i] > len(data) - 8:
            return False
        words[i] = I64(word(data, byte_offset[i]))
    return True


@kernel
def halves_at(data: Bytes, byte_offset: Longs, halves: Halves) -> bool:
    """Read the four bytes at each position; returns false if one is outside ``data``."""
    for i in range(len(byte_offset)):
        if byte_offset[i] < 0 or byte_offset[i] > len(data) - 4:
            return False
        halves[i] = half_word(data, byte_offset[i])
    return True


@kernel
def bits_at(data: Bytes, start: Longs, number: int, bits: Flags) -> int:
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
def measure_strings(data: Bytes, byte_offset: Longs, base: Longs, limit: Longs, nulls: Flags, offsets: Halves) -> int:
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
def copy_strings(data: Bytes, byte_offset: Longs, base: Longs, offsets: Halves, target: Bytes) -> None:
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
