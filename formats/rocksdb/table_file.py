"""One table file (``.sst``) opened for scanning: its head, and the index of its blocks.

Everything that is read here is verified by its checksum. Raises CorruptError ROCKSDB_FILE, and `Unreadable` for files
that only RocksDB itself should read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from statestore.formats.kernels import block_kernels as blocks
from statestore.formats.kernels.arrays import Bytes, Ints
from statestore.formats.kernels.compiled import SLACK
from statestore.formats.places.regular_files import open_regular
from statestore.formats.rocksdb.block_codecs import check_blocks, expand
from statestore.formats.rocksdb.fields import Malformed
from statestore.formats.rocksdb.rocksdb_errors import Unreadable, corrupt
from statestore.formats.rocksdb.stored_blocks import LENGTHS_SINCE, BlockHandle, Checksums
from statestore.formats.rocksdb.table_head import TWO_LEVEL_INDEX, TableHead, check_readable, read_head

_MAX_META, _MAX_SEPARATORS = 1 << 28, 1 << 29
"""Most bytes of a block without rows, and of the keys of an index block, which may share most of their bytes."""


@dataclass(frozen=True)
class Separators:
    """User keys that separate the blocks: ``key(i)`` is at least every key of block ``i`` and below all of the next."""

    keys: Bytes
    start: Ints

    def __len__(self) -> int:
        return len(self.start) - 1

    def key(self, block: int) -> bytes:
        return self.keys[self.start[block] : self.start[block + 1]].tobytes()


@dataclass(frozen=True)
class TableFile:
    """A file whose metadata has been read and checked. Holds no open file. ``plain``: the bytes of keys and values."""

    path: str
    checksums: Checksums
    entries: int
    merges: int
    plain: int
    smallest: bytes
    separators: Separators
    offset: Ints
    size: Ints


@contextmanager
def descriptor_of(table: TableFile) -> Iterator[int]:
    """Open a file whose metadata has been read. Raises CorruptError ROCKSDB_FILE if it is not there any more."""
    try:
        descriptor = open_regular(table.path)
    except OSError as error:
        raise corrupt(
            table.path, f"the file cannot be opened, though it was there when the read began ({error.strerror})"
        ) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def open_table(path: Path, size: int, smallest: bytes) -> TableFile:
    """Open a table file; ``size`` and the least user key are those that the MANIFEST records."""
    where = str(path)
    try:
        descriptor = open_regular(path)
    except OSError as error:
        raise corrupt(where, f"cannot be opened ({error.strerror})") from error
    try:
        actual_size = os.fstat(descriptor).st_size
        if actual_size != size:
            raise corrupt(where, f"found {actual_size} bytes, expected {size}")
        return _opened(descriptor, size, smallest, where)
    except Malformed as error:
        raise corrupt(where, f"its metadata is malformed: {error}") from error
    finally:
        os.close(descriptor)


def read_at(descriptor: int, offset: int, size: int, path: str, into: Bytes) -> None:
    """Read exactly these bytes of a file. Raises CorruptError ROCKSDB_FILE if the file has become shorter."""
    view = into.data[:size]
    done = 0
    while done < size:
        count = os.preadv(descriptor, [view[done:]], offset + done)
        if not count:
            raise corrupt(path, f"found its end at byte {offset + done}, expected {size - done} more bytes")
        done += count


@dataclass(frozen=True)
class _Reader:
    descriptor: int
    file_size: int
    path: str
    checksums: Checksums

    def block(self, block_handle: BlockHandle) -> tuple[Bytes, int]:
        """Read a plain block; returns its array and the block's length in it."""
        self.check(block_handle)
        raw = np.empty(block_handle.size + blocks.TRAILER + SLACK, np.uint8)
        read_at(self.descriptor, block_handle.offset, block_handle.size + blocks.TRAILER, self.path, raw)
        start, size, offset = (np.array([number]) for number in (0, block_handle.size, block_handle.offset))
        checked = check_blocks(raw, start, size, offset, self.checksums.kind, self.checksums.base, self.path)
        if checked.room > 2 * _MAX_META:
            raise Malformed(f"a block at {block_handle.offset} that claims to hold {int(checked.length[0])} bytes")
        plain = np.empty(checked.room + SLACK, np.uint8)
        expand(checked, plain, 0)
        return plain, int(checked.length[0])

    def check(self, block_handle: BlockHandle) -> None:
        if block_handle.size > _MAX_META or block_handle.offset + block_handle.size + blocks.TRAILER > self.file_size:
            raise Malformed(f"a block of {block_handle.size} bytes at {block_handle.offset}")


def _opened(descriptor: int, size: int, smallest: bytes, path: str) -> TableFile:
    head = read_head(descriptor, size, path)
    check_readable(head)
    if head.version < LENGTHS_SINCE and head.compression not in ("NoCompression", "Snappy"):
        raise Unreadable(f"{path} is of table format {head.version} with compression")
    keys, offset, lengths = _index(_Reader(descriptor, size, path, head.checksums), head)
    entries, merges = head.number("num.entries"), head.number("merge.operands")
    plain = head.number("raw.key.size") + head.number("raw.value.size")
    return TableFile(path, head.checksums, entries, merges, plain, smallest, keys, offset, lengths)


def _index(reader: _Reader, head: TableHead) -> tuple[Separators, Ints, Ints]:
    """(separators, offsets and sizes of the data blocks)."""
    delta, strip = head.has_short_handles, head.strip
    entries = _index_block(reader, head.index, delta, strip)
    if head.index_kind != TWO_LEVEL_INDEX:
        return entries
    parts = [
        _index_block(reader, BlockHandle(int(offset), int(size)), delta, strip)
        for offset, size in zip(entries[1], entries[2], strict=True)
    ]
    if not parts:
        return entries
    keys = np.concatenate([part[0].keys for part in parts])
    ends = np.cumsum([len(part[0].keys) for part in parts])
    starts = [part[0].start[:-1] + (end - len(part[0].keys)) for part, end in zip(parts, ends, strict=True)]
    separators = Separators(keys, np.concatenate([*starts, ends[-1:]]).astype(np.int64))
    offsets, sizes = (np.concatenate([part[column] for part in parts]) for column in (1, 2))
    _check_offsets(offsets, sizes, reader.file_size)
    return separators, offsets, sizes


def _check_offsets(offset: Ints, size: Ints, file_size: int) -> None:
    """Check that the blocks of an index follow each other inside the file; together they are then no larger than it."""
    inside = bool((offset <= file_size).all() and (size <= file_size).all())  # otherwise their sums may overflow
    ends = offset + size + blocks.TRAILER
    if not inside or (ends > file_size).any() or (ends[:-1] > offset[1:]).any():
        raise Malformed("blocks that overlap or lie behind the end of the file")


def _index_block(reader: _Reader, block_handle: BlockHandle, delta: bool, strip: int) -> tuple[Separators, Ints, Ints]:
    plain, length = reader.block(block_handle)
    entries, room = max(length // 3, 1), 4 * length + 4096  # an entry has at least three bytes; keys share some
    while True:
        keys, count = np.empty(room + SLACK, np.uint8), np.zeros(2, np.int64)
        start, offset, size = (np.empty(entries + 1, np.int64) for _ in range(3))
        status = blocks.parse_index(plain, length, delta, strip, keys, start, offset, size, count)
        if status == blocks.FULL and room < _MAX_SEPARATORS:
            room = min(4 * room, _MAX_SEPARATORS)
            continue
        if status == blocks.UNKNOWN_LAYOUT:
            raise Unreadable(f"{reader.path} has an index block of an unknown layout")
        if status:
            raise Malformed("the index of its blocks")
        number, used = int(count[0]), int(count[1])
        _check_offsets(offset[:number], size[:number], reader.file_size)
        return Separators(keys[:used].copy(), start[: number + 1].copy()), offset[:number].copy(), size[:number].copy()
