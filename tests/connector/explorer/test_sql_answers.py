"""Questions in SQL to the explorer: answers, what they cannot reach, their limits, and the places of their errors."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import duckdb
import pyarrow as pa
import pytest
from starlette.testclient import TestClient
from support.parameters import mostly_slow

import statestore
from statestore.connector.explorer import limits, sql_answers
from statestore.connector.explorer.app import application
from statestore.connector.explorer.limits import Limits, NobodyWaits
from statestore.connector.explorer.opened_paths import OpenedPaths
from statestore.connector.explorer.row_files import RowFiles
from statestore.connector.sql import limited_statement
from statestore.connector.sql.sql_duckdb import read_on_duckdb
from statestore.formats.errors import StateStoreError

START = 1_714_550_000_000
ENDLESS = "SELECT sum(a.range * b.range + c.range) FROM range(1000000) a, range(1000000) b, range(1000000) c"


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("sql") / "warehouse"
    with statestore.connect(folder).create_store("prices", key={"item": "string"}, value={"price": "double"}) as prices:
        for commit in range(3):
            for number in range(50):
                prices.put(f"i{number:02d}", number * 1.5 - 30 + commit, timestamp=START + 1000 * commit)
            prices.commit()
    return str(folder)


@pytest.fixture(scope="module")
def client(warehouse: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """One for all tests: a statement that refused, failed or was cut changes no later answer."""
    folder = tmp_path_factory.mktemp("row_files")
    with TestClient(application(OpenedPaths([warehouse, str(folder / "none")], {}), RowFiles(folder))) as found:
        yield found


def ask(client: TestClient, sql: str, **given: Any) -> dict[str, Any]:
    response = client.get("/api/sql", params={"sql": sql, **given})
    assert response.status_code == 200, response.text
    return dict(response.json())


def rows(client: TestClient, sql: str, route: str = "rows", **given: Any) -> pa.Table:
    response = client.get(f"/api/sql/{route}", params={"sql": sql, **given})
    assert response.status_code == 200, response.text
    return pa.ipc.open_stream(response.content).read_all()


def refused(client: TestClient, sql: str, route: str = "", **given: Any) -> tuple[str, str]:
    response = client.get(f"/api/sql{route}", params={"sql": sql, **given})
    assert response.status_code in (400, 404, 409), response.text
    return response.json()["code"], response.json()["error"]


ANSWERED = [
    "SELECT item, price FROM prices ORDER BY item",
    "SELECT item, price FROM prices VERSION AS OF 1 ORDER BY item DESC",
    "SELECT item, price FROM prices TIMESTAMP AS OF '2024-05-01T07:53:20Z' ORDER BY item",
    "SELECT p.item, q.price FROM prices p JOIN prices AT (VERSION => 2) q USING (item) ORDER BY ALL",
    "SELECT item, price, _commit_version FROM history('prices') ORDER BY ALL",
    "SELECT item, _change_type FROM changes('prices', 1, 2) ORDER BY ALL",
    "SELECT version FROM prices$versions ORDER BY 1",
    "DESCRIBE prices",
    "SHOW TABLES",
    "PIVOT (SELECT item, price FROM prices WHERE item < 'i02') ON item USING sum(price)",
    "WITH a AS (SELECT 1 AS x) SELECT x FROM a WHERE false",
]


def test_answers_are_those_of_statestore_sql(client: TestClient, warehouse: str) -> None:
    for sql in ANSWERED:
        expected = statestore.sql(warehouse, sql)
        facts = ask(client, sql, run="1")
        found = rows(client, sql, run="1", limit=500)
        assert [each["name"] for each in facts["columns"]] == expected.column_names == found.column_names, sql
        assert (facts["rows"], facts["cut"]) == (expected.num_rows, False), sql
        assert found.num_rows == expected.num_rows, sql
        for name in expected.column_names:
            if pa.types.is_string(expected.schema.field(name).type):
                assert found[name].to_pylist() == expected[name].to_pylist(), (sql, name)
            elif pa.types.is_floating(expected.schema.field(name).type) or pa.types.is_integer(expected[name].type):
                assert [float(each) for each in found[name].to_pylist()] == expected[name].to_pylist(), (sql, name)


def test_pages_and_orders_are_of_one_run(client: TestClient) -> None:
    """random() would give other rows to each page if the statement ran again."""
    sql = "SELECT range AS n, random() - 0.5 AS r FROM range(1200)"
    whole = [row for at in range(0, 1200, 400) for row in rows(client, sql, run="1", offset=at, limit=400).to_pylist()]
    up = [row for at in (0, 500, 1000) for row in rows(client, sql, run="1", sort="r", offset=at).to_pylist()]
    down = rows(client, sql, run="1", sort="-r", limit=10).to_pylist()
    assert [row["n"] for row in whole] == [str(n) for n in range(1200)]
    assert up == sorted(whole, key=lambda row: float(row["r"])) and float(up[0]["r"]) < 0
    assert down == up[:-11:-1]
    assert rows(client, sql, run="2", limit=400).to_pylist() != whole[:400]
    assert "expected one of n, r" in refused(client, sql, "/rows", run="1", sort="x")[1]


def test_every_type_of_duckdb_has_a_text_or_a_sentence(client: TestClient) -> None:
    sql = "FROM test_all_types()"
    facts = ask(client, sql, run="1")
    assert rows(client, sql, run="1").num_rows == 3 and len(facts["columns"]) > 40
    for column in facts["columns"]:
        answer = client.get("/api/sql/rows", params={"sql": sql, "run": "1", "sort": column["name"], "offset": 3})
        assert answer.status_code == 200 or "has no order here" in answer.json()["error"], column
    assert rows(client, "SELECT 1 AS a, 2 AS a, 3 AS a").column_names == ["a", "a_1", "a_2"]


REACHING_OUT = [
    "FROM read_text('/etc/passwd')",
    "FROM read_blob('/etc/pass*')",
    "FROM read_csv('/etc/passwd')",
    "FROM read_parquet('{secret}')",
    "FROM glob('/etc/*')",
    "FROM '/etc/passwd'",
    'FROM "{secret}"',
    "FROM query('FROM read_text(''/etc/passwd'')')",
    "SELECT * FROM prices WHERE item IN (SELECT content FROM read_text('{secret}'))",
    "FROM read_text('http://127.0.0.1:1/x')",
    "FROM duckdb_secrets()",
    "SELECT getenv('HOME')",
    "COPY (SELECT 1) TO '{out}'",
    "COPY (SELECT 1) TO ':memory:'",
    "COPY (PIVOT (SELECT 1 AS a, 2 AS b) ON a USING sum(b)) TO '{out}'",
    "COPY (PIVOT (SELECT 1 AS a, 2 AS b) ON a USING sum(b)) TO ':memory:' (FORMAT csv)",
    "EXPLAIN ANALYZE COPY (SELECT 1) TO '{out}'",
    "EXPORT DATABASE '{out}'",
    "ATTACH '{out}'",
    "ATTACH ':memory:' AS other",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SELECT sqlite_scan('{secret}', 't')",
    "SET enable_external_access = true",
    "SET memory_limit = '100GB'",
    "SET temp_directory = '{out}'",
    "RESET lock_configuration",
    "PRAGMA temp_directory = '{out}'",
    "PRAGMA database_list",
    "CALL pragma_version()",
    "USE memory",
    "BEGIN",
    "CHECKPOINT",
    "PREPARE p AS SELECT 1",
    "INSERT INTO prices VALUES ('i00', 1)",
    "UPDATE prices SET price = 0",
    "DELETE FROM prices",
    "DROP TABLE prices",
    "DROP VIEW prices",
    "TRUNCATE prices",
    "CREATE OR REPLACE TABLE prices AS SELECT 1",
    "CREATE TABLE other AS SELECT 1",
    "CREATE TABLE other AS PIVOT (SELECT 1 AS a, 2 AS b) ON a USING sum(b)",
    "CREATE MACRO f() AS 1",
    "SELECT 1; DROP VIEW prices",
    "SELECT 1; COPY (SELECT 1) TO '{out}'",
]


@pytest.mark.parametrize("statements", mostly_slow([REACHING_OUT[::2], REACHING_OUT[1::2]], 2), ids=["even", "odd"])
def test_nothing_else_is_read_and_nothing_is_written(
    client: TestClient, warehouse: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statements: list[str]
) -> None:
    work, secret = tmp_path / "work", tmp_path / "secret.parquet"
    work.mkdir()
    monkeypatch.chdir(work)
    duckdb.sql(f"COPY (SELECT 'hidden' AS s) TO '{secret}'")
    before = digest(warehouse)
    for sql in statements:
        code, said = refused(client, sql.format(secret=secret, out=tmp_path / "out"))
        assert code in ("READ_ONLY", "EXTERNAL_ACCESS_OFF", "INVALID_SQL", "TABLE_NOT_FOUND"), (sql, said)
        assert "root:" not in said and "hidden" not in said, sql
        assert list(work.iterdir()) == [] and not (tmp_path / "out").exists(), sql
        assert digest(warehouse) == before, sql
    assert ask(client, "SELECT * FROM prices")["rows"] == 50


def digest(folder: str) -> dict[str, str]:
    files = [Path(root, name) for root, _, names in os.walk(folder) for name in names]
    return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def test_the_engine_alone_refuses_what_the_check_of_statements_might_miss(warehouse: str, tmp_path: Path) -> None:
    with limited_statement.sandbox() as connection:
        for sql in (
            f"COPY (SELECT 1) TO '{tmp_path / 'out'}'",
            "COPY (SELECT 1) TO ':memory:'",
            "FROM read_text('/etc/passwd')",
            "INSTALL httpfs",
            f"ATTACH '{tmp_path / 'out'}'",
        ):
            with pytest.raises(duckdb.PermissionException):
                connection.execute(sql)
        for sql in ("SET enable_external_access = true", "SET memory_limit = '1TB'", "SET temp_directory = 'x'"):
            with pytest.raises(duckdb.Error, match="locked"):
                connection.execute(sql)
        assert connection.execute("SELECT current_setting('temp_directory')").fetchall() == [("",)]
    assert list(tmp_path.iterdir()) == []


def test_limits_end_in_a_sentence(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limited_statement, "MEMORY_MB", 64)
    code, said = refused(client, "SELECT list(range) FROM range(1000000000)")
    assert code == "EXPLORER_LIMIT" and "64 MiB of memory" in said
    code, said = refused(client, "SELECT a.range, md5(b.range::text) FROM range(3000) a, range(3000) b ORDER BY 2")
    assert code == "EXPLORER_LIMIT" and "64 MiB of memory" in said
    assert "takes 20,000" in refused(client, "SELECT 1" + " " * 20_000)[1]
    assert "nested too deeply" in refused(client, f"SELECT {'[' * 3_000}1{']' * 3_000}")[1]
    assert "no statement" in refused(client, " \n")[1]
    monkeypatch.setattr(limits, "SECONDS", 0.3)
    code, said = refused(client, ENDLESS)
    assert code == "EXPLORER_LIMIT" and "more than 0.3 seconds" in said


def test_a_statement_of_any_allowed_length_reaches_the_server(warehouse: str) -> None:
    """A sign may take nine bytes of an address."""
    made = statestore.explore(warehouse)
    try:
        sql = f"SELECT count(*) AS n FROM prices -- {'漢' * (limited_statement.MAX_TEXT - 40)}"
        address, token = made.url.split("?token=")
        asked = Request(f"{address}api/sql/rows?{urlencode({'sql': sql})}", headers={"x-statestore-token": token})
        with urlopen(asked) as response:
            assert pa.ipc.open_stream(response.read()).read_all().to_pylist() == [{"n": "50"}]
    finally:
        made.stop()


def test_long_answers_are_cut_and_say_so(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_answers, "MAX_ROWS", 5_000)
    assert ask(client, "FROM range(5000)")["cut"] is False
    facts = ask(client, "FROM range(1000000) a, range(1000000) b", run="1")
    assert (facts["rows"], facts["cut"]) == (5_000, True)
    last = rows(client, "FROM range(1000000) a, range(1000000) b", run="1", offset=4_990, limit=100)
    assert last.num_rows == 10 and last.schema.metadata[b"last"] == b"1"
    monkeypatch.setattr(sql_answers, "MAX_BYTES", 100_000)
    facts = ask(client, "SELECT repeat('x', 1000) FROM range(4000)", run="2")
    assert facts["cut"] is True and 0 < facts["rows"] < 4_000


@pytest.mark.parametrize("sql", [ENDLESS, f"SELECT * FROM prices WHERE price > ({ENDLESS})"])
def test_cancel_cancels(warehouse: str, tmp_path: Path, sql: str) -> None:
    """The statement has an hour, so the test would not end in time if it went on."""
    gone = threading.Event()
    kept = sql_answers.Answers(tmp_path)
    asked = Limits(3600.0, gone)
    found: list[BaseException] = []

    def run() -> None:
        try:
            kept.of((0, sql, ""), OpenedPaths([warehouse], {}).warehouse(0), asked)
        except BaseException as error:
            found.append(error)

    worker = threading.Thread(target=run, daemon=True)
    worker.start()
    worker.join(0.3)
    assert worker.is_alive()
    gone.set()
    worker.join(30)
    assert [type(error) for error in found] == [NobodyWaits]
    assert list(tmp_path.iterdir()) == []


def test_who_waits_for_another_statement_can_leave_and_kept_answers_wait_for_nobody(
    warehouse: str, tmp_path: Path
) -> None:
    kept, places = sql_answers.Answers(tmp_path), OpenedPaths([warehouse], {})
    first = kept.of((0, "SELECT 1", ""), places.warehouse(0), Limits())
    long = Limits(3600.0)

    def run() -> None:
        with pytest.raises(NobodyWaits):
            kept.of((0, ENDLESS, ""), places.warehouse(0), long)

    worker = threading.Thread(target=run, daemon=True)
    worker.start()
    worker.join(0.3)
    assert kept.of((0, "SELECT 1", ""), places.warehouse(0), Limits()) is first
    left = Limits()
    left.gone.set()
    with pytest.raises(NobodyWaits):
        kept.of((0, "SELECT 2", ""), places.warehouse(0), left)
    long.gone.set()
    worker.join(30)
    assert not worker.is_alive()
    for number in range(2 * sql_answers.KEPT):
        kept.of((0, f"SELECT {number}", "later"), places.warehouse(0), Limits())
    assert len(list(tmp_path.iterdir())) == sql_answers.KEPT
    assert kept.of((0, "SELECT 1", ""), places.warehouse(0), Limits()) is not first


PLACES = [
    ("SELECT nope FROM prices", "line 1, column 8: "),
    ("SELECT item,\n  'nope', nope\nFROM prices", "line 2, column 11: "),
    ("SELECT '漢字ü', nope FROM prices", "line 1, column 15: "),
    (f"SELECT {'1, ' * 200}nope FROM prices", "line 1, column 608: "),
    ("SELECT item, cost\nFROM prices VERSION AS OF 1", "line 1, column 14: "),
    ("SELECT *\n  FROM prices VERSION AS OF 9", "line 2, column 8: "),
    ("SELECT * FROM prise", "line 1, column 15: "),
    ("SELECT no_function(item) FROM prices", "line 1, column 8: "),
    ("SELECT item::INTEGER FROM prices", "line 1, column 12: "),
    ("SELECT * FROM prices\nWHERE price = = 3", "line 2, column 15: "),
    ("SELECT 1,\n 'abc", "line 2, column 2: "),
    ("SELECT item FROM prices VERSION AS OF 1 WHERE", "line 1, column 41: "),
    ("DELETE FROM prices", "line 1, column 13: "),
]


def test_errors_are_at_their_place(client: TestClient) -> None:
    for sql, place in PLACES:
        said = refused(client, sql)[1]
        assert said.startswith(place), (sql, said)
        assert "LINE 1" not in said, (sql, said)


def test_points_of_a_chart(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    sql = """
        SELECT * FROM (VALUES
            (TIMESTAMPTZ '2024-05-01 10:00:00.5+02', 1.25::DECIMAL(9, 2), 'a', 1),
            (TIMESTAMPTZ '2024-05-01 11:00:00+02', NULL, 'b', 2),
            (NULL, 3, 'b', 3),
            (TIMESTAMPTZ '2024-05-01 12:00:00+02', -4, NULL, 4)) v(t, y, s, n)
    """
    found = rows(client, sql, "points", x="t", y="y", series="s")
    assert found["x"].to_pylist() == [1714550400500.0, 1714557600000.0]
    assert found["y"].to_pylist() == [1.25, -4.0] and found["series"].to_pylist() == ["a", None]
    assert found.schema.metadata == {b"rows": b"4", b"seen": b"4", b"left_out": b"2"}
    assert rows(client, sql, "points", x="s", y="n")["x"].to_pylist() == ["a", "b", "b"]
    infinite = rows(client, "SELECT 'inf'::DOUBLE AS y, DATE '1970-01-02' AS d", "points", x="d", y="y")
    assert infinite.num_rows == 0 and infinite.schema.metadata[b"left_out"] == b"1"
    monkeypatch.setattr(sql_answers, "MAX_POINTS", 100)
    many = rows(client, "SELECT range AS x, -range AS y FROM range(1000)", "points", x="x", y="y")
    assert many["y"].to_pylist() == [-float(n) for n in range(100)]
    assert (many.schema.metadata[b"seen"], many.schema.metadata[b"rows"]) == (b"100", b"1000")
    assert "expected a column of numbers" in refused(client, sql, "/points", x="t", y="s")[1]
    assert "expected one of t, y, s, n" in refused(client, sql, "/points", x="nothing", y="y")[1]


def test_names_for_completion(client: TestClient) -> None:
    names = client.get("/api/sql/names", params={"place": 0}).json()
    tables = {each["name"]: [column["name"] for column in each["columns"]] for each in names["tables"]}
    assert tables["prices"][:2] == ["item", "price"] and "version" in tables["prices$versions"]
    functions = {each["name"] for each in names["functions"]}
    assert {"sum", "date_trunc", "lower", "range", "arg_max"} <= functions
    assert functions.isdisjoint({"read_text", "read_csv", "glob", "parquet_scan", "duckdb_settings", "getenv"})
    assert {"select", "from"} <= set(names["reserved"]) <= set(names["words"])
    response = client.get("/api/sql/names", params={"place": 1})
    assert response.status_code == 404 and "PATH_NOT_FOUND" in response.json()["code"]


def test_a_table_that_was_made_anew_is_read_anew(tmp_path: Path) -> None:
    """The place is pinned when it is first asked for; files that are gone since are no error."""
    catalog = statestore.connect(tmp_path / "own")
    for price in (1.0, 2.0):
        with catalog.create_store("prices", key={"item": "string"}, value={"price": "double"}) as store:
            store.put("a", price, timestamp=START)
            store.commit()
        if price == 1.0:
            places = OpenedPaths([str(tmp_path / "own")], {})
            places.warehouse(0)
            catalog.drop_store("prices")
    (tmp_path / "row_files").mkdir()
    with TestClient(application(places, RowFiles(tmp_path / "row_files"))) as client:
        assert rows(client, "SELECT price FROM prices")["price"].to_pylist() == ["2.0"]


def test_only_statements_that_read_pass_the_door(warehouse: str) -> None:
    with (
        limited_statement.sandbox() as connection,
        pytest.raises(StateStoreError, match=r"READ_ONLY.*CREATE is not allowed here"),
    ):
        read_on_duckdb(OpenedPaths([warehouse], {}).warehouse(0), connection, "CREATE TABLE t AS SELECT 1", None)  # type: ignore[arg-type]
