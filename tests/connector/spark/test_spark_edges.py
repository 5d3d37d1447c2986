"""The edges of Spark, its workers and a store: NaN inside values, promises of no nulls, names, stragglers."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType
from support.parameters import mostly_slow

import statestore
from statestore.catalog.catalog import connect
from statestore.connector.spark.writer import StateStoreWriter
from statestore.formats.values.types import parse_type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAN = float("nan")
VALUE = {"x": "double", "pair": "struct<a:int,b:double>", "list": "array<double>"}
WRITTEN = "k string, x double, pair struct<a:int,b:double>, list array<double>, timestamp timestamp"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store of four keys; NaN inside structs and lists, one null."""
    root = tmp_path_factory.mktemp("edges")
    columns = {"k": pa.string(), **{n: parse_type(t) for n, t in VALUE.items()}, "timestamp": pa.int64()}
    rows = [
        {"k": f"k{i}", "x": None if i == 3 else float(i), "pair": {"a": i, "b": NAN}, "list": [NAN], "timestamp": i}
        for i in range(4)
    ]
    with connect(root).create_store("s", key={"k": "string"}, value=VALUE) as store:
        store.put_all(pa.Table.from_pylist(rows, schema=pa.schema(list(columns.items()))))
        store.commit()
    return str(root / "s")


def keys(spark: SparkSession, path: str, where: str) -> list[str]:
    return sorted(row.k for row in spark.read.format("statestore").load(path).where(where).select("k").collect())


NAN_INSIDE: list[tuple[str, list[str]]] = [
    ("pair = named_struct('a', 2, 'b', double('NaN'))", ["k2"]),
    ("pair <> named_struct('a', 2, 'b', double('NaN'))", ["k0", "k1", "k3"]),
    ("list = array(double('NaN'))", ["k0", "k1", "k2", "k3"]),
]


@pytest.mark.parametrize(("where", "expected"), mostly_slow(NAN_INSIDE, NAN_INSIDE[1:]))
def test_nan_inside_a_value_equals_nan_as_in_spark(
    spark: SparkSession, path: str, where: str, expected: list[str]
) -> None:
    assert keys(spark, path, where) == expected


@pytest.mark.slow
def test_a_null_where_the_given_schema_promises_none_is_an_error(spark: SparkSession, path: str) -> None:
    """Spark itself would die of it with an internal error."""
    reader = spark.read.format("statestore")
    with pytest.raises(PySparkException, match=r"NULL_NOT_EXPECTED.*'x'"):
        reader.schema("k string, x double not null").load(path).collect()


def test_column_names_ignore_case_as_in_spark(spark: SparkSession, path: str) -> None:
    given = spark.read.format("statestore").schema("K string not null").load(path)
    assert given.where("k = 'k1'").collect()[0].asDict() == {"K": "k1"}
    assert spark.read.format("statestore").option("columns", "X,K").load(path).columns == ["x", "k"]


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"provider": "bultin"}, "INVALID_OPTION"),
        ({"versionAsOf": "0_1"}, "INVALID_OPTION"),
        ({"path": "nosuch://bucket/prices"}, "UNSUPPORTED_PATH"),
        ({"path": "s3:///prices"}, "INVALID_LOCATION"),
    ],
)
def test_what_would_be_misread_is_refused(spark: SparkSession, path: str, given: dict[str, str], code: str) -> None:
    with pytest.raises(PySparkException, match=rf"\[{code}\]"):
        spark.read.format("statestore").options(**{"path": path, **given}).load()


def test_an_error_of_ours_is_its_message(spark: SparkSession, path: str) -> None:
    with pytest.raises(PySparkException) as found:
        spark.read.format("statestore").load(f"{path}-not-there")
    assert "[STORE_NOT_FOUND]" in str(found.value)
    assert "Traceback" not in str(found.value)


def test_a_task_that_outlives_an_abort_leaves_nothing(spark: SparkSession, path: str) -> None:
    schema = StructType.fromDDL(WRITTEN)
    assert isinstance(schema, StructType)
    writer = StateStoreWriter(path, schema, False, {})
    writer.abort([None])
    row = {"k": "z", "x": 1.0, "pair": None, "list": None, "timestamp": datetime(2024, 1, 1, tzinfo=UTC)}
    with pytest.raises(statestore.ConflictError, match="STAGED_FILE_MISSING"):
        writer.write(iter([pa.RecordBatch.from_pylist([row])]))
    assert not (Path(path) / "staging").exists()
