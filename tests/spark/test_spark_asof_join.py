"""`asof_join` on Spark DataFrames, batch and streaming, gives the rows of the Arrow join; grace as in Kafka's cases."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka_vectors import Case, cases

import statestore
from statestore.connector.asof.request import make_request
from statestore.connector.asof.spark_engine import release

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T0 = 1_700_000_000_000
SCHEMA = "item string, at timestamp, n bigint"
GRACE_CASES = [case for case in cases("joins") if case["kind"] == "stream-table" and case["grace_ms"] is not None]


@pytest.fixture(scope="module")
def store_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("asof")
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
    return str(folder / "prices")


def left_table() -> pa.Table:
    chance = random.Random(4)
    rows = [(f"k{chance.randrange(45)}", T0 + chance.randrange(-50, 1100), n) for n in range(500)]
    keys = [None if n % 97 == 0 else key for key, _, n in rows]
    times = pa.array([None if n % 89 == 0 else time for _, time, n in rows], pa.timestamp("ms", "UTC"))
    return pa.table({"item": keys, "at": times.cast(pa.timestamp("us", "UTC")), "n": [n for _, _, n in rows]})


def rows_of(table: pa.Table) -> list[str]:
    return sorted(str([str(cell) for cell in row.values()]) for row in table.select(["n", "item", "price"]).to_pylist())


@pytest.mark.parametrize("how", ["inner", "left"])
@pytest.mark.parametrize("version", [None, 3])
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
    empty = statestore.asof_join(left.where("n < 0"), store_path, on="item", left_time="at", how="left")
    assert empty.collect() == []
    with statestore.connect(tmp_path).create_store("none", key={"item": "string"}, value={"price": "double"}) as store:
        assert statestore.asof_join(left, store, on="item", left_time="at").count() == 0
        assert statestore.asof_join(left, store, on="item", left_time="at", how="left").count() == 500


def stream(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder))


def feed(folder: Path, number: int, left: pa.Table) -> None:
    folder.mkdir(exist_ok=True)
    pq.write_table(left, folder / f"{number}.parquet")


def drained(joined: DataFrame, checkpoint: Path) -> list[dict[str, Any]]:
    """The rows of what there is now."""
    seen: list[dict[str, Any]] = []

    def keep(batch: DataFrame, _: int) -> None:
        seen.extend(row.asDict() for row in batch.collect())

    query = joined.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
    query.trigger(availableNow=True).start().awaitTermination()
    return seen


def test_a_stream_reads_the_newest_of_each_batch(spark: SparkSession, store_path: str, tmp_path: Path) -> None:
    left = left_table()
    for number in range(2):
        feed(tmp_path / "in", number, left.slice(number * 250, 250))
    joined = statestore.asof_join(stream(spark, tmp_path / "in"), store_path, on="item", left_time="at", how="left")
    found = drained(joined, tmp_path / "cp")
    truth = statestore.asof_join(left, store_path, on="item", left_time="at", how="left").to_pylist()
    assert sorted(str([r["n"], r["price"]]) for r in found) == sorted(str([r["n"], r["price"]]) for r in truth)
    with statestore.connect(Path(store_path).parent).open_store("prices") as store:
        store.put("late", 7.0, timestamp=T0)
        store.commit()
    feed(
        tmp_path / "in",
        2,
        pa.table({"item": ["late"], "at": pa.array([T0 * 1000], pa.timestamp("us", "UTC")), "n": [9]}),
    )
    assert [row["price"] for row in drained(joined, tmp_path / "cp")] == [7.0]


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


@pytest.mark.parametrize("case", GRACE_CASES, ids=lambda case: case["id"])
def test_what_is_released_is_what_kafka_joins(tmp_path: Path, case: Case) -> None:
    """Kafka's cases with grace, a record an arrival, through the function that each key group of a stream runs."""
    store = statestore.connect(tmp_path).create_store(
        "t", key={"k": "string"}, value={"v": "string"}, history_retention=case["history_retention_ms"]
    )
    with store:
        waiting, stream_time = None, None
        outputs: list[list[dict[str, Any]]] = []
        for record in case["inputs"]:
            if record["side"] == "right":
                store.put(record["key"], record["value"], timestamp=record["ts"])
                store.commit()
                outputs.append([])
                continue
            if record["value"] is None:
                outputs.append([])
                continue
            arrived = pa.table({"k": [record["key"]], "t": [record["ts"]], "left": [record["value"]]})
            request = make_request(arrived.schema.names, store, "k", "t", case["join"], None, "", None)
            waiting = arrived.slice(0, 0) if waiting is None else waiting
            due, waiting, stream_time = release(arrived, waiting, stream_time, case["grace_ms"] * 1000, request)
            joined = statestore.asof_join(due, store, on="k", left_time="t", how=case["join"]).to_pylist()
            outputs.append([{"key": r["k"], "value": f"{r['left']}-{r['v'] or 'null'}", "ts": r["t"]} for r in joined])
    assert outputs == case["expect"]
    assert (0 if waiting is None else waiting.num_rows) == case["expect_buffered"]


@settings(deadline=None, max_examples=40)
@given(st.lists(st.lists(st.integers(0, 20), max_size=6), max_size=5), st.integers(0, 5))
def test_release_is_the_same_whole_or_in_pieces(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[int]], grace: int
) -> None:
    """The rows that were released after a batch, against records taken one by one (KIP-923)."""
    store = statestore.connect(tmp_path_factory.mktemp("w")).create_store(
        "t", key={"k": "string"}, value={"v": "string"}
    )
    with store:
        names = ["k", "t", "n"]
        request = make_request(names, store, "k", "t", "left", None, "", None)
        schema = pa.schema([("k", pa.string()), ("t", pa.int64()), ("n", pa.int64())])
        waiting, stream_time = schema.empty_table(), None
        model_waiting: list[tuple[int, int]] = []
        model_time, number = -(1 << 40), 0
        for times in batches:
            rows = [{"k": "a", "t": t, "n": number + i} for i, t in enumerate(times)]
            due, waiting, stream_time = release(
                pa.Table.from_pylist(rows, schema=schema), waiting, stream_time, grace * 1000, request
            )
            expected = []
            for i, t in enumerate(times):
                if t < model_time - grace:
                    expected.append(number + i)
                    continue
                model_waiting.append((t, number + i))
                model_time = max(model_time, t)
                expected += [n for when, n in sorted(model_waiting) if when <= model_time - grace]
                model_waiting = [(when, n) for when, n in model_waiting if when > model_time - grace]
            number += len(times)
            assert sorted(due["n"].to_pylist()) == sorted(expected)
            assert sorted(waiting["n"].to_pylist()) == sorted(n for _, n in model_waiting)
