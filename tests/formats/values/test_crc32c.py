"""CRC-32C by Python and numpy, against known values, one byte after the other, and the compiled loop."""

from __future__ import annotations

import random
import sys

import numpy as np
import pytest

from statestore.formats.kernels import compiled_use
from statestore.formats.values import crc32c as module
from statestore.formats.values.crc32c import crc32c


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
    for size in (1, 255, 256, 4095, 4096, 4097, 10_000):
        data = rng.randbytes(size)
        assert crc32c(data) == byte_by_byte(data)
    assert (compiled_use.COMPILED in sys.modules) or not is_loaded
    assert crc32c(np.arange(10, dtype=np.uint8).tobytes()) == byte_by_byte(bytes(range(10)))
