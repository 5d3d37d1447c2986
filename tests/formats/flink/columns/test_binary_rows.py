"""Bytes that the serializers of Flink 2.3.0 wrote for chosen values: binary rows of every SQL type, numbers, times.

``serializer_bytes.json.xz`` has the hexadecimal digits by name, BigDecimals with Java's ``toString``, and instants
(epoch seconds, 1000 nanoseconds) with theirs.
"""

from __future__ import annotations

import datetime
import json
import lzma
from decimal import Decimal
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st
from support.flink.binary_maps import map_of_sql
from support.flink.value_model import column_of
from support.paths import DATA
from support.properties import few_or_many

from statestore.formats.errors import CorruptError, InvalidInputError, StateStoreError, UnsupportedError
from statestore.formats.flink.columns.java_texts import instant_text
from statestore.formats.flink.columns.key_bytes import row_bytes
from statestore.formats.flink.layouts.type_layouts import arrow_type
from statestore.formats.flink.serializers.declared import declared_text, with_declared
from statestore.formats.flink.serializers.flink_types import (
    Basic,
    FlinkType,
    Logical,
    RowDataOf,
    Shown,
    TableValue,
)

STRING, BIGINT, DECIMAL = Logical("STRING"), Logical("BIGINT"), Logical("DECIMAL", 30, 5)
FULL = Logical(
    "ROW",
    children=(
        *map(Logical, ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "FLOAT", "DOUBLE", "BOOLEAN")),
        *map(Logical, ("STRING", "STRING", "BYTES")),
        Logical("DECIMAL", 10, 2),
        DECIMAL,
        *map(Logical, ("DATE", "TIME")),
        Logical("TIMESTAMP", 3),
        Logical("TIMESTAMP", 6),
        Logical("TIMESTAMP_LTZ", 9),
        *map(Logical, ("YEAR_MONTH", "DAY_TIME")),
        Logical("ARRAY", children=(Logical("SMALLINT"),)),
        Logical("ARRAY", children=(STRING,)),
        Logical("MAP", children=(STRING, Logical("DOUBLE"))),
        Logical("MULTISET", children=(Logical("INTEGER"),)),
        Logical("ROW", children=(BIGINT, STRING, Logical("TIMESTAMP", 9))),
        Logical("ARRAY", children=(Logical("BOOLEAN"),)),
        Logical("ARRAY", children=(DECIMAL,)),
        Logical("ARRAY", children=(Logical("TIMESTAMP", 6),)),
    ),
)
MILLIS = 1_600_000_000_123
VALUES: list[Any] = [
    *(-3, -300, 70000, -5_000_000_000, 1.5, -2.25, True, "short", "a längér text", b"\1\2\3"),
    Decimal("-12345.67"),
    Decimal("-1234567890123456789012.34567"),
    19000,
    3_723_004_000,
    MILLIS * 1000,
    -MILLIS * 1000 + 456,
    MILLIS * 1_000_000 + 456_789,
    -14,
    -86_400_001_000,
    [1, None, -3],
    ["x", None, "a long element"],
    [("k", 1.5), ("a longer key", None)],
    [(7, 2)],
    {"f0": 5, "f1": "inner text", "f2": 5_000_006},
    [True, None, False],
    [Decimal("-1.00000"), None],
    [7008],
]


@cache
def written() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(lzma.decompress((DATA / "flink" / "serializer_bytes.json.xz").read_bytes()))
    return found


def read_named(kind: FlinkType, name: str) -> Any:
    return column_of(kind, bytes.fromhex(written()["values"][name]))


def test_rows_of_every_sql_type() -> None:
    full, nulls = (bytes.fromhex(written()["values"][name]) for name in ("full", "nulls"))
    column = column_of(RowDataOf(FULL), full, nulls, full)
    told = dict(zip([field.name for field in column.type], VALUES, strict=True))
    none = dict.fromkeys(told)
    assert column.equals(pa.array([told, none, told], column.type))
    assert column.type.field("f16").type == pa.timestamp("ns", "UTC")
    assert column.type.field("f18").type == pa.duration("us")


@pytest.mark.parametrize(
    ("name", "kind", "value"),
    [
        ("decimal10", Logical("DECIMAL", 10, 2), Decimal("-12345.67")),
        ("decimal30", DECIMAL, Decimal("-12345678901234567890.12345")),
        ("timestamp3", Logical("TIMESTAMP", 3), MILLIS * 1000),
        ("timestamp6", Logical("TIMESTAMP", 6), -MILLIS * 1000 + 456),
        ("string", STRING, "a längér text"),
        ("array", Logical("ARRAY", children=(STRING,)), ["x", None, "a long element"]),
        ("map", Logical("MAP", children=(STRING, Logical("DOUBLE"))), [("k", 1.5), ("a longer key", None)]),
    ],
)
def test_values_of_the_table_runtime_outside_of_rows(name: str, kind: Logical, value: Any) -> None:
    column = read_named(TableValue(kind), name)
    assert column.equals(pa.array([value], column.type))


def test_decimals_read_as_java_writes_them() -> None:
    rows = [bytes.fromhex(raw) for raw, _ in written()["decimals"]]
    texts = [text for _, text in written()["decimals"]]
    assert column_of(Basic("bigdecimal"), *rows).to_pylist() == texts


def test_decimals_are_shown_as_numbers_where_they_fit() -> None:
    row = bytes.fromhex(next(raw for raw, text in written()["decimals"] if text == "-12.340"))
    assert column_of(Shown(Basic("bigdecimal"), pa.decimal128(10, 3)), row).to_pylist() == [Decimal("-12.340")]
    with pytest.raises(UnsupportedError, match="FLINK_UNSUPPORTED"):
        column_of(Shown(Basic("bigdecimal"), pa.decimal128(10, 1)), row)


@pytest.mark.parametrize(
    "name",
    ["date", "sql_date", "sql_time", "sql_timestamp", "local_date", "local_time", "local_date_time", "instant"],
)
def test_times_may_be_null(name: str) -> None:
    assert read_named(Basic(name), f"{name} null").to_pylist() == [None]
    assert read_named(Shown(Basic(name), pa.string()), f"{name} null").to_pylist() == [None]


def test_times_before_the_epoch() -> None:
    stamp = read_named(Basic("sql_timestamp"), "sql_timestamp neg")
    assert stamp.view(pa.int64()).to_pylist() == [-1_600_000_001 * 10**9 + 123_456_789]
    text = read_named(Shown(Basic("local_date"), pa.string()), "local_date")
    assert text.to_pylist() == ["-0044-03-15"]
    days = read_named(Basic("local_date"), "local_date").view(pa.int32()).to_pylist()[0]
    assert np.datetime64(days, "D") == np.datetime64("-0044-03-15")
    assert read_named(Basic("local_time"), "local_time").view(pa.int64()).to_pylist() == [86_400 * 10**9 - 1]


def test_strings_of_java() -> None:
    assert read_named(Basic("string"), "surrogates").to_pylist() == ["a😀\0é"]


def test_instants_of_all_years_are_written_as_java_does() -> None:
    for seconds, text in written()["instants"]:
        assert instant_text(seconds, 1000) == text


@few_or_many(40, 300, st.data())
def test_damaged_rows_are_read_or_refused(data: st.DataObject) -> None:
    row = bytearray.fromhex(written()["values"]["full"])
    for _ in range(data.draw(st.integers(1, 3))):
        row[data.draw(st.integers(4, len(row) - 1))] = data.draw(st.sampled_from([0, 1, 127, 128, 255]))
    try:
        column_of(RowDataOf(FULL), bytes(row))
    except StateStoreError as error:
        assert error.code in ("FLINK_ROW", "FLINK_UNSUPPORTED")


@pytest.mark.parametrize("size", [0, 8, 200])
def test_a_row_that_is_cut_short_is_refused(size: int) -> None:
    whole = bytes.fromhex(written()["values"]["full"])[4:]
    with pytest.raises(CorruptError, match="FLINK_ROW"):
        column_of(RowDataOf(FULL), size.to_bytes(4, "big") + whole[:size])


def test_rows_written_for_lookups_are_read_back() -> None:
    kind = Logical("ROW", children=(BIGINT, STRING, STRING, Logical("BOOLEAN"), Logical("BYTES"), Logical("TINYINT")))
    rows = [(5, "short", "longer than seven", True, b"", -1), (None, None, "1234567", False, bytes(8), None)]
    written_rows = [row_bytes(kind, row) for row in rows]
    framed = [len(row).to_bytes(4, "big") + row for row in written_rows if row is not None]
    assert [tuple(row.values()) for row in column_of(RowDataOf(kind), *framed).to_pylist()] == rows
    assert row_bytes(kind, rows[0][:5]) is None
    assert row_bytes(Logical("ROW", children=(Logical("DATE"),)), (datetime.date(2020, 1, 1),)) is None


TEXT_TO_NUMBER = Logical("MAP", children=(STRING, Logical("INTEGER")))


def test_a_map_of_sql_with_a_null_key_is_refused_and_its_entries_are_read() -> None:
    kind, rows = TableValue(TEXT_TO_NUMBER), (map_of_sql(("a", 1), (None, -2)), map_of_sql())
    assert column_of(kind, map_of_sql(("a", 1), ("b", 2))).to_pylist() == [[("a", 1), ("b", 2)]]
    remedy = r"FLINK_UNSUPPORTED.*null key.*array<struct<key: \.\.\., value: \.\.\.>>"
    with pytest.raises(UnsupportedError, match=remedy):
        column_of(kind, *rows)
    entries = with_declared(kind, "array<struct<key: string, value: int>>")
    expected = [[{"key": "a", "value": 1}, {"key": None, "value": -2}], []]
    assert column_of(entries, *rows).to_pylist() == expected


def test_every_type_of_sql_can_be_declared_by_its_text() -> None:
    """Without one, a row with a map and a time could not be read where the map has a null key."""
    kind = RowDataOf(FULL)
    declared = with_declared(kind, declared_text(arrow_type(kind)))
    whole = bytes.fromhex(written()["values"]["full"])
    assert column_of(declared, whole).equals(column_of(kind, whole))
    for text in ("time", "timestamp(9)", "timestamp_ntz(9)"):
        with pytest.raises(InvalidInputError, match="FLINK_TYPE"):
            with_declared(TableValue(Logical("TIMESTAMP", 6)), text)


def test_a_map_in_a_row_and_a_multiset_may_be_lists_of_entries() -> None:
    row = Logical("ROW", children=(BIGINT, TEXT_TO_NUMBER, Logical("MULTISET", children=(STRING,))))
    declared = "struct<a: bigint, b: array<struct<key: string, value: int>>, c: array<struct<key: string, value: int>>>"
    kind = with_declared(RowDataOf(row), declared)
    assert isinstance(kind, RowDataOf)
    part = map_of_sql((None, 3), ("x", 4))[4:]
    part += bytes(-len(part) % 8)
    places = [(offset << 32 | len(part)).to_bytes(8, "little") for offset in (32, 32 + len(part))]
    body = bytes(8) + (9).to_bytes(8, "little") + b"".join(places) + part + part
    entries = [{"key": None, "value": 3}, {"key": "x", "value": 4}]
    read = column_of(kind, len(body).to_bytes(4, "big") + body).to_pylist()
    assert read == [{"a": 9, "b": entries, "c": entries}]


@pytest.mark.parametrize(
    "declared",
    [
        "array<struct<key: string, value: bigint>>",
        "array<struct<key: bigint, value: int>>",
        "array<struct<value: int, key: string>>",
        "array<struct<key: string>>",
        "array<string>",
    ],
)
def test_entries_of_other_types_are_refused(declared: str) -> None:
    for root in (TEXT_TO_NUMBER, Logical("MULTISET", children=(STRING,))):
        with pytest.raises(InvalidInputError, match="FLINK_TYPE"):
            with_declared(TableValue(root), declared)
