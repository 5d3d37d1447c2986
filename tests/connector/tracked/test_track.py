"""State tracked by key on real streaming queries and DataFrames: the original's scenarios, restarts, SQL."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from support.keyed.keyed_backends import refused
from support.keyed.tracked_cases import CASES, Case, count, count_and_pair, until_idle
from support.places import DIRECTORY, S3, below, warehouse_in

import statestore
from statestore.connector.tracked.spec import State
from statestore.connector.tracked.track import Tracked
from statestore.tracked import StateSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]  # workers lack this file
T0 = 1_700_000_000
SCHEMA = "word string, n bigint"
NOW = {"availableNow": True}
COUNTED, EMITTED = "count-simple-function", "states-as-emitted-records"
"""Scenarios that have more than their own test."""


def feed(folder: Path, number: int, words: list[str]) -> None:
    """Write one input file; Spark reads one file in each micro-batch, the oldest first."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{number:04d}.parquet"
    pq.write_table(pa.table({"word": pa.array(words, pa.string()), "n": pa.array([1] * len(words), pa.int64())}), path)
    os.utime(path, (T0 + number,) * 2)


def clock(batch: int) -> datetime:
    return datetime.fromtimestamp(T0 + batch, UTC)


def told(kinds: str | dict[str, str]) -> str:
    return kinds if isinstance(kinds, str) else ", ".join(f"{name} {kind}" for name, kind in kinds.items())


class Stream:
    """A query over the files in a folder, and the records that its sink received, by batch."""

    def __init__(self, spark: SparkSession, folder: Path, warehouse: str = "") -> None:
        self.spark, self.folder, self.warehouse = spark, folder, warehouse or str(folder / "w")
        self.store = below(self.warehouse, "words")
        self.emitted: dict[int, list[Any]] = {}
        self.last: Tracked

    def start(self, spec: StateSpec, output: str, **options: Any) -> Any:
        rows = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(self.folder / "in"))
        self.last = statestore.track_state_by_key(
            rows, key="word", spec=spec, store=self.store, state_type="bigint", output_type=output, clock=clock
        )
        return self.last.start(self.sink, checkpoint=self.folder / "checkpoint", trigger=NOW, retained=None, **options)

    def sink(self, rows: DataFrame, batch: int) -> None:
        found = sorted(list(row) if len(row) > 1 else row[0] for row in rows.collect())
        assert self.emitted.setdefault(batch, found) == found, "other records of the same batch"

    def states(self) -> dict[int | None, dict[str, int]]:
        return {each.batch: as_dict(each.to_arrow()) for each in self.last.state_snapshots()}


def as_dict(table: pa.Table) -> dict[Any, Any]:
    return {row["word"]: row["value"] for row in table.to_pylist()}


@pytest.fixture(scope="module", params=[DIRECTORY, S3])
def streams(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Stream]:
    """One stream for each scenario that tests of this run need in the place, run at the same time."""
    place = warehouse_in(request.param, request, tmp_path_factory.mktemp("streams"))
    return _run(spark, place, _needed(request), tmp_path_factory)


def _needed(request: pytest.FixtureRequest) -> set[str]:
    found: set[str] = set()
    for item in request.session.items:
        given: Any = getattr(item, "callspec", None)
        if item.path == request.path and given is not None and given.params.get("streams") == request.param:
            found |= {given.params["case"].name} if "case" in given.params else {COUNTED, EMITTED}
    return found


def _run(
    spark: SparkSession, place: str, needed: set[str], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Stream]:
    found, queries = {}, []
    for case in (case for case in CASES if case.name in needed):
        stream = found[case.name] = Stream(spark, tmp_path_factory.mktemp(case.name), below(place, case.name))
        for number, words in enumerate(case.batches):
            feed(stream.folder / "in", number, words)
        spec = case.spec().num_partitions(1 if case.timeout_ms else 2)
        if case.initial is not None:
            spec = spec.initial_state(spark.createDataFrame(case.initial, "word string, start bigint"))
        queries.append(stream.start(spec, told(case.output)))
    for query in queries:
        query.awaitTermination()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_the_original_scenarios(streams: dict[str, Stream], case: Case) -> None:
    stream = streams[case.name]
    states = stream.states()
    if case.initial is not None:
        assert states.pop(-1) == dict(case.initial)
    assert list(states) == list(stream.emitted) == list(range(len(case.batches)))
    case.check(list(stream.emitted.values()), list(states.values()))


@pytest.mark.slow
def test_every_batch_is_a_version_for_sql(spark: SparkSession, streams: dict[str, Stream]) -> None:
    stream = streams[COUNTED]
    warehouse, expected = stream.warehouse, stream.states()
    snapshots = stream.last.state_snapshots()
    assert [(each.version, each.batch) for each in snapshots] == [(number + 1, number) for number in range(7)]
    for each in snapshots[1:4]:
        text = f"SELECT word, value FROM words.state VERSION AS OF {each.version}"
        assert as_dict(statestore.sql(warehouse, text)) == expected[each.batch]
    assert as_dict(snapshots[3].to_spark(spark).toArrow()) == expected[3]
    sums = statestore.sql(warehouse, "SELECT sum(value) AS s FROM words.state", spark=spark)
    assert [row.s for row in sums.collect()] == [sum(expected[6].values())]


@pytest.mark.slow
def test_emitted_records_go_to_any_sink_once(spark: SparkSession, streams: dict[str, Stream], tmp_path: Path) -> None:
    """A query that is restarted with the same checkpoint has no more records to read."""
    stream = streams[EMITTED]
    for _ in range(2):
        writer = stream.last.records().writeStream.format("parquet").option("path", str(tmp_path / "out"))
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        writer.start().awaitTermination()
    found = sorted(list(row) for row in spark.read.parquet(str(tmp_path / "out")).collect())
    assert found == sorted(record for each in stream.emitted.values() for record in each)


@pytest.mark.slow
def test_a_restart_with_another_number_of_partitions(spark: SparkSession, tmp_path: Path) -> None:
    """Times of last records move with their keys: "b" and "c" time out in tasks that have never seen them."""
    stream, output = Stream(spark, tmp_path), "string"
    spec = StateSpec.function(until_idle).timeout("3 seconds")
    for number, words in enumerate((["a", "b", "c"], ["a"], ["a"], ["a", "d"], ["a", "c"])):
        feed(tmp_path / "in", number, words)
        if number in (1, 4):
            stream.start(spec.num_partitions(number + 1), output).awaitTermination()
    assert stream.emitted == {0: [], 1: [], 2: [], 3: [], 4: ["b"]}
    assert stream.states()[4] == {"a": 1, "c": 1, "d": 1}
    assert stream.states()[3] == {"a": 1, "b": 1, "c": 1, "d": 1}


@pytest.mark.slow
def test_a_function_that_fails_stops_the_query(spark: SparkSession, tmp_path: Path) -> None:
    def fails(value: int, state: State) -> int:
        if state.get_option() == 2:
            raise LookupError("no such word")
        return count(value, state)

    stream = Stream(spark, tmp_path)
    for number, words in enumerate((["a"], ["a", "b"], ["a"])):
        feed(tmp_path / "in", number, words)
    with pytest.raises(PySparkException, match=r"FUNCTION_FAILED.*'a' of batch 2 of .*LookupError: no such word"):
        stream.start(StateSpec.function(fails).num_partitions(1), "bigint").awaitTermination()
    assert stream.emitted == {0: [1], 1: [1, 2]}
    assert stream.states() == {0: {"a": 1}, 1: {"a": 2, "b": 1}}
    stream.start(StateSpec.function(count), "bigint").awaitTermination()
    assert stream.emitted[2] == [3]


# DataFrames


def track(rows: DataFrame, spec: StateSpec, folder: Path, **options: Any) -> Tracked:
    given = {"key": "word", "state_type": "bigint", "output_type": "word string, total bigint", **options}
    return statestore.track_state_by_key(rows, spec=spec, store=folder / "w" / "words", **given)


@pytest.mark.quick("table")
@pytest.mark.parametrize("frame", [pa.table, polars.DataFrame])
def test_a_dataframe_is_one_batch(spark: SparkSession, tmp_path: Path, frame: Any) -> None:
    """A transaction that comes again has the records of then; initial states are put once."""
    rows = spark.createDataFrame([("a", 1), ("b", 2), ("a", 3)], SCHEMA)
    spec = StateSpec.function(count_and_pair).initial_state(frame({"word": ["b", "z"], "start": [10, 20]}))
    tracked = track(rows, spec, tmp_path)
    first = sorted(map(tuple, tracked.run(transaction=("nightly", 1)).collect()))
    assert first == [("a", 1), ("a", 4), ("b", 12)]
    assert sorted(map(tuple, tracked.run(transaction=("nightly", 1)).collect())) == first
    assert [as_dict(each.to_arrow()) for each in tracked.state_snapshots()] == [
        {"b": 10, "z": 20},
        {"a": 4, "b": 12, "z": 20},
    ]
    assert sorted(map(tuple, tracked.run().collect())) == [("a", 5), ("a", 8), ("b", 14)]
    with refused("INVALID_OPTION", "a LazyFrame of Polars", "collect()"):
        spec.initial_state(polars.LazyFrame({"word": ["b"], "start": [10]}))
    with refused("INVALID_OPTION", "call run()"):
        tracked.start(checkpoint=tmp_path / "checkpoint")


@pytest.mark.slow
def test_columns_at_once(spark: SparkSession, tmp_path: Path) -> None:
    def sums(batch_time: datetime, keys: pa.Array, rows: pa.RecordBatch, states: pa.RecordBatch) -> Any:
        added = np.zeros(len(keys), np.int64)
        np.add.at(added, rows.column("key").to_numpy(), rows.column("n").to_numpy())
        after = pc.add(pc.fill_null(states.column("state"), 0), pa.array(added))
        return after, pa.record_batch({"word": keys, "total": after})

    rows = spark.createDataFrame([(f"w{number % 50}", number) for number in range(1000)], SCHEMA)
    tracked = track(rows, StateSpec.vectorized(sums).num_partitions(2), tmp_path)
    expected = {f"w{word}": sum(range(word, 1000, 50)) for word in range(50)}
    assert dict(map(tuple, tracked.run().collect())) == expected
    assert as_dict(tracked.state_snapshots()[-1].to_arrow()) == expected


def test_names_in_any_case_and_values_of_several_columns(spark: SparkSession, tmp_path: Path) -> None:
    """Values are dicts, maps in them too; times in UTC, whatever the session's zone; the key is no part of a value."""

    def shown(batch_time: datetime, key: Any, value: Any, state: State) -> str:
        state.update(value["at"])
        return f"{key['word']} {key['Date']} {sorted(value)} {value['m']} {value['at'].isoformat()} {state.get()}"

    at = datetime(2026, 11, 21, 12, tzinfo=UTC)
    rows = spark.createDataFrame([("a", 1, {"x": 1}, at)], "Word string, day int, m map<string,int>, at timestamp")
    initial = spark.createDataFrame([(7, "b", at)], "DAY int, WORD string, at timestamp")
    statestore.connect(tmp_path / "w").create_store("words", "keyed", key={"word": "string", "Date": "int"}).close()
    options: dict[str, Any] = {"key": ["WORD", "DAY"], "state_type": "timestamp", "output_type": "string"}
    tracked = track(rows, StateSpec.function(shown).initial_state(initial), tmp_path, **options)
    (found,) = tracked.run().collect()
    assert found.value == f"a 1 ['at', 'm'] {{'x': 1}} {at.isoformat()} {at}"
    states = tracked.state_snapshots()[-1].to_arrow().to_pylist()
    assert sorted((row["word"], row["Date"], row["value"]) for row in states) == [("a", 1, at), ("b", 7, at)]


def test_what_is_refused_before_it_starts(spark: SparkSession, tmp_path: Path) -> None:
    rows, spec = spark.createDataFrame([("a", 1)], SCHEMA), StateSpec.function(count)
    for code, options in (
        ("COLUMN_NOT_FOUND", {"key": "user"}),
        ("INVALID_OPTION", {"state_type": "integral"}),
        ("INVALID_OPTION", {"output_type": "word string total"}),
        ("INVALID_OPTION", {"spec": count}),
        ("WRONG_SCHEMA", {"spec": StateSpec.vectorized(count), "rows": rows.withColumnRenamed("n", "key")}),
    ):
        given: dict[str, Any] = {"rows": rows, "spec": spec, **options}
        with refused(code):
            track(folder=tmp_path, **given)
        assert not (tmp_path / "w" / "words").exists(), "no store with a key of a call that failed"
    with refused("INVALID_KEY_GROUPS"):
        track(rows, spec.num_partitions(100_000), tmp_path)
    initial = spark.createDataFrame([("a", 1), ("a", 2)], "word string, start bigint")
    with refused("WRONG_INITIAL_STATE", "twice"):
        track(rows, spec.initial_state(initial), tmp_path, output_type="bigint").run()
    with refused("INVALID_OPTION", "call start()"):
        stream = spark.readStream.schema(SCHEMA).parquet(str(tmp_path))
        track(stream, spec, tmp_path, output_type="bigint").run()
    assert not list((tmp_path / "w" / "words").glob("shared/*"))
