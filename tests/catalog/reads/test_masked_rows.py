"""Rows with marks: those that are marked as live are the rows of the answer."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import statestore
from statestore.catalog.reads import scan
from statestore.catalog.reads.versioned_table import VersionedTable
from statestore.formats.state_table import MARK_TYPE, SHARED_MARKS, Query, all_live

SECOND = 1_000


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> VersionedTable:
    """A store whose rows are dead in long runs (every row of the first commits), in places, and nowhere."""
    random = np.random.default_rng(5)
    with statestore.connect(tmp_path_factory.mktemp("w")).create_store(
        "s", key={"k": "bigint"}, value={"n": "bigint"}
    ) as store:
        for commit, keys in enumerate([range(200), range(150), range(3, 200, 9), range(300, 340)]):
            times = commit * SECOND + np.sort(random.integers(0, 900, len(keys)))
            store.put_all(pa.table({"k": list(keys), "n": random.integers(0, 9, len(keys)), "timestamp": times}))
            store.commit()
        assert isinstance(store.table, VersionedTable)
        return store.table


QUERIES = [
    *(Query(as_of=as_of, version=version) for as_of, version in product((None, 0, 1_500_000), (None, 1, 2))),
    Query(mode="history"),
    Query(mode="history", start_time=1_000_000, end_time=1_200_000, version=3),
]


@pytest.mark.parametrize("chunk", [pytest.param(1, marks=pytest.mark.slow), 7, 64, 1 << 17])
def test_live_rows_are_the_answer(table: VersionedTable, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "CHUNK_ROWS", chunk)
    monkeypatch.setattr(scan, "SPARSE", 3)
    for query in QUERIES:
        splits = table.splits(query)
        answer = [tuple(r.values()) for s in splits for b in table.read(s, query) for r in b.to_pylist()]
        found: list[tuple[Any, ...]] = []
        for part in table.masked_splits(splits):
            rows = [tuple(r.values()) for b in table.read_marked(part.split, query) for r in b.to_pylist()]
            live = [True] * len(rows) if part.marks is None else part.marks.is_valid().to_pylist()
            assert sum(live) == part.live, query
            found += [row for row, lives in zip(rows, live, strict=True) if lives]
        assert sorted(found, key=str) == sorted(answer, key=str), query


def test_pieces_are_whole_marked_or_copied(table: VersionedTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of dead rows are not read at all."""
    monkeypatch.setattr(scan, "CHUNK_ROWS", 50)
    parts = table.masked_splits(table.splits(Query()))
    assert [part.marks is None for part in parts].count(False) == 1
    assert sum(len(part.marks) if part.marks is not None else part.live or 0 for part in parts) < 200 + 150 + 22 + 40
    assert not any(table.is_mapped(part.split, ["valid_to"]) for part in parts)
    assert all(table.is_mapped(part.split, ["n"]) for part in parts if part.marks is not None)


@pytest.mark.parametrize("rows", [0, 1, SHARED_MARKS, SHARED_MARKS + 1])
def test_marks_of_live_rows_have_no_nulls(rows: int) -> None:
    marks = all_live(rows)
    assert (len(marks), marks.null_count, marks.type) == (rows, 0, MARK_TYPE)
    marks.validate(full=True)


def test_marks_are_in_the_order_of_rows_where_small_pieces_come_before_large_ones(tmp_path: Path) -> None:
    """Were small pieces read together, apart from large ones, the marks would be those of other rows."""
    with statestore.connect(tmp_path).create_store("s", key={"k": "bigint"}, value={"n": "bigint"}) as store:
        for commit, keys in enumerate([range(10), range(5, 5_000), range(4_000, 4_005)]):
            times = [commit * 10_000 + number for number in range(len(keys))]
            store.put_all(pa.table({"k": list(keys), "n": [commit] * len(keys), "timestamp": times}))
            store.commit()
        table = store.table
        assert isinstance(table, VersionedTable)
        found: dict[int, int] = {}
        for part in table.masked_splits(table.splits(Query())):
            rows = pa.Table.from_batches(table.read_marked(part.split, Query()))
            live = rows if part.marks is None else rows.filter(part.marks.is_valid())
            found.update(zip(live["k"].to_pylist(), live["n"].to_pylist(), strict=True))
        assert found == {k: 2 if 4_000 <= k < 4_005 else 1 if k >= 5 else 0 for k in range(5_000)}
