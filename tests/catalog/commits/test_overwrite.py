"""Overwrite of a versioned store: afterwards the current state is exactly the rows written, and nothing is rewritten
that was so already."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.stores.versioned_model import Model

import statestore

KEYS = "abc"
CELLS = st.one_of(st.none(), st.floats(allow_nan=True, width=16), st.just(-0.0))


def table(rows: dict[str, tuple[float | None, int]]) -> pa.Table:
    columns = [list(rows), [value for value, _ in rows.values()], [time for _, time in rows.values()]]
    types = (pa.string(), pa.float64(), pa.int64())
    arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
    return pa.table(arrays, names=["item", "price", "timestamp"])


def current(store: Any) -> dict[str, str]:
    return {row["item"]: repr(row["price"]) for row in store.scan(columns=["item", "price"]).read_all().to_pylist()}


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.tuples(st.sampled_from(KEYS), st.one_of(st.just("delete"), CELLS), st.integers(0, 9)), max_size=8),
    st.dictionaries(st.sampled_from(KEYS), st.tuples(CELLS, st.integers(0, 12)), max_size=3),
)
def test_the_current_state_is_what_was_written(
    tmp_path_factory: pytest.TempPathFactory,
    puts: list[tuple[str, Any, int]],
    rows: dict[str, tuple[float | None, int]],
) -> None:
    catalog = statestore.connect(tmp_path_factory.mktemp("w"))
    with catalog.create_store("prices", key={"item": "string"}, value={"price": "double"}) as store:
        model = Model()
        for item, value, time in puts:
            deleted = value == "delete"
            kept = table({item: (None if deleted else value, time)})
            kinds = pa.array(["delete" if deleted else "insert"])
            store.write(kept.append_column("_change_type", kinds))
            model.put(item, None if deleted else (value,), time)
        newest = {item: max(times, default=0) for item, times in model.current.items()}
        before = repr([store.get(item) for item in KEYS])
        if any(time < newest.get(item, 0) for item, (_, time) in rows.items()):
            with pytest.raises(statestore.InvalidInputError) as caught:
                store.write(table(rows), mode="overwrite")
            assert caught.value.code == "OVERWRITE_TOO_OLD"
            assert repr([store.get(item) for item in KEYS]) == before
            return
        store.write(table(rows), mode="overwrite")
        assert current(store) == {item: repr(value) for item, (value, _) in rows.items()}
        known = store.history().read_all().num_rows
        store.write(table(rows), mode="overwrite")
        assert store.history().read_all().num_rows == known
        assert store.versions()["rows"].to_pylist()[-1] == 0


def test_rows_older_than_the_newest_of_other_keys(tmp_path: Path) -> None:
    catalog = statestore.connect(tmp_path)
    with catalog.create_store("prices", key={"item": "string"}, value={"price": "double"}) as store:
        store.write(table({"a": (1.0, 5), "b": (1.0, 20), "c": (1.0, 7)}))
        store.write(table({"a": (1.0, 5), "b": (2.0, 30), "d": (4.0, 6)}), mode="overwrite")
        assert current(store) == {"a": "1.0", "b": "2.0", "d": "4.0"}
        found = store.get("c", as_of=19)  # it ended when the overwrite found it gone, not before
        assert found is not None and found.value == 1.0
        assert store.versions()["rows"].to_pylist()[-1] == 2
        with pytest.raises(statestore.InvalidInputError, match=r"key 'b'.*00:00:00.010Z.*00:00:00.030Z"):
            store.write(table({"b": (2.0, 10)}), mode="overwrite")
