"""Requests of Spark's reads of a store in S3, in all processes: a proxy counts them, and a record those of the driver.

A read opens the store once, and looks once for its newest version when it is planned. Tasks fetch data files alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from support.object_stores.proxy import Proxy, proxy_before
from support.object_stores.request_record import recorded
from support.object_stores.s3_server import S3Server
from support.places import S3, below, warehouse_in
from support.reads_by_tasks import reads_by_tasks

import statestore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 2_000
OPENED = {"store.json": 1, "list": 1}
LOOKED = {"store.json": 1, "log": 1}
KINDS = {"list": "list-type=2", "store.json": "/store.json", "log": "/log/", "data": "/segments/"}


def rows(value: float) -> pa.Table:
    keys = pa.array(range(ROWS))
    return pa.table({"k": keys, "v": [value] * ROWS, "timestamp": [1_000 + int(value)] * ROWS})


@pytest.fixture(scope="module")
def proxy(s3_server: S3Server) -> Iterator[Proxy]:
    with proxy_before(s3_server.endpoint) as found:
        yield found


@pytest.fixture(scope="module")
def warehouse(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, s3_server: S3Server, proxy: Proxy
) -> str:
    """A warehouse behind the proxy with the stores ``prices`` and ``moving``, of two versions, and ``others``."""
    server, before = (quote(urlsplit(each.endpoint).netloc) for each in (s3_server, proxy))
    place = warehouse_in(S3, request, tmp_path_factory.mktemp("requests")).replace(server, before)
    for name, versions in (("others", 0), ("prices", 2), ("moving", 2)):
        with statestore.connect(place).create_store(name, key={"k": "bigint"}, value={"v": "double"}) as store:
            for number in range(versions):
                store.write(rows(number + 1))
    return place


@pytest.fixture(autouse=True)
def _tasks() -> Iterator[None]:
    with reads_by_tasks():
        yield


def kind(path: str) -> str:
    return next((name for name, part in KINDS.items() if part in path), path)


def asked(proxy: Proxy, read: Callable[[], Any]) -> tuple[Counter[str], int]:
    """The requests of a read of all processes by kind, but for data files, and the number of these by the driver."""
    proxy.clear()
    with recorded() as record:
        read()
    found = Counter(kind(request.path) for request in proxy.requests)
    del found["data"]
    return found, sum("segments/" not in request.key for request in record.requests)


def read_all(frame: DataFrame) -> None:
    """Read all columns of all rows in tasks."""
    frame.write.format("noop").mode("overwrite").save()


def test_a_read_opens_the_store_once_and_looks_once(spark: SparkSession, warehouse: str, proxy: Proxy) -> None:
    def frame() -> DataFrame:
        return spark.read.format("statestore").load(below(warehouse, "prices"))

    read_all(frame())  # reads the log
    assert proxy.requests
    expected = Counter(OPENED) + Counter(LOOKED)
    for read in (
        lambda: read_all(frame()),
        lambda: frame().selectExpr("sum(v)").collect(),
        lambda: frame().count(),
        lambda: read_all(frame().groupBy("k").sum("v")),
        lambda: read_all(frame().limit(5)),
    ):
        assert asked(proxy, read) == (expected, expected.total())
    known = frame()
    assert asked(proxy, lambda: read_all(known.select("v")))[0] == LOOKED
    both = frame().alias("a").join(frame().alias("b"), "k").selectExpr("sum(a.v * b.v) AS s")
    assert asked(proxy, lambda: both.collect())[0] == Counter(LOOKED) + Counter(LOOKED)


def test_a_table_of_a_catalog(spark: SparkSession, warehouse: str, proxy: Proxy) -> None:
    """Spark asks for the table when it analyses a statement, and plans it later."""
    statestore.register(spark, warehouse, "counted")
    read_all(spark.table("counted.prices"))
    expected = Counter(OPENED) + Counter(LOOKED) + Counter(LOOKED)
    assert asked(proxy, lambda: read_all(spark.table("counted.prices"))) == (expected, expected.total())


def test_sql(spark: SparkSession, warehouse: str, proxy: Proxy) -> None:
    """The names of all tables are looked at first."""

    def ask() -> None:
        assert statestore.sql(warehouse, "SELECT count(*) FROM prices", spark=spark).first() == (ROWS,)

    ask()
    found, of_driver = asked(proxy, ask)
    assert found == {"list": 1 + 3, "store.json": 3 + 1, "log": 1} and of_driver == found.total() - 1, found


@pytest.mark.slow
def test_a_read_that_spark_plans_in_a_process_of_its_own(spark: SparkSession, warehouse: str, proxy: Proxy) -> None:
    """The source is opened there, and tasks fetch data files alone."""
    reader = spark.read.format("statestore").schema("k bigint, v double")
    read_all(reader.load(below(warehouse, "prices")))
    found, of_driver = asked(proxy, lambda: read_all(reader.load(below(warehouse, "prices"))))
    assert of_driver == 0 and found["store.json"] == 2
    assert found <= Counter({**(Counter(OPENED) + Counter(LOOKED)), "list": 2, "log": 5}), found


def test_a_plan_sees_the_newest_commit(spark: SparkSession, warehouse: str) -> None:
    frame = spark.read.format("statestore").load(below(warehouse, "moving"))
    assert frame.selectExpr("sum(v)").first() == (2.0 * ROWS,)
    with statestore.connect(warehouse).open_store("moving") as store:
        store.write(rows(3))
    assert frame.selectExpr("sum(v)").first() == (3.0 * ROWS,)
    assert frame.where("v = 3").count() == ROWS
    catalog = statestore.connect(warehouse)
    catalog.drop_store("moving")
    with pytest.raises(PySparkException, match="STORE_REPLACED"):
        frame.selectExpr("max(v)").collect()
    with catalog.create_store("moving", key={"k": "bigint"}, value={"v": "double"}) as store:
        store.write(rows(9))
    with pytest.raises(PySparkException, match="STORE_REPLACED"):
        frame.selectExpr("max(v)").collect()
    assert spark.read.format("statestore").load(below(warehouse, "moving")).selectExpr("max(v)").first() == (9.0,)
