"""States of tracked keys as a map of key -> (state, time): the state map of Spark's first trackStateByKey.

A copy into a child generation is a snapshot here: work goes on, and the parent is the version that was committed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.keyed.keyed_backends import keyed_store, local
from support.keyed.tracked_cases import STATE_MAP

from statestore.catalog.keyed.backend import KeyedBackend
from statestore.catalog.keyed.keyed_store import KeyedStore
from statestore.connector.tracked.tracked_states import STATE, UPDATED, Keys, TrackedStates

GROUPS = 8
Entries = dict[int, tuple[int, int]]
"""State and time by key."""


class Map:
    """One backend with all key groups; times are microseconds."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.store: KeyedStore = keyed_store(root, {"k": "bigint"}, GROUPS)
        self.reopen(self.store.backend(directory=local(root)))

    def reopen(self, backend: KeyedBackend) -> None:
        self.backend = backend
        self.states = TrackedStates(backend, pa.int64(), GROUPS, timed=True)

    def keys(self, keys: Sequence[int]) -> Keys:
        return self.states.distinct([pa.array(keys, pa.int64())])[0]

    def put(self, key: int, state: int, time: int) -> None:
        self.put_all({key: (state, time)})

    def put_all(self, entries: Entries) -> None:
        """Put all entries at the time of the first."""
        states, times = zip(*entries.values(), strict=True)
        self.states.put(self.keys(list(entries)), pa.array(states, pa.int64()), times[0])

    def remove(self, *keys: int) -> None:
        self.states.remove(self.keys(keys))

    def get(self, *keys: int) -> list[int | None]:
        found: list[int | None] = self.states.get(self.keys(keys)).to_pylist()
        return found

    def by_time(self, before: int) -> Entries:
        found = self.states.idle(before)
        times = self.backend.value_columns(UPDATED, "timestamp").get(found.stored).cast(pa.int64()).to_pylist()
        states = self.states.get(found).to_pylist()
        return dict(zip(found.columns[0].to_pylist(), zip(states, times, strict=True), strict=True))

    def all(self) -> Entries:
        """All states, read key by key and not by time."""
        value, updated = self.backend.value_state(STATE, "bigint"), self.backend.value_state(UPDATED, "timestamp")
        found = {}
        for key in self.backend.keys(STATE):
            self.backend.set_current_key(key)
            found[key] = (value.value(), int(updated.value().timestamp() * 1_000_000 + 0.5))
        return found

    def copy(self) -> int:
        """Commit; return the version, which is now the parent."""
        self.newest = self.backend.snapshot("incremental").result()
        version = self.store.commit([self.newest])
        self.backend.notify_complete(version)
        return version

    def parent_all(self, version: int) -> Entries:
        found = [self.store.scan(name, version=version).read_all().to_pylist() for name in (STATE, UPDATED)]
        states, times = [{row["k"]: row["value"] for row in rows} for rows in found]
        return {key: (state, int(times[key].timestamp() * 1_000_000 + 0.5)) for key, state in states.items()}


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Map]:
    made = Map(tmp_path)
    yield made
    made.backend.dispose()


def entries(told: list[list[int]]) -> Entries:
    return {key: (state, time) for key, state, time in told}


@pytest.mark.parametrize("case", STATE_MAP, ids=[case["id"] for case in STATE_MAP])
def test_the_original_scenarios(held: Map, case: dict[str, Any]) -> None:
    parents: dict[int, Entries] = {}
    for place, (name, *told) in enumerate(case["ops"]):
        at = f"step {place}, {name} {told}"
        match name:
            case "put":
                held.put(*told)
            case "remove":
                held.remove(*told)
            case "copy":
                before = held.all()
                parents[held.copy()] = before
            case "get":
                assert held.get(told[0]) == [told[1]], at
            case "by_time":
                assert held.by_time(told[0]) == entries(told[1]), at
            case "all":
                assert held.all() == entries(told[0]), at
            case "parent_all":
                assert held.parent_all(max(parents)) == entries(told[0]), at
            case other:
                raise AssertionError(f"no step {other}")
    for version, expected in parents.items():
        assert held.parent_all(version) == expected


def test_all_sequences_of_nine_operations(held: Map) -> None:
    """A key for each of the 512 sequences of put and remove in three generations, all checked after every step."""
    model: Entries = {}
    parents: dict[int, Entries] = {}
    sequences = list(itertools.product((True, False), repeat=9))
    for step in range(9):
        if step and step % 3 == 0:
            parents[held.copy()] = dict(model)
        time = 10 + step
        puts = {key: (1000 * step + key, time) for key, puts in enumerate(sequences) if puts[step]}
        held.put_all(puts)
        model.update(puts)
        gone = [key for key, puts in enumerate(sequences) if not puts[step]]
        held.remove(*gone)
        for key in gone:
            model.pop(key, None)
        assert held.get(*range(512)) == [model.get(key, (None,))[0] for key in range(512)]
        assert held.all() == model
        for before in range(9, time + 3):
            assert held.by_time(before) == {key: entry for key, entry in model.items() if entry[1] < before}
        for version, expected in parents.items():
            assert held.parent_all(version) == expected
    assert [len(each) for each in parents.values()] == [256, 256]


def test_a_key_that_is_put_again_is_idle_from_then(held: Map) -> None:
    """The last time of a key counts, also after it was removed, and when times go backwards."""
    for time in (5, 9, 7):
        held.put(1, time, time)
        assert held.by_time(100) == {1: (time, time)}
        assert held.by_time(time) == {}
    held.states.touch(held.keys([1]), 8)
    assert held.by_time(100) == {1: (7, 8)}
    held.remove(1)
    assert held.by_time(100) == {}
    held.put(1, 3, 3)
    assert held.by_time(100) == {1: (3, 3)}


def test_times_before_the_epoch_and_far_ahead(held: Map) -> None:
    times = [-(1 << 63), -1_000_000, -1, 0, 1, (1 << 63) - 2]
    for key, time in enumerate(times):
        held.states.put(held.keys([key]), pa.array([key]), time)
    for before in (*times, (1 << 63) - 1):
        found = held.states.idle(before)
        assert sorted(found.columns[0].to_pylist()) == [key for key, time in enumerate(times) if time < before]


def test_many_generations(held: Map) -> None:
    """30 copies of 400 keys, so that tables are merged below: no version changes, nor does what is restored."""
    random, model = np.random.default_rng(3), dict[int, tuple[int, int]]()
    parents: dict[int, Entries] = {}
    for generation in range(30):
        chosen = random.permutation(400)[:60].tolist()
        puts = {key: (generation * 1000 + key, generation) for key in chosen[:40]}
        held.put_all(puts)
        held.remove(*chosen[40:])
        model.update(puts)
        for key in chosen[40:]:
            model.pop(key, None)
        parents[held.copy()] = dict(model)
        if generation in (10, 21):  # from its files, as after a failure
            held.backend.dispose()
            held.reopen(held.store.backend(directory=local(held.root)))
        if generation % 10 == 9:
            assert held.all() == model
            for before in (generation - 15, generation - 2, generation + 1):
                assert held.by_time(before) == {key: entry for key, entry in model.items() if entry[1] < before}
    assert held.newest.reused, "snapshots share files"
    assert len(held.newest.shared) < 30, "tables were merged"
    for version, expected in itertools.islice(parents.items(), 0, None, 7):
        assert held.parent_all(version) == expected
    held.backend.dispose()
    held.reopen(held.store.backend(version=9, directory=local(held.root)))
    assert held.all() == parents[9]


def test_distinct_keys_in_order_of_appearance(held: Map) -> None:
    keys, codes = held.states.distinct([pa.array([7, 3, 7, 9, 3, 7], pa.int64())])
    assert keys.columns[0].to_pylist() == [7, 3, 9]
    assert codes.tolist() == [0, 1, 0, 2, 1, 0]
    assert held.states.get(keys).to_pylist() == [None] * 3
    keys, codes = held.states.distinct([pa.array([], pa.int64())])
    assert (len(keys), len(codes), len(held.states.get(keys))) == (0, 0, 0)


def test_without_a_timeout_no_times_are_kept(tmp_path: Path) -> None:
    """Unless there was one before: it may come back, and must not find old times then."""
    with keyed_store(tmp_path, {"k": "bigint"}, GROUPS).backend(directory=local(tmp_path)) as backend:
        for timed, rows in ((False, 1), (True, 3), (False, 3)):
            states = TrackedStates(backend, pa.int64(), GROUPS, timed=timed)
            keys, _ = states.distinct([pa.array([1], pa.int64())])
            states.put(keys, pa.array([1]), 5)
            assert backend.num_entries() == rows
            states.remove(keys)
            assert backend.num_entries() == 0


def test_a_timeout_that_comes_back_finds_no_old_times(held: Map) -> None:
    """The key had a record at 9, in a run without a timeout."""
    held.states.put(held.keys([1]), pa.array([1]), 5)
    TrackedStates(held.backend, pa.int64(), GROUPS, timed=False).put(held.keys([1]), pa.array([2]), 9)
    again = TrackedStates(held.backend, pa.int64(), GROUPS, timed=True)
    assert [len(again.idle(before)) for before in (6, 9, 10)] == [0, 0, 1]
