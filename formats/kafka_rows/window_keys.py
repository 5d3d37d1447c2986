"""Row keys of window and session stores (``WindowKeySchema``, ``SessionKeySchema`` and those with a prefix; KIP-825).

    windows, store, changelog     key | start:int64 | sequence:int32         the form of 2016, too
    windows, topic                key | start:int64
    windows, time-ordered base    00 | start:int64 | key | sequence:int32
    windows, time-ordered index   01 | key | start:int64 | sequence:int32    its value is empty
    sessions, everywhere          key | end:int64 | start:int64
    sessions, time-ordered base   00 | end:int64 | start:int64 | key
    sessions, time-ordered index  01 | key | end:int64 | start:int64

Times are epoch milliseconds; the end of a window is not stored, both bounds of a session are inclusive. A key has any
length, so its suffix is cut off from the right; rows of one key are contiguous only up to those of keys that it begins.
"""

from __future__ import annotations

from struct import Struct

from statestore.formats.kafka_rows.byte_reader import INT64

SUFFIX = Struct(">qi")
SESSION_SUFFIX = Struct(">qq")
TIME = INT64
BASE_PREFIX = b"\x00"
MAX_TIME = 2**63 - 1

_pack_time = TIME.pack


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
