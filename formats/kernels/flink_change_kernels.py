"""Steps over the changes that Flink's changelog state backend logs.

A set of changes: groups:int32 | count:int32 | key group:int32 | length:int32 | change, count times | count:int32 | ...
"""

from __future__ import annotations

from statestore.formats.kernels.arrays import Bytes, Ints
from statestore.formats.kernels.compiled import I64, inlined, kernel


@inlined
def _int32(data: Bytes, at: int) -> int:
    high = I64(data[at]) << 24 | I64(data[at + 1]) << 16
    found = high | I64(data[at + 2]) << 8 | I64(data[at + 3])
    signed: int = found - (found >> 31 << 32)
    return signed


@kernel
def step_over_changes(data: Bytes, at: int, stop: int, left: Ints, group: Ints, start: Ints, size: Ints) -> int:
    """Write down where changes lie, as many whole ones as are in ``data[at:stop]`` and fit the arrays.

    ``left``: the key groups and the changes of the key group that are still to come, the key group, and the position
    reached. Returns the number of changes, -1 where a length is negative or a key group has no changes;
    ``left[3]`` is then its position.
    """
    count, room = 0, len(start)
    while count < room:
        if left[1] == 0:
            if left[0] == 0 or at + 8 > stop:
                break
            number = _int32(data, at)
            if number < 1:
                left[3] = at
                return -1
            left[0] -= 1
            left[1], left[2] = number, _int32(data, at + 4)
            at += 8
            continue
        if at + 4 > stop:
            break
        length = _int32(data, at)
        if length < 0:
            left[3] = at
            return -1
        if length > stop - at - 4:
            break
        group[count], start[count], size[count] = left[2], at + 4, length
        count += 1
        left[1] -= 1
        at += 4 + length
    left[3] = at
    return count
