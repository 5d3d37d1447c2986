"""The records of delta, snapshot and changelog files, as spans over blocks of the decompressed file.

    plain     key size:int32 | key | value size:int32 | value      value size -1: the key is deleted; key size -1: the
    end
    typed     type:1 | the same                                     1 put, 0x10 delete, 0x11 merge, 0 the end

Sizes are big-endian. A file without its end mark was cut off.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from struct import Struct, error
from typing import Any

import numpy as np
import numpy.typing as npt

from statestore.formats.spark.checkpoint.damage import corrupt_file
from statestore.formats.spark.rows.byte_spans import Ints, Spans, change_kernels, gather

PUT, DELETE, MERGE = 1, 0x10, 0x11
_END = b"\0"
MAX_RECORD = 1 << 30
BLOCK = 4 << 20
_SIZE, _TYPED_SIZE = Struct(">i"), Struct(">xi")


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
    source, left = iter(pieces), b""
    while True:
        # The buffer is at least twice what is left, so that a record larger than a block is copied only a few times.
        data = _filled(source, left, max(block, 2 * len(left)))
        starts, end, done = _starts(data, typed, path)
        if len(starts):
            yield _changes(data, np.asarray(starts, np.int64), typed, path)
        if done:
            return
        if len(data) == len(left):
            raise corrupt_file(path, f"ends within a record or without its end mark ({len(left)} bytes are left)")
        left = data[end:]
        if len(left) > MAX_RECORD:
            raise corrupt_file(path, f"found a record of more than {MAX_RECORD} bytes")


def _filled(source: Iterator[bytes], left: bytes, size: int) -> bytes:
    """``left`` and the next pieces, together at least ``size`` bytes if the file has as many."""
    parts, filled = [left], len(left)
    for piece in source:
        parts.append(piece)
        filled += len(piece)
        if filled >= size:
            break
    return b"".join(parts)


def _starts(data: bytes, typed: bool, path: str) -> tuple[Sequence[int] | Ints, int, bool]:
    """(where complete records start, where the incomplete one starts, whether the end mark was found).

    Each start follows from the sizes before it, so only this loop goes record by record.
    """
    kernels = change_kernels()
    if kernels is not None:
        return _compiled_starts(kernels, data, typed, path)
    key_size_at, front, length = (_TYPED_SIZE if typed else _SIZE).unpack_from, 5 if typed else 4, len(data)
    value_size_at = _SIZE.unpack_from
    starts: list[int] = []
    at = key_size = value_size = 0
    try:
        while True:
            (key_size,) = key_size_at(data, at)
            if key_size < 0:
                break
            end = at + front + key_size
            (value_size,) = value_size_at(data, end)
            if value_size > 0:
                end += value_size
            elif value_size < -1:
                break
            end += 4
            if end > length:
                return starts, at, False
            starts.append(at)
            at = end
    except error:
        return starts, at, typed and data[at : at + 1] == _END
    _check_end(typed, key_size, value_size, at, path)
    return starts, at, True


def _compiled_starts(kernels: Any, data: bytes, typed: bool, path: str) -> tuple[Ints, int, bool]:
    """The starts as `_starts` returns them, found by compiled code."""
    front = 5 if typed else 4
    starts, end = np.empty(len(data) // (front + 4) + 1, np.int64), np.zeros(4, np.int64)
    count = kernels.record_starts(np.frombuffer(data, np.uint8), front, starts, end)
    at, odd, key_size, value_size = end.tolist()
    if not odd:
        return starts[:count], at, typed and len(data) - at < front and data[at : at + 1] == _END
    _check_end(typed, key_size, value_size, at, path)
    return starts[:count], at, True


def _check_end(typed: bool, key_size: int, value_size: int, at: int, path: str) -> None:
    """Check that an impossible size is the end mark. Files of typed records do not have one."""
    if value_size < -1 or typed or key_size != -1:
        what = f"a key of {key_size} bytes" if key_size < 0 else f"a value of {value_size} bytes"
        raise corrupt_file(path, f"found {what} in the record at byte {at} of a block")


def _changes(block: bytes, starts: Ints, typed: bool, path: str) -> Changes:
    data = np.frombuffer(block, np.uint8)
    positions = starts + int(typed)
    key_size = gather(data, positions, ">i4").astype(np.int64)
    keys = Spans(data, positions + 4, key_size)
    value_position = keys.start + key_size
    value_size = gather(data, value_position, ">i4").astype(np.int64)
    values = Spans(data, value_position + 4, np.maximum(value_size, 0))
    if not typed:
        return Changes(np.where(value_size < 0, np.uint8(DELETE), np.uint8(PUT)), keys, values)
    kind = data[starts]
    valid = np.isin(kind, (PUT, DELETE, MERGE)) & ((kind == DELETE) == (value_size < 0))
    if not valid.all():
        raise corrupt_file(
            path, f"found type {kind[int(np.argmin(valid))]:#x} of a record, expected put, delete or merge"
        )
    return Changes(kind, keys, values)
