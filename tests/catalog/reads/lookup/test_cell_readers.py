"""Rows read from the buffers of columns equal what Arrow says of them: every type, nulls and slices."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from statestore.catalog.reads.lookup.value_readers import bytes_test, row_reader, user_reader
from statestore.formats.values.canonical import from_arrow

CELLS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int8(), [1, -128, 127, 0]),
    (pa.int16(), [1, -(2**15), 2**15 - 1]),
    (pa.int32(), [1, -(2**31), 2**31 - 1]),
    (pa.int64(), [1, -(2**63), 2**63 - 1]),
    (pa.float32(), [0.5, -1.0, float("inf")]),
    (pa.float64(), [0.1, -1e300, float("-inf")]),
    (pa.bool_(), [True, False, False, True, True, False, True, False, True]),
    (pa.string(), ["", "a", "é€😀", "x" * 300]),
    (pa.binary(), [b"", b"\0\xff", b"a" * 99]),
    (pa.decimal128(9, 2), [Decimal("1.50"), Decimal("-9999999.99"), Decimal("0.00")]),
    (pa.decimal128(38, 0), [Decimal(10**37), Decimal(-(10**37))]),
    (pa.date32(), [date(1, 1, 1), date(9999, 12, 31), date(1970, 1, 1)]),
    (pa.timestamp("us", tz="UTC"), [datetime(2024, 5, 1, 9, tzinfo=UTC), datetime(1900, 1, 1, 0, 0, 0, 7, tzinfo=UTC)]),
    (pa.timestamp("us"), [datetime(2024, 5, 1, 9), datetime(1, 1, 1)]),
    (pa.duration("us"), [timedelta(days=-3, microseconds=1), timedelta(0)]),
    (pa.list_(pa.int32()), [[1, None], []]),
    (pa.struct([("a", pa.string())]), [{"a": "x"}, {"a": None}]),
]


def expected(column: pa.Array) -> list[Any]:
    convert = from_arrow(column.type)
    return [cell if convert is None else convert(cell) for cell in column.to_pylist()]


def shapes(kind: pa.DataType, cells: list[Any]) -> list[pa.Array]:
    """Return columns without nulls, with nulls, and cut at odd places."""
    some = pa.array([*cells, None, *cells, *cells, None, *cells], kind)
    whole = pa.array(cells * 5, kind)
    return [
        whole,
        some,
        whole.slice(3, 6),
        some.slice(1, len(some) - 2),
        some.slice(9),
        pa.nulls(4, kind),
    ]


@pytest.mark.parametrize(("kind", "cells"), CELLS, ids=lambda given: str(given)[:20])
def test_cells_of_each_type(kind: pa.DataType, cells: list[Any]) -> None:
    for column in shapes(kind, cells):
        read = row_reader([column])
        found = [read(row)[0] for row in range(len(column))]
        assert found == expected(column)
        assert [type(cell) for cell in found] == [type(cell) for cell in expected(column)]


def test_rows_of_all_types_at_once() -> None:
    columns = [pa.array([cells[0], None, cells[1]], kind) for kind, cells in CELLS]
    read = row_reader(columns)
    for row in range(3):
        assert read(row) == tuple(expected(column)[row] for column in columns)


@pytest.mark.parametrize("names", [["a"], ["a", "value"], ["'", "{row}", "row"]])
def test_rows_as_users_see_them(names: list[str]) -> None:
    columns = [pa.array([f"text {number}", None]) for number, _ in enumerate(names)]
    read = user_reader(columns, names)
    texts = [column[0].as_py() for column in columns]
    assert read(0) == (texts[0] if len(names) == 1 else dict(zip(names, texts, strict=True)))
    assert read(1) == (None if len(names) == 1 else dict.fromkeys(names))


@pytest.mark.parametrize("kind", [pa.string(), pa.binary()])
def test_bytes_of_text(kind: pa.DataType) -> None:
    texts = ["", "a", "é", "ab", "\x80"]
    whole = pa.array([text if kind == pa.string() else text.encode() for text in texts], kind)
    for column in (whole, whole.slice(1, 3)):
        holds = bytes_test(column)
        for row, cell in enumerate(column.to_pylist()):
            own = cell.encode() if isinstance(cell, str) else cell
            assert [holds(row, text.encode()) for text in texts] == [text.encode() == own for text in texts]
