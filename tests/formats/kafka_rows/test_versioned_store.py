"""History rows of Kafka's versioned store: Kafka's byte vectors, round trips, and bytes that are not a row."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st
from support.parameters import named
from support.properties import few_or_many
from support.stores.kafka_vectors import encodings

from statestore.formats.errors import CorruptError
from statestore.formats.kafka_rows.versioned_store import (
    TimeSegmentRow,
    decode_latest,
    decode_row,
    encode_latest,
    encode_row,
    row_key,
    split_row_key,
)


def decoded(row: TimeSegmentRow) -> dict[str, Any]:
    records = [
        {"valid_from": start, "valid_to": end, "value": None if value is None else value.decode()}
        for start, end, value in row.intervals()
    ]
    return {"next_timestamp": row.next, "min_timestamp": row.min, "degenerate": row.degenerate, "records": records}


def test_history_rows() -> None:
    for case in encodings("value:versioned-segment"):
        with named(case):
            row = decode_row(bytes.fromhex(case["hex"]))
            assert decoded(row) == case["decoded"]
            assert encode_row(row).hex() == case["hex"]


def test_whole_rows() -> None:
    for case in encodings("row:versioned"):
        with named(case):
            key, value = (bytes.fromhex(part) for part in case["hex"].split(":"))
            expected = case["decoded"]
            assert split_row_key(key) == (expected["segment_id"], expected["key"].encode())
            assert row_key(expected["segment_id"], expected["key"].encode()) == key
            if "latest" in expected:
                latest = expected["latest"]["timestamp"], expected["latest"]["value"].encode()
                assert decode_latest(value) == latest and encode_latest(*latest) == value
            else:
                assert decoded(decode_row(value)) == expected["row"]
                assert encode_row(decode_row(value)) == value


def test_insert_after_an_interrupted_write() -> None:
    for case in encodings("op:versioned-segment-insert-latest"):
        with named(case):
            row, new = decode_row(bytes.fromhex(case["hex"])), case["params"]
            row.insert_latest(new["valid_from"], new["valid_to"], new["value"].encode())
            assert encode_row(row).hex() == case["expect_hex"]


@few_or_many(
    20,
    100,
    times=st.lists(st.integers(-(2**40), 2**40), min_size=2, max_size=6, unique=True),
    values=st.lists(st.none() | st.binary(max_size=5), min_size=5, max_size=5),
)
def test_round_trips(times: list[int], values: list[bytes | None]) -> None:
    newest, *starts = sorted(times, reverse=True)
    row = TimeSegmentRow(newest, starts[-1], list(zip(starts, values, strict=False)))
    assert decode_row(encode_row(row)) == row
    for place, (start, end, _) in enumerate(row.intervals()):
        assert row.find(start) == row.find(end - 1) == (place, end)


@few_or_many(30, 100, data=st.binary(max_size=80))
def test_any_bytes_are_a_row_or_said_to_be_none(data: bytes) -> None:
    try:
        row = decode_row(data)
        assert decode_row(encode_row(row)) == row
    except CorruptError as error:
        assert error.code == "VERSIONED_ROW"


def test_a_changed_row_is_noticed() -> None:
    """Cut, lengthened, or with sizes that do not fit."""
    good = encode_row(TimeSegmentRow(20, 10, [(15, b"foo"), (10, None)]))
    for bad in [*(good[:size] for size in range(len(good))), good + b"x"]:
        with pytest.raises(CorruptError, match="VERSIONED_ROW"):
            decode_row(bad)
    for bad_key in (b"", b"1234567"):
        with pytest.raises(CorruptError, match="VERSIONED_ROW"):
            split_row_key(bad_key)
        with pytest.raises(CorruptError, match="VERSIONED_ROW"):
            decode_latest(bad_key)
