"""Edits of many rows, which are held in files, encoded by some partitions and found by scans, against dicts."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.checkpoints.large_checkpoints import words, write_checkpoint
from support.checkpoints.rocksdb_checkpoints import write_partitions

import statestore
from statestore.connector.edit import units
from statestore.connector.sql import sql_duckdb
from statestore.formats.errors import InvalidInputError
from statestore.formats.places import held_tables
from statestore.formats.spark import some_partitions
from statestore.formats.spark.providers import partition_load

KEYS, NEW = 300, 900


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Let some hundred rows be many; return the folder of temporary files."""
    monkeypatch.setattr(held_tables, "LARGE", 4000)
    for module in (held_tables, some_partitions, units, sql_duckdb):
        monkeypatch.setattr(module, "ROWS_AT_ONCE", 128)
    monkeypatch.setattr(some_partitions, "MOST_ROWS", 200)
    monkeypatch.setattr(partition_load, "MOST_LOOKED_UP", 20)
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture(params=["hdfs", "rocksdb"])
def skeleton(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    place = tmp_path / "source"
    if request.param == "hdfs":
        write_checkpoint(place, KEYS, 1, 4, hashed=True)
    else:
        write_partitions(place, KEYS, 4)
    return place


def names(first: int, count: int) -> list[str]:
    return [word.decode() for word in words(np.arange(first, first + count)).tolist()]


def rows_of(place: Path) -> dict[str, int]:
    found = statestore.inspect(place).table("state").scan().to_arrow()
    return {row["key"]["word"]: row["value"]["count"] for row in found.to_pylist()}


def test_many_rows_come_change_and_go(skeleton: Path, tmp_path: Path, small: Path) -> None:
    model = dict.fromkeys(names(0, KEYS), 0)
    assert rows_of(skeleton) == model
    new = {word: number for number, word in enumerate(names(10**6, NEW))}
    table = pa.table({"word": list(new), "count": pa.array(new.values(), pa.int32())})
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=100)
    with statestore.edit(skeleton, tmp_path / "seeded", allow_external_access=True) as edit:
        edit.sql(f"INSERT INTO state SELECT {{'word': word}}, {{'count': \"count\"}} FROM '{tmp_path}/rows.parquet'")
    model |= new
    assert rows_of(tmp_path / "seeded") == model
    with statestore.edit(tmp_path / "seeded", tmp_path / "changed") as edit:
        edit.sql("DELETE FROM state WHERE key.word < '8'; UPDATE state SET value.count = value.count + 1")
    model = {word: count + 1 for word, count in model.items() if word >= "8"}
    assert rows_of(tmp_path / "changed") == model
    assert edit.receipt is not None
    gone = KEYS + NEW - len(model)
    assert str(edit.receipt.states[0]) == f"{gone} removed, 0 added, {len(model)} changed"
    assert not [path for path in small.rglob("*") if path.is_file()]


def test_a_key_that_is_there_is_found_among_many(skeleton: Path, tmp_path: Path) -> None:
    known = names(KEYS - 1, 1)[0]
    pq.write_table(pa.table({"word": [*names(10**6, NEW), known]}), tmp_path / "rows.parquet")
    with (
        pytest.raises(InvalidInputError, match=f"has a row of key {{'word': '{known}'}} already"),
        statestore.edit(skeleton, tmp_path / "target", allow_external_access=True) as edit,
    ):
        edit.sql(f"INSERT INTO state SELECT {{'word': word}}, {{'count': 1}} FROM '{tmp_path}/rows.parquet'")
