"""What Kafka's serializers write, value by value, and the keys of changelog records: the model for encoders."""

from __future__ import annotations

import math
import struct
from typing import Any
from uuid import UUID

from support.kafka.store_rows import encode_session_key, encode_store_key

NUMBERS = {"short": (">h", 16), "integer": (">i", 32), "long": (">q", 64)}
NAN = bytes.fromhex("7ff8000000000000")


def bytes_of(serde: str, value: Any) -> bytes | None:
    """The bytes of a value of a serde without parameters; those of raw bytes may be given in hexadecimal."""
    serde = serde.lower()
    if serde in ("bytes", "bytearray") and isinstance(value, str):
        return bytes.fromhex(value)
    if value is None or isinstance(value, bytes):
        return value
    if serde in NUMBERS:
        return struct.pack(NUMBERS[serde][0], value)
    if serde == "double":
        return NAN if math.isnan(value) else struct.pack(">d", value)
    if serde == "float":
        return struct.pack(">f", value)
    if serde == "boolean":
        return bytes([value])
    return str(UUID(value)).encode() if serde == "uuid" else str(value).encode()


def record_key(serde: str, row: dict[str, Any]) -> bytes:
    """The key of the record of a row, whose times are milliseconds."""
    key = bytes_of(serde, row["key"])
    assert key is not None
    if "window_start" in row:
        return encode_store_key(key, row["window_start"])
    if "session_start" in row:
        return encode_session_key(key, row["session_start"], row["session_end"])
    return key


def murmur2(data: bytes) -> int:
    """``Utils.murmur2``, statement by statement."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = 0x9747B28C ^ len(data)
    for at in range(0, len(data) & ~3, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & mask
        k = (k ^ (k >> 24)) * m & mask
        h = (h * m & mask) ^ k
    tail = data[len(data) & ~3 :]
    if tail:
        h = (h ^ int.from_bytes(tail, "little")) * m & mask
    h = (h ^ (h >> 13)) * m & mask
    return h ^ (h >> 15)


def partition_of(key: bytes, partitions: int) -> int:
    """The default partitioner's choice."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
