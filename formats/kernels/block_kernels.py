"""Compiled loops that check and decompress blocks of table files and parse them into entries.

A block is a payload, the byte of its compression and a checksum. An entry has three varints: the number of bytes shared
with the key before, the number of its own key bytes, and the size of the value. Its key bytes and its value follow.
Behind the entries lie restart points (u32), perhaps the buckets of a hash index, and their count. Keys are *internal*:
the user key, then eight bytes of sequence and type.
"""

from __future__ import annotations

import numpy as np

from statestore.formats.kernels.arrays import Bytes, Ints
from statestore.formats.kernels.codec_kernels import copy_bytes, lz4_block, snappy_block
from statestore.formats.kernels.compiled import I64, U64, Words, half_word, inlined, kernel, word

TRAILER = 5
PLAIN, SNAPPY, ZLIB, BZIP2, LZ4, LZ4HC, ZSTD = 0, 1, 2, 3, 4, 5, 7
DELETE, PUT, MERGE, SINGLE_DELETE = 0, 1, 2, 7

# Statuses that a kernel returns; 0 means that no fault was found.
BAD_LENGTH, BAD_BLOCK, BAD_ENTRY, UNKNOWN_TYPE, UNKNOWN_CODEC, UNKNOWN_LAYOUT, FULL = 1, 2, 3, 4, 5, 6, 7
UNSORTED, SAME_VERSION, NO_OPERATOR = 8, 9, 10

_MAX_PLAIN = 1 << 30
_HASH_INDEX, _UNKNOWN_FLAGS = 1 << 31, 7 << 28


@inlined
def _varint(data: Bytes, at: int, stop: int) -> tuple[int, int]:
    """Read an unsigned 32-bit varint; returns it and the position behind it, -1 if there is no varint."""
    number = 0
    for i in range(5):
        if at + i >= stop:
            return 0, -1
        byte = I64(data[at + i])
        number |= (byte & 127) << (7 * i)
        if byte < 128:
            return number, at + i + 1 if number < 1 << 32 else -1
    return 0, -1


@inlined
def _varint64(data: Bytes, at: int, stop: int) -> tuple[int, int]:
    """Read an unsigned varint below 2**62; returns it and the position behind it, -1 if there is no varint."""
    number = 0
    for i in range(9):
        if at + i >= stop:
            return 0, -1
        byte = I64(data[at + i])
        if i == 8 and byte > 63:
            return 0, -1
        number |= (byte & 127) << (7 * i)
        if byte < 128:
            return number, at + i + 1
    return 0, -1


@kernel
def measure_blocks(raw: Bytes, start: Ints, size: Ints, codec: Ints, plain: Ints, report: Ints) -> int:
    """Fill in codec and plain length of each block. ``report``: the block, the length or codec it claims, its bytes.

    The blocks with their trailers lie within ``raw``, and their checksums have been verified.
    """
    for i in range(len(start)):
        report[0] = i
        first, length = start[i], size[i]
        stop = first + length
        codec[i] = raw[stop]
        if codec[i] == PLAIN:
            plain[i] = length
            continue
        if codec[i] not in (SNAPPY, ZLIB, BZIP2, LZ4, LZ4HC, ZSTD):
            report[1] = codec[i]
            return UNKNOWN_CODEC
        plain[i], at = _varint(raw, first, stop)
        most = 24 if codec[i] == SNAPPY else 256 if codec[i] in (LZ4, LZ4HC) else 1100 if codec[i] == ZLIB else 1 << 20
        if at < 0 or plain[i] > most * length or plain[i] > _MAX_PLAIN:
            report[1], report[2] = plain[i], length
            return BAD_LENGTH
    return 0


@kernel
def expand_blocks(
    raw: Bytes, start: Ints, size: Ints, codec: Ints, plain: Bytes, plain_start: Ints, length: Ints, report: Ints
) -> int:
    """Decompress checked blocks to ``plain[plain_start:plain_start + length]``; those of other codecs are there
    already."""
    for i in range(len(start)):
        report[0] = i
        first, stop, at, end = start[i], start[i] + size[i], plain_start[i], plain_start[i] + length[i]
        if codec[i] == PLAIN:
            copy_bytes(raw, first, plain, at, size[i])
            continue
        _, behind = _varint(raw, first, stop)
        if codec[i] == SNAPPY:
            if not snappy_block(raw, behind, stop, plain, at, end):
                return BAD_BLOCK
        elif (codec[i] == LZ4 or codec[i] == LZ4HC) and not lz4_block(raw, behind, stop, plain, at, end):
            return BAD_BLOCK
    return 0


@inlined
def _entries_end(plain: Bytes, start: int, stop: int) -> int:
    """The end of the entries of a block; -1: damaged, -2: an unknown layout."""
    if stop - start < 4:
        return -1
    count = I64(half_word(plain, stop - 4))
    end = stop - 4
    if count & _UNKNOWN_FLAGS:
        return -2
    if count & _HASH_INDEX:
        count ^= _HASH_INDEX
        if end - start < 2:
            return -1
        end -= 2 + (I64(plain[end - 2]) | (I64(plain[end - 1]) << 8))
    end -= 4 * count
    return end if end >= start else -1


@kernel
def parse_blocks(
    plain: Bytes,
    plain_start: Ints,
    length: Ints,
    keys: Bytes,
    key_start: Ints,
    tag: Words,
    value_start: Ints,
    value_size: Ints,
    block_first: Ints,
    count: Ints,
    report: Ints,
) -> int:
    """Append the entries of plain blocks; ``count`` holds the number of entries and of bytes of keys so far.

    Block b begins with entry ``block_first[b]``. Entry e has the internal key ``keys[key_start[e]:key_start[e + 1]]``,
    whose last eight bytes are ``tag[e]``, and the value ``plain[value_start[e]:][:value_size[e]]``. FULL means that an
    array is too short.
    """
    entry, filled = count[0], count[1]
    most_entries, most_bytes = len(tag), len(keys) - 64
    for i in range(len(plain_start)):
        report[0], block_first[i] = i, entry
        at, stop = plain_start[i], plain_start[i] + length[i]
        end = _entries_end(plain, at, stop)
        if end < 0:
            return UNKNOWN_LAYOUT if end == -2 else BAD_BLOCK
        before, before_size = filled, 0
        while at < end:
            if end - at >= 3 and (plain[at] | plain[at + 1] | plain[at + 2]) < 128:
                shared, own, size = I64(plain[at]), I64(plain[at + 1]), I64(plain[at + 2])
                at += 3
            else:
                shared, at = _varint(plain, at, end)
                if at < 0:
                    return BAD_ENTRY
                own, at = _varint(plain, at, end)
                if at < 0:
                    return BAD_ENTRY
                size, at = _varint(plain, at, end)
                if at < 0:
                    return BAD_ENTRY
            key_size = shared + own
            if shared > before_size or own > end - at or size > end - at - own or key_size < 8:
                return BAD_ENTRY
            if entry >= most_entries or key_size > most_bytes - filled:
                return FULL
            copy_bytes(keys, before, keys, filled, shared)
            copy_bytes(plain, at, keys, filled + shared, own)
            before, before_size = filled, key_size
            key_start[entry] = filled
            filled += key_size
            footer = word(keys, filled - 8)
            tag[entry] = footer
            kind = I64(footer & U64(0xFF))
            if kind != PUT and kind != DELETE and kind != MERGE and kind != SINGLE_DELETE:
                report[1] = kind
                return UNKNOWN_TYPE
            at += own
            value_start[entry], value_size[entry] = at, size
            at += size
            entry += 1
    key_start[entry] = filled
    count[0], count[1] = entry, filled
    return 0


@kernel
def misplaced_block(
    keys: Bytes, key_start: Ints, block_first: Ints, end: int, bounds: Bytes, bound_start: Ints, number: int
) -> int:
    """The first block with a key that is not between the separators around it; -1 where there is none.

    Before format 6 checksums do not detect a block in the place of another. ``end`` is behind the last entry,
    ``number`` is that of the first block among the separators.
    """
    for i in range(len(block_first)):
        first, stop = block_first[i], block_first[i + 1] if i + 1 < len(block_first) else end
        if first == stop:
            continue
        b = number + i
        if _greater(keys, key_start[stop - 1], key_start[stop] - 8, bounds, bound_start[b], bound_start[b + 1]):
            return i
        if b > 0 and _greater(
            bounds, bound_start[b - 1], bound_start[b], keys, key_start[first], key_start[first + 1] - 8
        ):
            return i
    return -1


@inlined
def _greater(a: Bytes, at: int, stop: int, b: Bytes, other: int, end: int) -> bool:
    """Return whether the key ``a[at:stop]`` is greater than ``b[other:end]``."""
    while at < stop and other < end and a[at] == b[other]:
        at += 1
        other += 1
    if at == stop or other == end:
        return bool(at < stop)
    return bool(a[at] > b[other])


@kernel
def parse_index(
    plain: Bytes,
    length: int,
    delta: bool,
    strip: int,
    keys: Bytes,
    key_start: Ints,
    offset: Ints,
    size: Ints,
    count: Ints,
) -> int:
    """Append the entries of a plain index block: separator (user) keys, and the block handles they stand for.

    ``strip`` is 8 where separators are internal keys, else 0. With ``delta``, handles have no length before them, and
    where a key shares bytes with the one before only the change of the size is stored. ``count`` as in
    ``parse_blocks``.
    """
    entry, filled = count[0], count[1]
    end = _entries_end(plain, 0, length)
    if end < 0:
        return UNKNOWN_LAYOUT if end == -2 else BAD_BLOCK
    previous = np.zeros(1, np.uint8)
    previous_size = 0
    at = 0
    block_at, block_size = 0, 0
    while at < end:
        shared, at = _varint(plain, at, end)
        if at < 0:
            return BAD_ENTRY
        own, at = _varint(plain, at, end)
        if at < 0:
            return BAD_ENTRY
        stop = end
        value = 0
        if not delta:
            value, at = _varint(plain, at, end)
            if at < 0:
                return BAD_ENTRY
        if shared > previous_size or own > end - at or shared + own < strip:
            return BAD_ENTRY
        key_size = shared + own
        if entry >= len(offset) or key_size > len(keys) - 64 - filled:
            return FULL
        if len(previous) < key_size:
            longer = np.zeros(2 * key_size, np.uint8)
            for i in range(shared):
                longer[i] = previous[i]
            previous = longer
        for i in range(own):
            previous[shared + i] = plain[at + i]
        previous_size = key_size
        at += own
        if not delta:
            if value > end - at:
                return BAD_ENTRY
            stop = at + value
        if delta and shared > 0:
            change, at = _varint64(plain, at, stop)
            if at < 0:
                return BAD_ENTRY
            block_at += block_size + TRAILER
            block_size += (change >> 1) ^ -(change & 1)
        else:
            block_at, at = _varint64(plain, at, stop)
            if at < 0:
                return BAD_ENTRY
            block_size, at = _varint64(plain, at, stop)
            if at < 0:
                return BAD_ENTRY
        if not delta and at != stop:
            return BAD_ENTRY
        if block_size < 0 or block_at < 0:
            return BAD_ENTRY
        key_start[entry] = filled
        for i in range(key_size - strip):
            keys[filled + i] = previous[i]
        filled += key_size - strip
        offset[entry], size[entry] = block_at, block_size
        entry += 1
    key_start[entry] = filled
    count[0], count[1] = entry, filled
    return 0
