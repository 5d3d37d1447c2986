"""Keyed backends: calls that are refused, keys of states and how they are given, disposal and clearing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.keyed.keyed_backends import Mean, keyed_store, local, refused
from support.keyed.state_steps import STATES, Renamed, calls_of, listed

from statestore.catalog.keyed.backend import KeyedBackend
from statestore.catalog.keyed.keyed_store import KeyedStore
from statestore.catalog.keyed.rows.database import RANGE_ROWS

pytest_plugins = ["support.keyed.keyed_fixtures"]


# Refused calls


def test_without_a_current_key(backend: KeyedBackend) -> None:
    for kind, open_state in STATES.items():
        if kind == "value_default":
            continue
        for name, namespace in (("s", None), ("by", "bigint")):
            state = open_state(Renamed(backend, kind + name), namespace)  # type: ignore[arg-type]
            if namespace:
                state.set_current_namespace(1)
            for call in calls_of(state):
                with refused("NO_CURRENT_KEY"):
                    listed(call())


def test_a_key_of_another_backend_s_groups(store: KeyedStore, tmp_path: Path) -> None:
    """Refused, and the key before stays current; each key is taken by just the backend of its group."""
    tasks = [store.backend(groups, directory=local(tmp_path)) for groups in store.task_groups(3)]
    states = [task.value_state("s", "string") for task in tasks]
    for number in range(60):
        key = f"k{number}"
        taken = 0
        for task, state in zip(tasks, states, strict=True):
            if task.key_group(key) in task.key_groups:
                task.set_current_key(key)
                state.update(key)
                taken += 1
            else:
                with refused("WRONG_KEY_GROUP", repr(key), str(task.key_group(key))):
                    task.set_current_key(key)
        assert taken == 1
    found = [key for task in tasks for key in task.keys("s")]
    assert sorted(found) == sorted(f"k{number}" for number in range(60))
    for task, state in zip(tasks, states, strict=True):
        key = next(iter(task.keys("s")))
        task.set_current_key(key)
        with refused("WRONG_KEY"):
            task.set_current_key(3)
        with refused("NULL_KEY"):
            task.set_current_key(None)
        assert state.value() == key
        task.dispose()


@pytest.mark.parametrize(
    "name", ["default", "", "  ", "a/b", "a\\b", "a.b", "a$b", "a\nb", "a\x00", "x" * 201, "é" * 101, "\ud800", None, 3]
)
def test_names_that_states_can_not_have(name: Any, backend: KeyedBackend) -> None:
    with refused("INVALID_NAME", repr(name)):
        backend.value_state(name, "bigint")
    assert backend.states() == []


def test_names_that_differ_by_case_only(backend: KeyedBackend) -> None:
    backend.value_state("Total", "bigint")
    with refused("INVALID_NAME", "'Total'", "'total'"):
        backend.value_state("total", "bigint")


@pytest.mark.parametrize("taken", ["k", "K", "value", "user_key", "position"])
def test_namespace_columns_that_its_table_has_otherwise(taken: str, backend: KeyedBackend) -> None:
    with refused("WRONG_SCHEMA", taken):
        backend.value_state("s", "bigint", namespace={taken: "bigint"})


SAME_NAME: dict[str, tuple[Callable[[KeyedBackend], Any], Callable[[KeyedBackend], Any], tuple[str, str]]] = {
    "kind": (
        lambda backend: backend.value_state("s", "bigint"),
        lambda backend: backend.list_state("s", "bigint"),
        ("value of bigint", "list of bigint"),
    ),
    "reducing for value": (
        lambda backend: backend.value_state("s", "bigint"),
        lambda backend: backend.reducing_state("s", "bigint", max),
        ("value of bigint", "reducing of bigint"),
    ),
    "type": (
        lambda backend: backend.value_state("s", "bigint"),
        lambda backend: backend.value_state("s", "string"),
        ("value of bigint", "value of string"),
    ),
    "narrower": (
        lambda backend: backend.list_state("s", "bigint"),
        lambda backend: backend.list_state("s", "int"),
        ("list of bigint", "list of int"),
    ),
    "keys of a map": (
        lambda backend: backend.map_state("s", "int", "bigint"),
        lambda backend: backend.map_state("s", "bigint", "bigint"),
        ("map of int -> bigint", "map of bigint -> bigint"),
    ),
    "namespace": (
        lambda backend: backend.value_state("s", "bigint", namespace="int"),
        lambda backend: backend.value_state("s", "bigint", namespace={"window": "bigint"}),
        ("value of bigint by namespace int", "value of bigint by window bigint"),
    ),
    "namespace left out": (
        lambda backend: backend.value_state("s", "bigint", namespace="int"),
        lambda backend: backend.value_state("s", "bigint"),
        ("value of bigint by namespace int", "value of bigint"),
    ),
    "accumulator": (
        lambda backend: backend.aggregating_state("s", Mean()),
        lambda backend: backend.aggregating_state("s", Other()),
        ("aggregating of struct<count:bigint,total:bigint>", "aggregating of struct<count:bigint>"),
    ),
}


class Other(Mean):
    accumulator_type = "struct<count:bigint>"


@pytest.mark.parametrize("case", SAME_NAME)
@pytest.mark.parametrize("restored", [False, True])
def test_registered_again_as_something_else(
    case: str, restored: bool, store: KeyedStore, backend: KeyedBackend, tmp_path: Path
) -> None:
    """Refused with both sides, in the same backend and in one that was restored; nothing is changed by it."""
    first, second, (stored, asked) = SAME_NAME[case]
    first(backend)
    if restored:
        store.commit([backend.snapshot().result()])
        backend = store.backend(directory=local(tmp_path))
    with refused("INCOMPATIBLE_STATE", "'s'", f"stored is {stored}", f"asked for is {asked}"):
        second(backend)
    first(backend)
    assert backend.states() == ["s"]
    backend.dispose()


# Keys


def test_keys_of_a_state_and_namespace(store: KeyedStore, backend: KeyedBackend) -> None:
    """Each key once, in the order of key groups, and only those that have something there."""
    state = backend.map_state("s", "bigint", "bigint", namespace="string")
    other = backend.value_state("o", "bigint")
    for number in range(50):
        backend.set_current_key(f"k{number}")
        for namespace in ["x", "x\x00"][: number % 3]:
            state.set_current_namespace(namespace)
            state.put_all({1: 1, 2: 2, 3: None})
    backend.set_current_key("k1")
    state.set_current_namespace("x")
    state.clear()
    other.update(1)
    wanted = {"x": {f"k{n}" for n in range(50) if n % 3} - {"k1"}, "x\x00": {f"k{n}" for n in range(50) if n % 3 == 2}}
    for namespace, keys in {**wanted, "y": set[str](), "": set[str]()}.items():
        found = list(backend.keys("s", namespace))
        assert set(found) == keys and len(found) == len(keys)
        groups = [backend.key_group(key) for key in found]
        assert groups == sorted(groups)
    assert list(backend.keys("o")) == ["k1"]
    assert backend.num_entries() == 3 * (len(wanted["x"]) + len(wanted["x\x00"])) + 1


def test_keys_are_those_of_the_call(backend: KeyedBackend) -> None:
    """The state may be changed under each key that comes: it is how all of a state is updated or cleared."""
    state = backend.value_state("s", "bigint")
    for number in range(100):
        backend.set_current_key(f"k{number}")
        state.update(number)
    begun = backend.keys("s")
    backend.set_current_key("later")
    state.update(0)
    seen = []
    for key in begun:
        seen.append(key)
        backend.set_current_key(key)
        state.clear()
        backend.set_current_key(f"new {key}")
        state.update(1)
    assert sorted(seen) == sorted(f"k{number}" for number in range(100))
    assert backend.num_entries() == 101 and "later" in set(backend.keys("s"))


@pytest.mark.parametrize(
    ("state", "namespace", "code"),
    [
        ("nosuch", None, "STATE_NOT_FOUND"),
        ("by", None, "NULL_KEY"),
        ("by", "x", "WRONG_KEY"),
        ("plain", 1, "NO_NAMESPACE"),
    ],
)
def test_keys_of_what_is_not_there(state: str, namespace: Any, code: str, backend: KeyedBackend) -> None:
    """Refused by the call, not by the first key that is asked for."""
    backend.value_state("by", "bigint", namespace="bigint")
    backend.value_state("plain", "bigint")
    with refused(code):
        backend.keys(state, namespace)


def test_keys_come_back_as_they_were_given(tmp_path: Path) -> None:
    columns = {"a": "string", "b": "int", "c": "struct<x:bigint,y:binary>"}
    keys = [
        {"a": a, "b": b, "c": {"x": x, "y": y}}
        for a in ("", "\x00", "é😀")
        for b in (-(2**31), -1, 7)
        for x in (None, -1, 2**40)
        for y in (None, b"", b"\x00\xff")
    ]
    with keyed_store(tmp_path, columns).backend(directory=local(tmp_path)) as backend:
        state = backend.value_state("s", "bigint")
        for number, key in enumerate(keys):
            backend.set_current_key(key)
            state.update(number)
        found = list(backend.keys("s"))
        assert len(found) == len(keys) and all(key in found for key in keys)
        for number, key in enumerate(keys):
            backend.set_current_key(tuple(key.values()))
            assert state.value() == number


LIMITS = {"tinyint": 2**7 - 1, "smallint": 2**15 - 1, "int": 2**31 - 1, "bigint": 2**63 - 1}


_LAST_TYPES = ["tinyint", "tinyint", "tinyint", "smallint", "bigint", "int", "int", "int"]


LAST_KEY_OF_ALL = {f"k{number}": kind for number, kind in enumerate(_LAST_TYPES)}
"""Columns whose greatest values together are of key group 32767, as one in 32768 such are."""


def test_the_greatest_stored_key_can_be_cleared(tmp_path: Path) -> None:
    """Key and namespace of the last key group whose stored bytes are all ff: nothing can be behind them, which the end
    of a range of keys would have to be."""
    store = keyed_store(tmp_path, LAST_KEY_OF_ALL, key_groups=1 << 15)
    key = tuple(LIMITS[kind] for kind in LAST_KEY_OF_ALL.values())
    with store.backend(directory=local(tmp_path)) as backend:
        assert backend.key_group(key) == (1 << 15) - 1, "else the case is another"
        listed_state, mapped = backend.list_state("l", "bigint"), backend.map_state("m", "tinyint", "bigint")
        for other in ((*key[:-1], -1), key):
            backend.set_current_key(other)
            listed_state.add_all([1, 2])
            mapped.put_all({-128: 1, 127: 2})
        assert listed_state.get() == [1, 2] and list(mapped.keys()) == [-128, 127]
        listed_state.update([3])
        mapped.clear()
        assert listed_state.get() == [3] and mapped.is_empty()
        backend.set_current_key((*key[:-1], -1))
        assert listed_state.get() == [1, 2] and list(mapped.keys()) == [-128, 127]


def test_a_key_may_be_bare_a_tuple_or_a_mapping(backend: KeyedBackend) -> None:
    state = backend.value_state("s", "bigint")
    backend.set_current_key("a")
    state.update(1)
    for key in ("a", ("a",), {"k": "a"}):
        backend.set_current_key(key)
        assert state.value() == 1
        assert backend.key_group(key) == backend.key_group("a")


# Disposal and clearing


def test_after_disposal_everything_raises_and_nothing_crashes(store: KeyedStore, tmp_path: Path) -> None:
    backend = store.backend(directory=local(tmp_path))
    states = []
    for kind, open_state in STATES.items():
        for name, namespace in (("s", None), ("by", "bigint")):
            state = open_state(Renamed(backend, kind + name), namespace)  # type: ignore[arg-type]
            backend.set_current_key("a")
            if namespace:
                state.set_current_namespace(1)
            states.append(state)
    mapped = backend.map_state("maps", "string", "bigint")
    mapped.put_all({"x": 1, "y": 2, "z": 3})
    begun = [mapped.entries(), mapped.keys(), mapped.values(), backend.keys("maps")]
    under_way = [mapped.entries(), mapped.keys(), mapped.values()]
    for iterator in under_way:
        next(iterator)
    backend.dispose()
    backend.dispose()
    calls: list[Callable[[], Any]] = [call for state in states for call in calls_of(state)]
    calls += [
        lambda: backend.set_current_key("a"),
        lambda: backend.keys("maps"),
        lambda: backend.keys("nosuch"),
        backend.num_entries,
        backend.states,
        lambda: backend.value_state("values", "bigint"),
        lambda: backend.map_state("maps", "string", "bigint"),
        lambda: backend.list_state("new", "bigint"),
        lambda: backend.aggregating_state("aggregatings", Mean()),
        backend.snapshot,
        lambda: backend.snapshot("incremental"),
        lambda: backend.notify_complete(1),
    ]
    for call in [*calls, *calls]:
        with refused("BACKEND_CLOSED", str(local(tmp_path))):
            call()
    for iterator in (*begun, *under_way):
        with refused("BACKEND_CLOSED"):
            next(iterator)


def test_disposal_removes_local_files_and_only_its_own(store: KeyedStore, tmp_path: Path) -> None:
    first, second = (store.backend(directory=local(tmp_path)) for _ in range(2))
    assert len(list(local(tmp_path).iterdir())) == 2
    state = second.value_state("s", "bigint")
    second.set_current_key("a")
    state.update(1)
    with first:
        pass
    assert len(list(local(tmp_path).iterdir())) == 1
    assert state.value() == 1
    iterator = second.keys("s")
    second.dispose()
    assert list(local(tmp_path).iterdir()) == []
    del iterator
    assert list(local(tmp_path).iterdir()) == []


def test_a_block_that_fails_disposes(store: KeyedStore, tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), store.backend(directory=local(tmp_path)) as backend:
        raise ZeroDivisionError
    with refused("BACKEND_CLOSED"):
        backend.num_entries()
    assert list(local(tmp_path).iterdir()) == []


def deleted_ranges(backend: KeyedBackend, state: str) -> int:
    """The number of deleted ranges in the table files of a state, as RocksDB counts them."""
    table = backend.database._table(state)
    table.flush()
    told = dict(each.strip().split("=") for each in table.property_value(PROPERTIES).split(";") if "=" in each)
    return int(told["# range deletions"])


PROPERTIES = "rocksdb.aggregated-table-properties"


@pytest.mark.parametrize("rows", [1, RANGE_ROWS - 1, RANGE_ROWS, RANGE_ROWS + 1])
def test_only_large_states_are_cleared_as_a_range(rows: int, backend: KeyedBackend) -> None:
    """Each read goes through all such ranges; one for each key would take quadratic time."""
    elements, entries = backend.list_state("l", "bigint"), backend.map_state("m", "bigint", "bigint")
    for key in ("a", "b", "c"):
        backend.set_current_key(key)
        elements.add_all(range(rows))
        entries.put_all((number, number) for number in range(rows))
    backend.set_current_key("b")
    elements.clear()
    entries.clear()
    assert (elements.get(), entries.is_empty()) == ([], True)
    assert deleted_ranges(backend, "l") == deleted_ranges(backend, "m") == (0 if rows < RANGE_ROWS else 1)
    elements.add(7)
    assert elements.get() == [7]
    for key in ("a", "c"):
        backend.set_current_key(key)
        assert elements.get() == list(range(rows))
        assert dict(entries.entries()) == {number: number for number in range(rows)}
