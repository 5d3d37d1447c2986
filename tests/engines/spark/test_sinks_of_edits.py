"""A query with a file sink goes on after an edit that is a batch, where its log was given what the edit asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.checkpoints.running_queries import conf, opened, rows_of, run
from support.edited_copies import write_copy
from support.refusals import refused

from statestore.formats.edits import EditOptions, StateEdit
from statestore.formats.errors import InvalidInputError
from statestore.formats.spark.query_sinks import compact_interval

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

INTERVAL = {"spark.sql.streaming.fileSink.log.compactInterval": "3"}


def first_ones(rows: DataFrame) -> DataFrame:
    return rows.dropDuplicates(["k"])


def go(spark: SparkSession, folder: Path, checkpoint: Path, *keys: str) -> None:
    run(spark, folder, checkpoint, "k string", [[{"k": key}] for key in keys], first_ones, "append", "json")


def written(spark: SparkSession, folder: Path) -> list[str]:
    """The rows that Spark reads from the output, by the log."""
    return sorted(row.k for row in spark.read.schema("k string").json(str(folder / "out")).collect())


@pytest.mark.slow
def test_a_file_sink_goes_on_after_its_entry_is_written(spark: SparkSession, tmp_path: Path) -> None:
    source, target, out = tmp_path / "source", tmp_path / "target", tmp_path / "out"
    with conf(spark, {**INTERVAL, "spark.sql.shuffle.partitions": "2"}):
        go(spark, tmp_path, source, "a", "b", "c", "d")
        found = opened(source)
        rows = rows_of(found)
        one = rows.take([[key["k"] for key in rows["key"].to_pylist()].index("a")])
        edit = StateEdit("state", ("key",), one, one.slice(1))

        def plan(**settings: str) -> object:
            return found.edit_plan(3, [edit], EditOptions(as_batch=True, settings=settings))

        refused(InvalidInputError, "EDIT_REFUSED", plan, str(out), "sink=")
        made = found.edit_plan(3, [edit], EditOptions(as_batch=True, settings={"sink": str(out)}))
        assert any(f"write the file {out}/_spark_metadata/4 with the line v1" in note for note in made.notes)
        assert any("by batch 5." in note for note in made.notes)
        write_copy(made, target)
        (out / "_spark_metadata" / "4").write_text("v1\n")
        go(spark, tmp_path, target, "a", "e", "a", "f", "g")
        assert (out / "_spark_metadata" / "5.compact").exists() and (out / "_spark_metadata" / "8.compact").exists()
        assert written(spark, tmp_path) == [*"aabcdefg"]
        # The next batch of an edit is one that Spark would compact.
        go(spark, tmp_path, target, "h")
        again = opened(target)
        options = EditOptions(as_batch=True, settings={"sink": str(out)})
        refused(InvalidInputError, "EDIT_REFUSED", lambda: again.edit_plan(10, [], options), "11.compact")
    entries = [json.loads(line) for line in (out / "_spark_metadata" / "10").read_text().splitlines()[1:]]
    assert entries  # it was Spark that wrote them


@pytest.mark.slow
def test_the_interval_between_compacted_files_is_that_of_spark(spark: SparkSession) -> None:
    assert spark._jvm is not None
    streaming = spark._jvm.org.apache.spark.sql.execution.streaming
    homes = [streaming.runtime.CompactibleFileStreamLog, streaming.CompactibleFileStreamLog]
    log = next(each for each in homes if type(each).__name__ == "JavaClass")  # its package changed
    for number in range(200):
        assert compact_interval([number]) == log.deriveCompactInterval(10, number), number
