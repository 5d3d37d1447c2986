"""One table file (``.sst``) opened for scanning: its footer, its properties, and the index of its blocks.

    data blocks | meta blocks | metaindex | index | footer

A block is a payload, the byte of its compression and a checksum of four bytes. A block handle is the offset of a block
and the size of its payload. The footer of 53 bytes (48 in the oldest format) has the handles of metaindex and index;
since format 6 it has only that of the metaindex (RocksDB's block-based table format, versions 0 to 6). Everything that
is read here is verified by its checksum. Raises CorruptError ROCKSDB_FILE, and `Unreadable` for files that only RocksDB
itself should read.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from statestore.formats.kernels import block_kernels as blocks
from statestore.formats.kernels.compiled import SLACK, Bytes, Longs
from statestore.formats.places.regular_files import open_regular
from statestore.formats.rocksdb.block_codecs import check_blocks, expand
from statestore.formats.rocksdb.damage import Unreadable, corrupt
from statestore.formats.rocksdb.fields import Fields, Malformed, block_entries

_MAGIC = (0x88E241B785F4CFF7).to_bytes(8, "little")
_OLD_MAGIC = (0xDB4775248B80FB57).to_bytes(8, "little")
_FOOTER, _OLD_FOOTER = 53, 48
_NEWEST_FORMAT, _HANDLES_IN_METAINDEX, _DELTA_HANDLES = 6, 6, 4
_BINARY_INDEX, _HASH_INDEX, _TWO_LEVEL_INDEX = 0, 1, 2
_PROPERTIES, _INDEX = b"rocksdb.properties", b"rocksdb.index"
_REFUSED = (b"rocksdb.range_del", b"rocksdb.range_del2", b"rocksdb.compression_dict")
_BYTEWISE = b"leveldb.BytewiseComparator"
_MAX_META, _MAX_SEPARATORS = 1 << 28, 1 << 29
"""Most bytes of a block without rows, and of the keys of an index block, which may share most of their bytes."""


@dataclass(frozen=True)
class BlockHandle:
    """The position of a block in the file; ``size`` is without the five bytes behind it."""

    offset: int
    size: int


@dataclass(frozen=True)
class Checksums:
    """Kind of checksum that protects the blocks of a file; format 6 mixes ``base`` into it."""

    kind: int
    base: int


@dataclass(frozen=True)
class Separators:
    """User keys that separate the blocks: ``key(i)`` is at least every key of block ``i`` and below all of the next."""

    keys: Bytes
    start: Longs

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
    offset: Longs
    size: Longs


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

    def small(self, block_handle: BlockHandle) -> dict[bytes, bytes]:
        """The entries of a metaindex or of properties."""
        plain, length = self.block(block_handle)
        return dict(block_entries(plain[:length].tobytes()))

    def check(self, block_handle: BlockHandle) -> None:
        if block_handle.size > _MAX_META or block_handle.offset + block_handle.size + blocks.TRAILER > self.file_size:
            raise Malformed(f"a block of {block_handle.size} bytes at {block_handle.offset}")


def _opened(descriptor: int, size: int, smallest: bytes, path: str) -> TableFile:
    reader, metaindex, index, version = _footer(descriptor, size, path)
    meta = reader.small(metaindex)
    strange = [name.decode() for name in _REFUSED if name in meta]
    if strange:
        raise Unreadable(f"{path} has {', '.join(strange)}")
    if index is None:
        index = _block_handle(meta, _INDEX)
    properties = reader.small(_block_handle(meta, _PROPERTIES))
    _check_properties(properties, version, path)
    keys, offset, lengths = _index(reader, index, properties)
    entries, merges = _number(properties, b"rocksdb.num.entries"), _number(properties, b"rocksdb.merge.operands")
    plain = _number(properties, b"rocksdb.raw.key.size") + _number(properties, b"rocksdb.raw.value.size")
    return TableFile(path, reader.checksums, entries, merges, plain, smallest, keys, offset, lengths)


def _footer(descriptor: int, size: int, path: str) -> tuple[_Reader, BlockHandle, BlockHandle | None, int]:
    """(reader of blocks, handle of the metaindex, handle of the index if the footer has it, format version)."""
    if size < _FOOTER:
        raise Malformed(f"{size} bytes are too few")
    buffer = np.empty(_FOOTER, np.uint8)
    read_at(descriptor, size - _FOOTER, _FOOTER, path, buffer)
    tail = buffer.tobytes()
    if tail.endswith(_OLD_MAGIC):
        fields, kind, version = Fields(tail[-_OLD_FOOTER:-8]), 1, 0
    elif tail.endswith(_MAGIC):
        fields, kind, version = Fields(tail[1:-12]), tail[0], int.from_bytes(tail[-12:-8], "little")
    else:
        raise Unreadable(f"{path} ends with {tail[-8:].hex()}, which is no magic number of block-based tables")
    if version > _NEWEST_FORMAT or kind > 4:
        raise Unreadable(f"{path} is of table format {version} with checksums of type {kind}")
    if version < _HANDLES_IN_METAINDEX:
        reader = _Reader(descriptor, size, path, Checksums(kind, 0))
        return reader, _next_block_handle(fields), _next_block_handle(fields), version
    if fields.take(4) != bytes.fromhex("3e007a00"):
        raise Unreadable(f"{path} has an unknown footer")
    fields.take(4)  # skip the footer's own checksum: every block that its handles lead to is verified itself
    base, meta_size = int.from_bytes(fields.take(4), "little"), int.from_bytes(fields.take(4), "little")
    reader = _Reader(descriptor, size, path, Checksums(kind, base))
    meta_offset = size - _FOOTER - blocks.TRAILER - meta_size
    if meta_offset < 0:
        raise Malformed(f"a metaindex of {meta_size} bytes")
    return reader, BlockHandle(meta_offset, meta_size), None, version


def _check_properties(properties: Mapping[bytes, bytes], version: int, path: str) -> None:
    comparator = properties.get(b"rocksdb.comparator", _BYTEWISE)
    if comparator != _BYTEWISE:
        raise Unreadable(f"keys of {path} are ordered by {comparator!r}")
    if b"rocksdb.external_sst_file.version" in properties:
        raise Unreadable(f"{path} was ingested: its sequence numbers are not its own")
    if _number(properties, b"rocksdb.num.range-deletions"):
        raise Unreadable(f"{path} has deletions of ranges")
    if version < 2 and properties.get(b"rocksdb.compression", b"NoCompression") not in (b"NoCompression", b"Snappy"):
        raise Unreadable(f"{path} is of table format {version} with compression")


def _number(properties: Mapping[bytes, bytes], name: bytes) -> int:
    value = properties.get(name)
    return Fields(value).varint() if value else 0


def _index(
    reader: _Reader, block_handle: BlockHandle, properties: Mapping[bytes, bytes]
) -> tuple[Separators, Longs, Longs]:
    """(separators, offsets and sizes of the data blocks)."""
    kind = int.from_bytes(properties.get(b"rocksdb.block.based.table.index.type", bytes(4)), "little")
    if kind not in (_BINARY_INDEX, _HASH_INDEX, _TWO_LEVEL_INDEX):
        raise Unreadable(f"{reader.path} has an index of type {kind}")
    delta = bool(_number(properties, b"rocksdb.index.value.is.delta.encoded"))
    strip = 0 if _number(properties, b"rocksdb.index.key.is.user.key") else 8
    entries = _index_block(reader, block_handle, delta, strip)
    if kind != _TWO_LEVEL_INDEX:
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


def _check_offsets(offset: Longs, size: Longs, file_size: int) -> None:
    """Check that the blocks of an index follow each other inside the file; together they are then no larger than it."""
    inside = bool((offset <= file_size).all() and (size <= file_size).all())  # otherwise their sums may overflow
    ends = offset + size + blocks.TRAILER
    if not inside or (ends > file_size).any() or (ends[:-1] > offset[1:]).any():
        raise Malformed("blocks that overlap or lie behind the end of the file")


def _index_block(
    reader: _Reader, block_handle: BlockHandle, delta: bool, strip: int
) -> tuple[Separators, Longs, Longs]:
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


def _block_handle(meta: Mapping[bytes, bytes], name: bytes) -> BlockHandle:
    if name not in meta:
        raise Unreadable(f"the metaindex has no {name.decode()}")
    return _next_block_handle(Fields(meta[name]))


def _next_block_handle(fields: Fields) -> BlockHandle:
    return BlockHandle(fields.varint(), fields.varint())
