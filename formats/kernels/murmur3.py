"""Murmur3 of 32 bits, of many values at a time: the steps from which Spark and Flink make their hashes."""

from __future__ import annotations

import numpy as np

from statestore.formats.kernels.arrays import U32s


def turned(x: U32s, bits: int) -> U32s:
    """Each number rotated to the left."""
    return (x << np.uint32(bits)) | (x >> np.uint32(32 - bits))


def mixed(h: U32s, k: U32s) -> U32s:
    """The states ``h`` with one more block each."""
    k = turned(k * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
    return turned(h ^ k, 13) * np.uint32(5) + np.uint32(0xE6546B64)


def finished(h: U32s, size: U32s) -> U32s:
    """The hashes of states that have seen ``size`` bytes each."""
    h = h ^ size
    h = (h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    h = (h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return h ^ (h >> np.uint32(16))
