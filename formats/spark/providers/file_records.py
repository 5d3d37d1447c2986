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

from statestore.formats.bytes.byte_columns import Cells, gather
from statestore.formats.kernels.compiled_use import is_loaded
from statestore.formats.spark.checkpoint.state_errors import corrupt_file

PUT, DELETE, MERGE = 1, 0x10, 0x11
_END = b"\0"
_END_MARK = b"\xff\xff\xff\xff"
MAX_RECORD = 1 << 30
BLOCK = 4 << 20
_USUAL_BYTES = 32  # few records are smaller
_SIZE, _TYPED_SIZE = Struct(">i"), Struct(">xi")


@dataclass(frozen=True)
class Changes:
    """Some records of a file in order; ``kind`` is PUT, DELETE or MERGE. The value of a delete is empty."""

    kind: npt.NDArray[np.uint8]
    keys: Cells
    values: Cells

    def __len__(self) -> int:
        return len(self.kind)


def change_kernels() -> Any:
    """The module of compiled loops over records of files if it is in use already, else None."""
    if not is_loaded():
        return None
    from statestore.formats.kernels import change_kernels

    return change_kernels


def read_records(pieces: Iterable[bytes], path: str, *, typed: bool = False, block: int = BLOCK) -> Iterator[Changes]:
    """The records of a file, in runs that fill about ``block`` bytes.

    Raises CorruptError SPARK_STATE_FILE, naming ``path``, for impossible sizes or a file that ends early.
    """
    source, left = iter(pieces), b""
    while True:
        # The buffer is at least twice what is left, so that a record larger than a block is copied only a few times.
        data = _filled(source, left, max(block, 2 * len(left)))
        changes, end, done = _changes(data, typed, path)
        if len(changes):
            yield changes
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


def _changes(data: bytes, typed: bool, path: str) -> tuple[Changes, int, bool]:
    """(the complete records, where the incomplete one starts, whether the end mark was found)."""
    kernels = change_kernels()
    keys, values, end, done = (
        _spans(data, typed, path) if kernels is None else _compiled_spans(kernels, data, typed, path)
    )
    return _of_spans(keys, values, typed, path), end, done


def whole_records(data: bytes, typed: bool, path: str) -> Sequence[int] | None:
    """Return where each record of a whole file starts; None if the file has no end mark. Raises as `read_records`."""
    if data == _END_MARK and not typed:
        return ()
    starts, _, done = _starts(data, typed, path)
    return starts if done else None


def changes_at(data: bytes, starts: Sequence[int], typed: bool, path: str) -> Changes:
    """The records that start at these places, of which `whole_records` has found that they are complete."""
    return _of_spans(*_spans_at(data, starts, typed), typed, path)


def _of_spans(keys: Cells, values: Cells, typed: bool, path: str) -> Changes:
    missing = values.size < 0
    bare = Cells(values.data, values.start, np.maximum(values.size, 0))
    if not typed:
        return Changes(np.where(missing, np.uint8(DELETE), np.uint8(PUT)), keys, bare)
    kind = keys.data[keys.start - 5]
    valid = np.isin(kind, (PUT, DELETE, MERGE)) & ((kind == DELETE) == missing)
    if not valid.all():
        raise corrupt_file(
            path, f"found type {kind[int(np.argmin(valid))]:#x} of a record, expected put, delete or merge"
        )
    return Changes(kind, keys, bare)


def _spans(block: bytes, typed: bool, path: str) -> tuple[Cells, Cells, int, bool]:
    found, end, done = _starts(block, typed, path)
    return *_spans_at(block, found, typed), end, done


def _spans_at(block: bytes, starts: Sequence[int], typed: bool) -> tuple[Cells, Cells]:
    data, positions = np.frombuffer(block, np.uint8), np.asarray(starts, np.int64) + int(typed)
    key_size = gather(data, positions, ">i4").astype(np.int64)
    value_position = positions + 4 + key_size
    value_size = gather(data, value_position, ">i4").astype(np.int64)
    return Cells(data, positions + 4, key_size), Cells(data, value_position + 4, value_size)


def _starts(data: bytes, typed: bool, path: str) -> tuple[Sequence[int], int, bool]:
    """(where complete records start, where the incomplete one starts, whether the end mark was found).

    Each start follows from the sizes before it, so only this loop goes record by record.
    """
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


def _compiled_spans(kernels: Any, block: bytes, typed: bool, path: str) -> tuple[Cells, Cells, int, bool]:
    """`_spans`, found by compiled code."""
    front, data = 5 if typed else 4, np.frombuffer(block, np.uint8)
    end = np.zeros(4, np.int64)
    for record_bytes in (max(_USUAL_BYTES, front + 4), front + 4):  # the most records that a block may hold are rare
        room = len(data) // record_bytes + 1
        key_start, key_size, value_start, value_size = (np.empty(room, np.int64) for _ in range(4))
        count = kernels.record_spans(data, front, key_start, key_size, value_start, value_size, end)
        if count < room:
            break
    at, odd, last_key, last_value = end.tolist()
    if odd:
        _check_end(typed, last_key, last_value, at, path)
    done = bool(odd) or (typed and len(data) - at < front and block[at : at + 1] == _END)
    # Copies, because changes may be held for long, and most of the room is empty.
    keys = Cells(data, key_start[:count].copy(), key_size[:count].copy())
    return keys, Cells(data, value_start[:count].copy(), value_size[:count].copy()), at, done


def _check_end(typed: bool, key_size: int, value_size: int, at: int, path: str) -> None:
    """Check that an impossible size is the end mark. Files of typed records do not have one."""
    if value_size < -1 or typed or key_size != -1:
        what = f"a key of {key_size} bytes" if key_size < 0 else f"a value of {value_size} bytes"
        raise corrupt_file(path, f"found {what} in the record at byte {at} of a block")
