"""Times and durations as users write them."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore.formats.errors import InvalidInputError
from statestore.formats.values.times import (
    MAX_MS,
    MIN_MS,
    duration_ms,
    format_time,
    from_us,
    parse_time,
    to_datetime,
    to_us,
)

MOMENT = 1_357_016_400_000_000  # 2013-01-01T05:00:00Z
BERLIN = ZoneInfo("Europe/Berlin")
ZONES = st.timezones() | st.integers(-23, 23).map(lambda hours: timezone(timedelta(hours=hours)))
AWARE = st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 31), timezones=ZONES)


def since_epoch(moment: datetime) -> Fraction:
    """Exact milliseconds, computed in another way than in the code."""
    days = Fraction(moment.toordinal() - date(1970, 1, 1).toordinal())
    seconds = moment.hour * 3600 + moment.minute * 60 + moment.second
    offset = moment.utcoffset() or timedelta()
    micros = moment.microsecond - (offset.days * 86_400 + offset.seconds) * 1_000_000 - offset.microseconds
    return (days * 86_400 + seconds) * 1000 + Fraction(micros, 1000)


def code_of(call: Any, *args: Any) -> str:
    with pytest.raises(InvalidInputError) as caught:
        call(*args)
    assert "as_of" in caught.value.message
    return caught.value.code


@given(AWARE)
def test_datetimes_floor_to_the_millisecond(moment: datetime) -> None:
    """Before 1970 too, in every zone."""
    expected = since_epoch(moment)
    assert to_us(moment, "as_of") == expected // 1 * 1000
    assert to_us(to_datetime(to_us(moment, "as_of")), "as_of") == to_us(moment, "as_of")


@given(st.integers(MIN_MS, MAX_MS))
def test_integers_are_milliseconds(milliseconds: int) -> None:
    """Convert there and back, also as a text of digits and in ISO-8601."""
    us = to_us(milliseconds, "as_of")
    assert us == milliseconds * 1000
    assert from_us(us) == milliseconds
    assert to_datetime(us) == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
    assert parse_time(format_time(us), "as_of") == us
    if len(str(abs(milliseconds))) != 4:
        assert parse_time(str(milliseconds), "as_of") == us


def test_numpy_integers_are_integers() -> None:
    """NumPy integers of any width are accepted; the result is a plain int."""
    assert type(to_us(np.int64(5), "as_of")) is int  # type: ignore[arg-type]
    assert to_us(np.int16(5), "as_of") == 5000  # type: ignore[arg-type]


def test_pandas_timestamps_are_datetimes() -> None:
    """Nanoseconds are floored away."""
    pandas = pytest.importorskip("pandas")
    assert to_us(pandas.Timestamp("2013-01-01T05:00:00.000999999Z"), "as_of") == MOMENT
    assert code_of(to_us, pandas.NaT, "as_of") == "INVALID_TIME"


@pytest.mark.parametrize(
    "value", [True, 1.5, "noon", b"2013-01-01T05:00:00Z", None, date(2013, 1, 1), timedelta(1), np.True_]
)
def test_what_is_no_time(value: Any) -> None:
    """Never guessed."""
    assert code_of(to_us, value, "as_of") == "INVALID_TIME"


def test_a_text_is_the_moment_that_it_names() -> None:
    assert to_us("2013-01-01T05:00:00Z", "as_of") == to_us("2013-01-01 06:00+01", "timestamp") == MOMENT


def test_naive_datetimes_are_refused() -> None:
    """The message shows a valid form."""
    with pytest.raises(InvalidInputError, match=r"if it is in UTC write '2013-01-01T00:00:00Z'"):
        to_us(datetime(2013, 1, 1), "as_of")
    with pytest.raises(InvalidInputError, match=r"NAIVE_DATETIME.*as_of.*tzinfo=timezone\.utc"):
        to_us(datetime(2013, 1, 1), "as_of")


@pytest.mark.parametrize(
    "value",
    [
        MIN_MS - 1,
        MAX_MS + 1,
        10**5000,
        datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14))),
        datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=timezone(timedelta(hours=-1))),
    ],
    ids=["before", "after", "huge", "datetime before", "datetime after"],
)
def test_out_of_range(value: Any) -> None:
    """Both bounds are stated."""
    with pytest.raises(InvalidInputError, match=f"TIME_OUT_OF_RANGE.*as_of.*{MIN_MS}.*{MAX_MS}"):
        to_us(value, "as_of")


def test_microseconds_by_mistake_are_recognised() -> None:
    """The usual reason for a time after year 9999."""
    with pytest.raises(InvalidInputError, match="looks like microseconds"):
        to_us(MOMENT, "as_of")


@pytest.mark.parametrize("value", [datetime.max.replace(tzinfo=UTC), MAX_MS, datetime.min.replace(tzinfo=UTC), MIN_MS])
def test_the_ends_of_the_range_are_in_it(value: Any) -> None:
    """Years 1 and 9999."""
    assert to_us(value, "as_of") in (MIN_MS * 1000, MAX_MS * 1000)


@pytest.mark.parametrize(
    "text",
    [
        "2013-01-01T05:00:00Z",
        "2013-01-01 05:00:00+00:00",
        "2013-01-01T07:00+02:00",
        " 2013-01-01 05:00:00.0009Z ",
        "2012-12-31T23:30:00-05:30",
        "1357016400000",
        "+1357016400000",
    ],
)
def test_texts_of_one_moment(text: str) -> None:
    """ISO-8601 with its zone, or digits."""
    assert parse_time(text, "as_of") == MOMENT


@pytest.mark.parametrize("text", ["2013-01-01T05:00:00", "2013-01-01 05:00", "2013-01-01"])
def test_texts_without_a_zone(text: str) -> None:
    """Refused where no zone is the rule; a date is its first moment."""
    assert code_of(parse_time, text, "as_of") == "NAIVE_DATETIME"
    assert parse_time(text, "as_of", UTC) == (MOMENT if "05" in text else MOMENT - 5 * 3_600_000_000)


@pytest.mark.parametrize(
    ("text", "zone", "utc"),
    [
        ("2013-07-01T05:00:00", BERLIN, "2013-07-01T03:00:00.000Z"),
        ("2013-01-01T05:00:00", BERLIN, "2013-01-01T04:00:00.000Z"),
        ("2013-01-01T05:00:00Z", BERLIN, "2013-01-01T05:00:00.000Z"),
        ("0", BERLIN, "1970-01-01T00:00:00.000Z"),
    ],
)
def test_the_default_zone_is_for_texts_without_one(text: str, zone: tzinfo, utc: str) -> None:
    """Summer time included."""
    assert format_time(parse_time(text, "as_of", zone)) == utc


@pytest.mark.parametrize("text", ["", "now", "2013", "2013-13-01T00:00Z", "1.5", "1e12", "٣٣٣٣٣", "2013-01-01T25:00Z"])
def test_texts_that_are_no_time(text: str) -> None:
    """Four digits may be a year, so they are asked about."""
    assert code_of(parse_time, text, "as_of") == "INVALID_TIME"


@pytest.mark.parametrize("text", ["999999999999999999", "-99999999999999", "0001-01-01T00:00+10:00"])
def test_texts_out_of_range(text: str) -> None:
    """Texts out of range are refused like other times."""
    assert code_of(parse_time, text, "as_of") == "TIME_OUT_OF_RANGE"


@given(st.text("0123456789-+:TZ. ", max_size=40) | st.from_regex(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:.]*Z?"))
def test_any_text_is_a_time_or_a_clear_error(text: str) -> None:
    """Nothing else escapes."""
    try:
        assert MIN_MS * 1000 <= parse_time(text, "as_of") <= MAX_MS * 1000
    except InvalidInputError as error:
        assert error.code in ("INVALID_TIME", "NAIVE_DATETIME", "TIME_OUT_OF_RANGE")


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (MOMENT + 1999, "2013-01-01T05:00:00.001Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (MIN_MS * 1000, "0001-01-01T00:00:00.000Z"),
        (MAX_MS * 1000 + 999, "9999-12-31T23:59:59.999Z"),
        (2**63 - 1, "the end of time"),
        (-(2**63), "the beginning"),
    ],
)
def test_formatting(us: int, text: str) -> None:
    """Milliseconds, floored; never an overflow, since messages show open ends."""
    assert format_time(us) == text


@pytest.mark.parametrize(
    ("value", "milliseconds"),
    [
        (None, None),
        (0, 0),
        (1500, 1500),
        (np.int64(7), 7),
        (timedelta(days=1, milliseconds=2), 86_400_002),
        ("30 days", 2_592_000_000),
        ("5 minutes", 300_000),
        ("1h30m", 5_400_000),
        (" 1 Day  2 hours ", 93_600_000),
        ("2w", 1_209_600_000),
        ("90 sec", 90_000),
        ("250ms", 250),
        ("0 s", 0),
    ],
)
def test_durations(value: Any, milliseconds: int | None) -> None:
    """Integers are milliseconds; texts name their units."""
    assert duration_ms(value, "retention") == milliseconds


@given(
    st.integers(0, 999), st.sampled_from([("ms", 1), ("s", 1000), ("min", 60_000), ("h", 3_600_000), ("d", 86_400_000)])
)
def test_parts_of_durations_add_up(number: int, unit: tuple[str, int]) -> None:
    """A text of two parts is the sum of both."""
    name, milliseconds = unit
    assert duration_ms(f"{number}{name} 7 weeks", "retention") == number * milliseconds + 7 * 604_800_000


@pytest.mark.parametrize(
    "value",
    [
        -1,
        True,
        1.5,
        "",
        "5",
        "days",
        "1.5 hours",
        "-1 day",
        "5 fortnights",
        "1 day,",
        "9" * 5000 + "d",
        "999999 weeks 999999999999 weeks",
        timedelta(days=-1),
        timedelta(microseconds=1500),
        MAX_MS + 1,
        10**5000,
        b"1 day",
    ],
    ids=lambda value: f"{type(value).__name__} {str(value)[:20]}" if value != 10**5000 else "huge",
)
def test_what_is_no_duration(value: Any) -> None:
    """Negative, without unit, with a part of a millisecond, longer than the calendar."""
    with pytest.raises(InvalidInputError, match=r"INVALID_DURATION.*retention.*30 days"):
        duration_ms(value, "retention")
