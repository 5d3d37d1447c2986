"""What incremental checkpoints wrote, by the table files that they gained, against a plain model."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.flink.shared_checkpoints import OPERATOR, STATES, Model, SharedCheckpoints
from support.flink.snapshot_reads import source_at
from support.object_store import object_store
from support.rows_read import BytesRead

from statestore.formats.engine import Version
from statestore.formats.flink import written_states
from statestore.formats.flink.source import FlinkSource
from statestore.formats.flink.written_states import ComparedSubtask, NewTables, WrittenStates
from statestore.formats.places.fetched_parts import forget_parts
from statestore.formats.rocksdb.scan import READER
from statestore.formats.written import PUT, REMOVE, WRITE

SEEDS = 8


@pytest.fixture(autouse=True)
def nothing_remembered() -> Iterator[None]:
    written_states.forget()
    yield
    written_states.forget()


def written_between(source: FlinkSource, state: str, old: int, new: int) -> WrittenStates | None:
    """What a version wrote, as a capture asks for it: of a version that may be gone it knows number and time."""
    found = source.written(f"{OPERATOR}.{state}", Version(new, 0), Version(old, 0))
    assert found is None or isinstance(found, WrittenStates)
    return found


def applied(state: str, before: Model, found: WrittenStates) -> dict[int, Any]:
    """The values of a state's keys after what was written to it."""
    after = dict(before[state])
    lists: dict[int, list[Any]] = {}
    for part in found.parts():
        for batch in found.rows(part):
            batch.validate(full=True)
            assert batch.schema.names == [WRITE, *(["key", "position"] if state == "orders" else ["key"]), "value"]
            for row in batch.to_pylist():
                if row[WRITE] == REMOVE:
                    assert all(value is None for name, value in row.items() if name not in (WRITE, "key"))
                    after.pop(row["key"], None)
                elif state == "orders":
                    listed = lists.setdefault(row["key"], [])
                    assert row[WRITE] == PUT and row["position"] == len(listed)
                    listed.append(row["value"])
                else:
                    assert row[WRITE] == PUT
                    after[row["key"]] = row["value"]
    return after | lists


def run(job: SharedCheckpoints, chance: random.Random) -> Iterator[int]:
    """Take checkpoints of random puts and deletions of few keys; compactions come at any time."""
    for _ in range(chance.randrange(3, 8)):
        for _ in range(chance.choice((0, 1, 5, 40))):
            state, key = chance.choice(STATES), chance.randrange(24)
            number = chance.randrange(4)
            values = {"balance": number / 2, "name": f"n{number}", "orders": [number, 7][: 1 + number % 2]}
            if chance.random() < 0.3:
                job.delete(state, key)
            else:
                job.put(state, key, values[state])
        if chance.random() < 0.3:
            job.compact()
        yield job.checkpoint(compact=chance.random() < 0.2)


@pytest.mark.parametrize("reader", ["scanner", ""])
def test_what_was_written_takes_a_checkpoint_to_the_next(
    reader: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the earlier one is there or gone. Compared subtasks are those whose files a compaction replaced."""
    if reader:
        pytest.importorskip("numba")
        monkeypatch.setenv(READER, reader)
    kinds: dict[tuple[bool, str], int] = {}
    for seed in range(SEEDS):
        chance = random.Random(seed)
        with closing(SharedCheckpoints(tmp_path / f"job-{seed}", block_bytes=64)) as job:
            old = 0
            for new in run(job, chance):
                source = source_at(job.folder)
                is_gone = bool(old) and chance.random() < 0.4
                if is_gone:
                    shutil.rmtree(job.folder / f"chk-{old}")
                    source = source_at(job.folder)
                for state in STATES:
                    source.at(f"{OPERATOR}.{state}", new)
                    found = written_between(source, state, old, new) if old else None
                    for part in () if found is None else found.parts():
                        kinds[is_gone, type(part).__name__] = kinds.get((is_gone, type(part).__name__), 0) + 1
                    if found is None:
                        kinds[is_gone, "None"] = kinds.get((is_gone, "None"), 0) + bool(old)
                    else:
                        assert applied(state, job.models[old], found) == job.models[new][state], (seed, state, new)
                old = new
    assert kinds[False, NewTables.__name__] > 20 and kinds[True, NewTables.__name__] > 6
    assert kinds[False, ComparedSubtask.__name__] > 3 and kinds[True, "None"] > 1
    assert not kinds.get((False, "None")) and not kinds.get((True, ComparedSubtask.__name__))


def test_new_files_alone_are_read_also_after_a_compaction(tmp_path: Path) -> None:
    with closing(SharedCheckpoints(tmp_path / "job", block_bytes=1024)) as job:
        for key in range(20_000):
            job.put("name", key, f"name of {key * 7919 % 20_000:032d}")
        job.checkpoint()
        job.put("balance", 1, 0.5)
        job.checkpoint()
        for key in range(0, 20_000, 100):
            job.put("name", key, "another")
        job.checkpoint()
        job.compact()  # between two checkpoints, of all that the first has
        for key in range(0, 20_000, 100):
            job.put("name", key, "a third")
        job.checkpoint()
        source, reading = source_at(job.folder), BytesRead(job.folder)

        def rows(state: str, old: int, new: int) -> int:
            found = written_between(source, state, old, new)
            assert found is not None
            return sum(batch.num_rows for part in found.parts() for batch in found.rows(part))

        full = source.at(f"{OPERATOR}.name", 4).total_bytes()
        for old in (2, 3):
            assert reading.of(rows, "name", old, old + 1) == 200
            assert reading.bytes < 0.05 * full
        assert rows("name", 1, 2) == 0 and rows("balance", 1, 2) == 1


def test_a_checkpoint_that_nobody_looked_at_is_not_known(tmp_path: Path) -> None:
    with closing(SharedCheckpoints(tmp_path / "job")) as job:
        for number in range(3):
            job.put("name", number, "n")
            job.checkpoint()
        shutil.rmtree(job.folder / "chk-1")
        assert written_between(source_at(job.folder), "name", 1, 3) is None
        assert written_between(source_at(job.folder), "name", 2, 3) is not None


def test_a_deletion_of_a_range_of_keys_is_compared(tmp_path: Path) -> None:
    with closing(SharedCheckpoints(tmp_path / "job")) as job:
        for key in range(20):
            job.put("name", key, f"n{key}")
        job.checkpoint()
        job.delete_groups("name", 0, 64)
        job.checkpoint()
        assert 0 < len(job.models[2]["name"]) < 20
        source = source_at(job.folder)
        found = written_between(source, "name", 1, 2)
        assert found is not None and [type(part) for part in found.parts()] == [ComparedSubtask]
        assert applied("name", job.models[1], found) == job.models[2]["name"]
        shutil.rmtree(job.folder / "chk-1")
        assert written_between(source_at(job.folder), "name", 1, 2) is None


def test_new_files_alone_are_fetched_from_an_object_store(tmp_path: Path) -> None:
    """Those of a checkpoint that is gone are remembered there, too."""
    with closing(SharedCheckpoints(tmp_path / "job")) as job, object_store() as store:
        for key in range(3_000):
            job.put("name", key, f"name of {key * 7919 % 3_000:032d}")
        job.checkpoint()
        job.put("name", 7, "another")
        job.delete("name", 9)
        place = store.upload(job.folder, "job")
        source_at(place).at(f"{OPERATOR}.name", 1)
        job.checkpoint()
        shutil.rmtree(job.folder / "chk-1")
        store.change({}, [key.partition("/")[2] for key in store.contents("job/chk-1")])
        store.upload(job.folder, "job")
        source = source_at(place)
        assert [number for number, _ in source.refs] == [2]
        whole = source.at(f"{OPERATOR}.name", 2).total_bytes()
        forget_parts()
        store.clear()
        found = written_between(source, "name", 1, 2)
        assert found is not None and [type(part) for part in found.parts()] == [NewTables]
        assert applied("name", job.models[1], found) == job.models[2]["name"]
        assert whole > 50_000 and store.bytes_sent < 0.2 * whole
