"""The checksum CRC-32C (Castagnoli), by a compiled loop where one is loaded, and by Python and numpy otherwise.

Without the loop, long data are cut into parts of equal length that numpy goes through side by side. The checksum of a
whole follows from those of its parts, because zeros behind data change a checksum by a linear map.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from statestore.formats.kernels.compiled_use import is_loaded

_POLYNOMIAL = 0x82F63B78
_PART = 256
_FEW_PARTS = 16


def crc32c(data: bytes) -> int:
    """The plain (unmasked) CRC-32C of the bytes."""
    if is_loaded():
        from statestore.formats.kernels.checksum_kernels import crc32c as compiled

        return int(compiled(np.frombuffer(bytes(data), np.uint8), 0, len(data)))
    crc, parts = 0xFFFFFFFF, len(data) // _PART
    if parts >= _FEW_PARTS:
        crc = _of_parts(np.frombuffer(data, np.uint8, parts * _PART).reshape(parts, _PART))
        data = data[parts * _PART :]
    table = _table()
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def _of_parts(parts: npt.NDArray[np.uint8]) -> int:
    """The register behind all parts, which began with ones."""
    table = np.array(_table(), np.uint32)
    registers = np.zeros(len(parts), np.uint32)
    for column in np.ascontiguousarray(parts.T):
        registers = table[(registers ^ column) & np.uint32(0xFF)] ^ (registers >> np.uint32(8))
    crc, behind = 0xFFFFFFFF, _behind_zeros()
    for register in registers.tolist():
        crc = behind[0][crc & 255] ^ behind[1][crc >> 8 & 255] ^ behind[2][crc >> 16 & 255] ^ behind[3][crc >> 24]
        crc ^= register
    return crc


@cache
def _table() -> list[int]:
    table = []
    for number in range(256):
        for _ in range(8):
            number = number >> 1 ^ (_POLYNOMIAL if number & 1 else 0)
        table.append(number)
    return table


@cache
def _behind_zeros() -> list[list[int]]:
    """For each byte of a register, what it becomes behind _PART zeros."""
    table, found = _table(), []
    for place in range(4):
        row = []
        for number in range(256):
            crc = number << 8 * place
            for _ in range(_PART):
                crc = table[crc & 0xFF] ^ crc >> 8
            row.append(crc)
        found.append(row)
    return found
