"""Reading a segment file in pieces of whole batches, and judging what lies behind the last whole batch."""

from __future__ import annotations

import os
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from statestore.formats.bytes.crc32c import plain_crc32c
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import ConflictError, CorruptError, NotFoundError, UnsupportedError
from statestore.formats.kafka.logs.record_batches import Batches, damaged, loops
from statestore.formats.kernels.arrays import Bytes
from statestore.formats.kernels.batch_layout import (
    BAD_CHECKSUM,
    BAD_MAGIC,
    BAD_SIZE,
    COLUMNS,
    COUNT,
    CRC_BEGIN,
    FIXED,
    HEADER,
)
from statestore.formats.places.disk_errors import disk_errors
from statestore.formats.places.regular_files import open_regular

_CHUNK = 4 << 20
_ROWS = 1 << 14
_OLD_HEADER = 17  # offset, size, CRC, magic of a message of format 0 or 1


@dataclass(frozen=True)
class SegmentFile:
    """A segment file as it was when the log was surveyed: reading ends at byte ``stop``. ``inode`` is its identity."""

    path: str
    inode: int
    stop: int


@dataclass(frozen=True)
class WalkEnd:
    """The byte where whole batches end, how many records the log has until there, and what stopped the walk."""

    position: int
    present: int
    status: int
    expected: int
    found: int


def size_of(path: str) -> SegmentFile:
    """The file at its present size."""
    descriptor = open_regular(path)
    try:
        found = os.fstat(descriptor)
        return SegmentFile(path, found.st_ino, found.st_size)
    finally:
        os.close(descriptor)


@contextmanager
def _opened(segment: SegmentFile) -> Iterator[int]:
    """Open a file that was surveyed before; raises ConflictError if it was removed or replaced since."""
    try:
        descriptor = open_regular(segment.path)
    except (FileNotFoundError, NotFoundError) as error:
        raise _changed(segment, "was removed") from error
    try:
        found = os.fstat(descriptor)
        if found.st_ino != segment.inode or found.st_size < segment.stop:
            raise _changed(segment, "was replaced or cut")
        yield descriptor
    finally:
        os.close(descriptor)


def _changed(segment: SegmentFile, how: str) -> ConflictError:
    return ConflictError(
        ErrorCode.KAFKA_LOG_CHANGED, f"file {segment.path} {how} by its broker while the log was read; read it again"
    )


def walked(segment: SegmentFile, *, check: bool, present: int) -> Generator[Batches, None, WalkEnd]:
    """Yield the whole batches of a file, some at a time, and return where they end.

    ``check`` compares checksums. ``present`` is the number of records of the log before this file.
    """
    walk = loops().walk_batches
    report, position, need = np.zeros(4, np.int64), 0, 0
    with _opened(segment) as descriptor:
        while position < segment.stop:
            data = _read(descriptor, position, min(max(_CHUNK, need), segment.stop - position), segment)
            at = 0
            while True:
                table = np.empty((_ROWS, COLUMNS), np.int64)
                count = int(walk(data, at, len(data), check, table, report))
                at = int(report[1])
                if count:
                    table = table[:count]
                    counts = table[:, COUNT]
                    batches = Batches(segment.path, position, data, table, present + np.cumsum(counts) - counts)
                    batches.check_counts()
                    yield batches
                    present += int(counts.sum())
                if report[0] or count < _ROWS:
                    break
            if report[0]:
                return WalkEnd(position + at, present, int(report[0]), int(report[2]), int(report[3]))
            if position + len(data) >= segment.stop:
                position += at
                break
            need = 0 if at else _size(data)
            if need > segment.stop - position:
                break
            position += at
    return WalkEnd(position, present, 0, 0, 0)


def _size(data: Bytes) -> int:
    return int.from_bytes(data[8:FIXED].tobytes(), signed=True) + FIXED


def _read(descriptor: int, position: int, size: int, segment: SegmentFile) -> Bytes:
    data = np.empty(size, np.uint8)
    filled = 0
    with disk_errors("read", segment.path):
        while filled < size:
            count = os.preadv(descriptor, [data.data[filled:]], position + filled)
            if not count:
                raise _changed(segment, "was cut")
            filled += count
    return data


def judge_end(segment: SegmentFile, end: WalkEnd, *, first: bool, last: bool) -> int:
    """Return how many bytes of an unfinished batch lie behind the whole batches, 0 where there are none.

    A broker appends a batch in one piece, but a copy of its file may end within one, and a preallocated file ends in
    zeros. Only the ``last`` segment may. ``first``: no batch precedes. Raises CorruptError KAFKA_LOG for anything else,
    and UnsupportedError KAFKA_LOG_FORMAT for messages of format 0 and 1.
    """
    if end.status == BAD_CHECKSUM:
        raise damaged(
            segment.path,
            end.position,
            f"found a record batch with CRC32C {end.found:#010x}, expected {end.expected:#010x}",
        )
    left = segment.stop - end.position
    if not left:
        return 0
    with _opened(segment) as descriptor:
        rest = _read(descriptor, end.position, left, segment)
    if left >= FIXED and not rest.any():  # fewer zeros may begin an offset
        return 0
    if end.status == BAD_MAGIC:
        raise _other_magic(segment.path, end.position, rest, first)
    if end.status == BAD_SIZE:
        raise damaged(segment.path, end.position, f"found a record batch of {end.expected} bytes, expected {HEADER}")
    stored = int.from_bytes(rest[17:CRC_BEGIN].tobytes())
    if left >= HEADER and plain_crc32c(rest[CRC_BEGIN:]) == stored:
        raise damaged(
            segment.path,
            end.position,
            f"found a record batch of {_size(rest)} bytes, expected {left}, for which its CRC32C {stored:#010x} holds",
        )
    later = _later_batch(rest)
    if later is not None or not last:
        where = "a later segment follows" if later is None else f"a whole batch follows at byte {end.position + later}"
        raise damaged(
            segment.path,
            end.position,
            f"found {left} bytes, expected a record batch of {_size(rest) if left >= FIXED else 'unknown'} bytes, "
            f"and {where}",
        )
    return left


def _other_magic(file: str, position: int, rest: Bytes, first: bool) -> CorruptError | UnsupportedError:
    magic, size = int(rest[16]), _size(rest)
    if first and magic in (0, 1) and _OLD_HEADER < size <= len(rest):
        stored = int.from_bytes(rest[12:16].tobytes())
        if zlib.crc32(rest[16:size].tobytes()) == stored:
            return UnsupportedError(
                ErrorCode.KAFKA_LOG_FORMAT,
                f"file {file}, byte {position}: found messages of format {magic} (Kafka before 0.11), expected record "
                "batches of format 2; let a broker rewrite the topic, or export its records",
            )
    return damaged(file, position, f"found magic {magic}, expected 2")


def _later_batch(rest: Bytes) -> int | None:
    """Find where the first whole batch begins behind the first byte; None if there is none."""
    if len(rest) <= HEADER:
        return None
    for at in (np.flatnonzero(rest[17 : len(rest) - HEADER + 17] == 2) + 1).tolist():
        size = _size(rest[at:])
        if HEADER <= size <= len(rest) - at:
            stored = int.from_bytes(rest[at + 17 : at + CRC_BEGIN].tobytes())
            if plain_crc32c(rest[at + CRC_BEGIN : at + size]) == stored:
                return int(at)
    return None
