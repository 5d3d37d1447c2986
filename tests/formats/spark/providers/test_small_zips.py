"""Small versions of RocksDB, which are read in whole without a folder in which RocksDB opens them."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import numpy as np
import pytest
from support.checkpoints.large_checkpoints import words
from support.checkpoints.rocksdb_checkpoints import Model, write_rocksdb_checkpoint

import statestore
from statestore.formats.errors import StateStoreError
from statestore.formats.kernels.arrays import Ints
from statestore.formats.places.kept_results import forget_results
from statestore.formats.spark.providers import kept_lookups, rocksdb_provider

pytestmark = pytest.mark.usefixtures("settled")

KEYS, BATCHES = 40, 8


def by_chance(batch: int, keys: int) -> tuple[Ints, Ints]:
    """Put some keys and delete others; now and then none."""
    chance = np.random.default_rng(batch)
    some = chance.permutation(keys)[: int(chance.integers(0, keys // 2))]
    return some[len(some) // 3 :], some[: len(some) // 3]


def checkpoint(folder: Path) -> list[Model]:
    return write_rocksdb_checkpoint(folder, KEYS, BATCHES, by_chance, lambda batch: batch == 5)


def rows(folder: Path, version: int) -> dict[str, int]:
    found = statestore.inspect(folder).table("state").scan(version=version).read_all().to_pylist()
    return {row["key"]["word"]: row["value"]["count"] for row in found}


def named(model: Model) -> dict[str, int]:
    return {words(np.array([number]))[0].decode(): count for number, count in model.items()}


@pytest.mark.parametrize("small", [True, False])
def test_states_and_changes_are_those_that_were_written(
    small: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = checkpoint(tmp_path / "checkpoint")
    if small:
        monkeypatch.setattr(rocksdb_provider, "temporary_directory", lambda: pytest.fail("made a folder"))
    else:
        monkeypatch.setattr(kept_lookups, "_SMALL_BYTES", 0)
    table = statestore.inspect(tmp_path / "checkpoint").table("state")
    now: dict[str, int] = {}
    changes = table.changes().read_all().to_pylist()
    for version, state in enumerate(states):
        for row in (row for row in changes if row["_commit_version"] == version):
            word, count, kind = row["key"]["word"], row["value"]["count"], row["_change_type"]
            if kind in ("delete", "update_preimage"):
                assert now.pop(word) == count
            else:
                assert word not in now
                now[word] = count
        assert now == named(state)
        assert rows(tmp_path / "checkpoint", version) == now
    for old, new in ((2, 3), (4, 6), (6, 1)):
        before, after = named(states[old]), named(states[new])
        found = table.diff(old, new).read_all().num_rows
        assert found == sum(before.get(word) != after.get(word) for word in {*before, *after})


def test_damage_is_an_error_and_never_another_row(tmp_path: Path) -> None:
    whole = tmp_path / "checkpoint"
    states = checkpoint(whole)
    chance, folder, refused = random.Random(3), tmp_path / "damaged", 0
    for _ in range(25):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(whole, folder)
        files = sorted([*folder.rglob("*.sst"), *folder.rglob("*.zip")])
        file = chance.choice(files)
        content = bytearray(file.read_bytes())
        at = chance.randrange(len(content))
        content[at] ^= 1 << chance.randrange(8)
        file.write_bytes(content[:at] if chance.random() < 0.2 else content)
        version = chance.randrange(BATCHES)
        forget_results()
        try:
            found = rows(folder, version)
        except StateStoreError:
            refused += 1
        else:
            assert found == named(states[version])
    assert refused
