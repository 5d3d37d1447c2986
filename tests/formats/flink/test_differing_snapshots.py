"""Changes and differences of incremental checkpoints against a plain model, and what they read of shared files."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.flink.shared_checkpoints import OPERATOR, STATES, Model, SharedCheckpoints
from support.rows_read import BytesRead

import statestore
from statestore.formats.flink import differing_snapshots
from statestore.formats.rocksdb.scan import READER

SEEDS = 4


def value_of(state: str, chance: random.Random) -> Any:
    number = chance.randrange(4)
    return {"balance": number / 2, "name": f"n{number}", "orders": [number, number + 1][: 1 + number % 2]}[state]


def run(folder: Path, seed: int) -> SharedCheckpoints:
    """A job of random puts and deletions of few keys, with full compactions and checkpoints without any change."""
    chance, job = random.Random(seed), SharedCheckpoints(folder, block_bytes=64)
    for _ in range(chance.randrange(3, 7)):
        for _ in range(chance.choice((0, 1, 5, 40))):
            state, key = chance.choice(STATES), chance.randrange(24)
            if chance.random() < 0.3:
                job.delete(state, key)
            else:
                job.put(state, key, value_of(state, chance))
        job.checkpoint(compact=chance.random() < 0.3)
    return job


def rows(state: str, model: Model) -> dict[Any, Any]:
    """The rows of a state by what tells them apart: a list has a row for each element."""
    if state != "orders":
        return dict(model[state])
    return {(key, at): each for key, listed in model[state].items() for at, each in enumerate(listed)}


def key_of(state: str, row: dict[str, Any]) -> Any:
    return (row["key"], row["position"]) if state == "orders" else row["key"]


def changed(old: dict[Any, Any], new: dict[Any, Any]) -> list[tuple[Any, ...]]:
    """The changes from rows to others, as (kind, key, value)."""
    found: list[tuple[Any, ...]] = [("insert", key, new[key]) for key in new.keys() - old.keys()]
    found += [("delete", key, old[key]) for key in old.keys() - new.keys()]
    for key in old.keys() & new.keys():
        if old[key] != new[key]:
            found += [("update_preimage", key, old[key]), ("update_postimage", key, new[key])]
    return sorted(found, key=repr)


def check_job(folder: Path, seed: int) -> int:
    """Compare all changes and differences with the model; return how many rows of changes there were."""
    count = 0
    with closing(run(folder, seed)) as job:
        last = max(job.models)
        for state in STATES:
            table = statestore.inspect(folder).table(f"{OPERATOR}.{state}")
            models = {number: rows(state, model) for number, model in job.models.items()}
            feed = table.changes(start_version=2).read_all().to_pylist() if last > 1 else []
            for number in range(2, last + 1):
                found = [
                    (row["_change_type"], key_of(state, row), row["value"])
                    for row in feed
                    if row["_commit_version"] == number
                ]
                assert sorted(found, key=repr) == changed(models[number - 1], models[number]), (seed, state, number)
                count += len(found)
            for old in models:
                new = 1 + (old * 7 + seed) % last
                expected = {key: each for key, each in models[new].items() if models[old].get(key) != each}
                expected |= dict.fromkeys(models[old].keys() - models[new].keys())
                differing = table.diff(old, new).read_all().to_pylist()
                found_rows = {
                    key_of(state, row): None if row["_change"] == "removed" else row["_new"]["value"]
                    for row in differing
                }
                assert found_rows == expected, (seed, state, old, new)
                assert len(differing) == len(expected)
    return count


@pytest.fixture(params=["scanner", ""])
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param:
        pytest.importorskip("numba")
        monkeypatch.setenv(READER, request.param)
    yield request.param


def test_changes_and_differences_are_those_of_a_model(tmp_path: Path, reader: str) -> None:
    assert sum(check_job(tmp_path / f"job-{seed}", seed) for seed in range(SEEDS)) > 50


def test_neighbours_read_what_they_do_not_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    monkeypatch.setenv(READER, "scanner")
    with closing(SharedCheckpoints(tmp_path / "job", block_bytes=1024)) as job:
        for key in range(20_000):
            job.put("name", key, f"name of {key * 7919 % 20_000:032d}")
        job.checkpoint()
        for key in range(0, 20_000, 2_000):
            job.put("name", key, "another")
        job.checkpoint()
        table = statestore.inspect(tmp_path / "job").table(f"{OPERATOR}.name")
        reading = BytesRead(tmp_path / "job")
        assert reading.of(lambda: table.scan(version=2).read_all().num_rows) == 20_000
        whole = reading.bytes
        assert reading.of(lambda: table.changes(start_version=2).read_all().num_rows) == 20
        assert reading.bytes < 0.25 * whole
        assert reading.of(lambda: table.diff(1, 2).read_all().num_rows) == 10
        assert reading.bytes < 0.25 * whole


def test_a_key_is_looked_up_in_both_and_not_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise AssertionError("a key costs a key")

    with closing(run(tmp_path / "job", 1)) as job:
        monkeypatch.setattr(differing_snapshots, "_differing", refused)
        table = statestore.inspect(tmp_path / "job").table(f"{OPERATOR}.balance")
        found = table.changes(start_version=2, filter=("key", "=", 3)).read_all().to_pylist()
        models = [rows("balance", job.models[number]) for number in sorted(job.models)]
        expected = [each for old, new in itertools.pairwise(models) for each in changed(old, new) if each[1] == 3]
        assert sorted((row["_change_type"], row["key"], row["value"]) for row in found) == sorted(expected)
