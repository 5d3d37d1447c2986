"""A key is found without a read of the whole state: each engine, each spelling of the key, each door.

Rows are counted as they come from storage, before filters are applied to them. Where an engine's files have no order or
index by which a key could be found, the whole state is read, and the last test says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.checkpoints.spark_state_fixtures import checkpoint_path
from support.flink.fixtures import fixture, manifest
from support.kafka.unpacked import stores_file, unpack
from support.keyed.keyed_made import make
from support.parameters import mostly_slow
from support.rows_read import RowsRead

import statestore

PLACES: dict[str, tuple[str, int]] = {
    "own store": ("items", 2),
    "own store, struct": ("sales", 2),
    "keyed store": ("sessions.counts", 1),
    "kafka directory": ("stock", 1),
    "kafka directory, versioned": ("menu", 1),
    "flink heap": ("kv-string.count", 2),
    "flink heap, tuple": ("kv-tuple.n", 2),
    "flink rocksdb": ("kv-string.count", 1),
    "flink rocksdb, tuple": ("kv-tuple.n", 1),
    "flink rocksdb, pojo": ("kv-pojo.latest", 1),
    "flink rocksdb, row": ("Join[12].left-records", 3),
    "spark hdfs": ("state", 20),
    "spark rocksdb, window": ("state", 1),
}
"""The state of each place, and the most rows of one key that are read: for Spark's HDFS-backed store a partition."""


QUICK = ("own store, struct", "flink rocksdb, row")


def snapshot_of(run: str, form: str) -> Path:
    """Return the newest snapshot of a run that is a checkpoint of RocksDB, or a snapshot of the heap."""
    found = [each["path"] for each in manifest(run)["snapshots"] if form in each["path"]]
    return fixture(run) / str(found[-1])


def make_own(folder: Path) -> Path:
    catalog = statestore.connect(folder)
    for name, kind in (("items", "string"), ("sales", "struct<shop:string,item:int>")):
        with catalog.create_store(name, key={"key": kind}, value={"price": "double"}) as store:
            for number in range(60):
                key = f"item-{number}" if kind == "string" else {"shop": f"shop-{number}", "item": number}
                store.put(key, float(number), timestamp=number)
            store.commit()
    return folder


@pytest.fixture(scope="module")
def warehouses(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, dict[str, Any]]]:
    """Return a function that gives the path and the options of a place, each made once."""
    made: dict[str, tuple[Path, dict[str, Any]]] = {}

    def kafka() -> tuple[Path, dict[str, Any]]:
        folder = unpack("orders", tmp_path_factory.mktemp("kafka"))
        return folder / "state" / "orders", {"stores_file": str(stores_file("orders", folder / "stores.toml"))}

    def keyed() -> tuple[Path, dict[str, Any]]:
        folder = tmp_path_factory.mktemp("keyed")
        make(folder)
        return folder, {}

    def own() -> tuple[Path, dict[str, Any]]:
        return make_own(tmp_path_factory.mktemp("own")), {}

    def at(name: str) -> tuple[Path, dict[str, Any]]:
        first = name.split(",")[0]
        if name.startswith("spark"):
            return checkpoint_path(
                f"spark4.3.0-{'win' if 'window' in name else 'agg'}__{'hdfs' if 'hdfs' in name else 'rkcl'}"
            ), {}
        if name.startswith("flink"):
            run = "sql-types" if name.endswith("row") else first.removeprefix("flink ").replace("heap", "hashmap")
            return snapshot_of(run, "savepoint" if run == "hashmap" else "chk-"), {}
        if first not in made:
            made[first] = {"own store": own, "keyed store": keyed}.get(first, kafka)()
        return made[first]

    return at


def spellings(column: str, key: Any) -> Iterator[Any]:
    """Yield every way to name a key of one column."""
    yield from (key, (key,), {column: key})
    if isinstance(key, dict):
        yield tuple(key.values())
        yield {column: tuple(key.values())}
        yield from key.values() if len(key) == 1 else ()


def literal(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"'{name}': {literal(part)}" for name, part in value.items()) + "}"
    if isinstance(value, bool | int):
        return str(value)
    return f"'{value}'" if isinstance(value, str) else f"TIMESTAMPTZ '{value}'"


def conditions(column: str, key: Any) -> Iterator[str]:
    yield f"{literal(key)} = {column}"
    yield f"{column} IN ({literal(key)}, {literal(key)})"
    if isinstance(key, dict):
        yield " AND ".join(f"{column}.{name} = {literal(value)}" for name, value in leaves(key))


def leaves(key: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in key.items():
        inner = leaves(value) if isinstance(value, dict) else None
        yield from [(f'"{name}"', value)] if inner is None else ((f'"{name}".{under}', each) for under, each in inner)


@pytest.mark.parametrize("place", mostly_slow(list(PLACES), QUICK))
def test_a_key_is_read_alone_however_it_is_named(
    place: str, warehouses: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    state, most = PLACES[place]
    path, options = warehouses(place)
    table, counted = statestore.inspect(path, **options).table(state), RowsRead(monkeypatch)
    rows, column = table.scan().read_all(), table.table.key_columns[0]
    row = next(each for each in rows.to_pylist() if all(value is not None for value in flat(each[column])))
    key, is_whole = row[column], table.table.lookup_columns[0] == table.table.row_key
    assert most < len(rows)
    for named in spellings(column, key) if is_whole else ():
        assert counted.of(table.get, named) == row, named
        assert 1 <= counted.rows <= most, named

    def history(named: Any) -> pa.Table:
        return table.history(key=named).read_all()

    def scan(chosen: tuple[Any, ...]) -> pa.Table:
        return table.scan(filter=chosen).read_all()

    def sql(condition: str) -> pa.Table:
        return statestore.sql(str(path), f'SELECT * FROM "{state}" WHERE {condition}', **options)

    for named in spellings(column, key) if place.startswith(("own", "keyed", "spark")) else ():
        found = counted.of(history, named)
        assert 1 <= len(found) <= counted.rows <= most * len(found), named
    for chosen in ((column, "=", key), (column, "in", [key, key])):
        assert len(counted.of(scan, chosen)) >= 1
        assert 1 <= counted.rows <= most, chosen
    for condition in conditions(column, key):
        assert len(counted.of(sql, condition)) >= 1
        assert 1 <= counted.rows <= most, condition


def flat(value: Any) -> list[Any]:
    return [leaf for part in value.values() for leaf in flat(part)] if isinstance(value, dict) else [value]


def test_a_key_with_a_hash_of_its_own_is_looked_for_in_a_whole_heap_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Key groups have no index, and only the class of the key computes its group."""
    table = statestore.inspect(snapshot_of("hashmap", "savepoint")).table("kv-pojo.latest")
    rows, counted = table.scan().read_all().to_pylist(), RowsRead(monkeypatch)
    assert counted.of(table.get, rows[0]["key"]) == rows[0]
    assert counted.rows == len(rows)
