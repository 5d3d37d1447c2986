"""Keyed stores through Python, SQL, DuckDB and the command line, against plain dicts of what was put into them."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from command_line import run
from keyed_made import STATES, Made, Rows, make, rows

import statestore
from statestore.catalog.discovery import open_table, open_warehouse, rows_spec
from statestore.connector.cli.arguments import complete_store
from statestore.formats.errors import InvalidInputError, NotFoundError, ReadOnlyError, StateStoreError, UnsupportedError
from statestore.formats.filters import Filter
from statestore.formats.rocksdb.key_ranges import KeyRange
from statestore.formats.rocksdb.scan import scan_rocksdb
from statestore.formats.state_table import Query

NAMES = [f"sessions.{state}" for state in STATES]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Snapshots 1 to 6 of two tasks, of which the third was discarded; and a plain store."""
    made = make(tmp_path_factory.mktemp("warehouse"), seed=11, tasks=2, versions=6, discard=(3,))
    prices(made.path, "prices")
    return made


def prices(path: str | Path, name: str) -> None:
    with statestore.connect(path).create_store(name, key={"item": "string"}, value={"price": "double"}) as store:
        store.put("naan", 1.5, timestamp=1000)
        store.commit()


def read(path: str | Path, query: Query | None = None) -> pa.Table:
    table, query = open_table(path), query or Query()
    batches = [batch for split in table.splits(query) for batch in table.read(split, query)]
    return pa.Table.from_batches(batches, schema=table.schema(query))


def in_duckdb(connection: duckdb.DuckDBPyConnection, text: str) -> Rows:
    return rows(connection.sql(text).to_arrow_table())


# What there is


def test_each_state_is_a_table(made: Made) -> None:
    assert statestore.inspect(made.path).tables() == ["prices", *NAMES]
    assert statestore.inspect(f"{made.path}/sessions").tables() == NAMES
    assert statestore.sql(made.path, "SHOW STORES")["name"].to_pylist() == ["prices", *NAMES]
    warehouse = open_warehouse(made.path)
    assert warehouse.about("sessions.attrs").kind == "keyed map"
    assert "sessions.attrs$segments" in warehouse.metadata_tables()


def test_a_store_without_snapshot_has_no_table(tmp_path: Path) -> None:
    statestore.connect(tmp_path).create_store("waiting", kind="keyed", key={"k": "int"})
    assert statestore.inspect(str(tmp_path)).tables() == []
    assert statestore.inspect(str(tmp_path / "waiting")).tables() == []
    assert statestore.sql(str(tmp_path), "SHOW STORES").num_rows == 0
    assert statestore.attach(str(tmp_path)).sql("SELECT 1").fetchall() == [(1,)]
    with pytest.raises(NotFoundError, match="NO_SNAPSHOT"):
        open_table(tmp_path / "waiting")
    with pytest.raises(NotFoundError, match=r"TABLE_NOT_FOUND.*it has no snapshot yet"):
        statestore.inspect(str(tmp_path)).table("waiting")
    assert "waiting: a keyed store without a snapshot yet" in run("inspect", tmp_path).err
    assert run("vacuum", tmp_path).code == 0


def test_paths_and_names_lead_to_the_same_table(made: Made) -> None:
    for state in STATES:
        expected = made.newest[state]
        for path in (
            f"{made.path}/sessions/{state}",
            f"{made.path}/sessions.{state}",
            f"file:{made.path}/sessions/{state}",
        ):
            assert rows(read(path)) == expected
        for root in (made.path, f"{made.path}/sessions"):
            warehouse = open_warehouse(root)
            for name in (f"sessions.{state}", f"sessions.{state}$versions"):
                assert open_table(warehouse.address(name)).name == name
                assert warehouse.table(name).name == name
    assert read(f"{made.path}/sessions/counts$snapshots").num_rows == 6


def test_a_name_that_is_not_there(made: Made) -> None:
    with pytest.raises(
        NotFoundError, match=rf"TABLE_NOT_FOUND.*{made.path}/sessions/attrs, {made.path}/sessions/counts"
    ):
        open_table(f"{made.path}/sessions")
    with pytest.raises(NotFoundError, match=r"TABLE_NOT_FOUND.*sessions/counts"):
        open_table(f"{made.path}/sessions/count")
    with pytest.raises(NotFoundError, match=r"TABLE_NOT_FOUND.*did you mean 'sessions.counts'"):
        statestore.inspect(made.path).table("sessions.count")
    with pytest.raises(NotFoundError, match=r"TABLE_NOT_FOUND.*that is a keyed store; name one of its states"):
        statestore.inspect(made.path).table("sessions")
    with pytest.raises(NotFoundError, match="STORE_NOT_FOUND"):
        open_table(f"{made.path}/prices/counts")
    with pytest.raises(NotFoundError, match=r"TABLE_NOT_FOUND.*line 1, column 15"):
        statestore.sql(made.path, "SELECT * FROM sessions.count")


def test_the_only_state_needs_no_name(tmp_path: Path) -> None:
    one_state(tmp_path, "s", "only")
    assert open_table(tmp_path / "s").name == "s.only"
    assert read(tmp_path / "s$versions")["version"].to_pylist() == [1]


def one_state(path: Path, store: str, state: str, key: int = 1) -> None:
    opened = statestore.connect(path).create_store(store, kind="keyed", key={"k": "int"})
    with opened.backend() as backend:
        value = backend.value_state(state, "string")
        backend.set_current_key(key)
        value.update(f"{store}/{state}")
        opened.commit([backend.snapshot().result()])


def test_a_plain_store_goes_before_a_state_of_its_name(tmp_path: Path) -> None:
    one_state(tmp_path, "a", "b")
    one_state(tmp_path, "a.b", "c")
    prices(tmp_path, "a.b.d")
    inspected = statestore.inspect(str(tmp_path))
    assert inspected.tables() == ["a.b", "a.b.c", "a.b.d"]
    prices(tmp_path, "a.e")
    prices(tmp_path, "x.y")
    one_state(tmp_path, "x", "y")
    inspected = statestore.inspect(str(tmp_path))
    assert inspected.tables() == ["a.b", "a.b.c", "a.b.d", "a.e", "x.y"]
    assert inspected.table("x.y").schema.names[:2] == ["item", "price"]
    assert inspected.table("a.b").scan().read_all()["value"].to_pylist() == ["a/b"]
    connection = statestore.attach(str(tmp_path))
    for name, names in (("x.y", 'x."y"'), ("a.b", "a.b"), ("a.b.c", '"a.b".c'), ("a.e", "a.e")):
        first = inspected.table(name).schema.names[0]
        expected = inspected.table(name).scan(columns=[first]).read_all().to_pylist()
        for text in (names, f'"{name}"'):
            assert connection.sql(f"SELECT {first} FROM {text}").to_arrow_table().to_pylist() == expected
            assert statestore.sql(str(tmp_path), f"SELECT {first} FROM {text}").to_pylist() == expected
    assert statestore.sql(str(tmp_path), "SELECT value FROM a.b.c").to_pylist() == [{"value": "a.b/c"}]


def test_names_that_differ_by_case_are_ambiguous_where_that_matters(tmp_path: Path) -> None:
    one_state(tmp_path, "s", "t")
    one_state(tmp_path, "S", "T")
    with pytest.raises(InvalidInputError, match="AMBIGUOUS_NAME"):
        statestore.attach(str(tmp_path))
    for name in ("s.t", "S.T"):
        found = statestore.sql(str(tmp_path), f"SELECT value FROM {name}")
        assert found.to_pylist() == [{"value": name.replace(".", "/")}]


def test_schemas_that_duckdb_needs_itself(tmp_path: Path) -> None:
    for store in ("main", "temp", "information_schema", "memory"):
        one_state(tmp_path, store, "t")
    connection = statestore.attach(str(tmp_path))
    for store in ("main", "temp", "information_schema", "memory"):
        expected = [{"value": f"{store}/t"}]
        assert connection.sql(f'SELECT value FROM "{store}.t"').to_arrow_table().to_pylist() == expected
        assert statestore.sql(str(tmp_path), f"SELECT value FROM {store}.t").to_pylist() == expected


def test_damage_of_one_store_does_not_hide_the_others(tmp_path: Path) -> None:
    one_state(tmp_path, "good", "t")
    one_state(tmp_path, "bad", "t")
    (tmp_path / "bad" / "log" / f"{1:020d}.json").write_bytes(b"{}")
    shutil.copytree(tmp_path / "bad", tmp_path / "worse")
    (tmp_path / "worse" / "store.json").write_text('{"kind": "keyed"}')
    assert statestore.inspect(str(tmp_path)).tables() == ["bad", "good.t", "worse"]
    answer = run("inspect", tmp_path, "--json")
    assert answer.code == 1
    assert [(item["store"], item["status"]) for item in answer.rows] == [
        ("bad", "damaged"),
        ("good.t", "ok"),
        ("worse", "damaged"),
    ]
    with pytest.raises(StateStoreError, match="LOG_CORRUPT"):
        statestore.inspect(str(tmp_path)).table("bad")


# Reading


@pytest.mark.parametrize("state", STATES)
def test_every_kept_version_through_every_door(made: Made, state: str) -> None:
    table = made.table(state)
    for version, states in made.kept.items():
        expected, at = states[state], made.at(version).isoformat()
        assert rows(table.scan(version=version).read_all()) == expected
        assert rows(table.scan(as_of=made.at(version)).read_all()) == made.kept[last_at(made, version)][state]
        for name in (f"sessions.{state}", f'"sessions.{state}"', f"Sessions.{state.upper()}"):
            for clause in (f"VERSION AS OF {version}", f"AT (VERSION => {version})"):
                assert rows(statestore.sql(made.path, f"SELECT * FROM {name} {clause}")) == expected
        then = statestore.sql(made.path, f"SELECT * FROM sessions.{state} TIMESTAMP AS OF '{at}'")
        assert rows(then) == made.kept[last_at(made, version)][state]
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
    with pytest.raises(NotFoundError, match=r"VERSION_NOT_FOUND.*there are 1, 2, 4, 5, 6"):
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

    monkeypatch.setattr("statestore.catalog.stores.keyed.keyed_table.scan_rocksdb", watched)
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
    """Values as their sum and count."""

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


# Metadata


def test_metadata_tells_of_snapshots_and_their_files(made: Made) -> None:
    def table(suffix: str, version: int | None = None) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (
            statestore.inspect(made.path)
            .table(f"sessions.counts${suffix}")
            .scan(version=version)
            .read_all()
            .to_pylist()
        )
        return found

    versions = table("versions")
    assert [(row["version"], row["operation"]) for row in versions] == [
        *((version, "snapshot") for version in range(1, 7)),
        (7, "discard"),
    ]
    assert all(row["writer"] for row in versions)
    assert [row["version"] for row in versions if row["bytes"] is None] == [3, 7]
    assert {row["version"] for row in table("snapshots") if row["readable"]} == set(made.kept)
    assert [row["version"] for row in table("snapshots", 4)] == [1, 2, 3, 4]
    assert table("schema") == [
        {"column": "user", "type": "string", "role": "key"},
        {"column": "value", "type": "bigint", "role": "value"},
    ]
    for version in (*made.kept, None):
        files = table("segments", version)
        assert files
        for row in files:
            assert (Path(made.path) / "sessions" / row["name"]).stat().st_size == row["bytes"]
            assert row["first_commit"] <= (version or 6)
        counted = [row["rows"] for row in files]
        if None not in counted:
            assert sum(counted) == len(made.kept[version or 6]["counts"])
    with pytest.raises(NotFoundError, match="VERSION_NOT_FOUND"):
        table("segments", 3)
    found = statestore.sql(made.path, "DESCRIBE HISTORY sessions.counts")
    assert found["version"].to_pylist() == [7, 6, 5, 4, 3, 2, 1]
    attached = statestore.attach(made.path).sql('SELECT version FROM sessions."counts$snapshots" WHERE readable')
    assert {version for (version,) in attached.fetchall()} == set(made.kept)


def test_roles_of_columns(tmp_path: Path) -> None:
    store = statestore.connect(tmp_path).create_store("s", kind="keyed", key={"k": "int"})
    with store.backend() as backend:
        backend.map_state("m", "string", "double", namespace={"window": "timestamp"})
        backend.list_state("l", "int")
        store.commit([backend.snapshot().result()])
    roles = {
        name: statestore.sql(str(tmp_path), f"SELECT role FROM s.{name}$schema")["role"].to_pylist() for name in "lm"
    }
    assert roles == {"l": ["key", "position", "value"], "m": ["key", "namespace", "user_key", "value"]}


# The command line


def test_names_of_states_are_completed(made: Made) -> None:
    context = SimpleNamespace(params={"path": made.path})
    assert complete_store(context, "") == ["prices", "sessions", *NAMES]  # type: ignore[arg-type]
    assert complete_store(context, "sessions.c") == ["sessions.counts"]  # type: ignore[arg-type]


def test_inspect_tells_each_state(made: Made) -> None:
    found = {item["store"]: item for item in run("inspect", made.path, "--json").rows}
    assert list(found) == ["prices", *NAMES]
    assert [found[name]["kind"] for name in NAMES] == ["keyed map", "keyed value"]
    counts = found["sessions.counts"]
    assert (counts["oldest_version"], counts["version"], counts["retention"]) == (1, 6, "5 snapshots")
    assert (counts["key"], counts["value"]) == ({"user": "string"}, {"value": "bigint"})
    assert (counts["status"], counts["health"]) == ("ok", [])
    assert counts["bytes"] > 0


def test_inspect_counts_rows_and_misses_files(tmp_path: Path) -> None:
    one_state(tmp_path, "s", "t")
    (item,) = run("inspect", tmp_path, "--json").rows
    assert item["keys"] == item["rows"] == 1
    (file,) = (tmp_path / "s" / "segments").glob("*.arrow")
    file.write_bytes(file.read_bytes()[:-1])
    (item,) = run("inspect", tmp_path, "--json").rows
    assert item["status"] == "damaged"
    file.unlink()
    answer = run("inspect", tmp_path, "--json")
    assert answer.code == 1
    assert "is missing" in answer.rows[0]["health"][0]


def test_get_and_history_take_a_key_or_more_of_it(made: Made) -> None:
    (user, attribute), value = next(iter(made.newest["attrs"].items()))
    wanted = {key: v for key, v in made.newest["attrs"].items() if key[0] == user}
    told = run("get", made.path, "sessions.attrs", user, "--json").rows
    assert {(row["user"], row["user_key"]): row["value"] for row in told} == wanted
    (row,) = run("get", made.path, "sessions.attrs", json.dumps({"user": user, "user_key": attribute}), "--json").rows
    assert row == {"user": user, "user_key": attribute, "value": value}
    for version in made.kept:
        answer = run("get", made.path, "sessions.counts", user, "--version", str(version), "--json")
        count = made.kept[version]["counts"].get((user,))
        assert [row["value"] for row in answer.rows] == ([] if count is None else [count])
        assert answer.code == (count is None)
    versions = run("history", made.path, "sessions.attrs", user, "--json").rows
    expected = made.table("attrs").history(filter=("user", "=", user)).read_all()
    assert len(versions) == expected.num_rows
    keys: tuple[Any, ...] = (user, (user,), {"user": user})
    for key in keys:
        assert made.table("attrs").history(key=key).read_all().num_rows == expected.num_rows
    keys = (user, attribute), {"user": user, "user_key": attribute}
    for key in keys:
        found = made.table("attrs").history(key=key).read_all().to_pylist()
        assert found == [row for row in expected.to_pylist() if row["user_key"] == attribute]
    assert run("get", made.path, "sessions.attrs", '{"user": 1, "user_key": "a"}').code == 2


def test_diff_changes_and_versions(made: Made) -> None:
    before, after = made.kept[2]["counts"], made.newest["counts"]
    found = run("diff", made.path, "sessions.counts", "--from", "2", "--json").rows
    assert {row["key"]["user"] for row in found if row["change"] == "added"} == {
        user for (user,) in after.keys() - before.keys()
    }
    changed = run("changes", made.path, "sessions.counts", "--from", "4", "--to", "4", "--json").rows
    expected = made.table("counts").changes(4, 4).read_all()
    assert len(changed) == expected.num_rows
    told = run("versions", made.path, "sessions.counts", "--json").rows
    assert [row["version"] for row in told] == [7, 6, 5, 4, 3, 2, 1]
    where = run("scan", made.path, "sessions.counts", "--where", "value >= 50", "--json").rows
    assert {row["user"]: row["value"] for row in where} == {u: v for (u,), v in after.items() if v >= 50}


def test_upkeep_says_what_is_not_for_keyed_stores(made: Made) -> None:
    for command in ("compact", "expire"):
        for name in ("sessions", "sessions.counts"):
            answer = run(command, made.path, name)
            assert answer.code == 1
            assert "SNAPSHOTS_ONLY" in answer.err
            assert "discard" in answer.err
        answer = run(command, made.path, "--json")
        assert (answer.code, [row["store"] for row in answer.rows]) == (0, ["prices"])
        assert answer.err.count("'sessions' is a keyed store") == 1
    assert "TABLE_NOT_FOUND" in run("vacuum", made.path, "nothing").err


def test_vacuum_takes_what_no_snapshot_names_once(tmp_path: Path) -> None:
    made = make(tmp_path, seed=5, versions=3)
    left = tmp_path / "sessions" / "shared" / f"{'0' * 32}.sst"
    left.parent.mkdir(exist_ok=True)
    left.write_bytes(b"left behind")
    for arguments in ((), ("sessions",), ("sessions.counts",)):
        answer = run("vacuum", tmp_path, *arguments, "--older-than", "0", "--dry-run", "--json")
        assert [(row["store"], row["file"], row["bytes"]) for row in answer.rows] == [
            ("sessions", f"shared/{left.name}", 11)
        ]
    assert left.exists()
    (row,) = run("vacuum", tmp_path, "--older-than", "0", "--json").rows
    assert row["removed"]
    assert not left.exists()
    for version, states in made.kept.items():
        assert rows(made.table("counts").scan(version=version).read_all()) == states["counts"]


def test_the_report_shows_states(made: Made, tmp_path: Path) -> None:
    answer = run("report", made.path, "-o", tmp_path / "report.html")
    assert answer.code == 0, answer.err
    page = (tmp_path / "report.html").read_text()
    assert "keyed value" in page
    assert "sessions.attrs" in page


# What keyed stores refuse


def test_rows_are_not_written_into_keyed_stores(made: Made) -> None:
    for path in ("sessions", "sessions/counts", "sessions.counts"):
        with pytest.raises(UnsupportedError, match=r"KEYED_WRITE.*store\.backend"):
            rows_spec(f"{made.path}/{path}")
    with pytest.raises(ReadOnlyError, match="READ_ONLY"):
        rows_spec(f"{made.path}/sessions/counts$versions")
    assert rows_spec(f"{made.path}/prices").name == "prices"
    with pytest.raises(UnsupportedError, match="REBUILD_KIND"):
        statestore.connect(made.path).rebuild("sessions")
