"""The records of delta, snapshot and changelog files, as spans over blocks of the decompressed file.

    plain     key size:int32 | key | value size:int32 | value      value size -1: the key is deleted; key size -1: the
    end
    typed     type:1 | the same                                     1 put, 0x10 delete, 0x11 merge, 0 the end

Sizes are big-endian. A file without its end mark was cut off.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from struct import Struct, error

import numpy as np
import numpy.typing as npt

from statestore.formats.spark.damage import corrupt_file
from statestore.formats.spark.spans import Ints, Spans, gather

PUT, DELETE, MERGE = 1, 0x10, 0x11
END = 0
MAX_RECORD = 1 << 30
BLOCK = 4 << 20
_size_at = Struct(">i").unpack_from


@dataclass(frozen=True)
class Changes:
    """Some records of a file in order; ``kind`` is PUT, DELETE or MERGE. The value of a delete is empty."""

    kind: npt.NDArray[np.uint8]
    keys: Spans
    values: Spans

    def __len__(self) -> int:
        return len(self.kind)


def read_records(pieces: Iterable[bytes], path: str, *, typed: bool = False, block: int = BLOCK) -> Iterator[Changes]:
    """The records of a file, in runs that fill about ``block`` bytes.

    Raises CorruptError SPARK_STATE_FILE, naming ``path``, for impossible sizes or a file that ends early.
    """
    source, left, walk = iter(pieces), b"", _Walk(path, typed)
    while True:
        # At least twice what is left: a record larger than a block is copied a few times only.
        data = _filled(source, left, max(block, 2 * len(left)))
        starts, end, done = walk.starts(data)
        if starts:
            yield _changes(data, np.array(starts, np.int64), typed, path)
        if done:
            return
        if len(data) == len(left):
            raise corrupt_file(path, f"ends within a record or without its end mark ({len(left)} bytes are left)")
        left = data[end:]
        if len(left) > MAX_RECORD:
            raise corrupt_file(path, f"found a record of more than {MAX_RECORD} bytes")


def _filled(source: Iterator[bytes], left: bytes, size: int) -> bytes:
    """``left`` and the next pieces, of together at least ``size`` bytes if there are so many."""
    parts, held = [left], len(left)
    for piece in source:
        parts.append(piece)
        held += len(piece)
        if held >= size:
            break
    return b"".join(parts)


@dataclass(frozen=True)
class _Walk:
    """Finds where records start. Each start follows from the sizes before it, so this goes one by one, and only
    this."""

    path: str
    typed: bool

    def starts(self, data: bytes) -> tuple[list[int], int, bool]:
        """(where complete records start, where the incomplete one starts, whether the end mark was found)."""
        starts: list[int] = []
        add, front, typed, at = starts.append, int(self.typed), self.typed, 0
        length = len(data)
        try:
            while True:
                if typed and data[at] == END:
                    return starts, at, True
                key_end = at + front + 4 + (size := _size_at(data, at + front)[0])
                if size < 0:
                    self._end_mark(size, at)
                    return starts, at, True
                end = key_end + 4
                if (size := _size_at(data, key_end)[0]) > 0:
                    end += size
                elif size < -1:
                    raise corrupt_file(
                        self.path, f"found a value of {size} bytes in the record at byte {at} of a block"
                    )
                if end > length:
                    return starts, at, False
                add(at)
                at = end
        except (error, IndexError):
            return starts, at, False

    def _end_mark(self, size: int, at: int) -> None:
        if size != -1 or self.typed:
            raise corrupt_file(self.path, f"found a key of {size} bytes in the record at byte {at} of a block")


def _changes(block: bytes, starts: Ints, typed: bool, path: str) -> Changes:
    data = np.frombuffer(block, np.uint8)
    places = starts + int(typed)
    key_size = gather(data, places, ">i4").astype(np.int64)
    keys = Spans(data, places + 4, key_size)
    value_place = keys.start + key_size
    value_size = gather(data, value_place, ">i4").astype(np.int64)
    values = Spans(data, value_place + 4, np.maximum(value_size, 0))
    if not typed:
        return Changes(np.where(value_size < 0, np.uint8(DELETE), np.uint8(PUT)), keys, values)
    kind = data[starts]
    known = np.isin(kind, (PUT, DELETE, MERGE)) & ((kind == DELETE) == (value_size < 0))
    if not known.all():
        raise corrupt_file(
            path, f"found type {kind[int(np.argmin(known))]:#x} of a record, expected put, delete or merge"
        )
    return Changes(kind, keys, values)
