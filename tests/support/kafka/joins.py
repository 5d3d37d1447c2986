"""Bytes of join internals: the buffer of left and outer stream joins, and subscriptions of foreign-key joins.

    outer-join key        timestamp:int64 | side:1 | key                          side 1 is the left one
    outer-join value      a list of byte arrays (`list_serde`), each side:1 | value
    subscription key      length:int32 | foreign key | primary key
    subscription value    flags:1 | instruction:1 | [hash:16] | primary key | [primary partition:int32]

The highest bit of the flags means that there is no hash; the other bits are the version: 0, or 1 with the partition. A
subscription value is stored in a timestamped store, so a timestamp precedes it. Times are epoch milliseconds. The
decoders raise CorruptError KAFKA_BYTES. The form of subscriptions is from Kafka's source; no test of Kafka fixes it.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from statestore.formats.kafka_rows.byte_reader import INT32, Reader, int32, sized

JOIN_PREFIX = Struct(">qB")
NO_HASH = 0x80
HASH_SIZE = 16
INSTRUCTIONS = (
    "DELETE_KEY_NO_PROPAGATE",
    "DELETE_KEY_AND_PROPAGATE",
    "PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE",
    "PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE",
)


class OuterJoinKey(NamedTuple):
    timestamp: int
    left: bool
    key: bytes


class Subscription(NamedTuple):
    """A subscription; it has the ``partition`` of the primary key's record from version 1 on."""

    version: int
    instruction: str
    hash: bytes | None
    primary_key: bytes
    partition: int | None


def encode_outer_join_key(key: bytes, timestamp: int, left: bool) -> bytes:
    return JOIN_PREFIX.pack(timestamp, left) + key


def decode_outer_join_key(data: bytes) -> OuterJoinKey:
    reader = Reader("outer-join key", data)
    return OuterJoinKey(reader.i64("timestamp"), _left(reader), reader.rest())


def encode_left_or_right(value: bytes, left: bool) -> bytes:
    return (b"\x01" if left else b"\x00") + value


def decode_left_or_right(data: bytes) -> tuple[bool, bytes]:
    """(whether the value is of the left side, value)."""
    reader = Reader("left or right value", data)
    return _left(reader), reader.rest()


def encode_subscription_key(foreign_key: bytes, primary_key: bytes) -> bytes:
    """Encode the row key of a subscription. With an empty primary key it is the prefix of all rows of a foreign key."""
    return sized(foreign_key) + primary_key


def decode_subscription_key(data: bytes) -> tuple[bytes, bytes]:
    """(foreign key, primary key)."""
    reader = Reader("subscription key", data)
    return reader.sized("foreign key"), reader.rest()


def encode_subscription(subscription: Subscription) -> bytes:
    flags = subscription.version | (NO_HASH if subscription.hash is None else 0)
    front = bytes((flags, INSTRUCTIONS.index(subscription.instruction))) + (subscription.hash or b"")
    partition = b"" if subscription.partition is None else int32(subscription.partition)
    return front + subscription.primary_key + partition


def decode_subscription(data: bytes) -> Subscription:
    reader = Reader("subscription", data)
    flags, instruction = reader.u8("flags"), reader.u8("instruction")
    version = flags & ~NO_HASH
    if version > 1 or instruction >= len(INSTRUCTIONS):
        raise reader.error(
            f"found version {version} and instruction {instruction}, expected version 0 or 1 and instruction 0 to 3"
        )
    digest = None if flags & NO_HASH else reader.take(HASH_SIZE, "hash")
    key = reader.take(reader.left - version * INT32.size, "primary key")
    partition = reader.i32("partition") if version else None
    return Subscription(version, INSTRUCTIONS[instruction], digest, key, partition)


def _left(reader: Reader) -> bool:
    side = reader.u8("side")
    if side > 1:
        raise reader.error(f"found side {side}, expected 1 (left) or 0 (right)", reader.at - 1)
    return side == 1
