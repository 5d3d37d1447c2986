"""The default partitioner of Kafka, by which a producer places a key (``BuiltInPartitioner``, ``Utils.murmur2``).

A store's partition is that of the input record, so the rule holds for the user's key, without the times that windows
and sessions add to it. An application may place keys by a rule of its own; then the keys that are there disagree.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from statestore.formats.bytes.byte_columns import Cells, gather
from statestore.formats.kernels.arrays import Ints

_U32s = npt.NDArray[np.uint32]
_SEED, _M, _R = 0x9747B28C, 0x5BD1E995, 24
MOST_PARTITIONS = 4096
"""The greatest number of partitions that is looked for where no file says it."""
_FEW = 64


def murmur2(keys: Cells) -> _U32s:
    """The hash of each key; none may be null."""
    m = np.uint32(_M)
    found = np.uint32(_SEED) ^ keys.size.astype(np.uint32)
    for word in range(int(keys.size.max(initial=0)) // 4):
        long = np.flatnonzero(keys.size >= 4 * word + 4)
        k = gather(keys.data, keys.start[long] + 4 * word, "<u4") * m
        k = (k ^ (k >> np.uint32(_R))) * m
        found[long] = (found[long] * m) ^ k
    whole, rest = keys.size & ~3, keys.size & 3
    for at in (2, 1, 0):
        some = np.flatnonzero(rest > at)
        tail = gather(keys.data, keys.start[some] + whole[some] + at, "u1").astype(np.uint32)
        found[some] ^= tail << np.uint32(8 * at)
    some = np.flatnonzero(rest > 0)
    found[some] *= m
    found = (found ^ (found >> np.uint32(13))) * m
    return found ^ (found >> np.uint32(15))


def partitions_of(hashes: _U32s, count: int) -> Ints:
    """The partition of each hash among ``count``: positive numbers are made of negative ones by their bits."""
    return (hashes & np.uint32(0x7FFFFFFF)).astype(np.int64) % count


def fitting_counts(hashes: _U32s, partitions: Ints, least: int) -> list[int]:
    """The numbers of partitions from ``least`` on with which the rule gives these keys these partitions, the first two.

    None: the keys were placed by another rule. Two: the keys do not tell which.
    """
    found: list[int] = []
    for count in range(max(least, 1), MOST_PARTITIONS + 1):
        # Few keys rule out almost every number.
        if _fits(hashes[:_FEW], partitions[:_FEW], count) and _fits(hashes, partitions, count):
            found.append(count)
            if len(found) == 2:
                break
    return found


def _fits(hashes: _U32s, partitions: Ints, count: int) -> bool:
    return bool((partitions_of(hashes, count) == partitions).all())
