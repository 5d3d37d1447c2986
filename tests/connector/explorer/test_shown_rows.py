"""Texts of cells: the beginning of long values, without the memory of their ends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa
import pytest

from statestore.connector.explorer import pages
from statestore.connector.explorer.limits import Limits
from statestore.connector.explorer.pages import CELL, cell_text, cut_rows, shown_rows
from statestore.formats.engine import WholePart
from statestore.formats.state_table import Query, StateTable
from statestore.formats.values.python_times import python_values

TEXTS = ["", "x", None, *("é" * size for size in (CELL - 1, CELL, CELL + 1, 9 * CELL))]
BYTES = [None, *(bytes(n % 251 for n in range(size)) for size in (0, 1, 2, 1498, 1499, 1500, 1501, CELL, 9 * CELL))]
COLUMNS = {
    "texts": pa.array(TEXTS),
    "large texts": pa.array(TEXTS, pa.large_string()),
    "binary": pa.array(BYTES),
    "fixed": pa.array([b"abcd", None], pa.binary(4)),
    "structs": pa.array([{"s": text, "in": {"b": b"z" * 7000, "n": 1}} for text in TEXTS] + [None]),
    "a slice": pa.array([None, *({"s": text} for text in TEXTS)]).slice(2, 4),
    "lists": pa.array([["x" * 3000], list("abc"), None]),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_what_is_cut_before_is_what_the_text_lacks(name: str) -> None:
    """The truth is the text of the whole value."""
    column = COLUMNS[name]
    whole = [None if value is None else cell_text(value) for value in python_values(column)]
    for rows in (pa.table({"c": column}), pa.table({"c": pa.chunked_array([column.slice(0, 2), column.slice(2)])})):
        assert shown_rows(rows)["c"].to_pylist() == whole
    assert shown_rows(cut_rows(pa.record_batch({"c": column})))["c"].to_pylist() == whole


@dataclass(frozen=True)
class Wide:
    """A table whose rows are large: all of them have one buffer, of which each row is a copy when it is taken."""

    value: bytes = b"x" * (8 << 20)
    rows: int = 40

    def schema(self, query: Query) -> pa.Schema:
        return pa.schema([("b", pa.binary())])

    def splits(self, query: Query) -> list[WholePart]:
        return [WholePart()]

    def count(self, query: Query) -> int:
        return self.rows

    def read(self, split: WholePart, query: Query) -> Iterator[pa.RecordBatch]:
        for _ in range(self.rows):
            yield pa.record_batch({"b": pa.array([self.value])})


def test_a_page_of_large_values_does_not_keep_them() -> None:
    def no_file() -> Any:
        raise AssertionError

    before = pa.total_allocated_bytes()
    table = cast("StateTable", Wide())
    found = pages.page_of(table, Query(), None, 0, 30, no_file, Limits())
    assert found.rows.num_rows == 30
    assert pa.total_allocated_bytes() - before < 8 << 20
