"""Statements over states that engines wrote, against the same changes of their rows in Python; and what they cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from support.checkpoints.spark_state_fixtures import MORE, checkpoint_path
from support.command_line import run
from support.flink.fixtures import fixture, manifest
from support.kafka.unpacked import stores_file, unpack
from support.rows_read import RowsRead

import statestore
from statestore.connector.edit.edit import Edit
from statestore.formats.engine import StateInfo
from statestore.formats.errors import StateStoreError

Row = dict[str, Any]
Rows = list[Row]


@cache
def snapshot_of(run: str, form: str) -> Path:
    found = [each["path"] for each in manifest(run)["snapshots"] if form in each["path"]]
    return fixture(run) / str(found[-1])


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, Any]]]:
    folder = unpack("orders", tmp_path_factory.mktemp("kafka"))
    yield folder / "state" / "orders", {"stores_file": str(stores_file("orders", folder / "stores.toml"))}


AGG = "spark4.3.0-agg__hdfs"
JOIN = "spark4.3.0-join__hdfs"
VARIABLES = "spark4.3.0-twsttl__rkcl"


def each(where: Callable[[Row], Any], change: Callable[[Row], object]) -> Callable[[Rows], Rows]:
    """A change of the rows for which a condition holds."""

    def changed(rows: Rows) -> Rows:
        for row in rows:
            if where(row):
                change(row)
        return rows

    return changed


def without(where: Callable[[Row], Any]) -> Callable[[Rows], Rows]:
    return lambda rows: [row for row in rows if not where(row)]


def field(*path: str, value: Any) -> Callable[[Row], object]:
    def change(row: Row) -> None:
        inner = row
        for name in path[:-1]:
            inner = inner[name]
        inner[path[-1]] = value(row) if callable(value) else value

    return change


@dataclass(frozen=True)
class Case:
    place: Callable[[], Path]
    state: str
    text: str
    change: Callable[[Rows], Rows]


CASES = {
    "a field of a struct": Case(
        lambda: checkpoint_path(AGG),
        "state",
        "UPDATE state SET value.sum = 26, value.max = NULL WHERE key.k = 'key-06-éé'",
        each(
            lambda row: row["key"]["k"] == "key-06-éé",
            lambda row: row["value"].update({"sum": 26, "max": None}),
        ),
    ),
    "a scan by a value": Case(
        lambda: checkpoint_path(AGG),
        "state",
        "UPDATE state SET value.count = value.count * 2 WHERE value.sum % 2 = 0 AND partition_id >= 0",
        each(
            lambda row: row["value"]["sum"] % 2 == 0,
            field("value", "count", value=lambda row: row["value"]["count"] * 2),
        ),
    ),
    "a whole struct": Case(
        lambda: checkpoint_path(AGG),
        "state",
        "UPDATE state SET value = {'max': 'm', 'sum_1': 0.5, 'count': 1, 'count_1': 2, 'sum': NULL} "
        "WHERE key = {'k': 'key-00-'}",
        each(
            lambda row: row["key"]["k"] == "key-00-",
            field("value", value={"count": 1, "sum": None, "sum_1": 0.5, "count_1": 2, "max": "m"}),
        ),
    ),
    "a row that comes": Case(
        lambda: checkpoint_path(AGG),
        "state",
        "INSERT INTO state SELECT {'k': 'new'}, value FROM state WHERE key.k = 'key-00-'",
        lambda rows: [*rows, *({**row, "key": {"k": "new"}} for row in rows if row["key"]["k"] == "key-00-")],
    ),
    "a join side": Case(
        lambda: checkpoint_path(JOIN),
        "left",
        "DELETE FROM left WHERE key.field0 = 'key-21-é' AND value.v < 400",
        without(lambda row: row["key"]["field0"] == "key-21-é" and row["value"]["v"] < 400),
    ),
    "null keys of a map": Case(
        lambda: checkpoint_path(VARIABLES),
        "mp",
        "UPDATE mp SET user_map_value.mv = 0 WHERE key.k IS NULL",
        each(lambda row: row["key"]["k"] is None, field("user_map_value", "mv", value=0.0)),
    ),
    "a list": Case(
        lambda: checkpoint_path(VARIABLES),
        "lst",
        "UPDATE lst SET list_element.e = -1 WHERE key.id = 0 AND list_element.e > 100",
        each(
            lambda row: row["key"]["id"] == 0 and row["list_element"]["e"] > 100, field("list_element", "e", value=-1)
        ),
    ),
    "a field in a field": Case(
        lambda: checkpoint_path(VARIABLES),
        "tval",
        "UPDATE tval SET value.value.n = value.value.n + 1 WHERE key.id IN (20, 21)",
        each(
            lambda row: row["key"]["id"] in (20, 21),
            field("value", "value", "n", value=lambda row: row["value"]["value"]["n"] + 1),
        ),
    ),
    "keys with durations": Case(
        lambda: checkpoint_path("spark3.5.9-keys__hdsn", MORE),
        "state",
        "UPDATE state SET value.count = -1 WHERE value.count > 1 AND key.k LIKE 'l%'",
        each(
            lambda row: row["value"]["count"] > 1 and (row["key"]["k"] or "").startswith("l"),
            field("value", "count", value=-1),
        ),
    ),
    "a list of Flink": Case(
        lambda: snapshot_of("hashmap", "savepoint"),
        "kv-long.history",
        'DELETE FROM "kv-long.history" WHERE position = 0',
        without(lambda row: row["position"] == 0),
    ),
    "a map of Flink": Case(
        lambda: snapshot_of("rocksdb", "chk-"),
        "kv-string.attrs",
        "MERGE INTO \"kv-string.attrs\" t USING (VALUES ('user-9', 'a0', 1), ('user-9', 'new', 2)) s(k, m, v) "
        "ON t.key = s.k AND t.map_key = s.m WHEN MATCHED THEN UPDATE SET map_value = s.v "
        "WHEN NOT MATCHED THEN INSERT (key, map_key, map_value) VALUES (s.k, s.m, s.v)",
        lambda rows: [
            *each(lambda row: (row["key"], row["map_key"]) == ("user-9", "a0"), field("map_value", value=1))(rows),
            {"key": "user-9", "map_key": "new", "map_value": 2},
        ],
    ),
}


def rows_after(edit: Edit, state: str, rows: Rows, info: StateInfo) -> Counter[str]:
    """All rows of a state after an edit, which must name whole units as they are."""
    found = [each for each in edit.edits() if each.state == state]
    assert len(found) == 1
    unit = tuple(name for name in info.row_key or info.key if name not in info.placement)
    assert found[0].unit == unit
    named = [row for side in (found[0].removed, found[0].added) for row in side.to_pylist()]
    touched = {repr([row[name] for name in unit]) for row in named}
    mine = [row for row in rows if repr([row[name] for name in unit]) in touched]
    assert Counter(map(repr, mine)) == Counter(map(repr, found[0].removed.to_pylist()))
    others = [row for row in rows if repr([row[name] for name in unit]) not in touched]
    return Counter(map(repr, [*others, *found[0].added.to_pylist()]))


@pytest.mark.parametrize("name", CASES)
def test_rows_of_engines_change_as_stated(name: str) -> None:
    case = CASES[name]
    edit = statestore.edit(case.place())
    table = statestore.inspect(case.place()).table(case.state)
    info = table.table.info  # type: ignore[attr-defined]
    kept = [name for name in table.schema.names if name not in info.placement]
    rows = table.scan(columns=kept).read_all().to_pylist()
    edit.sql(case.text)
    expected = case.change(deepcopy(rows))
    assert Counter(map(repr, expected)) != Counter(map(repr, rows)), "the statement changes nothing"
    assert rows_after(edit, case.state, rows, info) == Counter(map(repr, expected))


@pytest.mark.parametrize("headers", ["NULL", "[NULL]", "[{'name': NULL, 'value': NULL}]"])
def test_headers_that_no_record_has_are_refused(kafka: tuple[Path, dict[str, Any]], headers: str) -> None:
    edit = statestore.edit(kafka[0], **kafka[1])
    edit.sql(f"UPDATE audited SET headers = {headers}")
    assert "null headers in a row" in str(edit.preview().refused)


def test_the_receipt_of_an_edit_without_changes_is_shown(tmp_path: Path) -> None:
    """Its target has no records, so that it holds no state."""
    target, source = tmp_path / "target", unpack("ledger", tmp_path) / "state" / "ledger"
    with statestore.edit(source, target, stores_file=str(stores_file("ledger", tmp_path / "stores.toml"))):
        pass
    shown = run("inspect", target)
    assert shown.code == 0 and f"made from {source}" in shown.err and "holds no state yet" not in shown.err
    receipt = statestore.inspect(target).receipt()
    assert receipt is not None and receipt.states == ()
    (target / "edit.json").write_text("{}")
    assert run("inspect", target).code != 0


def test_a_store_of_kafka_streams(kafka: tuple[Path, dict[str, Any]]) -> None:
    path, options = kafka
    table = statestore.inspect(path, **options).table("stock")
    info = table.table.info  # type: ignore[attr-defined]
    kept = [name for name in table.schema.names if name not in info.placement]
    rows = table.scan(columns=kept).read_all().to_pylist()
    edit = statestore.edit(path, **options)
    edit.sql("DELETE FROM stock WHERE key = (SELECT min(key) FROM stock)")
    least = min(row["key"] for row in rows)
    expected = Counter(repr(row) for row in rows if row["key"] != least)
    assert rows_after(edit, "stock", rows, info) == expected


# Cost

LOOKED_UP = {
    "a constant": ('UPDATE "kv-string.count" SET value = 1 WHERE key = {0}', 1),
    "a list of constants": ('DELETE FROM "kv-string.count" WHERE key IN ({0}, {1}, {0}) AND value > 0', 2),
    "a query": (
        "DELETE FROM \"kv-string.count\" WHERE key IN (SELECT k FROM (VALUES ({0}), ({1}), ('none')) s(k))",
        2,
    ),
    "another table": (
        "UPDATE \"kv-string.count\" AS t SET value = s.v FROM (VALUES ({0}, 1), ({1}, 2), ('none', 3)) s(k, v) "
        "WHERE s.v < 3 AND t.key = s.k",
        2,
    ),
    "a merge": (
        "MERGE INTO \"kv-string.count\" t USING (VALUES ({0}, 1), ('none', 3)) s(k, v) ON s.k = t.key "
        "WHEN MATCHED THEN UPDATE SET value = s.v WHEN NOT MATCHED THEN INSERT (key, value) VALUES (s.k, s.v)",
        1,
    ),
    "a row that comes": ("INSERT INTO \"kv-string.count\" (key, value) VALUES ('none', 1)", 0),
}


@pytest.mark.parametrize("name", LOOKED_UP)
def test_keys_are_looked_up(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No row is read that the statement does not name, and none twice."""
    text, most = LOOKED_UP[name]
    path = snapshot_of("rocksdb", "chk-")
    keys = statestore.inspect(path).table("kv-string.count").scan(columns=["key"]).read_all()["key"].to_pylist()
    assert len(keys) > 5
    edit, counted = statestore.edit(path), RowsRead(monkeypatch)
    counted.of(edit.sql, text.format(*(f"'{key}'" for key in keys)))
    assert edit.edits()
    assert counted.rows <= most


def test_fields_of_a_key_are_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    path = checkpoint_path("spark4.3.0-win__rkcl")
    rows = statestore.inspect(path).table("state").scan(columns=["key"]).read_all()
    assert rows.num_rows > 20
    edit, counted = statestore.edit(path), RowsRead(monkeypatch)
    counted.of(
        edit.sql,
        "UPDATE state SET value.sum = 0 FROM (SELECT k, TIMESTAMPTZ '2024-01-01 00:50:00+00' AS f, TIMESTAMPTZ "
        "'2024-01-01 00:55:00+00' AS t FROM (VALUES ('key-48-'), ('key-32-')) v(k)) s "
        'WHERE state.key.k = s.k AND state.key."window".start = s.f AND state.key."window"."end" = s.t',
    )
    assert counted.rows <= 2
    assert sum(each.added.num_rows for each in edit.edits()) == 2


# Rows of a scan

PUT_BACK: dict[str, tuple[Callable[[], Path], str]] = {
    "an aggregation": (lambda: checkpoint_path(AGG), "state"),
    "a variable with a time": (lambda: checkpoint_path(VARIABLES), "tval"),
    "windows": (lambda: checkpoint_path("spark4.3.0-win__rkcl"), "state"),
    "a map of Flink": (lambda: snapshot_of("rocksdb", "chk-"), "kv-string.attrs"),
}


@pytest.mark.parametrize("name", PUT_BACK)
def test_rows_of_a_scan_can_be_put_back(name: str) -> None:
    place, state = PUT_BACK[name]
    table = statestore.inspect(place()).table(state)
    rows = table.scan().read_all()
    assert set(table.table.info.placement) & set(rows.column_names)  # type: ignore[attr-defined]
    edit = statestore.edit(place())
    edit.table(state).put_all(rows)
    edit.table(state).put(rows.slice(0, 1).to_pylist()[0])
    assert rows.num_rows and not edit.edits()


def test_a_preview_shows_times_beyond_those_of_python() -> None:
    edit = statestore.edit(checkpoint_path("spark4.3.0-aggmulti__hdfs"))
    edit.sql("UPDATE state SET value.max = '20001-02-03 00:00:00Z' WHERE key.i = 39000")
    assert "20001-02-03" in str(edit.preview())


def test_a_state_is_found_by_the_name_behind_its_operator() -> None:
    edit = statestore.edit(snapshot_of("rocksdb", "chk-"))
    edit.sql("UPDATE Count SET value = (SELECT s.value FROM sum s WHERE s.key = count.key) WHERE value > 0")
    whole = statestore.edit(snapshot_of("rocksdb", "chk-"))
    whole.sql(
        'UPDATE "kv-string.count" c SET value = (SELECT s.value FROM "kv-string.sum" s WHERE s.key = c.key) '
        "WHERE value > 0"
    )
    (found,), (expected,) = edit.edits(), whole.edits()
    assert found.state == "kv-string.count" and found.added.num_rows
    assert found.added.equals(expected.added) and found.removed.equals(expected.removed)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("DELETE FROM detail; DELETE FROM event_user-timers", 'has quotes: "kv-long.event_user-timers"|INVALID_SQL'),
        ('DELETE FROM "event_user-timers"', "TABLE_NOT_FOUND"),
        ("UPDATE kv-string.count SET value = 1", 'has quotes: "kv-string.count"'),
    ],
)
def test_names_that_are_not_clear_are_refused(text: str, message: str) -> None:
    edit = statestore.edit(snapshot_of("rocksdb", "chk-"))
    with pytest.raises(StateStoreError, match=message):
        edit.sql(text)
    assert not edit.edits()


def test_all_rows_go_from_a_state_whose_types_follow_from_its_values(tmp_path: Path) -> None:
    """Without rows, it has other types of columns than before."""
    source, state = snapshot_of("rocksdb", "savepoint-"), "opaque.m-kryo"
    assert rows_in(source, state) > 0
    with statestore.edit(source, tmp_path / "target") as edit:
        edit.sql(f'DELETE FROM "{state}"')
    assert rows_in(tmp_path / "target", state) == 0
    assert rows_in(tmp_path / "target", f"{state}-map") == rows_in(source, f"{state}-map") > 0


def rows_in(path: Path, state: str) -> int:
    return int(statestore.inspect(path)[state].scan().read_all().num_rows)
