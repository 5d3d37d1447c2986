"""Rows read from the buffers of columns equal what Arrow says of them, batch by batch, within a bound of memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from statestore.catalog.reads.lookup import value_readers
from statestore.catalog.reads.lookup.value_readers import BatchColumns, bytes_test, row_reader, user_reader
from statestore.formats.values.canonical import from_arrow

# Columns of several batches


CELLS = [f"cell {number}" for number in range(23)]
FIRSTS = [0, 5, 6, 13, 20]


@dataclass
class File:
    """A file of one column, of which each batch has so many decompressed bytes."""

    size: int = 10
    batch_starts: list[int] = field(default_factory=lambda: FIRSTS)
    read: list[int] = field(default_factory=list)

    def batch_columns(self, number: int, names: Any) -> tuple[list[pa.Array], int]:
        self.read.append(number)
        bounds = [*FIRSTS, len(CELLS)]
        return [pa.array(CELLS[bounds[number] : bounds[number + 1]])], self.size


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Any:
    kept = value_readers._KeptBatches()
    monkeypatch.setattr(value_readers, "kept_batches", kept)
    monkeypatch.setattr(value_readers, "BATCH_BYTES", 30)
    return kept


def columns_of(file: File) -> BatchColumns:
    opened: Any = lambda: file  # noqa: E731
    return BatchColumns(opened, ["c"])


def test_rows_are_those_of_the_whole_column_while_batches_come_and_go(kept: Any) -> None:
    columns = columns_of(File())
    read, holds = columns.reader(row_reader), columns.test(lambda batch: bytes_test(batch[0]))
    rows = np.random.default_rng(1).integers(0, len(CELLS), 200).tolist()
    for row in rows:
        assert read(row) == (CELLS[row],)
        assert holds(row, CELLS[row].encode())
        assert not holds(row, b"another")
        assert kept.bytes <= 30
        assert sum(batch is not None for batch in columns._columns) <= 3
    for some in ([0], [22], [5], [4, 5, 6, 19, 20], list(range(23))):
        assert columns.take(np.array(some))[0].to_pylist() == [CELLS[row] for row in some]


def test_batches_are_read_when_they_are_asked_for_and_once(kept: Any) -> None:
    file = File()
    columns = columns_of(file)
    read = columns.reader(row_reader)
    assert file.read == []
    for row in (7, 12, 22, 6, 20):
        read(row)
    columns.take(np.array([8, 21]))
    assert file.read == [2, 4]


def test_compiled_code_has_the_addresses_of_the_batches_that_are_kept_and_of_no_others(kept: Any) -> None:
    columns = columns_of(File())
    columns.take(np.array([0]))
    addresses = columns.addresses()
    assert addresses[: 1 + len(FIRSTS)].tolist() == [len(FIRSTS), *FIRSTS]
    for row in np.random.default_rng(2).integers(0, len(CELLS), 50).tolist():
        columns.take(np.array([row]))
        batches = addresses[1 + len(FIRSTS) :].reshape(len(FIRSTS), 1 + value_readers.COLUMN_FIELDS)
        for batch, arrays in zip(batches.tolist(), columns._columns, strict=True):
            if arrays is None:
                assert batch[0] == 0
            else:
                offsets, data = arrays[0].buffers()[1:]
                assert batch == [len(arrays[0]), 0, offsets.address, data.address, data.size]
    assert columns.addresses() is addresses


def test_views_of_a_file_are_not_counted(kept: Any) -> None:
    file = File(size=0)
    columns = columns_of(file)
    columns.take(np.arange(len(CELLS)))
    columns.take(np.arange(len(CELLS)))
    assert file.read == [0, 1, 2, 3, 4]
    assert kept.bytes == 0


def test_batches_of_closed_stores_make_room(kept: Any) -> None:
    gone = columns_of(File())
    gone.take(np.array([0, 5, 6]))
    del gone
    columns = columns_of(File())
    columns.take(np.array([0, 5, 6]))
    assert kept.bytes == 30
    assert sum(batch is not None for batch in columns._columns) == 3


def test_the_bound_grows_where_dropped_batches_are_made_again(kept: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(value_readers, "BATCH_BYTES", 500)
    kept.limit = 300
    file = File(size=100)
    columns = columns_of(file)
    rows = [0, 5, 6, 13, 20]
    for row in rows:  # each for the first time, as a process does that reads all of a file once
        columns.take(np.array([row]))
    assert kept.limit == 300
    for _ in range(200):
        for row in rows:
            columns.take(np.array([row]))
            assert kept.bytes <= min(kept.limit, 500)
    made = len(file.read)
    assert kept.bytes == 500
    for row in rows:  # by now all have room
        columns.take(np.array([row]))
    assert len(file.read) == made < 150


def test_few_rows_of_many_batches_are_scattered() -> None:
    columns = columns_of(File())
    assert columns.is_scattered(np.array([0, 5, 6, 13]))
    assert not columns.is_scattered(np.repeat([0, 5], value_readers.ROWS_A_TAKE))
    assert columns.is_scattered(np.repeat([0, 5, 22], 4))


# Every type, nulls and slices


TYPED: list[tuple[pa.DataType, list[Any]]] = [
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


@pytest.mark.parametrize(("kind", "cells"), TYPED, ids=lambda given: str(given)[:20])
def test_cells_of_each_type(kind: pa.DataType, cells: list[Any]) -> None:
    for column in shapes(kind, cells):
        read = row_reader([column])
        found = [read(row)[0] for row in range(len(column))]
        assert found == expected(column)
        assert [type(cell) for cell in found] == [type(cell) for cell in expected(column)]


def test_rows_of_all_types_at_once() -> None:
    columns = [pa.array([cells[0], None, cells[1]], kind) for kind, cells in TYPED]
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
