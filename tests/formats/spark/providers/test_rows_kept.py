"""Look-ups of the same keys in large files of the HDFS-backed provider: read once, and again when a file is another."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.checkpoints.large_checkpoints import puts_of, write_checkpoint
from support.checkpoints.spark_state_fixtures import LOCAL

from statestore.formats.errors import CorruptError
from statestore.formats.places.folder import Folder
from statestore.formats.spark.checkpoint.checkpoint import open_checkpoint
from statestore.formats.spark.checkpoint.checkpoint_files import DataFile
from statestore.formats.spark.providers import change_files, kept_positions, kept_records, partition_load
from statestore.formats.spark.providers.partition_load import Partition, open_partition, rows_of_keys

KEYS, ASKED = 40_000, np.array([3, 1000, 20_001])


def looked_up(folder: Path) -> dict[bytes, bytes]:
    checkpoint = open_checkpoint(LOCAL, str(folder))
    (store,) = checkpoint.operators[0].stores
    keys = pa.array([key for key, _ in puts_of(ASKED, ASKED)], pa.binary())
    found = rows_of_keys(open_partition(checkpoint, store, 0, "default"), keys)
    return dict(zip(*(column.to_pylist() for column in found.columns), strict=True))


def test_rows_are_read_once_while_the_files_are_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settled: None
) -> None:
    folder = write_checkpoint(tmp_path / "checkpoint", KEYS, 2)
    expected = dict(puts_of(ASKED, np.array([0, 0, 1])))  # the last one was written by batch 1
    assert looked_up(folder) == expected
    reads: list[str] = []
    merged = partition_load._merged_rows

    def noted(partition: Partition, *given: Any) -> Any:
        reads.append(partition.folder.path)
        return merged(partition, *given)

    monkeypatch.setattr(partition_load, "_merged_rows", noted)
    assert looked_up(folder) == expected and not reads
    changed = write_checkpoint(tmp_path / "other", KEYS, 1)
    (folder / "state/0/0/2.delta").write_bytes((changed / "state/0/0/1.delta").read_bytes())
    assert looked_up(folder) == dict(puts_of(ASKED, np.zeros(len(ASKED), np.int64))) and reads


@pytest.mark.parametrize("snapshots", [None, 1])
def test_a_copy_of_a_large_file_is_compared_and_not_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settled: None, snapshots: int | None
) -> None:
    for module in (kept_positions, kept_records):  # a larger state takes too long to be made
        monkeypatch.setattr(module, "_MOST_STORED", 0)
    folder = write_checkpoint(tmp_path / "checkpoint", KEYS, 1, snapshots=snapshots)
    expected = dict(puts_of(ASKED, np.zeros(len(ASKED), np.int64)))
    assert looked_up(folder) == expected
    searched: list[str] = []
    plain = change_files.plain_bytes

    def noted(folder: Folder, file: DataFile) -> Any:
        searched.append(folder.path)
        return plain(folder, file)

    monkeypatch.setattr(change_files, "plain_bytes", noted)
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    assert looked_up(copy) == expected and not searched

    other = Path(shutil.copytree(folder, tmp_path / "other"))
    for place in other.glob("state/0/0/1.*"):
        place.write_bytes(b"none" + place.read_bytes()[4:])
    with pytest.raises(CorruptError, match=r"other/state/0/0/1\.\w+: found first bytes"):
        looked_up(other)
    assert searched
