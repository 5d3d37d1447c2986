"""Types of all kinds in state: this package's source against Spark's, by schema, rows and filters left to Spark.

The first checkpoint is the one of all types in ``tests/data``; the others are written here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from support.checkpoints.spark_state_fixtures import checkpoint_path, types_checkpoint
from support.spark_release import RELEASE

import statestore
from statestore.connector.spark.filters import as_filter
from statestore.formats.values.declared_types import DECLARED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Copy = Callable[[str | Path], str]
SWITCHES = ("spark.sql.geospatial.enabled", "spark.sql.timeType.enabled")
# To Python's sources Spark has no char and varchar: they come as the strings they are.
LENGTHS = ("fixed", "varying")
KEYS = {
    "months": "make_ym_interval(n, 2)",
    "years": "cast(make_ym_interval(n, 0) as interval year)",
    "calendar": "make_interval(1, n)",
    "minutes": "cast(make_dt_interval(0, n, 2, 0) as interval hour to minute)",
    "inner": "named_struct('months', make_ym_interval(n, 1), 'w', w)",
    "list": "array(make_ym_interval(n, 1))",
    "time3": "cast('12:34:56.123' as time(3))",
    "small": "cast(n as decimal(5, 2))",
}

CONDITIONS = (
    "value.first.lcase = 'CURRY'",
    "value.first.lcase <=> 'CURRY'",
    "value.first.lcase IN ('CURRY', 'NAAN')",
    "value.first.lcase != 'CURRY'",
    "value.first.lcase < 'CURRYZ'",
    "startswith(value.first.lcase, 'CUR')",
    "contains(value.first.lcase, 'URR')",
    "value.first.unicode_ci = 'CURRY'",
    "value.first.unicode < 'Curry'",
    "value.first.rtrim = 'dal'",
    "value.first.de = 'cürry'",
    "array_contains(value.first.texts, 'CURRY')",
    "value.first.lcase IS NOT NULL AND key.n > 1",
    "value.first.deep[0].c['k'][0] = 'CURRY'",
)


@pytest.fixture(autouse=True)
def switched_on(spark: SparkSession) -> Iterator[None]:
    for name in SWITCHES:
        spark.conf.set(name, "true")
    yield
    for name in SWITCHES:
        spark.conf.unset(name)


def read(spark: SparkSession, checkpoint: str, *, builtin: bool = False, **options: Any) -> DataFrame:
    reader = spark.read.format("statestore").options(**options)
    return (reader.option("provider", "builtin") if builtin else reader).load(checkpoint)


def schema_text(rows: DataFrame) -> str:
    """The schema. Spark's own source before 4.3 passes on that parts of a state are never null; later it does not."""
    text = rows.schema.json()
    return text if RELEASE >= (4, 3) else re.sub('(nullable|[cC]ontainsNull)":false', r'\1":true', text)


def texts(rows: DataFrame) -> list[str]:
    """Every row as Spark prints it, intervals as well."""
    found = rows.selectExpr(*(f"cast(`{name}` as string)" for name in rows.columns)).collect()
    return sorted(str(tuple(row)) for row in found)


def run(spark: SparkSession, folder: Path, query: Any, mode: str = "update") -> str:
    (folder / "in").mkdir()
    for number, rows in enumerate(([("curry", 1), ("naan", 2)], [("Curry", 3), ("dal ", 4)])):
        lines = (json.dumps({"w": w, "n": n, "t": f"2024-01-01T00:0{n}:00Z"}) for w, n in rows)
        (folder / "in" / f"{number}.json").write_text("\n".join(lines))
    stream = spark.readStream.schema("w string, n int, t timestamp").json(str(folder / "in"))
    writer = query(stream).writeStream.outputMode(mode).format("noop")
    checkpoint = str(folder / "checkpoint")
    writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
    return checkpoint


def test_values_of_every_type_are_those_of_spark(spark: SparkSession, copy_for_spark: Copy) -> None:
    ours, theirs = read(spark, types_checkpoint()), read(spark, copy_for_spark(types_checkpoint()), builtin=True)
    mine, true = (
        frame.selectExpr("key", "value.first.*", "value.valueSet", "partition_id") for frame in (ours, theirs)
    )
    true = true.withColumns({name: true[name].cast("string") for name in LENGTHS})
    assert mine.drop(*LENGTHS).schema == true.drop(*LENGTHS).schema
    shapes = {
        name: f"concat(st_srid({name}), hex(st_asbinary({name}))) AS {name}" for name in ("geometry", "geography")
    }
    shown = [shapes.get(name, f"`{name}`") for name in mine.columns]
    assert texts(mine.selectExpr(*shown)) == texts(true.selectExpr(*shown))


@pytest.mark.slow
def test_keys_of_every_type_are_those_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    kinds = [f"{kind} AS {name}" for name, kind in KEYS.items()]
    checkpoint = run(spark, tmp_path, lambda rows: rows.selectExpr(*kinds).groupBy(*KEYS).count())
    ours, theirs = read(spark, checkpoint), read(spark, checkpoint, builtin=True)
    assert schema_text(ours) == schema_text(theirs)
    conditions = ("key.months = INTERVAL '3-2' YEAR TO MONTH", "key.inner.w = 'naan'", "key.small = 4")
    shown = theirs.selectExpr("*", *(f"{wanted} AS wanted_{n}" for n, wanted in enumerate(conditions)))
    cells = [f"cast(`{name}` as string)" for name in ours.columns]
    rows = shown.selectExpr(f"array({', '.join(cells)})", f"array({', '.join(shown.columns[-len(conditions) :])})")
    whole = [(str(tuple(row)), is_wanted) for row, is_wanted in rows.collect()]
    assert texts(ours) == sorted(row for row, _ in whole)
    for n, wanted in enumerate(conditions):
        assert texts(ours.where(wanted)) == sorted(row for row, is_wanted in whole if is_wanted[n]) != [], wanted


@pytest.mark.slow
@pytest.mark.parametrize("some", [slice(0, None, 3), pytest.param(slice(0, None), marks=pytest.mark.slow)], ids=str)
def test_conditions_on_collated_texts_are_decided_by_spark(
    spark: SparkSession, copy_for_spark: Copy, some: slice
) -> None:
    conditions = CONDITIONS[some]
    numbers = [f"array_sort(collect_list(if({condition}, key.n, null)))" for condition in conditions]
    theirs = read(spark, copy_for_spark(types_checkpoint()), builtin=True).selectExpr(*numbers).first()
    assert theirs is not None and [] not in theirs
    for condition, true in zip(conditions, theirs, strict=True):
        ours = read(spark, types_checkpoint()).where(condition).select("key.n").collect()
        assert sorted(row.n for row in ours) == true, condition
    history = read(spark, types_checkpoint(), history="true").where(CONDITIONS[0]).select("key.n").distinct()
    assert sorted(row.n for row in history.collect()) == theirs[0]


@pytest.mark.slow
def test_grouping_sorting_and_extremes_of_collated_texts_are_spark_s(spark: SparkSession, copy_for_spark: Copy) -> None:
    for query in (
        "SELECT lower(first(w)) AS w, count(*) AS n FROM {rows} GROUP BY rows.w ORDER BY 1, 2",
        "SELECT min(w), max(w), count(DISTINCT w) FROM {rows}",
    ):
        both = []
        for builtin in (False, True):
            checkpoint = copy_for_spark(types_checkpoint()) if builtin else types_checkpoint()
            rows = read(spark, checkpoint, builtin=builtin).selectExpr("value.first.lcase AS w")
            rows.createOrReplaceTempView("rows")
            both.append([tuple(row) for row in spark.sql(query.replace("{rows}", "rows")).collect()])
        assert [str(row).lower() for row in both[0]] == [str(row).lower() for row in both[1]]
    spark.catalog.dropTempView("rows")


@pytest.mark.slow
def test_changes_keep_collations_and_intervals(spark: SparkSession, copy_for_spark: Copy) -> None:
    changes = read(spark, types_checkpoint(), readChangeFeed="true")
    assert changes.where("value.first.lcase = 'CURRY'").count() == 2
    kinds: Any = changes.select("value.first.*").schema
    assert kinds["lcase"].dataType.simpleString() == "string collate UTF8_LCASE"
    assert kinds["calendar"].dataType.simpleString() == "interval"
    feed = read(spark, types_checkpoint(), readChangeFeed="true", changeStartBatchId="0")
    theirs = read(
        spark, copy_for_spark(types_checkpoint()), builtin=True, readChangeFeed="true", changeStartBatchId="0"
    )
    columns = ["batch_id", "change_type", "cast(value.first.calendar as string)", "value.first.lcase"]
    assert texts(feed.selectExpr(*columns)) == texts(theirs.selectExpr(*columns))


@pytest.mark.slow
def test_a_join_on_collated_texts_has_the_collation_s_bytes_for_keys(spark: SparkSession, tmp_path: Path) -> None:
    def query(rows: DataFrame) -> DataFrame:
        left = rows.withWatermark("t", "1 hour").selectExpr("collate(w, 'UTF8_LCASE') AS a", "t AS at")
        right = rows.withWatermark("t", "1 hour").selectExpr(
            "collate(w, 'UTF8_LCASE') AS b", "t", "make_interval(n) AS i"
        )
        return left.join(right, left.a == right.b)

    checkpoint = run(spark, tmp_path, query, "append")
    for side in ("left", "right"):
        ours, theirs = (read(spark, checkpoint, builtin=builtin, joinSide=side) for builtin in (False, True))
        assert schema_text(ours) == schema_text(theirs)
        assert texts(ours) == texts(theirs)
        assert (
            texts(ours.where("key.field0 = X'6375727279'")) == texts(theirs.where("key.field0 = X'6375727279'")) != []
        )


def test_metadata_of_windows_and_watermarks_is_spark_s(spark: SparkSession, copy_for_spark: Copy) -> None:
    checkpoint = str(checkpoint_path("spark4.3.0-win__rkcl"))
    ours, theirs = read(spark, checkpoint), read(spark, copy_for_spark(checkpoint), builtin=True)
    assert schema_text(ours) == schema_text(theirs)
    assert "spark.watermarkDelayMs" in ours.schema.json()
    # A stream would take it for a promise that old rows do not come.
    assert "watermark" not in read(spark, checkpoint, readChangeFeed="true").schema.json()


def test_intervals_as_numbers_can_be_collected(spark: SparkSession) -> None:
    rows = read(spark, types_checkpoint(), intervalsAsNumbers="true").where("key.n = 1").select("value.first.*")
    (row,) = rows.select("year_month", "month", "year_months", "calendar", "calendars", "no_calendar").collect()
    assert (row.year_month, row.month, row.year_months, row.no_calendar) == (14, -1, [13, None], None)
    parts = {"months": 13, "days": -3, "microseconds": ((4 * 60 + 5) * 60) * 10**6 + 6_500_000}
    assert row.calendar.asDict() == parts
    assert row.calendars[0].asDict() == {"months": 1, "days": 0, "microseconds": 0} and row.calendars[1] is None


def test_sql_of_spark_has_numbers_and_says_what_they_are(spark: SparkSession) -> None:
    spark.sql(f"CREATE TEMPORARY VIEW typed USING arrow_statestore OPTIONS (path '{types_checkpoint()}')")
    assert spark.sql("SELECT value.first.calendar.months FROM typed WHERE key.n = 2").first()[0] == 14  # type: ignore[index]
    stated = spark.table("typed").schema["value"].metadata["statestore.type"]
    kinds = {each["name"]: each["type"] for each in json.loads(stated)["fields"][0]["type"]["fields"]}
    assert (kinds["calendar"], kinds["year_month"]) == ("interval", "interval year to month")
    spark.catalog.dropTempView("typed")
    months = statestore.sql(types_checkpoint(), "SELECT value.first.year_month AS m FROM state WHERE key.n = 1", spark)
    assert months.dtypes == [("m", "interval year to month")]


@pytest.mark.slow
def test_the_columns_beside_an_interval_are_read_alone(spark: SparkSession) -> None:
    assert sorted(row.n for row in read(spark, types_checkpoint()).select("key.n").collect()) == [1, 2, 3, 4]
    named = read(spark, types_checkpoint(), columns="key")
    assert named.columns == ["key"] and named.count() == 4
    given = spark.read.format("statestore").schema("key struct<n: int>").load(types_checkpoint())
    assert given.where("key.n = 3").count() == 1


def test_filters_on_what_only_spark_compares_are_not_ours() -> None:
    from pyspark.sql import datasource as pushed

    text = pa.field("w", pa.string(), metadata={DECLARED: b"string collate UTF8_LCASE"})
    inside = pa.field("key", pa.struct([text, pa.field("i", pa.month_day_nano_interval()), pa.field("n", pa.int64())]))
    schema = pa.schema([text, inside, pa.field("plain", pa.string())])
    refused: tuple[Any, ...] = (
        pushed.EqualTo(("w",), "curry"),
        pushed.EqualNullSafe(("key", "w"), "curry"),
        pushed.In(("w",), ("curry",)),
        pushed.GreaterThan(("w",), "curry"),
        pushed.LessThanOrEqual(("w",), "curry"),
        pushed.StringStartsWith(("w",), "cu"),
        pushed.StringEndsWith(("w",), "ry"),
        pushed.StringContains(("key", "w"), "ur"),
        pushed.Not(pushed.EqualTo(("w",), "curry")),
        pushed.EqualTo(("key",), {"w": "curry", "i": None, "n": 1}),
    )
    taken: tuple[Any, ...] = (
        pushed.IsNotNull(("w",)),
        pushed.EqualTo(("plain",), "a"),
        pushed.EqualTo(("key", "n"), 1),
    )
    assert [as_filter(each, schema) for each in refused] == [None] * len(refused)
    assert None not in [as_filter(each, schema) for each in taken]


def test_columns_that_pyspark_does_not_exchange_are_named(spark: SparkSession, tmp_path: Path) -> None:
    statestore.connect(tmp_path).create_store("rates", key={"w": "string"}, value={"v": "bigint"}).close()
    rows = spark.sql("SELECT 'a' AS w, timestamp_seconds(1) AS t, INTERVAL '1-2' YEAR TO MONTH AS i")
    said = r"\[UNSUPPORTED_TYPE\] column 'i' is interval year to month, which PySpark does not exchange with Python"
    with pytest.raises(statestore.UnsupportedError, match=said):
        statestore.asof_join(rows, tmp_path / "rates", on="w", left_time="t")


@pytest.mark.slow
def test_collated_keys_of_joins_and_of_keyed_state_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = statestore.connect(tmp_path)
    store = warehouse.create_store("rates", key={"w": "string"}, value={"v": "bigint"})
    store.put("curry", {"v": 1}, timestamp=0)
    store.commit()
    store.close()
    rows = spark.sql("SELECT 'CURRY' COLLATE UTF8_LCASE AS w, timestamp_seconds(1) AS t, 1L AS n")
    said = r"\[COLLATED_KEY\] column 'w' is string collate UTF8_LCASE, and keys are compared byte by byte"
    with pytest.raises(statestore.UnsupportedError, match=said):
        statestore.asof_join(rows, tmp_path / "rates", on="w", left_time="t")
    warehouse.create_store("keyed", kind="keyed", key={"w": "string"}).close()
    with pytest.raises(statestore.UnsupportedError, match=said):
        statestore.run_keyed(
            rows, lambda backend: lambda key, rows: [], key="w", store=tmp_path / "keyed", output="n int"
        )
    spec = statestore.tracked.StateSpec.function(lambda value, state: None)
    with pytest.raises(statestore.UnsupportedError, match=said):
        statestore.track_state_by_key(
            rows, key="w", spec=spec, store=tmp_path / "tracked", state_type="bigint", output_type="n bigint"
        )
    assert not (tmp_path / "tracked").exists()
    plain = rows.selectExpr("lower(w) COLLATE UTF8_BINARY AS w", "t")
    assert statestore.asof_join(plain, tmp_path / "rates", on="w", left_time="t").select("v").first() == (1,)
