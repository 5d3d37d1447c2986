"""`statestore.attach` and `statestore.sql` over a real warehouse, and over states of a Flink job."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest
from support.flink.fixtures import fixture, manifest, taken_us, truth
from support.parameters import mostly_slow

import statestore
from statestore.catalog.catalog import connect
from statestore.catalog.log import store_locations, store_spec
from statestore.catalog.log.store_spec import StoreSpec
from statestore.catalog.stores.versioned.versioned_store import VersionedStore
from statestore.connector.duckdb.attach import attach
from statestore.connector.sql.query import sql
from statestore.formats.engine import Source, StateInfo
from statestore.formats.engines import EngineOpening
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import NotFoundError
from statestore.formats.flink.source import FlinkSource
from statestore.formats.values.times import to_datetime

ROWS = "SELECT item, price FROM prices ORDER BY item"


@pytest.fixture
def prices(tmp_path: Path) -> VersionedStore:
    store = connect(str(tmp_path)).create_store(
        "prices", kind="versioned", key={"item": "string"}, value={"price": "double"}
    )
    store.put("curry", 8.0, timestamp=0)
    store.put("milk", 2.0, timestamp=1)
    store.commit()
    store.put("curry", 9.0, timestamp=5000)
    store.commit()
    return store


def test_every_table_and_its_metadata_is_a_view(prices: VersionedStore, tmp_path: Path) -> None:
    names = {name for (name,) in attach(str(tmp_path)).sql("SHOW TABLES").fetchall()}
    assert {"prices", "prices$versions", "prices$segments", "prices$snapshots", "prices$schema"} == names


def test_attaching_opens_each_store_once(
    prices: VersionedStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its metadata tables are of the same opened store."""
    connect(tmp_path).create_store("other", kind="versioned", key={"k": "string"}, value={"v": "bigint"}).close()
    described: list[str] = []
    decode = store_spec.decode_spec

    def counting(data: bytes, where: str) -> StoreSpec:
        described.append(Path(where).parent.name)
        return decode(data, where)

    monkeypatch.setattr(store_locations, "decode_spec", counting)
    connection = attach(str(tmp_path))
    assert sorted(described) == ["other", "prices"]
    assert connection.sql('SELECT count(*) FROM "other$versions"').fetchall() == [(1,)]


def test_an_attached_view_follows_the_store(prices: VersionedStore, tmp_path: Path) -> None:
    connection = attach(str(tmp_path))
    assert connection.sql(ROWS).fetchall() == [("curry", 9.0), ("milk", 2.0)]
    prices.put("tea", 1.0, timestamp=6000)
    prices.commit()
    assert connection.sql(ROWS).fetchall() == [("curry", 9.0), ("milk", 2.0), ("tea", 1.0)]


@pytest.mark.parametrize("when", [{"as_of": 3000}, {"version": 1}])
def test_a_path_can_be_attached_as_it_was(prices: VersionedStore, tmp_path: Path, when: dict[str, int]) -> None:
    assert attach(str(tmp_path), **when).sql(ROWS).fetchall() == [("curry", 8.0), ("milk", 2.0)]


def test_one_store_is_a_path_too(prices: VersionedStore, tmp_path: Path) -> None:
    assert attach(str(tmp_path / "prices")).sql(ROWS).fetchall() == [("curry", 9.0), ("milk", 2.0)]


def test_sql_reads_both_coordinates_of_time(prices: VersionedStore, tmp_path: Path) -> None:
    prices.put("curry", 8.5, timestamp=2000)  # a late record: version 2 did not know of it
    prices.commit()
    text = "SELECT price FROM prices {} WHERE item = 'curry'"
    for clause, price in [
        ("", 9.0),
        ("TIMESTAMP AS OF 3000", 8.5),
        ("AT (VERSION => 2) TIMESTAMP AS OF 3000", 8.0),
        ("VERSION AS OF 1", 8.0),
    ]:
        assert sql(str(tmp_path), text.format(clause)).to_pylist() == [{"price": price}], clause


def test_history_of_commits_is_newest_first(prices: VersionedStore, tmp_path: Path) -> None:
    assert sql(str(tmp_path), "DESCRIBE HISTORY prices")["version"].to_pylist() == [2, 1, 0]


def test_a_version_that_does_not_exist_states_the_range(prices: VersionedStore, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="versions 0 to 2"):
        sql(str(tmp_path), "FROM prices AT (VERSION => 9)")


# States of a Flink job: every listed state has its rows, and types arrive whole

FEW_STATES = "unaligned"


@pytest.fixture(scope="module")
def attached() -> Any:
    return statestore.attach(str(fixture("hashmap")))


def true_lines(run: str, operator: str, state: str, version: int) -> list[dict[str, Any]]:
    (file,) = [each["truth"] for each in manifest(run)["snapshots"] if each["checkpoint_id"] == version]
    return [line for line in truth(run, file) if (line["operator"], line["state"]) == (operator, state)]


def test_states_are_tables(attached: Any) -> None:
    names = {name for (name,) in attached.sql("SELECT table_name FROM information_schema.tables").fetchall()}
    assert {"kv-long.balance", "kv-long.history", "win-tumble.window-contents", "timers.event_user-timers"} <= names
    rows = attached.sql('SELECT key, value FROM "kv-long.balance"').fetchall()
    assert dict(rows) == {line["key"]: line["value"] for line in true_lines("hashmap", "kv-long", "balance", 3)}


def test_lists_and_maps_are_rows_that_sql_groups(attached: Any) -> None:
    lists = attached.sql('SELECT key, list(value ORDER BY position) FROM "kv-long.history" GROUP BY key').fetchall()
    known = {line["key"]: line["value"] for line in true_lines("hashmap", "kv-long", "history", 3)}
    assert dict(lists) == {key: value for key, value in known.items() if value}
    counts = attached.sql('SELECT key, count(*) FROM "kv-string.attrs" GROUP BY key').fetchall()
    assert dict(counts) == {line["key"]: len(line["value"]) for line in true_lines("hashmap", "kv-string", "attrs", 3)}


def test_fields_of_keys_and_windows(attached: Any) -> None:
    ((found,),) = attached.sql("SELECT count(*) FROM \"kv-tuple.m\" WHERE key.f0 = 'g1' AND key.f1 = 1").fetchall()
    lines = true_lines("hashmap", "kv-tuple", "m", 3)
    assert found == sum(len(line["value"]) for line in lines if line["key"] == ["g1", 1]) > 0
    ((start,),) = attached.sql('SELECT min(namespace.start) FROM "win-tumble.window-contents"').fetchall()
    first = min(line["namespace"]["start"] for line in true_lines("hashmap", "win-tumble", "window-contents", 3))
    assert start == datetime.datetime.fromtimestamp(first / 1000, datetime.UTC)


def test_a_version_and_a_moment() -> None:
    for version in (2, 3):
        known = {line["key"]: line["value"] for line in true_lines("hashmap", "kv-long", "balance", version)}
        moment = to_datetime(taken_us(version)).isoformat()
        for point in (f"VERSION AS OF {version}", f"TIMESTAMP AS OF '{moment}'"):
            rows = statestore.sql(str(fixture("hashmap")), f'SELECT key, value FROM "kv-long.balance" {point}')
            assert {row["key"]: row["value"] for row in rows.to_pylist()} == known, point


@pytest.mark.parametrize("run", mostly_slow(["types-hashmap", "types-rocksdb"], 2))
def test_every_type_of_value_arrives(run: str) -> None:
    connection = statestore.attach(str(fixture(run)))
    opened = statestore.inspect(fixture(run))
    for state in opened.tables():
        table = opened.table(state).scan().read_all()
        assert len(connection.sql(f'SELECT * FROM "{state}"').fetchall()) == table.num_rows


def test_a_job_is_opened_once_for_all_views(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[EngineOpening] = []
    opens = EngineOpening.open

    def counted(opening: EngineOpening) -> Source:
        opened.append(opening)
        return opens(opening)

    monkeypatch.setattr(EngineOpening, "open", counted)
    connection = statestore.attach(str(fixture(FEW_STATES)))
    assert len(opened) == 1
    assert connection.sql('FROM "kv-long.balance"').fetchall()


def test_a_version_that_goes_while_a_job_is_attached(monkeypatch: pytest.MonkeyPatch) -> None:
    """The job is opened again, as for each single question."""
    gone: list[FlinkSource] = []
    info = FlinkSource.info

    def removed(source: FlinkSource, state: str) -> StateInfo:
        if not gone:
            gone.append(source)
        if source is gone[0]:
            raise NotFoundError(ErrorCode.VERSION_GONE, "the checkpoint was removed")
        return info(source, state)

    monkeypatch.setattr(FlinkSource, "info", removed)
    monkeypatch.setattr(FlinkSource, "holding", lambda source: source)  # as in an object store
    connection = statestore.attach(str(fixture(FEW_STATES)))
    assert connection.sql('FROM "kv-long.balance"').fetchall()
