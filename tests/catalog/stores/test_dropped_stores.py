"""Every door says the same of a store that was dropped, replaced or rebuilt while it was open."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import pyarrow as pa
import pytest
from support.object_stores.doubles import memory_location
from support.parameters import mostly_slow

import statestore
from statestore.catalog.catalog import Catalog
from statestore.catalog.reads.segment_files import shared_files
from statestore.catalog.upkeep import store_folders
from statestore.formats.places.locations import parse_location
from statestore.formats.state_table import Query

COLUMNS: dict[str, Any] = {"key": {"k": "string"}, "value": {"v": "bigint"}}
Door = Callable[[Any, Any], object]


def query(text: str) -> Door:
    return lambda store, sql: sql.sql(text).fetchall()


DOORS: dict[str, Door] = {
    "get": lambda store, sql: store.get("a"),
    "get as of": lambda store, sql: store.get("a", as_of=2_000),
    "get_many": lambda store, sql: store.get_many(["a"]),
    "get_versions": lambda store, sql: list(store.get_versions("a")),
    "scan": lambda store, sql: store.scan().read_all(),
    "scan as of": lambda store, sql: store.scan(as_of=2_000).read_all(),
    "scan of a version": lambda store, sql: store.scan(version=1).read_all(),
    "history": lambda store, sql: store.history().read_all(),
    "changes": lambda store, sql: store.changes(start_version=0).read_all(),
    "versions": lambda store, sql: store.versions(),
    "refresh": lambda store, sql: store.refresh(),
    "metrics": lambda store, sql: store.metrics(),
    "splits": lambda store, sql: store.table.splits(Query()),
    "put": lambda store, sql: store.put("x", 1, timestamp=9_000),
    "put_all": lambda store, sql: store.put_all(pa.table({"k": ["x"], "v": [1], "timestamp": [9_000]})),
    "delete": lambda store, sql: store.delete("a", timestamp=9_000),
    "restore": lambda store, sql: store.restore([("x", 1, 9_000)]),
    "flush": lambda store, sql: store.flush(),
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


@pytest.mark.quick("local-rebuilt")
@pytest.mark.parametrize("event", mostly_slow(EVENTS, ["rebuilt"]))
@pytest.mark.parametrize("place", ["local", "objects"])
def test_every_door(tmp_path: Path, place: str, event: str) -> None:
    said = {}
    for name, door in DOORS.items():
        location = parse_location(tmp_path / name) if place == "local" else memory_location()
        catalog = statestore.connect(location.uri)
        store, sql = made(catalog), None
        if name.startswith("view"):
            sql = statestore.attach(location.uri)
            sql.sql("SELECT * FROM s").fetchall()
        EVENTS[event](statestore.connect(location.uri))
        try:
            said[name] = f"returned {door(store, sql)}"
        except Exception as error:  # DuckDB wraps it in one of its own
            said[name] = str(error)
        store.close()
    wrong = {name: text for name, text in said.items() if "[STORE_REPLACED]" not in text or "open it again" not in text}
    assert not wrong


@pytest.mark.local_files
@pytest.mark.parametrize("door", ["get", "get as of", "put", "delete"])
def test_calls_for_one_key_after_a_drop_by_another_process(tmp_path: Path, door: str) -> None:
    """They look at the store at most once a millisecond (docs/decisions/007-store-identity.md)."""
    catalog = statestore.connect(tmp_path)
    store = made(catalog)
    DOORS[door](store, None)
    store_folders.remove_store(tmp_path, "s")  # the other process cannot tell this one
    while perf_counter_ns() < shared_files(store._storage, store.spec).log.look_at:
        pass
    with pytest.raises(statestore.NotFoundError, match="STORE_REPLACED"):
        DOORS[door](store, None)
    store.close()


LIVE: dict[str, tuple[dict[str, Any], dict[str, Callable[[Any], object]]]] = {
    "versioned": (
        {"serde": "kafka", "history_retention": "1 day"},
        {"put": lambda store: store.put("a", 1, timestamp=1_000), "get": lambda store: store.get("a")},
    ),
    "key_value": (
        {},
        {
            "put": lambda store: store.put("a", 1),
            "get": lambda store: store.get("a"),
            "all": lambda s: list(s.all()),
        },
    ),
    "window": (
        {"retention": "1 hour", "window_size": "1 minute"},
        {"put": lambda store: store.put("a", 1, 0), "fetch": lambda store: store.fetch("a", 0)},
    ),
    "session": (
        {"retention": "1 hour"},
        {"put": lambda store: store.put("a", 1, 0, 5), "fetch": lambda store: list(store.fetch("a"))},
    ),
    "join_window": (
        {"retention": "1 hour", "window_before": "1 minute", "window_after": "1 minute"},
        {"put": lambda store: store.put("a", 1, 0), "fetch": lambda store: list(store.fetch("a", 0))},
    ),
}
"""Options and calls by kind. A handle that owns a store keeps it from being dropped, so these have not begun to."""


@pytest.mark.local_files
@pytest.mark.parametrize("kind", LIVE)
def test_handles_that_do_not_own_their_store_yet(tmp_path: Path, kind: str) -> None:
    catalog = statestore.connect(tmp_path)
    options, calls = LIVE[kind]
    ends: list[Callable[[Any], object]] = [lambda store: store.flush(), lambda store: store.commit()]
    for call in (*calls.values(), *ends):
        catalog.create_store("s", kind=kind, **COLUMNS, **options).close()
        store = catalog.open_store("s")
        catalog.drop_store("s")
        with pytest.raises(statestore.NotFoundError, match="STORE_REPLACED"):
            call(store)
        store.close()


def test_a_backend_of_a_dropped_store(tmp_path: Path) -> None:
    """Its rows are in files of its own, and belong to no store any more."""
    catalog = statestore.connect(tmp_path)
    store = catalog.create_store("s", kind="keyed", key={"k": "string"})
    backend = store.backend()
    state = backend.value_state("v", "bigint")
    backend.set_current_key("a")
    state.update(1)
    part = backend.snapshot("full").result()
    catalog.drop_store("s")
    calls: list[Callable[[], object]] = [state.value, lambda: state.update(2), lambda: backend.snapshot("full")]
    calls += [lambda: store.commit([part]), store.backend, lambda: store.vacuum(0), store.retained]
    for call in calls:
        with pytest.raises(statestore.NotFoundError, match="STORE_REPLACED"):
            call()
    backend.dispose()
    store.close()
