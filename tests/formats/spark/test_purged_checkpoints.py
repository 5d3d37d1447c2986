"""Batches of checkpoints that were cleaned up: kept batches are listed and read, others are refused, in every door."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support.checkpoints.checkpoint_tables import (
    began,
    counted,
    expected_changes,
    expected_history,
    key_cells,
    since,
    states_in_archive,
    states_of,
    tables,
)
from support.checkpoints.purged_checkpoints import purged
from support.checkpoints.spark_state_fixtures import checkpoint_path
from support.command_line import run
from support.parameters import mostly_slow

import statestore
from statestore.catalog.reads.table import Table
from statestore.formats.errors import CorruptError, NotFoundError
from statestore.formats.state_table import Query
from statestore.formats.values.filters import Filter

AGGREGATION, HDFS, JOIN = "spark4.3.0-agg__rkcl", "spark4.3.0-agg__hdfs", "spark4.3.0-join__hdfs"


PURGES = [
    (HDFS, 2, 0, 3),  # a delta is left without those before it
    (HDFS, 4, 4, 4),
    (AGGREGATION, 3, 3, 3),
    ("spark4.3.0-agg__rkv2", 3, 0, 2),
    ("spark4.3.0-agg__rk", 6, 5, 5),
    (JOIN, 4, 0, 3),
]
MORE_PURGES = [(HDFS, 4, 0, 3), ("spark4.3.0-agg__rk", 1, 2, 2), ("spark4.3.0-twsttl__rkv2", 4, 2, 3)]


@pytest.mark.parametrize(("name", "below", "logs_below", "first"), mostly_slow([*PURGES, *MORE_PURGES], PURGES))
def test_purged_batches_are_told_and_the_others_read(
    name: str, below: int, logs_below: int, first: int, tmp_path: Path
) -> None:
    path = purged(name, tmp_path, below, logs_below)
    whole = states_in_archive(checkpoint_path(name))
    for shown, table in list(tables(path).items())[:2]:
        last = table.table.kept_versions()[1]
        assert table.table.kept_versions() == (first, last)
        states = since(whole[shown], first)
        assert states_of(table, first) == states
        assert counted(table.history().read_all(), "history") == expected_history(path, states)
        expected = expected_changes(path, states, first + 1, key_cells(table))
        assert counted(table.changes().read_all(), "changes") == expected
        before = began(checkpoint_path(name), first) - timedelta(milliseconds=1)
        check_refusals(table, before, first, last)
        for clause in (f"VERSION AS OF {first - 1}", f"TIMESTAMP AS OF '{before.isoformat()}'"):
            with pytest.raises(NotFoundError, match=r"(VERSION_NOT_FOUND|TIME_NOT_KEPT)\] line 1, column 16: "):
                statestore.sql(str(path), f'SELECT * FROM  "{shown}" {clause}')
        assert run("scan", path, shown, "--version", str(first - 1)).code == 1
        told = [row for row in run("inspect", path, "--json").rows if row["store"] == shown]
        assert [(row["oldest_version"], row["version"], row["status"]) for row in told] == [(first, last, "ok")]


def check_refusals(table: Table, before: datetime, first: int, last: int) -> None:
    """Check that batches and moments before the first kept batch are refused."""
    kept = f"{first} to {last}"
    after = f"{first + 1} to {last}" if first < last else "none"
    read = f"VERSION_NOT_FOUND.*{f'batches {kept}' if first < last else f'batch {first}'} can be read"
    refused: list[tuple[str, Callable[[], Any]]] = [
        (read, lambda: table.scan(version=first - 1)),
        (read, lambda: table.history(version=first - 1)),
        ("TIME_NOT_KEPT.*or later, asked for", lambda: table.scan(as_of=before)),
        (f"TIME_NOT_KEPT.*keeps batches {kept} and history from", lambda: table.history(start_time=before)),
        (f"VERSION_NOT_FOUND.*{after}", lambda: table.changes(start_version=first)),
        (f"TIME_NOT_KEPT.*keeps batches {kept} and changes after", lambda: table.changes(start_time=before)),
        (read, lambda: table.diff(first - 1)),
    ]
    for said, ask in refused:
        with pytest.raises(NotFoundError, match=said):
            ask()


def test_a_batch_that_can_be_read_is_read_though_newer_ones_are_damaged(tmp_path: Path) -> None:
    path = purged(HDFS, tmp_path, 0)
    (path / "state" / "0" / "1" / "5.delta").unlink()
    table = tables(path)["state"]
    expected = tables(checkpoint_path(HDFS))["state"]
    assert table.scan(version=3).read_all().equals(expected.scan(version=3).read_all())
    for ask in (table.scan, table.history, table.changes):
        with pytest.raises(NotFoundError, match="SPARK_STATE_NOT_FOUND"):
            ask().read_all()
    with pytest.raises(NotFoundError, match="batches 0 to 3 can be read now"):
        table.scan(version=4)
    found = run("inspect", path)
    assert found.code == 1 and "damaged" in found.out


@pytest.mark.parametrize(
    ("name", "shown", "gone"),
    [(HDFS, "state", 1), (AGGREGATION, "state", 1), (JOIN, "left", 1), ("spark4.3.0-twsttl__rkcl", "val", 0)],
)
def test_a_copy_without_a_partition_is_not_the_whole_state(name: str, shown: str, gone: int, tmp_path: Path) -> None:
    path = purged(name, tmp_path, 0)
    shutil.rmtree(path / "state" / "0" / str(gone))
    table, said = tables(path)[shown], rf"SPARK_STATE_NOT_FOUND.*partition {gone} of operator 0.*only the partitions"
    asked: list[Callable[[], Any]] = [
        table.scan,
        table.history,
        table.changes,
        lambda: table.scan(version=2),
        lambda: table.scan(filter=("partition_id", "in", [0, 1])),
        lambda: table.diff(0),
        lambda: statestore.sql(str(path), f'SELECT * FROM "{shown}"'),
    ]
    for ask in asked:
        with pytest.raises(NotFoundError, match=said):
            ask()
    there = ("partition_id", "=", 1 - gone)
    expected = tables(checkpoint_path(name))[shown].scan(filter=there).read_all()
    assert table.scan(filter=there).read_all().equals(expected)
    assert {row["status"] for row in run("inspect", path, "--json").rows} == {"damaged"}


def test_batches_whose_times_are_gone_are_read_by_their_number(tmp_path: Path) -> None:
    """The log of offsets may be cleaned up further than that of commits: history and changes begin where times do."""
    path = purged(AGGREGATION, tmp_path, 0)
    for batch in (0, 1):
        (path / "offsets" / str(batch)).unlink()
    table, whole = tables(path)["state"], tables(checkpoint_path(AGGREGATION))["state"]
    assert table.scan(version=1).read_all().equals(whole.scan(version=1).read_all())
    states = states_of(table, 2)
    assert counted(table.history().read_all(), "history") == expected_history(path, states)
    assert counted(table.changes().read_all(), "changes") == expected_changes(path, states, 3, 1)
    refused: list[tuple[str, Callable[[], Any]]] = [
        ("TIME_NOT_KEPT.*or later", lambda: table.scan(as_of=began(checkpoint_path(AGGREGATION), 1))),
        ("VERSION_NOT_FOUND.*those of 3 to 5", lambda: table.changes(start_version=2)),
    ]
    for said, ask in refused:
        with pytest.raises(NotFoundError, match=said):
            ask()


@pytest.mark.parametrize("moment", [10**30, True, "1", None])
def test_a_time_that_is_none_is_told(moment: Any, tmp_path: Path) -> None:
    """Changes by version need none. A history, and changes by time, would show a batch at another time."""
    path = purged(AGGREGATION, tmp_path, 0)
    log = path / "offsets" / "3"
    version, said, *rest = log.read_text().split("\n")
    log.write_text("\n".join([version, json.dumps(json.loads(said) | {"batchTimestampMs": moment}), *rest]))
    table = tables(path)["state"]
    said = r"SPARK_STATE_NOT_FOUND.*offsets/3: no time of the batch"
    with pytest.raises(NotFoundError, match=said):
        table.history()
    with pytest.raises(NotFoundError, match=said):
        table.changes(start_time=began(path, 1))
    assert table.scan(version=3).read_all().num_rows == table.scan().read_all().num_rows == 57
    changes = tables(checkpoint_path(AGGREGATION))["state"].changes().read_all().to_pylist()
    unknown = {"valid_from": None, "_commit_timestamp": None}
    expected = [row | unknown if row["_commit_version"] == 3 else row for row in changes]
    assert sorted(map(str, table.changes().read_all().to_pylist())) == sorted(map(str, expected))
    assert run("inspect", path).code == 0


def test_a_damaged_log_hides_no_moment_after_it(tmp_path: Path) -> None:
    path = purged(AGGREGATION, tmp_path, 0)
    table, whole = tables(path)["state"], tables(checkpoint_path(AGGREGATION))["state"]
    (path / "offsets" / "1").write_text("v1\n{")
    for batch in (2, 4, 5):
        moment = began(checkpoint_path(AGGREGATION), batch)
        assert table.scan(as_of=moment).read_all().equals(whole.scan(as_of=moment).read_all())
    with pytest.raises(CorruptError, match="offsets/1"):
        table.scan(as_of=began(checkpoint_path(AGGREGATION), 1))


QUERIES = [
    Query(),
    Query(mode="history"),
    Query(mode="changes"),
    Query(filters=(Filter("key", "=", {"k": "key-00-"}),)),
    Query(mode="history", filters=(Filter("key", "=", "key-00-", ("k",)),)),
]


@pytest.mark.parametrize("gone", ["state/0/0", "state"])
@pytest.mark.parametrize("name", [HDFS, AGGREGATION, "spark4.3.0-agg__rkv2"])
def test_files_that_go_while_they_are_read_are_told(name: str, gone: str, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    shutil.copytree(checkpoint_path(name), path)
    table = tables(path)["state"].table
    plans = [table.splits(query) for query in QUERIES]
    shutil.rmtree(path / gone)
    for query, splits in zip(QUERIES, plans, strict=True):
        with pytest.raises(NotFoundError, match=r"SPARK_STATE_NOT_FOUND.*reading up to batch 5 of .*can be read now"):
            _ = [batch for split in splits for batch in table.read(split, query)]


def test_a_plan_is_of_one_view_of_the_logs(tmp_path: Path) -> None:
    """A planned read is executed as planned, even if the logs that it was planned from are gone by then."""
    path = tmp_path / "checkpoint"
    shutil.copytree(checkpoint_path(AGGREGATION), path)
    table = tables(path)["state"].table
    plans = [table.splits(query) for query in QUERIES]
    expected = [
        sum(b.num_rows for s in splits for b in table.read(s, q)) for q, splits in zip(QUERIES, plans, strict=True)
    ]
    for log in ("commits", "offsets"):
        shutil.rmtree(path / log)
    found = [
        sum(b.num_rows for s in splits for b in table.read(s, q)) for q, splits in zip(QUERIES, plans, strict=True)
    ]
    assert found == expected and min(found) > 0


def test_views_of_files_that_are_gone_say_so(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    shutil.copytree(checkpoint_path(AGGREGATION), path)
    connection = statestore.attach(str(path))
    assert connection.sql("SELECT count(*) FROM state").fetchall() == [(57,)]
    shutil.rmtree(path / "state" / "0" / "1")
    shutil.rmtree(path / "state" / "0" / "0")
    with pytest.raises(Exception, match="SPARK_STATE_NOT_FOUND"):
        connection.sql("SELECT count(value.sum) FROM state").fetchall()
