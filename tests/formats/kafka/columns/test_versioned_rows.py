"""Operations on history rows of versioned stores, whole columns of them, and what a store says at each moment."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import strategies as st
from support.properties import few_or_many

from statestore.formats.bytes.byte_columns import cells_of
from statestore.formats.errors import CorruptError, InvalidInputError
from statestore.formats.kafka.columns.origins import Origin
from statestore.formats.kafka.columns.store_kinds import StoreForm, stored_rows
from statestore.formats.kafka.columns.versioned_rows import Versions, history_versions
from statestore.formats.kafka_rows.versioned_store import TimeSegmentRow, decode_row, encode_latest, encode_row, row_key

Value = bytes | None
VALUES = st.none() | st.binary(max_size=3)
US = pa.int64()  # timestamps as the microseconds they are
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


@few_or_many(25, 100, row=rows(), start=st.integers(0, 10), length=st.integers(1, 2), value=VALUES)
def test_insert_latest(row: TimeSegmentRow, start: int, length: int, value: Value) -> None:
    """Nothing that was there reaches beyond the new version; a gap before it has no value."""
    before = values(row)
    row.insert_latest(start, start + length, value)
    assert values(row) == {t: before[t] if t < start else value if t < start + length else None for t in MOMENTS}
    assert row.next == start + length


@few_or_many(25, 100, row=rows(), time=st.integers(-1, 9), value=VALUES)
def test_insert_earliest(row: TimeSegmentRow, time: int, value: Value) -> None:
    if time < row.min:
        before, first = values(row), row.min
        row.insert_earliest(time, value)
        assert values(row) == {t: value if time <= t < first else before[t] for t in MOMENTS}
        assert row.min == time


@few_or_many(30, 100, row=rows(), time=st.integers(0, 10), value=VALUES)
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


def versions_of(rows_: list[bytes], skipped: int = 0) -> Versions:
    """Decode rows, in a slice that begins inside a longer column."""
    column = pa.array([b"before"] * skipped + rows_, pa.binary()).slice(skipped)
    return history_versions(cells_of(column), Origin("value", pa.array([b"key"] * len(rows_), pa.binary())))


@few_or_many(25, 100, found=st.lists(rows(), max_size=5), skipped=st.integers(0, 2))
def test_a_column_of_rows_reads_as_its_rows(found: list[TimeSegmentRow], skipped: int) -> None:
    versions = versions_of([encode_row(row) for row in found], skipped)
    values = versions.values.binary()
    values.validate(full=True)
    read = zip(
        versions.row.tolist(),
        versions.valid_from.tolist(),
        versions.valid_to.tolist(),
        values.to_pylist(),
        strict=True,
    )
    assert list(read) == [(place, *one) for place, row in enumerate(found) for one in row.intervals()]


@few_or_many(40, 100, row=rows(), cut=st.integers(0, 40), data=st.binary(max_size=8))
def test_a_column_refuses_the_rows_that_are_refused_alone(row: TimeSegmentRow, cut: int, data: bytes) -> None:
    """A column's error ends in the words of a row's error."""
    bad = encode_row(row)[:cut] + data
    try:
        decode_row(bad)
    except CorruptError as error:
        with pytest.raises(CorruptError, match=r"VERSIONED_ROW.*the stored key 6b6579 \(3 bytes\)") as refused:
            versions_of([encode_row(row), bad])
        assert refused.value.message.endswith(error.message)
    else:
        assert set(versions_of([encode_row(row), bad]).row.tolist()) == {0, 1}


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
        versions_of([data])


Store = dict[tuple[int, bytes], TimeSegmentRow | tuple[int, bytes]]  # by segment and key; segment -1: (start, value)


@st.composite
def stores(draw: st.DrawFn) -> Store:
    """Rows of two keys in up to four segments, which overlap as after crashes."""
    found: Store = {}
    for key in (b"a", b"ab"):
        for segment in draw(st.sets(st.integers(0, 3))):
            found[segment, key] = draw(rows())
        if draw(st.booleans()):
            found[-1, key] = draw(st.tuples(st.integers(0, 10), st.binary(max_size=3)))
    return found


def answer(store: Store, key: bytes, time: int) -> tuple[int, Value] | None:
    """Kafka's ``get(key, asOf)``: the newest row that begins early enough decides."""
    latest = store.get((-1, key))
    if isinstance(latest, tuple) and latest[0] <= time:
        return latest
    for segment in range(3, -1, -1):
        row = store.get((segment, key))
        if isinstance(row, TimeSegmentRow) and row.min <= time:
            return next(((start, value) for start, end, value in row.intervals() if start <= time < end), None)
    return None


@few_or_many(35, 200, store=stores(), data=st.data())
def test_versions_answer_as_the_engine_does_at_each_moment(store: Store, data: st.DataObject) -> None:
    """Also where rows overlap, and in any order of rows; the versions of a key do not overlap."""
    order = data.draw(st.permutations(sorted(store)))
    keys = [row_key(*place) for place in order]
    cells = [encode_latest(*row) if isinstance(row, tuple) else encode_row(row) for row in map(store.get, order) if row]
    batch = stored_rows(
        StoreForm("versioned", "string"), "default", pa.array(keys, pa.binary()), pa.array(cells, pa.binary())
    )
    batch.validate(full=True)
    found = batch.cast(
        pa.schema([("key", pa.string()), ("value", pa.binary()), ("valid_from", US), ("valid_to", US)])
    ).to_pylist()
    for key in (b"a", b"ab"):
        own = [row for row in found if row["key"] == key.decode()]
        assert [row["valid_from"] for row in own] == sorted((row["valid_from"] for row in own), reverse=True)
        for time in MOMENTS:
            valid = [
                (row["valid_from"] // 1000, row["value"])
                for row in own
                if row["valid_from"] <= time * 1000 and (row["valid_to"] is None or time * 1000 < row["valid_to"])
            ]
            expected = answer(store, key, time)
            assert valid == ([] if expected is None or expected[1] is None else [expected])


def test_a_degenerate_row_ends_older_rows_and_shows_nothing() -> None:
    older = TimeSegmentRow(10, 3, [(3, b"v")])
    keys = [row_key(0, b"k"), row_key(1, b"k")]
    values = [encode_row(older), encode_row(TimeSegmentRow(7, 7, [(7, None)]))]
    batch = stored_rows(StoreForm("versioned"), "default", pa.array(keys, pa.binary()), pa.array(values, pa.binary()))
    assert batch.num_rows == 1
    assert batch["valid_to"].cast(US).to_pylist() == [7000]


def test_keys_and_latest_rows_that_are_too_short_are_refused() -> None:
    good = row_key(-1, b"k"), encode_latest(5, b"v")
    for key, value in ((bytes(7), good[1]), (good[0], bytes(7)), (row_key(-2, b"k"), good[1])):
        columns = pa.array([good[0], key], pa.binary()), pa.array([good[1], value], pa.binary())
        with pytest.raises(CorruptError, match=r"KAFKA_BYTES.*expected"):
            stored_rows(StoreForm("versioned"), "default", *columns)
