"""Segments of stores: their numbers, intervals and directory names."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from support.parameters import named
from support.properties import few_or_many
from support.stores.kafka_vectors import encodings

from statestore.formats.errors import InvalidInputError
from statestore.formats.kafka_rows import time_segments as segments

NAMES = st.from_regex(r"[a-zA-Z0-9._-]{1,8}", fullmatch=True)


def test_segment_names_of_kafka() -> None:
    for case in encodings("segment-name"):
        store, interval = case["params"]["store"], case["params"]["segment_interval_ms"]
        start, number = case["decoded"]["start_ms"], case["decoded"]["segment_id"]
        with named(case):
            assert segments.decode_time_segment_name(store, case["text"], interval) == (start, number)
            assert segments.time_segment(start, interval) == number
            spelling = case["text"][len(store)]
            assert segments.encode_time_segment_name(store, number, interval, spelling) == case["text"]


@few_or_many(
    25, 100, store=NAMES, number=st.integers(0, 10**6), interval=st.integers(1, 10**6), spelling=st.sampled_from(".:")
)
def test_segment_names_come_back(store: str, number: int, interval: int, spelling: segments.Spelling) -> None:
    name = segments.encode_time_segment_name(store, number, interval, spelling)
    assert segments.decode_time_segment_name(store, name, interval) == (number * interval, number)
    assert segments.decode_time_segment_name(store, name).number is None


@few_or_many(25, 100, store=NAMES, number=st.integers(0, 10**6), minutes=st.integers(1, 1440))
def test_segment_names_of_minutes_come_back(store: str, number: int, minutes: int) -> None:
    interval = minutes * segments.MINUTE
    name = segments.encode_time_segment_name(store, number, interval, "-")
    assert segments.decode_time_segment_name(store, name, interval) == (number * interval, number)
    assert segments.decode_original_time_segment_name(name) == (store, number * interval)


def test_a_segment_name_of_2016() -> None:
    assert segments.encode_time_segment_name("win", 1, 1_480_000_000_000 // 60_000 * 60_000, "-") == "win-201611241506"


@pytest.mark.parametrize(
    "name",
    [
        "win",
        "win.",
        "win.x",
        "win.1_0",
        "win. 1",
        "win.9223372036854775808",
        "win_60000",
        "wine.60000",
        "other.60000",
        "win-60000",
        "win-201613010000",
        "win-000001010000",
        "win-2016010100000",
        "",
    ],
)
def test_other_names_are_no_segments(name: str) -> None:
    with pytest.raises(InvalidInputError, match=r"SEGMENT_NAME.*expected win\.<ms>"):
        segments.decode_time_segment_name("win", name, 60_000)


@pytest.mark.parametrize("name", ["win", "-201601010000", "win-201613010000", "win-2016"])
def test_other_names_are_no_segments_of_2016(name: str) -> None:
    assert segments.decode_original_time_segment_name(name) is None


@pytest.mark.parametrize(("time", "number"), [(0, 0), (59, 0), (60, 1), (-1, 0), (-59, 0), (-60, -1), (-61, -1)])
def test_segments_are_counted_toward_zero(time: int, number: int) -> None:
    assert segments.time_segment(time, 60) == number


def test_intervals_of_window_stores() -> None:
    assert segments.interval_of_time_segments(300_000, 3) == 150_000
    assert segments.interval_of_time_segments(60_000, 3) == segments.MINUTE
    assert segments.original_retention(1_000, 2_000, 60_000, 3) == (60_000, 60_000)
    assert segments.original_retention(100_000, 50_000, 60_000, 3) == (300_002, 150_001)
    with pytest.raises(InvalidInputError, match="SEGMENT_COUNT"):
        segments.interval_of_time_segments(60_000, 1)


def test_default_intervals_of_kafka() -> None:
    for case in encodings("default-segment-interval"):
        params = case["params"]
        with named(case):
            if params["store"] == "versioned":
                assert segments.default_versioned_interval(params["history_retention_ms"]) == case["decoded"]
            else:
                assert segments.default_interval(params["retention_ms"]) == case["decoded"]
