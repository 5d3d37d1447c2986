"""Row keys of session stores (``SessionKeySchema``, ``PrefixedSessionKeySchemas``): the end comes before the start.

    store, changelog, topic   key | end:int64 | start:int64
    time-ordered, base        00 | end:int64 | start:int64 | key
    time-ordered, index       01 | key | end:int64 | start:int64

Times are epoch milliseconds, both bounds inclusive. The encoders do not check: times are int64. The decoders raise
CorruptError KAFKA_BYTES, also for a session that ends before it starts: such a row is of another kind.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from statestore.formats.kafka_rows.byte_reader import corrupt, require
from statestore.formats.kafka_rows.window_keys import BASE_PREFIX, INDEX_PREFIX, require_prefix

BOUNDS = Struct(">qq")

_pack_bounds = BOUNDS.pack
_unpack_bounds = BOUNDS.unpack_from


class SessionKey(NamedTuple):
    key: bytes
    start: int
    end: int


def encode_session_key(key: bytes, start: int, end: int) -> bytes:
    return key + _pack_bounds(end, start)


def decode_session_key(data: bytes) -> SessionKey:
    at = len(data) - 16
    if at < 0:
        require("session key", data, BOUNDS.size)
    end, start = _unpack_bounds(data, at)
    if end < start:
        raise _inverted(start, end)
    return SessionKey(data[:at], start, end)


def encode_time_first_session_key(key: bytes, start: int, end: int) -> bytes:
    """The base row of a time-ordered store."""
    return BASE_PREFIX + _pack_bounds(end, start) + key


def decode_time_first_session_key(data: bytes) -> SessionKey:
    require_prefix("time-ordered session key", data, BASE_PREFIX, 1 + BOUNDS.size)
    end, start = _unpack_bounds(data, 1)
    if end < start:
        raise _inverted(start, end)
    return SessionKey(data[1 + BOUNDS.size :], start, end)


def encode_key_first_session_key(key: bytes, start: int, end: int) -> bytes:
    """The index row of a time-ordered store."""
    return INDEX_PREFIX + key + _pack_bounds(end, start)


def decode_key_first_session_key(data: bytes) -> SessionKey:
    require_prefix("session index key", data, INDEX_PREFIX, 1 + BOUNDS.size)
    return decode_session_key(data[1:])


def _inverted(start: int, end: int) -> Exception:
    return corrupt("session key", f"found end {end} before start {start}, expected a session")
