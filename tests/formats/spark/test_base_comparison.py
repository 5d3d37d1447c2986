"""Snapshots of a checkpoint that differ from the changes before them are told by a deep verification."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.checkpoints.spark_state_fixtures import ARCHIVE, LOCAL, MORE, checkpoint_path, index
from support.parameters import mostly_slow

import statestore
from statestore.formats.spark.base_comparison import differing_bases
from statestore.formats.spark.checkpoint.checkpoint import open_checkpoint
from statestore.formats.spark.checkpoint.state_views import state_views

ALL_NAMES = mostly_slow(
    [(archive, name) for archive in (ARCHIVE, MORE) for name in sorted(index(archive))],
    [(ARCHIVE, "spark4.3.0-agg__hdfs"), (ARCHIVE, "spark4.3.0-twsttl__rkcl")],
)


@pytest.mark.parametrize(("archive", "name"), ALL_NAMES)
def test_snapshots_that_spark_wrote_agree_with_its_changes(archive: Path, name: str) -> None:
    checkpoint = open_checkpoint(LOCAL, str(checkpoint_path(name, archive)))
    for view in [view for each in checkpoint.operators for view in state_views(checkpoint, each) if view.user]:
        assert list(differing_bases(checkpoint, view, range(1000))) == []


@pytest.mark.parametrize(
    ("name", "file", "other", "told"),
    mostly_slow(
        [
            ("spark4.3.0-agg__hdfs", "3.delta", "1.delta", {"4.snapshot"}),
            ("spark4.3.0-agg__hdfs", "4.delta", "3.delta", {"4.snapshot"}),
            ("spark4.3.0-sess__rkcl", "3.zip", "6.zip", {"3.zip"}),
            ("spark4.3.0-sess__rkcl", "5.changelog", "4.changelog", {"6.zip"}),
            ("spark4.3.0-agg__hdfs", "6.delta", "5.delta", set()),  # no snapshot follows that would show it
        ],
        2,
    ),
)
def test_a_file_of_another_batch(tmp_path: Path, name: str, file: str, other: str, told: set[str]) -> None:
    path = Path(shutil.copytree(checkpoint_path(name), tmp_path / "checkpoint"))
    folder = path / "state/0/0"
    shutil.copy(folder / other, folder / file)
    (found,) = statestore.verify(path, deep=True)
    assert {Path(each.file).name for each in found.problems} == told
    for each in found.problems:
        assert each.code == "FILE_DAMAGED" and "rows depend on where a read begins" in each.message
        assert each.versions == (int(Path(each.file).stem) - 1,) * 2


def test_changed_values_without_a_checksum(tmp_path: Path) -> None:
    """A value in a file that has no checksum keeps its form: only another file shows that it is not the right one."""
    path = Path(shutil.copytree(checkpoint_path("spark4.3.0-join__hdfs"), tmp_path / "checkpoint"))
    left, right = (path / f"state/0/0/{side}-keyWithIndexToValue/4.snapshot" for side in ("left", "right"))
    shutil.copy(left, right)
    found = {each.store: each for each in statestore.verify(path, deep=True)}
    assert found["left"].ok
    (problem,) = found["right"].problems
    assert problem.file == str(right) and "expected the" in problem.message
