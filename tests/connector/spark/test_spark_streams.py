"""Streams into and out of stores: exactly once, whatever is repeated; compaction and vacuum do not change the feed."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import functions as f
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType
from support.parameters import mostly_slow
from support.places import PLACES, below, files_below, opened, vacuumed, warehouse_in, warehouse_of
from support.spark_release import since

import statestore
from statestore.connector.spark.source import StateStoreSource
from statestore.connector.spark.writer import StateStoreStreamWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T0 = 1_700_000_000_000
SCHEMA = "item string, price double, timestamp long, _change_type string"


@pytest.fixture(params=PLACES)
def warehouse(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    place = warehouse_in(request.param, request, tmp_path / "warehouse")
    with statestore.connect(place).create_store("prices", key={"item": "string"}, value={"price": "double"}):
        return place


def feed_file(folder: Path, number: int, *rows: tuple[str, float | None, int, str | None]) -> None:
    """Write one input file; Spark reads one file in each micro-batch, the oldest first."""
    folder.mkdir(exist_ok=True)
    columns = list(zip(*rows, strict=True))
    names = ["item", "price", "timestamp", "_change_type"]
    types = [pa.string(), pa.float64(), pa.int64(), pa.string()]
    arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
    path = folder / f"{number:04d}.parquet"
    pq.write_table(pa.table(arrays, names=names), path)
    os.utime(path, (T0 // 1000 + number,) * 2)


def stream_of(spark: SparkSession, folder: Path) -> DataFrame:
    return (
        spark.readStream.schema(SCHEMA)
        .option("maxFilesPerTrigger", 1)
        .option("latestFirst", False)
        .parquet(str(folder))
    )


def run(rows: DataFrame, store: str, checkpoint: Path, mode: str = "append", **options: Any) -> Any:
    """Process all available input, batch by batch; raise the error of the query."""
    writer = rows.writeStream.format("statestore").outputMode(mode).options(**options)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start(str(store))
    query.awaitTermination()
    return query


def state(store: str) -> dict[str, float]:
    with opened(store) as handle:
        return {row["item"]: row["price"] for row in handle.scan(columns=["item", "price"]).read_all().to_pylist()}


def history(store: str) -> list[tuple[Any, ...]]:
    with opened(store) as handle:
        rows = handle.history(columns=["item", "price", "valid_from", "valid_to"]).read_all().to_pylist()
    return sorted(tuple(str(value) for value in row.values()) for row in rows)


def operations(store: str) -> list[str]:
    with opened(store) as handle:
        found: list[str] = handle.versions()["operation"].to_pylist()
    return found


@pytest.mark.slow
def test_each_micro_batch_is_one_commit_with_deletes(spark: SparkSession, warehouse: str, tmp_path: Path) -> None:
    feed_file(tmp_path / "in", 1, ("curry", 8.0, T0, None), ("naan", 2.0, T0, "insert"))
    feed_file(tmp_path / "in", 2, ("curry", 9.0, T0 + 5, None), ("naan", None, T0 + 6, "delete"))
    query = run(stream_of(spark, tmp_path / "in"), below(warehouse, "prices"), tmp_path / "cp")
    assert state(below(warehouse, "prices")) == {"curry": 9.0}
    with opened(below(warehouse, "prices")) as store:
        assert store.get("naan", as_of=T0 + 5).value == 2.0
        versions = store.versions().to_pylist()
    assert [(v["application"], v["batch"]) for v in versions if v["operation"] == "write"] == [
        (str(query.id), 0),
        (str(query.id), 1),
    ]
    assert not files_below(below(warehouse, "prices"), "staging")


def test_a_restart_goes_on_and_repeats_nothing(spark: SparkSession, warehouse: str, tmp_path: Path) -> None:
    for number in range(2):
        feed_file(tmp_path / "in", number, ("curry", float(number), T0 + number, None))
        run(stream_of(spark, tmp_path / "in"), below(warehouse, "prices"), tmp_path / "cp")
    run(stream_of(spark, tmp_path / "in"), below(warehouse, "prices"), tmp_path / "cp")
    assert operations(below(warehouse, "prices")).count("write") == 2
    assert state(below(warehouse, "prices")) == {"curry": 1.0}


def test_a_batch_without_rows_leaves_nothing(spark: SparkSession, warehouse: str, tmp_path: Path) -> None:
    feed_file(tmp_path / "in", 1, ("curry", 8.0, T0, None))
    run(stream_of(spark, tmp_path / "in").where("price > 100"), below(warehouse, "prices"), tmp_path / "cp")
    assert operations(below(warehouse, "prices")) == ["create"]
    assert not files_below(below(warehouse, "prices"), "staging")


class Dying(StateStoreStreamWriter):
    """A writer that ends its query at a chosen batch, before or after the commit, once."""

    when: str
    batch: int
    once: Path

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        due = batchId == self.batch and not self.once.exists()
        if due and self.when == "before":
            self.once.touch()
            raise RuntimeError("died before the commit")
        super().commit(messages, batchId)
        if due:
            self.once.touch()
            raise RuntimeError("died after the commit")


def dying_source(when: str, batch: int, once: Path) -> type[StateStoreSource]:
    """The data source with a writer that dies; made in a function so that Spark's processes get it by value."""
    name = f"dying_{when}_{batch}"

    class Source(StateStoreSource):
        @classmethod
        def name(cls) -> str:
            return name

        def streamWriter(self, schema: StructType, overwrite: bool) -> StateStoreStreamWriter:
            writer = Dying(self._path(), schema, overwrite, self.options)
            writer.when, writer.batch, writer.once = when, batch, once
            return writer

    return Source


@pytest.mark.slow
@pytest.mark.parametrize("when", [pytest.param("before", marks=pytest.mark.slow), "after"])
def test_a_death_around_the_commit_is_repaired_by_the_restart(
    spark: SparkSession, warehouse: str, tmp_path: Path, when: str
) -> None:
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]  # Spark's processes do not know this file
    for number in range(4):
        feed_file(tmp_path / "in", number, ("curry", float(number), T0 + number, None), (f"i{number}", 1.0, T0, None))
    source = dying_source(when, 2, tmp_path / "died")
    spark.dataSource.register(source)
    rows = stream_of(spark, tmp_path / "in")
    writer = rows.writeStream.format(source.name()).option("checkpointLocation", str(tmp_path / "cp"))
    with pytest.raises(PySparkException, match=f"died {when} the commit"):
        writer.trigger(availableNow=True).start(str(below(warehouse, "prices"))).awaitTermination()
    assert operations(below(warehouse, "prices")).count("write") == (2 if when == "before" else 3)
    run(rows, below(warehouse, "prices"), tmp_path / "cp")
    assert operations(below(warehouse, "prices")).count("write") == 4
    batch = statestore.connect(warehouse).create_store("batch", key={"item": "string"}, value={"price": "double"})
    with batch:
        batch.write(pq.read_table(tmp_path / "in"))
    assert history(below(warehouse, "prices")) == history(below(warehouse, "batch"))


@pytest.mark.slow
def test_two_queries_on_one_store(spark: SparkSession, warehouse: str, tmp_path: Path) -> None:
    for name in ("left", "right"):
        for number in range(3):
            feed_file(tmp_path / name, number, (f"{name}{number}", 1.0, T0 + number, None))
    queries = [
        stream_of(spark, tmp_path / name)
        .writeStream.format("statestore")
        .option("checkpointLocation", str(tmp_path / f"cp-{name}"))
        .trigger(availableNow=True)
        .start(str(below(warehouse, "prices")))
        for name in ("left", "right")
    ]
    for query in queries:
        query.awaitTermination()
    assert sorted(state(below(warehouse, "prices"))) == [f"{name}{n}" for name in ("left", "right") for n in range(3)]
    assert operations(below(warehouse, "prices")).count("write") == 6


@pytest.mark.slow
def test_two_queries_on_one_live_store_take_turns(spark: SparkSession, warehouse: str, tmp_path: Path) -> None:
    statestore.connect(warehouse).create_store(
        "totals", kind="key_value", key={"item": "string"}, value={"price": "double"}
    ).close()
    queries = []
    for name in ("left", "right"):
        for number in range(3):
            feed_file(tmp_path / name, number, (f"{name}{number}", 1.0, T0, None), ("both", float(number), T0, None))
        rows = stream_of(spark, tmp_path / name).select("item", "price")
        writer = rows.writeStream.format("statestore").option("checkpointLocation", str(tmp_path / f"cp-{name}"))
        queries.append(writer.trigger(availableNow=True).start(str(below(warehouse, "totals"))))
    for query in queries:
        query.awaitTermination()
    assert state(below(warehouse, "totals")) == {f"{n}{i}": 1.0 for n in ("left", "right") for i in range(3)} | {
        "both": 2.0
    }


@pytest.mark.parametrize("mode", mostly_slow(["complete", "update"], ["complete"]))
def test_aggregations(spark: SparkSession, warehouse: str, tmp_path: Path, mode: str) -> None:
    feed_file(tmp_path / "in", 1, ("curry", 8.0, T0, None), ("naan", 2.0, T0, None))
    feed_file(tmp_path / "in", 2, ("curry", 1.0, T0 + 5, None))
    feed_file(tmp_path / "in", 3, ("naan", 1.0, T0 + 3, None), ("dal", 4.0, T0 + 3, None))
    totals = stream_of(spark, tmp_path / "in").groupBy("item").agg({"price": "sum", "timestamp": "max"})
    totals = (
        totals.toDF("item", "price", "timestamp")
        if totals.columns[1].startswith("sum")
        else totals.toDF("item", "timestamp", "price")
    )
    run(totals, below(warehouse, "prices"), tmp_path / "cp", mode)
    assert state(below(warehouse, "prices")) == {"curry": 9.0, "naan": 3.0, "dal": 4.0}
    with opened(below(warehouse, "prices")) as store:
        assert store.get("curry", as_of=T0 + 4).value == 8.0
        assert [row["rows"] for row in store.versions().to_pylist()[1:]] == [2, 1, 2]


@pytest.mark.slow
def test_windows_of_a_stream_in_a_window_store(spark: SparkSession, warehouse: str, tmp_path: Path) -> None:
    statestore.connect(warehouse).create_store(
        "counts",
        kind="window",
        key={"item": "string"},
        value={"n": "bigint"},
        retention="1 hour",
        window_size="1 minute",
    ).close()
    feed_file(tmp_path / "in", 1, ("curry", 1.0, T0, None), ("curry", 1.0, T0 + 30_000, None), ("naan", 1.0, T0, None))
    feed_file(tmp_path / "in", 2, ("curry", 1.0, T0 + 70_000, None), ("naan", 1.0, T0 + 1_000, None))
    rows = stream_of(spark, tmp_path / "in").selectExpr("item", "timestamp_millis(timestamp) AS time")
    counts = rows.groupBy("item", f.window("time", "1 minute")).count()
    upserts = counts.selectExpr("item", "count AS n", "window.start AS window_start")
    run(upserts, below(warehouse, "counts"), tmp_path / "cp", "update")
    minute = T0 // 60_000 * 60_000
    with opened(below(warehouse, "counts")) as store:
        found = [(row.key, row.start - minute, row.value) for row in store.all()]
        first = store.scan(version=1, columns=["item", "n"]).read_all().to_pylist()
    assert found == [("curry", 0, 2), ("curry", 60_000, 1), ("naan", 0, 2)]
    assert sorted(row["n"] for row in first) == [1, 2]
    read = spark.read.format("statestore").load(str(below(warehouse, "counts")))
    assert sorted((r["item"], r["n"]) for r in read.collect()) == [("curry", 1), ("curry", 2), ("naan", 2)]
    assert [r["n"] for r in read.where("item = 'naan' AND window_start > timestamp '2023-01-01'").collect()] == [2]


@pytest.mark.slow
def test_update_mode_is_exactly_once_too(spark: SparkSession, warehouse: str, tmp_path: Path) -> None:
    feed_file(tmp_path / "in", 1, ("curry", 8.0, T0, None))
    totals = stream_of(spark, tmp_path / "in").groupBy("item").sum("price").selectExpr("item", "`sum(price)` price")
    totals = totals.selectExpr("*", f"{T0} + cast(price as bigint) AS timestamp")
    query = run(totals, below(warehouse, "prices"), tmp_path / "cp", "update")
    for commit in (tmp_path / "cp" / "commits").glob("*0*"):
        commit.unlink()  # as if Spark had died between our commit and its own
    run(totals, below(warehouse, "prices"), tmp_path / "cp", "update")
    assert operations(below(warehouse, "prices")).count("write") == 1
    with opened(below(warehouse, "prices")) as store:
        assert store.versions()["application"].to_pylist()[-1] == str(query.id)


@pytest.mark.slow
def test_an_application_of_the_users_choice(spark: SparkSession, warehouse: str, tmp_path: Path) -> None:
    feed_file(tmp_path / "in", 1, ("curry", 8.0, T0, None))
    for checkpoint in ("one", "two"):  # a lost checkpoint, the same application
        run(stream_of(spark, tmp_path / "in"), below(warehouse, "prices"), tmp_path / checkpoint, txnAppId="pricing")
    assert operations(below(warehouse, "prices")).count("write") == 1


def test_a_wrong_schema_is_refused_before_data_is_read(spark: SparkSession, warehouse: str, tmp_path: Path) -> None:
    feed_file(tmp_path / "in", 1, ("curry", 8.0, T0, None))
    rows = stream_of(spark, tmp_path / "in").withColumnRenamed("price", "cost")
    for mode in ("append", "update"):
        with pytest.raises((PySparkException, statestore.InvalidInputError), match="WRONG_SCHEMA"):
            run(rows, below(warehouse, "prices"), tmp_path / f"cp-{mode}", mode)


# Out of a store


def fill(store: str, *commits: dict[str, float | None], start: int = 0) -> None:
    with opened(store) as handle:
        for number, commit in enumerate(commits, start):
            for item, price in commit.items():
                if price is None:
                    handle.delete(item, timestamp=T0 + number)
                else:
                    handle.put(item, price, timestamp=T0 + number)
            handle.commit()


def changes(spark: SparkSession, store: str, **options: Any) -> DataFrame:
    reader = spark.readStream.format("statestore").option("readChangeFeed", "true")
    return reader.options(**options).load(str(store))


def drain(rows: DataFrame, checkpoint: Path, seen: list[list[tuple[Any, ...]]]) -> None:
    """Append the rows of each micro-batch to ``seen``."""

    def keep(batch: DataFrame, _: int) -> None:
        columns = ["_commit_version", "_change_type", "item", "price"]
        seen.append(sorted(tuple(row) for row in batch.select(columns).collect()))

    query = rows.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
    query.trigger(availableNow=True).start().awaitTermination()


def feed_of(store: str, **bounds: Any) -> list[tuple[Any, ...]]:
    columns = ["_commit_version", "_change_type", "item", "price"]
    with opened(store) as handle:
        return sorted(tuple(row.values()) for row in handle.changes(columns=columns, **bounds).read_all().to_pylist())


@pytest.fixture
def filled(warehouse: str) -> str:
    fill(below(warehouse, "prices"), {"curry": 8.0, "naan": 2.0}, {"curry": 9.0}, {"naan": None, "dal": 1.0})
    return below(warehouse, "prices")


@pytest.mark.slow
def test_the_change_feed_goes_on_where_it_stopped(spark: SparkSession, filled: str, tmp_path: Path) -> None:
    seen: list[list[tuple[Any, ...]]] = []
    drain(changes(spark, filled), tmp_path / "cp", seen)
    assert seen == [feed_of(filled)]
    fill(filled, {"curry": 1.0}, start=10)
    with opened(filled) as store:
        store.compact(full=True)
        vacuumed(store)
    fill(filled, {"curry": 2.0}, start=20)
    drain(changes(spark, filled), tmp_path / "cp", seen)
    assert seen[1] == feed_of(filled, start_version=4)
    assert {row[0] for row in seen[1]} == {4, 6}


@since(4, 2, "more than one micro-batch of availableNow")
@pytest.mark.slow
def test_versions_in_a_micro_batch_are_limited(spark: SparkSession, filled: str, tmp_path: Path) -> None:
    seen: list[list[tuple[Any, ...]]] = []
    drain(changes(spark, filled, maxVersionsPerTrigger=1), tmp_path / "cp", seen)
    assert seen == [feed_of(filled, start_version=n, end_version=n) for n in (1, 2, 3)]
    fill(filled, {"a": 1.0}, {"b": 1.0}, {"c": 1.0}, start=10)
    drain(changes(spark, filled, maxVersionsPerTrigger=2), tmp_path / "cp", seen)
    assert [sorted({row[0] for row in batch}) for batch in seen[3:]] == [[4, 5], [6]]


def test_a_release_that_does_not_pass_the_start_reads_nothing_twice(filled: str) -> None:
    """Spark 4.1 asks for the next end without saying where the batch begins, also when a query is started again."""
    given = {"path": str(filled), "readChangeFeed": "true", "startingVersion": "1", "maxVersionsPerTrigger": "1"}
    source = StateStoreSource(given)
    schema = source.schema()
    reader: Any = source.streamReader(schema)
    assert [reader.latestOffset()["version"] for _ in range(2)] == [1, 2]
    last = reader.latestOffset()
    assert last["version"] == 3
    fill(filled, {"curry": 1.0}, {"curry": 2.0}, start=10)
    with opened(filled) as store:
        store.expire(before=T0 + 10)  # the first version cannot be read any more
        oldest = store.table.kept_versions()[0]
    assert oldest > 1
    again: Any = source.streamReader(schema)
    assert again.partitions(last, last) == []  # so a query begins that is started again
    assert [again.latestOffset()["version"] for _ in range(3)] == [4, 5, 6]


@pytest.mark.slow
def test_a_limited_stream_goes_on_where_it_stopped(spark: SparkSession, filled: str, tmp_path: Path) -> None:
    seen: list[list[tuple[Any, ...]]] = []
    for number in range(3):
        rows = changes(spark, filled, maxVersionsPerTrigger=2)

        def keep(batch: DataFrame, _: int) -> None:
            seen.append(
                [tuple(row) for row in batch.select("_commit_version", "_change_type", "item", "price").collect()]
            )

        query = rows.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path / "cp")).start()
        query.processAllAvailable()
        query.stop()
        fill(filled, {"curry": 1.0 + number}, start=10 + number)
    assert sorted(row for batch in seen for row in batch) == feed_of(filled, end_version=5)
    assert max(len({row[0] for row in batch}) for batch in seen) == 2


@pytest.mark.slow
def test_a_stream_goes_on_after_its_first_version_has_expired(spark: SparkSession, filled: str, tmp_path: Path) -> None:
    seen: list[list[tuple[Any, ...]]] = []
    rows = changes(spark, filled, startingVersion=2)
    drain(rows, tmp_path / "cp", seen)
    fill(filled, {"curry": 1.0}, {"curry": 2.0}, start=10)
    told = feed_of(filled, start_version=4)
    with opened(filled) as store:
        store.expire(before=T0 + 4)
        assert 2 < store.table.kept_versions()[0] <= 3
    drain(rows, tmp_path / "cp", seen)
    assert [row for batch in seen[1:] for row in batch] == told


STARTS: list[tuple[dict[str, Any], list[int]]] = [
    ({"startingVersion": "latest"}, []),
    ({"startingTimestamp": T0 + 1}, [2, 3]),
    ({"startingVersion": 2}, [2, 3]),
    ({"startingVersion": 4}, []),
]


@pytest.mark.parametrize(("options", "versions"), mostly_slow(STARTS, []))
def test_where_a_stream_begins(
    spark: SparkSession, filled: str, tmp_path: Path, options: dict[str, Any], versions: list[int]
) -> None:
    seen: list[list[tuple[Any, ...]]] = []
    drain(changes(spark, filled, **options), tmp_path / "cp", seen)
    told = [row for batch in seen for row in batch]
    assert told == [row for row in feed_of(filled) if row[0] in versions]
    fill(filled, {"dal": 5.0}, start=10)
    drain(changes(spark, filled, **options), tmp_path / "cp", seen)
    assert [row for batch in seen for row in batch] == told + feed_of(filled, start_version=4)


@pytest.mark.slow
def test_options_may_be_given_to_load(spark: SparkSession, filled: str, tmp_path: Path) -> None:
    seen: list[list[tuple[Any, ...]]] = []
    rows = spark.readStream.load(str(filled), format="statestore", readChangeFeed=True, startingVersion=3)
    drain(rows, tmp_path / "cp", seen)
    assert seen == [feed_of(filled, start_version=3)]


def failing(start: Callable[[], Any]) -> str:
    with pytest.raises((PySparkException, statestore.StateStoreError)) as caught:
        start()
    return str(caught.value)


@pytest.mark.slow
def test_a_version_that_is_gone_names_the_oldest_left(spark: SparkSession, filled: str, tmp_path: Path) -> None:
    seen: list[list[tuple[Any, ...]]] = []
    drain(changes(spark, filled, maxVersionsPerTrigger=1), tmp_path / "cp", seen)
    fill(filled, {"curry": 1.0}, {"curry": 2.0}, {"curry": 3.0}, start=10)
    with opened(filled) as store:
        store.expire(before=T0 + 11)
        oldest, newest = store.table.kept_versions()
    assert oldest == 5
    for options, checkpoint in (({}, "cp"), ({"startingVersion": 2}, "new")):
        text = failing(lambda o=options, c=checkpoint: drain(changes(spark, filled, **o), tmp_path / c, []))  # type: ignore[misc]
        assert "VERSION_NOT_FOUND" in text and f"versions {oldest + 1} to {newest} are" in text
    text = failing(lambda: drain(changes(spark, filled, startingVersion=99), tmp_path / "future", []))
    assert "VERSION_NOT_FOUND" in text and f"to {newest}" in text


@pytest.mark.slow
def test_a_store_that_was_made_anew_is_not_taken_for_the_old_one(
    spark: SparkSession, filled: str, tmp_path: Path
) -> None:
    drain(changes(spark, filled), tmp_path / "cp", [])
    catalog = statestore.connect(warehouse_of(filled))
    catalog.drop_store("prices")
    catalog.create_store("prices", key={"item": "string"}, value={"price": "double"}).close()
    fill(filled, {"a": 1.0}, {"b": 1.0}, {"c": 1.0}, {"d": 1.0}, {"e": 1.0})
    assert "STORE_REPLACED" in failing(lambda: drain(changes(spark, filled), tmp_path / "cp", []))


def test_what_a_stream_can_not_read(spark: SparkSession, filled: str, tmp_path: Path) -> None:
    def start(**options: Any) -> None:
        rows = spark.readStream.format("statestore").options(**options).load(str(filled))
        rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "cp")).start().awaitTermination(60)

    assert "CHANGE_FEED_ONLY" in failing(start)
    assert "UNKNOWN_OPTION" in failing(lambda: start(readChangeFeed="true", endingVersion=3))
    assert "INVALID_OPTION" in failing(lambda: start(readChangeFeed="true", maxVersionsPerTrigger=0))


@pytest.mark.slow
def test_a_feed_streams_into_another_store(spark: SparkSession, filled: str, tmp_path: Path) -> None:
    statestore.connect(warehouse_of(filled)).create_store(
        "copy", key={"item": "string"}, value={"price": "double"}
    ).close()
    columns = "item,price,valid_from,_change_type,_commit_version"
    rows = changes(spark, filled, columns=columns, maxVersionsPerTrigger=1)
    copied = rows.selectExpr("item", "price", "timestamp_millis(unix_millis(valid_from)) timestamp", "_change_type")
    run(copied.where("_change_type != 'delete'"), below(warehouse_of(filled), "copy"), tmp_path / "cp")
    assert state(below(warehouse_of(filled), "copy")) == {"curry": 9.0, "naan": 2.0, "dal": 1.0}
