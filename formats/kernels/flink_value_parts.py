"""Parts of stored values of Flink that loops of several kernels read: numbers, the ends of texts, names of cases."""

from __future__ import annotations

from statestore.formats.kernels.arrays import Bytes, Ints
from statestore.formats.kernels.compiled import I64, inlined
from statestore.formats.kernels.flink_steps import SHORT, WRONG


@inlined
def int32(data: Bytes, at: int) -> int:
    high = I64(data[at]) << 24 | I64(data[at + 1]) << 16
    found = high | I64(data[at + 2]) << 8 | I64(data[at + 3])
    signed: int = found - (found >> 31 << 32)
    return signed


@inlined
def text_end(data: Bytes, at: int, end: int, units: int) -> int:
    """Return where a string's last unit ends; -SHORT or -WRONG if there is none."""
    if units > end - at:
        return -SHORT
    stop = at + units
    while at < stop and data[at] < 0x80:
        at += 1
    left = stop - at
    while left > 0:
        if at >= end:
            return -SHORT
        if data[at] >= 0x80:
            at += 1
            if at >= end:
                return -SHORT
            if data[at] >= 0x80:
                at += 1
                if at >= end:
                    return -SHORT
                if data[at] > 3:
                    return -WRONG
        at += 1
        left -= 1
    return at


@inlined
def named_case(data: Bytes, at: int, size: int, names: Bytes, name_ends: Ints, first: int, count: int) -> int:
    """Which of these names stands at a position; -1 for none."""
    for k in range(first, first + count):
        begin = name_ends[k]
        if name_ends[k + 1] - begin == size:
            i = 0
            while i < size and data[at + i] == names[begin + i]:
                i += 1
            if i == size:
                return k - first
    return -1
