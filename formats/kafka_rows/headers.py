"""Record headers as stores with headers keep them (KIP-1271; ``HeadersSerializer``).

    count:varint | (key length:varint | key | value length:varint, -1 for null | value) *

A record without headers has no bytes at all. Lengths are Kafka's zig-zag varints.
"""

from __future__ import annotations

from collections.abc import Sequence

from statestore.formats.bytes.field_reader import NULL
from statestore.formats.kafka_rows.byte_reader import Reader, varint

Header = tuple[str, bytes | None]

NULL_LENGTH = varint(NULL)


def encode_varint(number: int) -> bytes:
    """Encode an int32 as a zig-zag varint, as Kafka records do."""
    return varint(number)


def decode_varint(data: bytes) -> int:
    """Decode bytes that are exactly one varint; raises CorruptError KAFKA_BYTES."""
    reader = Reader("varint", data)
    found = reader.varint("number")
    reader.end()
    return found


def encode_headers(headers: Sequence[Header]) -> bytes:
    if not headers:
        return b""
    parts = [varint(len(headers))]
    for key, value in headers:
        name = key.encode()
        parts += (varint(len(name)), name)
        parts += (NULL_LENGTH,) if value is None else (varint(len(value)), value)
    return b"".join(parts)


def decode_headers(data: bytes) -> list[Header]:
    """The headers in their order; raises CorruptError KAFKA_BYTES."""
    if not data:
        return []
    reader = Reader("headers", data)
    number = reader.count(reader.varint("count"), 2, "headers")
    found = [_header(reader) for _ in range(number)]
    reader.end()
    return found


def encode_sized_headers(headers: Sequence[Header]) -> bytes:
    """Encode ``varint(length) | headers``, the prefix of a value with headers."""
    if not headers:
        return b"\x00"
    data = encode_headers(headers)
    return varint(len(data)) + data


def read_sized_headers(reader: Reader) -> list[Header]:
    return decode_headers(reader.take(reader.varint("length of headers"), "headers"))


def _header(reader: Reader) -> Header:
    key = reader.text(reader.take(reader.varint("length of a header's key"), "header key"), "header key")
    length = reader.varint("length of a header's value")
    return key, None if length == NULL else reader.take(length, "header value")
