"""Numbers and times as text, exactly as the ``toString`` of Java's BigInteger, BigDecimal and java.time writes them.

Times are those beyond Arrow's types.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.bytes.byte_columns import gather
from statestore.formats.flink.columns.faults import Wrong, refuse
from statestore.formats.flink.columns.time_columns import NULL_LONG, clock_nanos, date_days
from statestore.formats.kernels.arrays import Bools, Bytes, Ints

_FIELD = 4  # the length field of n bytes is n + 4; 1, 2, 3 are the numbers 0, 1, 10
_SMALL = (0, 0, 1, 10)
_LEAST_EXPONENT = -6
_WORD = 8
_LEAST = -(2**63)
_POWERS = 10 ** np.arange(19, dtype=np.int64)


def number_texts(data: Bytes, start: Ints, field: Ints, scaled: bool) -> pa.Array:
    """The texts of numbers whose bytes begin at ``start`` behind the length field; 0 is null."""
    missing = field == 0
    size = np.maximum(field - _FIELD, 0)
    scale = gather(data, np.where(missing, 0, start + size), ">i4").astype(np.int64) if scaled else None
    texts = _texts_of(data, start, field, size, scale)
    return pc.if_else(pa.array(~missing), texts, pa.scalar(None, pa.string())) if missing.any() else texts


def whole_texts(data: Bytes, start: Ints, size: Ints) -> pa.Array:
    """The texts of whole numbers of so many bytes, at least one."""
    return _texts_of(data, start, size + _FIELD, size, None)


def scaled_texts(data: Bytes, start: Ints, size: Ints, scale: Ints) -> pa.Array:
    """The texts of decimals, whose digits have so many bytes, at least one."""
    return _texts_of(data, start, size + _FIELD, size, scale)


def _texts_of(data: Bytes, start: Ints, field: Ints, size: Ints, scale: Ints | None) -> pa.Array:
    """Numbers of up to eight bytes in the usual form at once, others one by one."""
    values = _short_values(data, start, field, size)
    usual = (size <= _WORD) & (values != _LEAST)
    scales = np.zeros(len(start), np.int64) if scale is None else scale
    digits = np.maximum(np.searchsorted(_POWERS, np.abs(values), side="right"), 1)
    usual &= (scales == 0) | ((scales > 0) & (scales < len(_POWERS)) & (digits - 1 - scales >= _LEAST_EXPONENT))
    if usual.all() and not scales.any():
        return pa.array(values).cast(pa.string())
    order: list[Ints] = []
    chunks: list[pa.Array] = []
    for each in np.flatnonzero(np.bincount(scales[usual], minlength=1)).tolist():
        mine = np.flatnonzero(usual & (scales == each))
        order.append(mine)
        chunks.append(_with_point(values[mine], each))
    others = np.flatnonzero(~usual)
    order.append(others)
    whole = _digits(data, start[others], size[others], values[others])
    texts = [_scaled(text, each) for text, each in zip(whole, scales[others].tolist(), strict=True)]
    chunks.append(pa.array(texts, pa.string()))
    place = np.empty(len(start), np.int64)
    place[np.concatenate(order)] = np.arange(len(start))
    return pa.concat_arrays(chunks).take(pa.array(place))


def _with_point(values: Ints, scale: int) -> pa.Array:
    """Numbers of which so many digits are behind the point."""
    if not scale:
        return pa.array(values).cast(pa.string())
    whole, fraction = np.divmod(np.abs(values), _POWERS[scale])
    sign = pc.if_else(pa.array(values < 0), "-", "")
    behind = pc.utf8_lpad(pa.array(fraction).cast(pa.string()), scale, "0")
    return pc.binary_join_element_wise(
        pc.binary_join_element_wise(sign, pa.array(whole).cast(pa.string()), ""), behind, "."
    )


def _short_values(data: Bytes, start: Ints, field: Ints, size: Ints) -> Ints:
    """The numbers of at most eight bytes; 0 for others."""
    values = np.zeros(len(start), np.int64)
    for small in (2, 3):
        values[field == small] = _SMALL[small]
    for width in range(1, _WORD + 1):
        mine = np.flatnonzero(size == width)
        if len(mine):
            first = gather(data, start[mine], "i1").astype(np.int64)
            for place in range(1, width):
                first = (first << 8) | gather(data, start[mine] + place, "u1").astype(np.int64)
            values[mine] = first
    return values


def _digits(data: Bytes, start: Ints, size: Ints, values: Ints) -> list[str]:
    texts: list[str] = pa.array(values).cast(pa.string()).to_pylist()
    for number in np.flatnonzero(size > _WORD).tolist():
        at, length = int(start[number]), int(size[number])
        whole = int.from_bytes(data[at : at + length].tobytes(), "big", signed=True)
        texts[number] = f"{Decimal(whole):f}"  # str() of an int refuses long ones
    return texts


def _scaled(text: str, scale: int) -> str:
    """``BigDecimal.toString``: plain if the scale is not negative and the exponent at least -6."""
    if not scale:
        return text
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text)
    exponent = len(digits) - 1 - scale
    if scale > 0 and exponent >= _LEAST_EXPONENT:
        digits = digits.rjust(scale + 1, "0")
        return f"{sign}{digits[:-scale]}.{digits[-scale:]}"
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{fraction}" + (f"E{exponent:+d}" if exponent else "")


# Dates and times as text, as ``toString`` of Java's java.time classes writes them, for values beyond Arrow's types.
#
# Times of java.util and java.sql are written as an Instant, because their own texts depend on the machine's time zone.
# Each text is made by itself: columns are shown so only where a user asks for it.


_SECOND = 1_000_000_000
_DAY = 86_400


def _texts(missing: Bools, numbers: tuple[Ints, ...], text: Callable[..., str]) -> pa.Array:
    rows = zip(missing.tolist(), *(each.tolist() for each in numbers), strict=True)
    return pa.array([None if is_null else text(*row) for is_null, *row in rows], pa.string())


def date_text(days: int) -> str:
    """Years begin in March here, so that the leap day is the last of a year."""
    shifted = days + 719_468
    era, day = divmod(shifted, 146_097)
    year_of_era = (day - day // 1460 + day // 36_524 - day // 146_096) // 365
    day_of_year = day - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    number = (5 * day_of_year + 2) // 153
    month = number + 3 if number < 10 else number - 9
    year = year_of_era + era * 400 + (month <= 2)
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04d}-{month:02d}-{day_of_year - (153 * number + 2) // 5 + 1:02d}"


def time_text(nanos: int, seconds_always: bool = False) -> str:
    """The fraction has 3, 6 or 9 digits; LocalTime leaves out seconds of 0."""
    second, fraction = divmod(nanos, _SECOND)
    text = f"{second // 3600:02d}:{second // 60 % 60:02d}"
    if seconds_always or second % 60 or fraction:
        text += f":{second % 60:02d}"
    if not fraction:
        return text
    digits = f"{fraction:09d}"
    return f"{text}.{digits[:3] if digits.endswith('000000') else digits[:6] if digits.endswith('000') else digits}"


def instant_text(seconds: int, nanos: int) -> str:
    days, second = divmod(seconds, _DAY)
    return f"{date_text(days)}T{time_text(second * _SECOND + nanos, True)}Z"


def _millis(data: Bytes, at: Ints) -> pa.Array:
    millis = gather(data, at, ">i8")
    return _texts(millis == NULL_LONG, (millis,), lambda each: instant_text(each // 1000, each % 1000 * 1_000_000))


def _seconds(data: Bytes, at: Ints, per_second: int) -> pa.Array:
    units = gather(data, at, ">i8")
    nanos = gather(data, at + 8, ">i4").astype(np.int64)
    missing = units == NULL_LONG
    refuse(~missing & ((nanos < 0) | (nanos >= _SECOND)), "nanoseconds beyond a second", f"below {_SECOND}")
    return _texts(missing, (units // per_second, nanos), instant_text)


def _local_date(data: Bytes, at: Ints) -> pa.Array:
    days, missing = date_days(data, at)
    return _texts(missing, (days,), date_text)


def _local_time(data: Bytes, at: Ints) -> pa.Array:
    nanos, missing = clock_nanos(data, at)
    return _texts(missing, (nanos,), time_text)


def _local_date_time(data: Bytes, at: Ints) -> pa.Array:
    days, missing = date_days(data, at)
    nanos, no_time = clock_nanos(data, at + 6)
    if (missing != no_time).any():
        raise Wrong("a date without a time", "both or none")
    return _texts(missing, (days, nanos), lambda day, nano: f"{date_text(day)}T{time_text(nano)}")


TEXTS: Mapping[str, Callable[[Bytes, Ints], pa.Array]] = {
    "millis or null": _millis,
    "instant": lambda data, at: _seconds(data, at, 1),
    "sql timestamp": lambda data, at: _seconds(data, at, 1000),
    "local date": _local_date,
    "local time": _local_time,
    "local date time": _local_date_time,
}
"""By the form of a `Fixed`."""
