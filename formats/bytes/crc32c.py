"""CRC32C (Castagnoli; RFC 3720, appendix B.4) of a byte string, and of many at once.

Files of RocksDB, batches of Kafka, blocks of Flink and rows of Spark carry it. It is not masked here.
"""

from __future__ import annotations

from functools import cache, lru_cache
from math import isqrt

import numpy as np

from statestore.formats.bytes.byte_columns import Cells, gather
from statestore.formats.kernels.arrays import Bytes, U32s
from statestore.formats.kernels.compiled_use import is_loaded

_POLYNOMIAL, _ALL = 0x82F63B78, 0xFFFFFFFF
_WORD = 8
# Bytes from which numpy's columns of words take less time than single bytes: half of it at 8,000 bytes, but 16 times
# as much at 64, the size of a small batch of Kafka.
_SHORT = 4096


def crc32c(data: bytes) -> int:
    """Return the checksum of a byte string, by the compiled loop where this process has loaded it."""
    if is_loaded():
        from statestore.formats.kernels.checksum_kernels import crc32c as compiled

        return int(compiled(np.frombuffer(bytes(data), np.uint8), 0, len(data)))
    return plain_crc32c(np.frombuffer(data, np.uint8))


def plain_crc32c(data: Bytes) -> int:
    """Return the checksum of a byte string without compiled loops.

    Long data is cut in rows of one width, whose registers are computed at once and then joined.
    """
    crc, cut = _ALL, 0
    if len(data) >= _SHORT:
        width = isqrt(len(data)) // _WORD * _WORD
        rows = len(data) // width
        cut = rows * width
        begun = np.full(rows, _ALL, np.uint32)  # registers that begin with zeros
        begun[0] = 0
        cells = Cells(data, np.arange(0, cut, width), np.full(rows, width))
        shift = _shifts(width)
        crc = 0
        for register in (crc32c_of_cells(cells, begun) ^ np.uint32(_ALL)).tolist():
            crc = shift[0][crc & 255] ^ shift[1][crc >> 8 & 255] ^ shift[2][crc >> 16 & 255] ^ shift[3][crc >> 24]
            crc ^= register
    table = _numbers()
    for byte in data[cut:].tobytes():
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ _ALL


def crc32c_of_cells(strings: Cells, before: U32s | None = None) -> U32s:
    """Return the checksums of strings. With ``before``, they continue the checksums of the strings' beginnings."""
    order = np.argsort(-strings.size, kind="stable")  # the strings with a further word are always the first ones
    size, start = strings.size[order], strings.start[order]
    crc = np.full(len(strings), _ALL, np.uint32) if before is None else before[order] ^ np.uint32(_ALL)
    tables = _tables()
    longest = int(size[0]) if len(size) else 0
    words = size // _WORD
    for index in range(longest // _WORD):
        count = int(np.searchsorted(-words, -index))  # words > index
        word = gather(strings.data, start[:count] + _WORD * index, "<u8") ^ crc[:count]
        mixed = tables[_WORD - 1][(word & np.uint64(0xFF)).astype(np.int64)]
        for byte in range(1, _WORD):
            mixed ^= tables[_WORD - 1 - byte][((word >> np.uint64(8 * byte)) & np.uint64(0xFF)).astype(np.int64)]
        crc[:count] = mixed
    for index in range(_WORD - 1):
        rows = np.flatnonzero(size % _WORD > index)
        byte_of = gather(strings.data, start[rows] + _WORD * words[rows] + index, "<u1")
        crc[rows] = tables[0][(crc[rows] ^ byte_of) & 0xFF] ^ (crc[rows] >> np.uint32(8))
    checksums = np.empty_like(crc)
    checksums[order] = crc ^ np.uint32(_ALL)
    return checksums


@cache
def _tables() -> list[U32s]:
    """Tables for a word: table ``n`` is the effect of a byte that ``n`` bytes follow."""
    first: U32s = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        first = np.where(first & 1, (first >> np.uint32(1)) ^ np.uint32(_POLYNOMIAL), first >> np.uint32(1))
    tables = [first]
    for _ in range(_WORD - 1):
        tables.append(first[tables[-1] & 0xFF] ^ (tables[-1] >> np.uint32(8)))
    return tables


@cache
def _numbers() -> list[int]:
    found: list[int] = _tables()[0].tolist()
    return found


@lru_cache(64)
def _shifts(width: int) -> list[list[int]]:
    """For each byte of a register, what it becomes behind ``width`` zeros: CRCs are linear."""
    table = _tables()[0]
    registers = np.arange(256, dtype=np.uint32)[None, :] << np.array([[0], [8], [16], [24]], np.uint32)
    for _ in range(width):
        registers = table[registers & 0xFF] ^ (registers >> np.uint32(8))
    found: list[list[int]] = registers.tolist()
    return found
