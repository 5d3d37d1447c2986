"""The table of events by numbers, and marks of times."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from statestore.formats.kernels.event_kernels import fill_table, marked, matches

NUMBERS = np.array([7, 9, 7, 1 << 63, 7, 9], np.uint64)


def table(most: int) -> tuple[bool, tuple[npt.NDArray[Any], ...]]:
    slots, following = np.full(16, -1, np.int32), np.full(len(NUMBERS), -1, np.int32)
    repeats = np.zeros(len(NUMBERS), bool)
    complete = fill_table(NUMBERS, slots, following, repeats, most)
    return complete, (slots, following, repeats)


def test_each_event_of_a_number_is_found() -> None:
    complete, (slots, following, repeats) = table(3)
    assert complete
    assert repeats.tolist() == [True, True, True, False, True, True]
    events, positions = np.empty(8, np.int64), np.empty(8, np.int64)
    count = matches(NUMBERS, slots, following, np.array([9, 8, 7], np.uint64), events, positions)
    assert sorted(zip(positions[:count].tolist(), events[:count].tolist(), strict=True)) == [
        (0, 1),
        (0, 5),
        (2, 0),
        (2, 2),
        (2, 4),
    ]


def test_a_table_is_given_up_where_more_events_than_allowed_have_one_number() -> None:
    assert not table(2)[0]
    assert table(len(NUMBERS))[0]


def test_times_outside_the_range_or_without_a_mark_are_left_out() -> None:
    times, marks = np.array([4, 5, 6, 7, 8], np.int64), np.ones(4, bool)
    mix, shift, positions = np.uint64(1 << 62), np.uint64(62), np.empty(5, np.int64)
    marks[6 % 4] = False
    count = marked(times.ctypes.data, 5, 7, marks, mix, shift, positions)
    assert positions[:count].tolist() == [1, 3]
