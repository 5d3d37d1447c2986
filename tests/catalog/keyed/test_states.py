"""The five kinds of keyed state, after Flink's own tests of its state backends: tables of steps and answers."""

from __future__ import annotations

from typing import Any

import pytest
from support.keyed.keyed_backends import refused
from support.keyed.state_steps import STATES, Refused, Step, run

from statestore.catalog.keyed.backend import KeyedBackend
from statestore.catalog.keyed.keyed_store import KeyedStore

pytest_plugins = ["support.keyed.keyed_fixtures"]


WITHOUT_NAMESPACE: dict[str, tuple[str, list[Step]]] = {
    "value": (
        "value",
        [
            ("value", None),
            ("clear", None),  # of nothing
            ("update", 3, None),
            ("value", 3),
            ("update", 4, None),
            ("value", 4),
            ("update", None, None),  # clears
            ("value", None),
            ("update", 0, None),  # is a value
            ("value", 0),
            ("clear", None),
            ("value", None),
            ("update", "x", Refused("WRONG_VALUE")),
        ],
    ),
    "value with a default": (
        "value_default",
        [("value", 41), ("update", 3, None), ("value", 3), ("clear", None), ("value", 41)],
    ),
    "value of several keys": (
        "value",
        [
            ("update", 1, None),
            ("key", "b", None),
            ("value", None),
            ("update", 2, None),
            ("key", "a", None),
            ("value", 1),
            ("clear", None),
            ("key", "b", None),
            ("value", 2),
        ],
    ),
    "keys that begin alike": (
        "list",
        [
            ("key", "", None),
            ("add", 1, None),
            ("key", "a\x00", None),
            ("get", []),
            ("add", 2, None),
            ("key", "a\x00a", None),
            ("add", 3, None),
            ("key", "a", None),
            ("get", []),
            ("clear", None),
            ("key", "a\x00", None),
            ("get", [2]),
            ("clear", None),
            ("key", "a\x00a", None),
            ("get", [3]),
            ("key", "", None),
            ("get", [1]),
        ],
    ),
    "list": (
        "list",
        [
            ("get", []),
            ("clear", None),
            ("add", 2, None),
            ("add", 1, None),
            ("add", 2, None),  # lists have order and equal elements
            ("get", [2, 1, 2]),
            ("add_all", [9, 8], None),
            ("get", [2, 1, 2, 9, 8]),
            ("add_all", [], None),
            ("get", [2, 1, 2, 9, 8]),
            ("update", [5, 5], None),
            ("get", [5, 5]),
            ("add", 6, None),
            ("get", [5, 5, 6]),
            ("update", [], None),  # clears
            ("get", []),
            ("add_all", [7], None),
            ("clear", None),
            ("get", []),
        ],
    ),
    "list refuses null and then is as it was": (
        "list",
        [
            ("add", None, Refused("NULL_VALUE")),
            ("add_all", [1, None, 2], Refused("NULL_VALUE")),
            ("get", []),
            ("add", 1, None),
            ("update", [2, None], Refused("NULL_VALUE")),
            ("add_all", [3, "x"], Refused("WRONG_VALUE")),
            ("add_all", None, Refused("NULL_VALUE")),
            ("update", None, Refused("NULL_VALUE")),
            ("get", [1]),
        ],
    ),
    "list of several keys": (
        "list",
        [
            ("add", 1, None),
            ("key", "b", None),
            ("get", []),
            ("add", 2, None),
            ("key", "a", None),
            ("add", 3, None),
            ("get", [1, 3]),
            ("clear", None),
            ("key", "b", None),
            ("get", [2]),
        ],
    ),
    "map": (
        "map",
        [
            ("get", "x", None),
            ("contains", "x", False),
            ("is_empty", True),
            ("entries", []),
            ("keys", []),
            ("values", []),
            ("remove", "x", None),  # of nothing
            ("clear", None),
            ("put", "x", 1, None),
            ("get", "x", 1),
            ("contains", "x", True),
            ("contains", "", False),
            ("is_empty", False),
            ("put", "x", 2, None),
            ("entries", [("x", 2)]),
            ("put_all", {"z": 26, "": 0, "y": 25}, None),
            ("entries", [("", 0), ("x", 2), ("y", 25), ("z", 26)]),
            ("keys", ["", "x", "y", "z"]),
            ("values", [0, 2, 25, 26]),
            ("put_all", [("y", 1), ("y", 2)], None),
            ("get", "y", 2),
            ("remove", "", None),
            ("contains", "", False),
            ("put_all", {}, None),
            ("keys", ["x", "y", "z"]),
            ("clear", None),
            ("is_empty", True),
            ("get", "x", None),
        ],
    ),
    "map with null values": (
        "map",
        [
            ("put", "x", None, None),
            ("contains", "x", True),
            ("get", "x", None),
            ("is_empty", False),
            ("put_all", {"y": None, "z": 1}, None),
            ("entries", [("x", None), ("y", None), ("z", 1)]),
            ("remove", "x", None),
            ("contains", "x", False),
        ],
    ),
    "map refuses null keys and then is as it was": (
        "map",
        [
            ("put", None, 1, Refused("NULL_KEY")),
            ("put_all", [("x", 1), (None, 1)], Refused("NULL_KEY")),
            ("put_all", [("x", 1), ("y", "text")], Refused("WRONG_VALUE")),
            ("put_all", None, Refused("NULL_VALUE")),
            ("get", None, Refused("NULL_KEY")),
            ("contains", 3, Refused("WRONG_KEY")),
            ("is_empty", True),
        ],
    ),
    "map of several keys": (
        "map",
        [
            ("put", "x", 1, None),
            ("key", "b", None),
            ("is_empty", True),
            ("contains", "x", False),
            ("put", "y", 2, None),
            ("key", "a", None),
            ("entries", [("x", 1)]),
            ("clear", None),
            ("key", "b", None),
            ("entries", [("y", 2)]),
        ],
    ),
    "reducing": (
        "reducing",
        [
            ("get", None),
            ("clear", None),
            ("add", "a", None),
            ("get", "a"),
            ("add", "b", None),
            ("add", "c", None),
            ("get", "abc"),  # the older value first
            ("add", None, Refused("NULL_VALUE")),
            ("get", "abc"),
            ("key", "b", None),
            ("get", None),
            ("add", 3, Refused("WRONG_VALUE")),
            ("add", "z", None),
            ("key", "a", None),
            ("clear", None),
            ("get", None),
            ("key", "b", None),
            ("get", "z"),
        ],
    ),
    "aggregating": (
        "aggregating",
        [
            ("get", None),
            ("clear", None),
            ("add", 1, None),
            ("get", 1.0),
            ("add", 2, None),
            ("get", 1.5),
            ("add", None, Refused("NULL_VALUE")),
            ("get", 1.5),
            ("key", "b", None),
            ("get", None),
            ("add", 9, None),
            ("key", "a", None),
            ("clear", None),
            ("get", None),
            ("add", 4, None),  # a new accumulator
            ("get", 4.0),
            ("key", "b", None),
            ("get", 9.0),
        ],
    ),
    "no namespace, none can be set": (
        "list",
        [("at", 1, Refused("NO_NAMESPACE")), ("merge_namespaces", 1, [2], Refused("NO_NAMESPACE"))],
    ),
}


@pytest.mark.parametrize("case", WITHOUT_NAMESPACE)
def test_a_state_answers_as_flink_s(case: str, backend: KeyedBackend) -> None:
    kind, steps = WITHOUT_NAMESPACE[case]
    state = STATES[kind](backend, None)
    backend.set_current_key("a")
    run(backend, state, steps)


def test_a_map_may_change_while_it_is_read(backend: KeyedBackend) -> None:
    """Entries are those of the call, whatever is put, removed or made current meanwhile."""
    state = backend.map_state("s", "bigint", "bigint")
    backend.set_current_key("a")
    state.put_all({number: -number for number in range(100)})
    seen = []
    for key, value in state.entries():
        seen.append((key, value))
        state.remove(key)
        state.remove(key + 1)
        state.put(1000 + key, 0)
        state.put(key + 2, 7)
    assert seen == [(number, -number) for number in range(100)]
    assert state.contains(1099) and not state.contains(0)

    state.clear()
    state.put(1, 1)
    begun = state.entries(), state.keys(), state.values()
    state.put(2, 2)
    backend.set_current_key("b")
    state.put(3, 3)
    assert [list(each) for each in begun] == [[(1, 1)], [1], [1]]


@pytest.mark.parametrize(
    ("kind", "ordered"),
    [
        ("bigint", [-(2**63), -256, -1, 0, 1, 255, 256, 2**63 - 1]),
        ("int", [-(2**31), -1, 0, 2**31 - 1]),
        ("string", ["", "\x00", "\x00\x00", "A", "a", "a\x00", "aa", "b", "é", "￿", "😀"]),
        ("binary", [b"", b"\x00", b"\x00\xff", b"\x01", b"\xff", b"\xff\xff"]),
        ("struct<user_key:bigint>", [{"user_key": -1}, {"user_key": 0}, {"user_key": 300}]),
        ("array<int>", [[], [-1], [0], [0, 0], [1]]),
    ],
)
def test_entries_of_maps_come_in_the_order_of_their_keys(kind: str, ordered: list[Any], backend: KeyedBackend) -> None:
    state = backend.map_state("s", kind, "bigint")
    backend.set_current_key("a")
    for number in reversed(range(len(ordered))):
        state.put(ordered[number], number)
    assert list(state.entries()) == [(key, number) for number, key in enumerate(ordered)]
    for number, key in enumerate(ordered):
        assert state.get(key) == number and state.contains(key)
        state.remove(key)
    assert state.is_empty()


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("map<string,bigint>", {"a": 1, "b": None}),
        ("map<string,bigint>", {}),
        ("map<string,map<string,bigint>>", {"value": {"value": 3}}),
        ("struct<value:bigint>", {"value": 3}),
        ("struct<value:struct<value:bigint>>", {"value": {"value": None}}),
        ("array<struct<a:int>>", [{"a": 1}, None]),
        ("array<bigint>", []),
        ("struct<a:int,b:string>", {"a": None, "b": None}),  # no null, though all in it is
        ("binary", b""),
        ("string", ""),
        ("boolean", False),
        ("double", -0.0),
        ("decimal(38,2)", None),
    ],
)
def test_values_of_all_shapes(kind: str, value: Any, backend: KeyedBackend) -> None:
    """A map or struct that is the value is never taken for a row that holds the value."""
    of_value, of_list = backend.value_state("v", kind), backend.list_state("l", kind)
    of_map, reduced = backend.map_state("m", "string", kind), backend.reducing_state("r", kind, lambda old, new: old)
    backend.set_current_key("a")
    of_value.update(value)
    of_map.put("x", value)
    assert of_value.value() == value and list(of_map.values()) == [value]
    if value is not None:
        of_list.add_all([value, value])
        reduced.add(value)
        reduced.add(value)
        assert of_list.get() == [value, value] and reduced.get() == value


def test_a_default_is_of_the_state_s_type_and_nobody_changes_it(backend: KeyedBackend) -> None:
    state = backend.value_state("s", "struct<n:bigint,m:array<int>>", default=(1, [2]))
    backend.set_current_key("a")
    answered = state.value()
    assert answered == {"n": 1, "m": [2]}
    answered["n"] = 5
    answered["m"].append(3)
    assert state.value() == {"n": 1, "m": [2]}
    with refused("WRONG_VALUE"):
        backend.value_state("t", "bigint", default="x")


def test_objects_of_one_state_see_the_same(backend: KeyedBackend) -> None:
    """Each has a namespace of its own."""
    first = backend.value_state("s", "bigint", namespace="string")
    second = backend.value_state("s", "bigint", namespace="string")
    backend.set_current_key("a")
    first.set_current_namespace("x")
    second.set_current_namespace("y")
    first.update(1)
    assert second.value() is None
    second.set_current_namespace("x")
    assert second.value() == 1
    second.clear()
    assert first.value() is None


def test_states_do_not_see_each_other(backend: KeyedBackend) -> None:
    """States of the same kind and of different kinds under one key are separate."""
    states = [backend.map_state(name, "string", "bigint") for name in ("m", "n", "m n", "états", "#'\"=")]
    listed_state = backend.list_state("list", "bigint")
    backend.set_current_key("a")
    for number, state in enumerate(states):
        state.put("x", number)
        listed_state.add(number)
    assert [list(state.entries()) for state in states] == [[("x", number)] for number in range(5)]
    states[0].clear()
    assert [state.is_empty() for state in states] == [True, False, False, False, False]
    assert listed_state.get() == [0, 1, 2, 3, 4]


def test_a_list_that_is_updated_keeps_its_places(store: KeyedStore, backend: KeyedBackend) -> None:
    """A list keeps its positions at an update. New ones each time would take quadratic time, since a read passes all
    abandoned positions."""
    elements = backend.list_state("l", "string")
    backend.set_current_key("a")
    places = []
    for given in (["x", "y"], ["z", "y"], ["z", "x", "y"], ["y"], ["y", "z"]):
        elements.update(given)
        assert elements.get() == given
        store.commit([backend.snapshot().result()])
        rows = store.scan("l").read_all()
        assert rows["value"].to_pylist() == given
        places.append(rows["position"].to_pylist())
    assert places[0] == places[1] == places[2][:2]
    assert places[3] == places[0][:1] == places[4][:1]
    elements.add("last")
    assert elements.get() == ["y", "z", "last"]
