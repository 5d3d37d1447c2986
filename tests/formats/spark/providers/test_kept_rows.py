"""Look-ups of the same keys in large files of the HDFS-backed provider: read once, and again when a file is another."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from support.checkpoints.large_checkpoints import puts_of, write_checkpoint

from statestore.formats.places.kept_results import forget_results
from statestore.formats.spark.checkpoint.checkpoint import open_checkpoint
from statestore.formats.spark.providers import partition_load
from statestore.formats.spark.providers.partition_load import open_partition, rows_of_keys

KEYS, ASKED = 40_000, np.array([3, 1000, 20_001])
PAST = 1_700_000_000


def written(folder: Path, batches: int = 2) -> Path:
    write_checkpoint(folder, KEYS, batches)
    for each in folder.rglob("*.delta"):
        os.utime(each, (PAST, PAST))  # long enough ago that a later change has another time
    return folder


def looked_up(folder: Path) -> dict[bytes, bytes]:
    checkpoint = open_checkpoint(pa.fs.LocalFileSystem(), str(folder))
    (store,) = checkpoint.operators[0].stores
    keys = pa.array([key for key, _ in puts_of(ASKED, ASKED)], pa.binary())
    found = rows_of_keys(open_partition(checkpoint, store, 0, "default"), keys)
    return dict(zip(*(column.to_pylist() for column in found.columns), strict=True))


def test_rows_are_read_once_while_the_files_are_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forget_results()
    folder = written(tmp_path / "checkpoint")
    expected = dict(puts_of(ASKED, np.array([0, 0, 1])))  # the last one was written by batch 1
    assert looked_up(folder) == expected
    reads: list[object] = []
    merged = partition_load._merged_rows
    monkeypatch.setattr(partition_load, "_merged_rows", lambda *given: reads.append(given) or merged(*given))
    assert looked_up(folder) == expected and not reads
    changed = written(tmp_path / "other", 1)
    (folder / "state/0/0/2.delta").write_bytes((changed / "state/0/0/1.delta").read_bytes())
    assert looked_up(folder) == dict(puts_of(ASKED, np.zeros(len(ASKED), np.int64))) and reads
