"""Sets of changes in the files of Flink's changelog state backend.

    file         byte, 1: what follows is packed (snappy's framing format), 0: it is not | sets, one after another
    set          groups:int32 | group, repeated
    group        count:int32 | key group:int32 | length:int32 | change, count times

A handle has the byte at which a set begins in the unpacked sets; what follows it in the file may be that of another
subtask. Changes of key group -1 are first, and describe states. Within a key group, changes are in the order in which
they were made. Source: ``StateChangeFormat`` and ``ChangelogStreamWrapper`` of Flink.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from statestore.formats.bytes.byte_columns import Cells, cells_of
from statestore.formats.flink.snapshot.handles import ChangeSet, ChangesFile, PlainChanges, RelativeChanges, stream_size
from statestore.formats.flink.snapshot.snapshot_files import Part, SnapshotFiles
from statestore.formats.flink.streams.block_bytes import BlockWindow, block_window, damaged
from statestore.formats.kernels import compiled_use
from statestore.formats.kernels.arrays import Ints

DESCRIPTION = -1
"""The key group of changes that describe states (``AbstractStateChangeLogger``, ``COMMON_KEY_GROUP``)."""
_CHANGES = 1 << 16
"""Most changes of a batch."""
_FEW_CHANGES = 1 << 8
"""Most changes of a batch where descriptions are looked for: a large set has few, and all else costs time."""
_SKIPPED = 1 << 16
_PIECE = 1 << 20
_TWO = struct.Struct(">ii")


@dataclass(frozen=True)
class Changes:
    """Changes in the order in which they count, each with its key group; ``number`` is that of their set."""

    number: int
    groups: Ints
    cells: Cells


def read_changes(
    files: SnapshotFiles, sets: Sequence[ChangeSet | PlainChanges], *, described: bool = False
) -> Iterator[Changes]:
    """Yield the changes of all sets, in batches of one set. A batch is valid until the next one is asked for.

    ``described``: what lies behind the descriptions of states in a set is left out.

    Raises CorruptError FLINK_FILE, and the errors of `SnapshotFiles.open_at`.
    """
    opened: _OpenFile | None = None
    try:
        for number, each in enumerate(sets):
            if isinstance(each, PlainChanges):
                groups = np.array([group for group, _ in each.changes], np.int64)
                yield Changes(number, groups, _plain_cells([change for _, change in each.changes]))
                continue
            if opened is None or not opened.goes_on(each):
                if opened is not None:
                    opened.part.close()
                opened = _OpenFile(each, files.open_at(each.stream))
            for groups, cells in opened.changes(each.offset, _FEW_CHANGES if described else _CHANGES):
                yield Changes(number, groups, cells)
                if described and groups[-1] != DESCRIPTION:
                    break
    finally:
        if opened is not None:
            opened.part.close()


def _plain_cells(changes: Sequence[bytes]) -> Cells:
    return cells_of(pa.array(changes, pa.binary()))


class _OpenFile:
    """A file of sets, read from one set to a later one."""

    def __init__(self, first: ChangeSet, part: Part) -> None:
        self.part = part
        self._stream = first.stream
        self._at = 0  # in the unpacked sets
        flag = part.read_at(0, 1)
        if flag not in (b"\0", b"\1"):
            raise damaged(part.path, f"found {flag.hex() or 'no byte'} in front of changes, expected 00 or 01")
        self._is_packed = flag == b"\1"
        is_file = isinstance(first.stream, ChangesFile | RelativeChanges)
        if is_file and not self._is_packed and part.size != stream_size(first.stream) + 1:
            raise damaged(part.path, f"found {part.size} bytes, expected {stream_size(first.stream) + 1}")
        self._window = block_window(part, 1, part.size, compressed=self._is_packed, piece_bytes=_PIECE)

    def goes_on(self, each: ChangeSet) -> bool:
        """Return whether a set lies in the same file behind what was read."""
        return each.stream == self._stream and each.offset >= self._at

    def changes(self, offset: int, most: int) -> Iterator[tuple[Ints, Cells]]:
        """Yield the changes of the set that begins at an offset, at most so many at once.

        Raises CorruptError FLINK_FILE.
        """
        if offset > stream_size(self._stream):
            raise damaged(self.part.path, f"found changes from byte {offset} on, expected {stream_size(self._stream)}")
        self._go_to(offset)
        window = self._window
        left = np.zeros(4, np.int64)
        left[0] = int.from_bytes(self._taken(4), "big", signed=True)
        if left[0] < 1:  # Flink writes no empty set, and zeros are what a crash leaves
            raise damaged(self.part.path, f"found {left[0]} key groups of changes, expected 1 or more")
        while left[0] or left[1]:
            groups, cells = _frames(window, left, most)
            self._at += int(left[3]) - window.at
            stuck = int(left[3]) == window.at
            window.at = int(left[3])
            if len(cells):
                yield groups, cells
            elif stuck and (left[0] or left[1]):
                window.more()

    def _taken(self, size: int) -> bytes:
        self._at += size
        return self._window.take(size)

    def _go_to(self, offset: int) -> None:
        if not self._is_packed and offset - self._at > self._window.left:
            self._window = block_window(self.part, 1 + offset, self.part.size, compressed=False, piece_bytes=_PIECE)
            self._at = offset
        while self._at < offset:
            self._taken(min(offset - self._at, _SKIPPED))


def _frames(window: BlockWindow, left: Ints, most: int) -> tuple[Ints, Cells]:
    groups, start, size = (np.empty(most, np.int64) for _ in range(3))
    if compiled_use.is_loaded():
        from statestore.formats.kernels.flink_frame_kernels import step_over_changes

        count = step_over_changes(window.data, window.at, window.stop, left, groups, start, size)
    else:
        count = _plain_steps(window, left, groups, start, size)
    if count < 0:
        bad = int(left[3])
        raise damaged(window.path, f"found lengths {window.data[bad : bad + 8].tobytes().hex()} of changes")
    return groups[:count], Cells(window.data, start[:count], size[:count])


def _plain_steps(window: BlockWindow, left: Ints, group: Ints, start: Ints, size: Ints) -> int:
    """The loop of ``step_over_changes`` in Python."""
    view, at, stop = window.data.data, window.at, window.stop
    groups, changes, current = (int(each) for each in left[:3])
    found: list[tuple[int, int, int]] = []
    bad = False
    while len(found) < len(start) and not bad:
        if not changes:
            if not groups or at + 8 > stop:
                break
            changes, current = _TWO.unpack_from(view, at)
            bad = changes < 1
            if not bad:
                groups, at = groups - 1, at + 8
            continue
        if at + 4 > stop:
            break
        length = int.from_bytes(view[at : at + 4], "big", signed=True)
        bad = length < 0
        if bad or length > stop - at - 4:
            break
        found.append((current, at + 4, length))
        changes, at = changes - 1, at + 4 + length
    left[:] = groups, changes, current, at
    if found:
        group[: len(found)], start[: len(found)], size[: len(found)] = np.array(found, np.int64).T
    return -1 if bad else len(found)
