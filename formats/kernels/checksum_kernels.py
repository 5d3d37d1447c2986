"""The four checksums of RocksDB blocks, compiled: CRC32C, xxHash (32 and 64 bits) and XXH3; and CRC-32.

A block's checksum covers its payload and the byte of its compression type, which follows it in the file.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from statestore.formats.kernels.arrays import Bytes, Ints
from statestore.formats.kernels.compiled import U64, Words, big_word, half_word, inlined, kernel, word

NONE, CRC32C, XXHASH, XXHASH64, XXH3 = 0, 1, 2, 3, 4
_LOW = U64(0xFFFFFFFF)
_LAST_BYTE_PRIME = U64(0x6B9083D9)


def _crc_tables(polynomial: int) -> npt.NDArray[np.uint32]:
    tables = np.zeros((8, 256), np.uint32)
    crc = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        crc = np.where(crc & 1, (crc >> 1) ^ np.uint32(polynomial), crc >> 1).astype(np.uint32)
    tables[0] = crc
    for i in range(1, 8):
        tables[i] = tables[0][tables[i - 1] & 0xFF] ^ (tables[i - 1] >> np.uint32(8))
    return tables


_CRC32C, _CRC32 = _crc_tables(0x82F63B78), _crc_tables(0xEDB88320)
_SECRET = np.frombuffer(
    bytes.fromhex(
        "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
        "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
        "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb"
        "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
    ),
    np.uint8,
).copy()

_P32_1, _P32_2, _P32_3 = U64(0x9E3779B1), U64(0x85EBCA77), U64(0xC2B2AE3D)
_P32_4, _P32_5 = U64(0x27D4EB2F), U64(0x165667B1)
_P1, _P2, _P3 = U64(0x9E3779B185EBCA87), U64(0xC2B2AE3D27D4EB4F), U64(0x165667B19E3779F9)
_P4, _P5 = U64(0x85EBCA77C2B2AE63), U64(0x27D4EB2F165667C5)
_MX1, _MX2 = U64(0x165667919E3779F9), U64(0x9FB21C651E98DF25)


@inlined
def _crc(data: Bytes, start: int, size: int, tables: npt.NDArray[np.uint32]) -> Any:
    crc = U64(0xFFFFFFFF)
    at = start
    byte = U64(0xFF)
    while at + 8 <= start + size:
        mixed = word(data, at) ^ crc
        crc = U64(
            tables[7, mixed & byte]
            ^ tables[6, (mixed >> U64(8)) & byte]
            ^ tables[5, (mixed >> U64(16)) & byte]
            ^ tables[4, (mixed >> U64(24)) & byte]
            ^ tables[3, (mixed >> U64(32)) & byte]
            ^ tables[2, (mixed >> U64(40)) & byte]
            ^ tables[1, (mixed >> U64(48)) & byte]
            ^ tables[0, mixed >> U64(56)]
        )
        at += 8
    while at < start + size:
        crc = U64(tables[0, (crc ^ U64(data[at])) & byte]) ^ (crc >> U64(8))
        at += 1
    return crc ^ _LOW


@kernel
def crc32c(data: Bytes, start: int, size: int) -> Any:
    """The plain (unmasked) CRC32C of ``data[start:start + size]``."""
    return _crc(data, start, size, _CRC32C)


@kernel
def chunk_checksums(data: Bytes, chunk: int, checksums: npt.NDArray[np.uint32]) -> None:
    """Fill in the CRC-32, as zlib has it, of each ``chunk`` bytes of the data; the last chunk may be shorter."""
    for i in range(len(checksums)):
        checksums[i] = _crc(data, i * chunk, min(chunk, len(data) - i * chunk), _CRC32)


def block_checksums(data: Bytes, start: Ints, size: Ints, kind: int) -> Words:
    """The 32 bits stored behind each block whose payload is ``data[start:start + size]``, followed by its type byte.

    Each kind is compiled on first use: the files of one process have rarely more than one.
    """
    checksums = np.empty(len(start), np.uint64)
    if kind == CRC32C:
        _crc32c_blocks(data, start, size, checksums)
    elif kind == XXHASH:
        _xxh32_blocks(data, start, size, checksums)
    elif kind == XXHASH64:
        _xxh64_blocks(data, start, size, checksums)
    elif kind == XXH3:
        _xxh3_blocks(data, start, size, checksums)
    else:
        raise ValueError(f"checksum kind {kind}")
    return checksums


@kernel
def _crc32c_blocks(data: Bytes, start: Ints, size: Ints, checksums: Words) -> None:
    for i in range(len(start)):
        crc = crc32c(data, start[i], size[i] + 1)
        checksums[i] = (((crc >> U64(15)) | (crc << U64(17))) + U64(0xA282EAD8)) & _LOW


@kernel
def _xxh32_blocks(data: Bytes, start: Ints, size: Ints, checksums: Words) -> None:
    for i in range(len(start)):
        checksums[i] = xxh32(data, start[i], size[i] + 1, 0)


@kernel
def _xxh64_blocks(data: Bytes, start: Ints, size: Ints, checksums: Words) -> None:
    for i in range(len(start)):
        checksums[i] = _xxh64(data, start[i], size[i] + 1) & _LOW


@kernel
def _xxh3_blocks(data: Bytes, start: Ints, size: Ints, checksums: Words) -> None:
    for i in range(len(start)):
        last = (U64(data[start[i] + size[i]]) * _LAST_BYTE_PRIME) & _LOW
        checksums[i] = (_xxh3(data, start[i], size[i]) & _LOW) ^ last


@inlined
def _rotate32(x: np.uint64, bits: int) -> Any:
    return ((x << U64(bits)) | (x >> U64(32 - bits))) & _LOW


@inlined
def _rotate(x: np.uint64, bits: int) -> Any:
    return (x << U64(bits)) | (x >> U64(64 - bits))


@inlined
def _round32(lane: np.uint64, value: np.uint64) -> Any:
    return (_rotate32((lane + value * _P32_2) & _LOW, 13) * _P32_1) & _LOW


@kernel
def xxh32(data: Bytes, start: int, size: int, seed: int) -> Any:
    """The xxHash of 32 bits of ``data[start:start + size]``."""
    at, end = start, start + size
    salt = U64(seed)
    h = (salt + _P32_5) & _LOW
    if size >= 16:
        a, b = (salt + _P32_1 + _P32_2) & _LOW, (salt + _P32_2) & _LOW
        c, d = salt, (salt + U64(1 << 32) - _P32_1) & _LOW
        while at + 16 <= end:
            a = _round32(a, half_word(data, at))
            b = _round32(b, half_word(data, at + 4))
            c = _round32(c, half_word(data, at + 8))
            d = _round32(d, half_word(data, at + 12))
            at += 16
        h = (_rotate32(a, 1) + _rotate32(b, 7) + _rotate32(c, 12) + _rotate32(d, 18)) & _LOW
    h = (h + U64(size)) & _LOW
    while at + 4 <= end:
        h = (_rotate32((h + half_word(data, at) * _P32_3) & _LOW, 17) * _P32_4) & _LOW
        at += 4
    while at < end:
        h = (_rotate32((h + U64(data[at]) * _P32_5) & _LOW, 11) * _P32_1) & _LOW
        at += 1
    h = ((h ^ (h >> U64(15))) * _P32_2) & _LOW
    h = ((h ^ (h >> U64(13))) * _P32_3) & _LOW
    return h ^ (h >> U64(16))


@inlined
def _round(lane: np.uint64, value: np.uint64) -> Any:
    return _rotate(lane + value * _P2, 31) * _P1


@inlined
def _avalanche64(h: np.uint64) -> Any:
    h = (h ^ (h >> U64(33))) * _P2
    h = (h ^ (h >> U64(29))) * _P3
    return h ^ (h >> U64(32))


@kernel
def _xxh64(data: Bytes, start: int, size: int) -> Any:
    at, end = start, start + size
    h = _P5
    if size >= 32:
        a, b, c, d = _P1 + _P2, _P2, U64(0), U64(0) - _P1
        while at + 32 <= end:
            a = _round(a, word(data, at))
            b = _round(b, word(data, at + 8))
            c = _round(c, word(data, at + 16))
            d = _round(d, word(data, at + 24))
            at += 32
        h = _rotate(a, 1) + _rotate(b, 7) + _rotate(c, 12) + _rotate(d, 18)
        for lane in (a, b, c, d):
            h = (h ^ _round(U64(0), lane)) * _P1 + _P4
    h += U64(size)
    while at + 8 <= end:
        h = _rotate(h ^ _round(U64(0), word(data, at)), 27) * _P1 + _P4
        at += 8
    if at + 4 <= end:
        h = _rotate(h ^ (half_word(data, at) * _P1), 23) * _P2 + _P3
        at += 4
    while at < end:
        h = _rotate(h ^ (U64(data[at]) * _P5), 11) * _P1
        at += 1
    return _avalanche64(h)


@inlined
def _fold(a: np.uint64, b: np.uint64) -> Any:
    """Multiply to 128 bits and XOR the low half with the high half."""
    s = U64(32)
    al, ah, bl, bh = a & _LOW, a >> s, b & _LOW, b >> s
    low, high = al * bl, ah * bh
    middle = ah * bl + (low >> s)
    other = al * bh + (middle & _LOW)
    return (a * b) ^ (high + (middle >> s) + (other >> s))


@inlined
def _avalanche3(h: np.uint64) -> Any:
    h = (h ^ (h >> U64(37))) * _MX1
    return h ^ (h >> U64(32))


@inlined
def _mix16(data: Bytes, at: int, secret: int) -> Any:
    return _fold(word(data, at) ^ word(_SECRET, secret), word(data, at + 8) ^ word(_SECRET, secret + 8))


@kernel
def _xxh3_short(data: Bytes, start: int, size: int) -> Any:
    """XXH3 of at most 240 bytes."""
    end = start + size
    if size == 0:
        return _avalanche64(word(_SECRET, 56) ^ word(_SECRET, 64))
    if size <= 3:
        first, middle, last = U64(data[start]), U64(data[start + (size >> 1)]), U64(data[end - 1])
        mixed = (first << U64(16)) | (middle << U64(24)) | last | (U64(size) << U64(8))
        return _avalanche64(mixed ^ (half_word(_SECRET, 0) ^ half_word(_SECRET, 4)))
    if size <= 8:
        both = half_word(data, end - 4) + (half_word(data, start) << U64(32))
        h = both ^ (word(_SECRET, 8) ^ word(_SECRET, 16))
        h = (h ^ _rotate(h, 49) ^ _rotate(h, 24)) * _MX2
        h = (h ^ ((h >> U64(35)) + U64(size))) * _MX2
        return h ^ (h >> U64(28))
    if size <= 16:
        low = word(data, start) ^ (word(_SECRET, 24) ^ word(_SECRET, 32))
        high = word(data, end - 8) ^ (word(_SECRET, 40) ^ word(_SECRET, 48))
        swapped = big_word(data, start) ^ _swapped(word(_SECRET, 24) ^ word(_SECRET, 32))
        return _avalanche3(U64(size) + swapped + high + _fold(low, high))
    h = U64(size) * _P1
    if size <= 128:
        for i in range((size - 1) // 32, -1, -1):
            h += _mix16(data, start + 16 * i, 32 * i) + _mix16(data, end - 16 * (i + 1), 32 * i + 16)
        return _avalanche3(h)
    for i in range(8):
        h += _mix16(data, start + 16 * i, 16 * i)
    h = _avalanche3(h)
    for i in range(8, size // 16):
        h += _mix16(data, start + 16 * i, 16 * (i - 8) + 3)
    return _avalanche3(h + _mix16(data, end - 16, 136 - 17))


@inlined
def _swapped(x: np.uint64) -> Any:
    r = U64(0)
    for _ in range(8):
        r = (r << U64(8)) | (x & U64(0xFF))
        x = x >> U64(8)
    return r


@kernel
def _xxh3(data: Bytes, start: int, size: int) -> Any:
    if size <= 240:
        return _xxh3_short(data, start, size)
    lanes = np.empty(8, np.uint64)
    lanes[0], lanes[1], lanes[2], lanes[3] = _P32_3, _P1, _P2, _P3
    lanes[4], lanes[5], lanes[6], lanes[7] = _P4, _P32_2, _P5, _P32_1
    stripes = (size - 1) // 64
    step = 0
    for stripe in range(stripes):
        _accumulate(lanes, data, start + 64 * stripe, 8 * step)
        step += 1
        if step == 16:
            for i in range(8):
                lanes[i] = (lanes[i] ^ (lanes[i] >> U64(47)) ^ word(_SECRET, 128 + 8 * i)) * _P32_1
            step = 0
    _accumulate(lanes, data, start + size - 64, 121)
    h = U64(size) * _P1
    for i in range(4):
        h += _fold(lanes[2 * i] ^ word(_SECRET, 11 + 16 * i), lanes[2 * i + 1] ^ word(_SECRET, 19 + 16 * i))
    return _avalanche3(h)


@inlined
def _accumulate(lanes: npt.NDArray[np.uint64], data: Bytes, at: int, secret: int) -> None:
    for i in range(0, 8, 2):
        first, second = word(data, at + 8 * i), word(data, at + 8 * i + 8)
        a, b = first ^ word(_SECRET, secret + 8 * i), second ^ word(_SECRET, secret + 8 * i + 8)
        lanes[i] += second + (a & _LOW) * (a >> U64(32))
        lanes[i + 1] += first + (b & _LOW) * (b >> U64(32))
