"""Replayed changes against a model in plain Python, which carries them out one by one."""

from __future__ import annotations

from random import Random

import numpy as np
import pyarrow as pa
import pytest
from support.flink.change_bytes import Change, changes_of, entries_of, i32, i64, materialized
from support.parameters import mostly_slow

from statestore.formats.bytes.byte_columns import cells_of
from statestore.formats.flink.changelog.logged_changes import (
    ADD,
    ADD_ALL,
    CLEAR,
    PUT,
    REMOVE,
    SET,
    SET_INTERNAL,
    LoggedChanges,
)
from statestore.formats.flink.changelog.replay import (
    replayed_list,
    replayed_map,
    replayed_timers,
    replayed_values,
)
from statestore.formats.flink.serializers.flink_types import Basic, ListOf, MapOf, TimerOf
from statestore.formats.kernels import compiled_use

LONG = Basic("long")
SEEDS = mostly_slow(list(range(40)), [0, 1, 2])


@pytest.fixture(params=[False, True], ids=["plain", "compiled"])
def loops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param:
        pytest.importorskip("numba")
        __import__(compiled_use.COMPILED)
    monkeypatch.setattr(compiled_use, "is_loaded", lambda: request.param)


@pytest.mark.usefixtures("loops")
@pytest.mark.parametrize("seed", SEEDS)
def test_the_last_change_of_a_value_counts(seed: int) -> None:
    random = Random(seed)
    names = [bytes([random.randrange(256)] * random.randint(1, 3)) for _ in range(12)]
    before = {name: b"old" + name for name in random.sample(sorted(set(names)), 6)}
    model, changes = dict(before), list[Change]()
    for number in range(random.randint(1, 60)):
        name, operation = random.choice(names), random.choice((CLEAR, SET, SET_INTERNAL))
        changes.append((operation, name, b"" if operation == CLEAR else i64(number)))
        if operation == CLEAR:
            model.pop(name, None)
        else:
            model[name] = i64(number)
    assert entries_of(replayed_values(changes_of(changes), 1, lambda: materialized(before))) == model


@pytest.mark.usefixtures("loops")
@pytest.mark.parametrize("seed", SEEDS)
def test_elements_are_added_behind_those_that_a_list_has(seed: int) -> None:
    random = Random(seed)
    names = [b"\x02" + bytes([letter]) for letter in b"abcdefgh"]
    lists = {name: [i64(random.randrange(99)) for _ in range(random.randint(1, 3))] for name in random.sample(names, 4)}
    before = {name: b",".join(elements) for name, elements in lists.items()}
    changes: list[Change] = []
    for number in range(random.randint(1, 60)):
        name, operation = random.choice(names), random.choice((CLEAR, SET, SET_INTERNAL, ADD_ALL, ADD, ADD))
        several = [i64(number), b",,,,,,,,", i64(7)][: random.randint(0, 3)]
        if operation in (CLEAR, SET, SET_INTERNAL):
            lists[name] = []
        if operation == ADD:
            changes.append((ADD, name, i64(number)))
            lists.setdefault(name, []).append(i64(number))
        elif operation == CLEAR:
            changes.append((CLEAR, name, b""))
        else:
            changes.append((operation, name, i32(len(several)) + b"".join(several)))
            lists.setdefault(name, []).extend(several)
    model = {name: b",".join(elements) for name, elements in lists.items() if elements}
    found = replayed_list(changes_of(changes), ListOf(LONG), 1, lambda: materialized(before), "state")
    assert entries_of(found) == model


@pytest.mark.usefixtures("loops")
@pytest.mark.parametrize("seed", SEEDS)
def test_entries_of_a_map_are_put_and_removed_one_by_one(seed: int) -> None:
    random = Random(seed)
    names, fields = (
        [b"\x02" + bytes([letter]) for letter in b"abcde"],
        [b"\x03x" + bytes([letter]) for letter in b"qrs"],
    )
    before = {name + field: b"\0" + i64(random.randrange(99)) for name in random.sample(names, 3) for field in fields}
    model, changes = dict(before), list[Change]()
    for number in range(random.randint(1, 60)):
        name, field = random.choice(names), random.choice(fields)
        operation = random.choice((CLEAR, ADD_ALL, ADD, PUT, PUT, REMOVE))
        if operation == CLEAR:
            changes.append((CLEAR, name, b""))
            for key in [key for key in model if key.startswith(name)]:
                del model[key]
        elif operation == REMOVE:
            changes.append((REMOVE, name, field))
            model.pop(name + field, None)
        elif operation == ADD_ALL:  # the second entry is null
            changes.append((ADD_ALL, name, i32(2) + field + b"\0" + i64(number) + b"\x02z" + b"\1"))
            model[name + field] = b"\0" + i64(number)
            model[name + b"\x02z"] = b"\1"
        else:
            changes.append((operation, name, field + i64(number)))
            model[name + field] = b"\0" + i64(number)
    kind = MapOf(Basic("string"), LONG)
    assert entries_of(replayed_map(changes_of(changes), kind, 1, lambda: materialized(before), "state")) == model


@pytest.mark.usefixtures("loops")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_timer_is_removed_in_whatever_key_group_that_was_logged(seed: int) -> None:
    random = Random(seed)
    group_of = {i64(number): random.randrange(8) for number in range(6)}
    timers = [i64(time) + key for key in group_of for time in (1, 2)]
    before = dict.fromkeys(random.sample(timers, 5), b"")
    model, groups, operations, payloads = set(before), list[int](), list[int](), list[bytes]()
    for _ in range(random.randint(1, 40)):
        timer = random.choice(timers)
        is_added = random.random() < 0.6
        groups.append(group_of[timer[8:]] if is_added else random.randrange(8))
        operations.append(ADD if is_added else REMOVE)
        payloads.append(i32(1) + timer if is_added else timer)
        if is_added:
            model.add(timer)
        else:
            model.discard(timer)
    stored = {bytes([group_of[timer[8:]]]) + timer: b"" for timer in before}
    logged = cells_of(pa.array(payloads, pa.binary()))
    changes = LoggedChanges(np.array(groups), np.array(operations), logged, logged)
    kind = TimerOf(LONG, Basic("null_value"))
    found = replayed_timers(changes, kind, 1, (0, 7), lambda: materialized(stored), "state")
    assert set(entries_of(found)) == {bytes([group_of[timer[8:]]]) + timer for timer in model}
    some = replayed_timers(changes, kind, 1, (2, 3), lambda: materialized({}), "state")
    assert {each[0] for each in entries_of(some)} <= {2, 3}
