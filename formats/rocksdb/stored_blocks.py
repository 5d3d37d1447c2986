"""Single blocks of a table file, verified and decompressed without compiled loops: for metadata, and for lookups.

A block is a payload, the byte of its compression and a checksum of four bytes, which covers both. Since table format 2
a compressed payload begins with its plain length, but for Snappy, which has its own. In the formats before, LZ4 has a
length of eight bytes, and zlib and bzip2 have none.
"""

from __future__ import annotations

import bz2
import os
import zlib
from dataclasses import dataclass

import pyarrow as pa
import xxhash

from statestore.formats.bytes.crc32c import crc32c
from statestore.formats.rocksdb.fields import Fields, Malformed, masked
from statestore.formats.rocksdb.rocksdb_errors import Unreadable, corrupt

TRAILER = 5
"""Bytes of compression type and checksum behind each block."""
PLAIN, SNAPPY, ZLIB, BZIP2, LZ4, LZ4HC, XPRESS, ZSTD = 0, 1, 2, 3, 4, 5, 6, 7
NO_CHECKSUM, CRC32C, XXHASH, XXHASH64, XXH3 = 0, 1, 2, 3, 4
LENGTHS_SINCE = 2
_ARROW = {SNAPPY: "snappy", LZ4: "lz4_raw", LZ4HC: "lz4_raw", ZSTD: "zstd"}
_LOW, _LAST_BYTE_PRIME = 0xFFFFFFFF, 0x6B9083D9
_MOST_PLAIN = 1 << 28
_GROWTH = {SNAPPY: 24, LZ4: 256, LZ4HC: 256, ZLIB: 1100}
"""How many times larger than its payload a block can be; zstd and bzip2 have no such bound below that of all blocks."""


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


def read_block(descriptor: int, handle: BlockHandle, checksums: Checksums, version: int, path: str) -> bytes:
    """Read a block, plain. ``version`` is the table format of the file.

    Raises CorruptError ROCKSDB_FILE, and `Unreadable` for a codec that is not known.
    """
    payload, codec = verified_block(descriptor, handle, checksums, path)
    where = f"byte {handle.offset}"
    try:
        return decompressed(payload, codec, version)
    except Malformed as error:
        raise corrupt(path, f"{where}: a block cannot be decompressed ({error})") from error
    except Unreadable as error:
        raise Unreadable(f"{path}, {where}: {error}") from error


def verified_block(descriptor: int, handle: BlockHandle, checksums: Checksums, path: str) -> tuple[bytes, int]:
    """Read a block as it is stored, and its codec. Raises CorruptError ROCKSDB_FILE."""
    where = f"byte {handle.offset}"
    if handle.size > _MOST_PLAIN:
        raise corrupt(path, f"{where}: found a block of {handle.size} bytes, expected at most {_MOST_PLAIN}")
    raw = os.pread(descriptor, handle.size + TRAILER, handle.offset)
    if len(raw) < handle.size + TRAILER:
        raise corrupt(path, f"found its end at byte {handle.offset + len(raw)}, expected a block there")
    payload, codec = raw[: handle.size], raw[handle.size]
    actual, expected = checksum_of(raw[: handle.size + 1], handle.offset, checksums), int.from_bytes(raw[-4:], "little")
    if actual != expected:
        raise corrupt(path, f"{where}: a block has checksum {actual:#010x}, expected {expected:#010x}")
    return payload, codec


def decompressed(payload: bytes, codec: int, version: int = LENGTHS_SINCE) -> bytes:
    """The plain bytes of a payload. Raises Malformed, and `Unreadable` for a codec that is not known."""
    if codec == PLAIN:
        return payload
    if codec not in (ZLIB, BZIP2, *_ARROW):
        raise Unreadable(f"a block of compression type {codec}{' (Xpress)' if codec == XPRESS else ''}")
    fields, length = Fields(payload), None
    if version >= LENGTHS_SINCE or codec == SNAPPY:
        length = fields.varint()
        if codec == SNAPPY:
            fields.at = 0
    elif codec in (LZ4, LZ4HC):
        length = int.from_bytes(fields.take(8), "little")
    most = min(_MOST_PLAIN, _GROWTH.get(codec, _MOST_PLAIN) * len(payload))
    if length is not None and length > most:
        raise Malformed(f"{len(payload)} bytes that claim to hold {length}")
    packed = fields.take(fields.left)
    try:
        plain = _plain(packed, codec, length, most)
    except (zlib.error, OSError, ValueError, EOFError, pa.ArrowException) as error:
        raise Malformed(str(error)) from error
    if length is not None and len(plain) != length:
        raise Malformed(f"found {len(plain)} bytes, expected {length}")
    return plain


def _plain(packed: bytes, codec: int, length: int | None, most: int) -> bytes:
    """Decompress at most ``most`` bytes; more than ``length`` are an error of the caller."""
    if codec in _ARROW:
        plain: bytes = pa.Codec(_ARROW[codec]).decompress(packed, length, asbytes=True)
        return plain
    room = (most if length is None else length) + 1
    codec_stream = zlib.decompressobj(-15) if codec == ZLIB else bz2.BZ2Decompressor()
    plain = codec_stream.decompress(packed, room)
    if len(plain) >= room:
        raise ValueError(f"more than {room - 1} bytes")
    if not codec_stream.eof:
        raise ValueError("the stream breaks off")
    return plain


def checksum_of(block: bytes, offset: int, checksums: Checksums) -> int:
    """The 32 bits that are stored behind a block, which is its payload and the byte of its compression, or in a footer
    that has zeros in their place."""
    kind = checksums.kind
    if kind == NO_CHECKSUM:  # RocksDB stores zeros, which format 6 mixes like other checksums
        found = 0
    elif kind == CRC32C:
        found = masked(crc32c(block))
    elif kind == XXHASH:
        found = xxhash.xxh32_intdigest(block)
    elif kind == XXHASH64:
        found = xxhash.xxh64_intdigest(block) & _LOW
    else:
        found = (xxhash.xxh3_64_intdigest(block[:-1]) & _LOW) ^ (block[-1] * _LAST_BYTE_PRIME & _LOW)
    if checksums.base:  # since format 6 a block's position is part of its checksum
        found = (found + (checksums.base ^ ((offset & _LOW) + (offset >> 32) & _LOW))) & _LOW
    return found
