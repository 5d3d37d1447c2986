"""A keyed function over DataFrames has the state of a dict in plain Python that gets the same rows, and emits the same
rows."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import functions as f
from support.keyed.keyed_rows import (
    OUTPUT,
    Model,
    Row,
    emitted,
    files,
    followed,
    opened,
    some_rows,
    state,
    versions,
)
from support.parameters import mostly_slow
from support.places import DIRECTORY, S3, below

import statestore
from statestore.catalog.keyed.snapshots.snapshot_part import SnapshotKind
from statestore.formats.errors import ConflictError, InvalidInputError, NotFoundError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]  # workers lack this file


def frame(spark: SparkSession, rows: list[Row], parts: int = 3) -> DataFrame:
    """The rows in this order, divided among some partitions."""
    made = spark.createDataFrame(rows, "user string, amount bigint")
    return made.repartitionByRange(parts, f.col("amount")).sortWithinPartitions("amount")


pytest_plugins = ["support.keyed.keyed_place_fixtures"]
PLACES = (DIRECTORY, pytest.param(S3, marks=pytest.mark.slow))


@pytest.fixture
def store(place: str) -> str:
    warehouse = below(place, "w")
    statestore.connect(warehouse).create_store("users", "keyed", key={"user": "string"}, key_groups=16).close()
    return below(warehouse, "users")


@pytest.mark.parametrize("adaptive", mostly_slow(["true", "false"], []))
def test_batches_with_other_numbers_of_tasks(spark: SparkSession, store: str, adaptive: str) -> None:
    """Every user's rows in the DataFrame's order, whatever the tasks; all key groups are in each version."""
    spark.conf.set("spark.sql.adaptive.enabled", adaptive)
    try:
        model = Model()
        for number, tasks in enumerate((4, 2, 7, None)):
            rows = some_rows(number)
            answer = statestore.run_keyed(
                frame(spark, rows), followed, key="user", store=store, output=OUTPUT, tasks=tasks
            )
            assert emitted(answer) == model.batch(rows)
            assert state(store) == model.amounts
    finally:
        spark.conf.unset("spark.sql.adaptive.enabled")
    assert versions(store) == [1, 2, 3, 4]


@pytest.mark.slow
def test_full_and_incremental_snapshots_follow_each_other(spark: SparkSession, store: str) -> None:
    model = Model()
    kinds: list[SnapshotKind] = ["full", "incremental", "incremental", "full", "incremental"]
    for number, kind in enumerate(kinds):
        rows = some_rows(number, 50)
        answer = statestore.run_keyed(
            frame(spark, rows), followed, key="user", store=store, output=OUTPUT, tasks=2, snapshot=kind
        )
        assert emitted(answer) == model.batch(rows)
        assert state(store) == model.amounts


@pytest.mark.slow
def test_tasks_without_rows_keep_their_state(spark: SparkSession, store: str) -> None:
    model = Model()
    for rows in (some_rows(0), [("user-3", 5)], [], some_rows(1)):
        answer = statestore.run_keyed(frame(spark, rows), followed, key="user", store=store, output=OUTPUT, tasks=5)
        assert emitted(answer) == model.batch(rows)
        assert state(store) == model.amounts


def test_an_empty_relation_is_a_batch_too(spark: SparkSession, store: str) -> None:
    """Spark plans no task at all for one that it knows to be empty."""
    nothing = spark.createDataFrame([], "user string, amount bigint").where("false")
    answer = statestore.run_keyed(nothing, followed, key="user", store=store, output=OUTPUT, tasks=3)
    assert answer.collect() == []
    assert answer.columns == ["user", "seen", "last"]
    assert versions(store) == [1]
    assert state(store) == {}


def test_a_transaction_runs_once(spark: SparkSession, store: str) -> None:
    model = Model()
    rows = some_rows(0)
    expected = model.batch(rows)
    for _ in range(2):
        answer = statestore.run_keyed(
            frame(spark, rows), followed, key="user", store=store, output=OUTPUT, transaction=("nightly", 1)
        )
        assert emitted(answer) == expected
        assert state(store) == model.amounts
    assert versions(store) == [1]


@pytest.mark.slow
def test_old_snapshots_go_and_their_rows_with_them(spark: SparkSession, store: str) -> None:
    model, answers, expected = Model(), [], []
    for number in range(4):
        rows = some_rows(number, 20)
        answers.append(
            statestore.run_keyed(
                frame(spark, rows), followed, key="user", store=store, output=OUTPUT, tasks=2, retained=2
            )
        )
        expected.append(model.batch(rows))
    with opened(store) as handle:
        kept = handle.retained()
        assert len(kept) == 2
        assert handle.vacuum(0, dry_run=True) == []
    assert emitted(answers[3]) == expected[3]
    assert answers[2].count() > 0
    if "://" in store:  # the machine that wrote them has them in its cache
        assert emitted(answers[0]) == expected[0]
        return
    with pytest.raises(Exception, match="SNAPSHOT_FILE_MISSING"):
        answers[0].collect()


def test_a_function_that_fails_leaves_nothing(spark: SparkSession, store: str) -> None:
    """One error with the key; other tasks had written their parts by then."""
    model = Model()
    statestore.run_keyed(frame(spark, some_rows(0)), followed, key="user", store=store, output=OUTPUT, tasks=3)
    model.batch(some_rows(0))
    before = files(store)

    def failing(backend: Any) -> Any:
        process = followed(backend)

        def fail(key: str, rows: pa.RecordBatch) -> Any:
            yield from process(key, rows)
            if key == "user-7":
                raise LookupError("no such tariff")

        return fail

    with pytest.raises(InvalidInputError, match=r"FUNCTION_FAILED.*'user-7'.*LookupError: no such tariff") as caught:
        statestore.run_keyed(frame(spark, some_rows(1)), failing, key="user", store=store, output=OUTPUT)
    assert "in fail" in caught.value.__notes__[0]
    assert versions(store) == [1]
    assert files(store) == before
    assert state(store) == model.amounts


def wrong_rows(kind: str) -> Callable[[Any], Any]:
    def factory(backend: Any) -> Any:
        answers = {"name": {"user": "a"}, "type": {"user": "a", "seen": "many", "last": 1}, "bare": [7], "none": 7}
        return lambda key, rows: answers[kind]

    return factory


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["name", "type", "bare", "none"])
def test_rows_that_are_not_of_the_output(spark: SparkSession, store: str, kind: str) -> None:
    rows = frame(spark, some_rows(0, 10))
    with pytest.raises(InvalidInputError, match=r"FUNCTION_FAILED.*key 'user-\d+'"):
        statestore.run_keyed(rows, wrong_rows(kind), key="user", store=store, output=OUTPUT)
    assert versions(store) == []


@pytest.mark.slow
def test_one_column_needs_no_dict(spark: SparkSession, store: str) -> None:
    rows = frame(spark, some_rows(0, 40))
    answer = statestore.run_keyed(rows, lambda _: lambda key, _: key, key="user", store=store, output="user string")
    assert emitted(answer) == sorted((f"user-{number}",) for number in range(40))


def test_an_answer_is_one_row_none_or_rows_and_whole_batches_in_order(spark: SparkSession, store: str) -> None:
    def factory(backend: Any) -> Any:
        def process(key: str, rows: pa.RecordBatch) -> Any:
            return answers[key] if key in answers else several(key, rows)

        def several(key: str, rows: pa.RecordBatch) -> Any:
            yield (key, 0, None)
            yield pa.record_batch(
                {"last": rows.column("amount"), "user": rows.column("user"), "seen": pa.nulls(len(rows))}
            )
            yield {"user": key, "seen": 1, "last": None}

        return process

    answers: dict[str, Any] = {"one": ("one", 1, None), "dict": {"user": "dict", "seen": 2, "last": 3}, "none": None}
    rows = [*some_rows(0, 90, 4), *((user, 1_000 + place) for place, user in enumerate(answers))]
    answer = statestore.run_keyed(frame(spark, rows), factory, key="user", store=store, output=OUTPUT, tasks=1)
    expected: list[tuple[Any, ...]] = []
    for user in dict(rows):
        if user in answers:
            expected += [("one", 1, None)] if user == "one" else [("dict", 2, 3)] if user == "dict" else []
            continue
        amounts = [(user, None, amount) for each, amount in rows if each == user]
        expected += [(user, 0, None), *amounts, (user, 1, None)]
    assert [tuple(row) for row in answer.collect()] == expected


@pytest.mark.slow
def test_keys_of_several_columns(spark: SparkSession, tmp_path: Path) -> None:
    """Columns are matched with the store's in order, by any name; rows have the DataFrame's own names and types."""
    key = {"place": "string", "day": "date", "number": "bigint"}
    statestore.connect(tmp_path).create_store("several", "keyed", key=key).close()
    rows = spark.sql(
        "SELECT concat('p', id % 3) AS `at.x`, date_add(DATE'2026-01-01', CAST(id % 2 AS INT)) AS d, "
        "CAST(id % 5 AS INT) AS n, id FROM range(0, 600, 1, 4)"
    )

    def summing(backend: Any) -> Any:
        total = backend.value_state("total", "bigint", default=0)

        def process(key: Any, rows: pa.RecordBatch) -> Any:
            assert rows.column("at.x").unique().to_pylist() == [key["place"]]
            assert rows.column("d").unique().to_pylist() == [key["day"]]
            assert rows.column("id").to_pylist() == sorted(rows.column("id").to_pylist())
            total.update(total.value() + sum(rows.column("id").to_pylist()))
            return (*key.values(), total.value())

        return process

    output = "place string, day date, number bigint, total bigint"
    for times, tasks in ((1, 3), (2, 5)):
        answer = statestore.run_keyed(
            rows, summing, key=["AT.X", "d", "n"], store=tmp_path / "several", output=output, tasks=tasks
        )
        expected = rows.groupBy("`at.x`", "d", "n").sum("id").collect()
        assert emitted(answer) == sorted((*row[:3], times * row[3]) for row in expected)


def test_keys_that_do_not_fit(spark: SparkSession, tmp_path: Path) -> None:
    statestore.connect(tmp_path).create_store("small", "keyed", key={"k": "int"}).close()

    def nothing(backend: Any) -> Any:
        return lambda key, rows: None

    def run(query: str, key: Any = "k") -> None:
        statestore.run_keyed(spark.sql(query), nothing, key=key, store=tmp_path / "small", output="a int", tasks=2)

    for query, code in (
        ("SELECT id AS k FROM range(3000000000, 3000000002)", "WRONG_SCHEMA"),
        ("SELECT CAST(if(id = 7, null, id) AS INT) AS k FROM range(10)", "NULL_KEY"),
        ("SELECT 'a' AS k", "WRONG_SCHEMA"),
        ("SELECT 1 AS other", "COLUMN_NOT_FOUND"),
        ("SELECT 1 AS k, 2 AS K", "COLUMN_NOT_FOUND"),
    ):
        with pytest.raises(InvalidInputError, match=code):
            run(query, "k" if code != "COLUMN_NOT_FOUND" else "k_")
    with pytest.raises(InvalidInputError, match="WRONG_KEY"):
        run("SELECT 1 AS k, 2 AS l", ["k", "l"])
    run("SELECT id AS k FROM range(10)")
    assert versions(tmp_path / "small") == [1]


def test_options_that_are_refused(spark: SparkSession, store: str, tmp_path: Path) -> None:
    rows = frame(spark, some_rows(0, 5))
    good: dict[str, Any] = {"key": "user", "store": store, "output": OUTPUT}
    for change, code in (
        ({"output": "user strong"}, "INVALID_OPTION"),
        ({"output": 5}, "INVALID_OPTION"),
        ({"tasks": 17}, "INVALID_KEY_GROUPS"),
        ({"tasks": 0}, "INVALID_KEY_GROUPS"),
        ({"snapshot": "some"}, "INVALID_OPTION"),
        ({"retained": 0}, "INVALID_OPTION"),
        ({"transaction": "nightly"}, "INVALID_TRANSACTION"),
        ({"store": 5}, "WRONG_INPUT"),
    ):
        with pytest.raises(InvalidInputError, match=code):
            statestore.run_keyed(rows, followed, **{**good, **change})
    with pytest.raises(NotFoundError, match="STORE_NOT_FOUND"):
        statestore.run_keyed(rows, followed, **{**good, "store": tmp_path / "no" / "where"})
    assert not (tmp_path / "no").exists()
    statestore.connect(tmp_path).create_store("other", "key_value", key={"k": "int"}, value={"v": "int"}).close()
    with pytest.raises(InvalidInputError, match="WRONG_INPUT"):
        statestore.run_keyed(rows, followed, **{**good, "store": tmp_path / "other"})


def test_somebody_else_commits_meanwhile(spark: SparkSession, store: str) -> None:
    """Neither is lost: the later one is refused and leaves nothing."""

    def rude(backend: Any) -> Any:
        def process(key: str, rows: pa.RecordBatch) -> None:
            with opened(store) as other:
                if not other.retained():
                    with other.backend() as own:
                        other.commit([own.snapshot("full").result()])

        return process

    with pytest.raises(ConflictError, match="BASE_OVERTAKEN"):
        statestore.run_keyed(frame(spark, some_rows(0, 5), 1), rude, key="user", store=store, output=OUTPUT, tasks=1)
    assert versions(store) == [1]
    assert files(store) == set()
