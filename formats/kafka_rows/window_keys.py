"""Row keys of window stores (``WindowKeySchema``, ``PrefixedWindowKeySchemas``; KAFKA-3016, KIP-825).

    store, changelog     key | start:int64 | sequence:int32         the form of 2016, too
    topic                key | start:int64
    time-ordered, base   00 | start:int64 | key | sequence:int32
    time-ordered, index  01 | key | start:int64 | sequence:int32    its value is empty

Times are epoch milliseconds. The encoders do not check: ``start`` is an int64, ``sequence`` an int32. The end of a
window is not stored. The decoders raise CorruptError KAFKA_BYTES. A key has any length, so its suffix is cut off from
the right; rows of one key are contiguous only up to those of keys that it begins.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from statestore.formats.kafka_rows.byte_reader import INT64, corrupt, require

SUFFIX = Struct(">qi")
TIME = INT64
SEQUENCE = Struct(">i")
BASE_PREFIX, INDEX_PREFIX = b"\x00", b"\x01"
MAX_TIME = 2**63 - 1
MAX_SEQUENCE = 2**31 - 1

_pack_suffix = SUFFIX.pack
_pack_time = TIME.pack
_pack_sequence = SEQUENCE.pack
_unpack_suffix = SUFFIX.unpack_from


class WindowKey(NamedTuple):
    key: bytes
    start: int
    sequence: int


def encode_store_key(key: bytes, start: int, sequence: int = 0) -> bytes:
    return key + _pack_suffix(start, sequence)


def decode_store_key(data: bytes) -> WindowKey:
    at = len(data) - 12
    if at < 0:
        require("window store key", data, SUFFIX.size)
    start, sequence = _unpack_suffix(data, at)
    return WindowKey(data[:at], start, sequence)


def encode_topic_key(key: bytes, start: int) -> bytes:
    return key + _pack_time(start)


def decode_topic_key(data: bytes) -> tuple[bytes, int]:
    """(key, start)."""
    require("window topic key", data, TIME.size)
    return data[: -TIME.size], TIME.unpack_from(data, len(data) - TIME.size)[0]


def encode_time_first_key(key: bytes, start: int, sequence: int = 0) -> bytes:
    """The base row of a time-ordered store."""
    return BASE_PREFIX + _pack_time(start) + key + _pack_sequence(sequence)


def decode_time_first_key(data: bytes) -> WindowKey:
    what = "time-ordered window key"
    require_prefix(what, data, BASE_PREFIX, 1 + SUFFIX.size)
    sequence: int = SEQUENCE.unpack_from(data, len(data) - 4)[0]
    return WindowKey(data[9:-4], TIME.unpack_from(data, 1)[0], sequence)


def time_first_key(store_key: bytes) -> bytes:
    """Return the base row's key in a time-ordered store for a row's key in other stores and in changelogs."""
    return BASE_PREFIX + store_key[-12:-4] + store_key[:-12] + store_key[-4:]


def store_key_of(time_first: bytes) -> bytes:
    """Return a row's key in changelogs for the key of its base row in a time-ordered store."""
    return time_first[9:-4] + time_first[1:9] + time_first[-4:]


def time_first_bounds(first: int, last: int) -> tuple[bytes, bytes]:
    """Return the bounds (the upper one is excluded) of the base rows that start from ``first``, at least 0, to
    ``last``."""
    return BASE_PREFIX + _pack_time(first), BASE_PREFIX + (last + 1).to_bytes(TIME.size, "big")


def key_and_start(time_first: bytes) -> tuple[bytes, int]:
    """Return key and start of a base row that this process has written."""
    start: int = TIME.unpack_from(time_first, 1)[0]
    return time_first[9:-4], start


def encode_key_first_key(key: bytes, start: int, sequence: int = 0) -> bytes:
    """The index row of a time-ordered store."""
    return INDEX_PREFIX + key + _pack_suffix(start, sequence)


def decode_key_first_key(data: bytes) -> WindowKey:
    require_prefix("window index key", data, INDEX_PREFIX, 1 + SUFFIX.size)
    return decode_store_key(data[1:])


def require_prefix(what: str, data: bytes, prefix: bytes, size: int) -> None:
    """Raise CorruptError KAFKA_BYTES unless ``data`` starts with ``prefix`` and has at least ``size`` bytes."""
    require(what, data, size)
    if not data.startswith(prefix):
        raise corrupt(what, f"found prefix {data[: len(prefix)].hex()}, expected {prefix.hex()}")


def window_end(start: int, size: int) -> int:
    """The end of a window of ``size`` ms, exclusive; at most 2^63 - 1."""
    return min(start + size, MAX_TIME)


def next_sequence(sequence: int) -> int:
    """The sequence number of the next put in a store that keeps duplicates: 1 at first, and 0 after the greatest."""
    return (sequence + 1) & MAX_SEQUENCE
