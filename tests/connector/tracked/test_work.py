"""Tasks of tracked batches without Spark: records in order, timeouts and commits.

The truth is the fixture of the original's scenarios, or a dict in plain Python that gets the same records.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.keyed.keyed_backends import refused
from support.keyed.tracked_cases import CASES, Case, count
from support.keyed.tracked_scripts import FAIL, LOOK, REMOVE, SEEN, Seen, ordered, scripted
from support.keyed.tracked_tasks import GROUPS, Tracking, as_table
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


# Tracked functions over columns do what functions over records do.


def scripted_columns(batch_time: datetime, keys: pa.Array, rows: pa.RecordBatch, states: pa.RecordBatch) -> Any:
    """Do the same as `scripted` for all keys at once; the records of a key are processed in order."""
    held, emitted = states.column("state").to_pylist(), []
    names = keys.to_pylist()
    for code, n in zip(rows.column("key").to_pylist(), rows.column("n").to_pylist(), strict=True):
        emitted.append((names[code], n, held[code], False))
        if n != LOOK:
            held[code] = None if n == REMOVE else (held[code] or 0) + n
    for code, out in enumerate(states.column("timing_out").to_pylist()):
        if out:
            emitted.append((names[code], None, held[code], True))
    schema = pa.schema([("word", "string"), ("n", "int64"), ("before", "int64"), ("out", "bool")])
    return pa.array(held, pa.int64()), as_table(emitted, schema).combine_chunks().to_batches()[0] if emitted else None


@pytest.mark.slow
@pytest.mark.parametrize("seed", mostly_slow(range(4), [1]))
def test_columns_do_what_records_do(tmp_path: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    timeout = 2000 if seed % 2 else None
    trackings = []
    for name, spec in (("r", StateSpec.function(scripted)), ("c", StateSpec.vectorized(scripted_columns))):
        trackings.append(Tracking(tmp_path / name, spec.timeout(timeout) if timeout else spec, output=SEEN))
        trackings[-1].put_initial([("w1", 5), ("w9", 6)])
    for number in range(15):
        count = int(random.integers(0, 10)) if number % 4 else 0
        words = [f"w{place}" for place in random.integers(0, 8, count)]
        records = list(zip(words, random.choice([LOOK, REMOVE, *range(4)], count).tolist(), strict=True))
        tasks = int(random.integers(1, 4))
        emitted = [ordered(tracking.batch(records, tasks=tasks, keeps=True)) for tracking in trackings]
        assert emitted[0] == emitted[1], f"batch {number}"
        assert trackings[0].states() == trackings[1].states()
        assert trackings[0].entries() == trackings[1].entries()


def test_columns_of_several_types(tmp_path: Path) -> None:
    """Keys of several columns, states that are structs, rows without a value; None leaves all states as they are."""

    def seen(batch_time: datetime, keys: pa.Array, rows: pa.RecordBatch, states: pa.RecordBatch) -> Any:
        counts = np.bincount(rows.column("key").to_numpy(), minlength=len(keys))
        before = [0 if state is None else state["n"] for state in states.column("state").to_pylist()]
        names = [key["word"] for key in keys.to_pylist()]
        after = [{"n": n + more, "name": name} for n, more, name in zip(before, counts, names, strict=True)]
        return pa.array(after, pa.struct([("name", pa.string()), ("n", pa.int32())]))

    kinds = {"word": "string", "n": "bigint"}
    spec = StateSpec.vectorized(seen)
    tracking = Tracking(tmp_path, spec, key=kinds, values={}, state={"n": "bigint", "name": "string"})
    for tasks in (1, 2):
        assert tracking.batch([("a", 1), ("a", 2), ("a", 1)], tasks=tasks) == []
    assert tracking.states() == {("a", 1): {"n": 4, "name": "a"}, ("a", 2): {"n": 2, "name": "a"}}
    tracking.spec = StateSpec.vectorized(lambda batch_time, keys, rows, states: None)
    tracking.batch([("a", 2), ("b", 2)])
    assert tracking.states() == {("a", 1): {"n": 4, "name": "a"}, ("a", 2): {"n": 2, "name": "a"}}


WRONG: dict[str, tuple[Any, str]] = {
    "too few": (pa.array([1]), "1 values"),
    "no array": ([1, 2], "list"),
    "of another type": (pa.array(["1", "2"]), "string"),
    "that do not fit": (pa.array([1.5, 2.0]), "double"),
    "with records of other columns": ((pa.array([1, 2]), pa.record_batch({"text": ["a"]})), "text"),
    "with records that are no batch": ((pa.array([1, 2]), [1]), "list"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_states_of_columns(tmp_path: Path, name: str) -> None:
    answer, told = WRONG[name]
    tracking = Tracking(tmp_path, StateSpec.vectorized(lambda batch_time, keys, rows, states: answer))
    with refused("FUNCTION_FAILED", told):
        tracking.batch([("a", 1), ("b", 1)])
    assert tracking.store.retained() == []
    assert tracking.store.vacuum(0) == []


def test_columns_keep_chunks_and_other_widths(tmp_path: Path) -> None:
    """Answers as computations give them: chunked, of 32 bits, all null."""
    answers: list[Any] = [pa.chunked_array([[1], [2]]), pa.array([3, 4], pa.int32()), pa.nulls(2)]
    tracking = Tracking(tmp_path, StateSpec.vectorized(lambda batch_time, keys, rows, states: answers.pop(0)))
    for expected in ({"a": 1, "b": 2}, {"a": 3, "b": 4}, {}):
        tracking.batch([("a", 1), ("b", 1)])
        assert tracking.states() == expected


# Types of keys, values and states of tracked batches, and initial states.

AT = datetime(2026, 11, 21, 12, 30, 0, 5, UTC)


DAY = AT.date()


TYPES: list[tuple[str, list[tuple[Any, Any]]]] = [
    (
        "struct<n:bigint,day:date>",
        [((1, DAY), {"n": 1, "day": DAY}), ({"day": None, "n": 2}, {"n": 2, "day": None})],
    ),
    ("array<string>", [(("a", None), ["a", None]), ([], [])]),
    ("map<string,bigint>", [({"a": 1, "b": None}, {"a": 1, "b": None}), ({}, {})]),
    ("array<struct<k:string,m:map<string,bigint>>>", [([("a", {"x": 1})], [{"k": "a", "m": {"x": 1}}])]),
    ("timestamp", [(AT.astimezone(timezone(timedelta(hours=5))), AT)]),
    ("date", [(DAY, DAY)]),
    ("decimal(9,2)", [(Decimal("1.5"), Decimal("1.50")), (3, Decimal("3.00")), (Decimal("-0"), Decimal("0.00"))]),
    ("binary", [(b"\0\xff", b"\0\xff"), (bytearray(b"ab"), b"ab"), (b"", b"")]),
    ("float", [(0.1, 0.10000000149011612)]),
    ("double", [(1, 1.0)]),
    ("boolean", [(np.bool_(False), False)]),
    ("string", [("é\0", "é\0"), ("", "")]),
    ("smallint", [(np.int64(-32768), -32768)]),
]


@pytest.mark.quick("array<struct*", "struct*", "timestamp", "decimal*", "float", "boolean")
@pytest.mark.parametrize(("kind", "values"), TYPES, ids=[kind for kind, _ in TYPES])
def test_a_state_is_the_same_in_the_same_batch_and_the_next(
    tmp_path: Path, kind: str, values: list[tuple[Any, Any]]
) -> None:
    """A state is canonical in whatever form it was written, also while it times out, and a change in place is no
    update."""
    seen: list[Any] = []

    def writes(batch_time: datetime, key: str, place: int | None, state: State) -> None:
        found = state.get_option()
        seen.append((copy.deepcopy(found), str(type(found)), str(found)))
        if isinstance(found, list):
            found.append("changed")
        if isinstance(found, dict):
            found["changed"] = 1
        if place is not None and place >= 0:
            state.update(values[place][0])

    tracking = Tracking(tmp_path, StateSpec.function(writes).timeout(1000), state=kind)
    for place, (_, expected) in enumerate(values):
        seen.clear()
        at = place * 10 + 1
        tracking.batch([("a", place), ("a", LOOK), ("a", LOOK)], at)
        tracking.batch([("a", LOOK)], at + 1)
        tracking.batch([], at + 5)
        assert [found for found, *_ in seen] == [None, *[expected] * 4]
        assert len({kind for _, kind, _ in seen[1:]}) == 1
        assert len({text for *_, text in seen[1:]}) == 1
        assert tracking.states() == {}


def test_values_are_as_users_write_them(tmp_path: Path) -> None:
    """One column bare, several a dict, none None; maps are dicts, at any depth."""
    seen: list[Any] = []

    def look(value: Any, state: State) -> None:
        seen.append(value)

    kinds = {"m": "map<string,bigint>", "at": "timestamp", "s": "array<struct<m:map<string,bigint>>>"}
    cells = ({"a": 1}, AT, [{"m": {"x": None}}, None])
    rows = [("k", *cells), ("k", None, None, None)]
    for number, values in enumerate([list(kinds), *([name] for name in kinds), []]):
        tracking = Tracking(tmp_path / str(number), StateSpec.function(look), values={n: kinds[n] for n in values})
        places = [0, *(1 + list(kinds).index(name) for name in values)]
        seen.clear()
        tracking.batch([tuple(row[place] for place in places) for row in rows])
        if not values:
            assert seen == [None, None]
        elif len(values) == 1:
            assert seen == [rows[0][places[1]], None]
        else:
            assert seen == [dict(zip(kinds, cells, strict=True)), dict.fromkeys(kinds)]


def test_a_wider_type_takes_the_states_along(tmp_path: Path) -> None:
    """States are widened from one batch to the next, also in kept backends; a lossy change is refused."""
    tracking = Tracking(tmp_path, StateSpec.function(count).timeout(5000), state="int")
    tracking.batch([("a", 1), ("b", 2)], keeps=True)
    tracking.state = pa.int64()
    assert tracking.batch([("a", 1 << 40)], keeps=True) == [1 + (1 << 40)]
    tracking.state = pa.string()
    with refused("INCOMPATIBLE_STATE", "'state'"):
        tracking.batch([("a", 1)], keeps=True)
    assert tracking.states() == {"a": 1 + (1 << 40), "b": 2}


def test_keys_of_several_columns(tmp_path: Path) -> None:
    kinds = {"word": "string", "day": "date", "n": "int"}
    seen: list[Any] = []

    def keyed(batch_time: datetime, key: Any, value: int | None, state: State) -> None:
        seen.append(key)
        if value is not None:
            count(value, state)

    tracking = Tracking(tmp_path, StateSpec.function(keyed).timeout(1000), key=kinds, values={"v": "bigint"})
    first, second = ("a", DAY, 1), ("a", DAY, -1)
    tracking.batch([(*first, 1), (*second, 2), (*first, 3)], 1, tasks=3)
    assert tracking.states() == {first: 4, second: 2}
    tracking.batch([(*second, 5)], 2, tasks=2)
    tracking.batch([(*second, 5)], 3, tasks=2)
    assert tracking.states() == {second: 12}
    assert [tuple(key.values()) for key in seen[-2:]] == [second, first]
    assert set(seen[0]) == set(kinds)


def test_keys_without_a_value(tmp_path: Path) -> None:
    def occurrences(value: None, state: State) -> int:
        assert value is None
        state.update((state.get_option() or 0) + 1)
        return int(state.get())

    tracking = Tracking(tmp_path, StateSpec.function(occurrences), values={})
    assert tracking.batch([("a",), ("b",), ("a",)]) == [1, 1, 2]
    assert tracking.states() == {"a": 2, "b": 1}


def test_initial_states_that_are_refused(tmp_path: Path) -> None:
    tracking = Tracking(tmp_path, StateSpec.function(count))
    with refused("WRONG_INITIAL_STATE", "'b'", "twice"):
        tracking.put_initial([("a", 1), ("b", 2), ("b", 2)])
    with refused("WRONG_INITIAL_STATE", "1 initial states are null"):
        tracking.put_initial([("a", None)])
    with refused("NULL_KEY"):
        tracking.put_initial([(None, 1)])
    for wrong in ({}, {"x": "bigint", "y": "bigint"}, {"x": "string"}):
        with refused("WRONG_INITIAL_STATE", "int64"):
            tracking.put_initial([("a", *([None] * len(wrong)))], kinds=wrong)
    assert tracking.store.retained() == []
    assert tracking.store.vacuum(0) == []


def test_initial_states_time_out_from_when_they_were_put(tmp_path: Path) -> None:
    tracking = Tracking(tmp_path, StateSpec.function(scripted).timeout(2000), output=SEEN)
    tracking.put_initial([("a", 1), ("b", 2)], at=10, tasks=3)
    assert tracking.batch([("b", LOOK)], 12) == [("b", LOOK, 2, False)]
    assert tracking.batch([], 13) == [("a", None, 1, True)]
    assert tracking.states() == {"b": 2}


def test_initial_states_of_several_columns(tmp_path: Path) -> None:
    tracking = Tracking(tmp_path, StateSpec.function(count), state={"n": "bigint", "m": "map<string,bigint>"})
    tracking.put_initial([("a", 1, {"x": 1}), ("b", None, None)], tasks=2)
    assert tracking.states() == {"a": {"n": 1, "m": [("x", 1)]}, "b": {"n": None, "m": None}}


def test_a_timeout_that_comes_and_goes(tmp_path: Path) -> None:
    """Keys have times from their next record on; records without a timeout between count too."""
    timed, untimed = StateSpec.function(scripted).timeout(2000), StateSpec.function(scripted)
    tracking = Tracking(tmp_path, untimed, output=SEEN)
    tracking.batch([("a", 1), ("b", 1), ("c", 1)], 1)
    tracking.spec = timed
    assert tracking.batch([("a", LOOK), ("b", LOOK)], 10) == [("a", LOOK, 1, False), ("b", LOOK, 1, False)]
    tracking.spec = untimed
    tracking.batch([("b", 5), ("d", 1)], 20, tasks=3)
    tracking.batch([], 30)
    tracking.spec = timed
    assert tracking.batch([], 21) == [("a", None, 1, True)]
    assert sorted(tracking.batch([], 40)) == [("b", None, 6, True), ("d", None, 1, True)]
    assert tracking.states() == {"c": 1}
