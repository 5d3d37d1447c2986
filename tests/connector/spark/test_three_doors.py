"""Python, DuckDB and Spark return the same rows for the same query."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from support.parameters import mostly_slow

import statestore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEY = {"id": "bigint", "part": "struct<region:string,day:date>"}
VALUE = {
    "name": "string",
    "price": "decimal(10,2)",
    "ratio": "double",
    "small": "tinyint",
    "flag": "boolean",
    "raw": "binary",
    "day": "date",
    "moment": "timestamp",
    "local": "timestamp_ntz",
    "tags": "array<string>",
    "counts": "map<string,int>",
    "nested": "struct<a:int,b:array<struct<c:double>>>",
}
COLUMNS = [*KEY, *VALUE]
T0 = 1_700_000_000_000
NOON = dt.datetime(2024, 3, 10, 12, 0, tzinfo=dt.UTC)


def row(number: int, timestamp: int, **changes: Any) -> dict[str, Any]:
    full = {
        "id": number,
        "part": {"region": "eu" if number % 2 else "us", "day": dt.date(2024, 1, 1 + number)},
        "name": f"näme-{number}",
        "price": Decimal(number) + Decimal("0.25"),
        "ratio": number / 4,
        "small": number - 3,
        "flag": number % 3 == 0,
        "raw": bytes([number, 0, 255]),
        "day": dt.date(1969, 12, 28) + dt.timedelta(days=number),
        "moment": NOON + dt.timedelta(hours=number, microseconds=1),
        "local": dt.datetime(2024, 3, 10, 2, 30) + dt.timedelta(hours=number),
        "tags": ["a", None, str(number)],
        "counts": [("one", 1), ("none", None)],
        "nested": {"a": number, "b": [{"c": 0.5}, None]},
        "timestamp": timestamp,
        "_change_type": None,
    }
    return full | changes


NULLS: dict[str, Any] = dict.fromkeys(VALUE)
FIRST = [row(n, T0 + n * 1000) for n in range(6)] + [row(6, T0, **NULLS), row(7, T0, ratio=float("nan"), tags=[])]
SECOND = [
    row(0, T0 + 60_000, name="later", counts=[]),
    row(1, T0 + 30_000, _change_type="delete"),
    row(2, T0 + 500, name="earlier"),
    row(9, T0 + 90_000, price=Decimal("-99999999.99"), ratio=float("-inf"), small=-128),
]


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("doors")
    with statestore.connect(folder).create_store("items", key=KEY, value=VALUE) as store:
        for rows in (FIRST, SECOND):
            store.write(pa.Table.from_pylist(rows, schema=input_schema(store)))
    statestore.connect(folder).create_store("empty", key={"k": "string"}, value={"v": "int"}).close()
    return str(folder)


def input_schema(store: Any) -> pa.Schema:
    flags = [("timestamp", pa.int64()), ("_change_type", pa.string())]
    return pa.schema([*store.spec.key, *store.spec.value, *flags])


def rows(table: pa.Table) -> list[str]:
    """Rows in a form that can be sorted and compared: moments in UTC, NaN equal to NaN, maps as lists of pairs."""
    return sorted(repr([(name, plain(value)) for name, value in line.items()]) for line in table.to_pylist())


def plain(value: Any) -> Any:
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return ("moment", value.astimezone(dt.UTC).isoformat())
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return bytes(value) if isinstance(value, bytearray) else value


def python(warehouse: str, mode: str, **options: Any) -> pa.Table:
    with statestore.connect(warehouse).open_store("items") as store:
        found: pa.RecordBatchReader = getattr(store, mode)(**options)
        return found.read_all()


def load(spark: SparkSession, path: str, **options: Any) -> DataFrame:
    return spark.read.format("statestore").options(**options).load(path)


QUESTIONS: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("scan", {}, {}, ""),
    ("scan", {"as_of": T0 + 3500}, {"timestampAsOf": T0 + 3500}, f"TIMESTAMP AS OF {T0 + 3500}"),
    ("scan", {"as_of": T0 - 1}, {"timestampAsOf": T0 - 1}, f"TIMESTAMP AS OF {T0 - 1}"),
    ("scan", {"version": 1}, {"versionAsOf": 1}, "VERSION AS OF 1"),
    (
        "scan",
        {"version": 1, "as_of": T0 + 600},
        {"VERSIONASOF": 1, "timestampasof": T0 + 600},
        f"VERSION AS OF 1 TIMESTAMP AS OF {T0 + 600}",
    ),
]


@pytest.mark.parametrize(("mode", "asked", "options", "clause"), mostly_slow(QUESTIONS, QUESTIONS[-1:]))
def test_snapshots(
    spark: SparkSession, warehouse: str, mode: str, asked: dict[str, Any], options: dict[str, Any], clause: str
) -> None:
    expected = rows(python(warehouse, mode, **asked))
    text = f"SELECT * FROM items {clause}"
    assert rows(statestore.sql(warehouse, text)) == expected
    assert rows(load(spark, f"{warehouse}/items", **options).toArrow()) == expected
    assert rows(statestore.sql(warehouse, text, spark=spark).toArrow()) == expected


BOUNDED: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("history", {}, {"history": "true"}),
    ("history", {"start": T0 + 31_000}, {"history": "TRUE", "startingTimestamp": T0 + 31_000}),
    (
        "history",
        {"start": T0 + 400, "end": T0 + 2000},
        {"history": True, "startingTimestamp": T0 + 400, "endingTimestamp": T0 + 2000},
    ),
    ("history", {"version": 1}, {"history": "true", "versionAsOf": 1}),
    ("changes", {}, {"readChangeFeed": "true"}),
    ("changes", {"start_version": 2}, {"readChangeFeed": "true", "startingVersion": 2}),
    ("changes", {"end_version": 1}, {"readChangeFeed": "true", "endingVersion": 1}),
    (
        "changes",
        {"start_time": T0 + 500, "end_time": T0 + 30_000},
        {"readChangeFeed": "true", "startingTimestamp": T0 + 500, "endingTimestamp": T0 + 30_000},
    ),
]


@pytest.mark.parametrize(("mode", "asked", "options"), mostly_slow(BOUNDED, [*BOUNDED[2:4], *BOUNDED[-2:]]))
def test_history_and_changes(
    spark: SparkSession, warehouse: str, mode: str, asked: dict[str, Any], options: dict[str, Any]
) -> None:
    expected = python(warehouse, mode, **asked)
    assert expected.num_rows
    assert rows(load(spark, f"{warehouse}/items", **options).toArrow()) == rows(expected)


WHERE = [
    "id = 3",
    "id <=> 3",
    "id IN (1, 3, 5, 77)",
    "id NOT IN (1, 3)",
    "id > 2 AND id <= 5",
    "name LIKE 'näme%'",
    "name LIKE '%-3'",
    "name LIKE '%ter%'",
    "name <> 'later'",
    "name IS NULL",
    "name IS NOT NULL AND ratio IS NOT NULL",
    "price = 2.25",
    "price < 2.255",
    "price > 1",
    "ratio = 0.25",
    "ratio > 0.5",
    "ratio < 0.5",
    "small < 1000",
    "small = -128",
    "flag",
    "NOT flag",
    "raw = X'0300FF'",
    "raw > X'02'",
    "day < DATE '1970-01-01'",
    "day = DATE '1969-12-31'",
    "moment > TIMESTAMP '2024-03-10 14:00:00Z'",
    "moment = TIMESTAMP '2024-03-10 15:00:00.000001Z'",
    "local <= TIMESTAMP_NTZ '2024-03-10 04:30:00'",
    "part = named_struct('region', 'eu', 'day', DATE '2024-01-04')",
    "part.region = 'eu'",
    "nested.a > 3",
    "nested = named_struct('a', 3, 'b', array(named_struct('c', 0.5D), null))",
    "nested IS NOT NULL",
    "tags = array('a', null, '4')",
    "id = 3 OR name = 'later'",
    "id + 1 = 4",
    "upper(name) = 'LATER'",
    "valid_from >= TIMESTAMP '2023-11-14 22:13:22Z'",
    "valid_to IS NULL",
    "id = 4 AND id = 5",
    "id = 1000",
]


@pytest.fixture(scope="module")
def plain_copy(spark: SparkSession, warehouse: str) -> DataFrame:
    """The history as a DataFrame whose rows are all in Spark."""
    history = load(spark, f"{warehouse}/items", history="true")
    return spark.createDataFrame(history.collect(), history.schema)


@pytest.mark.parametrize("where", mostly_slow(WHERE, WHERE[1::18]))
def test_filters_keep_the_same_rows_pushed_or_not(
    spark: SparkSession, warehouse: str, plain_copy: DataFrame, where: str
) -> None:
    history = load(spark, f"{warehouse}/items", history="true")
    expected = sorted(plain_copy.where(where).toArrow().column("id").to_pylist())
    assert sorted(history.where(where).toArrow().column("id").to_pylist()) == expected


QUERIES: list[tuple[str, str | None]] = [
    ("SELECT id, name FROM items WHERE id > 2 AND name IS NOT NULL", None),
    ("SELECT count(*) AS n, sum(price) AS total, max(ratio) AS most FROM items WHERE ratio < 2", None),
    ("SELECT part.region AS region, count(*) AS n FROM items GROUP BY part.region", None),
    ("SELECT now.id, old.name AS was FROM items now JOIN items VERSION AS OF 1 old ON now.id = old.id", None),
    ("SELECT nested.a AS a, size(tags) AS n FROM items", "SELECT nested.a AS a, len(tags)::int AS n FROM items"),
    ("SELECT k, v FROM empty", None),
    ("SELECT count(*) AS n, sum(v) AS total FROM empty", None),
    ("SELECT id FROM items WHERE name = 'nobody'", None),
]


@pytest.mark.parametrize(("text", "duck"), mostly_slow(QUERIES, QUERIES[1:7:2]))
def test_sql(spark: SparkSession, warehouse: str, text: str, duck: str | None) -> None:
    found = statestore.sql(warehouse, text, spark=spark).toArrow()
    assert rows(found) == rows(statestore.sql(warehouse, duck or text))


def test_an_empty_store_has_its_schema(spark: SparkSession, warehouse: str) -> None:
    frame = load(spark, f"{warehouse}/empty")
    assert frame.schema.simpleString() == "struct<k:string,v:int,valid_from:timestamp,valid_to:timestamp>"
    assert frame.count() == 0
    assert frame.groupBy("k").count().collect() == []


def test_metadata_tables(spark: SparkSession, warehouse: str) -> None:
    frame = load(spark, f"{warehouse}/items$versions")
    assert [r.version for r in frame.orderBy("version").collect()] == [0, 1, 2]
    assert [r.operation for r in frame.where("version = 2").collect()] == ["write"]
    assert load(spark, f"{warehouse}/items$schema").count() == len(COLUMNS)
    assert load(spark, f"{warehouse}/empty$segments").count() == 0
