"""A Spark that this package does not know: reads go by the data source, catalogs where all that they need is there."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from support.spark_release import RELEASE

import statestore
from statestore.connector import supported_spark
from statestore.connector.spark.session import session_catalogs
from statestore.connector.spark.session.register import _active
from statestore.connector.spark.source import StateStoreSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

UNKNOWN = "is none of 9.8 and 9.9"


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unknown")
    with statestore.connect(folder).create_store("prices", key={"item": "string"}, value={"price": "int"}) as store:
        store.write(pa.table({"item": ["curry", "naan"], "price": [8, 2], "timestamp": [1, 2]}))
    return folder


@pytest.fixture
def unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only releases that are not there yet are known."""
    monkeypatch.setattr(supported_spark, "KNOWN", ((9, 8), (9, 9)))


@pytest.fixture(scope="module")
def other(spark: SparkSession) -> SparkSession:
    """Another session of the application."""
    return spark.newSession()


@pytest.fixture
def fresh(spark: SparkSession, other: SparkSession) -> Iterator[SparkSession]:
    """The other session as it is before `register`."""
    statestore.unregister(spark)
    yield other
    statestore.unregister(other)
    statestore.register(spark)


def plan(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


def test_this_release_is_a_known_one() -> None:
    assert RELEASE in supported_spark.KNOWN and min(supported_spark.KNOWN) == supported_spark.LEAST


def test_this_release_has_all_that_is_used_and_asks_for_nothing_else(spark: SparkSession) -> None:
    from statestore.connector.spark.jvm import Jvm

    assert session_catalogs.missing(Jvm(spark)) == []
    assert session_catalogs.unanswered_methods(Jvm(spark)) == []


@pytest.mark.slow
def test_reads_go_by_the_data_source_and_explain_says_so(fresh: SparkSession, warehouse: Path, unknown: None) -> None:
    statestore.register(fresh)
    reader = fresh.read.format("statestore")
    for rows in (reader.load(f"{warehouse}/prices"), fresh.read.load(f"{warehouse}/prices", format="statestore")):
        assert sorted(rows.select("item", "price").collect()) == [("curry", 8), ("naan", 2)]
        assert f"arrow_statestore (not planned: Spark {fresh.version} {UNKNOWN})" in plan(rows)
        assert "(Python)" in plan(rows)
    assert rows.where("item = 'naan'").count() == 1
    assert fresh.read.format("statestore").option("versionAsOf", 0).load(f"{warehouse}/prices").count() == 0
    found = statestore.sql(str(warehouse), "SELECT sum(price) AS n FROM prices", spark=fresh)
    assert found.collect() == [(10,)] and UNKNOWN in plan(found)


def test_explain_says_why_a_read_of_a_known_release_is_not_planned(spark: SparkSession, warehouse: Path) -> None:
    def shown(schema: str | None) -> str:
        reader = spark.read.format("statestore")
        return plan((reader if schema is None else reader.schema(schema)).load(f"{warehouse}/prices"))

    assert "(Python)" not in shown(None) and "not planned" not in shown(None)
    assert "BatchScan arrow_statestore (not planned: a schema of its own)[" in shown("item string")


@pytest.mark.slow
def test_a_session_that_is_not_registered_reads_without_a_reason(
    spark: SparkSession, other: SparkSession, warehouse: Path
) -> None:
    statestore.register(spark)
    with _active(other), contextlib.suppress(AnalysisException):  # Spark finds the installed package by itself
        other.dataSource.register(StateStoreSource)
    rows = other.read.format("statestore").schema("item string").load(f"{warehouse}/prices")
    assert sorted(rows.collect()) == [("curry",), ("naan",)] and "BatchScan arrow_statestore[" in plan(rows)


def test_a_catalog_comes_with_a_warning(fresh: SparkSession, warehouse: Path, unknown: None) -> None:
    with pytest.warns(
        RuntimeWarning, match=f"Spark {fresh.version} {UNKNOWN}, .* may not work; if a statement"
    ) as said:
        statestore.register(fresh, warehouse, "unknown")
    assert said[0].filename == __file__
    assert fresh.sql("SELECT price FROM unknown.prices WHERE item = 'naan'").collect() == [(2,)]
    with pytest.raises(AnalysisException, match=r"\[VERSION_NOT_FOUND\]"):
        fresh.sql("SELECT price FROM unknown.prices VERSION AS OF 7")


def test_the_warning_names_methods_that_nothing_answers(
    fresh: SparkSession, warehouse: Path, unknown: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from statestore.connector.spark.planner.scan_builder import TableScanBuilder

    monkeypatch.delattr(TableScanBuilder, "pushLimit")
    with pytest.warns(RuntimeWarning, match=r"it has methods .* answer: SupportsPushDownLimit\.pushLimit;"):
        statestore.register(fresh, warehouse, "unknown")


def test_a_statement_that_needs_such_a_method_is_refused(
    fresh: SparkSession, warehouse: Path, unknown: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from statestore.connector.spark.planner.planned_table import PlannedTable

    monkeypatch.delattr(PlannedTable, "partitioning")
    with pytest.warns(RuntimeWarning, match=r"not answer: .*, SupportsRead\.partitioning, "):
        statestore.register(fresh, warehouse, "unknown")
    said = rf"\[UNSUPPORTED_SPARK\] Spark {fresh.version} asks TruncatableTable for partitioning, which"
    with pytest.raises(AnalysisException, match=said) as raised:
        fresh.sql("DESCRIBE TABLE unknown.prices").collect()
    assert "Traceback" not in str(raised.value)


@pytest.mark.quick("*create-state*")
@pytest.mark.parametrize(
    ("lacking", "module", "name", "value"),
    [
        (r"CatalogManager\.gone", session_catalogs, "_FIELD", "gone"),
        (
            r"a constructor of PythonTable",
            session_catalogs,
            "CALLED",
            (("org.apache.spark.PythonTable", "<init>", (3,)),),
        ),
        (r"Gone\.create", session_catalogs, "CALLED", (("org.apache.spark.sql.Gone", "create", (4,)),)),
        (r"String\.concat", session_catalogs, "CALLED", (("java.lang.String", "concat", (2, 3)),)),
    ],
)
def test_a_release_that_lacks_something_takes_no_catalog(
    fresh: SparkSession,
    warehouse: Path,
    unknown: None,
    monkeypatch: pytest.MonkeyPatch,
    lacking: str,
    module: Any,
    name: str,
    value: object,
) -> None:
    monkeypatch.setattr(module, name, value)
    said = rf"\[UNSUPPORTED_SPARK\] Spark .* {UNKNOWN}, and lacks .*: {lacking}; use .*, or Spark 9\.8 and"
    with pytest.raises(statestore.UnsupportedError, match=said):
        statestore.register(fresh, warehouse, "unknown")
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        fresh.sql("SELECT * FROM unknown.prices")
    assert fresh.read.format("statestore").load(f"{warehouse}/prices").count() == 2


def test_a_release_without_the_private_modules_takes_no_catalog(
    fresh: SparkSession, warehouse: Path, unknown: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, session_catalogs.__name__, None)  # importing it fails
    with pytest.raises(statestore.UnsupportedError, match=rf"{UNKNOWN}, and lacks .*: .*session_catalogs"):
        statestore.register(fresh, warehouse, "unknown")


def test_a_known_release_whose_private_field_is_elsewhere(
    fresh: SparkSession, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_catalogs, "_FIELD", "gone")
    with pytest.raises(statestore.UnsupportedError, match=r"not Apache's build, and lacks .*: CatalogManager\.gone"):
        statestore.register(fresh, warehouse, "unknown")
