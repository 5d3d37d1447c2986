"""Warehouses in S3: keys of the session, what is never shown of them, and what tasks get."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from support.object_stores.s3_server import BUCKET, S3Server
from support.places import S3, below, opened, warehouse_in

import statestore
from statestore.catalog.checks.verify_files import FilesPlan
from statestore.catalog.commits.parts.staging_folder import StagingFolder
from statestore.catalog.log.storage import Storage
from statestore.catalog.stores.versioned.task_writes import task_write
from statestore.connector.spark.writer import checked_target
from statestore.formats.places.locations import parse_location
from statestore.formats.state_table import Query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T0 = 1_700_000_000_000
VIEW = "CREATE OR REPLACE TEMPORARY VIEW of_session USING statestore OPTIONS (path '{}', versionAsOf {})"


@pytest.fixture
def warehouse(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A warehouse in which store ``prices`` has two versions of curry."""
    place = warehouse_in(S3, request, tmp_path)
    with statestore.connect(place).create_store("prices", key={"item": "string"}, value={"price": "double"}) as store:
        for number in range(2):
            store.write(pa.table({"item": ["curry"], "price": [8.0 + number], "timestamp": [T0 + number]}))
    return place


@pytest.fixture
def session(spark: SparkSession, s3_server: S3Server) -> Iterator[SparkSession]:
    """The session with the keys of the server in its settings of Hadoop's client."""
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    settings = {
        "fs.s3a.endpoint": s3_server.endpoint, "fs.s3a.endpoint.region": s3_server.region,
        "fs.s3a.access.key": s3_server.access_key, "fs.s3a.secret.key": s3_server.secret_key,
    }  # fmt: skip
    before = {name: hadoop.get(name) for name in settings}
    for name, value in settings.items():
        hadoop.set(name, value)
    yield spark
    for name, value in before.items():
        hadoop.unset(name) if value is None else hadoop.set(name, value)


def bare(uri: str) -> str:
    """The URI as users of Hadoop write it, without keys and server."""
    return f"s3a://{BUCKET}/{parse_location(uri).path}"


def prices(frame: DataFrame) -> list[float]:
    return sorted(row[0] for row in frame.select("price").collect())


def test_the_keys_of_the_session(session: SparkSession, warehouse: str) -> None:
    path, place = bare(below(warehouse, "prices")), bare(warehouse)
    assert prices(session.read.format("statestore").load(path)) == [9.0]
    assert prices(session.read.format("statestore").option("versionAsOf", 1).load(path)) == [8.0]
    assert prices(statestore.sql(place, "SELECT * FROM prices", spark=session)) == [9.0]
    statestore.register(session, place, "of_session")
    session.sql("INSERT INTO of_session.prices VALUES ('dal', 5, TIMESTAMP '2024-01-01 00:00:00Z')")
    assert prices(session.table("of_session.prices")) == [5.0, 9.0]
    rows = session.sql("SELECT 'egg' AS item, 3D AS price, TIMESTAMP '2024-01-01 00:00:00Z' AS timestamp")
    rows.write.format("statestore").mode("append").save(path)
    left = session.createDataFrame([("curry", T0), ("egg", T0)], "item string, at long")
    assert prices(statestore.asof_join(left, path, on="item", left_time="at")) == [8.0]
    assert sorted(store_rows(warehouse)) == [("curry", 9.0), ("dal", 5.0), ("egg", 3.0)]


@pytest.mark.slow
def test_views_with_the_keys_of_the_session(session: SparkSession, warehouse: str) -> None:
    path = bare(below(warehouse, "prices"))
    for version, args in (("1", None), (":version", {"version": 1}), ("?", [1])):
        session.sql(VIEW.format(path, version), args)
        assert prices(session.table("of_session")) == [8.0]
    session.catalog.dropTempView("of_session")


@pytest.mark.slow
def test_a_table_of_a_catalog_takes_streams(session: SparkSession, warehouse: str, tmp_path: Path) -> None:
    statestore.connect(warehouse).create_store("copy", key={"item": "string"}, value={"price": "double"}).close()
    statestore.register(session, bare(warehouse), "of_streams")
    feed = session.readStream.format("statestore").option("readChangeFeed", True)
    rows = feed.load(bare(below(warehouse, "prices"))).where("_change_type = 'insert'")
    writer = rows.selectExpr("item", "price", "valid_from").writeStream.trigger(availableNow=True)
    writer.option("checkpointLocation", str(tmp_path / "checkpoint")).toTable("of_streams.copy").awaitTermination()
    assert prices(session.table("of_streams.copy")) == [8.0]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["append", "update"])
def test_streams_with_the_keys_of_the_session(session: SparkSession, warehouse: str, tmp_path: Path, mode: str) -> None:
    statestore.connect(warehouse).create_store("copy", key={"item": "string"}, value={"price": "double"}).close()
    feed = session.readStream.format("statestore").option("readChangeFeed", True)
    rows = feed.load(bare(below(warehouse, "prices"))).where("_change_type != 'update_preimage'")
    writer = rows.selectExpr("item", "price", "valid_from AS timestamp").writeStream.format("statestore")
    writer = writer.outputMode(mode).option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start(bare(below(warehouse, "copy"))).awaitTermination()
    with opened(below(warehouse, "copy")) as store:
        assert store.get("curry").value == 9.0 and store.get("curry", as_of=T0).value == 8.0


def store_rows(warehouse: str) -> list[tuple[str, float]]:
    with opened(below(warehouse, "prices")) as store:
        found = store.scan(columns=["item", "price"]).read_all().to_pylist()
    return [(row["item"], row["price"]) for row in found]


def plans(frame: DataFrame) -> Iterator[str]:
    """All that Spark shows of a query."""
    yield str(frame._jdf.queryExecution().toString())
    for mode in ("formatted", "extended", "cost", "codegen"):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            frame.explain(mode=mode)
        yield printed.getvalue()


def executions(spark: SparkSession, after: int = -1) -> list[Any]:
    """The kept executions of the shared session whose number is greater than ``after``, newest first."""
    kept = spark._jsparkSession.sharedState().statusStore().executionsList()
    newest_first = (kept.apply(place) for place in reversed(range(kept.size())))
    return list(takewhile(lambda execution: execution.executionId() > after, newest_first))


@pytest.mark.slow
def test_credentials_are_never_shown(
    session: SparkSession, warehouse: str, s3_server: S3Server, tmp_path: Path
) -> None:
    spark, path = session, below(warehouse, "prices")
    spark.sql(VIEW.format(bare(path), "1")).collect()
    first = executions(spark)[0].executionId()
    statestore.register(spark, warehouse, "shown")
    read = spark.read.format("statestore")
    shown: list[str] = []
    for frame in [
        read.load(path),
        read.option("history", True).load(path).where("price > 1"),
        spark.read.format("statestore").schema("item string").load(path),
        spark.readStream.format("statestore").option("readChangeFeed", True).load(path),
        spark.table("shown.prices"),
        spark.table("shown.prices.versions"),
        statestore.sql(warehouse, "SELECT * FROM prices", spark=spark),
        statestore.asof_join(spark.sql(f"SELECT 'curry' AS item, {T0}L AS at"), path, on="item", left_time="at"),
        spark.table("of_session"),
    ]:
        shown += [str(frame._jdf.queryExecution().toString())] if frame.isStreaming else plans(frame)
    for statement in [
        "DESCRIBE EXTENDED shown.prices", "DESCRIBE NAMESPACE EXTENDED shown.main", "SHOW CREATE TABLE shown.prices",
        "EXPLAIN EXTENDED INSERT INTO shown.prices VALUES ('dal', 5, current_timestamp())",
        "EXPLAIN EXTENDED DELETE FROM shown.prices WHERE item = 'dal'",
        f"EXPLAIN EXTENDED {VIEW.format(bare(path), 1)}", "DESCRIBE EXTENDED of_session",
    ]:  # fmt: skip
        shown.append(str(spark.sql(statement).collect()))
    shown += failures(spark, path, warehouse)
    stream = spark.readStream.format("statestore").option("readChangeFeed", True).load(path)
    stream = stream.selectExpr("item", "price + 1 AS price", "valid_from AS timestamp").limit(1)
    query = stream.writeStream.format("statestore").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query.trigger(availableNow=True)
    starts: list[Callable[[], Any]] = [lambda: query.start(path), lambda: query.toTable("shown.prices")]
    for start in starts:
        running = start()  # the second goes on where the first one ended
        running.awaitTermination()
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            running.explain(True)
        shown += [printed.getvalue(), str(running.recentProgress), str(running.status)]
    run = executions(spark, first - 1)
    assert len(run) > 10
    for execution in run:
        shown += [str(execution.description()), str(execution.details()), str(execution.physicalPlanDescription())]
    quoted = parse_location(warehouse).options
    for text in shown:
        assert s3_server.secret_key not in text and s3_server.access_key not in text and quoted not in text
    assert any("prices" in text for text in shown)


def failures(spark: SparkSession, path: str, warehouse: str) -> list[str]:
    """The texts of errors."""
    rows = spark.sql("SELECT 'egg' AS item, 3D AS price, TIMESTAMP '2024-01-01 00:00:00Z' AS timestamp")
    wrong = path.replace("secret_key=", "secret_key=not")
    calls: list[Callable[[], Any]] = [
        lambda: spark.read.format("statestore").load(wrong).collect(),
        lambda: spark.read.format("statestore").load(below(warehouse, "nothing")).collect(),
        lambda: spark.read.format("statestore").option("versionAsOf", 99).load(path).collect(),
        lambda: rows.write.format("statestore").mode("append").save(below(warehouse, "nothing")),
        lambda: rows.write.format("statestore").mode("append").save(below(warehouse, "prices$versions")),
        lambda: rows.drop("item").write.format("statestore").mode("append").save(path),
        lambda: statestore.register(spark, below(warehouse, "nothing"), "nothing"),
        lambda: statestore.sql(wrong, "SELECT 1", spark=spark),
        lambda: spark.sql(f"{VIEW.format(bare(path), 1)} oops"),
        lambda: (spark.sql(VIEW.format(bare(path), 99)), spark.table("of_session").collect()),
        lambda: spark.sql(VIEW.format(bare(below(warehouse, "nothing")), 1)),
    ]
    texts = []
    for call in calls:
        with pytest.raises((PySparkException, statestore.StateStoreError)) as caught:
            call()
        texts.append(f"{caught.value!r} {caught.value}")
    return texts


def test_what_tasks_get_names_no_folder_of_the_driver(spark: SparkSession, warehouse: str, tmp_path: Path) -> None:
    local, cache = tmp_path / "kept by the driver", tmp_path / "cached by the driver"
    with statestore.connect(warehouse, local=local, cache=cache).open_store("prices") as store:
        storage: Storage = store._storage
        table = store.table
        folder = StagingFolder.of_new_write(storage)
        write = task_write(storage, store.spec)
        frame = spark.read.format("statestore").load(below(warehouse, "prices"))
        target = checked_target(
            below(warehouse, "prices"), frame.selectExpr("item", "price", "valid_from AS timestamp").schema
        )
        sent = [table, table.splits(Query()), folder, write, FilesPlan(storage, ()), target]
        dump: Any = cloudpickle.dumps
        data = dump(sent)
        assert local.exists() and b"by the driver" not in data
        received = cloudpickle.loads(data)[0]
        assert next(received.read(received.splits(Query())[0], Query())).num_rows == 1
