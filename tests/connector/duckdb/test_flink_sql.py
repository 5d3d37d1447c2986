"""States of a Flink job in DuckDB: every listed state has its rows, and types arrive whole."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from support.flink.fixtures import fixture, manifest, taken_us, truth
from support.parameters import mostly_slow

import statestore
from statestore.formats.values.times import to_datetime


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
