"""Every door says the same of a store that was dropped, replaced or rebuilt while it was open."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.object_stores.doubles import memory_location

import statestore
from statestore.catalog.catalog import Catalog
from statestore.formats.places.locations import parse_location
from statestore.formats.state_table import Query

COLUMNS: dict[str, Any] = {"key": {"k": "string"}, "value": {"v": "bigint"}}
READS_OF_KEYS = 200
"""Reads of keys notice a new store a while later (docs/decisions/014)."""

Door = Callable[[Any, Any], object]


def often(read: Callable[[Any], object]) -> Door:
    return lambda store, sql: [read(store) for _ in range(READS_OF_KEYS)]


def query(text: str) -> Door:
    return lambda store, sql: sql.sql(text).fetchall()


DOORS: dict[str, Door] = {
    "get": often(lambda store: store.get("a")),
    "get as of": often(lambda store: store.get("a", as_of=2_000)),
    "get_many": often(lambda store: store.get_many(["a"])),
    "get_versions": often(lambda store: list(store.get_versions("a"))),
    "scan": lambda store, sql: store.scan().read_all(),
    "scan as of": lambda store, sql: store.scan(as_of=2_000).read_all(),
    "scan of a version": lambda store, sql: store.scan(version=1).read_all(),
    "history": lambda store, sql: store.history().read_all(),
    "changes": lambda store, sql: store.changes(start_version=0).read_all(),
    "versions": lambda store, sql: store.versions(),
    "refresh": lambda store, sql: store.refresh(),
    "metrics": lambda store, sql: store.metrics(),
    "splits": lambda store, sql: store.table.splits(Query()),
    "put and commit": lambda store, sql: (store.put("x", 1, timestamp=9_000), store.commit()),
    "commit": lambda store, sql: store.commit(),
    "write": lambda store, sql: store.write(pa.table({"k": ["x"], "v": [1], "timestamp": [9_000]})),
    "compact": lambda store, sql: store.compact(full=True),
    "expire": lambda store, sql: store.expire(before=1_001),
    "vacuum": lambda store, sql: store.vacuum(),
    "view": query("SELECT * FROM s"),
    "view of versions": query('SELECT * FROM "s$versions"'),
    "view of segments": query('SELECT * FROM "s$segments"'),
    "view of snapshots": query('SELECT * FROM "s$snapshots"'),
    "view of columns": query('SELECT * FROM "s$schema"'),
}
EVENTS: dict[str, Callable[[Catalog], object]] = {
    "dropped": lambda catalog: catalog.drop_store("s"),
    "replaced": lambda catalog: replace_store(catalog),
    "rebuilt": lambda catalog: catalog.rebuild("s", key_groups=64).close(),
}


def made(catalog: Catalog) -> Any:
    store = catalog.create_store("s", **COLUMNS)
    store.auto_compact = False
    for number, key in enumerate("ab"):
        store.put(key, number, timestamp=1_000 + number)
        store.commit()
    return store


def replace_store(catalog: Catalog) -> None:
    catalog.drop_store("s")
    made(catalog).close()


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("place", ["local", "objects"])
def test_every_door(tmp_path: Path, place: str, event: str) -> None:
    said = {}
    for name, door in DOORS.items():
        location = parse_location(tmp_path / name) if place == "local" else memory_location()
        catalog = statestore.connect(location.uri)
        store, sql = made(catalog), statestore.attach(location.uri)
        sql.sql("SELECT * FROM s").fetchall()
        EVENTS[event](statestore.connect(location.uri))
        try:
            said[name] = f"returned {door(store, sql)}"
        except Exception as error:  # DuckDB wraps it in one of its own
            said[name] = str(error)
        store.close()
    wrong = {name: text for name, text in said.items() if "[STORE_REPLACED]" not in text or "open it again" not in text}
    assert not wrong
