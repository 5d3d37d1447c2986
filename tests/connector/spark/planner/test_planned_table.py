"""What Spark's planner knows of a table: columns, filters, aggregates, sizes, versions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

import statestore
from statestore.catalog.catalog import Catalog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LARGE = 120_000  # rows: more than the driver reads while it plans


@pytest.fixture(scope="module")
def warehouse(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    folder = tmp_path_factory.mktemp("plans")
    catalog = statestore.connect(folder)
    value = {"price": "bigint", "text": "string"}
    with catalog.create_store("large", key={"id": "bigint"}, value=value, key_groups=4) as store:
        ids = pa.array(range(LARGE))
        texts = pa.array(["some text"] * LARGE)
        store.write(pa.table({"id": ids, "price": ids, "text": texts, "timestamp": pa.array([1000] * LARGE)}))
    with catalog.create_store("small", key={"id": "bigint"}, value={"n": "bigint"}) as store:
        store.write(pa.table({"id": [1, 5, 77], "n": [1, 2, 3], "timestamp": [1000] * 3}))
    statestore.register(spark, folder, "plans")
    return catalog


def plan(frame: DataFrame) -> str:
    query = frame._jdf.queryExecution()
    return str(query.optimizedPlan().toString()) + str(query.executedPlan().toString())


def test_what_is_pushed_is_shown(spark: SparkSession, warehouse: Catalog) -> None:
    def shown(statement: str) -> str:
        return plan(spark.sql(statement))

    one = shown("SELECT sum(price) FROM plans.large WHERE text <> 'x' AND price % 2 = 0")
    assert "price#" in one and "text#" not in one.split("BatchScan")[1] and "statestore large version 1" in one
    assert "filters [text IS NOT NULL, " in one and "aggregates" not in one
    assert "aggregates [sum(price), count(*) by text]" in shown(
        "SELECT text, sum(price), count(*) FROM plans.large GROUP BY text"
    )
    assert "first 3 by price" in shown("SELECT id FROM plans.large ORDER BY price DESC LIMIT 3")
    assert "first 7" in shown("SELECT id FROM plans.large LIMIT 7")
    moment = shown("SELECT id FROM plans.large TIMESTAMP AS OF '2024-05-01 09:00:00Z'")
    assert "as of 1714554000000000" in moment
    counted = shown("SELECT count(*) FROM plans.large")
    assert "BatchScan" not in counted and "LocalTableScan" in counted
    assert spark.sql("SELECT count(*) FROM plans.large").first() == (LARGE,)


def test_a_small_table_is_joined_by_broadcast(spark: SparkSession, warehouse: Catalog) -> None:
    joined = spark.sql("SELECT l.id, l.price, s.n FROM plans.large l JOIN plans.small s ON l.id = s.id")
    assert "BroadcastHashJoin" in plan(joined)
    assert sorted(joined.collect()) == [(1, 1, 1), (5, 5, 2), (77, 77, 3)]
    filtered = spark.sql(
        "SELECT l.id FROM plans.large l JOIN plans.small s ON l.id = s.id WHERE s.n > 1 AND l.price < 50"
    )
    assert filtered.collect() == [(5,)]


def test_a_frame_keeps_its_version(spark: SparkSession, warehouse: Catalog) -> None:
    with warehouse.create_store("moving", key={"k": "string"}, value={"v": "bigint"}) as store:
        store.write(pa.table({"k": ["a"], "v": [1], "timestamp": [1000]}))
        frame = spark.table("plans.moving")
        cached = spark.table("plans.moving").cache()
        assert cached.count() == frame.count() == 1
        assert "InMemory" in plan(spark.table("plans.moving"))
        store.write(pa.table({"k": ["b"], "v": [2], "timestamp": [2000]}))
        assert sorted(spark.table("plans.moving").select("k").collect()) == [("a",), ("b",)]
        assert "InMemory" not in plan(spark.table("plans.moving"))
        assert frame.select("k").collect() == [("a",)] == frame.where("v > 0").select("k").collect()
        store.compact()
        assert frame.select("k").collect() == [("a",)]
        assert spark.table("plans.moving").groupBy().sum("v").first() == (3,)
        store.write(pa.table({"k": ["a"], "v": [9], "timestamp": [3000]}))
        cached.unpersist()
        store.expire(before=3000)
        store.vacuum(older_than=0)
        assert frame.select("v").collect() == [(1,)]  # its files are those of newer versions, too
        store.compact(full=True)
        store.vacuum(older_than=0)
        with pytest.raises(PySparkException, match=r"VERSION_NOT_FOUND|FILES_REPLACED"):
            frame.select("v").collect()
        assert sorted(spark.table("plans.moving").select("v").collect()) == [(2,), (9,)]


def test_a_statement_sees_one_version(spark: SparkSession, warehouse: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit arrives while the statement is analysed, between two references."""
    from statestore.connector.spark.catalog.place import Place

    with warehouse.create_store("racing", key={"k": "string"}, value={"v": "bigint"}) as store:
        store.write(pa.table({"k": ["a"], "v": [1], "timestamp": [1000]}))
        find, commits = Place.find, []

        def with_commit(place: object, parts: object) -> object:
            found = find(place, parts)  # type: ignore[arg-type]
            commits.append(1)
            moment = 1000 + len(commits)
            store.write(pa.table({"k": [f"new {moment}"], "v": [1], "timestamp": [moment]}))
            return found

        monkeypatch.setattr(Place, "find", with_commit)
        both = spark.sql(
            "WITH x AS (SELECT * FROM plans.racing) SELECT (SELECT count(*) FROM plans.racing), "
            "(SELECT count(*) FROM x), count(*) FROM plans.racing a FULL JOIN plans.racing b ON a.k = b.k"
        ).first()
        monkeypatch.undo()
    assert both is not None and len(set(both)) == 1 and commits
