"""Changes and differences of checkpoints, of zips that share table files among them, beside plain dictionaries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.checkpoints.large_checkpoints import words, write_checkpoint, written_by
from support.checkpoints.rocksdb_checkpoints import Model, write_rocksdb_checkpoint
from support.checkpoints.spark_state_fixtures import QUICK, checkpoint_path, index, multiset
from support.parameters import mostly_slow

import statestore
from statestore.formats.engine import Source
from statestore.formats.kernels.arrays import Ints
from statestore.formats.rocksdb import scan, table_scan
from statestore.formats.spark import differing_batches
from statestore.formats.spark.history import read_written_ends
from statestore.formats.spark.source import CheckpointSource

KEYS = 120
NAMES = [word.decode() for word in words(np.arange(KEYS)).tolist()]


@pytest.fixture(params=["scanner", "rocksdict"])
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv(scan.READER, request.param)
    return str(request.param)


def made(path: Path, seed: int, batches: int) -> list[Model]:
    """A checkpoint of random batches: some touch few words, some write the count again that a word has, some delete
    all that they wrote before."""
    random = np.random.default_rng(seed)
    sizes, compacted = random.choice([0, 1, 5, 60, KEYS], batches), random.random(batches) < 0.3

    def written(batch: int, keys: int) -> tuple[Ints, Ints]:
        chosen = random.choice(keys, int(sizes[batch]), replace=False)
        cut = int(random.integers(0, len(chosen) + 1))
        return chosen[:cut], chosen[cut:]

    return write_rocksdb_checkpoint(
        path,
        KEYS,
        batches,
        written,
        lambda batch: bool(compacted[batch]),
        counted=lambda batch, put: put % 3 + random.integers(0, 2, len(put)),
        table_bytes=4096,
        block_bytes=int(random.choice([64, 512])),
    )


def changed(table: statestore.Table, first: int, last: int) -> set[tuple[Any, ...]]:
    rows = table.changes(start_version=first, end_version=last).read_all().to_pylist()
    found = [(r["_commit_version"], r["key"]["word"], r["_change_type"], r["value"]["count"]) for r in rows]
    assert len(found) == len(set(found))
    return set(found)


def changes_of(states: list[Model], first: int, last: int) -> set[tuple[Any, ...]]:
    found = set()
    for version in range(first, last + 1):
        old, new = states[version - 1] if version else {}, states[version]
        for number in old.keys() | new.keys():
            before, after = old.get(number), new.get(number)
            if before == after:
                continue
            if before is not None:
                kind = "delete" if after is None else "update_preimage"
                found.add((version, NAMES[number], kind, before))
            if after is not None:
                found.add((version, NAMES[number], "insert" if before is None else "update_postimage", after))
    return found


def differing(table: statestore.Table, first: int, last: int) -> dict[str, tuple[Any, Any]]:
    rows = table.diff(first, last).read_all().to_pylist()
    found = {}
    for row in rows:
        old, new = (row[side] and row[side]["value"]["count"] for side in ("_old", "_new"))
        assert row["_change"] == ("added" if old is None else "removed" if new is None else "changed")
        found[row["key"]["word"]] = old, new
    assert len(found) == len(rows)
    return found


def differences_of(old: Model, new: Model) -> dict[str, tuple[Any, Any]]:
    numbers = [number for number in old.keys() | new.keys() if old.get(number) != new.get(number)]
    return {NAMES[number]: (old.get(number), new.get(number)) for number in numbers}


def check(path: Path, seed: int, batches: int = 4) -> None:
    states = made(path, seed, batches)
    table = statestore.inspect(path).table("state")
    assert changed(table, 0, batches - 1) == changes_of(states, 0, batches - 1), seed
    for first in range(batches):
        last = min(first + 1, batches - 1)
        assert changed(table, first, last) == changes_of(states, first, last), (seed, first)
        for other in (last, 0):
            assert differing(table, first, other) == differences_of(states[first], states[other]), (seed, first, other)


@pytest.mark.parametrize("seed", range(2))
def test_changes_and_differences_are_those_of_the_states(
    seed: int, reader: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_scan, "RANGE_BYTES", [1 << 20, 300, 2000][seed])
    check(tmp_path / "checkpoint", seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 60))
def test_of_more_histories(seed: int, reader: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_scan, "RANGE_BYTES", [1 << 20, 300, 2000][seed % 3])
    check(tmp_path / "checkpoint", seed, 4 + seed % 5)


@pytest.mark.parametrize("name", mostly_slow(sorted(index()), QUICK[:1]))
def test_differences_of_real_checkpoints_are_those_of_whole_states(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = statestore.inspect(checkpoint_path(name))
    for state in found.tables():
        table = found.table(state)
        kept = table.versions()["version"].to_pylist()
        for old, new in ((kept[-2], kept[-1]), (kept[-1], kept[-2]), (kept[0], kept[-1]), (kept[1], kept[2])):
            try:
                ours = multiset(table.diff(old, new).read_all())
            except statestore.StateStoreError:
                continue  # a batch that is no longer kept
            with monkeypatch.context() as patch:
                patch.setattr(CheckpointSource, "differing_rows", Source.differing_rows)
                assert ours == multiset(table.diff(old, new).read_all()), (state, old, new)


def test_neighbouring_batches_with_changes_are_compared_by_their_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys, batches = 400, 5
    write_checkpoint(tmp_path, keys, batches, snapshots=2)
    states: list[dict[int, int]] = [{}]
    for batch in range(batches):
        put, deleted = written_by(batch, keys)
        kept = {number: count for number, count in states[-1].items() if number not in set(deleted.tolist())}
        states.append(kept | dict.fromkeys(put.tolist(), batch))
    decoded: list[Any] = []

    def counted(*given: Any) -> Any:
        decoded.append(given)
        return read_written_ends(*given)

    monkeypatch.setattr(differing_batches, "read_written_ends", counted)
    names = [word.decode() for word in words(np.arange(keys)).tolist()]
    table = statestore.inspect(tmp_path).table("state")
    for old, new in ((0, 1), (1, 3), (3, 2), (4, 1)):
        before, after = states[old + 1], states[new + 1]
        expected = {names[n]: (before.get(n), after.get(n)) for n in before.keys() | after.keys()}
        assert differing(table, old, new) == {word: pair for word, pair in expected.items() if pair[0] != pair[1]}
    assert len(decoded) == 4
