"""Times and durations as users write them, converted to the microseconds and milliseconds used inside.

State time has the resolution of milliseconds, as in Kafka. Finer input is floored, in writes and questions alike, so
that what was written at a moment is found at that moment. A time without a zone is refused, never guessed.

A time as text has one grammar in every door (`parse_time`; docs/time-travel.md):

    2024-05-01T09:30:15.250Z     a date, T or a blank, hours and minutes; seconds and a fraction may follow
    2024-05-01 09:30+02:00       the zone: Z, +hh, +hhmm or +hh:mm
    2024-05-01 09:30 UTC         or a blank and UTC, GMT or the name of a region, like Europe/Berlin
    1714555800000                epoch milliseconds (not of four digits, which may be meant as a year)
    1714555800000ms              the same; of any number of digits
    2024-05-01 09:30             without a zone, and
    2024-05-01                   a date, its first moment: refused, unless the session of Spark has a time zone
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import SupportsIndex
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, shown

MIN_MS = -62_135_596_800_000  # 0001-01-01T00:00:00Z
MAX_MS = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z
Time = int | datetime | str
"""A moment as users give it: epoch milliseconds, an aware datetime, or text (`parse_time`)."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TICK = 1_000  # microseconds in a millisecond, the resolution of state time
_MILLISECOND = timedelta(milliseconds=1)

UNITS_MS = {
    "ms": 1,
    "millisecond": 1,
    "milliseconds": 1,
    "s": 1_000,
    "sec": 1_000,
    "second": 1_000,
    "seconds": 1_000,
    "m": 60_000,
    "min": 60_000,
    "minute": 60_000,
    "minutes": 60_000,
    "h": 3_600_000,
    "hour": 3_600_000,
    "hours": 3_600_000,
    "d": 86_400_000,
    "day": 86_400_000,
    "days": 86_400_000,
    "w": 604_800_000,
    "week": 604_800_000,
    "weeks": 604_800_000,
}
_PART = re.compile(r"\s*([0-9]{1,18})\s*([A-Za-z]+)\s*")
_EPOCH_MS = re.compile(r"([+-]?(?:[0-9]{1,3}|[0-9]{5,30})|[+-]?[0-9]{1,30}(?=ms))(?:ms)?")
_TEXT = re.compile(
    r"(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[T ](?P<time>[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.(?P<fraction>[0-9]{1,12}))?)?)"
    r"(?: ?(?P<zone>Z|[+-][0-9]{2}(?::?[0-5][0-9])?)| (?P<name>UTC|GMT|[A-Z][A-Za-z]+/[A-Za-z0-9_+/-]{1,40}))?)?"
)
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])([0-9]{1,2})(?::?([0-5][0-9]))?")
_FOUR_DIGITS = re.compile(r"[0-9]{4}")
_SECONDS_SHOWN = len("09:30:00")


def to_us(time: Time, what: str) -> int:
    """Convert epoch milliseconds, an aware datetime or a time as text to epoch microseconds, floored to the
    millisecond.

    ``what`` names the argument in errors: InvalidInputError NAIVE_DATETIME, INVALID_TIME, INVALID_TIME_ZONE or
    TIME_OUT_OF_RANGE.
    """
    if type(time) is int and MIN_MS <= time <= MAX_MS:
        return time * 1000
    if isinstance(time, str):
        return parse_time(time, what)
    milliseconds = _of_datetime(time, what) if isinstance(time, datetime) else _of_integer(time, what)
    if not MIN_MS <= milliseconds <= MAX_MS:
        finer = isinstance(time, int) and time > 0
        raise InvalidInputError(
            ErrorCode.TIME_OUT_OF_RANGE,
            f"{what} is {shown(time)}; expected epoch milliseconds from {MIN_MS} (year 1) to {MAX_MS} (year 9999)"
            + ("; this looks like microseconds or nanoseconds" if finer else ""),
        )
    return milliseconds * 1000


def _of_datetime(time: datetime, what: str) -> int:
    if time != time:  # pandas' NaT is a datetime that is unequal to itself
        raise InvalidInputError(
            ErrorCode.INVALID_TIME, f"{what} is {time!r}, which is no time; give one, or leave it out"
        )
    if time.utcoffset() is None:
        raise InvalidInputError(
            ErrorCode.NAIVE_DATETIME,
            f"{what} is {time!r}, which names no moment without a time zone; give it one, "
            f"for example datetime(…, tzinfo=timezone.utc), or if it is in UTC write {f'{time.isoformat()}Z'!r}",
        )
    return (time - EPOCH) // _MILLISECOND


def _of_integer(time: object, what: str) -> int:
    if isinstance(time, bool) or not isinstance(time, SupportsIndex):
        raise InvalidInputError(
            ErrorCode.INVALID_TIME,
            f"{what} is {shown(time)} ({type(time).__name__}); expected an int of epoch milliseconds, an aware "
            "datetime, or a text like 2013-01-01T05:00:00Z",
        )
    return _index(time, what)


def _index(value: SupportsIndex, what: str) -> int:
    try:
        return value.__index__()
    except TypeError:  # an array of numbers, or a class
        raise InvalidInputError(ErrorCode.INVALID_TIME, f"{what} is {shown(value)}; expected one int") from None


def parse_time(text: str, what: str, default_zone: tzinfo | None = None) -> int:
    """Parse a time as text, in the grammar of this module, to epoch microseconds, floored to the millisecond.

    A text without a zone is read in ``default_zone``, or refused (NAIVE_DATETIME) where there is none. Raises
    InvalidInputError INVALID_TIME, INVALID_TIME_ZONE or TIME_OUT_OF_RANGE.
    """
    return parse_instant(text, what, default_zone) // 1000 * 1000


def parse_instant(text: str, what: str, default_zone: tzinfo | None = None) -> int:
    """Parse a time as text to epoch microseconds, which columns of timestamps hold; else as `parse_time`."""
    text = text.strip()
    number = _EPOCH_MS.fullmatch(text)
    if number is not None:
        return to_us(int(number[1]), what)
    parts = _TEXT.fullmatch(text)
    if parts is None:
        raise _no_time(text, what)
    named = parts["zone"] or parts["name"]
    zone = default_zone if named is None else time_zone(named, f"{what} is {text!r}: its time zone")
    if zone is None:
        zoned = f"{text}Z" if parts["time"] else f"{text}T00:00:00Z"
        raise InvalidInputError(
            ErrorCode.NAIVE_DATETIME,
            f"{what} is {text!r} without a time zone, so the moment is not known; add one, like {zoned}",
        )
    clock, fraction = (parts["time"] or "00:00")[:_SECONDS_SHOWN], parts["fraction"] or ""
    try:
        moment = datetime.fromisoformat(f"{parts['date']}T{clock}")
    except ValueError:
        raise _no_time(text, what) from None
    instant = moment.replace(tzinfo=zone)
    return to_us(instant, what) + int(f"{fraction:0<6}"[:6])


def session_time(text: str, what: str, zone: Callable[[], tzinfo | None]) -> int:
    """Parse a time as text; ``zone`` is asked for the zone of a session only if the text has none."""
    try:
        return parse_time(text, what)
    except InvalidInputError as error:
        default = zone() if error.code == ErrorCode.NAIVE_DATETIME else None
        if default is None:
            raise
    return parse_time(text, what, default)


def _no_time(text: str, what: str) -> InvalidInputError:
    hint = f": {text}ms, or {text}-01-01T00:00:00Z if a year is meant" if _FOUR_DIGITS.fullmatch(text) else ""
    return InvalidInputError(
        ErrorCode.INVALID_TIME,
        f"{what} is {text!r}; expected ISO-8601 with a zone, like 2013-01-01T05:00:00Z, or epoch milliseconds{hint}",
    )


def time_zone(name: str, what: str) -> tzinfo:
    """Return the time zone of a name or offset, as Spark writes them too. Raises InvalidInputError
    INVALID_TIME_ZONE."""
    offset = _OFFSET.fullmatch(name)
    try:
        if offset is None:
            return UTC if name == "Z" else ZoneInfo(name)
        sign, hours, minutes = offset.groups()
        distance = timedelta(hours=int(hours), minutes=int(minutes or 0))
        return timezone(-distance if sign == "-" else distance)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidInputError(
            ErrorCode.INVALID_TIME_ZONE,
            f"{what} {name!r} is not known to Python; write times with an offset, like 2013-01-01T05:00:00Z",
        ) from None


def from_us(us: int) -> int:
    """Convert epoch microseconds to epoch milliseconds, floored."""
    return us // 1000


def to_datetime(us: int) -> datetime:
    """Convert epoch microseconds to an aware datetime in UTC."""
    return EPOCH + timedelta(microseconds=us)


def format_time(us: int) -> str:
    """Format epoch microseconds as 2013-01-01T05:00:00.000Z; moments outside years 1 to 9999 as words."""
    if not MIN_MS * 1000 <= us <= MAX_MS * 1000 + 999:
        return "the beginning" if us < 0 else "the end of time"
    return to_datetime(us).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def duration_ms(value: int | timedelta | str | None, what: str) -> int | None:
    """Convert a duration to milliseconds: an int of milliseconds, a timedelta, or a text like "30 days" or "1h 30m".

    None stays None. Raises InvalidInputError INVALID_DURATION, also for a negative duration, one over 8,000 years, and
    one with a fraction of a millisecond.
    """
    if value is None:
        return None
    if isinstance(value, timedelta) and value == value // _MILLISECOND * _MILLISECOND:
        milliseconds = value // _MILLISECOND
    elif isinstance(value, str):
        milliseconds = _parse_duration(value, what)
    elif isinstance(value, SupportsIndex) and not isinstance(value, bool):
        milliseconds = _index(value, what)
    else:
        raise _invalid(value, what)
    if not 0 <= milliseconds <= MAX_MS:
        raise _invalid(value, what)
    return milliseconds


def _parse_duration(text: str, what: str) -> int:
    position = total = 0
    while position < len(text):
        part = _PART.match(text, position)
        if part is None or part.group(2).lower() not in UNITS_MS:
            raise _invalid(text, what)
        total += int(part.group(1)) * UNITS_MS[part.group(2).lower()]
        position = part.end()
    if not text.strip():
        raise _invalid(text, what)
    return total


def _invalid(value: object, what: str) -> InvalidInputError:
    return InvalidInputError(
        ErrorCode.INVALID_DURATION,
        f"{what} is {shown(value)}; expected milliseconds as an int (not negative), a timedelta of whole ones, "
        'or a text with units ms, s, min, h, d, w like "30 days" or "1h 30m"',
    )


def format_duration(milliseconds: int) -> str:
    """Format milliseconds in the largest unit that gives a whole number: "30 days", "90 minutes", "250 ms"."""
    for unit, worth in (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1_000)):
        if milliseconds and milliseconds % worth == 0:
            count = milliseconds // worth
            return f"{count} {unit}" if count == 1 else f"{count} {unit}s"
    return f"{milliseconds} ms"
