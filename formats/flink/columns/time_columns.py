"""Dates and times of Java, with their nulls, as columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from statestore.formats.bytes.byte_columns import gather
from statestore.formats.flink.columns.faults import Beyond, Wrong, refuse
from statestore.formats.kernels.arrays import Bools, Bytes, Ints

NULL_LONG = -(2**63)
_NULL_YEAR = -(2**31)
_NULL_HOUR = -128
_MICROS, _NANOS = pa.timestamp("us", "UTC"), pa.timestamp("ns", "UTC")
_SECOND = 1_000_000_000
_DAY_SECONDS = 86_400
_MONTH_DAYS = np.array([31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])


def _column(numbers: Ints, kind: pa.DataType, missing: Bools | None) -> pa.Array:
    if missing is not None and missing.any():
        return pa.array(numbers, mask=missing).cast(kind)
    return pa.array(numbers).cast(kind)


def micros_of_millis(millis: Ints, missing: Bools | None = None) -> pa.Array:
    """Timestamps of epoch milliseconds. Raises Beyond."""
    known = millis if missing is None else np.where(missing, 0, millis)
    limit = 2**63 // 1000
    _fit((known > limit) | (known < -limit), known, "epoch milliseconds", _MICROS)
    return _column(known * 1000, _MICROS, missing)


def _fit(beyond: Bools, numbers: Ints, unit: str, kind: pa.DataType) -> None:
    if beyond.any():
        raise Beyond(f"{int(numbers[int(beyond.argmax())])} {unit}", str(kind))


def nanos_of(seconds: Ints, nanos: Ints, missing: Bools, kind: pa.DataType) -> pa.Array:
    """Timestamps of seconds and nanoseconds of the second."""
    refuse(~missing & ((nanos < 0) | (nanos >= _SECOND)), "nanoseconds beyond a second", f"below {_SECOND}")
    far = (seconds < -9_223_372_037) | (seconds > 9_223_372_036)
    total = np.where(far | missing, 0, seconds) * _SECOND + nanos  # at the edges it may turn over, and change its sign
    beyond = ~missing & (far | ((total >= 0) != (seconds >= 0)))
    _fit(beyond, seconds, "epoch seconds", kind)
    return _column(np.where(missing, 0, total), kind, missing)


def _millis(data: Bytes, at: Ints) -> pa.Array:
    return micros_of_millis(gather(data, at, ">i8"))


def _millis_or_null(data: Bytes, at: Ints) -> pa.Array:
    millis = gather(data, at, ">i8")
    return micros_of_millis(millis, millis == NULL_LONG)


def _instant(data: Bytes, at: Ints) -> pa.Array:
    seconds = gather(data, at, ">i8")
    return nanos_of(seconds, gather(data, at + 8, ">i4").astype(np.int64), seconds == NULL_LONG, _NANOS)


def _sql_timestamp(data: Bytes, at: Ints) -> pa.Array:
    """The nanoseconds include the milliseconds."""
    millis = gather(data, at, ">i8")
    return nanos_of(millis // 1000, gather(data, at + 8, ">i4").astype(np.int64), millis == NULL_LONG, _NANOS)


def date_days(data: Bytes, at: Ints) -> tuple[Ints, Bools]:
    """Days since 1970, and which dates are null."""
    year = gather(data, at, ">i4").astype(np.int64)
    missing: Bools = year == _NULL_YEAR
    month = np.where(missing, 1, gather(data, at + 4, "i1")).astype(np.int64)
    day = np.where(missing, 1, gather(data, at + 5, "i1")).astype(np.int64)
    return days_of_dates(np.where(missing, 1970, year), month, day), missing


def days_of_dates(year: Ints, month: Ints, day: Ints) -> Ints:
    """Days since 1970. Raises Wrong for dates that no calendar has."""
    refuse((month < 1) | (month > 12) | (abs(year) > 999_999_999), "a date of no month", "1 to 12")
    leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    longest = np.where((month == 2) & ~leap, 28, _MONTH_DAYS[month - 1])
    refuse((day < 1) | (day > longest), "a date of no day of its month", "1 to 28, 29, 30 or 31")
    # Days from a civil date: years begin in March, so that the leap day is the last of a year.
    shifted = year - (month <= 2)
    era = shifted // 400
    year_of_era = shifted - era * 400
    day_of_year = (153 * (month + np.where(month > 2, -3, 9)) + 2) // 5 + day - 1
    found: Ints = era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719_468
    return found


def clock_nanos(data: Bytes, at: Ints) -> tuple[Ints, Bools]:
    """Nanoseconds of the day, and which times are null."""
    hour = gather(data, at, "i1").astype(np.int64)
    missing: Bools = hour == _NULL_HOUR
    minute, second = gather(data, at + 1, "i1").astype(np.int64), gather(data, at + 2, "i1").astype(np.int64)
    nano = gather(data, at + 3, ">i4").astype(np.int64)
    wrong = np.zeros(len(at), bool)
    for part, most in ((hour, 24), (minute, 60), (second, 60), (nano, _SECOND)):
        wrong |= (part < 0) | (part >= most)
    refuse(wrong & ~missing, "a time beyond the day", "hours below 24, minutes and seconds below 60")
    return np.where(missing, 0, ((hour * 60 + minute) * 60 + second) * _SECOND + nano), missing


def _local_date(data: Bytes, at: Ints) -> pa.Array:
    days, missing = date_days(data, at)
    _fit((days < -(2**31)) | (days >= 2**31), days, "days since 1970", pa.date32())
    return _column(days.astype(np.int32), pa.date32(), missing)


def _local_time(data: Bytes, at: Ints) -> pa.Array:
    nanos, missing = clock_nanos(data, at)
    return _column(nanos, pa.time64("ns"), missing)


def _local_date_time(data: Bytes, at: Ints) -> pa.Array:
    days, missing = date_days(data, at)
    nanos, no_time = clock_nanos(data, at + 6)
    if (missing != no_time).any():
        raise Wrong("a date without a time", "both or none")
    return nanos_of(days * _DAY_SECONDS + nanos // _SECOND, nanos % _SECOND, missing, pa.timestamp("ns"))


def _table_micros(data: Bytes, at: Ints) -> pa.Array:
    millis, nanos = gather(data, at, ">i8"), gather(data, at + 8, ">i4").astype(np.int64)
    return table_time(millis, nanos, "us")


def _table_nanos(data: Bytes, at: Ints) -> pa.Array:
    millis, nanos = gather(data, at, ">i8"), gather(data, at + 8, ">i4").astype(np.int64)
    return table_time(millis, nanos, "ns")


def table_time(millis: Ints, nanos: Ints, unit: str) -> pa.Array:
    """Timestamps without a zone of milliseconds and nanoseconds of the millisecond, as Flink SQL has them."""
    refuse((nanos < 0) | (nanos >= 1_000_000), "nanoseconds beyond a millisecond", "below 1000000")
    none = np.zeros(len(millis), bool)
    if unit == "ns":
        return nanos_of(millis // 1000, millis % 1000 * 1_000_000 + nanos, none, pa.timestamp("ns"))
    limit = 2**63 // 1000
    _fit((millis >= limit - 1) | (millis < -limit), millis, "epoch milliseconds", pa.timestamp("us"))
    return pa.array(millis * 1000 + nanos // 1000).cast(pa.timestamp("us"))


TIMES: Mapping[str, Callable[[Bytes, Ints], pa.Array]] = {
    "millis": _millis,
    "millis or null": _millis_or_null,
    "instant": _instant,
    "sql timestamp": _sql_timestamp,
    "local date": _local_date,
    "local time": _local_time,
    "local date time": _local_date_time,
    "micros of table": _table_micros,
    "nanos of table": _table_nanos,
}
