"""The checksums of RocksDB blocks against other implementations, for every short length and around every stripe."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
import xxhash
from support.parameters import mostly_slow

from statestore.formats.kernels.checksum_kernels import CRC32C, XXH3, XXHASH, XXHASH64, block_checksums, crc32c
from statestore.formats.kernels.compiled import SLACK

SIZES = [*range(601), 1023, 1024, 1025, 1087, 1088, 1089, 2048, 2049, 4096, 65535, 65537]


def crc32c_of(data: bytes) -> int:
    """CRC-32C bit by bit: reflected polynomial 0x82F63B78 (RFC 3720, appendix B.4)."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked_crc(payload: bytes, kind: bytes) -> int:
    crc = crc32c_of(payload + kind)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def xxh3_of_block(payload: bytes, kind: bytes) -> int:
    return xxhash.xxh3_64_intdigest(payload) & 0xFFFFFFFF ^ kind[0] * 0x6B9083D9 & 0xFFFFFFFF


TRUTH: dict[int, Callable[[bytes, bytes], int]] = {
    CRC32C: masked_crc,
    XXHASH: lambda payload, kind: xxhash.xxh32_intdigest(payload + kind),
    XXHASH64: lambda payload, kind: xxhash.xxh64_intdigest(payload + kind) & 0xFFFFFFFF,
    XXH3: xxh3_of_block,
}


@pytest.mark.parametrize("kind", TRUTH)
@pytest.mark.parametrize("compression", mostly_slow([0, 4, 255], [4]))
def test_blocks_of_all_lengths(kind: int, compression: int) -> None:
    chance = random.Random(kind)
    sizes = [size for size in SIZES if size < 4096] if kind == CRC32C else SIZES
    payloads = [chance.randbytes(size) for size in sizes]
    # Each at an odd place, other bytes right behind: nothing beyond a block may count.
    data = b"-" + b"".join(payload + bytes([compression]) + b"#@" for payload in payloads)
    ends = np.cumsum([size + 3 for size in sizes])
    start = (1 + ends - np.array(sizes) - 3).astype(np.int64)
    array = np.frombuffer(data + b"\xaa" * SLACK, np.uint8)
    found = block_checksums(array, start, np.array(sizes, np.int64), kind)
    assert found.tolist() == [TRUTH[kind](payload, bytes([compression])) for payload in payloads]


def test_known_values_of_crc32c() -> None:
    """RFC 3720, appendix B.4, and the check value of the CRC catalogue."""
    known = {
        bytes(32): 0x8A9136AA,
        b"\xff" * 32: 0x62A8AB43,
        bytes(range(32)): 0x46DD794E,
        bytes(range(31, -1, -1)): 0x113FDB5C,
        b"123456789": 0xE3069283,
        b"": 0,
    }
    for data, expected in known.items():
        array = np.frombuffer(b"x" + data + b"\xff" * SLACK, np.uint8)
        assert int(crc32c(array, 1, len(data))) == expected == crc32c_of(data)
