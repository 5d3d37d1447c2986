"""Times with nanoseconds in results for people: no digit is lost, and no package is needed to show them."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

from statestore.formats.errors import UnsupportedError
from statestore.formats.values.python_times import python_column, python_rows, python_values

NANOS = pa.timestamp("ns", "UTC")


def test_nanoseconds_are_shown_as_text() -> None:
    shown = python_column(pa.array([1_700_000_000_000_000_057, None], pa.int64()).cast(NANOS))
    assert shown.to_pylist() == ["2023-11-14 22:13:20.000000057Z", None]


@pytest.mark.parametrize("kind", [NANOS, pa.timestamp("ns"), pa.time64("ns")])
def test_times_that_microseconds_hold_stay_times(kind: pa.DataType) -> None:
    shown = python_column(pa.array([57_000_123_000], pa.int64()).cast(kind))
    assert shown.type.unit == "us"
    assert shown.to_pylist()[0].microsecond == 123


def test_nanoseconds_within_nested_values_are_shown() -> None:
    times = pa.array([1, 2_000], pa.int64()).cast(pa.time64("ns"))
    lists = pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), pa.StructArray.from_arrays([times], names=["at"]))
    assert python_column(lists).to_pylist() == [[{"at": "00:00:00.000000001"}, {"at": "00:00:00.000002000"}]]


def test_other_columns_are_left_alone() -> None:
    column = pa.array([{"a": [1]}])
    assert python_column(column) is column


@pytest.mark.parametrize(
    ("sql", "text"),
    [
        ("DATE '0044-03-15 (BC)'", "0044-03-15 (BC)"),
        ("DATE '5877642-06-25 (BC)'", "5877642-06-25 (BC)"),
        ("TIMESTAMPTZ 'infinity'", "infinity"),
        ("TIMESTAMP '40000-01-02 03:04:05'", "40000-01-02 03:04:05"),
        ("[TIMESTAMP '-infinity', NULL]", "[-infinity, NULL]"),
    ],
)
def test_times_outside_the_years_of_python_are_text(sql: str, text: str) -> None:
    found = duckdb.sql(f"SELECT unnest([{sql}, NULL]) AS t")
    assert found is not None
    column = found.to_arrow_table().column("t")
    assert python_values(column.combine_chunks()) == [text, None]


@pytest.mark.parametrize(
    ("column", "shown"),
    [
        (pa.array([253_402_300_800_005], pa.timestamp("ms", "UTC")), "10000-01-01 00:00:00.005"),
        (pa.array([-62_135_596_800_001], pa.timestamp("ms")), "0001-12-31 (BC)"),
        (pa.array([2**62], pa.timestamp("ms", "UTC")), str(2**62)),
        (pa.array([2**62], pa.timestamp("s")), str(2**62)),
        (pa.array([2_932_897], pa.date32()), "10000-01-01"),
        (pa.array([2**31 - 1], pa.date32()), ""),
        (pa.array([[{"at": 2**62}]], pa.list_(pa.struct([("at", pa.timestamp("ms"))]))), str(2**62)),
    ],
)
def test_a_time_outside_of_python_s_is_text_or_refused_by_its_column(column: pa.Array, shown: str) -> None:
    assert shown in str(python_values(column)[0])
    batch = pa.RecordBatch.from_arrays([pa.array(["a"]), column], names=["k", "at"])
    with pytest.raises(UnsupportedError, match=r"TIME_OUT_OF_RANGE.*column at of counts .*scan\(\)"):
        python_rows(batch, "counts")


def test_rows_of_python_have_exact_times() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([1_714_570_400_000_001_000], pa.timestamp("ns", "UTC"))], names=["at"])
    (row,) = python_rows(batch, "counts")
    assert row["at"].microsecond == 1
