"""Plans answer extremes without reading rows, and split by ranges of key hashes."""

from __future__ import annotations

import datetime as dt
import tempfile
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import strategies as st
from support.properties import few_or_many
from support.stores.versioned_model import Model

import statestore
from statestore.catalog.reads.versioned_table import VersionedTable
from statestore.formats.segments import decoded_columns, ipc_file, segment_write
from statestore.formats.state_table import Query
from statestore.formats.values.filters import Filter

# The least and greatest key and time: exact, or not given


RECORDS = st.tuples(st.integers(0, 9), st.integers(1, 40), st.booleans())  # key, time, whether it is a delete
STEPS = st.lists(st.one_of(st.lists(RECORDS, min_size=1, max_size=6), st.just("compact")), min_size=1, max_size=6)


def records(records: list[tuple[int, int, bool]]) -> pa.Table:
    return pa.table(
        {
            "name": [f"k{key}" for key, _, _ in records],
            "number": pa.array([-key for key, _, _ in records], pa.int32()),
            "v": pa.array([None if gone else time for _, time, gone in records], pa.int64()),
            "timestamp": pa.array([time for _, time, _ in records], pa.int64()),
            "_change_type": ["delete" if gone else "insert" for _, _, gone in records],
        }
    )


def bounds(values: list[Any]) -> tuple[Any, Any]:
    return (min(values), max(values)) if values else (None, None)


def found_of(store: Any, query: Query, name: str) -> tuple[Any, Any] | None:
    found: tuple[Any, Any] | None = store.table.extremes(query, name)
    return found


@few_or_many(15, 100, STEPS)
def test_they_are_exact_or_not_given(steps: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        model = Model()
        catalog = statestore.connect(folder)
        key = {"name": "string", "number": "int"}
        with catalog.create_store("s", key=key, value={"v": "bigint"}, key_groups=2) as store:
            for step in steps:
                if step == "compact":
                    store.compact()
                else:
                    store.write(records(step))
                    for number, time, gone in step:
                        model.put(f"k{number}", None if gone else time, time)
            for moment in (None, 0, 5, 20, 33, 50):
                query = Query(as_of=None if moment is None else moment * 1_000)
                truth = {key: row for key in range(10) if (row := model.get(f"k{key}", moment)) is not None}
                starts = bounds([start * 1_000 for _, start, _ in truth.values()])
                assert found_of(store, query, "valid_from") == starts
                for name, values in (("name", [f"k{key}" for key in truth]), ("number", [-key for key in truth])):
                    assert found_of(store, query, name) in (None, bounds(values))
                assert found_of(store, query, "v") is None


def test_they_are_given_where_no_row_at_the_ends_has_ended(tmp_path: Any) -> None:
    with statestore.connect(tmp_path).create_store(
        "s", key={"name": "string", "number": "int"}, value={"v": "bigint"}
    ) as store:
        assert found_of(store, Query(), "name") == (None, None)
        store.write(records([(key, 1, False) for key in range(10)]))
        assert found_of(store, Query(), "name") == ("k0", "k9")
        assert found_of(store, Query(), "number") == (-9, 0)
        store.write(records([(0, 2, False), (9, 2, False)]))
        assert found_of(store, Query(), "number") == (-9, 0)
        assert found_of(store, Query(as_of=1_500), "number") in (None, (-9, 0))
        store.write(records([(9, 3, True)]))
        assert found_of(store, Query(), "number") is None
        assert found_of(store, Query(mode="history"), "number") is None
        store.compact()
        assert found_of(store, Query(), "number") in (None, (-8, 0))


@pytest.mark.parametrize("kind", ["date", "binary", "decimal(4,2)"])
def test_types_without_bounds_in_the_log(tmp_path: Any, kind: str) -> None:
    value = {"date": dt.date(2024, 5, 1), "binary": b"a"}.get(kind, 1)
    with statestore.connect(tmp_path).create_store("s", key={"k": kind}, value={"v": "int"}) as store:
        store.put(value, 1, timestamp=1000)
        store.commit()
        assert found_of(store, Query(), "k") is None


# Ranges of key hashes, and counts: the rows of an undivided read


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


@pytest.mark.local_files
def test_a_plan_decompresses_times_once_whatever_is_read_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_write, "COMPRESSED_BATCH_ROWS", 16)
    with statestore.connect(tmp_path).create_store("s", key={"k": "string"}, value={"v": "bigint"}) as store:
        for commit in range(10):
            numbers = np.arange(200)
            store.put_all(
                pa.table({"k": [f"key {n}" for n in numbers], "v": numbers, "timestamp": 200 * commit + numbers})
            )
            store.commit()
        store.compact(full=True)
        query = Query(as_of=1_111_000)
        planned = store.table.splits(query)
        decompressed: list[int] = []
        verify = ipc_file.verify_stored_column

        def counted(verified: Any, batch: Any, position: int) -> Any:
            decompressed.append(position)
            return verify(verified, batch, position)

        monkeypatch.setattr("statestore.formats.segments.segment.verify_stored_column", counted)
        for key in {key[0] for key in decoded_columns.decoded._kept}:
            decoded_columns.decoded.forget(key)  # as a read of many columns displaces them
        assert store.table.splits(query) == planned
        assert not decompressed
        rows = [row["v"] for batch in store.scan(as_of=1_111) for row in batch.to_pylist()]
        assert decompressed and sorted(rows) == list(range(200))
