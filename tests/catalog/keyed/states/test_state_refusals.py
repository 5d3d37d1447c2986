"""Calls of keyed states that are refused: without a key, with another's key, under a name or type that cannot be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.keyed.keyed_backends import Mean, local, refused
from support.keyed.state_steps import STATES, Renamed, calls_of, listed

from statestore.catalog.keyed.backend import KeyedBackend
from statestore.catalog.keyed.keyed_store import KeyedStore

pytest_plugins = ["support.keyed.keyed_fixtures"]


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
