"""Decompression of the records of a batch: gzip, Snappy, LZ4 frames, Zstandard (``CompressionType``).

Java's producer frames Snappy as xerial does (``snappy_blocks``). Other clients write one bare block.
"""

from __future__ import annotations

import io
from functools import partial

import pyarrow as pa

from statestore.formats.bytes.snappy_blocks import XERIAL, XERIAL_HEADER, snappy_length, unpacked, xerial_blocks
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, UnsupportedError

NAMES = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
_STREAMS = {1: "gzip", 3: "lz4", 4: "zstd"}
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
    if bytes(data[: len(XERIAL)]) != XERIAL:
        return _block(data, MOST_BYTES)
    parts, room = [], MOST_BYTES
    for packed in xerial_blocks(io.BytesIO(data[XERIAL_HEADER:]).read, len(data), partial(_broken, "snappy")):
        parts.append(_block(packed, room))
        room -= len(parts[-1])
    return b"".join(parts)


def _block(data: bytes | memoryview, room: int) -> bytes:
    size = snappy_length(data, partial(_broken, "snappy"))
    if size > room or size > 64 * len(data):  # a copy of at most 64 bytes takes two or three
        raise _too_large("snappy")
    return unpacked("snappy", data, size, partial(_broken, "snappy"))


def _broken(name: str, reason: str) -> CorruptError:
    return CorruptError(ErrorCode.KAFKA_LOG, f"found records that are not {name}: {reason}")


def _too_large(name: str) -> CorruptError:
    return CorruptError(ErrorCode.KAFKA_LOG, f"found {name} records of more than {MOST_BYTES} bytes in one batch")
