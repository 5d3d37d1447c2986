"""Entries of canonical savepoints: framed keys and values, by key group and state.

    block of a key group   state:u16 | entries | state:u16 | entries | ... | FFFF
    entry                  length:int32 | key | length:int32 | value

Bit 80 of the first byte of a key marks the last entry of a state in the key group. Source:
``FullSnapshotAsyncWriter`` and ``FullSnapshotRestoreOperation`` of Flink.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from statestore.formats.flink.streams.block_bytes import BlockWindow, damaged
from statestore.formats.kernels import compiled_use
from statestore.formats.kernels.arrays import Bytes
from statestore.formats.values.cells import Cells

ENTRIES = 1 << 16
"""Most entries of a batch."""
_END, _MARK = 0xFFFF, 0x80
_LENGTH = struct.Struct(">i")


@dataclass(frozen=True)
class _Frames:
    keys: Cells
    values: Cells
    at: int
    ended: bool


def savepoint_entries(window: BlockWindow, state: int, states: int) -> Iterator[tuple[Cells, Cells]]:
    """Yield the keys and values of one state in a key group's block, in batches; other states are stepped over.

    ``states`` is the number of states in the header. Raises CorruptError FLINK_FILE.
    """
    while True:
        number = int.from_bytes(window.take(2), "big")
        if number == _END:
            if not window.is_empty():
                raise damaged(window.path, "found bytes behind the end of a key group")
            return
        if number >= states:
            raise damaged(window.path, f"found state {number} in a key group, expected one of {states}")
        ended = False
        while not ended:
            found = _frames(window, emit=number == state)
            if len(found.keys):
                yield found.keys, found.values
            ended, stuck = found.ended, found.at == window.at
            window.at = found.at
            if stuck and not ended:
                window.more()
        if number == state:
            return


def _frames(window: BlockWindow, *, emit: bool) -> _Frames:
    data, at, stop = window.data, window.at, window.stop
    found = _compiled(data, at, stop, emit) if compiled_use.is_loaded() else _plain(data, at, stop, emit)
    count, starts, reached = found
    if count < 0:
        raise damaged(window.path, f"found lengths {data[reached[0] : reached[0] + 8].tobytes().hex()} of an entry")
    key_start, key_size, value_start, value_size = (each[: count if emit else 0] for each in starts)
    if reached[1] and emit:
        data[key_start[-1]] &= ~np.uint8(_MARK)  # the window's own copy
    return _Frames(
        Cells(data, key_start, key_size), Cells(data, value_start, value_size), int(reached[0]), bool(reached[1])
    )


def _compiled(data: Bytes, at: int, stop: int, emit: bool) -> tuple[int, Any, Any]:
    from statestore.formats.kernels.flink_frame_kernels import step_over_frames

    room = ENTRIES if emit else 0
    keys, key_sizes, values, value_sizes = (np.empty(room, np.int64) for _ in range(4))
    reached = np.zeros(2, np.int64)
    count = step_over_frames(data, at, stop, emit, keys, key_sizes, values, value_sizes, reached)
    return count, (keys, key_sizes, values, value_sizes), reached.tolist()


def _plain(data: Bytes, at: int, stop: int, emit: bool) -> tuple[int, Any, Any]:
    view, unpack = data.data, _LENGTH.unpack_from
    starts: list[list[int]] = [[], [], [], []]
    count = 0
    while at + 4 <= stop and count < ENTRIES:
        size = unpack(view, at)[0]
        if size <= 0:
            return -1, (), (at, 0)
        behind = at + 4 + size
        if behind + 4 > stop:
            break
        more = unpack(view, behind)[0]
        if more < 0:
            return -1, (), (at, 0)
        if behind + 4 + more > stop:
            break
        if emit:
            for place, number in zip(starts, (at + 4, size, behind + 4, more), strict=True):
                place.append(number)
        count += 1
        first, at = at + 4, behind + 4 + more
        if view[first] & _MARK:
            return count, [np.array(each, np.int64) for each in starts], (at, 1)
    return count, [np.array(each, np.int64) for each in starts], (at, 0)
