"""Outputs of queries that an edit as a batch of its own would break: found, and named before anything is written."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from support.checkpoints.running_queries import opened
from support.checkpoints.spark_state_fixtures import checkpoint_path
from support.refusals import refused

from statestore.formats.edits import EditOptions
from statestore.formats.errors import InvalidInputError
from statestore.formats.spark.query_sinks import compact_interval

NAME = "spark4.3.0-agg__rkcl"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return Path(shutil.copytree(checkpoint_path(NAME), tmp_path / "query" / "checkpoint"))


def newest(checkpoint: Path) -> int:
    return opened(checkpoint).checkpoint.batch.batch_id


def file_sink(place: Path, *names: str) -> Path:
    """An output of Spark's file sink with these entries in its log."""
    log = place / "_spark_metadata"
    log.mkdir(parents=True)
    for name in names:
        (log / name).write_text("v1\n")
    return place


def notes(checkpoint: Path, **settings: str) -> str:
    source = opened(checkpoint)
    plan = source.edit_plan(newest(checkpoint), [], EditOptions(as_batch=True, settings=settings))
    return "\n".join(plan.notes)


def until(batch: int) -> list[str]:
    return [str(number) for number in range(batch + 1)]


def test_what_is_to_be_written_in_the_log_of_a_file_sink_is_said(checkpoint: Path, tmp_path: Path) -> None:
    batch = newest(checkpoint)
    assert 0 < batch < 8  # so that the edit's batch is none that is compacted
    sink = file_sink(tmp_path / "elsewhere" / "out", *until(batch))
    found = notes(checkpoint, sink=str(sink))
    assert f"write the file {sink}/_spark_metadata/{batch + 1} with the line v1" in found
    assert "by batch 9 " in found and "compactInterval is taken to be 10" in found


@pytest.mark.parametrize("where", ["query", "query/out", "."])
def test_an_output_near_the_checkpoint_has_to_be_named(checkpoint: Path, tmp_path: Path, where: str) -> None:
    sink = file_sink(tmp_path / where, *until(newest(checkpoint)))
    refused(InvalidInputError, "EDIT_REFUSED", lambda: notes(checkpoint), str(sink), "sink=")
    assert "with the line v1" in notes(checkpoint, sink=str(sink))
    assert "_spark_metadata" not in notes(checkpoint, sink="none")


def test_outputs_of_other_queries_do_not_count(checkpoint: Path, tmp_path: Path) -> None:
    batch = newest(checkpoint)
    file_sink(tmp_path / "query" / "other", *until(batch + 3))
    file_sink(tmp_path / "query" / "empty")
    assert "The setting sink has its place checked." in notes(checkpoint)


@pytest.mark.parametrize("more", [-1, 1])
def test_a_log_that_does_not_fit_is_refused(checkpoint: Path, tmp_path: Path, more: int) -> None:
    sink = file_sink(tmp_path / "out", *until(newest(checkpoint) + more))
    part = f"its newest batch is {newest(checkpoint) + more}"
    refused(InvalidInputError, "EDIT_REFUSED", lambda: notes(checkpoint, sink=str(sink)), part)


def test_a_batch_in_which_the_log_is_compacted_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    """Two compacted files that follow each other say that each batch is compacted."""
    batch = newest(checkpoint)
    sink = file_sink(tmp_path / "out", "0.compact", "1.compact", *until(batch))
    found = lambda: notes(checkpoint, sink=str(sink))  # noqa: E731
    refused(InvalidInputError, "EDIT_REFUSED", found, f"{batch + 1}.compact", "only Spark can write")


def test_an_unknown_version_of_the_log_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    sink = file_sink(tmp_path / "out", *until(newest(checkpoint)))
    (sink / "_spark_metadata" / str(newest(checkpoint))).write_text("v2\n")
    refused(InvalidInputError, "EDIT_REFUSED", lambda: notes(checkpoint, sink=str(sink)), "v2", "expected v1")


def test_a_delta_table_needs_nothing_unless_it_is_ahead(checkpoint: Path, tmp_path: Path) -> None:
    source, log = opened(checkpoint), tmp_path / "table" / "_delta_log"
    log.mkdir(parents=True)
    assert "has no batch of the query" in notes(checkpoint, sink=str(log.parent))
    for number, version in enumerate((newest(checkpoint) - 1, newest(checkpoint))):
        action = {"txn": {"appId": source.identity, "version": version, "lastUpdated": 1}}
        text = "\n".join([json.dumps({"commitInfo": {}}), json.dumps(action), '{"txn": {"appId": "another"}}'])
        (log / f"{number:020d}.json").write_text(text)
    found = notes(checkpoint, sink=str(log.parent))
    assert f"has batch {newest(checkpoint)} of the query" in found and "nothing to be done" in found
    action["txn"]["version"] = newest(checkpoint) + 1
    (log / f"{2:020d}.json").write_text(json.dumps(action))
    refused(InvalidInputError, "EDIT_REFUSED", lambda: notes(checkpoint, sink=str(log.parent)), source.identity)


def test_a_place_without_a_log_is_no_output(checkpoint: Path, tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "nothing here"):
        found = lambda place=place: notes(checkpoint, sink=str(place))  # noqa: E731
        refused(InvalidInputError, "INVALID_OPTION", found, "_spark_metadata", "_delta_log")


def test_a_sink_is_of_no_use_to_other_edits(checkpoint: Path) -> None:
    source = opened(checkpoint)
    for others in ({}, {"compact": "true"}):
        options = EditOptions(settings={"sink": "none", **others})
        plan = lambda options=options: source.edit_plan(newest(checkpoint), [], options)  # noqa: E731
        refused(InvalidInputError, "INVALID_OPTION", plan, "sink", "as_batch")


@pytest.mark.parametrize(
    ("compacted", "interval"),
    [((), 10), ((2,), 3), ((9,), 10), ((19,), 20), ((29,), 10), ((38,), 13), ((43,), 11), ((2, 5), 3), ((19, 29), 10)],
)
def test_the_interval_is_that_of_spark(compacted: tuple[int, ...], interval: int) -> None:
    """By hand: the least divisor of the size of the compacted file that is 10 or more, and less than all of it."""
    assert compact_interval(compacted) == interval
