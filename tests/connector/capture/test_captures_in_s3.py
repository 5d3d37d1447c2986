"""Captures of checkpoints that grow in an object store, into another one, with answers that come late or get lost."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from support.checkpoints.growing_checkpoints import Growing
from support.checkpoints.small_checkpoints import write_small_checkpoint
from support.object_stores.clients import client
from support.object_stores.faults import Faults
from support.object_stores.proxy import proxy_before
from support.object_stores.s3_server import S3Server
from support.parameters import mostly_slow

import statestore
from statestore.catalog.warehouse import open_table
from statestore.formats.errors import StateStoreError
from statestore.formats.state_table import Query, StateTable

PARTITIONS = 2
COLUMNS = ("key", "value")
CASES = [("", 9), ("source", 1), ("warehouse", 2), ("both", 3), ("both", 4)]


@pytest.mark.parametrize(("faults_of", "seed"), mostly_slow(CASES, CASES[:1]))
def test_a_checkpoint_that_grows_in_s3(
    faults_of: str, seed: int, tmp_path: Path, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each captured batch has what the query had then, and gaps are the batches that were gone before a look."""
    monkeypatch.setenv("STATESTORE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("STATESTORE_LOCAL", str(tmp_path / "local"))
    chance, name = random.Random(seed), tmp_path.name
    made = write_small_checkpoint(tmp_path / "whole", 8 if faults_of else 4, PARTITIONS, 20, 60, seed, changelogs=True)
    bucket = client(s3_server)
    growing = Growing(
        made.folder,
        lambda path, content: bucket.put(f"{name}/source/{path}", content),
        lambda path: bucket.delete(f"{name}/source/{path}"),
    )
    late = Faults(latency_ms=30, lose_every=9, seed=seed + 1)
    of_source = late if faults_of in ("source", "both") else Faults()
    of_warehouse = late if faults_of in ("warehouse", "both") else Faults()
    with proxy_before(s3_server.endpoint, of_source) as one, proxy_before(s3_server.endpoint, of_warehouse) as other:
        source = s3_server.warehouse(f"{name}/source", endpoint=one.endpoint)
        warehouse = s3_server.warehouse(f"{name}/warehouse", endpoint=other.endpoint)
        looked: set[int] = set()
        for path in growing.writes():
            is_last = growing.commits[-1:] == [len(made.batches) - 1] and path.startswith("commits/")
            if growing.commits and (is_last or chance.random() < 0.25):
                looked |= set(growing.readable)
                _captured(source, warehouse)
        assert _captured(source, warehouse) == 0
    store = open_table(s3_server.warehouse(f"{name}/warehouse/state"))
    taken = [row for row in store.versions().to_pylist() if row["batch"] is not None]
    assert [row["batch"] for row in taken] == sorted(looked)
    bridged = [(row["missing_from"], row["missing_to"]) for row in taken[1:] if row["missing_from"] is not None]
    missing = {number for number in range(min(looked), len(made.batches)) if number not in looked}
    assert {number for first, last in bridged for number in range(first, last + 1)} == missing
    state: dict[str, tuple[int, float] | None] = {}
    commits = {row["batch"]: row["version"] for row in taken}
    for batch, written in enumerate(made.batches):
        state |= written
        if batch in commits:
            want = {word: cells for word, cells in state.items() if cells is not None}
            assert _rows(store, commits[batch]) == want


def _captured(source: str, warehouse: str) -> int:
    """Return how many versions a capture took, which is begun anew where it failed."""
    for _ in range(20):
        try:
            return statestore.capture(source, warehouse).versions
        except StateStoreError as error:
            assert error.code in ("REQUEST_FAILED", "STORAGE_ERROR", "COMMIT_UNKNOWN"), error
    raise AssertionError("no capture of 20 came to its end")


def _rows(store: StateTable, version: int) -> dict[str, tuple[int, float]]:
    query = Query(columns=COLUMNS, version=version)
    rows = [row for split in store.splits(query) for batch in store.read(split, query) for row in batch.to_pylist()]
    return {row["key"]["word"]: (row["value"]["count"], row["value"]["total"]) for row in rows}
