"""CRC32C (Castagnoli) of many byte strings at once: the row checksums of ``stateStore.rowChecksum.enabled``.

A checksum is four bytes, little-endian, over the key and the value before which it stands. The checksum of a deletion
is over the key.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from statestore.formats.bytes.byte_columns import Cells, gather
from statestore.formats.kernels.arrays import U32s
from statestore.formats.spark.checkpoint.state_errors import corrupt_row

CHECKSUM_BYTES = 4
_POLYNOMIAL = np.uint32(0x82F63B78)
_ALL = np.uint32(0xFFFFFFFF)
_WORD = 8


def verify_checksums(stored: npt.NDArray[Any], keys: Cells, values: Cells | None = None) -> None:
    """Raise CorruptError SPARK_STATE_ROW, naming the first row that does not match its checksum."""
    found = crc32c(keys) if values is None else crc32c(values, crc32c(keys))
    wrong = found != stored
    if wrong.any():
        row = int(np.argmax(wrong))
        raise corrupt_row(f"row {row} has checksum {int(found[row]):#010x}, expected {int(stored[row]):#010x}")


def crc32c(strings: Cells, before: U32s | None = None) -> U32s:
    """The checksums of strings. With ``before``, they continue the checksums of the strings' beginnings."""
    order = np.argsort(-strings.size, kind="stable")  # the strings with a further word are always the first ones
    size, start = strings.size[order], strings.start[order]
    crc = np.full(len(strings), _ALL) if before is None else before[order] ^ _ALL
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
    checksums[order] = crc ^ _ALL
    return checksums


@cache
def _tables() -> list[U32s]:
    """Tables for a word: table ``n`` is the effect of a byte that ``n`` bytes follow."""
    first = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        first = np.where(first & 1, (first >> np.uint32(1)) ^ _POLYNOMIAL, first >> np.uint32(1))
    tables = [first]
    for _ in range(_WORD - 1):
        tables.append(first[tables[-1] & 0xFF] ^ (tables[-1] >> np.uint32(8)))
    return tables
