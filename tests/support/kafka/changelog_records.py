"""Conversion of rows to records of the changelog topic and back (``RecordConverters``, the logging stores).

A changelog key is the row's key, except that a versioned store logs the bare key. A changelog value is the bare value.
The timestamp and headers of the record hold what the store keeps beside it:

    plain, versioned                        value                 plain: time of the input record; versioned: valid_from
    timestamped                             value                 the value's timestamp
    timestamped-headers                     value                 the value's timestamp, its headers
    session-headers                         aggregation           time of the input record; the aggregation's headers

Window and session stores are one of these by the form of values. A null value is a delete; in a versioned store it
is a tombstone. Key-value, timestamped and versioned stores log alike, so one changelog restores any of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from statestore.formats.kafka_rows.timestamped import (
    Header,
    decode_timestamped,
    decode_timestamped_headers,
    decode_with_headers,
    encode_timestamped,
    encode_timestamped_headers,
    encode_with_headers,
)

Form = Literal["plain", "timestamped", "timestamped-headers", "session-headers"]

VERSION_HEADER, POSITION_HEADER = "v", "c"  # Kafka adds these to any record when its internal consistency option is on
CONSISTENCY_VERSION = b"\x00"


class LoggedValue(NamedTuple):
    """A value from the changelog; ``timestamp`` is None where the store does not keep it."""

    value: bytes | None
    timestamp: int | None
    headers: tuple[Header, ...]


def restored_value(form: Form, value: bytes | None, timestamp: int, headers: Sequence[Header] = ()) -> bytes | None:
    """The value that a restore writes to the store for a changelog record; None deletes."""
    if value is None or form == "plain":
        return value
    if form == "timestamped":
        return encode_timestamped(value, timestamp)
    if form == "timestamped-headers":
        return encode_timestamped_headers(value, timestamp, headers)
    return encode_with_headers(value, headers)


def logged_value(form: Form, stored: bytes | None) -> LoggedValue:
    """The changelog record of a stored value. Raises CorruptError KAFKA_BYTES."""
    if stored is None or form == "plain":
        return LoggedValue(stored, None, ())
    if form == "timestamped":
        timestamp, value = decode_timestamped(stored)
        return LoggedValue(value, timestamp, ())
    if form == "timestamped-headers":
        found = decode_timestamped_headers(stored)
        return LoggedValue(found.value, found.timestamp, tuple(found.headers))
    headers, value = decode_with_headers(stored)
    return LoggedValue(value, None, tuple(headers))


def user_headers(headers: Sequence[Header]) -> tuple[Header, ...]:
    """The headers of a record without those that Kafka adds for consistency."""
    consistent = (VERSION_HEADER, CONSISTENCY_VERSION) in headers
    return tuple(h for h in headers if not (consistent and h[0] in (VERSION_HEADER, POSITION_HEADER)))
