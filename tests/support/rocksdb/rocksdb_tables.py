"""Table files and MANIFESTs of RocksDB written in plain Python, as the format says or as no RocksDB would.

What is written is checked by RocksDB in the tests. Block-based tables of formats 2 to 6 with an index of one or two
levels; blocks can be changed afterwards with their checksums made right again, so that a reader meets any content.
"""

from __future__ import annotations

import bisect
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import xxhash

PLAIN, SNAPPY, ZLIB, LZ4, ZSTD = 0, 1, 2, 4, 7
DELETE, PUT, MERGE, SINGLE_DELETE = 0, 1, 2, 7
NO_CHECKSUM, CRC32C, XXHASH, XXHASH64, XXH3 = 0, 1, 2, 3, 4
_CODECS = {SNAPPY: "snappy", LZ4: "lz4_raw", ZSTD: "zstd"}
_MAGIC = (0x88E241B785F4CFF7).to_bytes(8, "little")
_FAMILY = b"default"

Entry = tuple[bytes, int, int, bytes]
"""User key, sequence, type, value."""


def varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def string(data: bytes) -> bytes:
    return varint(len(data)) + data


def u32(number: int) -> bytes:
    return (number & 0xFFFFFFFF).to_bytes(4, "little")


def internal(key: bytes, sequence: int, kind: int) -> bytes:
    return key + (sequence << 8 | kind).to_bytes(8, "little")


def _crc_table() -> list[int]:
    table = list(range(256))
    for _ in range(8):
        table = [crc >> 1 ^ (0x82F63B78 if crc & 1 else 0) for crc in table]
    return table


_CRC = _crc_table()


def masked_crc(data: bytes) -> int:
    """CRC32C as RocksDB stores it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CRC[(crc ^ byte) & 255]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


@dataclass(frozen=True)
class Form:
    """The form in which a table file is written."""

    codec: int = PLAIN
    checksum: int = XXH3
    version: int = 5
    restarts: int = 16
    index_restarts: int = 1
    block_entries: int = 8
    two_level: bool = False
    base: int = 0x1234567
    properties: dict[bytes, bytes] = field(default_factory=dict)
    meta: dict[bytes, bytes] = field(default_factory=dict)
    """Further entries of the metaindex."""

    def trailer(self, payload: bytes, kind: int, offset: int) -> bytes:
        """The five bytes behind a block."""
        whole = payload + bytes([kind])
        found = 0
        if self.checksum == CRC32C:
            found = masked_crc(whole)
        elif self.checksum == XXHASH:
            found = xxhash.xxh32_intdigest(whole)
        elif self.checksum == XXHASH64:
            found = xxhash.xxh64_intdigest(whole)
        elif self.checksum == XXH3:
            found = xxhash.xxh3_64_intdigest(payload) ^ kind * 0x6B9083D9
        if self.version >= 6:
            found += self.base ^ ((offset & 0xFFFFFFFF) + (offset >> 32)) & 0xFFFFFFFF
        return bytes([kind]) + u32(found)


@dataclass(frozen=True)
class BlockHandle:
    """The position of a block in a file; ``size`` is without its trailer."""

    offset: int
    size: int

    @property
    def encoded(self) -> bytes:
        return varint(self.offset) + varint(self.size)


@dataclass(frozen=True)
class Table:
    """A table file and the positions of its parts."""

    data: bytes
    form: Form
    blocks: tuple[BlockHandle, ...]
    index: tuple[BlockHandle, ...]
    """The top level last."""
    properties: BlockHandle
    metaindex: BlockHandle

    @property
    def block_handles(self) -> tuple[BlockHandle, ...]:
        return (*self.blocks, *self.index, self.properties, self.metaindex)

    def payload(self, block_handle: BlockHandle) -> bytes:
        return self.data[block_handle.offset : block_handle.offset + block_handle.size]

    def with_payload(self, block_handle: BlockHandle, payload: bytes, kind: int | None = None) -> Table:
        """The block replaced by one of the same length, its checksum made right."""
        end = block_handle.offset + block_handle.size
        assert len(payload) == block_handle.size
        trailer = self.form.trailer(payload, self.data[end] if kind is None else kind, block_handle.offset)
        return replace(self, data=self.data[: block_handle.offset] + payload + trailer + self.data[end + 5 :])


def entry_bytes(shared: int, own: bytes, value: bytes, *, sized: bool = True) -> bytes:
    return varint(shared) + varint(len(own)) + (varint(len(value)) if sized else b"") + own + value


def shared_bytes(one: bytes, other: bytes) -> int:
    """The number of bytes with which both begin."""
    return bisect.bisect_left(range(min(len(one), len(other))), True, key=lambda at: one[: at + 1] != other[: at + 1])


def block_bytes(entries: Sequence[tuple[bytes, bytes]], restarts: int) -> bytes:
    """An entry block, keys sharing what they can between restart points."""
    found, points, before = bytearray(), [], b""
    for number, (key, value) in enumerate(entries):
        shared = 0 if number % restarts == 0 else shared_bytes(before, key)
        if number % restarts == 0:
            points.append(len(found))
        found += entry_bytes(shared, key[shared:], value)
        before = key
    return bytes(found) + b"".join(map(u32, points or [0])) + u32(max(len(points), 1))


def index_bytes(parts: Sequence[tuple[bytes, BlockHandle]], form: Form) -> bytes:
    """An index block of separators and places, handles as differences where the format has them."""
    if form.version < 4:
        return block_bytes([(key, block_handle.encoded) for key, block_handle in parts], form.index_restarts)
    found, points, before, last = bytearray(), [], b"", BlockHandle(0, 0)
    for number, (key, block_handle) in enumerate(parts):
        shared = 0 if number % form.index_restarts == 0 else shared_bytes(before, key)
        if number % form.index_restarts == 0:
            points.append(len(found))
        change = block_handle.size - last.size
        value = varint(change * 2 if change >= 0 else -change * 2 - 1) if shared else block_handle.encoded
        found += entry_bytes(shared, key[shared:], value, sized=False)
        before, last = key, block_handle
    return bytes(found) + b"".join(map(u32, points or [0])) + u32(max(len(points), 1))


def compressed(plain: bytes, codec: int) -> bytes:
    """The payload of a block."""
    if codec == PLAIN:
        return plain
    if codec == ZLIB:
        deflate = zlib.compressobj(wbits=-15)
        return varint(len(plain)) + deflate.compress(plain) + deflate.flush()
    stream: bytes = pa.Codec(_CODECS[codec]).compress(plain, asbytes=True)
    return stream if codec == SNAPPY else varint(len(plain)) + stream


@dataclass
class Writer:
    """A table file that is built block by block."""

    form: Form
    data: bytearray = field(default_factory=bytearray)

    def add(self, payload: bytes, kind: int = PLAIN) -> BlockHandle:
        block_handle = BlockHandle(len(self.data), len(payload))
        self.data += payload + self.form.trailer(payload, kind, block_handle.offset)
        return block_handle

    def finish(
        self, blocks: Sequence[tuple[bytes, BlockHandle]], properties: dict[bytes, bytes], index: bytes | None = None
    ) -> Table:
        """``blocks`` with the separators behind them; ``index`` instead of what they make."""
        form = self.form
        tops: list[BlockHandle] = []
        if form.two_level:
            halves = [part for part in (blocks[: len(blocks) // 2], blocks[len(blocks) // 2 :]) if part]
            tops = [self.add(index_bytes(part, form)) for part in halves]
            blocks_of_top = [(part[-1][0], block_handle) for part, block_handle in zip(halves, tops, strict=True)]
            tops.append(self.add(index_bytes(blocks_of_top, form) if index is None else index))
        else:
            tops.append(self.add(index_bytes(blocks, form) if index is None else index))
        found = {
            b"rocksdb.block.based.table.index.type": u32(2 if form.two_level else 0),
            b"rocksdb.comparator": b"leveldb.BytewiseComparator",
            b"rocksdb.column.family.name": _FAMILY,
            b"rocksdb.format.version": varint(0),
            b"rocksdb.index.key.is.user.key": varint(0),
            b"rocksdb.index.value.is.delta.encoded": varint(form.version >= 4),
            **properties,
            **form.properties,
        }
        block_handle = self.add(block_bytes(sorted(found.items()), 1))
        meta = {b"rocksdb.properties": block_handle.encoded, **form.meta}
        if form.version >= 6:
            meta[b"rocksdb.index"] = tops[-1].encoded
        metaindex = self.add(block_bytes(sorted(meta.items()), 1))
        footer_handles = (metaindex.encoded + tops[-1].encoded).ljust(40, b"\0")
        if form.version >= 6:
            empty = bytes.fromhex("3e007a00") + u32(0) + u32(form.base) + u32(metaindex.size) + bytes(24)
            footer = bytes([form.checksum]) + empty + u32(form.version) + _MAGIC
            own = bytes([form.checksum]) + empty[:4]
            value = replace(form, version=5).trailer(footer[:-1], footer[-1], 0)  # a block of its own, as it were
            offset = len(self.data)
            crc = int.from_bytes(value[1:], "little") + (form.base ^ ((offset & 0xFFFFFFFF) + (offset >> 32)))
            footer = own + u32(crc) + footer[9:]
        else:
            footer = bytes([form.checksum]) + footer_handles + u32(form.version) + _MAGIC
        block_handles = tuple(block_handle for _, block_handle in blocks)
        return Table(bytes(self.data) + footer, form, block_handles, tuple(tops), block_handle, metaindex)


def properties_of(entries: Sequence[Entry]) -> dict[bytes, bytes]:
    """Counts of entries as RocksDB records them."""
    return {
        b"rocksdb.num.entries": varint(len(entries)),
        b"rocksdb.deleted.keys": varint(sum(kind in (DELETE, SINGLE_DELETE) for _, _, kind, _ in entries)),
        b"rocksdb.merge.operands": varint(sum(kind == MERGE for _, _, kind, _ in entries)),
        b"rocksdb.raw.key.size": varint(sum(len(key) + 8 for key, _, _, _ in entries)),
        b"rocksdb.raw.value.size": varint(sum(len(value) for _, _, _, value in entries)),
    }


def sorted_entries(entries: Sequence[Entry]) -> list[Entry]:
    return sorted(entries, key=lambda entry: (entry[0], -(entry[1] << 8 | entry[2])))


def table(entries: Sequence[Entry], form: Form = Form()) -> Table:
    """A table file of entries, which are written in the order given."""
    writer, blocks = Writer(form), []
    for at in range(0, len(entries), form.block_entries):
        part = [(internal(*entry[:3]), entry[3]) for entry in entries[at : at + form.block_entries]]
        blocks.append((part[-1][0], writer.add(compressed(block_bytes(part, form.restarts), form.codec), form.codec)))
    return writer.finish(blocks, properties_of(entries))


def log_bytes(records: Sequence[bytes]) -> bytes:
    """A log of records as the MANIFEST is one, each in as many parts as pages make of it."""
    found = bytearray()
    for record in records:
        at, first = 0, True
        while first or at < len(record):
            left = 32768 - len(found) % 32768
            if left < 7:
                found += bytes(left)
                continue
            part = record[at : at + left - 7]
            at += len(part)
            last = at == len(record)
            kind = bytes([1 if first and last else 2 if first else 4 if last else 3])
            found += u32(masked_crc(kind + part)) + len(part).to_bytes(2, "little") + kind + part
            first = False
    return bytes(found)


def new_file(number: int, level: int, size: int, entries: Sequence[Entry], fields: bytes = b"") -> bytes:
    """The edit that adds a table file; ``fields``: further ones of the file, each a tag and a string."""
    keys = [internal(*entry[:3]) for entry in sorted_entries(entries)]
    sequences = [entry[1] for entry in entries]
    head = varint(103) + varint(level) + varint(number) + varint(size) + string(keys[0]) + string(keys[-1])
    return head + varint(min(sequences)) + varint(max(sequences)) + fields + varint(1)


FIRST_EDIT = varint(1) + string(b"leveldb.BytewiseComparator") + varint(2) + varint(0)


def write_directory(path: Path, tables: Sequence[tuple[int, Sequence[Entry], Table]]) -> Path:
    """A database of one family: levels, the entries the MANIFEST goes by, and files (numbered from 10 on)."""
    path.mkdir()
    edits = [FIRST_EDIT + varint(3) + varint(100) + varint(4) + varint(1 << 40)]
    for number, (level, entries, file) in enumerate(tables, 10):
        (path / f"{number:06d}.sst").write_bytes(file.data)
        edits.append(new_file(number, level, len(file.data), entries))
    write_manifest(path, edits)
    return path


def write_manifest(path: Path, edits: Sequence[bytes]) -> None:
    (path / "MANIFEST-000005").write_bytes(log_bytes(edits))
    (path / "CURRENT").write_bytes(b"MANIFEST-000005\n")


Rows = list[tuple[bytes, bytes]]


def runs() -> list[list[Entry]]:
    """Two runs that overlap; the newer one deletes some keys and changes others."""
    old = [(b"key-%04d" % number, number + 1, PUT, b"value %d " % number * 4) for number in range(150)]
    new = [
        (b"key-%04d" % number, 1000 + number, DELETE if number % 3 else PUT, b"" if number % 3 else b"new")
        for number in range(0, 150, 5)
    ]
    return [sorted_entries(old), sorted_entries(new)]


def expected() -> Rows:
    model = {}
    for run in runs():
        for key, _, kind, value in run:
            model[key] = value if kind == PUT else None
    return sorted((key, value) for key, value in model.items() if value is not None)


def stored(path: Path, form: Form) -> Path:
    return write_directory(path, [(1 - number, run, table(run, form)) for number, run in enumerate(runs())])
