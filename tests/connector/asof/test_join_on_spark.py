"""`asof_join` on Spark DataFrames, batch and streaming, gives the rows of the Arrow join."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.checkpoints.checkpoint_tables import all_rows, began, left_rows, micros, tables
from support.checkpoints.purged_checkpoints import purged
from support.checkpoints.spark_state_fixtures import checkpoint_path
from support.keyed.keyed_kinds import keyed
from support.parameters import mostly_slow
from support.places import PLACES, below, warehouse_in, warehouse_of

import statestore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T0 = 1_700_000_000_000
WAYS = [("left", None), ("inner", 3), ("inner", None), ("left", 3)]
SCHEMA = "item string, at timestamp, n bigint"


@pytest.fixture(scope="module", params=PLACES)
def store_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = warehouse_in(request.param, request, tmp_path_factory.mktemp("asof"))
    chance = random.Random(3)
    with statestore.connect(folder).create_store("prices", key={"item": "string"}, value={"price": "double"}) as store:
        for _ in range(5):
            for _ in range(200):
                key, time = f"k{chance.randrange(40)}", T0 + chance.randrange(1000)
                if chance.random() < 0.15:
                    store.delete(key, timestamp=time)
                else:
                    store.put(key, float(chance.randrange(1000)), timestamp=time)
            store.commit()
    return below(folder, "prices")


def left_table() -> pa.Table:
    chance = random.Random(4)
    rows = [(f"k{chance.randrange(45)}", T0 + chance.randrange(-50, 1100), n) for n in range(500)]
    keys = [None if n % 97 == 0 else key for key, _, n in rows]
    times = pa.array([None if n % 89 == 0 else time for _, time, n in rows], pa.timestamp("ms", "UTC"))
    return pa.table({"item": keys, "at": times.cast(pa.timestamp("us", "UTC")), "n": [n for _, _, n in rows]})


def rows_of(table: pa.Table) -> list[str]:
    return sorted(str([str(cell) for cell in row.values()]) for row in table.select(["n", "item", "price"]).to_pylist())


@pytest.mark.parametrize(("how", "version"), mostly_slow(WAYS, WAYS[:1]))
def test_a_batch(spark: SparkSession, store_path: str, how: str, version: int | None) -> None:
    left = left_table()
    options: dict[str, Any] = {"on": "item", "left_time": "at", "how": how, "version": version}
    found = statestore.asof_join(spark.createDataFrame(left), store_path, **options)
    assert found.schema.simpleString() == "struct<item:string,at:timestamp,n:bigint,price:double>"
    assert rows_of(found.toArrow()) == rows_of(statestore.asof_join(left, store_path, **options))


def test_a_batch_with_other_types_and_names(spark: SparkSession, tmp_path: Path) -> None:
    key, value = {"x": "bigint", "y": "string"}, {"v": "array<string>", "w": "timestamp"}
    with statestore.connect(tmp_path).create_store("s", key=key, value=value) as store:
        store.put({"x": 1, "y": "a"}, {"v": ["p", None], "w": None}, timestamp=10)
        store.commit()
        left = spark.sql("SELECT 1 AS `e.x`, 'a' AS v, 20L AS t UNION ALL SELECT 1, 'b', 20L")
        found = statestore.asof_join(
            left, store, on={"e.x": "x", "v": "y"}, left_time="t", how="left", prefix="s_", columns=["v", "valid_from"]
        )
        rows = {row["v"]: (row["s_v"], row["s_valid_from"] is None) for row in found.collect()}
    assert rows == {"a": (["p", None], False), "b": (None, True)}


def test_nothing_passes_through_the_driver_and_empty_sides(
    spark: SparkSession, store_path: str, tmp_path: Path
) -> None:
    left = spark.createDataFrame(left_table())
    statestore.connect(tmp_path).create_store("none", key={"item": "string"}, value={"price": "double"}).close()
    sides: tuple[tuple[DataFrame, str, Any], ...] = (
        (left.where("n < 0"), "left", store_path),
        (left, "inner", tmp_path / "none"),
        (left, "left", tmp_path / "none"),
    )
    joined = [
        statestore.asof_join(rows, store, on="item", left_time="at", how=how).selectExpr(f"{number} AS number")
        for number, (rows, how, store) in enumerate(sides)
    ]
    found = joined[0].union(joined[1]).union(joined[2]).groupBy("number").count().collect()
    assert found == [(2, 500)]


def stream(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder))


def feed(folder: Path, number: int, left: pa.Table) -> None:
    folder.mkdir(exist_ok=True)
    pq.write_table(left, folder / f"{number}.parquet")


def drained(joined: DataFrame, checkpoint: Path) -> list[dict[str, Any]]:
    """The rows available now."""
    seen: list[dict[str, Any]] = []

    def keep(batch: DataFrame, _: int) -> None:
        seen.extend(row.asDict() for row in batch.collect())

    query = joined.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
    query.trigger(availableNow=True).start().awaitTermination()
    return seen


@pytest.mark.slow
def test_a_stream_reads_the_newest_of_each_batch(spark: SparkSession, store_path: str, tmp_path: Path) -> None:
    left = left_table()
    for number in range(2):
        feed(tmp_path / "in", number, left.slice(number * 250, 250))
    joined = statestore.asof_join(stream(spark, tmp_path / "in"), store_path, on="item", left_time="at", how="left")
    found = drained(joined, tmp_path / "cp")
    truth = statestore.asof_join(left, store_path, on="item", left_time="at", how="left").to_pylist()
    assert sorted(str([r["n"], r["price"]]) for r in found) == sorted(str([r["n"], r["price"]]) for r in truth)
    dotted = stream(spark, tmp_path / "in").withColumnRenamed("item", "the.item")
    inner = statestore.asof_join(dotted, store_path, on={"the.item": "item"}, left_time="at")
    assert len(drained(inner, tmp_path / "dotted")) == sum(row["price"] is not None for row in truth)
    with statestore.connect(warehouse_of(store_path)).open_store("prices") as store:
        store.put("late", 7.0, timestamp=T0)
        store.commit()
    feed(
        tmp_path / "in",
        2,
        pa.table({"item": ["late"], "at": pa.array([T0 * 1000], pa.timestamp("us", "UTC")), "n": [9]}),
    )
    assert [row["price"] for row in drained(joined, tmp_path / "cp")] == [7.0]


@pytest.mark.slow
def test_grace_lets_a_stream_wait_for_late_prices(spark: SparkSession, tmp_path: Path) -> None:
    store = statestore.connect(tmp_path / "w").create_store(
        "prices", key={"item": "string"}, value={"price": "double"}, history_retention="1 hour"
    )
    with store:
        store.put("a", 1.0, timestamp=T0)
        store.commit()

        def rows(*times: int) -> pa.Table:
            moments = pa.array([(T0 + t) * 1000 for t in times], pa.timestamp("us", "UTC"))
            return pa.table({"item": ["a"] * len(times), "at": moments, "n": list(times)})

        feed(tmp_path / "in", 0, rows(0, 1_000, 2_000))
        joined = statestore.asof_join(
            stream(spark, tmp_path / "in"), store, on="item", left_time="at", grace=2_000, how="left"
        )
        assert [(r["n"], r["price"]) for r in drained(joined, tmp_path / "cp")] == [(0, 1.0)]
        store.put("a", 9.0, timestamp=T0 + 900)  # comes late, while two rows wait
        store.commit()
        feed(tmp_path / "in", 1, rows(4_000, 500))
        found = sorted((r["n"], r["price"]) for r in drained(joined, tmp_path / "cp"))
        assert found == [(500, 1.0), (1_000, 9.0), (2_000, 9.0)]
        with pytest.raises(statestore.InvalidInputError, match="GRACE_TOO_LONG"):
            statestore.asof_join(stream(spark, tmp_path / "in"), store, on="item", left_time="at", grace="2 hours")
        with pytest.raises(statestore.InvalidInputError, match=r"INVALID_OPTION.*batch"):
            statestore.asof_join(spark.createDataFrame(rows(1)), store, on="item", left_time="at", grace=1)


# State in which a key has several rows

NAME = "spark4.3.0-twsttl__rkcl"
VARIABLES = ("timers", "lst", "mp", "tlst", "tmp", "tval", "val")


def as_text(rows: pa.Table) -> list[str]:
    return sorted(str(row) for row in rows.to_pylist())


SOME = ("lst", "tmp", "val")  # without a key, with a key of two columns and of one


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "names"), [("left", SOME), *mostly_slow([("inner", VARIABLES), ("left", VARIABLES)], [])]
)
def test_states_of_a_checkpoint(spark: SparkSession, how: str, names: tuple[str, ...]) -> None:
    path = checkpoint_path(NAME)
    assert set(VARIABLES) == set(tables(path))
    for name, table in tables(path).items():
        if name not in names:
            continue
        key = table.table.row_key
        first, last = table.table.kept_versions()
        moments = [micros(began(path, first)) - 1, micros(began(path, first + 1)), micros(began(path, last))]
        if not key:
            left = pa.table({"key": table.scan(columns=["key"]).read_all()["key"][:2], "t": pa.array([0, 0])})
            with pytest.raises(statestore.UnsupportedError, match="JOIN_KIND"):
                statestore.asof_join(spark.createDataFrame(left), table, on="key", left_time="t")
            continue
        left = left_rows(all_rows(table), key, moments).rename_columns([*(f"l_{n}" for n in key), "t"])
        on = {f"l_{n}": n for n in key}
        expected = statestore.asof_join(left, table, on=on, left_time="t", how=how)
        found = statestore.asof_join(spark.createDataFrame(left), table, on=on, left_time="t", how=how)
        assert as_text(found.toArrow()) == as_text(expected), name
        if len(key) > 1:
            with pytest.raises(statestore.UnsupportedError, match="JOIN_KIND"):
                statestore.asof_join(
                    spark.createDataFrame(left), table, on={f"l_{key[0]}": key[0]}, left_time="t", how=how
                )


@pytest.mark.slow
def test_a_left_row_of_before_what_is_kept_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    name = "spark4.3.0-agg__hdfs"
    path = purged(name, tmp_path, 4)
    table = tables(path)["state"]
    first = micros(began(checkpoint_path(name), table.table.kept_versions()[0]))
    for moment, said in ((first, None), (first - 1, "TIME_NOT_KEPT")):
        left = left_rows(all_rows(table), ("key",), [moment]).rename_columns(["k", "t"])
        joined = statestore.asof_join(spark.createDataFrame(left), table, on={"k": "key"}, left_time="t", how="left")
        if said is None:
            expected = statestore.asof_join(left, table, on={"k": "key"}, left_time="t", how="left")
            assert as_text(joined.toArrow()) == as_text(expected)
        else:
            with pytest.raises(Exception, match=said):
                joined.collect()


@pytest.mark.slow
def test_a_map_of_a_keyed_store_and_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    found, times = keyed(tmp_path / "w")
    table = found.table("s.map")
    moments = [round(time.timestamp() * 1e6) for time in times]
    rows = table.scan().read_all()
    left = pa.concat_tables(
        [
            rows.select(["k", "user_key"]).append_column(
                "t", pa.array([moment] * rows.num_rows, pa.timestamp("us", "UTC"))
            )
            for moment in moments
        ]
    )
    expected = statestore.asof_join(left, table, on=["k", "user_key"], left_time="t", how="left")
    frame = spark.createDataFrame(left)
    joined = statestore.asof_join(frame, table, on=["k", "user_key"], left_time="t", how="left")
    assert as_text(joined.toArrow()) == as_text(expected)
    frame.write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema(frame.schema).parquet(str(tmp_path / "in"))
    with pytest.raises(statestore.UnsupportedError, match=r"JOIN_KIND.*user_key"):
        statestore.asof_join(stream, table, on="k", left_time="t")
    query = (
        statestore.asof_join(stream, table, on=["k", "user_key"], left_time="t", how="left")
        .writeStream.format("memory")
        .queryName("joined_map")
        .option("checkpointLocation", str(tmp_path / "c"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert as_text(spark.sql("SELECT * FROM joined_map").toArrow()) == as_text(expected)
