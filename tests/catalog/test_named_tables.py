"""Tables of a warehouse by name: a table that is named costs no look at other stores, and no question to an engine."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import statestore
from statestore.catalog import store_tables, warehouse
from statestore.catalog.log import store_locations, store_spec
from statestore.formats.places.locations import Location

KEY, VALUE = {"item": "string"}, {"price": "double"}


@pytest.fixture
def stores(tmp_path: Path) -> Path:
    catalog = statestore.connect(tmp_path / "stores")
    for name in ("prices", "rates", "a.b"):
        with catalog.create_store(name, key=KEY, value=VALUE) as store:
            store.put("tea", {"price": 1.5}, timestamp=1000)
            store.commit()
    sessions = catalog.create_store("sessions", kind="keyed", key={"item": "string"})
    with sessions, sessions.backend() as backend:
        backend.value_state("counts", "bigint")
        sessions.commit([backend.snapshot("full").result()])
    return tmp_path / "stores"


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The stores whose descriptions are read beside that of the opened one."""
    found: list[str] = []
    described = store_tables._described

    def noted(location: Location) -> object:
        found.append(location.name)
        return described(location)

    monkeypatch.setattr(store_tables, "_described", noted)
    return found


def test_a_named_table_costs_one_look(stores: Path, looked_at: list[str]) -> None:
    row = statestore.inspect(stores).table("prices").get("tea")
    assert row is not None and row["price"] == 1.5
    assert looked_at == ["prices"]
    assert statestore.sql(str(stores), "SELECT price FROM prices").to_pylist() == [{"price": 1.5}]
    assert looked_at == ["prices"] * 2


def test_each_store_is_looked_at_once(stores: Path, looked_at: list[str]) -> None:
    found = statestore.inspect(stores)
    for _ in range(2):
        for name in ("prices", "rates"):
            assert found.table(name).get("tea") is not None
    assert looked_at == ["prices", "rates"]
    assert "coffee" not in found and "sessions" not in found


def test_attach_reads_each_description_once(stores: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[object] = []
    decode = store_spec.decode_spec

    def noted(content: bytes, *given: Any, **named: Any) -> object:
        read.append(content)
        return decode(content, *given, **named)

    with statestore.connect(stores).open_store("prices") as store:
        store.put("mate", {"price": 2.5}, timestamp=2000)
        store.commit()
    shutil.rmtree(stores / "sessions")  # keyed: it is pinned, and its own description is in its snapshots, too
    monkeypatch.setattr(store_locations, "decode_spec", noted)
    with statestore.attach(str(stores)) as connection:
        assert len(read) == len(set(read)) == 3
        assert connection.execute("SELECT count(*) FROM prices").fetchall() == [(2,)]
        with statestore.connect(stores).open_store("prices") as store:
            store.put("cake", {"price": 3.5}, timestamp=3000)
            store.commit()
        assert connection.execute("SELECT count(*) FROM prices").fetchall() == [(3,)]


def test_names_with_a_dot_are_stores_or_states(stores: Path, looked_at: list[str]) -> None:
    found = statestore.inspect(stores)
    assert found.table("a.b").get("tea") is not None
    assert looked_at == ["a.b"]
    asked = ("a", "a.c", "b", "sessions.counts", "sessions.sums", ".counts")
    assert [name for name in asked if name in found] == ["sessions.counts"]
    assert set(found.tables()) == {"a.b", "prices", "rates", "sessions.counts"}


def test_a_damaged_store_is_named_and_others_are_read(stores: Path) -> None:
    (stores / "rates" / "store.json").write_bytes(b"{}")
    found = statestore.inspect(stores)
    assert "rates" in found and "rates.any" in found and "sessions.any" not in found
    with pytest.raises(statestore.CorruptError, match="rates"):
        found.table("rates")
    assert found.table("prices").get("tea") is not None


def test_stores_with_names_of_an_engine_are_stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders called commits and state are those of a checkpoint, unless they are stores."""
    catalog = statestore.connect(tmp_path / "stores")
    for name in ("commits", "state", "offsets"):
        with catalog.create_store(name, key=KEY, value=VALUE) as store:
            store.put("tea", {"price": 1.5}, timestamp=1000)
            store.commit()
    with monkeypatch.context() as patch:
        patch.setattr(warehouse, "recognised", None)  # not asked
        assert statestore.inspect(tmp_path / "stores").tables() == ["commits", "offsets", "state"]
    (tmp_path / "stores" / "sources").mkdir()  # and now it may be a checkpoint
    with pytest.raises(statestore.StateStoreError):
        statestore.inspect(tmp_path / "stores").table("state").scan().read_all()
