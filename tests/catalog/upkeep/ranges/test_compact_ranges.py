"""Compaction and expiry in tasks, by ranges of keys: the same answers as before, one commit, and no file left."""

from __future__ import annotations

import copy
import itertools
import math
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.parameters import mostly_slow
from support.stores.attempted_tasks import AttemptedTasks, TaskDied
from support.stores.layout_invariants import layout_violations
from support.stores.versioned_checks import HORIZON, as_table, check_everything, create, rows_of
from support.stores.versioned_pair import Pair, small_thresholds

import statestore
from statestore.catalog.log.log_checkpoint import load_log_state
from statestore.catalog.stores.versioned.versioned_store import VersionedStore
from statestore.catalog.upkeep import compaction_rules
from statestore.catalog.upkeep.compaction_plan import next_step
from statestore.catalog.upkeep.compaction_rules import Rules
from statestore.catalog.upkeep.ranges import task_runs
from statestore.catalog.upkeep.ranges.compact_range import key_ranges, write_moves
from statestore.catalog.upkeep.ranges.compact_ranges import range_count
from statestore.formats.values.key_hash import hash_keys, key_groups_of

__all__ = ["small_thresholds"]  # a fixture: these histories need small thresholds, too

SCALED = Rules(
    small_store=100,
    small_fan_in=8,
    fan_in=4,
    tier_rows=64,
    mixed_rows=16,
    block_rows=16,
    memory=170 * 250,
    task_rows=2,
)
EXAMPLES = int(os.environ.get("STATESTORE_EXAMPLES", "25"))
Rows = list[tuple[str, int | None, int]]


@pytest.fixture(autouse=True)
def ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take tasks for a session, and small stores for worth several tasks."""
    monkeypatch.setattr(task_runs, "_made", [lambda session: session])
    monkeypatch.setattr(compaction_rules, "DEFAULT", Rules(task_rows=2))


class Ranged(Pair):
    """A pair whose compactions run in tasks; writes may come while they do."""

    def compact_ranges(self, argument: tuple[bool, Rows]) -> None:
        full, rows = argument
        tasks = AttemptedTasks(then=lambda: self._write_meanwhile(rows))
        self.store.compact(full, spark=tasks)

    def _write_meanwhile(self, rows: Rows) -> None:
        if rows:
            self.write(rows)


class Programs:
    """Random steps of a `Ranged`."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def put(self) -> tuple[str, int | None, int]:
        value = None if self.random.random() < 0.3 else self.random.randrange(9)
        return self.random.choice("abc"), value, self.random.randrange(HORIZON)

    def rows(self, least: int) -> Rows:
        return [self.put() for _ in range(self.random.randrange(least, 6))]

    def step(self) -> tuple[str, Any]:
        name = self.random.choices(("write", "compact_ranges", "compact", "reopen"), (60, 25, 10, 5))[0]
        full = self.random.random() < 0.6
        arguments = {"write": self.rows(1), "compact_ranges": (full, self.rows(0)), "compact": full, "reopen": None}
        return name, arguments[name]


@pytest.mark.quick("2")
@pytest.mark.parametrize("seed", mostly_slow(range(EXAMPLES), (0, 1, 2)))
def test_random_histories_with_writes_meanwhile(tmp_path: Path, seed: int) -> None:
    programs = Programs(seed)
    pair = Ranged(str(tmp_path), None, auto_compact=False)
    for _ in range(programs.random.randrange(3, 14)):
        pair.step(*programs.step())
    pair.step("commit", None)
    check_everything(pair.store, pair.model, 4)
    pair.step("compact_ranges", (True, programs.rows(0)))
    check_everything(pair.store, pair.model, 4)
    pair.store.close()
    [verified] = statestore.verify(tmp_path)
    assert verified.ok, verified.problems


# A store of many keys


class Stream:
    """Commits with late records and deletes, and the true state of every moment."""

    def __init__(self, seed: int = 1) -> None:
        self.random = random.Random(seed)
        self.clock = 0
        self.values: dict[str, dict[int, int | None]] = {}

    def rows(self, count: int = 60) -> Rows:
        rows: Rows = []
        for _ in range(count):
            self.clock += 1
            time = self.random.randrange(self.clock) if self.random.random() < 0.05 else self.clock
            value = None if self.random.random() < 0.05 else self.clock
            rows.append((f"k{self.random.randrange(80)}", value, time))
            self.values.setdefault(rows[-1][0], {})[time] = value
        return rows

    def state_at(self, time: int) -> set[tuple[str, int]]:
        state = set()
        for key, values in self.values.items():
            begun = [moment for moment in values if moment <= time]
            if begun and (value := values[max(begun)]) is not None:
                state.add((key, value))
        return state


def check(store: VersionedStore, stream: Stream, first: int = 0) -> None:
    for time in range(first, stream.clock + 1, 97):
        assert set(rows_of(store.scan(as_of=time), "k", "v")) == stream.state_at(time), f"as of {time}"
    assert layout_violations(store._files, store._log_state) == []


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Stream]:
    """A store of twelve commits that was never compacted."""
    folder, stream = tmp_path_factory.mktemp("template"), Stream()
    create(statestore.connect(folder)).close()
    with statestore.connect(folder).open_store("s", auto_compact=False) as made:
        for _ in range(12):
            made.write(as_table(stream.rows()))
    return folder, stream


@pytest.fixture
def stream(template: tuple[Path, Stream]) -> Stream:
    return copy.deepcopy(template[1])


@pytest.fixture
def store(tmp_path: Path, template: tuple[Path, Stream], monkeypatch: pytest.MonkeyPatch) -> Iterator[VersionedStore]:
    monkeypatch.setattr(compaction_rules, "DEFAULT", SCALED)
    shutil.copytree(template[0], tmp_path, dirs_exist_ok=True)
    with statestore.connect(tmp_path).open_store("s", auto_compact=False) as found:
        yield found


def data_files(store: VersionedStore) -> set[str]:
    root = Path(store._storage.root)  # type: ignore[attr-defined]
    return {f"segments/{path.name}" for path in (root / "segments").iterdir()}


def named_files(store: VersionedStore) -> set[str]:
    [verified] = statestore.verify(store._storage.root)  # type: ignore[attr-defined]
    assert verified.ok, verified.problems
    return data_files(store) - {name for name, _ in verified.unreferenced}


def replaced_files(store: VersionedStore) -> set[str]:
    """The files of earlier versions, which stay until vacuum removes them."""
    return {ref.name for version in range(store.version) for ref in _refs(store, version)}


def _refs(store: VersionedStore, version: int) -> list[Any]:
    log_state = load_log_state(store._storage, version=version)
    refs = [ref for m in log_state.segments for ref in (m.file, m.index) if ref is not None]
    return refs + [piece.file for pieces in log_state.closures.values() for piece in pieces]


def test_one_commit_of_segments_that_share_no_key(store: VersionedStore, stream: Stream) -> None:
    before, tasks = store.version, AttemptedTasks()
    assert store.compact(full=True, spark=tasks) == before + 1
    check(store, stream)
    assert tasks.jobs[0] >= 720 * 9 // (250 * 8)  # no task may read more rows than a step
    opened = sorted(m.key_groups for m in store._log_state.segments if m.role == "open" and not m.tombstone)
    assert len({group for group, _ in opened}) > 1
    assert {m.role for m in store._log_state.segments} <= {"open", "closed", "belief"}
    assert not any(store._log_state.closures.values())
    assert data_files(store) == named_files(store)


def test_nothing_is_rewritten_where_nothing_is_due(store: VersionedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction_rules, "DEFAULT", Rules(task_rows=2))
    tasks = AttemptedTasks()
    assert store.compact(spark=tasks) == store.version and tasks.jobs == []
    version = store.compact(full=True, spark=tasks)
    assert store.compact(full=True, spark=tasks) == store.compact(spark=tasks) == version
    assert len(tasks.jobs) == 1


def test_a_due_compaction_leaves_nothing_due(store: VersionedStore, stream: Stream) -> None:
    rules = Rules(small_store=100, small_fan_in=8, fan_in=4, tier_rows=4096)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compaction_rules, "DEFAULT", rules)
        store.compact(spark=AttemptedTasks(parallelism=3))
        check(store, stream)
        assert next_step(store._log_state, rules, "due") is None


@pytest.mark.quick("0")
@pytest.mark.parametrize("counts", [0, 1])
def test_tasks_that_run_twice_leave_no_second_row_and_no_file(
    store: VersionedStore, stream: Stream, counts: int
) -> None:
    before = store.version
    assert store.compact(full=True, spark=AttemptedTasks(attempts=2, counts=counts)) == before + 1
    check(store, stream)
    assert data_files(store) == named_files(store)


def test_an_attempt_that_outlives_the_job_leaves_files_for_vacuum(store: VersionedStore, stream: Stream) -> None:
    late: list[Callable[[], object]] = []

    class Speculating(AttemptedTasks):
        def run(self, work: task_runs.Work, count: int) -> list[str]:
            late.append(lambda: work(0))
            return super().run(work, count)

    store.compact(full=True, spark=Speculating())
    named = data_files(store)
    late[0]()
    assert data_files(store) > named
    store.vacuum(older_than=0)
    assert data_files(store) == named_files(store) <= named
    check(store, stream)


def test_a_dead_attempt_is_repeated(store: VersionedStore, stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    write, calls = write_moves, []

    def dying(*given: Any) -> Any:
        calls.append(given)
        if math.isqrt(len(calls)) ** 2 == len(calls):
            raise TaskDied
        return write(*given)

    monkeypatch.setattr("statestore.catalog.upkeep.ranges.compact_range.write_moves", dying)
    monkeypatch.setattr("statestore.catalog.upkeep.ranges.compact_range.remove_files", lambda *given: None)
    before = store.version
    assert store.compact(full=True, spark=AttemptedTasks()) == before + 1
    check(store, stream)
    assert data_files(store) == named_files(store)


def test_a_failing_job_changes_nothing_and_leaves_no_file(
    store: VersionedStore, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, files = store.version, data_files(store)

    class Cluster(AttemptedTasks):
        def run(self, work: task_runs.Work, count: int) -> list[str]:
            super().run(work, count)
            raise RuntimeError("the cluster is gone")

    with pytest.raises(RuntimeError, match="gone"):
        store.compact(full=True, spark=Cluster())
    assert store.refresh() == before and data_files(store) == files
    store.compact(full=True, spark=AttemptedTasks())
    check(store, stream)


def test_a_lost_answer_is_noticed(store: VersionedStore, stream: Stream) -> None:
    class Forgetful(AttemptedTasks):
        def run(self, work: task_runs.Work, count: int) -> list[str]:
            return super().run(work, count)[1:]

    before = store.version
    with pytest.raises(statestore.CorruptError, match="SEGMENT_CORRUPT"):
        store.compact(full=True, spark=Forgetful())
    assert store.refresh() == before
    check(store, stream)


@pytest.mark.slow
def test_another_compaction_meanwhile_lets_the_job_run_again(
    store: VersionedStore, stream: Stream, tmp_path: Path
) -> None:
    rivals = [1]

    def rival() -> None:
        if rivals:
            rivals.pop()
            with statestore.connect(tmp_path).open_store("s", auto_compact=False) as other:
                other.compact(full=True)
                other.write(as_table(stream.rows()))

    tasks = AttemptedTasks(then=rival)
    store.compact(full=True, spark=tasks)
    check(store, stream)
    assert len(tasks.jobs) == 2
    assert data_files(store) - named_files(store) <= replaced_files(store)


@pytest.mark.slow
def test_a_rival_without_end_is_a_conflict(store: VersionedStore, stream: Stream, tmp_path: Path) -> None:
    def rival() -> None:
        with statestore.connect(tmp_path).open_store("s", auto_compact=False) as other:
            other.write(as_table(stream.rows()))
            other.compact(full=True)
            other.write(as_table(stream.rows()))

    with pytest.raises(statestore.ConflictError, match="COMPACTION_OVERTAKEN"):
        store.compact(full=True, spark=AttemptedTasks(then=rival))
    check(store, stream)


def test_expiry_removes_the_rows_and_refuses_the_moments(store: VersionedStore, stream: Stream) -> None:
    rows = sum(m.rows for m in store._log_state.segments)
    horizon = stream.clock // 2
    store.expire(before=horizon, spark=AttemptedTasks())
    check(store, stream, horizon)
    with pytest.raises(statestore.NotFoundError, match="TIME_NOT_KEPT"):
        store.scan(as_of=horizon - 1)
    left = [m for m in store._log_state.segments if m.role != "belief" and not m.tombstone]
    ends, closed = (
        np.concatenate([store._files.open_segment(m).int64(name) for m in left]) for name in ("valid_to", "_closed")
    )
    reached = store._log_state.horizon
    assert reached is not None and reached.time == horizon * 1000
    assert ((ends > reached.time) | (closed > reached.version)).all()
    assert sum(m.rows for m in store._log_state.segments) < rows


# Ranges


@pytest.mark.parametrize(("count", "groups"), [(1, 128), (3, 128), (128, 128), (5, 3), (7, 7), (1000, 128), (1, 1)])
def test_ranges_have_every_hash_once_and_whole_key_groups(count: int, groups: int) -> None:
    found = key_ranges(count, groups)
    assert len(found) == count and found[0].first == 0 and found[-1].last == 2**64 - 1
    assert all(a.last + 1 == b.first for a, b in itertools.pairwise(found))
    if count <= groups:
        hashes = hash_keys([pa.array(range(20_000))])
        owners = np.zeros(len(hashes), np.int64) - 1
        for number, keys in enumerate(found):
            owners[(hashes >= np.uint64(keys.first)) & (hashes <= np.uint64(keys.last))] = number
        assert (owners >= 0).all()
        of_group = {(group, owner) for group, owner in zip(key_groups_of(hashes, groups), owners, strict=True)}
        assert len(of_group) == len({group for group, _ in of_group})


def test_a_task_has_the_rows_of_a_step_at_most() -> None:
    rules, tasks = Rules(), AttemptedTasks(parallelism=8)
    assert range_count(1000, tasks, rules) == 1
    assert range_count(1 << 19, tasks, rules) == 4
    assert range_count(1 << 21, tasks, rules) == 8
    assert 10**8 / range_count(10**8, tasks, rules) <= rules.step_rows
