"""Stores and changelogs of a Kafka Streams application in Spark: the source, catalogs, plain SQL, moments."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.kafka.unpacked import stores_file, unpack

import statestore


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack("orders", tmp_path_factory.mktemp("orders"))


@pytest.fixture(scope="module")
def given(orders: Path) -> str:
    return str(stores_file("orders", orders / "stores.toml", everything=True))


def counted(rows: list[Any]) -> Counter[str]:
    return Counter(repr(sorted(row.items())) for row in rows)


@pytest.mark.parametrize("place", ["state/orders/per-minute", "changelog/orders-per-minute-changelog"])
def test_a_store_is_a_data_frame(spark: SparkSession, orders: Path, given: str, place: str) -> None:
    folder, _, name = str(orders / place).rpartition("/")
    table = statestore.inspect(folder, stores_file=given).table(name)
    columns = ["key", "value", "partition_id"]
    found = spark.read.format("statestore").option("storesFile", given).load(f"{folder}/{name}").select(*columns)
    expected = table.scan(columns=columns).read_all().to_pylist()
    assert counted([row.asDict() for row in found.collect()]) == counted(expected)
    one = expected[0]["key"]
    assert found.where(found.key == one).count() == sum(row["key"] == one for row in expected)


@pytest.mark.slow
def test_a_catalog_of_an_application(spark: SparkSession, orders: Path, given: str) -> None:
    statestore.register(spark, str(orders / "state" / "orders"), name="orders_app", stores_file=given)
    names = {row.tableName for row in spark.sql("SHOW TABLES IN orders_app").collect()}
    assert {"carts", "menu", "per-minute"} <= names
    table: Any = statestore.inspect(orders / "state" / "orders", stores_file=given).table("menu")
    history = table.history().read_all().to_pylist()
    kept = [row["valid_from"] for row in history if row["valid_from"].timestamp() * 1e6 >= table.table.known_from(1)]
    moment = sorted(kept)[len(kept) // 2]
    then = spark.sql(f"SELECT key, value FROM orders_app.menu TIMESTAMP AS OF '{moment.isoformat()}'").collect()
    wanted = table.scan(as_of=moment, columns=["key", "value"]).read_all().to_pylist()
    assert counted([row.asDict() for row in then]) == counted(wanted)
    assert wanted
    with pytest.raises(Exception, match="TIME_NOT_KEPT"):
        spark.sql("SELECT * FROM orders_app.menu TIMESTAMP AS OF '1990-01-01T00:00:00Z'").collect()
