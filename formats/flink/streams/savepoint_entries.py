"""Entries of canonical savepoints and of full snapshots of old RocksDB backends: framed keys and values.

A block has the entries of a key group, by state.

    block of a key group   state:u16 | entries | state:u16 | entries | ... | FFFF
    entry                  length:int32 | key | length:int32 | value

Bit 80 of the first byte of a key marks the last entry of a state in the key group. Source:
``FullSnapshotAsyncWriter`` and ``FullSnapshotRestoreOperation`` of Flink, and ``RocksFullSnapshotStrategy`` up to 1.12.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from statestore.formats.bytes.byte_columns import Cells
from statestore.formats.errors import CorruptError
from statestore.formats.flink.snapshot.handles import KeyGroupForm, KeyGroupHandle
from statestore.formats.flink.snapshot.snapshot_files import Part
from statestore.formats.flink.streams.block_bytes import BlockWindow, block_window, damaged
from statestore.formats.flink.streams.raw_timers import block_bounds
from statestore.formats.kernels import compiled_use
from statestore.formats.kernels.arrays import Bytes

ENTRIES = 1 << 16
"""Most entries of a batch."""
_END, _MARK = 0xFFFF, 0x80
_LOOKED_AT = 2
_LENGTH = struct.Struct(">i")


def written_form(part: Part, handle: KeyGroupHandle, *, compressed: bool) -> KeyGroupForm:
    """Return whether a stream of a "heap" handle has the heap's form or that of savepoints, written by RocksDB.

    The heap backend writes a block for each key group, and the number of the key group first. RocksDB writes none for a
    key group without data, and a state and the length of a key first. Only key group 0 may have the same bytes in both
    forms, so its entries decide where there is no other one.

    Raises CorruptError FLINK_FILE for offsets beyond the file, and the errors of `Part.read_at`.
    """
    if any(offset <= 0 for offset in handle.offsets):
        return "rocksdb"
    bounds = block_bounds(handle, part.size, part.path)
    for group in sorted(bounds, reverse=True)[:_LOOKED_AT]:  # one of them may be damaged
        start, end = bounds[group]
        if part.read_at(start, min(4, end - start)) != group.to_bytes(4, "big"):
            continue
        if (
            group == 0
            and not compressed
            and _are_entries(block_window(part, start, end, compressed=False, partial=handle.partial))
        ):
            continue
        return "heap"
    return "rocksdb"


def _are_entries(window: BlockWindow) -> bool:
    """Return whether the block of key group 0 can be read as entries; of a long one, the first entries count."""
    count, before = 0, -1
    try:
        while count < ENTRIES:
            number = int.from_bytes(window.take(2), "big")
            if number == _END:
                return (window.partial or window.is_empty()) and count > 0
            ended = False
            while not ended and count < ENTRIES:
                found = _frames(window, emit=True)
                if number <= before or found.keys.data[found.keys.start].any():
                    return False
                count, ended, stuck = count + len(found.keys), found.ended, found.at == window.at
                window.at = found.at
                if stuck and not ended:
                    window.more()
            before = number
    except CorruptError:
        return False
    return True


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
    for _, keys, values in block_entries(window, states, only=state):
        yield keys, values


def entries_in(content: memoryview, path: str) -> Iterator[tuple[Cells, Cells]]:
    """Yield the keys and values of entries that follow one another, none of which is marked as the last one.

    Raises as `savepoint_entries`.
    """
    window = BlockWindow(iter([bytes(content)]), path)
    window.more()
    while window.left:
        found = _frames(window, emit=True)
        if found.at == window.at:
            raise damaged(path, "found a part of an entry")
        window.at = found.at
        yield found.keys, found.values


def block_entries(window: BlockWindow, states: int, only: int | None = None) -> Iterator[tuple[int, Cells, Cells]]:
    """Yield the state, the keys and the values of the entries in a key group's block, in batches of one state.

    ``only``: the one state that is wanted; None: all. Raises as `savepoint_entries`.
    """
    while True:
        number = int.from_bytes(window.take(2), "big")
        if number == _END:
            _check_end(window)
            return
        if number >= states:
            raise damaged(window.path, f"found state {number} in a key group, expected one of {states}")
        ended = False
        while not ended:
            found = _frames(window, emit=only is None or number == only)
            if len(found.keys):
                yield number, found.keys, found.values
            ended, stuck = found.ended, found.at == window.at
            window.at = found.at
            if stuck and not ended:
                window.more()
        if number == only:
            if not window.partial and int.from_bytes(window.take(2), "big") == _END:
                _check_end(window)
            return


def _check_end(window: BlockWindow) -> None:
    """Raise CorruptError FLINK_FILE for bytes behind the end: those of a key group whose offset was lost."""
    if not window.partial and not window.is_empty():
        raise damaged(window.path, "found bytes behind the end of a key group")


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
