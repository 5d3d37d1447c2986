"""Statements as users of Delta or Iceberg type them return what DuckDB and Python return."""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException
from support.checkpoints.spark_state_fixtures import MORE, checkpoint_path
from support.keyed.keyed_made import Made, make
from support.parameters import mostly_slow
from support.spark_release import RELEASE, since

import statestore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
VALUE = {
    "price": "decimal(8,2)",
    "n": "bigint",
    "ratio": "double",
    "flag": "boolean",
    "day": "date",
    "moment": "timestamp",
    "raw": "binary",
    "value": "struct<a:int,b:string>",
}


def row(number: int, hour: float, **changes: Any) -> dict[str, Any]:
    full = {
        "item": f"item {number}" if number % 4 else f"näan {number}",
        "price": Decimal(number) + Decimal("0.25"),
        "n": None if number == 5 else number % 3,
        "ratio": number / 4,
        "flag": None if number == 6 else number % 2 == 0,
        "day": dt.date(2024, 1, 1 + number),
        "moment": NOON + dt.timedelta(hours=number),
        "raw": bytes([number, 0]),
        "value": None if number == 7 else {"a": number, "b": f"b{number}"},
        "timestamp": NOON + dt.timedelta(hours=hour),
        "_change_type": "insert",
    }
    return full | changes


COMMITS = (
    [row(number, 0) for number in range(12)],
    [row(number, 1, price=Decimal("99.50")) for number in range(0, 12, 3)] + [row(20, 1), row(4, 2)],
    [row(2, 1.5, _change_type="delete"), row(1, 0.5, price=Decimal("-1.00")), row(13, 3), row(3, 0.75)],
)


@pytest.fixture(scope="module")
def warehouse(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("statements")
    catalog = statestore.connect(folder)
    with catalog.create_store("prices", key={"item": "string"}, value=VALUE) as store:
        flags = [("timestamp", pa.timestamp("us", "UTC")), ("_change_type", pa.string())]
        schema = pa.schema([*store.spec.key, *store.spec.value, *flags])
        for rows in COMMITS:
            store.write(pa.Table.from_pylist(rows, schema=schema))
    with catalog.create_store("stock", "key_value", key={"item": "string"}, value={"n": "int"}) as store:
        for number in range(8):
            store.put(f"item {number}", number)
        store.commit()
        store.delete("item 3")
        store.commit()
    window = {"retention": "30 days", "window_size": "1 h"}
    with catalog.create_store("visits", "window", key={"item": "string"}, value={"n": "int"}, **window) as store:
        for number in range(6):
            store.put(f"item {number}", number, window_start=NOON + dt.timedelta(hours=number))
        store.commit()
    catalog.create_store("empty", key={"k": "string"}, value={"v": "int"}).close()
    statestore.register(spark, folder, "sql_state")
    return str(folder)


@pytest.fixture(scope="module")
def sessions(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Made:
    made = make(tmp_path_factory.mktemp("keyed"), seed=3)
    statestore.register(spark, made.path, "sql_keyed")
    return made


def cell(value: Any) -> Any:
    """A value without what differs between engines: the types of whole numbers, zones, names of fields."""
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC).isoformat() if value.tzinfo else value.isoformat()
    if isinstance(value, dict):
        return [cell(part) for part in value.values()]
    if isinstance(value, list | tuple):
        return [cell(part) for part in value]
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        return str(Decimal(value).normalize())
    if isinstance(value, float):
        return f"{value:.10g}"
    return bytes(value) if isinstance(value, bytearray | memoryview) else value


def cells(table: pa.Table) -> list[str]:
    return [repr([cell(value) for value in line.values()]) for line in table.to_pylist()]


THEN = "TIMESTAMP AS OF '2024-05-01 12:40:00Z'"
STATEMENTS = [
    "SELECT * FROM {c}prices",
    "SELECT item, price FROM {c}prices " + THEN,
    "SELECT item, price FROM {c}prices VERSION AS OF 1",
    "SELECT item, price, value FROM {c}prices FOR VERSION AS OF 2",
    "SELECT item, day FROM {c}prices FOR SYSTEM_TIME AS OF '2024-05-01T13:00:00Z'",
    "SELECT item, moment FROM {c}prices FOR TIMESTAMP AS OF '2024-05-01 11:59:59Z'",
    f"SELECT a.item, a.price, b.price FROM {{c}}prices a JOIN {{c}}prices {THEN} b ON a.item = b.item",
    f"SELECT a.item FROM {{c}}prices {THEN} a LEFT ANTI JOIN {{c}}prices VERSION AS OF 3 b ON a.item = b.item",
    "SELECT n, count(*), sum(price), min(ratio), max(moment), avg(n), avg(ratio) FROM {c}prices GROUP BY n",
    "SELECT flag, n, count(DISTINCT day) FROM {c}prices GROUP BY flag, n",
    "SELECT n, sum(price) AS total FROM {c}prices GROUP BY n HAVING sum(price) > 100",
    "SELECT count(*), count(n), count(DISTINCT n), min(price), max(item), sum(n), avg(ratio) FROM {c}prices",
    "SELECT min(raw), max(raw), min(day), max(day), min(flag), max(flag), min(moment) FROM {c}prices",
    f"SELECT count(*) FROM {{c}}prices {THEN}",
    "SELECT count(*) FROM {c}prices WHERE item LIKE 'näan%'",
    "SELECT sum(n) FROM {c}prices WHERE price > 1000",
    "SELECT item FROM {c}prices WHERE item IN ('item 1', 'item 2', 'nobody')",
    "SELECT item FROM {c}prices WHERE item LIKE 'item 1%' AND n IS NOT NULL",
    "SELECT item FROM {c}prices WHERE n IS NULL OR flag IS NULL OR value IS NULL",
    "SELECT item FROM {c}prices WHERE price BETWEEN 3 AND 7.25 AND NOT flag",
    "SELECT item FROM {c}prices WHERE day >= DATE '2024-01-05' AND day <> DATE '2024-01-06'",
    "SELECT item FROM {c}prices WHERE moment > TIMESTAMP '2024-05-01 15:00:00Z'",
    "SELECT item, value.a FROM {c}prices WHERE value.b = 'b8'",
    "SELECT value.a FROM {c}prices",
    "SELECT max(value.a), count(value.b) FROM {c}prices",
    "SELECT item FROM {c}prices WHERE n = (SELECT max(n) FROM {c}prices)",
    "SELECT item FROM {c}prices WHERE item NOT IN (SELECT item FROM {c}stock)",
    "SELECT p.item FROM {c}prices p WHERE EXISTS (SELECT 1 FROM {c}stock s WHERE s.item = p.item AND s.n > 2)",
    "SELECT s.item, s.n, p.n FROM {c}stock s LEFT JOIN {c}prices p ON s.item = p.item AND p.flag",
    "WITH x AS (SELECT n, max(price) AS m FROM {c}prices GROUP BY n) "
    "SELECT p.item FROM {c}prices p JOIN x ON p.n = x.n AND p.price = x.m",
    "SELECT item FROM {c}prices UNION SELECT item FROM {c}stock",
    "SELECT item FROM {c}prices VERSION AS OF 1 EXCEPT SELECT item FROM {c}prices",
    "SELECT item, row_number() OVER (PARTITION BY n ORDER BY price, item) FROM {c}prices",
    "SELECT item, n FROM {c}stock VERSION AS OF 1",
    "SELECT sum(n), count(*) FROM {c}stock",
    "SELECT item, window_start, window_end, n FROM {c}visits WHERE window_start >= TIMESTAMP '2024-05-01 14:00:00Z'",
    "SELECT max(n), min(window_start) FROM {c}visits",
    "SELECT * FROM {c}empty",
    "SELECT count(*), sum(v), min(k) FROM {c}empty",
    "SELECT k, count(*) FROM {c}empty GROUP BY k",
]
ORDERED = [
    "SELECT item, price FROM {c}prices ORDER BY price DESC, item LIMIT 4",
    "SELECT item FROM {c}prices WHERE n + 1 > 1 ORDER BY item LIMIT 3",
    "SELECT item, n FROM {c}prices ORDER BY n NULLS LAST, item DESC LIMIT 5 OFFSET 2",
    "SELECT n, count(*) AS c FROM {c}prices GROUP BY n ORDER BY c DESC, n NULLS FIRST LIMIT 2",
    f"SELECT item FROM {{c}}prices {THEN} WHERE flag ORDER BY moment DESC LIMIT 2",
]


@pytest.mark.parametrize("statement", mostly_slow([*STATEMENTS, *ORDERED], 14))
def test_rows_are_those_of_duckdb(spark: SparkSession, warehouse: str, statement: str) -> None:
    duck = statement.format(c="").replace("LEFT ANTI JOIN", "ANTI JOIN")
    expected = cells(statestore.sql(warehouse, duck))
    found = cells(spark.sql(statement.format(c="sql_state.")).toArrow())
    if statement in ORDERED:
        assert found == expected
    else:
        assert sorted(found) == sorted(expected)


@since(4, 2, "CHANGES FROM")
def test_a_range_of_changes(spark: SparkSession, warehouse: str) -> None:
    changes = statestore.inspect(warehouse).table("prices").changes(start_version=2, end_version=3)
    rows = spark.sql("SELECT * FROM sql_state.prices CHANGES FROM VERSION 2 TO VERSION 3").toArrow()
    assert sorted(cells(rows)) == sorted(cells(changes.read_all())) != []


def test_history_changes_and_metadata(spark: SparkSession, warehouse: str) -> None:
    def read(name: str, mode: str, **options: Any) -> list[str]:
        table = statestore.inspect(warehouse).table(name)
        found: Callable[..., Any] = getattr(table, mode)
        return sorted(cells(found(**options).read_all()))

    def ask(statement: str) -> list[str]:
        return sorted(cells(spark.sql(statement).toArrow()))

    assert len(read("prices", "history")) > len(COMMITS[0])
    assert ask("SELECT * FROM sql_state.prices.history") == read("prices", "history")
    assert ask("SELECT * FROM sql_state.prices.history VERSION AS OF 2") == read("prices", "history", version=2)
    assert ask("SELECT * FROM sql_state.main.prices.changes") == read("prices", "changes")
    for each in ("versions", "segments", "schema"):
        expected = read(f"prices${each}", "scan")
        assert ask(f"SELECT * FROM sql_state.prices.{each}") == expected
        assert ask(f"SELECT * FROM sql_state.`prices${each}`") == expected


def test_names(spark: SparkSession, warehouse: str) -> None:
    def first(statement: str) -> list[Any]:
        return [line[0] for line in spark.sql(statement).collect()]

    names = ["empty", "prices", "stock", "visits"]
    assert sorted(line.tableName for line in spark.sql("SHOW TABLES IN sql_state").collect()) == names
    assert sorted(line.tableName for line in spark.sql("SHOW TABLES IN sql_state LIKE 'p*'").collect()) == ["prices"]
    assert sorted(table.name for table in spark.catalog.listTables("sql_state.main")) == names
    assert sorted(table.name for table in spark.catalog.listTables("sql_state")) == names
    assert spark.catalog.tableExists("sql_state.prices")
    assert not spark.catalog.tableExists("sql_state.nope")
    columns = ["item", *VALUE, "valid_from", "valid_to"]
    assert [column.name for column in spark.catalog.listColumns("sql_state.prices")] == columns
    assert first("DESCRIBE TABLE sql_state.prices")[: len(columns)] == columns
    described = {line[0]: line[1] for line in spark.sql("DESCRIBE TABLE EXTENDED sql_state.prices").collect()}
    assert "kind=versioned" in described["Table Properties"] and described["Provider"] == "statestore"
    assert first("SHOW COLUMNS IN sql_state.prices") == columns
    assert spark.sql("SELECT ITEM FROM sql_state.Prices").count() == spark.table("sql_state.prices").count()
    before = spark.catalog.currentCatalog()
    spark.sql("USE sql_state")
    try:
        assert sorted(line.tableName for line in spark.sql("SHOW TABLES").collect()) == names
        assert spark.sql("SELECT count(*) FROM prices VERSION AS OF 1").first() == (12,)
        assert spark.table("prices.history").columns[-1] == "_commit_version"
    finally:
        spark.catalog.setCurrentCatalog(before)


def test_options_of_readers_and_views_over_a_moment(spark: SparkSession, warehouse: str) -> None:
    expected = sorted(cells(statestore.sql(warehouse, "SELECT * FROM prices VERSION AS OF 1")))
    assert sorted(cells(spark.read.option("versionAsOf", 1).table("sql_state.prices").toArrow())) == expected
    moment = spark.read.option("timestampAsOf", "2024-05-01 12:40:00Z").table("sql_state.prices")
    then = sorted(cells(statestore.sql(warehouse, f"SELECT * FROM prices {THEN}")))
    assert sorted(cells(moment.toArrow())) == then
    with pytest.raises(AnalysisException, match=r"\[UNKNOWN_OPTION\] option 'verionasof' .*did you mean versionAsOf"):
        spark.read.option("verionAsOf", 1).table("sql_state.prices").collect()
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW then_prices AS SELECT * FROM sql_state.prices {THEN}")
    try:
        assert sorted(cells(spark.table("then_prices").toArrow())) == then
        joined = "SELECT count(*) FROM then_prices a JOIN sql_state.prices b ON a.item = b.item"
        truth = f"SELECT count(*) FROM prices {THEN} a JOIN prices b ON a.item = b.item"
        assert cells(spark.sql(joined).toArrow()) == cells(statestore.sql(warehouse, truth))
    finally:
        spark.catalog.dropTempView("then_prices")


@pytest.mark.slow
def test_states_of_a_keyed_store(spark: SparkSession, sessions: Made) -> None:
    def ask(statement: str) -> dict[tuple[Any, ...], Any]:
        return {tuple(line)[:-1]: tuple(line)[-1] for line in spark.sql(statement).collect()}

    for state in sessions.newest:
        shown = [field.name for field in spark.table(f"sql_keyed.sessions.{state}").schema]
        names = ", ".join(f"`{name}`" for name in shown if name not in ("valid_from", "valid_to"))
        assert ask(f"SELECT {names} FROM sql_keyed.sessions.{state}") == sessions.newest[state]
        for version, states in list(sessions.kept.items())[-2:]:
            then = ask(f"SELECT {names} FROM sql_keyed.sessions.{state} VERSION AS OF {version}")
            assert then == states[state]
    assert [line[0] for line in spark.sql("SHOW NAMESPACES IN sql_keyed").collect()] == ["main", "sessions"]
    found = sorted(line.tableName for line in spark.sql("SHOW TABLES IN sql_keyed.sessions").collect())
    assert found == ["attrs", "counts"]
    counted = spark.sql("SELECT count(*) FROM sql_keyed.sessions.counts WHERE user LIKE 'user 1%'").first()
    wanted = sum(key[0].startswith("user 1") for key in sessions.newest["counts"])
    assert counted == (wanted,)


@pytest.mark.slow
def test_a_checkpoint_of_spark(spark: SparkSession, copy_for_spark: Callable[[str | Path], str]) -> None:
    path = str(checkpoint_path("spark4.1.4-variant__hdfs", MORE))
    statestore.register(spark, path, "sql_checkpoint")
    builtin, copy = spark.read.format("statestore").option("provider", "builtin"), copy_for_spark(path)
    theirs = builtin.load(copy)
    assert spark.sql("SELECT count(*) FROM sql_checkpoint.state").first() == (theirs.count(),)
    assert [line.tableName for line in spark.sql("SHOW TABLES IN sql_checkpoint").collect()] == ["state"]
    one = spark.sql("SELECT * FROM sql_checkpoint.state WHERE partition_id = 1")
    assert one.count() == theirs.where("partition_id = 1").count()
    newest = spark.sql("SELECT max(version) FROM sql_checkpoint.state.versions").first()
    assert newest is not None
    for version in range(int(newest[0]) + 1):
        batch = builtin.option("batchId", version).load(copy)
        found = spark.sql(f"SELECT count(*) FROM sql_checkpoint.state VERSION AS OF {version}").first()
        assert found == (batch.count(),)


# What a statement cannot have is Spark's own kind of error with this package's text, and the session goes on


@pytest.fixture(scope="module")
def errs(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("errors")
    with statestore.connect(folder).create_store("prices", key={"item": "string"}, value={"price": "double"}) as store:
        for number in (1, 2):
            store.write(pa.table({"item": ["a"], "price": [1.0 * number], "timestamp": [number * 1000]}))
    statestore.register(spark, folder, "errs")
    return folder


CREATE = "CREATE TABLE errs.t (k STRING, v INT) USING statestore"
REFUSED = {
    "SELECT * FROM errs.nope": r"\[TABLE_OR_VIEW_NOT_FOUND\]",
    "SELECT * FROM errs.prices.nope": r"\[TABLE_OR_VIEW_NOT_FOUND\]",
    "SELECT * FROM errs.nope.prices": r"\[TABLE_OR_VIEW_NOT_FOUND\]",
    "SELECT nope FROM errs.prices": r"\[UNRESOLVED_COLUMN",
    "SHOW TABLES IN errs.nope": r"\[SCHEMA_NOT_FOUND\]",
    "USE errs.nope": r"\[SCHEMA_NOT_FOUND\]",
    "SELECT * FROM errs.prices VERSION AS OF 9": r"\[VERSION_NOT_FOUND\] store 'prices' has no version 9; versions",
    "SELECT * FROM errs.prices VERSION AS OF 'x'": r"\[INVALID_VERSION\] .*expected a whole number",
    "SELECT * FROM errs.prices TIMESTAMP AS OF 'x'": r"\[INVALID_TIME_TRAVEL",
    "SELECT * FROM errs.prices TIMESTAMP AS OF '09:00'": r"\[INVALID_TIME\] TIMESTAMP AS OF '09:00' has no date",
    "SELECT * FROM errs.prices FOR TIMESTAMP AS OF TIMESTAMP '09:00:05'": r"\[INVALID_TIME\] .* has no date",
    "SELECT * FROM errs.prices TIMESTAMP AS OF CAST('09:00' AS TIMESTAMP)": r"\[INVALID_TIME\] .* has no date",
    "SELECT * FROM errs.prices TIMESTAMP AS OF 'x' VERSION AS OF 1": r"PARSE_SYNTAX_ERROR",
    "SELECT * FROM errs.prices.history TIMESTAMP AS OF '2024-01-01'": r"\[INVALID_OPTION\] TIMESTAMP AS OF",
    "SELECT * FROM errs.prices.changes VERSION AS OF 1": r"\[INVALID_OPTION\] VERSION AS OF .*CHANGES FROM VERSION",
    "INSERT INTO errs.prices.versions VALUES (1)": r"\[READ_ONLY\] errs.prices.versions can only be read",
    "TRUNCATE TABLE errs.prices.history": r"truncate",
    CREATE: r"\[MISSING_OPTION\] table 't' needs a key: add TBLPROPERTIES \(key = 'k'\)",
    CREATE + " TBLPROPERTIES (key = 'K2')": r"\[INVALID_OPTION\] key names 'K2', which is no column",
    CREATE + " TBLPROPERTIES (key = 'k', kind = 'x')": r"\[UNSUPPORTED_KIND\] kind 'x'; a table in SQL is one of",
    CREATE + " TBLPROPERTIES (key = 'k', key_group = 3)": r"\[UNKNOWN_OPTION\] .*did you mean key_groups",
    CREATE + " TBLPROPERTIES (key = 'k', key_groups = 'many')": r"\[INVALID_OPTION\] property key_groups is 'many'",
    CREATE + " TBLPROPERTIES (key = 'k', history_retention = '-3')": r"\[INVALID_DURATION\]",
    CREATE + " TBLPROPERTIES (key = 'k', time = 'x')": r"\[INVALID_OPTION\] time is 'x'",
    CREATE + " PARTITIONED BY (k) TBLPROPERTIES (key = 'k')": r"\[INVALID_OPTION\] table 't': leave out PARTITIONED BY",
    CREATE + " LOCATION '/tmp/elsewhere' TBLPROPERTIES (key = 'k')": r"\[UNSUPPORTED_STATEMENT\] .*leave out LOCATION",
    CREATE.replace("statestore", "parquet") + " TBLPROPERTIES (key = 'k')": r"\[UNSUPPORTED_STATEMENT\] USING parquet",
    CREATE.replace("INT", "STRING COLLATE UTF8_LCASE") + " OPTIONS (key = 'k')": r"\[UNSUPPORTED_TYPE\] column 'v'",
    CREATE.replace("INT", "VARCHAR(3)") + " TBLPROPERTIES (key = 'k')": r"\[UNSUPPORTED_TYPE\] column 'v' is varchar",
    CREATE.replace("errs.t", "errs.`a$b`") + " TBLPROPERTIES (key = 'k')": r"\[INVALID_NAME\]",
    CREATE.replace("errs.t", "errs.`../b`") + " TBLPROPERTIES (key = 'k')": r"\[INVALID_NAME\]",
    CREATE.replace("errs.t", "errs.n.t") + " TBLPROPERTIES (key = 'k')": r"\[SCHEMA_NOT_FOUND\]",
    CREATE.replace("errs.t", "errs.prices") + " TBLPROPERTIES (key = 'k')": r"ALREADY_EXISTS",
    "DROP TABLE errs.nope": r"\[TABLE_OR_VIEW_NOT_FOUND\]",
    "CREATE VIEW errs.v AS SELECT 1": r"does not support views",
}  # fmt: skip
SINCE_4_2 = {
    "SELECT * FROM errs.prices CHANGES FROM VERSION 2 TO VERSION 1": r"\[INVALID_RANGE\]",
    "SELECT * FROM errs.prices CHANGES FROM VERSION 7": r"\[[A-Z_]+\] .*7",
}
if RELEASE >= (4, 2):
    REFUSED |= SINCE_4_2


def test_statements_that_cannot_be_answered(spark: SparkSession, errs: Path) -> None:
    for statement, said in REFUSED.items():
        with pytest.raises(PySparkException, match=said) as raised:
            spark.sql(statement)
        shown = str(raised.value)
        assert "Traceback" not in shown and "py4j" not in shown.lower(), statement
    assert [path.name for path in errs.iterdir()] == ["prices"]
    assert spark.sql("SELECT item, price FROM errs.prices").collect() == [("a", 2.0)]


def test_a_damaged_store_is_reported_and_the_others_are_read(spark: SparkSession, errs: Path, tmp_path: Path) -> None:
    shutil.copytree(errs, tmp_path / "w")
    shutil.copytree(errs / "prices", tmp_path / "w" / "broken")
    statestore.register(spark, tmp_path / "w", "damaged")
    file = next((tmp_path / "w" / "broken").rglob("*.arrow"))
    log = sorted((tmp_path / "w" / "broken" / "log").iterdir())[-1]
    for path in (file, log):
        path.write_bytes(b"\0" * path.stat().st_size)
        with pytest.raises(PySparkException, match=r"\[[A-Z_]+\] .*(broken|segments)/") as raised:
            spark.sql("SELECT * FROM damaged.broken.history").collect()
        assert "Traceback" not in str(raised.value)
    assert spark.sql("SELECT item, price FROM damaged.prices").collect() == [("a", 2.0)]


@pytest.mark.parametrize("name", ["a b", "", "1a", "spark_catalog", "Session", "a.b", "é", None])
def test_names_that_no_catalog_can_have(spark: SparkSession, errs: Path, name: str) -> None:
    with pytest.raises(statestore.InvalidInputError, match=r"\[INVALID_NAME\] catalog name"):
        statestore.register(spark, errs, name)


def test_a_path_without_tables(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(statestore.NotFoundError, match=r"\[PATH_NOT_FOUND\]"):
        statestore.register(spark, tmp_path / "nowhere", "nothing")
    statestore.register(spark, tmp_path, "nothing")  # tables may be made later
    assert spark.sql("SHOW TABLES IN nothing").collect() == []
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.sql("SELECT * FROM nothing.t")


def test_registering_again_and_taking_it_back(spark: SparkSession, errs: Path, tmp_path: Path) -> None:
    statestore.register(spark, errs, "errs")
    statestore.register(spark, errs, "other")
    assert spark.sql("SELECT count(*) FROM other.prices a JOIN errs.prices b ON a.item = b.item").first() == (1,)
    statestore.register(spark, tmp_path, "other")
    assert spark.sql("SHOW TABLES IN other").collect() == []
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.newSession().sql("SELECT * FROM errs.prices")
    kept = spark.table("errs.prices")
    spark.sql("USE errs")
    statestore.unregister(spark)
    try:
        assert spark.catalog.currentCatalog() == "spark_catalog"
        assert spark.sql("SELECT 1").first() == (1,)
        for name in ("errs", "other"):
            with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
                spark.sql(f"SELECT * FROM {name}.prices")
        assert kept.count() == 1
    finally:
        statestore.register(spark, errs, "errs")
    assert spark.sql("SELECT count(*) FROM errs.prices").first() == (1,)
