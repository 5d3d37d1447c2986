"""Segments of window, session and versioned stores: their numbers, intervals and directory names.

Times and intervals are milliseconds. Integer division truncates toward zero, as Java's does (``AbstractSegments``,
``Stores``, ``RocksDbVersionedKeyValueBytesStoreSupplier``).
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError

Spelling = Literal[".", ":", "-"]

MINUTE = 60_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
INT64_END = 2**63
_MILLISECONDS = re.compile(r"-?[0-9]{1,19}")
_MINUTES = re.compile(r"[0-9]{12}")
_ORIGINAL = re.compile(r"(.+)-([0-9]{12})")


class TimeSegment(NamedTuple):
    """A time segment of a store. ``start`` comes from its name; ``number`` is None where the interval is unknown."""

    start: int
    number: int | None


def time_segment(time: int, interval: int) -> int:
    """The segment that contains a time."""
    return time // interval if time >= 0 else -(-time // interval)


def encode_time_segment_name(store: str, number: int, interval: int, spelling: Spelling = ".") -> str:
    """Name of a segment's directory, ``<store>.<start in ms>``.

    Some releases wrote ``:`` in place of ``.``; the first ones wrote ``-`` and yyyyMMddHHmm (UTC).
    """
    start = number * interval
    return (
        f"{store}-{EPOCH + timedelta(milliseconds=start):%Y%m%d%H%M}"
        if spelling == "-"
        else f"{store}{spelling}{start}"
    )


def decode_time_segment_name(store: str, name: str, interval: int | None = None) -> TimeSegment:
    """Decode all three spellings. The separator is the one character after the name of the store.

    Raises InvalidInputError SEGMENT_NAME for any other name. The spelling with minutes drops seconds and milliseconds,
    both from the start and from the segment number that follows from it, as in Kafka.
    """
    separator, text = name[len(store) : len(store) + 1], name[len(store) + 1 :]
    start = None
    if name.startswith(store) and separator in (".", ":"):
        start = _milliseconds(text)
    elif name.startswith(store) and separator == "-":
        start = _minutes(text)
    if start is None:
        raise InvalidInputError(
            ErrorCode.SEGMENT_NAME,
            f"found directory {name!r}, expected {store}.<ms>, {store}:<ms> or {store}-<yyyyMMddHHmm>; "
            "check the store's name",
        )
    return TimeSegment(start, None if interval is None else time_segment(start, interval))


def decode_original_time_segment_name(name: str) -> tuple[str, int] | None:
    """(store, start) if a directory under ``rocksdb/`` can be a segment as the releases of 2016 named it, else None."""
    found = _ORIGINAL.fullmatch(name)
    start = _minutes(found[2]) if found else None
    return None if found is None or start is None else (found[1], start)


def default_interval(retention: int) -> int:
    """Segment interval of a window or session store for which only the retention is known."""
    return max(retention // 2, MINUTE)


def interval_of_time_segments(retention: int, time_segments: int) -> int:
    """Segment interval of a window store made with a number of segments.

    Raises InvalidInputError below two segments.
    """
    if time_segments < 2:
        raise InvalidInputError(ErrorCode.SEGMENT_COUNT, f"found {time_segments} segments, expected at least 2")
    return max(retention // (time_segments - 1), MINUTE)


def original_retention(before: int, after: int, retention: int, time_segments: int) -> tuple[int, int]:
    """(effective retention, segment interval) of the window store of KAFKA-3016."""
    effective = max(retention, 2 * (before + after + 1))
    return effective, interval_of_time_segments(effective, time_segments)


def default_versioned_interval(history_retention: int) -> int:
    """Segment interval of a versioned store."""
    for limit, divisor, least in ((60_000, 3, 2_000), (300_000, 5, 20_000), (3_600_000, 12, 60_000)):
        if history_retention <= limit:
            return max(history_retention // divisor, least)
    return max(history_retention // 24, 300_000)


def _milliseconds(text: str) -> int | None:
    number = int(text) if _MILLISECONDS.fullmatch(text) else INT64_END
    return number if -INT64_END <= number < INT64_END else None


def _minutes(text: str) -> int | None:
    if not _MINUTES.fullmatch(text):
        return None
    try:
        moment = datetime.strptime(text, "%Y%m%d%H%M").replace(tzinfo=UTC)
    except ValueError:
        return None
    return (moment - EPOCH) // timedelta(milliseconds=1)
