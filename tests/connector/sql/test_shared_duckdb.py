"""Statements of one process share a DuckDB instance, and nothing of one reaches another."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import duckdb
import pytest

import statestore
from statestore.connector.duckdb.reading import Reading
from statestore.connector.sql import shared_duckdb, sql_duckdb
from statestore.connector.sql.query import sql
from statestore.connector.sql.shared_duckdb import runs_shared
from statestore.formats.errors import InvalidInputError, StateStoreError


def warehouse(folder: Path, price: float) -> str:
    with statestore.connect(folder).create_store("prices", key={"item": "string"}, value={"price": "double"}) as store:
        store.put("curry", {"price": price}, timestamp=1000)
        store.commit()
        store.put("curry", {"price": price + 1}, timestamp=5000)
        store.commit()
    return str(folder)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return warehouse(tmp_path_factory.mktemp("w"), 8.0)


SHARED = [
    "SELECT * FROM prices",
    "FROM prices",
    "  (select item FROM prices) UNION ALL (SELECT 'x')",
    "WITH old AS (SELECT * FROM prices VERSION AS OF 1) SELECT count(*) FROM old WHERE price IN (8, 9)",
    "SELECT coalesce(price, 0), max(abs(price)) OVER (PARTITION BY item) FROM prices TIMESTAMP AS OF 3000",
    "SELECT * FROM history('prices') WHERE price > (SELECT avg(price) FROM prices AT (VERSION => 1))",
    "SELECT CAST(price AS DECIMAL(9, 2)) FROM prices TIMESTAMP AS OF (current_timestamp)",
    "SELECT price FROM prices TIMESTAMP AS OF (now() - INTERVAL (1) HOUR)",
]
OWN = [
    "VALUES (1), (2)",
    "CREATE TABLE kept AS SELECT 1 AS one",
    "SET VARIABLE kept = 1",
    "SET threads = 1",
    "PRAGMA enable_profiling",
    "ATTACH ':memory:' AS kept",
    "CALL enable_logging()",
    "FROM enable_logging()",
    "SELECT * FROM enable_logging()",
    "SELECT * FROM enable_logging ()",
    'SELECT * FROM "enable_logging"()',
    "SELECT * FROM enable_logging/**/()",
    "SELECT * FROM enable_logging--\n()",
    "SELECT * FROM enable_logging\u200b()",
    'SELECT * FROM U&"enable\\005flogging"()',
    "SELECT 'it\\', setseed(0.5), '",
    "SELECT setseed(0.5)",
    "SELECT (0.5).setseed()",
    "SELECT list_transform([0.5], lambda x: setseed(x))",
    "SELECT random()",
    "SELECT nextval('kept')",
    "SELECT write_log('kept')",
    "SELECT a.b(1)",
    "FROM query('SELECT 1')",
    "FROM duckdb_settings()",
    "FROM read_csv('a.csv')",
    "WITH kept AS (INSERT INTO prices VALUES (1) RETURNING 1) FROM kept",
    "SELECT 1 INTO kept",
    "PIVOT prices ON item USING sum(price)",
    "PREPARE kept AS SELECT 1",
    "EXPLAIN SELECT 1",
    "DESCRIBE prices",
    "SHOW TABLES",
    "SELECT 1 -- why",
    "SELECT 'Größe'",
    "",
]


def test_selections_share_the_instance(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("the statement got an instance of its own")

    monkeypatch.setattr(sql_duckdb, "connect", refuse)
    for text in SHARED:
        assert runs_shared(text), text
        assert sql(path, text).num_rows > 0, text


def test_other_statements_do_not() -> None:
    assert [text for text in OWN if runs_shared(text)] == []


def state_of_the_instance() -> list[Any]:
    """Everything that a statement could leave behind, as a statement that shares the instance would find it."""
    with shared_duckdb.shared_cursor() as cursor:
        questions = [
            "SELECT name, value FROM duckdb_settings() ORDER BY ALL",
            "SELECT database_name, path FROM duckdb_databases() ORDER BY ALL",
            "SELECT database_name, schema_name FROM duckdb_schemas() ORDER BY ALL",
            "SELECT schema_name, table_name FROM duckdb_tables() ORDER BY ALL",
            "SELECT schema_name, view_name FROM duckdb_views() WHERE NOT internal ORDER BY ALL",
            "SELECT function_name FROM duckdb_functions() WHERE NOT internal ORDER BY ALL",
            "SELECT type_name FROM duckdb_types() WHERE NOT internal ORDER BY ALL",
            "SELECT name FROM duckdb_variables() ORDER BY ALL",
            "SELECT count(*) FROM duckdb_logs",
        ]
        return [cursor.execute(question).fetchall() for question in questions]


def readings_alive() -> int:
    gc.collect()
    return sum(type(found) is Reading for found in gc.get_objects())


def test_nothing_is_left_behind(path: str) -> None:
    """Statements that change an instance run in one of their own, as all of `OWN` do."""
    before, readings = state_of_the_instance(), readings_alive()
    failing = ["SELECT no_such(1) FROM prices", "FROM no_such_table", "SELECT error('x') FROM prices"]
    for text in [*SHARED, *OWN[1:7], *failing]:
        try:
            sql(path, text)
        except StateStoreError:
            continue
    assert state_of_the_instance() == before
    assert readings_alive() <= readings


def test_the_instance_is_closed_in(path: str) -> None:
    with shared_duckdb.shared_cursor() as cursor:
        for text in (
            "SET threads = 1",
            "SET enable_external_access = true",
        ):
            with pytest.raises(duckdb.Error, match="locked"):
                cursor.execute(text)
        with pytest.raises(duckdb.PermissionException):
            cursor.execute("FROM read_csv('/etc/passwd')")
        assert cursor.execute("SELECT current_setting('TimeZone')").fetchall() == [("UTC",)]
        variable = 1  # noqa: F841
        with pytest.raises(duckdb.CatalogException):
            cursor.execute("FROM variable")


def test_a_statement_does_not_see_the_tables_of_another(path: str, tmp_path: Path) -> None:
    with shared_duckdb.shared_cursor() as other:
        other.execute("CREATE TEMP TABLE orders AS SELECT 1 AS one")
        with pytest.raises(StateStoreError, match="TABLE_NOT_FOUND"):
            sql(path, "SELECT one FROM orders")
        assert sql(warehouse(tmp_path / "other", 2.0), "SELECT price FROM prices").to_pylist() == [{"price": 3.0}]


def test_instances_are_not_started_for_each_call(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []
    start = duckdb.connect

    def counted(*arguments: Any, **options: Any) -> duckdb.DuckDBPyConnection:
        started.append(arguments)
        return start(*arguments, **options)

    monkeypatch.setattr(shared_duckdb._Process, "instance", None)
    monkeypatch.setattr(duckdb, "connect", counted)
    for _ in range(5):
        sql(path, "SELECT price FROM prices TIMESTAMP AS OF 3000")
    assert len(started) == 1


def test_threads_call_at_once(path: str, tmp_path: Path) -> None:
    paths = {price: warehouse(tmp_path / f"w{price}", float(price)) for price in range(4)}
    wrong: list[Any] = []

    def ask(price: int) -> None:
        for _ in range(8):
            found = sql(paths[price], "SELECT price FROM prices TIMESTAMP AS OF 3000").to_pylist()
            if found != [{"price": float(price)}]:
                wrong.append((price, found))

    threads = [threading.Thread(target=ask, args=(price,)) for price in paths]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("error", [duckdb.FatalException, duckdb.InternalException])
def test_an_instance_that_broke_is_replaced(
    path: str, monkeypatch: pytest.MonkeyPatch, error: type[duckdb.Error]
) -> None:
    """The statement that met the broken instance is answered by one of its own."""
    sql(path, "SELECT price FROM prices")
    broken = shared_duckdb._Process.instance

    def views(run: Any, references: Any) -> bool:
        if run.shared:
            raise error("database has been invalidated")
        return create(run, references)

    create = sql_duckdb._Run._create_views
    with monkeypatch.context() as patch:
        patch.setattr(sql_duckdb._Run, "_create_views", views)
        assert sql(path, "SELECT price FROM prices").to_pylist() == [{"price": 9.0}]
    assert shared_duckdb._Process.instance is not broken
    assert sql(path, "SELECT price FROM prices").to_pylist() == [{"price": 9.0}]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT no_such FROM prices", "no_such"),
        ("SELECT no_such(price) FROM prices", "no_such"),
        ("SELECT item::INT FROM prices", "curry"),
    ],
)
def test_errors_are_those_of_an_instance_of_its_own(path: str, text: str, message: str) -> None:
    def told(statement: str) -> str:
        with pytest.raises(InvalidInputError, match=message) as caught:
            sql(path, statement)
        return caught.value.message.replace("line 2, column", "line 1, column")

    assert told(text) == told(f"/**/\n{text}")


FORKING = """
import os, sys, statestore
ask = lambda: statestore.sql(sys.argv[1], "SELECT price FROM prices").to_pylist()
assert ask() == [{"price": 9.0}]
child = os.fork()
assert ask() == [{"price": 9.0}]
if child == 0:
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
print("done")
"""


def test_a_fork_has_an_instance_of_its_own(path: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", FORKING, path], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stdout) == (0, "done\n"), ended.stderr
