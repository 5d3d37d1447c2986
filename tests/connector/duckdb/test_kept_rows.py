"""Columns of live rows that are kept: read once, never beyond the bytes, and only when they were read to the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa

from statestore.connector.duckdb.kept_rows import LiveColumns

CELLS: dict[str, list[Any]] = {"a": [1, 2, 3, 4, 5], "b": [10, 20, 30, 40, 50], "s": ["v", "w", "x", "y", "z"]}
# Batches of other columns may be cut elsewhere.
CUTS: dict[tuple[str, ...], tuple[int, ...]] = {
    ("a",): (0, 2, 5),
    ("b",): (0, 3, 3, 5),
    ("s",): (0, 1, 5),
}


class Source:
    """A store that notes what is read of it."""

    def __init__(self) -> None:
        self.reads: list[tuple[str, ...]] = []

    def __call__(self, names: tuple[str, ...]) -> Iterator[Sequence[pa.Array]]:
        self.reads.append(names)
        cuts = CUTS.get(names, (0, 4, 5))
        for start, stop in pairwise(cuts):
            yield [pa.array(CELLS[name][start:stop]) for name in names]


def ask(columns: LiveColumns, source: Source, *names: str) -> dict[str, list[object]]:
    kept = columns.kept(names)
    found: dict[str, list[object]] = {name: [] for name in names}
    for rows, arrays in columns.read(names, kept, source):
        assert list(arrays) and all(len(array) == rows > 0 for array in arrays.values())
        for name in names:
            found[name] += arrays[name].to_pylist()
    return found


def test_a_column_is_read_once_whatever_it_is_asked_with() -> None:
    columns, source = LiveColumns(1 << 20), Source()
    for names in (("a",), ("a", "b"), ("b",), ("s", "a", "b"), ("b", "s"), ("a", "b", "s")):
        assert ask(columns, source, *names) == {name: CELLS[name] for name in names}
    assert source.reads == [("a",), ("b",), ("s",)]
    assert columns.nbytes >= 2 * 5 * 8 + 5


def test_columns_that_were_not_asked_for_lately_make_room() -> None:
    columns, source = LiveColumns(2 * 5 * 8), Source()
    for name in ("a", "b", "a", "s", "a", "b"):
        assert ask(columns, source, name) == {name: CELLS[name]}
        assert columns.nbytes <= 2 * 5 * 8
    assert source.reads == [("a",), ("b",), ("s",), ("b",)]  # "s" took the room of "b"


def test_a_column_larger_than_all_room_is_read_and_not_kept() -> None:
    columns, source = LiveColumns(5 * 8 - 1), Source()
    for _ in range(2):
        assert ask(columns, source, "a") == {"a": CELLS["a"]}
    assert source.reads == [("a",), ("a",)] and columns.nbytes == 0


def test_a_read_that_ends_early_keeps_nothing() -> None:
    columns, source = LiveColumns(1 << 20), Source()
    batches = columns.read(["a"], {}, source)
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert columns.kept(["a"]) == {} and columns.nbytes == 0
    assert ask(columns, source, "a") == {"a": CELLS["a"]}
