"""Operations on history rows of versioned stores against their definition, and whole columns of rows."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore.formats.errors import CorruptError, InvalidInputError
from statestore.formats.kafka_rows.versioned_columns import decode_rows, split_latest, split_row_keys
from statestore.formats.kafka_rows.versioned_store import TimeSegmentRow, decode_row, encode_latest, encode_row, row_key

Value = bytes | None
VALUES = st.none() | st.binary(max_size=3)
MOMENTS = range(-1, 13)  # around all times that rows here have


@st.composite
def rows(draw: st.DrawFn) -> TimeSegmentRow:
    """History rows, degenerate ones too."""
    if draw(st.integers(0, 4)) == 0:
        time = draw(st.integers(0, 10))
        return TimeSegmentRow(time, time, [(time, None)])
    times = sorted(draw(st.sets(st.integers(0, 10), min_size=2, max_size=5)), reverse=True)
    return TimeSegmentRow(times[0], times[-1], [(time, draw(VALUES)) for time in times[1:]])


def values(row: TimeSegmentRow) -> dict[int, Value]:
    """The value at each moment, None if there is none; the bytes must be readable as a row."""
    found = decode_row(encode_row(row)).intervals()
    return {t: next((value for start, end, value in found if start <= t < end), None) for t in MOMENTS}


@given(row=rows(), start=st.integers(0, 10), length=st.integers(1, 2), value=VALUES)
def test_insert_latest(row: TimeSegmentRow, start: int, length: int, value: Value) -> None:
    """Nothing that was there reaches beyond the new version; a gap before it has no value."""
    before = values(row)
    row.insert_latest(start, start + length, value)
    assert values(row) == {t: before[t] if t < start else value if t < start + length else None for t in MOMENTS}
    assert row.next == start + length


@given(row=rows(), time=st.integers(-1, 9), value=VALUES)
def test_insert_earliest(row: TimeSegmentRow, time: int, value: Value) -> None:
    if time < row.min:
        before, first = values(row), row.min
        row.insert_earliest(time, value)
        assert values(row) == {t: value if time <= t < first else before[t] for t in MOMENTS}
        assert row.min == time


@given(row=rows(), time=st.integers(0, 10), value=VALUES)
def test_insert_and_update_within_a_row(row: TimeSegmentRow, time: int, value: Value) -> None:
    if not row.min <= time < row.next:
        with pytest.raises(InvalidInputError, match="NOT_IN_ROW"):
            row.find(time)
        return
    before = values(row)
    place, end = row.find(time)
    change = row.update if row.versions[place][0] == time else row.insert
    change(time, value, place)
    assert values(row) == {t: value if time <= t < end else before[t] for t in MOMENTS}


def test_update_may_move_the_start_of_the_first_version() -> None:
    """The start moves, for instance, when the older part of a version goes to another segment."""
    row = TimeSegmentRow(10, 1, [(5, b"b"), (1, b"a")])
    row.update(3, b"c", 1)
    assert decode_row(encode_row(row)) == TimeSegmentRow(10, 3, [(5, b"b"), (3, b"c")])


def test_insert_behind_the_last_version_moves_the_minimum() -> None:
    row = TimeSegmentRow(10, 5, [(5, b"b")])
    row.insert(1, b"a", 1)
    assert decode_row(encode_row(row)) == TimeSegmentRow(10, 1, [(5, b"b"), (1, b"a")])


@given(found=st.lists(rows(), max_size=5), skipped=st.integers(0, 2))
def test_a_column_of_rows_reads_as_its_rows(found: list[TimeSegmentRow], skipped: int) -> None:
    column = pa.array([b"before"] * skipped + [encode_row(row) for row in found], pa.binary()).slice(skipped)
    versions = decode_rows(column)
    versions.values.validate(full=True)
    read = zip(
        versions.row.tolist(),
        versions.valid_from.tolist(),
        versions.valid_to.tolist(),
        versions.values.to_pylist(),
        strict=True,
    )
    assert list(read) == [(place, *one) for place, row in enumerate(found) for one in row.intervals()]


@given(row=rows(), cut=st.integers(0, 40), data=st.binary(max_size=8))
def test_a_column_refuses_the_rows_that_are_refused_alone(row: TimeSegmentRow, cut: int, data: bytes) -> None:
    """A column's error has the words of a row's error."""
    bad = encode_row(row)[:cut] + data
    column = pa.array([encode_row(row), bad], pa.binary())
    try:
        decode_row(bad)
    except CorruptError as error:
        with pytest.raises(CorruptError) as refused:
            decode_rows(column)
        assert refused.value.message == error.message
    else:
        assert set(decode_rows(column).row.tolist()) == {0, 1}


@pytest.mark.parametrize(
    "row",
    [
        TimeSegmentRow(10, 10, [(10, b"v")]),  # an empty interval with a value
        TimeSegmentRow(10, 5, [(10, None), (5, b"v")]),  # a version that starts where the row ends
        TimeSegmentRow(10, 5, [(7, b"v"), (7, b"w"), (5, b"x")]),
        TimeSegmentRow(10, 5, [(6, b"v"), (7, b"w"), (5, b"x")]),
        TimeSegmentRow(5, 10, [(10, b"v")]),
    ],
)
def test_times_that_are_not_in_order_are_refused(row: TimeSegmentRow) -> None:
    data = encode_row(row)
    with pytest.raises(CorruptError, match="VERSIONED_ROW"):
        decode_row(data)
    with pytest.raises(CorruptError, match="VERSIONED_ROW"):
        decode_rows(pa.array([data], pa.binary()))


def test_columns_of_keys_and_latest_rows() -> None:
    keys, latest = [(-1, b"k"), (3, b"")], [(5, b"v"), (-7, b"")]
    segments, found = split_row_keys(pa.array([row_key(*key) for key in keys], pa.binary()))
    assert list(zip(segments.tolist(), found.to_pylist(), strict=True)) == keys
    starts, held = split_latest(pa.array([encode_latest(*row) for row in latest], pa.binary()))
    assert list(zip(starts.tolist(), held.to_pylist(), strict=True)) == latest
    for split in (split_row_keys, split_latest):
        with pytest.raises(CorruptError, match=r"KAFKA_BYTES.*found 7 bytes, expected at least 8"):
            split(pa.array([bytes(7)], pa.binary()))
