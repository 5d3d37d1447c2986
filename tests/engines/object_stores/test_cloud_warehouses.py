"""Warehouses in Azure's blobs and in Google Cloud Storage, each on an emulator that is a process of its own."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from support.command_line import run
from support.keyed.keyed_made import make, rows
from support.object_stores.azure_server import AzureServer
from support.object_stores.gcs_server import GcsServer
from support.places import vacuumed

import statestore
from statestore.catalog.keyed.snapshots import stored_objects
from statestore.catalog.log.storage_objects import PART_BYTES, ObjectStorage
from statestore.formats.errors import ConflictError, NotFoundError
from statestore.formats.places.locations import parse_location

pytestmark = pytest.mark.slow

HOUR = 3_600_000
COLUMNS: dict[str, Any] = {"key": {"k": "string"}, "value": {"v": "bigint"}}
Server = AzureServer | GcsServer


@pytest.fixture(params=["azure_server", "gcs_server"])
def server(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("STATESTORE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("STATESTORE_LOCAL", str(tmp_path / "local"))
    return request.getfixturevalue(request.param)


def ok(warehouse: str) -> bool:
    return all(each.ok for each in statestore.verify(warehouse))


def test_a_versioned_store(server: Server) -> None:
    warehouse = server.warehouse("stores")
    catalog = statestore.connect(warehouse)
    with catalog.create_store("prices", key={"item": "string"}, value={"price": "double"}) as prices:
        prices.put("curry", 8.0, timestamp=1_000)
        first = prices.commit()
        prices.put("curry", 9.0, timestamp=2_000)
        prices.put("naan", 2.0, timestamp=1_500)
        prices.commit()
        for number in range(70):  # past a checkpoint of the log
            prices.put("dal", float(number), timestamp=3_000 + number)
            prices.commit()
        prices.compact(full=True)
        assert prices.vacuum(dry_run=True) == []
        assert vacuumed(prices) != []  # what the compaction replaced
    assert catalog.stores() == ["prices"]
    with statestore.connect(warehouse).open_store("prices") as prices:
        found = prices.get("curry", as_of=1_999)
        assert found is not None
        assert found.value == 8.0
        assert [row["item"] for row in prices.scan(as_of=1_400).read_all().to_pylist()] == ["curry"]
        assert [row["item"] for row in prices.scan(version=first).read_all().to_pylist()] == ["curry"]
    newest = [("curry", 9.0), ("dal", 69.0), ("naan", 2.0)]
    query = "SELECT item, price FROM prices ORDER BY item"
    assert [tuple(row.values()) for row in statestore.sql(warehouse, query).to_pylist()] == newest
    assert statestore.attach(warehouse).sql(query).fetchall() == newest
    (shown,) = run("get", warehouse, "prices", "curry", "--json").rows
    assert shown["price"] == 9.0
    assert [row["price"] for row in run("history", warehouse, "prices", "curry", "--json").rows] == [8.0, 9.0]
    assert ok(warehouse)
    with catalog.rebuild("prices", history_retention="1 day") as rebuilt:
        assert sorted(row["item"] for row in rebuilt.scan().read_all().to_pylist()) == ["curry", "dal", "naan"]
    assert ok(warehouse)
    catalog.drop_store("prices")
    assert catalog.stores() == []
    with pytest.raises(NotFoundError, match="STORE_NOT_FOUND"):
        catalog.open_store("prices")
    with catalog.create_store("prices", key={"item": "string"}, value={"price": "double"}) as again:
        assert again.scan().read_all().num_rows == 0


def test_live_stores(server: Server, tmp_path: Path) -> None:
    """Two commits, of which the first stays readable, acknowledged writes, and another machine."""
    warehouse = server.warehouse("live")
    catalog = statestore.connect(warehouse)
    kinds: dict[str, dict[str, Any]] = {
        "key_value": {}, "window": {"retention": 8 * HOUR, "window_size": 60_000}, "session": {"retention": 8 * HOUR},
    }  # fmt: skip

    def put(store: Any, kind: str, key: str, value: int) -> None:
        values = {"key_value": (value,), "window": (value, HOUR), "session": (HOUR, HOUR + 5, value)}[kind]
        store.put(key, *values)

    def values(store: Any, **moment: Any) -> dict[str, int]:
        return {row["k"]: row["v"] for row in store.scan(**moment).read_all().to_pylist()}

    for kind, options in kinds.items():
        store = catalog.create_store(kind, kind=kind, **COLUMNS, **options)
        for number in range(50):
            put(store, kind, f"key-{number}", number)
        first = store.commit()
        put(store, kind, "key-7", -7)
        store.commit()
        put(store, kind, "key-8", -8)
        store.close()
        elsewhere = statestore.connect(warehouse, local=tmp_path / "other")
        expected = {f"key-{number}": number for number in range(50)}
        with pytest.raises(ConflictError, match="STORE_LOCKED"):  # a write waits on the first machine for a commit
            put(elsewhere.open_store(kind), kind, "key-9", -9)
        with catalog.open_store(kind) as again:
            again.commit()
            assert values(again, version=first) == expected
            assert values(again) == expected | {"key-7": -7, "key-8": -8}
            again.compact(full=True)
        with elsewhere.open_store(kind) as other:
            put(other, kind, "key-9", -9)
            other.commit()
        found = statestore.sql(warehouse, f'SELECT k, v FROM "{kind}"').to_pylist()
        assert {row["k"]: row["v"] for row in found} == expected | {"key-7": -7, "key-8": -8, "key-9": -9}
    assert ok(warehouse)
    with catalog.rebuild("key_value", kind="versioned") as versioned:
        newest = versioned.get("key-9")
        assert newest is not None
        assert newest.value == -9


def test_a_keyed_store(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of snapshots go in parts, whatever their size."""
    monkeypatch.setattr(stored_objects, "WHOLE_BYTES", 0)
    warehouse = server.warehouse("keyed")
    made = make(warehouse, seed=5, tasks=2, versions=6, discard=(2,))
    for state, expected in made.newest.items():
        assert rows(made.table(state).scan().read_all()) == expected
        for version, kept in made.kept.items():
            assert rows(made.table(state).scan(version=version).read_all()) == kept[state]
    assert ok(warehouse)
    with statestore.connect(warehouse).open_store("sessions") as store, monkeypatch.context() as patch:
        with store.backend() as backend:
            backend.value_state("counts", "bigint")
            backend.map_state("attrs", "string", "double")
            left = sorted(backend.snapshot("full").result().files())  # never committed
        now = time.time_ns
        patch.setattr(time, "time_ns", lambda: now() + 25 * HOUR * 1_000_000)
        assert sorted(each.name for each in store.vacuum("1 day")) == left != []
    assert ok(warehouse)
    user = min(made.newest["counts"])[0]
    (shown,) = run("get", warehouse, "sessions.counts", user, "--json").rows
    assert shown["value"] == made.newest["counts"][user,]


def test_a_large_object_goes_in_parts(server: Server) -> None:
    storage = ObjectStorage(parse_location(server.warehouse("large")))
    pieces = [bytes([number]) * PART_BYTES for number in range(3)] + [b"end"]
    storage.create_in_parts("shared/a", iter(pieces))
    assert storage.size("shared/a") == 3 * PART_BYTES + 3
    assert storage.read("shared/a") == b"".join(pieces)


def test_missing_objects_do_not_keep_others_from_their_removal(server: Server) -> None:
    """Google Cloud Storage reports a missing object, and obstore then leaves the objects behind it."""
    storage = ObjectStorage(parse_location(server.warehouse("removed")))
    storage.create_many({f"segments/{name}": b"x" for name in "abc"})
    storage.delete_many([f"segments/{name}" for name in ("0", "a", "1", "b", "2")])
    assert [item.name for item in storage.list("segments/")] == ["segments/c"]
    storage.delete("segments/0")
