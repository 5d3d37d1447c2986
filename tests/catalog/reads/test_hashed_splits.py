"""Reads divided by ranges of key hashes, and counts from metadata: the rows of an undivided read."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash

import statestore
from statestore.catalog.reads.versioned_table import VersionedTable
from statestore.formats.state_table import Query
from statestore.formats.values.filters import Filter

MINUTE = 60_000


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> VersionedTable:
    """Seven commits with new keys, replaced, late and deleted rows; the first five are compacted."""
    random = np.random.default_rng(5)
    warehouse = statestore.connect(tmp_path_factory.mktemp("warehouse"))
    with warehouse.create_store("prices", key={"item": "string"}, value={"n": "bigint"}) as store:
        for commit in range(1, 8):
            keys = random.choice(400, 150, replace=False)
            times = commit * MINUTE + random.integers(-2 * MINUTE, MINUTE, len(keys))
            changes = np.where(random.random(len(keys)) < 0.1, "delete", "insert")
            columns: dict[str, Any] = {"item": [f"item {key}" for key in keys], "n": random.integers(0, 9, len(keys))}
            store.put_all(pa.table({**columns, "timestamp": times, "_change_type": changes}))
            store.commit()
            if commit == 5:
                store.compact()
        assert isinstance(store.table, VersionedTable)
        return store.table


QUERIES = [
    *(Query(as_of=as_of, version=version) for as_of, version in product((None, 3 * MINUTE * 1000), (None, 3, 6))),
    *(Query(mode="history", version=version) for version in (None, 3, 6)),
]


def rows(table: VersionedTable, query: Query, splits: list[Any] | None = None) -> list[tuple[Any, ...]]:
    found = table.splits(query) if splits is None else splits
    batches = [batch for split in found for batch in table.read(split, query)]
    return sorted((tuple(row.values()) for batch in batches for row in batch.to_pylist()), key=str)


@pytest.mark.parametrize("query", QUERIES)
def test_each_row_is_in_the_range_of_its_key(table: VersionedTable, query: Query) -> None:
    whole = rows(table, query)
    assert len(whole) > 100
    for ranges in (1, 2, 3, 7):
        divided = table.hashed_splits(query, ranges)
        assert divided is not None
        found = []
        for number in range(ranges):
            mine = rows(table, query, [split for range_, split in divided if range_ == number])
            assert {xxhash.xxh64_intdigest(row[0].encode()) * ranges >> 64 for row in mine} <= {number}
            found += mine
        assert sorted(found, key=str) == whole


def test_filters_and_columns_hold_in_each_range(table: VersionedTable) -> None:
    query = Query(columns=("n",), filters=(Filter("n", ">", 4), Filter("item", "in", ("item 1", "item 2", "item 3"))))
    divided = table.hashed_splits(query, 2)
    assert divided is not None
    assert rows(table, query, [split for _, split in divided]) == rows(table, query)


@pytest.mark.parametrize("query", QUERIES)
def test_a_count_is_the_number_of_rows(table: VersionedTable, query: Query) -> None:
    assert table.count(query) == len(rows(table, query)) > 100


def test_what_is_not_divided_or_counted(table: VersionedTable) -> None:
    assert table.hashed_splits(Query(mode="changes"), 2) is None
    assert table.count(Query(mode="changes")) is None
    assert table.count(Query(filters=(Filter("n", ">", 4),))) is None


def test_an_empty_store(tmp_path: Path) -> None:
    store = statestore.connect(tmp_path).create_store("empty", key={"item": "string"}, value={"n": "bigint"})
    assert isinstance(store.table, VersionedTable)
    assert store.table.count(Query()) == 0 and store.table.hashed_splits(Query(), 2) == []
