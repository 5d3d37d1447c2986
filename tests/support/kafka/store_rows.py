"""Rows of Kafka Streams' stores as bytes, one by one: the model for the readers of whole columns.

    timestamped           timestamp:int64 | value                                    (KIP-258)
    timestamped, headers  length:varint | headers | timestamp:int64 | value          (KIP-1271)
    session, headers      length:varint | headers | aggregation
    headers               count:varint | (key length:varint | key | value length:varint, -1 for null | value)*
    outer-join key        timestamp:int64 | side:1 | key                          side 1 is the left one
    outer-join value      a list of byte arrays, each side:1 | value
    subscription key      length:int32 | foreign key | primary key
    subscription value    flags:1 | instruction:1 | [hash:16] | primary key | [primary partition:int32]

The forms of keys with times are those of `statestore.formats.kafka_rows.window_keys`. The highest bit of a
subscription's flags means that there is no hash; the other bits are the version: 0, or 1 with the partition.
``encodings.json`` fixes these bytes but for subscriptions, whose form is from Kafka's source.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import pack
from typing import NamedTuple

from statestore.formats.bytes.field_reader import NULL, varint_bytes
from statestore.formats.kafka_rows.byte_reader import int32, sized

Header = tuple[str, bytes | None]

INSTRUCTIONS = (
    "DELETE_KEY_NO_PROPAGATE",
    "DELETE_KEY_AND_PROPAGATE",
    "PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE",
    "PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE",
)


# Keys


def encode_store_key(key: bytes, start: int, sequence: int = 0) -> bytes:
    return key + pack(">qi", start, sequence)


def encode_topic_key(key: bytes, start: int) -> bytes:
    return key + pack(">q", start)


def encode_time_first_key(key: bytes, start: int, sequence: int = 0) -> bytes:
    return b"\0" + pack(">q", start) + key + pack(">i", sequence)


def encode_key_first_key(key: bytes, start: int, sequence: int = 0) -> bytes:
    return b"\1" + encode_store_key(key, start, sequence)


def encode_session_key(key: bytes, start: int, end: int) -> bytes:
    return key + pack(">qq", end, start)


def encode_time_first_session_key(key: bytes, start: int, end: int) -> bytes:
    return b"\0" + pack(">qq", end, start) + key


def encode_key_first_session_key(key: bytes, start: int, end: int) -> bytes:
    return b"\1" + encode_session_key(key, start, end)


def encode_outer_join_key(key: bytes, timestamp: int, left: bool) -> bytes:
    return pack(">qB", timestamp, left) + key


def encode_subscription_key(foreign_key: bytes, primary_key: bytes) -> bytes:
    return sized(foreign_key) + primary_key


# Values


def varint(number: int) -> bytes:
    """Encode an int32 as a zig-zag varint, as Kafka records do."""
    return varint_bytes((number << 1) ^ (number >> 31))


def encode_headers(headers: Sequence[Header]) -> bytes:
    if not headers:
        return b""
    parts = [varint(len(headers))]
    for key, value in headers:
        name = key.encode()
        parts += (varint(len(name)), name)
        parts += (varint(NULL),) if value is None else (varint(len(value)), value)
    return b"".join(parts)


def encode_timestamped(value: bytes, timestamp: int) -> bytes:
    return pack(">q", timestamp) + value


def encode_timestamped_headers(value: bytes, timestamp: int, headers: Sequence[Header] = ()) -> bytes:
    return encode_with_headers(encode_timestamped(value, timestamp), headers)


def encode_with_headers(value: bytes, headers: Sequence[Header] = ()) -> bytes:
    data = encode_headers(headers)
    return varint(len(data)) + data + value


def encode_list(entries: Sequence[bytes | None]) -> bytes:
    """Encode a list of byte arrays, the value of list-value stores such as the buffer of an outer join."""
    return b"\x01" + int32(len(entries)) + b"".join(map(sized, entries))


def encode_left_or_right(value: bytes, left: bool) -> bytes:
    return (b"\1" if left else b"\0") + value


class Subscription(NamedTuple):
    """A subscription; it has the ``partition`` of the primary key's record from version 1 on."""

    version: int
    instruction: str
    hash: bytes | None
    primary_key: bytes
    partition: int | None


def encode_subscription(subscription: Subscription) -> bytes:
    flags = subscription.version | (0x80 if subscription.hash is None else 0)
    front = bytes((flags, INSTRUCTIONS.index(subscription.instruction))) + (subscription.hash or b"")
    partition = b"" if subscription.partition is None else int32(subscription.partition)
    return front + subscription.primary_key + partition


def user_headers(headers: Sequence[Header]) -> tuple[Header, ...]:
    """The headers of a logged record without those that Kafka adds when its internal consistency option is on."""
    consistent = ("v", b"\0") in headers
    return tuple(h for h in headers if not (consistent and h[0] in ("v", "c")))
