"""Keyed stores through Python, SQL and DuckDB, against plain dicts of the puts."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pytest
from support.command_line import run
from support.keyed.keyed_made import STATES, Made, Rows, make, prices, rows
from support.parameters import mostly_slow
from support.places import DIRECTORY, MEMORY, warehouse_in

import statestore
from statestore.formats.errors import InvalidInputError, NotFoundError, ReadOnlyError
from statestore.formats.rocksdb.key_ranges import KeyRange
from statestore.formats.rocksdb.scan import scan_rocksdb
from statestore.formats.state_table import Query
from statestore.formats.values.filters import Filter


@pytest.fixture(scope="module", params=mostly_slow([DIRECTORY, MEMORY], [DIRECTORY]))
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Snapshots 1 to 6 of two tasks, of which the third was discarded; and a plain store."""
    place = warehouse_in(request.param, request, tmp_path_factory.mktemp("warehouse"))
    made = make(place, seed=11, tasks=2, versions=6, discard=(3,))
    prices(made.path, "prices")
    return made


def in_duckdb(connection: duckdb.DuckDBPyConnection, text: str) -> Rows:
    return rows(connection.sql(text).to_arrow_table())


# Reading

CLAUSES = "VERSION AS OF {}", "AT (VERSION => {})"


@pytest.mark.parametrize("state", mostly_slow(STATES, STATES[:1]))
def test_every_kept_version_through_every_door(made: Made, state: str) -> None:
    table = made.table(state)
    forms = itertools.cycle(itertools.product(("sessions.{}", '"sessions.{}"', "Sessions.{}"), CLAUSES))
    assert 2 * len(made.kept) >= 6, "each form is used"
    for version, states in made.kept.items():
        expected, at = states[state], made.at(version).isoformat()
        assert rows(table.scan(version=version).read_all()) == expected
        assert rows(table.scan(as_of=made.at(version)).read_all()) == made.kept[last_at(made, version)][state]
        for name, clause in itertools.islice(forms, 2):
            shown = name.format(state.upper() if name[0] == "S" else state)
            assert rows(statestore.sql(made.path, f"SELECT * FROM {shown} {clause.format(version)}")) == expected
        then = statestore.sql(made.path, f"SELECT * FROM sessions.{state} TIMESTAMP AS OF '{at}'")
        assert rows(then) == made.kept[last_at(made, version)][state]
        if version not in (1, 5):  # the doors below hand the version on in one way
            continue
        connection = statestore.attach(made.path + "/sessions", version=version)
        assert in_duckdb(connection, f"FROM sessions.{state}") == expected
        assert in_duckdb(connection, f'FROM "sessions.{state}"') == expected
        scanned = run("scan", made.path, f"sessions.{state}", "--version", str(version), "--json")
        assert {tuple(row.values())[:-1]: row["value"] for row in scanned.rows} == expected
    assert in_duckdb(statestore.attach(made.path), f"SELECT * FROM sessions.{state}") == made.newest[state]


def last_at(made: Made, version: int) -> int:
    """The newest snapshot of the same millisecond."""
    return max(other for other in made.kept if made.times[other] == made.times[version])


def test_versions_that_are_not_kept(made: Made) -> None:
    for version in (0, 3, 7, 8):
        with pytest.raises(NotFoundError, match="VERSION_NOT_FOUND"):
            statestore.sql(made.path, f"SELECT * FROM sessions.counts VERSION AS OF {version}")
    with pytest.raises(NotFoundError, match=r"VERSION_NOT_FOUND.*kept are 1, 2, 4, 5, 6"):
        made.table("counts").scan(version=3)
    with pytest.raises(InvalidInputError, match="INVALID_VERSION"):
        made.table("counts").scan(version=True)
    with pytest.raises(NotFoundError, match="TIME_NOT_KEPT"):
        made.table("counts").scan(as_of=made.times[1] // 1000 - 1)


def test_joins_and_columns_by_any_name(made: Made) -> None:
    counts, attrs = made.newest["counts"], made.newest["attrs"]
    joined = sorted((u, k, counts[u,], v) for (u, k), v in attrs.items() if (u,) in counts)
    text = (
        "SELECT sessions.counts.user, a.user_key, counts.value, a.value FROM sessions.counts "
        'JOIN "sessions.attrs" AS a ON a.user = sessions.counts.user ORDER BY ALL'
    )
    found = [tuple(row) for row in zip(*(c.to_pylist() for c in statestore.sql(made.path, text).columns), strict=True)]
    assert found == statestore.attach(made.path).sql(text.replace('"sessions.attrs"', "sessions.attrs")).fetchall()
    assert sorted(map(str, found)) == sorted(map(str, joined))
    old = made.kept[2]["counts"]
    text = (
        "WITH old AS (SELECT * FROM sessions.counts VERSION AS OF 2) "
        "SELECT user, new.value - old.value FROM sessions.counts AS new JOIN old USING (user)"
    )
    expected = {user: counts[user] - old[user] for user in counts.keys() & old.keys()}
    assert rows(statestore.sql(made.path, text)) == expected
    for text in ("DESCRIBE sessions.counts", "SUMMARIZE sessions.counts"):
        assert statestore.sql(made.path, text)["column_name"].to_pylist() == ["user", "value"]


def test_sql_changes_nothing_and_knows_no_other_schema(made: Made) -> None:
    for text in (
        "DELETE FROM sessions.counts",
        "INSERT INTO sessions.counts VALUES ('x', 1)",
        "DROP TABLE sessions.counts",
    ):
        with pytest.raises(ReadOnlyError, match="READ_ONLY"):
            statestore.sql(made.path, text)
    with pytest.raises(InvalidInputError, match="INVALID_SQL"):
        statestore.sql(made.path, "SELECT * FROM nowhere.counts")


def test_a_view_sees_later_snapshots(tmp_path: Path) -> None:
    made = make(tmp_path, seed=3, versions=2)
    connection = statestore.attach(made.path)
    assert in_duckdb(connection, "FROM sessions.counts") == made.newest["counts"]
    with statestore.connect(tmp_path).open_store("sessions") as store, store.backend() as backend:
        counts = backend.value_state("counts", "bigint")
        backend.set_current_key("later")
        counts.update(77)
        store.commit([backend.snapshot().result()])
    assert in_duckdb(connection, "FROM sessions.counts") == {**made.newest["counts"], ("later",): 77}


def test_filters_on_a_key_read_only_its_place(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Sequence[Any]] = []

    def watched(*given: Any, **named: Any) -> Any:
        asked.append(named["key_ranges"])
        return scan_rocksdb(*given, **named)

    monkeypatch.setattr("statestore.catalog.keyed.tables.keyed_source.scan_rocksdb", watched)
    looked = 0
    for state in STATES:
        table = made.table(state)
        for version, states in made.kept.items():
            users = sorted({key[0] for key in states[state]})
            for chosen in (users[:1], users[-2:], ["nobody"], []):
                asked.clear()
                wanted = {key: value for key, value in states[state].items() if key[0] in chosen}
                found = table.scan(version=version, filter=("user", "in", chosen)).read_all()
                assert rows(found) == wanted
                ranges = [item for each in asked for item in each]
                assert all(isinstance(item, KeyRange) and len(item.first or b"") > 2 for item in ranges)
                assert len(ranges) <= len(chosen)
                looked += len(ranges)
    assert looked
    many = [f"user {number}" for number in range(200)]
    for version, states in made.kept.items():  # too many to be looked up one by one
        wanted = {key: value for key, value in states["counts"].items() if key[0] in many}
        assert rows(made.table("counts").scan(version=version, filter=("user", "in", many)).read_all()) == wanted
    user = next(iter(made.newest["counts"]))[0]
    whole, one = (made.table("counts").table.splits(Query(filters=f)) for f in ((), key_filter(user)))
    assert len(one) == 1 <= len(whole)


def key_filter(user: str) -> tuple[Filter, ...]:
    return (Filter("user", "=", user),)


class Mean:
    """An aggregate of values with their sum and count."""

    accumulator_type = "struct<sum:double,count:bigint>"

    def create(self) -> Any:
        return {"sum": 0.0, "count": 0}

    def add(self, value: Any, accumulator: Any) -> Any:
        return {"sum": accumulator["sum"] + value, "count": accumulator["count"] + 1}

    def result(self, accumulator: Any) -> Any:
        return accumulator["sum"] / accumulator["count"]

    def merge(self, left: Any, right: Any) -> Any:
        return {name: left[name] + right[name] for name in left}


def test_all_kinds_of_states_by_several_columns_and_namespaces(tmp_path: Path) -> None:
    key = {"shop": "string", "day": "date"}
    store = statestore.connect(tmp_path).create_store("s", kind="keyed", key=key)
    days = [date(2026, 1, number) for number in (1, 2)]
    keys = list(itertools.product(["north", "south"], days))
    lists: Rows = {}
    means: Rows = {}
    with store.backend() as backend:
        added = backend.list_state("added", "int")
        mean = backend.aggregating_state("mean", Mean(), namespace={"till": "int"})
        for version in (1, 2):
            for number, (shop, day) in enumerate(keys[version - 1 :]):
                backend.set_current_key({"shop": shop, "day": day})
                added.add(number)
                lists.setdefault((shop, day), []).append(number)
                for till in (1, 2):
                    mean.set_current_namespace(till)
                    mean.add(number * till)
                    old = means.get((shop, day, till), {"sum": 0.0, "count": 0})
                    means[shop, day, till] = Mean().add(number * till, old)
            assert store.commit([backend.snapshot("incremental" if version == 1 else "full").result()]) == version
    inspected = statestore.inspect(str(tmp_path))
    assert rows(inspected.table("s.mean").scan().read_all()) == means
    found = statestore.sql(
        str(tmp_path), "SELECT shop, day, value FROM s.added ORDER BY shop, day, position"
    ).to_pylist()
    assert [tuple(row.values()) for row in found] == [(*k, item) for k in sorted(lists) for item in lists[k]]
    text = "SELECT value.count AS n FROM s.mean VERSION AS OF 1 WHERE till = 2 AND day = DATE '2026-01-02'"
    assert statestore.sql(str(tmp_path), text)["n"].to_pylist() == [1, 1]
    by_key = {"shop": "south", "day": "2026-01-01"}
    (row,) = run("get", tmp_path, "s.mean", json.dumps({**by_key, "till": 1}), "--json").rows
    assert row["value"] == means["south", days[0], 1]
    assert len(run("get", tmp_path, "s.mean", json.dumps(by_key), "--json").rows) == 2
    assert [r["value"] for r in run("get", tmp_path, "s.added", json.dumps(by_key), "--json").rows] == [2, 1]
    told = inspected.table("s.added").changes(2, 2).read_all()
    assert (told.num_rows, set(told["_change_type"].to_pylist())) == (3, {"insert"})
    answer = run("get", tmp_path, "s.mean", "south")
    assert answer.code == 2
    assert "shop, day; or shop, day, till" in answer.err
