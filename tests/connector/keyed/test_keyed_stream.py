"""A keyed function over a stream: each micro-batch takes effect once, whatever is repeated, with any number of
tasks.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from support.engines.imported import made, one_operator, operator_engine
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
from support.places import DIRECTORY, S3, below, in_places

import statestore
from statestore.catalog.keyed.snapshots.snapshot_log import read_log
from statestore.formats.errors import InvalidInputError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]  # workers lack this file
T0 = 1_700_000_000
Answers = dict[int, list[tuple[Any, ...]]]
pytest_plugins = ["support.keyed.keyed_place_fixtures"]
PLACES = (DIRECTORY, pytest.param(S3, marks=pytest.mark.slow))


@pytest.fixture
def store(place: str) -> str:
    warehouse = below(place, "w")
    statestore.connect(warehouse).create_store("users", "keyed", key={"user": "string"}, key_groups=16).close()
    return below(warehouse, "users")


def feed(folder: Path, number: int, rows: list[Row]) -> None:
    """Write one input file; Spark reads one file in each micro-batch, the oldest first."""
    folder.mkdir(exist_ok=True)
    columns = list(zip(*rows, strict=True)) or [(), ()]
    path = folder / f"{number:04d}.parquet"
    pq.write_table(pa.table([pa.array(columns[0], "string"), pa.array(columns[1], "int64")], ["user", "amount"]), path)
    os.utime(path, (T0 + number,) * 2)


class Stream:
    """A query that runs until there is no more input, and the rows that its sink received, by batch."""

    def __init__(self, spark: SparkSession, folder: Path, store: str) -> None:
        self.spark, self.folder, self.store = spark, folder, store
        self.answers: Answers = {}
        self.calls: list[int] = []
        self.fails_at: int | None = None

    def run(self, function: Callable[[Any], Any] = followed, **options: Any) -> None:
        rows = self.spark.readStream.schema("user string, amount bigint").option("maxFilesPerTrigger", 1)
        query = statestore.run_keyed_stream(
            rows.parquet(str(self.folder / "in")),
            function,
            key="user",
            store=self.store,
            output=OUTPUT,
            checkpoint=self.folder / "checkpoint",
            sink=self.sink,
            trigger={"availableNow": True},
            **options,
        )
        query.awaitTermination()

    def sink(self, rows: DataFrame, batch: int) -> None:
        self.calls.append(batch)
        if batch == self.fails_at:
            raise OSError("the sink is away")
        found = emitted(rows)
        assert self.answers.setdefault(batch, found) == found, "another answer for a batch"

    def forget_commit(self) -> None:
        """Restore the state in which Spark died after its newest batch was done and before it was committed."""
        commits = self.folder / "checkpoint" / "commits"
        newest = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
        (commits / str(newest)).unlink()
        (commits / f".{newest}.crc").unlink(missing_ok=True)


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path, store: str) -> Stream:
    return Stream(spark, tmp_path, store)


@pytest.mark.slow
def test_batches_restarts_and_other_numbers_of_tasks(stream: Stream, tmp_path: Path) -> None:
    """Two batches each with 4, 2 and 7 tasks, one of them without rows; every version has its own state."""
    expected: Answers = {}
    model, states = Model(), {}
    for tasks in (4, 2, 7):
        for number in range(len(expected), len(expected) + 2):
            rows = some_rows(number) if number != 3 else []
            feed(tmp_path / "in", number, rows)
            expected[number] = model.batch(rows)
            states[number] = {user: list(amounts) for user, amounts in model.amounts.items()}
        stream.run(tasks=tasks, retained=None)
        assert stream.answers == expected
        assert state(stream.store) == model.amounts
    assert versions(stream.store) == [1, 2, 3, 4, 5, 6]
    for version in (1, 3, 5):
        assert state(stream.store, version) == states[version - 1]
    log = read_log(opened(stream.store).files())
    assert [len(entry.parts) for entry in log.entries] == [4, 4, 2, 2, 7, 7]
    assert len({entry.transaction[0] for entry in log.entries if entry.transaction}) == 1


@pytest.mark.slow
def test_only_the_newest_snapshots_stay(stream: Stream, tmp_path: Path) -> None:
    model = Model()
    for number in range(5):
        feed(tmp_path / "in", number, some_rows(number, 40))
        model.batch(some_rows(number, 40))
    stream.run(tasks=2, retained=2)
    assert len(versions(stream.store)) == 2
    assert state(stream.store) == model.amounts
    with opened(stream.store) as handle:
        assert handle.vacuum(0, dry_run=True) == []


def test_a_batch_that_comes_again(stream: Stream, tmp_path: Path) -> None:
    """A query died between our commit and Spark's own: the same rows come again, and nothing counts twice."""
    model, expected = Model(), {}
    for number in range(2):
        feed(tmp_path / "in", number, some_rows(number))
        expected[number] = model.batch(some_rows(number))
        stream.run(tasks=3 - number)
        if number == 0:
            stream.forget_commit()
    assert stream.calls == [0, 0, 1]
    assert stream.answers == expected
    assert versions(stream.store) == [1, 2]  # each batch once
    assert state(stream.store) == model.amounts


@pytest.mark.slow
def test_a_sink_that_fails_gets_the_same_rows_later(stream: Stream, tmp_path: Path) -> None:
    model, expected = Model(), {}
    for number in range(3):
        feed(tmp_path / "in", number, some_rows(number))
        expected[number] = model.batch(some_rows(number))
    stream.fails_at = 1
    with pytest.raises(PySparkException, match="the sink is away"):
        stream.run(tasks=2)
    assert versions(stream.store) == [1, 2]
    stream.fails_at = None
    stream.run(tasks=2)
    assert stream.calls == [0, 1, 1, 2]
    assert stream.answers == expected
    assert state(stream.store) == model.amounts


@pytest.mark.slow
def test_a_function_that_fails_stops_the_query(stream: Stream, tmp_path: Path) -> None:
    """Backends kept from the batch before hold state that was never committed, so they must not be used again."""
    model, expected = Model(), {}
    for number in range(3):
        feed(tmp_path / "in", number, some_rows(number))
        expected[number] = model.batch(some_rows(number))

    def failing(backend: Any) -> Any:
        process = followed(backend)

        def fail(key: str, rows: pa.RecordBatch) -> Any:
            if key == "user-7" and rows.column("amount")[0].as_py() >= 1000:
                raise LookupError("no such tariff")
            yield from process(key, rows)

        return fail

    with pytest.raises(
        PySparkException, match=r"FUNCTION_FAILED.*'user-7' of batch 1 of .*LookupError: no such tariff"
    ):
        stream.run(failing, tasks=3)
    assert versions(stream.store) == [1]
    with opened(stream.store) as handle:
        assert handle.vacuum(0, dry_run=True) == []
    assert files(stream.store)
    stream.run(tasks=3)
    assert stream.answers == expected
    assert state(stream.store) == model.amounts


@pytest.mark.slow
def test_two_queries_on_one_store_take_turns(spark: SparkSession, store: str, tmp_path: Path) -> None:
    """Each query adds to the commits of the other."""
    streams = [Stream(spark, tmp_path / name, store) for name in ("left", "right")]
    for each in streams:
        each.folder.mkdir()
        for number in range(3):
            feed(each.folder / "in", number, some_rows(number, 30))
    with ThreadPoolExecutor() as pool:
        for running in [pool.submit(each.run, tasks=tasks) for tasks, each in enumerate(streams, 1)]:
            running.result()
    assert {user: sorted(amounts) for user, amounts in state(store).items()} == {
        user: sorted(2 * amounts) for user, amounts in everything(3).items()
    }
    assert [sorted(each.answers) for each in streams] == [[0, 1, 2]] * 2


def everything(batches: int) -> dict[str, list[int]]:
    model = Model()
    for number in range(batches):
        model.batch(some_rows(number, 30))
    return model.amounts


@in_places(DIRECTORY)
@pytest.mark.slow
def test_an_older_copy_of_the_store_is_told(stream: Stream, tmp_path: Path) -> None:
    """Its state lacks batches that the checkpoint has: going on would count them never."""
    feed(tmp_path / "in", 0, some_rows(0, 30))
    stream.run(tasks=1)
    shutil.copytree(stream.store, tmp_path / "copy")
    feed(tmp_path / "in", 1, some_rows(1, 30))
    stream.run(tasks=1)
    shutil.rmtree(stream.store)
    (tmp_path / "copy").rename(stream.store)
    feed(tmp_path / "in", 2, some_rows(2, 30))
    with pytest.raises(PySparkException, match=r"BATCHES_MISSING.*batch 2 of .* its last batch there is 0"):
        stream.run(tasks=1)
    assert versions(stream.store) == [1]


@pytest.mark.slow
def test_a_batch_that_was_discarded_is_told(stream: Stream, tmp_path: Path) -> None:
    """The store lacks the batch, the checkpoint has it: an error reports it. Under another name the stream
    continues."""
    model = Model()
    for number in range(2):
        feed(tmp_path / "in", number, some_rows(number, 30))
    stream.run(tasks=1)
    with opened(stream.store) as handle:
        handle.discard(2)
    feed(tmp_path / "in", 2, some_rows(2, 30))
    with pytest.raises(PySparkException, match=r"BATCHES_MISSING.*in version 2, and the newest snapshot is 1"):
        stream.run(tasks=1)
    stream.run(tasks=1, application="again")
    model.batch(some_rows(0, 30))
    assert stream.answers[2] == model.batch(some_rows(2, 30))
    assert state(stream.store) == model.amounts


def test_what_is_refused_before_it_starts(spark: SparkSession, stream: Stream, tmp_path: Path) -> None:
    feed(tmp_path / "in", 0, some_rows(0, 5))
    with pytest.raises(InvalidInputError, match="INVALID_KEY_GROUPS"):
        stream.run(tasks=0)
    with pytest.raises(InvalidInputError, match="INVALID_OPTION"):
        stream.run(retained=0)
    rows = spark.read.parquet(str(tmp_path / "in"))
    options: dict[str, Any] = {"key": "user", "store": stream.store, "output": OUTPUT}
    with pytest.raises(InvalidInputError, match="call run_keyed for it"):
        statestore.run_keyed_stream(rows, followed, checkpoint=tmp_path / "checkpoint", **options)
    with pytest.raises(InvalidInputError, match="call run_keyed_stream for it"):
        statestore.run_keyed(spark.readStream.schema(rows.schema).parquet(str(tmp_path / "in")), followed, **options)
    assert not (tmp_path / "checkpoint").exists()


# A keyed function goes on with states that were imported from an engine's operator


def imported(folder: Path, model: Model) -> Path:
    """A store with the states of `followed` after the rows of the model, imported from an operator with two tasks."""
    amounts = [(user, place, amount) for user, all_ in model.amounts.items() for place, amount in enumerate(all_)]
    users, places, values = (list(column) for column in zip(*amounts, strict=True))
    seen = {"key": list(model.amounts), "value": [len(all_) for all_ in model.amounts.values()]}
    states = (
        made("seen", "value", seen, value=pa.int64()),
        made(
            "amounts",
            "list",
            {"key": users, "position": places, "value": values},
            position=pa.int32(),
            value=pa.int64(),
        ),
    )
    with operator_engine():
        statestore.import_keyed(one_operator(folder, *states), folder / "w" / "users", key=["user"])
    return folder / "w" / "users"


@pytest.mark.parametrize(("tasks", "batches"), mostly_slow([(None, 2), (3, 2), (3, 1)], [(3, 1)]))
def test_batches_go_on_with_imported_states(
    spark: SparkSession, tmp_path: Path, tasks: int | None, batches: int
) -> None:
    model = Model()
    model.batch(some_rows(0))
    store = imported(tmp_path, model)
    for number in range(1, batches + 1):
        rows = some_rows(number)
        frame = spark.createDataFrame(rows, "user string, amount bigint").coalesce(1)
        answer = statestore.run_keyed(frame, followed, key="user", store=store, output=OUTPUT, tasks=tasks)
        assert emitted(answer) == model.batch(rows)
        assert state(store) == model.amounts
    assert versions(store) == list(range(1, batches + 2))


@pytest.mark.slow
def test_a_stream_goes_on_with_imported_states(spark: SparkSession, tmp_path: Path) -> None:
    model = Model()
    model.batch(some_rows(0))
    store = imported(tmp_path, model)
    rows = some_rows(1)
    frame = spark.createDataFrame(rows, "user string, amount bigint")
    frame.coalesce(1).write.parquet(str(tmp_path / "rows"))
    answers: list[Any] = []
    query = statestore.run_keyed_stream(
        spark.readStream.schema("user string, amount bigint").parquet(str(tmp_path / "rows")),
        followed,
        key="user",
        store=store,
        output=OUTPUT,
        sink=lambda found, batch: answers.append(emitted(found)),
        checkpoint=tmp_path / "checkpoint",
        trigger={"availableNow": True},
    )
    query.awaitTermination()
    assert answers == [model.batch(rows)]
    assert state(store) == model.amounts
