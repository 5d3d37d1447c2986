"""What a statement cannot have is Spark's own kind of error with this package's text, and the session goes on."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException
from support.spark_release import RELEASE

import statestore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def warehouse(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("errors")
    with statestore.connect(folder).create_store("prices", key={"item": "string"}, value={"price": "double"}) as store:
        for number in (1, 2):
            store.write(pa.table({"item": ["a"], "price": [1.0 * number], "timestamp": [number * 1000]}))
    statestore.register(spark, folder, "errs")
    return folder


CREATE = "CREATE TABLE errs.t (k STRING, v INT) USING statestore"
STATEMENTS = {
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
    STATEMENTS |= SINCE_4_2


def test_statements_that_cannot_be_answered(spark: SparkSession, warehouse: Path) -> None:
    for statement, said in STATEMENTS.items():
        with pytest.raises(PySparkException, match=said) as raised:
            spark.sql(statement)
        shown = str(raised.value)
        assert "Traceback" not in shown and "py4j" not in shown.lower(), statement
    assert [path.name for path in warehouse.iterdir()] == ["prices"]
    assert spark.sql("SELECT item, price FROM errs.prices").collect() == [("a", 2.0)]


def test_a_damaged_store_is_reported_and_the_others_are_read(
    spark: SparkSession, warehouse: Path, tmp_path: Path
) -> None:
    shutil.copytree(warehouse, tmp_path / "w")
    shutil.copytree(warehouse / "prices", tmp_path / "w" / "broken")
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
def test_names_that_no_catalog_can_have(spark: SparkSession, warehouse: Path, name: str) -> None:
    with pytest.raises(statestore.InvalidInputError, match=r"\[INVALID_NAME\] catalog name"):
        statestore.register(spark, warehouse, name)


def test_a_path_without_tables(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(statestore.NotFoundError, match=r"\[PATH_NOT_FOUND\]"):
        statestore.register(spark, tmp_path / "nowhere", "nothing")
    statestore.register(spark, tmp_path, "nothing")  # tables may be made later
    assert spark.sql("SHOW TABLES IN nothing").collect() == []
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.sql("SELECT * FROM nothing.t")


def test_registering_again_and_taking_it_back(spark: SparkSession, warehouse: Path, tmp_path: Path) -> None:
    statestore.register(spark, warehouse, "errs")
    statestore.register(spark, warehouse, "other")
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
        statestore.register(spark, warehouse, "errs")
    assert spark.sql("SELECT count(*) FROM errs.prices").first() == (1,)
