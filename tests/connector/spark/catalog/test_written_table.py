"""Statements that write leave the same store as a Python store that got the same records."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException
from support.places import PLACES, below, files_below, vacuumed, warehouse_in

import statestore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NINE = dt.datetime(2024, 5, 1, 9, tzinfo=dt.UTC)
PROPERTIES = "USING statestore TBLPROPERTIES (key = 'item')"


@pytest.fixture(params=PLACES)
def warehouse(spark: SparkSession, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    place = warehouse_in(request.param, request, tmp_path)
    statestore.connect(place)
    statestore.register(spark, place, "sql_writes")
    return place


def at(hour: int) -> str:
    return f"TIMESTAMP '2024-05-01 {hour:02d}:00:00Z'"


def history(warehouse: str, name: str) -> list[str]:
    """Every version of every row, without the time of commits."""
    table = statestore.inspect(warehouse).table(name)
    return sorted(repr(row) for row in table.history().read_all().to_pylist())


def rows(warehouse: str, name: str, *columns: str) -> list[tuple[Any, ...]]:
    found = statestore.inspect(warehouse).table(name).scan(columns=list(columns)).read_all()
    return sorted(tuple(row.values()) for row in found.to_pylist())


def names(warehouse: str) -> list[str]:
    return statestore.connect(warehouse).stores()


def test_records_of_statements_are_records_of_python(spark: SparkSession, warehouse: str, tmp_path: Path) -> None:
    spark.sql(f"CREATE TABLE sql_writes.prices (item STRING, price DOUBLE) {PROPERTIES}")
    prices = "sql_writes.prices"
    spark.sql(f"INSERT INTO {prices} VALUES ('curry', 9, {at(9)}), ('dal', 5, {at(9)}), ('egg', 3, {at(12)})")
    spark.sql(f"INSERT INTO {prices} (valid_from, item, price) VALUES ({at(10)}, 'curry', 10.5)")
    spark.sql(f"INSERT INTO {prices} (item, valid_from) SELECT 'rice', {at(8)}")
    spark.sql(f"SELECT {at(11)} AS valid_from, 'dal' AS item, 6D AS price").writeTo(prices).append()
    spark.sql(f"DELETE FROM {prices} WHERE item = 'dal' AND price > 1")
    spark.sql(f"DELETE FROM {prices} WHERE item = 'nobody'")  # no commit
    spark.sql(f"INSERT OVERWRITE {prices} VALUES ('naan', 2, {at(13)}), ('curry', 10.5, {at(10)})")
    spark.sql(f"DELETE FROM {prices}")
    other = tmp_path / "python"
    with statestore.connect(other).create_store("prices", key={"item": "string"}, value={"price": "double"}) as store:

        def write(*given: tuple[str, float | None, dt.datetime], mode: Any = "append", kind: str = "insert") -> None:
            lines = [dict(zip(("item", "price", "timestamp"), row, strict=True)) for row in given]
            schema = pa.schema([("item", "string"), ("price", "double"), ("timestamp", pa.timestamp("us", "UTC"))])
            table = pa.Table.from_pylist(lines, schema=schema)
            store.write(table.append_column("_change_type", pa.array([kind] * len(lines))), mode=mode)

        def hour(number: int) -> dt.datetime:
            return NINE.replace(hour=number)

        tick = dt.timedelta(milliseconds=1)
        write(("curry", 9, hour(9)), ("dal", 5, hour(9)), ("egg", 3, hour(12)))
        write(("curry", 10.5, hour(10)))
        write(("rice", None, hour(8)))
        write(("dal", 6, hour(11)))
        write(("dal", None, hour(12) + tick), kind="delete")
        write(("naan", 2, hour(13)), ("curry", 10.5, hour(10)), mode="overwrite")
        moment = max(row["valid_from"] for row in store.scan().read_all().to_pylist())
        ended = [row["valid_to"] for row in store.history().read_all().to_pylist() if row["valid_to"] is not None]
        last = max([moment, *ended]) + tick
        write(("naan", None, last), ("curry", None, last), kind="delete")
    assert history(warehouse, "prices") == history(str(other), "prices")
    assert rows(warehouse, "prices", "item") == []
    assert spark.sql("SELECT max(version) FROM sql_writes.prices.versions").first() == (7,)


@pytest.mark.slow
def test_every_kind_of_table(spark: SparkSession, warehouse: str) -> None:
    window = "retention = '30 days', window_size = '1 h'"
    kinds = {
        "key_value": ("", "'a', 1", ("k",), ("a",)),
        "window": (window, f"'a', {at(9)}, 1", ("k", "window_start"), ("a", NINE)),
        "session": ("retention = '30 days'", f"'a', {at(9)}, {at(9)}, 1", ("k", "session_start"), ("a", NINE)),
        "join_window": ("retention = '30 days'", f"'a', {at(9)}, 1", ("k", "event_time"), ("a", NINE)),
    }
    for kind, (options, values, columns, expected) in kinds.items():
        properties = ", ".join(filter(None, ["key = 'k'", f"kind = '{kind}'", "key_groups = 4", options]))
        spark.sql(f"CREATE TABLE sql_writes.t_{kind} (k STRING, n INT) USING statestore TBLPROPERTIES ({properties})")
        spark.sql(f"INSERT INTO sql_writes.t_{kind} VALUES ({values})")
        assert rows(warehouse, f"t_{kind}", *columns, "n") == [(*expected, 1)]
        with statestore.connect(warehouse).open_store(f"t_{kind}") as store:
            assert store.spec.kind == kind and store.spec.key_groups == 4
        spark.sql(f"INSERT OVERWRITE sql_writes.t_{kind} SELECT * FROM VALUES ({values}) AS t WHERE 1 = 0")
        assert rows(warehouse, f"t_{kind}", "n") == []
        spark.sql(f"DROP TABLE sql_writes.t_{kind}")
    assert names(warehouse) == [] and spark.sql("SHOW TABLES IN sql_writes").count() == 0


def test_a_table_from_a_query(spark: SparkSession, warehouse: str) -> None:
    query = f"SELECT concat('item ', id) AS item, id AS n, {at(9)} AS valid_from FROM range(20)"
    spark.sql(f"CREATE TABLE sql_writes.copy {PROPERTIES} AS {query}")
    assert rows(warehouse, "copy", "item", "n", "valid_from") == sorted((f"item {n}", n, NINE) for n in range(20))
    timed = "USING statestore TBLPROPERTIES (key = 'item', time = 'since')"
    spark.sql(f"CREATE TABLE sql_writes.again {timed} AS SELECT item, n, valid_from AS since FROM sql_writes.copy")
    assert rows(warehouse, "again", "item", "n", "valid_from") == rows(warehouse, "copy", "item", "n", "valid_from")
    failing = f"SELECT 'a' AS item, 1 / (id - 3) AS n, {at(9)} AS valid_from FROM range(9)"
    for broken in (failing, "SELECT 'a' AS item, 1 AS n"):
        with pytest.raises(PySparkException):
            spark.sql(f"CREATE TABLE sql_writes.broken {PROPERTIES} AS {broken}")
        assert names(warehouse) == ["again", "copy"]
        assert not spark.catalog.tableExists("sql_writes.broken")


def test_a_table_is_not_replaced_with_its_history(spark: SparkSession, warehouse: str) -> None:
    """Spark would drop the table first, and a failure after that would leave nothing."""
    spark.sql(f"CREATE OR REPLACE TABLE sql_writes.kept (item STRING, n INT) {PROPERTIES}")
    spark.sql(f"INSERT INTO sql_writes.kept VALUES ('a', 1, {at(9)})")
    before = history(warehouse, "kept")
    query = f"SELECT 'b' AS item, 2 AS n, {at(10)} AS valid_from"
    replace: list[Callable[[], Any]] = [
        lambda: spark.sql(f"CREATE OR REPLACE TABLE sql_writes.kept (item STRING) {PROPERTIES}"),
        lambda: spark.sql(f"REPLACE TABLE sql_writes.kept (item STRING) {PROPERTIES}"),
        lambda: spark.sql(f"CREATE OR REPLACE TABLE sql_writes.kept {PROPERTIES} AS {query}"),
        lambda: spark.sql(query).write.mode("overwrite").saveAsTable("sql_writes.kept"),
        lambda: spark.sql(query).writeTo("sql_writes.kept").createOrReplace(),
    ]
    for statement in replace:
        with pytest.raises(AnalysisException, match=r"\[UNSUPPORTED_STATEMENT\] .*INSERT OVERWRITE replaces the rows"):
            statement()
    spark.sql(f"CREATE TABLE IF NOT EXISTS sql_writes.kept (other STRING) {PROPERTIES}")
    assert history(warehouse, "kept") == before
    spark.sql(query).write.mode("append").saveAsTable("sql_writes.kept")
    assert rows(warehouse, "kept", "item", "n") == [("a", 1), ("b", 2)]


def test_what_cannot_be_written_is_refused_and_nothing_is_changed(spark: SparkSession, warehouse: str) -> None:
    spark.sql(f"CREATE TABLE sql_writes.t (item STRING, n INT) {PROPERTIES}")
    spark.sql(f"INSERT INTO sql_writes.t VALUES ('a', 1, {at(9)})")
    before = history(warehouse, "t")
    t = "sql_writes.t"
    refused = {
        f"INSERT INTO {t} VALUES (NULL, 1, {at(9)})": r"NULL_KEY",
        f"INSERT INTO {t} VALUES ('a', 1, NULL)": r"NULL_TIMESTAMP",
        f"INSERT INTO {t} (item, n) VALUES ('a', 1)": r"NULL_TIMESTAMP\] .*`valid_from` in SQL",
        f"INSERT INTO {t} VALUES ('a', 1)": r"NOT_ENOUGH_DATA_COLUMNS",
        f"INSERT INTO {t} VALUES ('a', 'x', {at(9)})": r"CANNOT_SAFELY_CAST",
        f"INSERT INTO {t} (item, nope, valid_from) VALUES ('a', 1, {at(9)})": r"UNRESOLVED_COLUMN",
        f"INSERT INTO {t} SELECT 'b', int(1 / (id - 1)), {at(9)} FROM range(3)": r"DIVIDE_BY_ZERO",
        f"INSERT INTO {t}.history SELECT * FROM {t}.history": r"READ_ONLY",
        f"INSERT INTO {t}.versions SELECT * FROM {t}.versions": r"READ_ONLY",
        f"DELETE FROM {t}.history": r"READ_ONLY",
        f"DELETE FROM {t} WHERE n + 1 > 0": r"Cannot delete",
        f"DELETE FROM {t} WHERE item IN (SELECT item FROM {t})": r"subquery",
        f"UPDATE {t} SET n = 2": r"UNSUPPORTED_STATEMENT",
        f"ALTER TABLE {t} ADD COLUMN m INT": r"UNSUPPORTED_STATEMENT",
        f"ALTER TABLE {t} SET TBLPROPERTIES (kind = 'window')": r"UNSUPPORTED_STATEMENT",
        f"ALTER TABLE {t} RENAME TO sql_writes.u": r"UNSUPPORTED_STATEMENT",
        f"DROP TABLE {t}.history": r"READ_ONLY",
        "CREATE NAMESPACE sql_writes.n": r"READ_ONLY",
    }
    for statement, said in refused.items():
        with pytest.raises(PySparkException, match=said) as raised:
            spark.sql(statement)
        assert "Traceback" not in str(raised.value) and "py4j" not in str(raised.value).lower(), statement
        assert history(warehouse, "t") == before, statement
    assert names(warehouse) == ["t"]
    left = set(files_below(below(warehouse, "t"), "staging"))
    if "://" in warehouse:  # tasks may outlive their failed job, and create an object after the driver removed all
        with statestore.connect(warehouse).open_store("t") as store:
            left -= set(vacuumed(store))
    assert not left
