"""Growth in a report: rows at each version, without a replay of the state for each."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from support.checkpoints.small_checkpoints import write_small_checkpoint

from statestore.catalog.engines.engine_table import EngineTable
from statestore.catalog.warehouse import open_warehouse
from statestore.connector.report import figures
from statestore.formats.spark.source import CheckpointSource
from statestore.formats.state_table import Query


def bound(folder: Path) -> EngineTable:
    table = open_warehouse(folder).pin().open("state").for_plan()
    assert isinstance(table, EngineTable)
    return table


def test_rows_of_versions_are_counted_by_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = write_small_checkpoint(tmp_path / "checkpoint", 12, 3, rows=6, words=30)
    asked = Counter[str]()
    splits, listed = EngineTable.splits, CheckpointSource._listed

    def counted(table: EngineTable, query: Query) -> object:
        asked[query.mode] += 1
        return splits(table, query)

    def listing(source: CheckpointSource, state: str) -> object:
        asked["listed"] += 1
        return listed(source, state)

    monkeypatch.setattr(EngineTable, "splits", counted)
    monkeypatch.setattr(CheckpointSource, "_listed", listing)
    found = figures.figures_of(bound(made.folder))
    assert [(point["version"], point["keys"]) for point in found.growth] == [
        (version, len(made.state(version))) for version in range(12)
    ]
    assert asked == {"history": 1, "changes": 1, "state": 4, "listed": 1}  # oldest, newest, and the biggest keys
    files = [entry for entry in (made.folder / "state").rglob("*.delta") if not entry.name.startswith(".")]
    for point in found.growth:
        mine = [entry.stat().st_size for entry in files if int(entry.stem) <= point["version"] + 1]
        assert point["bytes"] == sum(mine)


def test_rows_are_read_where_changes_do_not_explain_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = write_small_checkpoint(tmp_path / "checkpoint", 5, 2, rows=6, words=30)
    counting = figures._counted

    def wrong(table: EngineTable, commits: pa.Table) -> figures.Counted | None:
        counted = counting(table, commits)
        assert counted is not None
        return counted[0] + 1, counted[1]

    monkeypatch.setattr(figures, "_counted", wrong)
    found = figures.figures_of(bound(made.folder))
    assert [point["keys"] for point in found.growth] == [len(made.state(version)) for version in range(5)]
