"""Texts of many times at once are those that each has by itself."""

from __future__ import annotations

import random

import numpy as np
import pytest

from statestore.formats.flink.columns.java_texts import date_text, instant_text, time_text
from statestore.formats.flink.columns.time_texts import date_texts, date_time_texts, instant_texts, time_texts

FIRST, LAST = -62_167_219_200, 253_402_300_799  # seconds of the years 0 to 9999


@pytest.mark.parametrize("bounds", [(FIRST, LAST), (0, 60), (FIRST - 1, LAST), (FIRST, LAST + 1), (-(10**13), 10**13)])
def test_texts_of_many_times_are_those_of_each(bounds: tuple[int, int]) -> None:
    chance = random.Random(3)
    fractions = [0, 1, 1000, 10**6, 999_999_999, 123_000_000, 123_456_000]
    seconds = np.array([*bounds, *(chance.randint(*bounds) for _ in range(300))])
    nanos = np.array([chance.choice(fractions) for _ in seconds])
    days, clock = seconds // 86_400, seconds % 86_400 * 10**9 + nanos
    clock[::3] -= clock[::3] % (60 * 10**9)
    moments = zip(seconds.tolist(), nanos.tolist(), strict=True)
    assert instant_texts(seconds, nanos).to_pylist() == [instant_text(*each) for each in moments]
    assert date_texts(days).to_pylist() == [date_text(each) for each in days.tolist()]
    assert time_texts(clock).to_pylist() == [time_text(each) for each in clock.tolist()]
    assert date_time_texts(days, clock).to_pylist() == [
        f"{date_text(day)}T{time_text(nano)}" for day, nano in zip(days.tolist(), clock.tolist(), strict=True)
    ]


def test_no_times_have_no_texts() -> None:
    none = np.empty(0, np.int64)
    for found in (instant_texts(none, none), date_texts(none), time_texts(none), date_time_texts(none, none)):
        assert found.to_pylist() == []
