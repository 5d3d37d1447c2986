"""The columns that a read selects: one by its name, none, and invalid names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.checkpoints.spark_state_fixtures import checkpoint_path
from support.command_line import run

import statestore
from statestore import InvalidInputError, VersionedStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[VersionedStore]:
    """Three rows in two commits, of which one is closed."""
    catalog = statestore.connect(tmp_path)
    with catalog.create_store("s", key={"k": "string"}, value={"item": "bigint"}) as made:
        made.put("a", 1, timestamp=1000)
        made.put("b", 2, timestamp=2000)
        made.commit()
        made.put("a", 3, timestamp=9000)
        made.commit()
        yield made


READS: dict[str, Callable[[Any, Any], Any]] = {
    "scan": lambda s, columns: s.scan(columns=columns),
    "scan at a version": lambda s, columns: s.scan(columns=columns, version=1),
    "scan as of": lambda s, columns: s.scan(columns=columns, as_of=1500),
    "scan of one key": lambda s, columns: s.scan(columns=columns, filter=("k", "=", "a")),
    "scan by a value": lambda s, columns: s.scan(columns=columns, filter=("item", ">", 1)),
    "history": lambda s, columns: s.history(columns=columns),
    "changes": lambda s, columns: s.changes(columns=columns),
}


@pytest.mark.parametrize("read", READS)
def test_rows_without_columns_are_counted(store: VersionedStore, read: str) -> None:
    found = READS[read](store, [])
    assert found.schema.names == []
    assert sum(batch.num_rows for batch in found) == READS[read](store, None).read_all().num_rows > 0


@pytest.mark.parametrize("name", ["spark4.3.0-agg__hdfs", "spark4.3.0-join__rkj4"])
def test_rows_of_a_checkpoint_without_columns_are_counted(name: str) -> None:
    warehouse = statestore.inspect(checkpoint_path(name))
    for table in (warehouse.table(each) for each in warehouse.tables() if "$" not in each):
        assert sum(batch.num_rows for batch in table.scan(columns=[])) == table.scan().read_all().num_rows


def test_a_text_is_one_column(store: VersionedStore) -> None:
    assert sorted(store.scan(columns="item").read_all().to_pydict()["item"]) == [2, 3]
    with pytest.raises(statestore.NotFoundError, match=r"COLUMN_NOT_FOUND.*'i'"):
        store.scan(columns="i")


@pytest.mark.parametrize("columns", [["item", 1], 5, [None]], ids=str)
def test_what_is_no_name_of_a_column(store: VersionedStore, columns: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"INVALID_OPTION.*columns"):
        store.scan(columns=columns)


@pytest.mark.parametrize("text", ["", " , "])
def test_an_option_without_names_is_refused(store: VersionedStore, tmp_path: Path, text: str) -> None:
    for command in ("scan", "changes"):
        answer = run(command, str(tmp_path), "s", "--columns", text)
        assert answer.code == 2 and "INVALID_OPTION" in answer.err and "--columns" in answer.err
