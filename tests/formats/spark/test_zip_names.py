"""Names in a snapshot's zip are not trusted to be text."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
from support.paths import DATA

import statestore

CHECKPOINT = "spark4.3.0-agg__rk"


def test_a_name_that_is_no_utf_8_is_damage(tmp_path: Path) -> None:
    with tarfile.open(DATA / "spark" / "checkpoints.tar.xz") as archive:
        archive.extractall(tmp_path, [each for each in archive if f"{CHECKPOINT}/" in f"{each.name}/"], filter="data")
    checkpoint = tmp_path / "checkpoints" / CHECKPOINT
    for path in checkpoint.glob("state/0/*/*.zip"):
        data = bytearray(path.read_bytes())
        entry = data.rfind(b"PK\x01\x02")
        data[entry + 9] |= 8  # the name is UTF-8
        data[entry + 46] = 0xFF
        path.write_bytes(data)
    with pytest.raises(statestore.CorruptError, match=r"SPARK_STATE_FILE.*not a readable zip"):
        statestore.inspect(checkpoint).table("state").scan().read_all()
