"""Every open store and every table has the same reads, with the same answers, and of the columns that they select."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.checkpoints.spark_state_fixtures import checkpoint_path
from support.command_line import run

import statestore
from statestore import VersionedStore
from statestore.catalog.reads.table import Table
from statestore.formats.errors import InvalidInputError

READS = ("scan", "history", "changes", "diff", "versions")
KINDS: dict[str, dict[str, Any]] = {
    "versioned": {},
    "versioned of Kafka": {"kind": "versioned", "serde": "kafka", "history_retention": "1 day"},
    "key_value": {"kind": "key_value"},
    "window": {"kind": "window", "retention": "1 day", "window_size": 10},
    "join_window": {"kind": "join_window", "retention": "1 day"},
    "session": {"kind": "session", "retention": "1 day"},
}
PUTS: dict[str, Callable[[Any, int], object]] = {
    "window": lambda store, n: store.put("a", n, 10 * n),
    "session": lambda store, n: store.put("a", 10 * n, 10 * n + 1, n),
}


def _put(store: Any, n: int) -> None:
    store.put("a", n, timestamp=n)


@pytest.fixture(params=KINDS)
def both(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[Any, Table]]:
    """A store with two commits, open and as a table."""
    kind = request.param
    put = PUTS.get(kind) or _put
    with statestore.connect(tmp_path).create_store(
        "s", **{"key": {"k": "string"}, "value": {"v": "bigint"}, **KINDS[kind]}
    ) as store:
        for n in (1, 2):
            put(store, n)
            store.commit()
        yield store, statestore.inspect(tmp_path).table("s")


def test_a_store_answers_as_its_table(both: tuple[Any, Table], tmp_path: Path) -> None:
    store, table = both
    for asked in ({}, {"version": 1}, {"columns": ["v"], "filter": ("v", ">", 0)}):
        assert store.scan(**asked).read_all() == table.scan(**asked).read_all()
    assert store.scan().read_all().num_rows >= 1
    assert store.history(key="a").read_all() == table.history(key="a").read_all()
    assert store.changes(start_version=1).read_all() == table.changes(start_version=1).read_all()
    assert store.diff(1, 2).read_all() == table.diff(1, 2).read_all()
    assert store.schema == table.schema and store.name == table.name == "s"
    for name in READS:
        assert inspect.signature(getattr(store, name)) == inspect.signature(getattr(table, name))
    expected = statestore.inspect(tmp_path).table("s$versions")
    assert isinstance(store.versions(), pa.Table)
    assert store.versions() == table.versions() == expected.scan().read_all() == expected.versions()
    assert store.versions()["version"].to_pylist() == [0, 1, 2]


def test_a_closed_store_refuses_every_read(both: tuple[Any, Table]) -> None:
    store, _ = both
    store.close()
    calls = {name: getattr(store, name) for name in READS} | {
        "diff": lambda: store.diff(1),
        "schema": lambda: store.schema,
    }
    for call in calls.values():
        with pytest.raises(InvalidInputError, match="STORE_CLOSED"):
            call()


# Keys and changes


def test_changes_of_keys_are_those_keys_in_the_whole_feed(tmp_path: Path) -> None:
    """Rows are replaced, taken back, deleted, and split, before and after a compaction."""
    key = {"pair": "struct<a:string,b:bigint>", "part": "bigint"}
    with statestore.connect(tmp_path).create_store("s", key=key, value={"v": "bigint"}) as store:
        for number in range(120):
            named = {"a": "xyz"[number % 3], "b": number % 2}, number % 4 // 2
            moment = number // 10 - (number * 7 % 5 if number % 3 else 0)
            if number % 7 == 6:
                store.delete(named, timestamp=max(moment, 0))
            else:
                store.put(named, number % 5, timestamp=max(moment, 0))
            if number % 20 == 19:
                store.commit()
                store.compact(full=number < 60)
        x, y = {"a": "x", "b": 0}, {"a": "y", "b": 1}
        filters: list[tuple[Any, Callable[[dict[str, Any]], bool]]] = [
            ([("pair", "=", x), ("part", "=", 1)], lambda row: (row["pair"], row["part"]) == (x, 1)),
            ([("pair", "in", [x, y]), ("part", "in", [0, 1])], lambda row: row["pair"] in (x, y)),
            (
                [("pair.a", "=", "y"), ("pair.b", "=", 1), ("part", "=", 0)],
                lambda row: row["pair"] == y and not row["part"],
            ),
            ([("pair.a", "=", "z")], lambda row: row["pair"]["a"] == "z"),
            ([("part", ">", 0), ("v", ">", 2)], lambda row: row["part"] > 0 and (row["v"] or 0) > 2),
            ([("pair", "=", x), ("part", "=", 9)], lambda row: False),
        ]
        feeds: list[dict[str, Any]] = [{}, {"start_version": 2, "end_version": 5}, {"start_time": 3, "end_time": 9}]
        for ranges in feeds:
            feed = store.changes(**ranges).read_all().to_pylist()
            for chosen, passes in filters:
                found = store.changes(**ranges, filter=chosen).read_all().to_pylist()
                assert found == [row for row in feed if passes(row)], (chosen, ranges)
            assert {row["_change_type"] for row in feed} == {"insert", "update_preimage", "update_postimage", "delete"}


# One row


@pytest.fixture
def prices(tmp_path: Path) -> Table:
    with statestore.connect(tmp_path).create_store("p", key={"k": "string"}, value={"v": "bigint"}) as store:
        for n in (1, 2):
            store.put("a", n, timestamp=n)
            store.commit()
    return statestore.inspect(tmp_path).table("p")


def test_get_is_the_row_of_a_key(prices: Table) -> None:
    def value(**asked: Any) -> Any:
        found = prices.get("a", **asked)
        return None if found is None else found["v"]

    assert list(prices.get({"k": "a"}) or ()) == ["k", "v", "valid_from", "valid_to"]
    assert (value(), value(as_of=1), value(version=1), value(as_of=0)) == (2, 1, 1, None)
    assert prices.get("b") is None


def test_get_refuses_a_key_that_has_several_rows(tmp_path: Path) -> None:
    with statestore.connect(tmp_path).create_store("s", kind="keyed", key={"k": "string"}) as store:
        with store.backend() as backend:
            entries = backend.map_state("m", "string", "bigint")
            backend.set_current_key("a")
            entries.put("x", 1)
            entries.put("y", 2)
            store.commit([backend.snapshot("full").result()])
        with pytest.raises(InvalidInputError, match=r"WRONG_KEY.*several rows; name user_key, too"):
            store.get("m", "a")
        assert store.get("m", {"k": "a", "user_key": "y"}) == {"k": "a", "user_key": "y", "value": 2}
        assert store.get("m", "b") is None


def test_get_needs_a_key(prices: Table, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"WRONG_KEY.*p\$versions has no key"):
        statestore.inspect(tmp_path).table("p$versions").get(1)


# Keyed stores


def test_a_keyed_store_reads_each_state_as_its_table(tmp_path: Path) -> None:
    store: Any
    with statestore.connect(tmp_path).create_store("s", kind="keyed", key={"k": "string"}) as store:
        with store.backend() as backend:
            counts = backend.value_state("n", "bigint")
            for n in (1, 2, 3):
                backend.set_current_key("a")
                counts.update(n)
                store.commit([backend.snapshot("full").result()])
        table = statestore.inspect(tmp_path).table("s.n")
        assert store.scan("n", version=1).read_all() == table.scan(version=1).read_all()
        assert store.history("n", "a").read_all() == table.history("a").read_all()
        assert store.changes("n", 2, 3).read_all() == table.changes(2, 3).read_all()
        assert store.diff("n", 1, 3).read_all() == table.diff(1, 3).read_all()
        assert store.get(state="n", key="a") == table.get("a") == {"k": "a", "value": 3}
        assert list(inspect.signature(store.history).parameters)[:2] == ["state", "key"]
        with pytest.raises(InvalidInputError, match="write start_version"):
            store.changes("n", from_version=1)

        store.discard(1)
        assert store.retained() == [2, 3]
        assert store.versions() == table.versions()  # of the only state
        assert store.versions() == statestore.inspect(tmp_path).table("s.n$versions").scan().read_all()
        assert store.versions()["operation"].to_pylist() == ["snapshot"] * 3 + ["discard"]
        assert [size is None for size in store.versions()["bytes"].to_pylist()] == [True, False, False, True]


# Columns: one by its name, none, and invalid names


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


SELECTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "scan": lambda s, columns: s.scan(columns=columns),
    "scan at a version": lambda s, columns: s.scan(columns=columns, version=1),
    "scan as of": lambda s, columns: s.scan(columns=columns, as_of=1500),
    "scan of one key": lambda s, columns: s.scan(columns=columns, filter=("k", "=", "a")),
    "scan by a value": lambda s, columns: s.scan(columns=columns, filter=("item", ">", 1)),
    "history": lambda s, columns: s.history(columns=columns),
    "changes": lambda s, columns: s.changes(columns=columns),
}


@pytest.mark.parametrize("read", SELECTIONS)
def test_rows_without_columns_are_counted(store: VersionedStore, read: str) -> None:
    found = SELECTIONS[read](store, [])
    assert found.schema.names == []
    assert sum(batch.num_rows for batch in found) == SELECTIONS[read](store, None).read_all().num_rows > 0


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
