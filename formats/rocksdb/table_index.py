"""The index of a table file, as far as it tells where keys are and which keys split a file. Loads no compiled code.

The bytes read here are not trusted and need not be right: rows are verified where they are read.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from statestore.formats.rocksdb.fields import Fields, Malformed, block_entries
from statestore.formats.rocksdb.key_ranges import KeyRange
from statestore.formats.rocksdb.rocksdb_errors import Unreadable
from statestore.formats.rocksdb.stored_blocks import TRAILER, decompressed
from statestore.formats.rocksdb.table_head import FOOTER, HANDLES_IN_METAINDEX, MAGIC, NEWEST_FORMAT

_MAX_INDEX, _MAX_OFFSET = 1 << 28, 1 << 62
_OLDEST_DELTA_FORMAT = 4
SAMPLES = 64  # keys of a file by which parts are cut
_META_SIZE_AT = 13

ReadAt = Callable[[int, int], bytes]
"""Function from (offset, size) to bytes."""

Bounds = tuple[bytes | None, bytes | None]


@dataclass(frozen=True)
class TableIndex:
    """The entries at restart points, which have whole keys. With RocksDB's defaults every entry is at one.

    ``data_bytes``: the end of the data blocks. ``strip``: how many bytes of a key do not belong to the user key.
    """

    block: bytes
    restarts: Sequence[int]
    strip: int
    data_bytes: int

    def __len__(self) -> int:
        return len(self.restarts)

    def key(self, number: int) -> bytes:
        """A key that is at least every key of the entry's block and below those of the next block."""
        return self._entry(number)[0]

    def end(self, number: int) -> int:
        """The end of the entry's block."""
        return self._entry(number)[1]

    def _entry(self, number: int) -> tuple[bytes, int]:
        fields = Fields(self.block, self.restarts[number])
        fields.varint()  # no bytes are shared at a restart point
        key = fields.string()
        offset, size = fields.varint(), fields.varint()
        return key[: len(key) - self.strip], offset + size + TRAILER


def read_index(size: int, read: ReadAt) -> TableIndex | None:
    """Read the index; None for a damaged file or one that is not of the usual kind."""
    try:
        return _read_index(size, read)
    except (Malformed, ValueError):
        return None


def spans_of(index: TableIndex, size: int, ranges: Sequence[Bounds]) -> list[tuple[int, int]]:
    """(from, to) of the parts of a file from which RocksDB can open it and read ranges of keys.

    The parts hold the blocks of the ranges, the block behind each range, and everything but data blocks. They ascend
    and do not overlap. If the index is damaged, the whole file is returned.
    """
    try:
        return _spans_of(index, size, ranges)
    except Malformed:
        return [(0, size)]


def _spans_of(index: TableIndex, size: int, ranges: Sequence[Bounds]) -> list[tuple[int, int]]:
    numbers = range(len(index))
    found = []
    for first, stop in ranges:
        before = 0 if first is None else bisect.bisect_left(numbers, first, key=index.key)
        last = len(index) if stop is None else bisect.bisect_left(numbers, stop, key=index.key) + 1
        begin = index.end(before - 1) if before else 0
        end = min(size, index.data_bytes if last >= len(index) else index.end(last))
        if begin < end:
            found.append((begin, end))
    return _joined([*sorted(found), (min(index.data_bytes, size), size)])


def _joined(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for begin, end in spans:
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((begin, end))
    return found


def _read_index(size: int, read: ReadAt) -> TableIndex | None:
    tail = read(max(size - FOOTER, 0), FOOTER)
    if len(tail) < FOOTER:
        return None
    version = int.from_bytes(tail[-12:-8], "little")
    if not tail.endswith(MAGIC) or not _OLDEST_DELTA_FORMAT <= version <= NEWEST_FORMAT:
        return None
    if tail[0] == 0:  # no checksums: a hole in a copy could not be distinguished from data
        return None
    fields = Fields(tail[1:-12])
    if version < HANDLES_IN_METAINDEX:
        metaindex = _block_handle(fields)
        index = _block_handle(fields)
        meta = dict(_entries(read, metaindex))
    else:
        length = int.from_bytes(tail[_META_SIZE_AT : _META_SIZE_AT + 4], "little")
        metaindex = size - FOOTER - TRAILER - length, length
        meta = dict(_entries(read, metaindex))
        index = _block_handle(Fields(meta.get(b"rocksdb.index", b"")))
    properties = dict(_entries(read, _block_handle(Fields(meta.get(b"rocksdb.properties", b"")))))
    if properties.get(b"rocksdb.block.based.table.index.type", bytes(4)) != bytes(4):
        return None
    strip = 0 if properties.get(b"rocksdb.index.key.is.user.key") == b"\x01" else 8
    block = _block(read, index)
    count = int.from_bytes(block[-4:], "little")
    restarts = np.frombuffer(block[:-4], "<u4", count, len(block) - 4 - 4 * count).tolist()
    data_bytes = Fields(properties.get(b"rocksdb.data.size", b"\0")).varint()
    return TableIndex(block, restarts, strip, min(data_bytes, metaindex[0], index[0]))


def _entries(read: ReadAt, block_handle: tuple[int, int]) -> list[tuple[bytes, bytes]]:
    return block_entries(_block(read, block_handle))


def _block_handle(fields: Fields) -> tuple[int, int]:
    return fields.varint(), fields.varint()


def _block(read: ReadAt, block_handle: tuple[int, int]) -> bytes:
    offset, size = block_handle
    if size > _MAX_INDEX or not 0 <= offset < _MAX_OFFSET:
        raise Malformed(f"an index of {size} bytes at {offset}")
    raw = read(offset, size + TRAILER)
    if len(raw) < size + TRAILER:
        raise Malformed("a block behind the end of the file")
    try:
        return decompressed(raw[:size], raw[size])
    except Unreadable as error:
        raise Malformed(str(error)) from error


# Keys that split a set of table files into parts of about equal size, from a few entries of their indexes. Any keys
# split rows into parts that together are the whole.


def split_points(files: Sequence[tuple[int, ReadAt]], parts: int, within: KeyRange) -> list[bytes]:
    """Up to ``parts - 1`` keys inside a range, ascending, of files as (size, reader).

    None where the indexes of the files are not of the usual kind.
    """
    samples = []
    for size, read in files:
        keys = sample_keys(size, read)
        samples += [(key, size / len(keys)) for key in keys if within.holds_inside(key)]
    samples.sort()
    total = sum(weight for _, weight in samples)
    reached = itertools.accumulate(weight for _, weight in samples)
    points: list[bytes] = []
    part = 1
    for (key, _), reached_here in zip(samples, reached, strict=True):
        if part < parts and reached_here >= total * part / parts:
            part += 1
            if not points or key > points[-1]:
                points.append(key)
    return points


def sample_keys(size: int, read: ReadAt) -> list[bytes]:
    """Return at most SAMPLES keys of a table file, evenly spread, ascending; none if its index is of an unusual
    kind."""
    try:
        index = read_index(size, read)
        if index is None:
            return []
        return [index.key(number) for number in range(0, len(index), max(1, len(index) // SAMPLES))]
    except (Malformed, OSError, IndexError):
        return []
