"""Names and paths of the states of keyed stores, next to other stores, and refused names."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from support.command_line import run
from support.keyed.keyed_made import NAMES, STATES, Made, make, one_state, prices, rows

import statestore
from statestore.catalog.warehouse import open_table, open_warehouse, rows_spec
from statestore.formats.errors import InvalidInputError, NotFoundError, ReadOnlyError, StateStoreError, UnsupportedError
from statestore.formats.state_table import Query


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Snapshots 1 to 6 of two tasks, of which the third was discarded; and a plain store."""
    made = make(tmp_path_factory.mktemp("warehouse"), seed=11, tasks=2, versions=6, discard=(3,))
    prices(made.path, "prices")
    return made


def read(path: str | Path, query: Query | None = None) -> pa.Table:
    table, query = open_table(path), query or Query()
    batches = [batch for split in table.splits(query) for batch in table.read(split, query)]
    return pa.Table.from_batches(batches, schema=table.schema(query))


def test_a_read_without_a_state_says_what_it_needs(made: Made) -> None:
    store = statestore.connect(made.path).open_store("sessions", read_only=True)
    with store, pytest.raises(TypeError, match=r"^KeyedStore\.scan\(\) missing .* 'state'$"):
        store.scan()


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
