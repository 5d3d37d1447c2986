"""Tasks of tracked batches without Spark: records in order, timeouts and commits.

The truth is the fixture of the original's scenarios, or a dict in plain Python that gets the same records.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.keyed.keyed_backends import refused
from support.keyed.tracked_cases import CASES, Case, count
from support.keyed.tracked_scripts import FAIL, LOOK, REMOVE, SEEN, Seen, ordered, scripted
from support.keyed.tracked_tasks import GROUPS, Tracking
from support.parameters import mostly_slow
from support.places import DIRECTORY, MEMORY

from statestore.catalog.keyed.rows.database import LocalDatabase
from statestore.connector.tracked.spec import State
from statestore.connector.tracked.tracked_states import IDLE, STATE, UPDATED
from statestore.tracked import StateSpec

pytest_plugins = ["support.keyed.tracked_fixtures", "support.keyed.keyed_place_fixtures"]
PLACES = (DIRECTORY, MEMORY)
pytestmark = pytest.mark.usefixtures("workers")


@pytest.mark.quick("directory-*[!t]-3", "directory-timing-out-1", "memory-removing-3")
@pytest.mark.parametrize("tasks", [1, 3])
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_the_original_scenarios(place: str, case: Case, tasks: int) -> None:
    tracking = Tracking(place, case.spec(), output=case.output)
    if case.initial is not None:
        tracking.put_initial(case.initial, tasks=tasks)
    emitted = []
    for words in case.batches:
        found = tracking.batch([(word, 1) for word in words], tasks=tasks, keeps=True)
        emitted.append([list(each) if isinstance(each, tuple) else each for each in found])
    first = 1 if case.initial is None else 2
    states = [tracking.states(first + number) for number in range(len(case.batches))]
    case.check(emitted, states)
    assert tracking.states() == states[-1], "the newest version"


class Model:
    """States with the times of their last records."""

    def __init__(self, timeout: int | None) -> None:
        self.timeout = timeout
        self.states: dict[str, tuple[int, int]] = {}

    def batch(self, records: list[tuple[str, int]], time: int) -> list[Seen]:
        emitted: list[Seen] = []
        for key, n in records:
            before = self.states[key][0] if key in self.states else None
            emitted.append((key, n, before, False))
            if n == REMOVE:
                self.states.pop(key, None)
            elif n >= 0:
                self.states[key] = ((before or 0) + n, time)
            elif before is not None:
                self.states[key] = (before, time)
        if self.timeout is not None:
            for key, (state, last) in list(self.states.items()):
                if last < time - self.timeout:
                    emitted.append((key, None, state, True))
                    del self.states[key]
        return emitted


@pytest.mark.parametrize("seed", mostly_slow(range(4), []))
def test_random_schedules(tmp_path: Path, seed: int) -> None:
    """Puts, looks, removals, timeouts, initial states, failures, idle batches and other numbers of tasks."""
    random = np.random.default_rng(seed)
    timeout = None if seed % 4 == 3 else int(random.integers(1, 6))
    spec = StateSpec.function(scripted)
    tracking = Tracking(tmp_path, spec if timeout is None else spec.timeout(timeout * 1000), output=SEEN)
    model, words = Model(timeout), [f"w{number}" for number in range(12)]
    if seed % 2:
        initial = [(word, int(random.integers(0, 50))) for word in words[::3]]
        tracking.put_initial(initial, tasks=2)
        model.states = {word: (state, 0) for word, state in initial}
    time, versions = 0, list[dict[str, int]]()
    for number in range(12):
        time += int(random.integers(1, 4))
        count, tasks = int(random.integers(0, 12)), int(random.choice([1, 1, 2, 3, GROUPS]))
        chosen = [words[index] for index in random.integers(0, len(words), count)]
        records = list(zip(chosen, random.choice([LOOK, LOOK, REMOVE, *range(5)], count).tolist(), strict=True))
        keeps = number % 3 > 0
        if number % 6 == 4:
            with refused("FUNCTION_FAILED", "'bad'", f"batch at {time}", "LookupError: told to"):
                tracking.batch([*records, ("bad", FAIL)], time, tasks=tasks, keeps=keeps)
        emitted = tracking.batch(records, time, tasks=tasks, keeps=keeps)
        assert ordered(emitted) == ordered(model.batch(records, time)), f"batch {number}"
        versions.append({word: state for word, (state, _) in model.states.items()})
        assert tracking.states() == versions[-1]
        expected = {STATE} if timeout is None else {STATE, UPDATED, IDLE}
        assert tracking.entries() == dict.fromkeys(expected, len(model.states)), "no time is left behind"
    kept = tracking.store.retained()
    assert len(kept) == len(versions) + seed % 2, "what failed is no version"
    assert [tracking.states(version) for version in kept[seed % 2 :]] == versions
    assert tracking.store.vacuum(0) == [], "nothing is left of what failed"


def test_records_of_a_key_come_in_order(tmp_path: Path) -> None:
    """Each record sees the state that the one before left, also a removal; a removed state may be put again."""
    tracking = Tracking(tmp_path, StateSpec.function(scripted).timeout(5000), output=SEEN)
    given = [("a", 1), ("b", 10), ("a", 2), ("a", REMOVE), ("b", LOOK), ("a", LOOK), ("a", 7), ("a", LOOK)]
    befores = [None, None, 1, 3, 10, None, None, 7]
    assert tracking.batch(given) == [(key, n, seen, False) for (key, n), seen in zip(given, befores, strict=True)]
    assert tracking.states() == {"a": 7, "b": 10}
    tracking.batch([("a", REMOVE), ("a", 4), ("b", 1), ("b", REMOVE)])
    assert tracking.states() == {"a": 4}
    tracking.batch([("c", 4), ("c", REMOVE), ("d", REMOVE), ("e", LOOK)])
    assert tracking.states() == {"a": 4}
    assert tracking.entries() == {STATE: 1, UPDATED: 1, IDLE: 1}


def test_a_record_in_time_holds_a_timeout_off(tmp_path: Path) -> None:
    """A record that only looks holds it off, too; after more than the duration the key begins anew."""
    tracking = Tracking(tmp_path, StateSpec.function(scripted).timeout(3000), output=SEEN)
    tracking.batch([("a", 1), ("b", 2), ("c", 3)], 10)
    assert tracking.batch([], 13) == [], "just the duration is not more"
    assert sorted(tracking.batch([("a", LOOK), ("b", 5)], 14)) == [
        ("a", LOOK, 1, False),
        ("b", 5, 2, False),
        ("c", None, 3, True),
    ]
    assert tracking.states() == {"a": 1, "b": 7}
    assert sorted(tracking.batch([("c", LOOK), ("a", REMOVE)], 18)) == [
        ("a", REMOVE, 1, False),
        ("b", None, 7, True),
        ("c", LOOK, None, False),
    ]
    assert tracking.states() == {}
    assert tracking.batch([("b", 1)], 30) == [("b", 1, None, False)]
    assert tracking.entries() == {STATE: 1, UPDATED: 1, IDLE: 1}


def test_timing_out_changes_nothing_and_may_emit_nothing(tmp_path: Path) -> None:
    def silent(value: int | None, state: State) -> None:
        if not state.is_timing_out():
            state.update(value)

    tracking = Tracking(tmp_path, StateSpec.function(silent).timeout(1000))
    tracking.batch([("a", 1)], 1)
    assert tracking.batch([], 5) == []
    assert tracking.states() == {}

    for call in (lambda state: state.update(1), lambda state: state.remove()):

        def wrong(value: int | None, state: State, call: Callable[[State], None] = call) -> None:
            state.update(value) if value is not None else call(state)

        tracking.spec = StateSpec.function(wrong).timeout(1000)
        tracking.batch([("b", 2)], 10)
        with refused("FUNCTION_FAILED", "'b'", "STATE_TIMING_OUT"):
            tracking.batch([("c", 1)], 15)
        assert tracking.states() == {"b": 2}, "nothing was committed"


def test_rules_are_told_with_the_key(tmp_path: Path) -> None:
    def wrong(value: int, state: State) -> Any:
        if value == 1:
            state.remove()
            state.update(1)
        if value == 4:
            return "text"
        state.update({2: "text", 3: None}.get(value, value))
        return None

    tracking = Tracking(tmp_path, StateSpec.function(wrong))
    tracking.batch([("a", 9)])
    for value, told in enumerate(("STATE_REMOVED", "WRONG_VALUE", "NULL_VALUE", "WRONG_VALUE"), 1):
        with refused("FUNCTION_FAILED", "'bad'", told):
            tracking.batch([("a", 10), ("bad", value)], tasks=2)
        assert tracking.states() == {"a": 9}
    assert tracking.store.retained() == [1]


def test_empty_batches_are_versions(tmp_path: Path) -> None:
    tracking = Tracking(tmp_path, StateSpec.function(count))
    for rows in ([], [("a", 1)], []):
        tracking.batch(rows)
    assert [tracking.states(version) for version in (1, 2, 3)] == [{}, {"a": 1}, {"a": 1}]


def test_batch_time_is_told_in_utc(tmp_path: Path) -> None:
    def times(batch_time: datetime, key: str, value: int | None, state: State) -> datetime:
        assert batch_time.tzinfo is UTC
        if value is not None:
            state.update(value)
        return batch_time

    tracking = Tracking(tmp_path, StateSpec.function(times).timeout(1000), output="timestamp")
    assert tracking.batch([("a", 1)], 100) == [datetime.fromtimestamp(100, UTC)]
    assert tracking.batch([], 102) == [datetime.fromtimestamp(102, UTC)]


def test_a_batch_reads_no_other_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of two of 3000 keys looks up two, and looks through no more times than are due."""
    tracking = Tracking(tmp_path, StateSpec.function(scripted).timeout("1 hour"), output=SEEN)
    tracking.batch([(f"w{number}", 1) for number in range(3000)])
    asked: list[int] = []
    get_many, keys = LocalDatabase.get_many, LocalDatabase.keys_between

    def counted_get(self: LocalDatabase, state: str, wanted: list[bytes]) -> Any:
        asked.append(len(wanted))
        return get_many(self, state, wanted)

    def counted_keys(self: LocalDatabase, state: str, first: bytes, stop: bytes) -> Any:
        found = keys(self, state, first, stop)
        asked.append(len(found))
        return found

    def no_scan(self: LocalDatabase, state: str, prefix: bytes = b"") -> Any:
        raise AssertionError("all rows are read")

    monkeypatch.setattr(LocalDatabase, "get_many", counted_get)
    monkeypatch.setattr(LocalDatabase, "keys_between", counted_keys)
    monkeypatch.setattr(LocalDatabase, "rows", no_scan)
    assert sorted(tracking.batch([("w1", 1), ("w2", 1)], 2)) == [("w1", 1, 1, False), ("w2", 1, 1, False)]
    assert sum(asked) == 4, "their states and times"
    assert len(tracking.batch([("w1", 1)], 3602)) == 1 + 2998
