"""Every kind of read and write in Spark, by relative paths, in a session whose tasks run in other directories.

``python spark_by_relative_paths.py MASTER CALL...``, with a master or the address of a Spark Connect server, works in
its current directory. It prints what each call answered, as JSON; of a call that raised, the type and text of its
error.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import statestore
from statestore.catalog.keyed.backend import KeyedBackend
from statestore.tracked import StateSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEY, VALUE = {"item": "string"}, {"price": "double"}
PRICES = "warehouse/prices"
OTHERS = ("appended", "inserted", "overwritten", "copied", "counted")
NOW = {"availableNow": True}


def make_stores() -> None:
    """Make a store with curry at 1 s, and then curry and naan at 2 s, and empty ones to write to."""
    catalog = statestore.connect("warehouse")
    with catalog.create_store("prices", key=KEY, value=VALUE) as store:
        store.put("curry", 1.0, timestamp=1000)
        store.commit()
        store.put("curry", 2.0, timestamp=2000)
        store.put("naan", 5.0, timestamp=2000)
        store.commit()
    for name in OTHERS:
        catalog.create_store(name, key=KEY, value=VALUE).close()
    catalog.create_store("users", "keyed", key=KEY, key_groups=4).close()


def session(master: str) -> SparkSession:
    from pyspark.sql import SparkSession

    settings = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": "OFF"}
    settings |= {"spark.sql.shuffle.partitions": "2", "spark.local.dir": str(Path("local").absolute())}
    settings |= {"spark.sql.session.timeZone": "UTC", "spark.sql.warehouse.dir": str(Path("tables").absolute())}
    builder = SparkSession.builder
    if master.startswith("sc:"):
        return builder.remote(master).getOrCreate()
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.master(master).getOrCreate()


class Calls:
    """The calls of one session, by name; each returns rows."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    def reader(self, **options: Any) -> DataFrame:
        return self.spark.read.format("statestore").options(**options).load(PRICES)

    def new_rows(self) -> DataFrame:
        return self.spark.sql("SELECT 'dal' AS item, 3.0D AS price, timestamp_millis(3000) AS timestamp")

    def feed(self) -> DataFrame:
        changes = (
            self.spark.readStream.format("statestore").option("readChangeFeed", True).option("path", PRICES).load()
        )
        return changes.where("_change_type <> 'update_preimage'").selectExpr("item", "price", "valid_from AS timestamp")

    def directory(self) -> list[Any]:
        """Return the distinct directories of tasks that are also the directory of this process."""
        here = str(Path.cwd())
        found = self.spark.range(2).mapInArrow(working_directories, "folder string")
        return sorted({row["folder"] for row in found.toArrow().to_pylist()} & {here})

    def read(self) -> list[Any]:
        return rows_of(self.reader())

    def read_option(self) -> list[Any]:
        return rows_of(self.spark.read.format("statestore").option("path", PRICES).load())

    def as_of(self) -> list[Any]:
        return rows_of(self.reader(timestampAsOf="1970-01-01T00:00:01Z"))

    def version(self) -> list[Any]:
        return rows_of(self.reader(versionAsOf=1))

    def history(self) -> list[Any]:
        return rows_of(self.reader(history=True))

    def changes(self) -> list[Any]:
        return rows_of(self.reader(readChangeFeed=True, startingVersion=2))

    def metadata(self) -> int:
        return self.spark.read.format("statestore").load(f"{PRICES}$versions").count()

    def explained(self) -> str:
        """Return the reason that EXPLAIN gives for a read that Spark's planner does not shape."""
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            self.reader().explain()
        reason = re.search(r"BatchScan arrow_statestore \(not planned: (.*?)\)", printed.getvalue())
        return "none" if reason is None else reason[1]

    def catalog(self) -> list[Any]:
        """Join two moments in the catalog, after an INSERT."""
        statestore.register(self.spark, "warehouse", name="state")
        self.spark.sql("INSERT INTO state.inserted SELECT item, price, timestamp FROM {new}", new=self.new_rows())
        joined = self.spark.sql(
            "SELECT now.item, now.price, then.price FROM state.prices now JOIN state.prices VERSION AS OF 1 then "
            "ON now.item = then.item UNION ALL SELECT item, price, price FROM state.inserted"
        )
        return sorted(map(list, joined.collect()))

    def append(self) -> list[Any]:
        self.new_rows().write.format("statestore").mode("append").save("warehouse/appended")
        return stored("appended")

    def overwrite(self) -> list[Any]:
        writer = self.new_rows().write.format("statestore").mode("overwrite")
        writer.option("path", "warehouse/overwritten").save()
        return stored("overwritten")

    def stream(self) -> list[Any]:
        writer = self.feed().writeStream.format("statestore").option("checkpointLocation", absolute("cp-copied"))
        writer.trigger(availableNow=True).start("warehouse/copied").awaitTermination()
        return stored("copied")

    def update_mode(self) -> list[Any]:
        counts = self.feed().groupBy("item").agg({"price": "max", "timestamp": "max"})
        writer = counts.toDF("item", "price", "timestamp").writeStream.format("statestore").outputMode("update")
        writer = writer.option("checkpointLocation", absolute("cp-counted")).option("path", "warehouse/counted")
        writer.trigger(availableNow=True).start().awaitTermination()
        return stored("counted")

    def joined(self, store: Any = PRICES) -> list[Any]:
        left = self.spark.sql("SELECT 'curry' AS item, timestamp_millis(1500) AS at")
        return rows_of(statestore.asof_join(left, store, on="item", left_time="at"), "item", "price")

    def joined_handle(self) -> list[Any]:
        with statestore.connect("warehouse").open_store("prices") as store:
            return self.joined(store)

    def joined_table(self) -> list[Any]:
        return self.joined(statestore.inspect("warehouse").table("prices"))

    def joined_stream(self) -> list[Any]:
        left = self.feed().withColumnRenamed("price", "was")
        joined = statestore.asof_join(left, PRICES, on="item", left_time="timestamp").select("item", "was", "price")
        writer = joined.writeStream.format("parquet").option("checkpointLocation", absolute("cp-joined"))
        writer.trigger(availableNow=True).start(absolute("joined")).awaitTermination()
        return rows_of(self.spark.read.parquet(absolute("joined")), "item", "was", "price")

    def sql(self) -> list[Any]:
        text = "SELECT item, {v} AS v FROM prices VERSION AS OF 1 JOIN prices AS now USING (item)".format(v="'{x}'")
        return rows_of(statestore.sql("warehouse", text, spark=self.spark), "item", "v")

    def sql_wrong(self) -> int:
        return statestore.sql("warehouse", "SELECT item,\n cost FROM prices", spark=self.spark).count()

    def sql_view(self) -> list[Any]:
        self.spark.sql(f"CREATE TEMPORARY VIEW seen USING statestore OPTIONS (path '{PRICES}', versionAsOf 1)")
        return rows_of(self.spark.sql("SELECT item, price FROM seen"))

    def sql_table(self) -> str:
        self.spark.sql(f"CREATE TABLE made USING statestore OPTIONS (path '{PRICES}')")
        return "made"

    def sql_describe(self) -> int:
        return statestore.sql("warehouse", "DESCRIBE HISTORY prices", spark=self.spark).count()

    def keyed(self) -> list[Any]:
        answer = statestore.run_keyed(
            self.new_rows().select("item"), counter, key="item", store="warehouse/users", output="item string, n int"
        )
        return rows_of(answer, "item", "n")

    def tracked(self) -> list[Any]:
        spec = StateSpec.function(lambda value, state: state.update((state.get() if state.exists() else 0) + 1))
        tracked = statestore.track_state_by_key(
            self.new_rows().select("item", "price"),
            key="item",
            spec=spec,
            store="warehouse/tracked",
            state_type="int",
            output_type="int",
        )
        tracked.run()
        return stored("tracked.state", "item", "value")

    def edited(self) -> list[Any]:
        with statestore.edit("checkpoint", "mended", spark=self.spark) as edit:
            edit.sql("DELETE FROM state WHERE value.count <> 3 OR value.sum > 600 OR value.sum IS NULL")
        rows = statestore.inspect("mended")["state"].scan().to_arrow().to_pylist()
        return sorted([row["key"]["k"], row["value"]["sum"]] for row in rows)


def counter(backend: KeyedBackend) -> Callable[..., Any]:
    counts = backend.value_state("count", "int", default=0)

    def count(key: str, rows: pa.RecordBatch) -> Iterator[tuple[str, int]]:
        counts.update(counts.value() + rows.num_rows)
        yield key, counts.value()

    return count


def working_directories(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        yield pa.record_batch({"folder": [str(Path.cwd())]})


def absolute(name: str) -> str:
    """A folder of Spark's own, whose relative names are Spark's affair."""
    return str(Path(name).absolute())


def rows_of(frame: Any, *columns: str) -> list[Any]:
    names = columns or ("item", "price")
    return sorted([row[name] for name in names] for row in frame.toArrow().to_pylist())


def stored(name: str, *columns: str) -> list[Any]:
    names = columns or ("item", "price")
    rows = statestore.inspect("warehouse").table(name).scan().read_all().to_pylist()
    return sorted([row[column] for column in names] for row in rows)


def main(master: str, *names: str) -> None:
    make_stores()
    spark = session(master)
    statestore.register(spark)
    if not master.startswith("sc:"):
        from statestore.connector.spark.planner import read_plan

        # Tables this small would be read while planning, and not by tasks.
        read_plan.MOST_READ = read_plan.MOST_SUMMED = -1
    calls = Calls(spark)
    answers: dict[str, Any] = {}
    for name in names:
        try:
            answers[name] = getattr(calls, name)()
        except Exception as error:
            answers[name] = f"{type(error).__name__}: {error}"[:2000]
    print(json.dumps(answers), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
