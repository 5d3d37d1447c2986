"""Captures beside a real job of Flink that keeps few checkpoints, killed at random moments, against a plain model."""

from __future__ import annotations

import warnings
from pathlib import Path

import pyarrow as pa
import pytest
from support.flink.followed import KEYS, STATES, VALUES, Followed, FollowedModel, FollowedRun, Rows, capture_beside
from support.flink.running.java_project import class_path
from support.parameters import mostly_slow

import statestore
from statestore.formats.notices import StateStoreWarning

RUNS = (
    Followed(seed=1, kills=2),
    Followed(seed=2, kills=20, keys=5000, after=30, stops=2),
    Followed(seed=3, kills=5, after=30, retained=1, stops=1),
    Followed(seed=4, kills=5, after=30, options=(("backend", "hashmap"),)),
    Followed(seed=5, kills=5, after=30, options=(("changelog", "500ms"),)),
    Followed(seed=6, kills=3, after=60, options=(("fail", "2600"),)),
    Followed(seed=7, kills=3, after=40, settings=("execution.checkpointing.file-merging.enabled=true",)),
)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> str:
    return class_path("async", tmp_path_factory.mktemp("programs"))


def rows_of(reader: pa.RecordBatchReader, state: str) -> Rows:
    found = reader.read_all().to_pylist()
    rows = {tuple(row[name] for name in KEYS[state]): row[VALUES[state]] for row in found}
    assert len(rows) == len(found)
    return rows


@pytest.mark.parametrize("followed", mostly_slow(RUNS, quick=RUNS[:1]), ids=lambda each: f"seed-{each.seed}")
def test_every_captured_checkpoint_is_the_state_of_the_job(followed: Followed, programs: str, tmp_path: Path) -> None:
    warehouse = tmp_path / "warehouse"
    run = capture_beside(programs, tmp_path / "job", warehouse, followed)
    statestore.capture(run.folder, warehouse, states=STATES)
    again = statestore.capture(run.folder, warehouse, states=STATES)
    assert again.versions == 0
    for state in STATES:
        check_state(run, warehouse, state, followed)


def check_state(run: FollowedRun, warehouse: Path, state: str, followed: Followed) -> None:
    """Compare each captured version with the model, by its commit and by its time, and the gaps with what was there."""
    table = statestore.inspect(warehouse).table(state)
    captured = [row for row in table.versions().to_pylist() if row["batch"] is not None]
    numbers = [row["batch"] for row in captured]
    assert numbers == sorted(set(numbers)) and len(numbers) > followed.after // (2 * len(STATES))
    before_gaps = {row["missing_from"] - 1 for row in captured if row["missing_from"] is not None}
    model = FollowedModel(followed.keys)
    gone: list[int] = []
    for row in captured:
        model.go_to(run.positions[row["batch"]])
        assert rows_of(table.scan(version=row["version"]), state) == model.rows()[state], row
        _, written = run.seen.get(row["batch"], (0, None))
        if written is not None:
            for moment, is_known in ((written, True), (written + 1, row["batch"] not in before_gaps)):
                with warnings.catch_warnings(record=True) as notices:
                    warnings.simplefilter("always")
                    assert rows_of(table.scan(as_of=moment), state) == model.rows()[state], row
                assert [each.category for each in notices] == [StateStoreWarning] * (not is_known), (moment, row)
        if row["missing_from"] is not None and row["batch"] > numbers[0]:
            missing = range(row["missing_from"], row["missing_to"] + 1)
            assert all(run.seen.get(each, (0, 0))[0] < row["timestamp"].timestamp() for each in missing)
            gone += missing
    assert sorted([*numbers, *gone]) == list(range(numbers[0], numbers[-1] + 1))
    assert len(gone) >= followed.stops
