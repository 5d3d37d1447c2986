"""Decompression of LZ4 and Snappy blocks by compiled code that trusts no length in them.

Both functions write into ``target[at:end]`` and return whether they filled exactly that. Copies go in words and may
overwrite up to seven bytes behind ``end``.
"""

from __future__ import annotations

from statestore.formats.kernels.arrays import Bytes
from statestore.formats.kernels.compiled import I64, inlined, kernel, store_word, word


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
