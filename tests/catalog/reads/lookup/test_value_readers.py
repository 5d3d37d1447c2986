"""Columns of several batches: rows are those of the whole column, and decompressed batches are kept within a bound."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from statestore.catalog.reads.lookup import value_readers
from statestore.catalog.reads.lookup.value_readers import BatchColumns, bytes_test, row_reader

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


def test_few_rows_of_many_batches_are_scattered() -> None:
    columns = columns_of(File())
    assert columns.is_scattered(np.array([0, 5, 6, 13]))
    assert not columns.is_scattered(np.repeat([0, 5], value_readers.ROWS_A_TAKE))
    assert columns.is_scattered(np.repeat([0, 5, 22], 4))
