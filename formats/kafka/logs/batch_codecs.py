"""Decompression of the records of a batch: gzip, Snappy, LZ4 frames, Zstandard (``CompressionType``).

Java's producer frames Snappy as xerial does: 82 "SNAPPY" 00 | version:int32 | compatible version:int32, then
size:int32 | block, repeated. Other clients write one bare block.
"""

from __future__ import annotations

import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, UnsupportedError

NAMES = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
_STREAMS = {1: "gzip", 3: "lz4", 4: "zstd"}
_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER = 16
MOST_BYTES = 1 << 30  # of the records of one batch; brokers accept a megabyte unless they are set to more
_CHUNK = 1 << 20


def decompressed(codec: int, data: memoryview) -> bytes:
    """The plain records of a batch.

    Raises UnsupportedError KAFKA_LOG_FORMAT for an unknown codec, and CorruptError KAFKA_LOG for bytes that are not of
    this codec or become more than MOST_BYTES. Neither names the file.
    """
    if codec in _STREAMS:
        return _stream(_STREAMS[codec], data)
    if codec == 2:
        return _snappy(data)
    raise UnsupportedError(ErrorCode.KAFKA_LOG_FORMAT, f"found compression {codec}, expected 0 to 4")


def _stream(name: str, data: memoryview) -> bytes:
    parts, size = [], 0
    try:
        with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(data)), name) as stream:
            while part := stream.read(_CHUNK):
                size += len(part)
                if size > MOST_BYTES:
                    raise _too_large(name)
                parts.append(part)
    except (OSError, pa.ArrowInvalid) as error:
        raise _broken(name, str(error)) from error
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _snappy(data: memoryview) -> bytes:
    if bytes(data[: len(_XERIAL)]) != _XERIAL:
        return _block(data, MOST_BYTES)
    at, parts, room = _XERIAL_HEADER, [], MOST_BYTES
    while at < len(data):
        if len(data) - at < 4:
            raise _broken("snappy", "the last block has no size")
        size = int.from_bytes(data[at : at + 4])
        at += 4
        if size > len(data) - at:
            raise _broken("snappy", f"a block of {size} bytes, where {len(data) - at} are left")
        parts.append(_block(data[at : at + size], room))
        room -= len(parts[-1])
        at += size
    return b"".join(parts)


def _block(data: memoryview, room: int) -> bytes:
    size = shift = 0
    for byte in data[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    else:
        raise _broken("snappy", "a block without its length")
    if size > room or size > 64 * len(data):  # a copy of at most 64 bytes takes two or three
        raise _too_large("snappy")
    try:
        found: bytes = pa.Codec("snappy").decompress(pa.py_buffer(data), size, asbytes=True)
    except (OSError, pa.ArrowInvalid, ValueError) as error:
        raise _broken("snappy", str(error)) from error
    return found


def _broken(name: str, reason: str) -> CorruptError:
    return CorruptError(ErrorCode.KAFKA_LOG, f"found records that are not {name}: {reason}")


def _too_large(name: str) -> CorruptError:
    return CorruptError(ErrorCode.KAFKA_LOG, f"found {name} records of more than {MOST_BYTES} bytes in one batch")
