"""Edits of real checkpoints, copied, verified and published: the rows that may differ are read, and lies are caught."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from support.checkpoints.spark_state_fixtures import checkpoint_path, multiset
from support.engines.toy_edits import tree
from support.parameters import mostly_slow

from statestore.catalog.edits.apply import EditProgress, apply_edit
from statestore.formats.edits import EditOptions, EditPlan, StateEdit
from statestore.formats.engine import StateAt
from statestore.formats.errors import StateStoreError
from statestore.formats.places.locations import parse_location
from statestore.formats.spark.source import CheckpointSource, open_source

LATE = EditOptions(allow_late=True)
QUICK = ("spark4.3.0-agg__hdfs", "spark4.3.0-agg__rk", "spark4.3.0-agg__rkcl", "spark4.3.0-win__rkcl")
CASES = [
    *QUICK, "spark4.0.1-agg__rk2", "spark4.3.0-agg__rkck", "spark4.3.0-agg__rkzs", "spark4.3.0-dedup__hdfs",
    "spark4.3.0-dedupw__rkv2", "spark4.3.0-fmgws__rkcl", "spark4.3.0-win__hdfsck",
]  # fmt: skip


def opened(path: str | Path) -> CheckpointSource:
    return open_source(parse_location(path))


def rows_of(source: CheckpointSource) -> pa.Table:
    """The rows of the newest batch without their placement."""
    at: StateAt = source.at("state", source.newest("state"))
    batches = [batch for part in at.parts(()) for batch in at.rows(part, at.schema.names, ())]
    return pa.Table.from_batches(batches, at.schema).drop_columns(["partition_id"])


def removing(source: CheckpointSource, rows: pa.Table) -> StateEdit:
    return StateEdit("state", source.info("state").row_key, rows, rows.schema.empty_table())


@pytest.mark.parametrize("name", mostly_slow(CASES, quick=QUICK))
def test_two_rows_are_removed_and_no_other(name: str, tmp_path: Path) -> None:
    path = checkpoint_path(name)
    source, before = opened(path), tree(path)
    rows = rows_of(source)
    heard: list[EditProgress] = []
    edit = removing(source, rows.slice(0, 2))
    receipt = apply_edit(source, source.newest("state"), [edit], tmp_path / "target", LATE, progress=heard.append)
    assert multiset(rows_of(opened(tmp_path / "target"))) == multiset(rows.slice(2))
    assert (receipt.states[0].removed, receipt.states[0].added, receipt.states[0].changed) == (2, 0, 0)
    assert tree(path) == before
    assert heard[-1].step == "verifying" and heard[-1].done > 0


@pytest.mark.parametrize("name", mostly_slow(CASES, quick=QUICK))
def test_a_row_that_was_not_removed_is_found(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = opened(checkpoint_path(name))
    rows = rows_of(source)
    plan = CheckpointSource.edit_plan

    def half(self: CheckpointSource, version: int, edits: Sequence[StateEdit], options: EditOptions) -> EditPlan:
        return plan(self, version, [removing(self, rows.slice(0, 1))], options)

    monkeypatch.setattr(CheckpointSource, "edit_plan", half)
    edit = removing(source, rows.slice(0, 2))
    with pytest.raises(StateStoreError, match=r"EDIT_DIFFERS.*has a row that it must not have"):
        apply_edit(source, source.newest("state"), [edit], tmp_path / "target", LATE)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", mostly_slow(CASES, quick=QUICK))
def test_a_row_that_is_lost_is_found(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = opened(checkpoint_path(name))
    rows = rows_of(source)
    plan = CheckpointSource.edit_plan

    def more(self: CheckpointSource, version: int, edits: Sequence[StateEdit], options: EditOptions) -> EditPlan:
        return plan(self, version, [removing(self, rows.slice(0, 3))], options)

    monkeypatch.setattr(CheckpointSource, "edit_plan", more)
    edit = removing(source, rows.slice(0, 2))
    with pytest.raises(StateStoreError, match=r"EDIT_DIFFERS.*lacks a row that it must have"):
        apply_edit(source, source.newest("state"), [edit], tmp_path / "target", LATE)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["spark4.3.0-agg__hdfs", "spark4.3.0-agg__rk", "spark4.3.0-dedup__hdfs"])
def test_rows_of_files_that_both_have_are_not_read(name: str, tmp_path: Path) -> None:
    """The pairs leave out what the last batch and the edit left as it was."""
    source = opened(checkpoint_path(name))
    rows = rows_of(source)
    plan = source.edit_plan(source.newest("state"), [removing(source, rows.slice(0, 1))], LATE)
    apply_edit(source, source.newest("state"), [removing(source, rows.slice(0, 1))], tmp_path / "target", LATE)
    target = opened(tmp_path / "target")
    pairs = plan.differing_rows("state", source, target, rows.schema.names)
    assert pairs is not None
    sides = list(zip(*pairs, strict=True))
    read = [
        multiset(pa.Table.from_batches([b.select(rows.schema.names) for s in side for b in s], rows.schema))
        for side in sides
    ]
    assert read[0] - read[1] == multiset(rows.slice(0, 1)) and not read[1] - read[0]
