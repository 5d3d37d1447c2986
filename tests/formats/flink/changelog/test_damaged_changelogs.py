"""Changelogs of real jobs with damaged bytes: rows, or a clear error."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from support.flink.fixtures import copied, manifest
from support.flink.snapshot_reads import rows_of, source_at
from support.parameters import mostly_slow

from statestore.formats.errors import StateStoreError

RUNS = ("logged-windows-1.20", "logged-generic", "changelog")
CASES = [(run, seed) for run in RUNS for seed in range(60)]


@pytest.mark.parametrize(("run", "seed"), mostly_slow(CASES, [("logged-windows-1.20", 0), ("changelog", 1)]))
def test_damaged_changes_are_rows_or_a_clear_error(run: str, seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    folder = copied(run, tmp_path)
    for each in sorted(folder.rglob("*")):
        if not each.is_file() or "dstl" not in each.parts:
            continue
        data = bytearray(each.read_bytes())
        if random.random() < 0.2:
            del data[random.randrange(len(data)) :]
        for _ in range(random.randint(0, 4) if data else 0):
            data[random.randrange(len(data))] = random.randrange(256)
        each.write_bytes(data)
    source = source_at(folder / manifest(run)["snapshots"][0]["path"])
    try:
        states = source.states()
    except StateStoreError:
        return
    for state in states:
        try:
            rows_of(source, state)
        except StateStoreError as error:
            assert error.code in ("FLINK_FILE", "FLINK_ROW", "FLINK_METADATA", "FLINK_UNSUPPORTED", "FLINK_OPAQUE")
