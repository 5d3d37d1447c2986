"""States of keyed stores in Spark: batch reads, SQL and streams of changes, against plain dicts of the puts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.captured import StreamingQueryException
from support.keyed.keyed_made import (
    STATES,
    Made,
    Rows,
    expected_changes,
    expected_history,
    make,
    rows,
    told_changes,
    told_history,
)
from support.parameters import mostly_slow

import statestore
from statestore.formats.errors import NotFoundError, ReadOnlyError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Snapshots 1 to 5 of two tasks, of which the second was discarded."""
    return make(tmp_path_factory.mktemp("warehouse"), seed=12, tasks=2, versions=5, discard=(2,))


def load(spark: SparkSession, path: str, **options: Any) -> DataFrame:
    return spark.read.format("statestore").options(**options).load(path)


def collected(frame: DataFrame) -> Rows:
    return rows(frame.toArrow())


@pytest.mark.parametrize("state", mostly_slow(STATES, []))
def test_versions_times_and_filters(spark: SparkSession, made: Made, state: str) -> None:
    path = f"{made.path}/sessions/{state}"
    assert collected(load(spark, path)) == made.newest[state]
    for version in made.kept:
        assert collected(load(spark, path, versionAsOf=version)) == made.kept[version][state]
    assert collected(load(spark, path, timestampAsOf=made.at(4).isoformat())) == made.kept[4][state]
    user = next(iter(made.newest[state]))[0]
    looked_up = load(spark, path).where(f"user = '{user}'")
    assert collected(looked_up) == {key: value for key, value in made.newest[state].items() if key[0] == user}
    assert load(spark, f"{path}$snapshots").where("readable").count() == len(made.kept)


@pytest.mark.slow
@pytest.mark.parametrize("state", STATES)
def test_history_and_changes(spark: SparkSession, made: Made, state: str) -> None:
    path = f"{made.path}/sessions/{state}"
    history = load(spark, path, history="true").toArrow()
    assert told_history(history) == expected_history(made, state)
    changes = load(spark, path, readChangeFeed="true", startingVersion=3, endingVersion=4).toArrow()
    assert told_changes(made, changes) == expected_changes(made, state, 3, 4)


@pytest.mark.slow
def test_the_same_statements_as_in_duckdb(spark: SparkSession, made: Made) -> None:
    for text in (
        "SELECT * FROM sessions.counts VERSION AS OF 3",
        "SELECT * FROM `sessions.counts`",
        f"SELECT * FROM sessions.attrs TIMESTAMP AS OF '{made.at(4).isoformat()}'",
        "SELECT sessions.counts.user, counts.value FROM sessions.counts WHERE sessions.counts.value > 20",
        "SELECT c.user, count(a.value) FROM sessions.counts c JOIN sessions.attrs VERSION AS OF 4 AS a "
        "ON a.user = c.user GROUP BY c.user",
        "SELECT user, value FROM changes('sessions.counts', 3, 3) WHERE _change_type = 'insert'",
        "SELECT version, operation FROM sessions.counts$versions",
        "SELECT version, writer FROM sessions.attrs$versions",
    ):
        found = collected(statestore.sql(made.path, text, spark=spark))
        assert found == rows(statestore.sql(made.path, text.replace("`", '"')))
    shown = statestore.sql(made.path, "SHOW STORES", spark=spark)
    assert [row.name for row in shown.collect()] == ["sessions.attrs", "sessions.counts"]
    told = statestore.sql(made.path, "DESCRIBE HISTORY sessions.counts", spark=spark)
    assert [row.version for row in told.collect()] == [6, 5, 4, 3, 2, 1]
    one = statestore.sql(made.path + "/sessions", "SELECT * FROM sessions.counts", spark=spark)
    assert collected(one) == made.newest["counts"]


def test_names_that_spark_has_itself(spark: SparkSession, made: Made) -> None:
    """A database of the session that is no store here stays reachable; ours goes first."""
    spark.sql("CREATE DATABASE IF NOT EXISTS others")
    try:
        spark.sql("CREATE VIEW others.counts AS SELECT 'x' AS user, 1 AS more")
        text = (
            "SELECT o.more, c.value FROM others.counts o CROSS JOIN (SELECT count(*) AS value FROM sessions.counts) c"
        )
        (row,) = statestore.sql(made.path, text, spark=spark).collect()
        assert tuple(row) == (1, len(made.newest["counts"]))
    finally:
        spark.sql("DROP DATABASE others CASCADE")
    for text in ("SELECT * FROM sessions.none", "SELECT * FROM sessions.counts VERSION AS OF 2"):
        with pytest.raises(NotFoundError, match="line 1, column 15"):
            statestore.sql(made.path, text, spark=spark)
    with pytest.raises(ReadOnlyError, match="READ_ONLY"):
        statestore.sql(made.path, "DELETE FROM sessions.counts", spark=spark)


def test_a_path_that_is_several_tables(spark: SparkSession, made: Made) -> None:
    with pytest.raises(PySparkException, match=r"TABLE_NOT_FOUND.*sessions/attrs, .*sessions/counts"):
        load(spark, f"{made.path}/sessions")


@pytest.mark.slow
def test_rows_are_not_written(spark: SparkSession, made: Made) -> None:
    frame = spark.createDataFrame([("x", 1)], "user string, value long")
    for path in ("sessions", "sessions/counts"):
        with pytest.raises(PySparkException, match=r"KEYED_WRITE.*store\.backend"):
            frame.write.format("statestore").mode("append").save(f"{made.path}/{path}")


@pytest.mark.slow
def test_a_stream_of_changes_goes_on_until_its_snapshot_is_discarded(spark: SparkSession, tmp_path: Path) -> None:
    made = make(tmp_path / "warehouse", seed=13, tasks=1, versions=3)
    seen: list[tuple[Any, ...]] = []
    names = ["user", "value", "_change_type", "_commit_version"]

    def stream() -> None:
        query = (
            spark.readStream.format("statestore")
            .option("readChangeFeed", "true")
            .load(f"{made.path}/sessions/counts")
            .writeStream.foreachBatch(lambda batch, _: seen.extend(batch.select(names).collect()))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    stream()
    assert sorted(map(tuple, seen)) == sorted(expected_changes(made, "counts"))
    with statestore.connect(made.path).open_store("sessions") as store:
        with store.backend() as backend:
            counts = backend.value_state("counts", "bigint")
            backend.set_current_key("later")
            counts.update(5)
            version = store.commit([backend.snapshot().result()])
        store.discard(1)  # read long ago: nothing is missed
        seen.clear()
        stream()
        assert [tuple(row) for row in seen] == [("later", 5, "insert", version)]
        with store.backend() as backend:
            store.commit([backend.snapshot().result()])
        store.discard(version)
    with pytest.raises(StreamingQueryException, match=r"VERSION_NOT_FOUND.*read up to snapshot 4, which was discarded"):
        stream()
