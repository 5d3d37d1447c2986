"""The least and greatest key and time without reading rows: exact, or not given."""

from __future__ import annotations

import datetime as dt
import tempfile
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import strategies as st
from support.properties import few_or_many
from support.stores.versioned_model import Model

import statestore
from statestore.formats.state_table import Query

RECORDS = st.tuples(st.integers(0, 9), st.integers(1, 40), st.booleans())  # key, time, whether it is a delete
STEPS = st.lists(st.one_of(st.lists(RECORDS, min_size=1, max_size=6), st.just("compact")), min_size=1, max_size=6)


def rows(records: list[tuple[int, int, bool]]) -> pa.Table:
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
                    store.write(rows(step))
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
        store.write(rows([(key, 1, False) for key in range(10)]))
        assert found_of(store, Query(), "name") == ("k0", "k9")
        assert found_of(store, Query(), "number") == (-9, 0)
        store.write(rows([(0, 2, False), (9, 2, False)]))
        assert found_of(store, Query(), "number") == (-9, 0)
        assert found_of(store, Query(as_of=1_500), "number") in (None, (-9, 0))
        store.write(rows([(9, 3, True)]))
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
