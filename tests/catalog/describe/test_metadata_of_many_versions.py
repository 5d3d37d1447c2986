"""Metadata of one version after another: each entry of the log is replayed once, in any order with one answer."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import statestore
from statestore.catalog.log import log_checkpoint
from statestore.catalog.log.entries import CommitEntry, read_entry
from statestore.catalog.log.storage import Storage
from statestore.catalog.warehouse import open_warehouse
from statestore.formats.errors import NotFoundError
from statestore.formats.state_table import Query, StateTable

VERSIONS = 60


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("warehouse")
    catalog = statestore.connect(folder)
    with catalog.create_store("prices", key={"item": "string"}, value={"price": "double"}) as store:
        for version in range(VERSIONS):
            store.put(f"item{version % 7}", float(version), timestamp=1_700_000_000_000 + version)
            store.commit()
    return folder


def segments(table: StateTable, version: int) -> pa.Table:
    query = Query(version=version)
    batches = [batch for split in table.splits(query) for batch in table.read(split, query)]
    return pa.Table.from_batches(batches, table.schema(query))


def test_versions_in_order_replay_each_entry_once(warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = open_warehouse(warehouse).open("prices$segments")
    newest = table.kept_versions()[1]
    read: list[int] = []

    def counted(storage: Storage, version: int) -> CommitEntry:
        read.append(version)
        return read_entry(storage, version)

    monkeypatch.setattr(log_checkpoint, "read_entry", counted)
    for version in range(0, newest + 1, 5):
        segments(table, version)
    assert 0 < len(read) <= newest + 1


def test_the_order_of_the_versions_changes_no_answer(warehouse: Path) -> None:
    table = open_warehouse(warehouse).open("prices$segments")
    for version in (3, 40, 40, 7, 59, 0, 20):
        assert segments(table, version) == segments(open_warehouse(warehouse).open("prices$segments"), version)


def test_a_store_that_was_dropped_has_no_metadata(warehouse: Path, tmp_path: Path) -> None:
    shutil.copytree(warehouse, tmp_path / "copy")
    table = open_warehouse(tmp_path / "copy").open("prices$segments")
    segments(table, 10)
    statestore.connect(tmp_path / "copy").drop_store("prices")
    with pytest.raises(NotFoundError):
        segments(table, 10)
