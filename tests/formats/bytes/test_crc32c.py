"""CRC32C by Python, numpy and the compiled loop, against known values and one byte after the other."""

from __future__ import annotations

import random
import sys

import numpy as np
import pyarrow as pa
import pytest

from statestore.formats.bytes import crc32c as module
from statestore.formats.bytes.byte_columns import cells_of
from statestore.formats.bytes.crc32c import crc32c, crc32c_of_cells
from statestore.formats.kernels import compiled_use


def byte_by_byte(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


@pytest.mark.parametrize("is_loaded", [False, True])
def test_checksums(monkeypatch: pytest.MonkeyPatch, is_loaded: bool) -> None:
    monkeypatch.setattr(module, "is_loaded", lambda: is_loaded)
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"") == 0
    assert crc32c(bytes(32)) == 0x8A9136AA
    rng = random.Random(1)
    for size in (1, 255, 256, 4095, 4096, 4097, 10_000, 70_001):
        data = rng.randbytes(size)
        assert crc32c(data) == byte_by_byte(data)
    assert (compiled_use.COMPILED in sys.modules) or not is_loaded
    assert crc32c(np.arange(10, dtype=np.uint8).tobytes()) == byte_by_byte(bytes(range(10)))


def test_checksums_of_many_strings_are_those_of_the_standard() -> None:
    strings = [b"123456789", b"", bytes(32), b"\xff" * 32, bytes(range(32)), b"a" * 7]
    found = crc32c_of_cells(cells_of(pa.array(strings))).tolist()
    assert found[:5] == [0xE3069283, 0, 0x8A9136AA, 0x62A8AB43, 0x46DD794E]  # RFC 3720, B.4
    halves = crc32c_of_cells(cells_of(pa.array([s[:5] for s in strings])))
    assert crc32c_of_cells(cells_of(pa.array([s[5:] for s in strings])), halves).tolist() == found
