"""Growth in a report: rows at each version, without a replay of the state for each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from support.checkpoints.small_checkpoints import write_small_checkpoint

from statestore.catalog.engines.engine_table import EngineTable
from statestore.catalog.warehouse import open_warehouse
from statestore.connector.report import figures
from statestore.connector.report.history import history_of
from statestore.formats.kernels.arrays import Ints
from statestore.formats.spark.source import CheckpointSource
from statestore.formats.state_table import Query


def bound(folder: Path) -> EngineTable:
    table = open_warehouse(folder).pin().open("state").for_plan()
    assert isinstance(table, EngineTable)
    return table


def test_a_history_in_memory_tells_the_rows_of_all_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert asked == {"history": 1, "listed": 1}
    files = [entry for entry in (made.folder / "state").rglob("*.delta") if not entry.name.startswith(".")]
    for point in found.growth:
        mine = [entry.stat().st_size for entry in files if int(entry.stem) <= point["version"] + 1]
        assert point["bytes"] == sum(mine)


def test_a_history_that_is_not_held_is_counted_by_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = write_small_checkpoint(tmp_path / "checkpoint", 12, 3, rows=6, words=30)
    whole = figures.figures_of(bound(made.folder))
    monkeypatch.setattr(figures, "history_of", partial(history_of, held_bytes=0))
    asked = Counter[str]()
    splits = EngineTable.splits

    def counted(table: EngineTable, query: Query) -> object:
        asked[query.mode] += 1
        return splits(table, query)

    monkeypatch.setattr(EngineTable, "splits", counted)
    assert figures.figures_of(bound(made.folder)) == whole
    assert asked["changes"] == 1
    assert asked["state"] == 4  # oldest, newest, and the biggest keys


def test_rows_are_read_where_changes_do_not_explain_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = write_small_checkpoint(tmp_path / "checkpoint", 5, 2, rows=6, words=30)
    monkeypatch.setattr(figures, "history_of", partial(history_of, held_bytes=0))
    counting = figures.changes_by_version

    def wrong(batches: Iterator[pa.RecordBatch], versions: Ints) -> dict[str, Ints]:
        return {kind: count + (kind == "insert") for kind, count in counting(batches, versions).items()}

    monkeypatch.setattr(figures, "changes_by_version", wrong)
    found = figures.figures_of(bound(made.folder))
    assert [point["keys"] for point in found.growth] == [len(made.state(version)) for version in range(5)]


def test_churn_is_what_batches_wrote_and_ended(tmp_path: Path) -> None:
    made = write_small_checkpoint(tmp_path / "checkpoint", 9, 2, rows=6, words=12)
    found = figures.figures_of(bound(made.folder))
    expected = []
    for number in range(9):
        before, after = (made.state(number - 1) if number else {}), made.state(number)
        written = sum(before.get(word) != row for word, row in after.items())
        ended = sum(after.get(word) != row for word, row in before.items())
        expected += [(number, "written", written)] if written else []
        expected += [(number, "ended", -ended)] if ended else []
    assert [(each["first"], each["change"], each["count"]) for each in found.churn] == expected
