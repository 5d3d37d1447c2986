"""Joins and groups by the key of stores: no shuffle, and the rows of a join in Python."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from support.reads_by_tasks import reads_by_tasks

import statestore

KEYS = 500
PRICES = {f"item {n}": n % 17 for n in range(KEYS)}
STOCK = {f"item {n}": n % 5 for n in range(0, 2 * KEYS, 2)}


@pytest.fixture(scope="module")
def catalog(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Two stores with keys that half of them share, one in two commits and with other key groups."""
    folder = tmp_path_factory.mktemp("joins")
    warehouse = statestore.connect(folder)
    for name, rows, groups, commits in (("prices", PRICES, 128, 1), ("stock", STOCK, 16, 2)):
        with warehouse.create_store(
            name, key={"item": "string"}, value={"n": "bigint", "m": "int"}, key_groups=groups
        ) as store:
            for commit in range(commits):
                chosen = [key for place, key in enumerate(rows) if place % commits == commit]
                columns = {"item": chosen, "n": [rows[key] for key in chosen], "m": [1] * len(chosen)}
                store.put_all(pa.table({**columns, "timestamp": [commit] * len(chosen)}))
                store.commit()
    statestore.register(spark, folder, "joins")
    with reads_by_tasks():
        spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
        yield str(Path(folder))
    spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")


def exchanges(frame: DataFrame) -> int:
    plan: str = frame._jdf.queryExecution().executedPlan().toString()
    return plan.count("Exchange hashpartitioning")


def test_an_inner_join_moves_no_row(spark: SparkSession, catalog: str) -> None:
    joined = spark.sql("SELECT p.item, p.n, s.n FROM joins.prices p JOIN joins.stock s ON p.item = s.item")
    assert exchanges(joined) == 0
    assert sorted(map(tuple, joined.collect())) == sorted(
        (item, n, STOCK[item]) for item, n in PRICES.items() if item in STOCK
    )
    paths = [spark.read.format("statestore").load(f"{catalog}/{name}") for name in ("prices", "stock")]
    assert exchanges(paths[0].join(paths[1], "item", "left_semi")) == 0


def test_groups_by_the_key_move_no_row(spark: SparkSession, catalog: str) -> None:
    grouped = spark.sql("SELECT item, sum(n + m) AS n FROM joins.stock GROUP BY item HAVING sum(n) > 3")
    assert exchanges(grouped) == 0
    assert sorted(map(tuple, grouped.collect())) == sorted((item, n + 1) for item, n in STOCK.items() if n > 3)


@pytest.mark.quick("LEFT")
@pytest.mark.parametrize("kind", ["LEFT", "FULL", "LEFT ANTI"])
def test_other_joins_have_the_same_rows(spark: SparkSession, catalog: str, kind: str) -> None:
    joined = spark.sql(f"SELECT * FROM joins.prices p {kind} JOIN joins.stock s ON p.item = s.item")
    both = len(PRICES.keys() & STOCK.keys())
    counts = {"LEFT": KEYS, "FULL": 2 * KEYS - both, "LEFT ANTI": KEYS - both}
    assert len(joined.collect()) == counts[kind]


@pytest.mark.slow
def test_a_join_of_two_moments_on_more_than_the_key(spark: SparkSession, catalog: str) -> None:
    joined = spark.sql(
        "SELECT count(*) AS c FROM joins.stock a JOIN joins.stock VERSION AS OF 1 b ON a.item = b.item AND a.n = b.n"
    )
    assert joined.first() == (KEYS // 2,)
