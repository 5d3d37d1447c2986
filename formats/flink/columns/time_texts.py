"""Texts of many dates and times at once, as ``toString`` of Java's java.time classes writes them.

Those of years that do not have four digits are written one by one, as in ``java_texts``.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statestore.formats.bytes.byte_columns import ends_of
from statestore.formats.flink.columns.java_texts import date_text, instant_text, time_text
from statestore.formats.flink.columns.time_columns import days_of_dates
from statestore.formats.kernels.arrays import Bytes, Ints

_SECOND, _DAY = 1_000_000_000, 86_400
_FIRST_DAY, _LAST_DAY = days_of_dates(np.array([0, 9999]), np.array([1, 12]), np.array([1, 31])).tolist()


def instant_texts(seconds: Ints, nanos: Ints) -> pa.Array:
    """The texts of instants."""
    days = seconds // _DAY
    if not _have_four_digits(days):
        rows = zip(seconds.tolist(), nanos.tolist(), strict=True)
        return pa.array([instant_text(*each) for each in rows], pa.string())
    found, sizes = np.empty((len(days), 30), np.uint8), _fraction_size(nanos) + 20
    found[:, :10], found[:, 10] = _dates(days), ord("T")
    found[:, 11:29] = _times(seconds % _DAY * _SECOND + nanos)
    found[np.arange(len(days)), sizes - 1] = ord("Z")
    return _column(found, sizes)


def date_texts(days: Ints) -> pa.Array:
    """The texts of dates."""
    if not _have_four_digits(days):
        return pa.array([date_text(each) for each in days.tolist()], pa.string())
    return _column(_dates(days), np.full(len(days), 10))


def time_texts(nanos: Ints) -> pa.Array:
    """The texts of times of a day, without seconds of 0."""
    return _column(_times(nanos), _time_size(nanos))


def date_time_texts(days: Ints, nanos: Ints) -> pa.Array:
    """The texts of dates with times of a day."""
    if not _have_four_digits(days):
        rows = zip(days.tolist(), nanos.tolist(), strict=True)
        return pa.array([f"{date_text(day)}T{time_text(nano)}" for day, nano in rows], pa.string())
    found = np.full((len(days), 29), ord("T"), np.uint8)
    found[:, :10], found[:, 11:] = _dates(days), _times(nanos)
    return _column(found, _time_size(nanos) + 11)


def _have_four_digits(days: Ints) -> bool:
    return not len(days) or bool(days.min() >= _FIRST_DAY and days.max() <= _LAST_DAY)


def _fraction_size(nanos: Ints) -> Ints:
    """A point with 3, 6 or 9 digits, or nothing."""
    fraction = nanos % _SECOND
    return np.where(fraction == 0, 0, np.where(fraction % 1_000_000 == 0, 4, np.where(fraction % 1000 == 0, 7, 10)))


def _time_size(nanos: Ints) -> Ints:
    return np.where(nanos % (60 * _SECOND) == 0, 5, 8 + _fraction_size(nanos))


def _dates(days: Ints) -> Bytes:
    dates = days.astype("M8[D]")
    months = dates.astype("M8[M]")
    number = months.astype(np.int64) + 1970 * 12
    found = np.full((len(days), 10), ord("-"), np.uint8)
    _digits(found[:, :4], number // 12)
    _digits(found[:, 5:7], number % 12 + 1)
    _digits(found[:, 8:], (dates - months).astype(np.int64) + 1)
    return found


def _times(nanos: Ints) -> Bytes:
    found = np.full((len(nanos), 18), ord(":"), np.uint8)
    second = nanos // _SECOND
    _digits(found[:, :2], second // 3600)
    _digits(found[:, 3:5], second // 60 % 60)
    _digits(found[:, 6:8], second % 60)
    found[:, 8] = ord(".")
    _digits(found[:, 9:], nanos % _SECOND)
    return found


def _digits(target: Bytes, value: Ints) -> None:
    for place in range(target.shape[1] - 1, -1, -1):
        value, digit = np.divmod(value, 10)
        target[:, place] = digit + ord("0")


def _column(found: Bytes, sizes: Ints) -> pa.Array:
    """The first characters of each row."""
    octets: npt.NDArray[np.uint8] = found[np.arange(found.shape[1]) < sizes[:, None]]
    ends = pa.py_buffer(ends_of(sizes).astype(np.int32))
    return pa.Array.from_buffers(pa.string(), len(sizes), [None, ends, pa.py_buffer(octets)])
