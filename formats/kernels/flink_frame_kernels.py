"""Steps over what Flink writes behind lengths: entries of canonical savepoints, and changes of the changelog backend.

A savepoint: length:int32 | key | length:int32 | value, repeated; bit 80 of the first byte of a key marks a state's last
entry. A set of changes: groups:int32 | count:int32 | key group:int32 | length:int32 | change, count times |
count:int32 | ...
"""

from __future__ import annotations

from statestore.formats.kernels.arrays import Bytes, Ints
from statestore.formats.kernels.compiled import I64, kernel
from statestore.formats.kernels.flink_value_parts import int32


@kernel
def step_over_frames(
    data: Bytes,
    at: int,
    stop: int,
    emit: bool,
    key_start: Ints,
    key_size: Ints,
    value_start: Ints,
    value_size: Ints,
    reached: Ints,
) -> int:
    """Write down where keys and values lie, as many whole entries as are in ``data[at:stop]`` and fit the arrays.

    ``reached``: the position behind the last entry, and whether it was marked as the state's last. Returns the number
    of entries, -1 where a length is negative or a key is empty; ``reached[0]`` is then that entry's position. Without
    ``emit`` nothing is written down and the arrays do not limit.
    """
    count, room, ended = 0, len(key_start), 0
    while at + 4 <= stop and (not emit or count < room):
        size = (I64(data[at]) << 24) | (I64(data[at + 1]) << 16) | (I64(data[at + 2]) << 8) | I64(data[at + 3])
        if size <= 0 or size >= 1 << 31:
            reached[0], reached[1] = at, 0
            return -1
        key = at + 4
        if size > stop - key - 4:
            break
        behind = key + size
        more = (
            (I64(data[behind]) << 24)
            | (I64(data[behind + 1]) << 16)
            | (I64(data[behind + 2]) << 8)
            | I64(data[behind + 3])
        )
        if more >= 1 << 31:
            reached[0], reached[1] = at, 0
            return -1
        value = behind + 4
        if more > stop - value:
            break
        if emit:
            key_start[count], key_size[count] = key, size
            value_start[count], value_size[count] = value, more
        count += 1
        at = value + more
        if data[key] & 0x80:
            ended = 1
            break
    reached[0], reached[1] = at, ended
    return count


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
            number = int32(data, at)
            if number < 1:
                left[3] = at
                return -1
            left[0] -= 1
            left[1], left[2] = number, int32(data, at + 4)
            at += 8
            continue
        if at + 4 > stop:
            break
        length = int32(data, at)
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
