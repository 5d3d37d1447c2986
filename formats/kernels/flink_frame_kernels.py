"""Steps over the framed entries of Flink's canonical savepoints.

length:int32 | key | length:int32 | value, repeated; bit 80 of the first byte of a key marks a state's last entry.
"""

from __future__ import annotations

from statestore.formats.kernels.arrays import Bytes, Ints
from statestore.formats.kernels.compiled import I64, kernel


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
