"""Values of stores that keep more than the value (KIP-258, KIP-1271).

    timestamped           timestamp:int64 | value
    timestamped, headers  length:varint | headers | timestamp:int64 | value
    session, headers      length:varint | headers | aggregation

Timestamps are epoch milliseconds; -1 (`UNKNOWN`) is unknown, not a moment. The conversions are those by which Kafka
upgrades rows of an older column family when it reads them. Decoders raise CorruptError KAFKA_BYTES.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from statestore.formats.bytes.field_reader import NULL
from statestore.formats.kafka_rows.byte_reader import INT64, Reader, require, varint

# Record headers as stores with headers keep them (KIP-1271; ``HeadersSerializer``).
#
#     count:varint | (key length:varint | key | value length:varint, -1 for null | value) *
#
# A record without headers has no bytes at all. Lengths are Kafka's zig-zag varints.


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


UNKNOWN = -1
NO_HEADERS = b"\x00"
UNKNOWN_TIMESTAMP = INT64.pack(UNKNOWN)

_pack_time = INT64.pack
_unpack_time = INT64.unpack_from


class TimestampedHeaders(NamedTuple):
    headers: list[Header]
    timestamp: int
    value: bytes


def encode_timestamped(value: bytes, timestamp: int) -> bytes:
    return _pack_time(timestamp) + value


def decode_timestamped(data: bytes) -> tuple[int, bytes]:
    """(timestamp, value)."""
    if len(data) < 8:
        require("timestamped value", data, INT64.size)
    return _unpack_time(data)[0], data[8:]


def encode_timestamped_headers(value: bytes, timestamp: int, headers: Sequence[Header] = ()) -> bytes:
    return encode_sized_headers(headers) + _pack_time(timestamp) + value


def decode_timestamped_headers(data: bytes) -> TimestampedHeaders:
    """(timestamp, headers, value) of bytes with headers.

    The headers ``vh.prior`` and ``vh.old`` of a suppression changelog hold such bytes, too, with an empty value.
    """
    reader = Reader("value with timestamp and headers", data)
    return TimestampedHeaders(read_sized_headers(reader), reader.i64("timestamp"), reader.rest())


def encode_with_headers(value: bytes, headers: Sequence[Header] = ()) -> bytes:
    """Encode the aggregation of a session store with headers."""
    return encode_sized_headers(headers) + value


def decode_with_headers(data: bytes) -> tuple[list[Header], bytes]:
    """(headers, aggregation)."""
    reader = Reader("aggregation with headers", data)
    return read_sized_headers(reader), reader.rest()


def plain_to_timestamped(value: bytes) -> bytes:
    return UNKNOWN_TIMESTAMP + value


def timestamped_to_headers(data: bytes) -> bytes:
    return NO_HEADERS + data


def plain_to_headers(value: bytes) -> bytes:
    return NO_HEADERS + UNKNOWN_TIMESTAMP + value


def aggregation_to_headers(aggregation: bytes) -> bytes:
    return NO_HEADERS + aggregation
