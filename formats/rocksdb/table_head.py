"""The head of a table file (``.sst``), which is at its end: footer, metaindex and properties. Loads no compiled code.

    data blocks | meta blocks | metaindex | index | footer

The footer of 53 bytes (48 in the oldest format) has the handles of metaindex and index; since format 6 it has only that
of the metaindex (RocksDB's block-based table format, versions 0 to 6). A block handle is the offset of a block and the
size of its payload. Everything that is read here is verified by its checksum. Raises CorruptError ROCKSDB_FILE, and
`Unreadable` for files that only RocksDB itself should read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from statestore.formats.notices import is_verification
from statestore.formats.places.regular_files import open_regular
from statestore.formats.rocksdb.fields import Fields, Malformed, block_entries
from statestore.formats.rocksdb.rocksdb_errors import Unreadable, corrupt
from statestore.formats.rocksdb.stored_blocks import (
    TRAILER,
    BlockHandle,
    Checksums,
    checksum_of,
    read_block,
    verified_block,
)

BINARY_INDEX, HASH_INDEX, TWO_LEVEL_INDEX = 0, 1, 2
MAGIC = (0x88E241B785F4CFF7).to_bytes(8, "little")
_OLD_MAGIC = (0xDB4775248B80FB57).to_bytes(8, "little")
FOOTER, _OLD_FOOTER = 53, 48
_CHECKSUM = 5  # where a footer has its own
NEWEST_FORMAT, HANDLES_IN_METAINDEX = 6, 6
_PROPERTIES, _INDEX, _COMPRESSION = b"rocksdb.properties", b"rocksdb.index", b"rocksdb.compression"
_REFUSED = (b"rocksdb.range_del", b"rocksdb.range_del2", b"rocksdb.compression_dict")
_BYTEWISE = b"leveldb.BytewiseComparator"
_NOT_IN_ROCKSDICT = ("zlib", "xpress")
"""Codecs that the RocksDB in the wheel of rocksdict is built without: it takes their blocks for damaged ones."""
_BLOB_MAGIC, _BLOB_CODEC_AT = (0x00248F37).to_bytes(4, "little"), 13
_BLOB_CODECS = {2: "Zlib", 6: "Xpress"}
"""Numbers of these codecs in the head of a blob file (RocksDB's ``BlobLogHeader``)."""


@dataclass(frozen=True)
class TableHead:
    """Metadata of a table file, read and checked. ``meta`` are the handles of its other meta blocks, as stored."""

    path: str
    size: int
    checksums: Checksums
    version: int
    index: BlockHandle
    properties: Mapping[bytes, bytes]
    meta: Mapping[bytes, bytes]

    def number(self, name: str) -> int:
        """A property that is a number, such as ``num.entries``; 0 where the file has it not."""
        value = self.properties.get(f"rocksdb.{name}".encode())
        return Fields(value).varint() if value else 0

    @property
    def compression(self) -> str:
        """The codec of its blocks, as RocksDB names it; single blocks may be plain."""
        return self.properties.get(_COMPRESSION, b"NoCompression").decode("utf-8", "replace")

    @property
    def index_kind(self) -> int:
        return int.from_bytes(self.properties.get(b"rocksdb.block.based.table.index.type", bytes(4)), "little")

    @property
    def has_short_handles(self) -> bool:
        """Whether an index entry has the difference of its block's size to the one before in place of a handle."""
        return bool(self.number("index.value.is.delta.encoded"))

    @property
    def strip(self) -> int:
        """How many bytes of a key of the index do not belong to the user key."""
        return 0 if self.number("index.key.is.user.key") else 8


def read_head(descriptor: int, size: int, path: str) -> TableHead:
    """Read the head of an open file. Raises Malformed besides the errors above."""
    checksums, version, metaindex, index = _footer(descriptor, size, path)
    meta = dict(block_entries(read_block(descriptor, _inside(metaindex, size), checksums, version, path)))
    if index is None:
        index = _named_handle(meta, _INDEX)
    handle = _inside(_named_handle(meta, _PROPERTIES), size)
    properties = dict(block_entries(read_block(descriptor, handle, checksums, version, path)))
    head = TableHead(path, size, checksums, version, _inside(index, size), properties, meta)
    if is_verification():
        _check_meta_blocks(descriptor, head)
    return head


def _check_meta_blocks(descriptor: int, head: TableHead) -> None:
    """Compare the checksums of blocks that no scan needs, such as filters. RocksDB itself looks keys up in them."""
    for name in head.meta:
        verified_block(descriptor, _inside(_named_handle(head.meta, name), head.size), head.checksums, head.path)


def check_readable(head: TableHead) -> None:
    """Raise `Unreadable` for a file whose rows follow from more than its own entries, or with an unknown index."""
    strange = [name.decode() for name in _REFUSED if name in head.meta]
    if strange:
        raise Unreadable(f"{head.path} has {', '.join(strange)}")
    comparator = head.properties.get(b"rocksdb.comparator", _BYTEWISE)
    if comparator != _BYTEWISE:
        raise Unreadable(f"keys of {head.path} are ordered by {comparator!r}")
    if b"rocksdb.external_sst_file.version" in head.properties:
        raise Unreadable(f"{head.path} was ingested: its sequence numbers are not its own")
    if head.number("num.range-deletions"):
        raise Unreadable(f"{head.path} has deletions of ranges")
    if head.index_kind not in (BINARY_INDEX, HASH_INDEX, TWO_LEVEL_INDEX):
        raise Unreadable(f"{head.path} has an index of type {head.index_kind}")


def codec_without_rocksdict(directory: Path) -> str | None:
    """The codec of a table file or blob file in a directory that rocksdict lacks, None if there is none.

    A file whose head cannot be read is passed over: the reader of its rows reports it.
    """
    for head in _heads_in(directory):
        if head.codec.lower() in _NOT_IN_ROCKSDICT:
            return head.codec
    for path in sorted(directory.glob("*.blob")):
        with suppress(OSError):
            descriptor = open_regular(path)
            try:
                start = os.pread(descriptor, _BLOB_CODEC_AT + 1, 0)
            finally:
                os.close(descriptor)
            if start.startswith(_BLOB_MAGIC) and start[_BLOB_CODEC_AT:] and start[_BLOB_CODEC_AT] in _BLOB_CODECS:
                return _BLOB_CODECS[start[_BLOB_CODEC_AT]]
    return None


def newest_table_time(directory: Path) -> int | None:
    """The time of the last flush or compaction in epoch seconds, as RocksDB wrote it into the table files of a
    directory; None without one that has it. Copies keep it. A file whose head cannot be read is passed over."""
    return max((head.created for head in _heads_in(directory) if head.created), default=None)


@dataclass(frozen=True)
class _KnownHead:
    codec: str
    created: int


_known_heads: dict[tuple[int, int, int, int], _KnownHead] = {}
"""By device, number, size and time of change of the file: a snapshot is opened for each of its states."""
_MOST_KNOWN = 1 << 14


def _heads_in(directory: Path) -> Iterator[_KnownHead]:
    for path in sorted(directory.glob("*.sst")):
        with suppress(OSError, Unreadable, Malformed, ValueError):
            descriptor = open_regular(path)
            try:
                found = _known_head(descriptor, path)
            finally:
                os.close(descriptor)
            yield found


def _known_head(descriptor: int, path: Path) -> _KnownHead:
    facts = os.fstat(descriptor)
    identity = (facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns)
    known = _known_heads.get(identity)
    if known is None:
        head = read_head(descriptor, facts.st_size, str(path))
        known = _KnownHead(head.compression, head.number("file.creation.time"))
        if len(_known_heads) >= _MOST_KNOWN:
            _known_heads.clear()
        _known_heads[identity] = known
    return known


def _footer(descriptor: int, size: int, path: str) -> tuple[Checksums, int, BlockHandle, BlockHandle | None]:
    """(checksums, format version, handle of the metaindex, handle of the index if the footer has it)."""
    if size < FOOTER:
        raise Malformed(f"{size} bytes are too few")
    tail = os.pread(descriptor, FOOTER, size - FOOTER)
    if len(tail) < FOOTER:
        raise corrupt(path, f"found its end at byte {size - FOOTER + len(tail)}, expected {FOOTER} bytes of a footer")
    if tail.endswith(_OLD_MAGIC):
        fields, kind, version = Fields(tail[-_OLD_FOOTER:-8]), 1, 0
    elif tail.endswith(MAGIC):
        fields, kind, version = Fields(tail[1:-12]), tail[0], int.from_bytes(tail[-12:-8], "little")
    else:
        raise Unreadable(f"{path} ends with {tail[-8:].hex()}, which is no magic number of block-based tables")
    if version > NEWEST_FORMAT or kind > 4:
        raise Unreadable(f"{path} is of table format {version} with checksums of type {kind}")
    if version < HANDLES_IN_METAINDEX:
        return Checksums(kind, 0), version, next_handle(fields), next_handle(fields)
    if fields.take(4) != bytes.fromhex("3e007a00"):
        raise Unreadable(f"{path} has an unknown footer")
    stored = int.from_bytes(fields.take(4), "little")
    base, meta_size = int.from_bytes(fields.take(4), "little"), int.from_bytes(fields.take(4), "little")
    meta_offset = size - FOOTER - TRAILER - meta_size
    if meta_offset < 0:
        raise Malformed(f"a metaindex of {meta_size} bytes")
    own = checksum_of(tail[:_CHECKSUM] + bytes(4) + tail[_CHECKSUM + 4 :], size - FOOTER, Checksums(kind, base))
    if own != stored:
        raise corrupt(path, f"its footer has checksum {own:#010x}, expected {stored:#010x}")
    return Checksums(kind, base), version, BlockHandle(meta_offset, meta_size), None


def _named_handle(meta: Mapping[bytes, bytes], name: bytes) -> BlockHandle:
    if name not in meta:
        raise Unreadable(f"the metaindex has no {name.decode()}")
    return next_handle(Fields(meta[name]))


def next_handle(fields: Fields) -> BlockHandle:
    return BlockHandle(fields.varint(), fields.varint())


def _inside(handle: BlockHandle, size: int) -> BlockHandle:
    if handle.offset + handle.size + TRAILER > size:
        raise Malformed(f"a block of {handle.size} bytes at {handle.offset}")
    return handle
