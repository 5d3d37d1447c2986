"""The history of a large partition is read in ranges of keys: the same rows, for less memory."""

from __future__ import annotations

import itertools
from collections.abc import Collection
from typing import Any

import pytest
from support.checkpoints.checkpoint_tables import (
    counted,
    expected_changes,
    expected_history,
    key_cells,
    states_in_archive,
    tables,
)
from support.checkpoints.spark_state_fixtures import checkpoint_path
from support.parameters import mostly_slow

from statestore.catalog.engines.engine_table import EngineTable
from statestore.formats.spark import read_parts
from statestore.formats.spark.providers import partition_splits
from statestore.formats.spark.providers.partition_load import Partition, stored_rows
from statestore.formats.spark.providers.partition_splits import split_history
from statestore.formats.spark.providers.rocksdb_provider import family_range
from statestore.formats.spark.providers.stored_rows import KeyBounds
from statestore.formats.spark.source import CheckpointSource
from statestore.formats.state_table import Query

NAMES = [
    "spark4.3.0-agg__rk",  # zips only
    "spark4.3.0-agg__rkcl",  # changelogs
    "spark4.3.0-agg__rkv2",
    "spark4.3.0-join__rkj4",  # rows that repeat
    "spark4.3.0-twsttl__rkcl",  # column families
]


@pytest.fixture
def in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut each partition at some of its keys: the real function would not cut tables of a few blocks."""
    current: list[Partition] = []
    for size in ("_HISTORY_BYTES", "_COMPARED_BYTES"):
        monkeypatch.setattr(partition_splits, size, 1)
    monkeypatch.setattr(partition_splits, "_MOST_PARTS", 3)

    def remembered(partition: Partition, versions: Collection[int]) -> list[KeyBounds]:
        current[:] = [partition]
        return split_history(partition, versions)

    def at_some_keys(*given: Any) -> list[KeyBounds]:
        keys = sorted(
            key for rows in stored_rows(current[0], lambda rows: rows.batch["key"].to_pylist()) for key in rows
        )
        points = sorted({keys[len(keys) * n // given[-1]] for n in range(1, given[-1])}) if keys else []
        first, stop = family_range(given[2])
        return list(itertools.pairwise([first, *points, stop]))

    monkeypatch.setattr(read_parts, "split_history", remembered)
    monkeypatch.setattr(partition_splits, "split_keys", at_some_keys)


@pytest.mark.parametrize("name", mostly_slow(NAMES, NAMES[:3:2]))
@pytest.mark.usefixtures("in_parts")
def test_parts_have_the_rows_of_the_whole(name: str) -> None:
    path = checkpoint_path(name)
    whole = states_in_archive(path)
    for shown, table in tables(path).items():
        states = whole[shown]
        splits = table.table.splits(Query(mode="history"))
        assert isinstance(table.table, EngineTable)
        source = table.table.source
        assert isinstance(source, CheckpointSource)
        rows = table.scan().read_all().num_rows
        assert len(splits) > len(source.state_view(table.table.state).store.partitions) or rows < 4
        assert counted(table.history().read_all(), "history") == expected_history(path, states)
        expected = expected_changes(path, states, min(states) and min(states) + 1, key_cells(table))
        assert counted(table.changes().read_all(), "changes") == expected


@pytest.mark.usefixtures("in_parts")
def test_rows_of_one_key_of_a_join_stay_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last row gets the number of one that goes, and the number is a part of its key: it is the same row still."""
    monkeypatch.setattr(partition_splits, "_MOST_PARTS", 1000)
    path = checkpoint_path("spark4.3.0-join__rkcl")
    whole = states_in_archive(path)
    for shown, table in tables(path).items():
        states = whole[shown]
        assert counted(table.history().read_all(), "history") == expected_history(path, states)
        assert counted(table.changes().read_all(), "changes") == expected_changes(path, states, 0, None)
