"""Decompression of LZ4 and Snappy blocks by compiled code that trusts no length in them.

Both functions write into ``target[at:end]`` and return whether they filled exactly that. Copies go in words and may
overwrite up to seven bytes behind ``end``.
"""

from __future__ import annotations

from statestore.formats.kernels.arrays import Bytes, Ints
from statestore.formats.kernels.checksum_kernels import xxh32
from statestore.formats.kernels.compiled import I64, U64, half_word, inlined, kernel, store_word, word


@inlined
def copy_bytes(source: Bytes, start: int, target: Bytes, at: int, size: int) -> None:
    """Copy between ranges that do not overlap, in words: up to seven bytes more than ``size``."""
    i = 0
    while i < size:
        store_word(target, at + i, word(source, start + i))
        i += 8


@inlined
def _repeat(target: Bytes, at: int, offset: int, size: int) -> None:
    """Copy the bytes ``offset`` before the target; source and target may overlap."""
    if offset >= 8:
        i = 0
        while i < size:
            store_word(target, at + i, word(target, at + i - offset))
            i += 8
    else:
        for i in range(size):
            target[at + i] = target[at + i - offset]


@kernel
def lz4_block(source: Bytes, start: int, stop: int, target: Bytes, begin: int, end: int) -> bool:
    """Decompress one raw LZ4 block: tokens of literals and matches, the last one of literals alone."""
    at = begin
    while start < stop:
        token = I64(source[start])
        start += 1
        size = token >> 4
        if size == 15:
            more = 255
            while more == 255:
                if start >= stop:
                    return False
                more = I64(source[start])
                start += 1
                size += more
        if size > stop - start or size > end - at:
            return False
        copy_bytes(source, start, target, at, size)
        start += size
        at += size
        if start == stop:
            return bool(at == end)
        if stop - start < 2:
            return False
        offset = I64(source[start]) | (I64(source[start + 1]) << 8)
        start += 2
        size = token & 15
        if size == 15:
            more = 255
            while more == 255:
                if start >= stop:
                    return False
                more = I64(source[start])
                start += 1
                size += more
        size += 4
        if offset == 0 or offset > at - begin or size > end - at:
            return False
        _repeat(target, at, offset, size)
        at += size
    return False


@kernel
def snappy_block(source: Bytes, start: int, stop: int, target: Bytes, begin: int, end: int) -> bool:
    """Decompress the elements of a raw Snappy block, behind its length."""
    at = begin
    while start < stop:
        tag = I64(source[start])
        start += 1
        kind = tag & 3
        if kind == 0:
            size = tag >> 2
            if size >= 60:
                count = size - 59
                if count > stop - start:
                    return False
                size = 0
                for i in range(count):
                    size |= I64(source[start + i]) << (8 * i)
                start += count
            size += 1
            if size > stop - start or size > end - at:
                return False
            copy_bytes(source, start, target, at, size)
            start += size
            at += size
            continue
        count = 1 if kind == 1 else 2 if kind == 2 else 4
        if count > stop - start:
            return False
        offset = 0
        for i in range(count):
            offset |= I64(source[start + i]) << (8 * i)
        start += count
        size = (tag >> 2) + 1
        if kind == 1:
            size = 4 + ((tag >> 2) & 7)
            offset |= (tag >> 5) << 8
        if offset == 0 or offset > at - begin or size > end - at:
            return False
        _repeat(target, at, offset, size)
        at += size
    return bool(at == end)


# Decompression of the frames of lz4-java's ``LZ4BlockOutputStream``, many in one call.
#
# "LZ4Block" | token | compressed, plain and checksum:int32 LE | block


HEAD = 21
_MAGIC = U64(int.from_bytes(b"LZ4Block", "little"))
_COMPRESSED = 0x20
_CHECKSUM = U64(0x0FFFFFFF)


@kernel
def lz4_frames(source: Bytes, stop: int, target: Bytes, room: int, seed: int, ends: Ints) -> None:
    """Decompress whole frames from ``source[:stop]`` into ``target[:room]``, as many as there are and fit.

    ``ends``: where the first frame begins that was not decompressed, and where the decompressed bytes end. A frame that
    is not compressed, empty or damaged is left, as is all behind it. Both arrays have SLACK spare bytes.
    """
    at, filled = 0, 0
    while at + HEAD <= stop and word(source, at) == _MAGIC and source[at + 8] & 0xF0 == _COMPRESSED:
        packed, plain = I64(half_word(source, at + 9)), I64(half_word(source, at + 13))
        begin = at + HEAD
        if plain == 0 or packed > stop - begin or plain > room - filled:
            break
        if not lz4_block(source, begin, begin + packed, target, filled, filled + plain):
            break
        if xxh32(target, filled, plain, seed) & _CHECKSUM != half_word(source, at + 17):
            break
        at = begin + packed
        filled += plain
    ends[0], ends[1] = at, filled
