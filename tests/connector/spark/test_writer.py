"""Writes of the data source: one commit for all rows or none, whatever happens to the tasks."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from support.places import PLACES, below, files_below, opened, unnamed, warehouse_in, warehouse_of

import statestore
from statestore.catalog.stores.versioned import task_writes
from statestore.connector.spark import writer as staging
from statestore.connector.spark.writer import Staged, StateStoreStreamWriter, StateStoreWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T0 = 1_700_000_000_000


@pytest.fixture(params=PLACES)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    warehouse = warehouse_in(request.param, request, tmp_path)
    store = statestore.connect(warehouse).create_store(
        "prices", key={"item": "string"}, value={"price": "decimal(10,2)", "tags": "array<string>"}
    )
    with store:
        rows = {"item": ["curry", "milk"], "price": [8, 2], "tags": [["a"], None], "timestamp": [T0, T0]}
        store.write(pa.table(rows))
    return below(warehouse, "prices")


def frame(spark: SparkSession, *rows: str, columns: str = "item, price, tags, timestamp") -> DataFrame:
    """Rows as SQL produces them."""
    return spark.sql(f"SELECT * FROM VALUES {', '.join(f'({row})' for row in rows)} AS t({columns})")


def no_rows(spark: SparkSession) -> DataFrame:
    return frame(spark, f"'x', 1BD, array('a'), {T0}").where("item = ''")


def save(rows: DataFrame, path: str, mode: str = "append", **options: Any) -> None:
    rows.write.format("statestore").mode(mode).options(**options).save(path)


def prices(path: str) -> dict[str, Any]:
    with opened(path) as store:
        found = store.scan(columns=["item", "price"]).read_all().to_pylist()
    return {row["item"]: None if row["price"] is None else float(row["price"]) for row in found}


def version(path: str) -> int:
    with opened(path) as store:
        return int(store.version)


def staged(path: str) -> list[str]:
    """Return what tasks left: staged files, and segments that no commit names."""
    left = files_below(path, "staging")
    return [*left, *(name for name in unnamed(path) if name not in left)]


def test_append_is_one_commit_of_all_tasks(spark: SparkSession, path: str) -> None:
    rows = frame(spark, *(f"'item{n}', {n}.5BD, array('{n}', null), {T0 + n}" for n in range(40)))
    save(rows.repartition(4), path)
    assert version(path) == 2
    assert prices(path) == {"curry": 8.0, "milk": 2.0} | {f"item{n}": n + 0.5 for n in range(40)}
    assert staged(path) == []


def test_later_and_earlier_rows_find_their_place(spark: SparkSession, path: str) -> None:
    later = f"'curry', 9BD, null, timestamp_millis({T0 + 50})"
    earlier = f"'milk', 1BD, null, timestamp_millis({T0 - 5})"
    save(frame(spark, later, earlier), path)
    assert prices(path) == {"curry": 9.0, "milk": 2.0}
    with opened(path) as store:
        assert float(store.get("milk", as_of=T0 - 1).value["price"]) == 1
        assert store.get("curry", as_of=T0 + 49).value["tags"] == ["a"]


def test_change_types(spark: SparkSession, path: str) -> None:
    rows = frame(
        spark,
        f"'curry', null, null, {T0 + 1}, 'delete'",
        f"'milk', 7BD, null, {T0 + 1}, 'update_preimage'",
        f"'rice', null, null, {T0 + 1}, 'insert'",
        f"'bread', 4BD, null, {T0 + 1}, null",
        columns="item, price, tags, timestamp, _change_type",
    )
    save(rows, path)
    assert prices(path) == {"milk": 2.0, "rice": None, "bread": 4.0}


def test_overwrite_replaces_the_current_state_and_keeps_history(spark: SparkSession, path: str) -> None:
    save(frame(spark, f"'curry', 5BD, array('n'), {T0 + 100}"), path, "overwrite")
    assert prices(path) == {"curry": 5.0}
    read = spark.read.format("statestore").option("timestampAsOf", T0 + 99).load(path)
    assert read.count() == 2
    assert spark.read.format("statestore").option("versionAsOf", 1).load(path).count() == 2


def test_overwrite_with_no_row_empties_the_current_state(spark: SparkSession, path: str) -> None:
    save(no_rows(spark), path, "overwrite")
    assert prices(path) == {}
    assert spark.read.format("statestore").load(path).count() == 0


def test_appending_no_row_makes_no_commit(spark: SparkSession, path: str) -> None:
    save(no_rows(spark), path)
    assert version(path) == 1


def test_a_change_feed_can_be_written_to_another_store(spark: SparkSession, path: str) -> None:
    save(frame(spark, f"'curry', 9BD, null, {T0 + 50}"), path)
    warehouse = warehouse_of(path)
    copy = below(warehouse, "copy")
    with opened(path) as store:
        statestore.connect(warehouse).create_store("copy", key=store.spec.key, value=store.spec.value).close()
    feed = spark.read.format("statestore").option("readChangeFeed", "true").load(path)
    save(feed.selectExpr("item", "price", "tags", "valid_from AS timestamp", "_change_type"), copy)
    assert prices(copy) == prices(path) == {"curry": 9.0, "milk": 2.0}


def test_a_transaction_is_written_once(spark: SparkSession, path: str) -> None:
    for price in (3, 4):
        save(frame(spark, f"'rice', {price}BD, null, {T0}"), path, txnAppId="job", txnVersion=1)
    assert version(path) == 2
    assert prices(path)["rice"] == 3.0


@pytest.mark.parametrize(
    ("rows", "columns", "code"),
    [
        ("'x', 1BD, null", "item, price, tags", "timestamp"),
        ("1, 1BD, null, 1", "item, price, tags, timestamp", "WRONG_SCHEMA"),
        ("'x', 'much', null, 1", "item, price, tags, timestamp", "WRONG_SCHEMA"),
        ("'x', 1BD, null, 1, 2", "item, price, tags, timestamp, more", "WRONG_SCHEMA"),
        ("'x', 1BD, null, true", "item, price, tags, timestamp", "WRONG_SCHEMA"),
        ("'x', 1BD, null, TIMESTAMP_NTZ '2024-01-01'", "item, price, tags, timestamp", "NAIVE_DATETIME"),
    ],
)
def test_wrong_schemas_are_refused_before_any_task(
    spark: SparkSession, path: str, rows: str, columns: str, code: str
) -> None:
    values = [f"{value} AS {name}" for value, name in zip(rows.split(", "), columns.split(", "), strict=True)]
    wrong = spark.range(1).where("IF(rand() >= 0, raise_error('a task ran'), true)").selectExpr(*values)
    with pytest.raises(PySparkException, match=code):
        save(wrong, path)
    assert version(path) == 1 and staged(path) == []


def test_times_as_text_have_a_zone(spark: SparkSession, path: str) -> None:
    save(frame(spark, "'rice', 3BD, null, '2024-05-01T09:30:00+02:00'"), path)
    with opened(path) as store:
        assert store.get("rice").valid_from == 1_714_548_600_000
    for text, code in (("now", "INVALID_TIME"), ("2024-05-01T09:30:00", "NAIVE_DATETIME")):
        with pytest.raises(PySparkException, match=code):
            save(frame(spark, f"'dal', 3BD, null, '{text}'"), path)
    assert version(path) == 2


def test_what_can_not_be_written_is_refused(spark: SparkSession, path: str) -> None:
    rows = frame(spark, f"'rice', 3BD, null, {T0}")
    with pytest.raises(PySparkException, match="create_store"):
        save(rows, below(warehouse_of(path), "pricess"))
    with pytest.raises(PySparkException, match="READ_ONLY"):
        save(rows, below(warehouse_of(path), "prices$versions"))
    with pytest.raises(PySparkException, match="UNKNOWN_OPTION"):
        save(rows, path, versionAsOf=1)
    with pytest.raises(PySparkException, match="INVALID_OPTION"):
        save(rows, path, txnAppId="job")
    assert version(path) == 1


def test_modes_for_new_tables_are_refused_by_the_name_that_was_typed(spark: SparkSession, path: str) -> None:
    """Spark's default is one of them."""
    rows = frame(spark, f"'rice', 3BD, null, {T0}")
    writers: dict[str, Callable[[], Any]] = {
        "errorifexists, the default": lambda: rows.write.format("statestore").save(path),
        "ignore": lambda: rows.write.format("statestore").mode("ignore").save(path),
        "ErrorIfExists": lambda: rows.write.mode("ErrorIfExists").save(path, format="statestore"),
        "error": lambda: rows.write.format("statestore").mode("append").save(path, mode="error"),
    }
    for mode, write in writers.items():
        with pytest.raises(statestore.InvalidInputError) as caught:
            write()
        assert caught.value.message == (
            f'the mode of this write with format "statestore" is {mode}; a store exists before it is written: give '
            '.mode("append"), which adds the rows as one version, or .mode("overwrite"), which makes them the whole '
            "current state"
        )
    assert version(path) == 1


@pytest.mark.parametrize("bad", [f"null, 1BD, null, {T0}", "'x', 1BD, null, null"])
def test_rows_the_store_refuses_leave_nothing(spark: SparkSession, path: str, bad: str) -> None:
    with pytest.raises(PySparkException, match=r"NULL_KEY|NULL_TIMESTAMP"):
        save(frame(spark, f"'rice', 3BD, array('a'), {T0}", bad), path)
    assert version(path) == 1 and staged(path) == []


def test_a_failing_task_leaves_nothing(spark: SparkSession, path: str) -> None:
    """One task: Spark does not wait for the others, which may stage a file after the write was given up."""
    rows = spark.range(0, 20_000, 1, 1).selectExpr(
        "CAST(id AS string) AS item",
        "CAST(IF(id = 19999, raise_error('broken'), 1) AS decimal(10,2)) AS price",
        "array('a') AS tags",
        f"{T0} AS timestamp",
    )
    with pytest.raises(PySparkException, match="broken"):
        save(rows, path)
    assert version(path) == 1 and staged(path) == []
    assert prices(path) == {"curry": 8.0, "milk": 2.0}


def test_repeated_attempts_count_once(spark: SparkSession, path: str) -> None:
    """Spark commits one message per task; files that other attempts of the task staged are not named in any."""
    schema = frame(spark, f"'x', 1BD, array('a'), {T0}").schema
    writer = StateStoreWriter(path, schema, False, {})

    def attempt(item: str) -> Any:
        row = {"item": [item], "price": [Decimal(1)], "tags": [["a"]], "timestamp": [T0 + 1]}
        batch = pa.RecordBatch.from_pydict(row, schema=writer._target.schema)
        return writer.write(iter([batch]))

    attempt("dead")
    kept = attempt("alive")
    assert isinstance(kept, Staged) and len(staged(path)) == 2
    writer.commit([kept])
    assert prices(path) == {"curry": 8.0, "milk": 2.0, "alive": 1.0}
    assert staged(path) == []


@pytest.mark.parametrize("least", [10_000, pytest.param(task_writes.MIN_ROWS, marks=pytest.mark.slow)])
def test_tasks_resolve_many_rows(spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch, least: int) -> None:
    """Keys of several tasks, deletes and rows before those of the store, in tasks that have more rows than MIN_ROWS."""
    monkeypatch.setattr(task_writes, "MIN_ROWS", least)
    tasks, each = 2, least + least // 10
    keys = each * 7 // 5 // 10 * 10
    rows = spark.range(0, tasks * each, 1, tasks).selectExpr(
        f"IF(id = 7, 'curry', concat('item', id % {keys})) AS item",
        "CAST(id % 1000 AS decimal(10,2)) AS price",
        "array('t') AS tags",
        f"{T0} + IF(id = 7, -5, id) AS timestamp",
        f"IF(id >= {keys} AND id % 10 = 0, 'delete', 'insert') AS _change_type",
    )
    save(rows, path)
    with opened(path) as store:  # a compaction may follow the write
        assert store.versions()["operation"].to_pylist()[:3] == ["create", "write", "write"]
    assert staged(path) == []
    newest = {f"item{n % keys}": (n, n >= keys and n % 10 == 0) for n in range(tasks * each) if n != 7}
    live = {item: float(n % 1000) for item, (n, dead) in newest.items() if not dead}
    assert prices(path) == {"curry": 8.0, "milk": 2.0} | live
    with opened(path) as store:
        assert float(store.get("curry", as_of=T0 - 1).value["price"]) == 7
        assert float(store.get("item20", as_of=T0 + 20).value["price"]) == 20
        written = store._log_state.segments[1:]
        assert {meta.tombstone for meta in written} == {True, False} and len(written) >= 2 * tasks
    assert statestore.verify(path)[0].problems == ()


def test_wrong_rows_among_many_fail_the_write(spark: SparkSession, path: str) -> None:
    last = task_writes.MIN_ROWS + 10
    rows = spark.range(0, last + 1, 1, 1).selectExpr(
        f"IF(id = {last}, null, 'x') AS item", "1BD AS price", "array('a') AS tags", f"{T0} + id AS timestamp"
    )
    with pytest.raises(PySparkException, match="NULL_KEY"):
        save(rows, path)
    assert version(path) == 1 and staged(path) == []


@pytest.fixture
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tasks resolve two rows and more, and the driver resolve what they leave in parts."""
    monkeypatch.setattr(task_writes, "MIN_ROWS", 2)
    monkeypatch.setattr(task_writes, "PART_ROWS", 2)
    monkeypatch.setattr(staging, "PART_BYTES", 3)


def batch_of(writer: Any, *items: str) -> Any:
    count = len(items)
    rows = {"item": items, "price": [Decimal(1)] * count, "tags": [["a"]] * count, "timestamp": [T0 + 1] * count}
    return iter([pa.RecordBatch.from_pydict(rows, schema=writer._target.schema)])


def test_attempts_of_tasks_that_resolve_rows_count_once(spark: SparkSession, path: str, few_are_many: None) -> None:
    """Files of a dead attempt are named in no message; a task with one row leaves it to the driver."""
    writer = StateStoreWriter(path, frame(spark, f"'x', 1BD, array('a'), {T0}").schema, False, {})
    writer.write(batch_of(writer, "dead", "dead too"))
    resolved, left = writer.write(batch_of(writer, "alive", "a")), writer.write(batch_of(writer, "b"))
    assert isinstance(resolved, Staged) and isinstance(left, Staged)
    assert len(resolved.parts) == 1 and not left.parts and left.files
    writer.commit([resolved, left])
    assert prices(path) == {"curry": 8.0, "milk": 2.0, "alive": 1.0, "a": 1.0, "b": 1.0}
    assert staged(path) == []


def test_the_driver_resolves_the_rows_of_many_small_tasks_in_parts(
    spark: SparkSession, path: str, few_are_many: None
) -> None:
    writer = StateStoreWriter(path, frame(spark, f"'x', 1BD, array('a'), {T0}").schema, False, {})
    writer.commit([writer.write(batch_of(writer, f"item{n}")) for n in range(5)])
    assert prices(path) == {"curry": 8.0, "milk": 2.0} | {f"item{n}": 1.0 for n in range(5)}
    assert staged(path) == []


def test_an_aborted_batch_of_a_stream_removes_its_parts(
    spark: SparkSession, path: str, few_are_many: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("statestore.connector.spark.writer._query_id", lambda: "query")
    writer = StateStoreStreamWriter(path, frame(spark, f"'x', 1BD, array('a'), {T0}").schema, False, {"txnAppId": "q"})
    aborted = writer.write(batch_of(writer, "a", "b"))
    assert len(staged(path)) == 2  # a segment and its index
    writer.abort([aborted], 0)
    assert staged(path) == []
    for batch in (0, 0, 1):
        writer.commit([writer.write(batch_of(writer, f"c{batch}", "d"))], batch)
    assert prices(path) == {"curry": 8.0, "milk": 2.0, "c0": 1.0, "c1": 1.0, "d": 1.0}
    assert version(path) == 3
