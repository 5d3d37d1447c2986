"""`statestore.inspect`: tables at a path, and their reads in Python."""

from __future__ import annotations

from pathlib import Path

import pytest

import statestore


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    with statestore.connect(tmp_path).create_store(
        "prices", key={"item": "string"}, value={"price": "double"}
    ) as store:
        store.put("curry", 8.0, timestamp=0)
        store.commit()
        store.put("curry", 9.0, timestamp=5)
        store.put("naan", 2.0, timestamp=6)
        store.commit()
    return tmp_path


def test_tables_and_their_reads(warehouse: Path) -> None:
    """A table returns the rows of its store."""
    state = statestore.inspect(warehouse)
    assert state.tables() == ["prices"]
    table = state.table("prices")
    assert table.scan(version=1, columns=["item", "price"]).read_all().to_pylist() == [{"item": "curry", "price": 8.0}]
    assert table.scan(as_of=4).read_all()["price"].to_pylist() == [8.0]
    assert sorted(table.history(key="curry").read_all()["price"].to_pylist()) == [8.0, 9.0]
    assert table.changes(start_version=2).read_all().num_rows == 3
    assert state.table("prices$versions").scan().read_all()["version"].to_pylist() == [0, 1, 2]


def test_a_store_directory_is_one_table(warehouse: Path) -> None:
    assert statestore.inspect(warehouse / "prices").tables() == ["prices"]


def test_an_unknown_table_names_the_nearest(warehouse: Path) -> None:
    with pytest.raises(statestore.NotFoundError, match="did you mean 'prices'"):
        statestore.inspect(warehouse).table("price")


def test_metrics_count_what_is_kept(warehouse: Path) -> None:
    with statestore.connect(warehouse).open_store("prices") as store:
        before = store.metrics()
        store.put("dal", 1.0, timestamp=7)
        after = store.metrics()
    assert (before["version"], before["rows"], before["pending_parts"]) == (2, 3, 0)
    assert (after["pending_parts"], after["observed_stream_time"]) == (1, 7)
