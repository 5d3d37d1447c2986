"""The five kinds of keyed state, after Flink's own tests of its state backends: tables of steps and answers.

Rows of the tables are (operation, arguments…, answer). ``key`` and ``at`` set the current key and namespace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.keyed.keyed_backends import Mean, keyed_store, local, refused

from statestore.catalog.keyed.backend import KeyedBackend
from statestore.catalog.keyed.keyed_store import KeyedStore
from statestore.catalog.keyed.rows import database


class Refused(str):
    """An answer that is an error with this code."""


Step = tuple[Any, ...]

STATES: dict[str, Callable[[KeyedBackend, Any], Any]] = {
    "value": lambda backend, by: backend.value_state("s", "bigint", namespace=by),
    "value_default": lambda backend, by: backend.value_state("s", "bigint", default=41, namespace=by),
    "list": lambda backend, by: backend.list_state("s", "bigint", namespace=by),
    "map": lambda backend, by: backend.map_state("s", "string", "bigint", namespace=by),
    "reducing": lambda backend, by: backend.reducing_state("s", "string", lambda a, b: a + b, namespace=by),
    "aggregating": lambda backend, by: backend.aggregating_state("s", Mean(), namespace=by),
}

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

BY_NAMESPACE: dict[str, tuple[str, list[Step]]] = {
    "value": (
        "value",
        [
            ("value", Refused("NO_NAMESPACE")),
            ("clear", Refused("NO_NAMESPACE")),
            ("at", None, Refused("NULL_KEY")),
            ("at", "x", Refused("WRONG_KEY")),
            ("at", 1, None),
            ("update", 5, None),
            ("at", -1, None),
            ("value", None),
            ("update", 6, None),
            ("key", "b", None),
            ("value", None),  # the namespace stays
            ("key", "a", None),
            ("value", 6),
            ("clear", None),
            ("at", 1, None),
            ("value", 5),
        ],
    ),
    "map": (
        "map",
        [
            ("at", 1, None),
            ("put", "x", 1, None),
            ("at", 2, None),
            ("is_empty", True),
            ("contains", "x", False),
            ("put_all", {"x": 2, "y": 3}, None),
            ("at", 1, None),
            ("entries", [("x", 1)]),
            ("clear", None),
            ("at", 2, None),
            ("entries", [("x", 2), ("y", 3)]),
        ],
    ),
    "list": (
        "list",
        [
            ("add", 1, Refused("NO_NAMESPACE")),
            ("at", 1, None),
            ("add", 10, None),
            ("at", 2, None),
            ("add", 20, None),
            ("at", 1, None),
            ("add", 11, None),
            ("get", [10, 11]),
            ("update", [12], None),
            ("at", 2, None),
            ("get", [20]),
        ],
    ),
    "reducing": (
        "reducing",
        [
            ("at", 1, None),
            ("add", "a", None),
            ("at", 2, None),
            ("get", None),
            ("add", "b", None),
            ("at", 1, None),
            ("get", "a"),
        ],
    ),
    "aggregating": (
        "aggregating",
        [
            ("at", 1, None),
            ("add", 1, None),
            ("at", 2, None),
            ("get", None),
            ("add", 2, None),
            ("at", 1, None),
            ("get", 1.0),
        ],
    ),
}

MERGES: dict[str, tuple[dict[int, str], tuple[int, list[int]], dict[int, str]]] = {
    "target empty": ({1: "a", 2: "b"}, (0, [1, 2]), {0: "ab"}),
    "target with something": ({0: "t", 1: "a", 2: "b"}, (0, [1, 2]), {0: "tab"}),
    "one source holds nothing": ({0: "t", 2: "b"}, (0, [1, 2]), {0: "tb"}),
    "first source holds nothing, target empty": ({2: "b", 3: "c"}, (0, [1, 2, 3]), {0: "bc"}),
    "all sources hold nothing": ({0: "t"}, (0, [1, 2]), {0: "t"}),
    "nothing anywhere": ({}, (0, [1, 2]), {}),
    "no sources": ({0: "t", 1: "a"}, (0, []), {0: "t", 1: "a"}),
    "target among the sources": ({0: "t", 1: "a"}, (0, [0, 1, 0]), {0: "ta"}),
    "target is the only source": ({0: "t"}, (0, [0]), {0: "t"}),
    "a source twice": ({1: "a", 2: "b"}, (0, [1, 2, 1]), {0: "ab"}),
    "in the order of the sources": ({1: "a", 2: "b"}, (0, [2, 1]), {0: "ba"}),
    "others stay": ({1: "a", 3: "z", -1: "y"}, (0, [1]), {0: "a", 3: "z", -1: "y"}),
}


@pytest.fixture
def store(tmp_path: Path) -> KeyedStore:
    return keyed_store(tmp_path)


@pytest.fixture
def backend(store: KeyedStore, tmp_path: Path) -> Iterator[KeyedBackend]:
    with store.backend(directory=local(tmp_path)) as found:
        yield found


def run(backend: KeyedBackend, state: Any, steps: list[Step]) -> None:
    """Do the steps and compare every answer with the table."""
    for number, (operation, *arguments, answer) in enumerate(steps):
        if operation == "key":
            call: Callable[..., Any] = backend.set_current_key
        elif operation == "at":
            call = state.set_current_namespace
        else:
            call = getattr(state, operation)
        told = f"step {number}: {operation} {arguments}"
        if isinstance(answer, Refused):
            with refused(answer):
                listed(call(*arguments))
        else:
            assert listed(call(*arguments)) == answer, told


def listed(found: Any) -> Any:
    return list(found) if isinstance(found, Iterator) else found


@pytest.mark.parametrize("case", WITHOUT_NAMESPACE)
def test_a_state_answers_as_flink_s(case: str, backend: KeyedBackend) -> None:
    kind, steps = WITHOUT_NAMESPACE[case]
    state = STATES[kind](backend, None)
    backend.set_current_key("a")
    run(backend, state, steps)


@pytest.mark.parametrize("case", BY_NAMESPACE)
def test_namespaces_do_not_see_each_other(case: str, backend: KeyedBackend) -> None:
    kind, steps = BY_NAMESPACE[case]
    state = STATES[kind](backend, "bigint")
    backend.set_current_key("a")
    run(backend, state, steps)


def test_namespaces_that_begin_alike_do_not_see_each_other(backend: KeyedBackend) -> None:
    """Namespaces lie between the key and a map's key, and no two rows may have the same bytes."""
    texts = ["", "\x00", "a", "a\x00", "a\x00\x00", "aa", "\x01"]
    state = backend.map_state("s", "string", "string", namespace={"n": "string", "m": "string"})
    wanted = {(k, n, m): f"{k}|{n}|{m}" for k in texts for n in texts for m in texts}
    for (k, n, m), value in wanted.items():
        backend.set_current_key(k)
        state.set_current_namespace({"n": n, "m": m})
        state.put(n, value)
    for (k, n, m), value in wanted.items():
        backend.set_current_key(k)
        state.set_current_namespace((n, m))
        assert list(state.entries()) == [(n, value)]
    for k, n, m in list(wanted)[::3]:
        backend.set_current_key(k)
        state.set_current_namespace({"n": n, "m": m})
        state.clear()
    for (k, n, m), value in wanted.items():
        backend.set_current_key(k)
        state.set_current_namespace({"n": n, "m": m})
        gone = (k, n, m) in list(wanted)[::3]
        assert list(state.values()) == ([] if gone else [value])


@pytest.mark.parametrize("kind", ["list", "reducing", "aggregating"])
@pytest.mark.parametrize("case", MERGES)
def test_merged_namespaces(case: str, kind: str, backend: KeyedBackend) -> None:
    """The contents of the sources are appended to the target and are nowhere else, for the current key only."""
    before, (target, sources), after = MERGES[case]
    state = STATES[kind](backend, "bigint")
    for key in ("a", "b"):
        backend.set_current_key(key)
        for namespace, letters in before.items():
            state.set_current_namespace(namespace)
            for letter in letters:
                state.add(letter if kind == "reducing" else ord(letter))
    backend.set_current_key("a")
    state.merge_namespaces(target, iter(sources))
    for key, expected in (("a", after), ("b", before)):
        backend.set_current_key(key)
        for namespace in {*before, *after, *sources, target}:
            state.set_current_namespace(namespace)
            assert state.get() == merged(kind, expected.get(namespace, "")), (key, namespace)
    rows = {"list": sum(map(len, (*after.values(), *before.values())))}.get(kind, len(after) + len(before))
    assert backend.num_entries() == rows


def merged(kind: str, letters: str) -> Any:
    """The answer of a state to which these letters were added."""
    codes = [ord(letter) for letter in letters]
    if kind == "list":
        return codes
    if not codes:
        return None
    return letters if kind == "reducing" else sum(codes) / len(codes)


@pytest.mark.parametrize("kind", ["list", "reducing", "aggregating"])
def test_a_merge_that_fails_loses_nothing(kind: str, backend: KeyedBackend) -> None:
    """The second source is no namespace, or cannot be merged: what was taken from the first is still there."""

    def strict(left: str, right: str) -> str:
        if right == "z":
            raise ArithmeticError("no z")
        return left + right

    state: Any = STATES[kind](backend, "bigint")
    if kind == "reducing":
        state = backend.reducing_state("s", "string", strict, namespace="bigint")
    backend.set_current_key("a")
    for namespace, letter in ((0, "t"), (1, "a"), (2, "z")):
        state.set_current_namespace(namespace)
        state.add(letter if kind == "reducing" else ord(letter))
    with refused("WRONG_KEY"):
        state.merge_namespaces(0, [1, "no namespace"])
    if kind == "reducing":
        with pytest.raises(ArithmeticError):
            state.merge_namespaces(0, [1, 2])
    for namespace, letter in ((0, "t"), (1, "a"), (2, "z")):
        state.set_current_namespace(namespace)
        assert state.get() == merged(kind, letter)


def test_merging_places_elements_behind_later_ones(backend: KeyedBackend) -> None:
    """The target's elements stay before those that are merged into it, and what is added next is behind all."""
    state = backend.list_state("s", "bigint", namespace="bigint")
    backend.set_current_key("a")
    for namespace, element in ((2, 1), (1, 2), (2, 3), (1, 4)):
        state.set_current_namespace(namespace)
        state.add(element)
    state.merge_namespaces(1, [2])
    state.set_current_namespace(1)
    state.add(5)
    assert state.get() == [2, 4, 1, 3, 5]


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


# What is refused


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


class Renamed:
    """A backend that registers states under a different name than the requested one."""

    def __init__(self, backend: KeyedBackend, name: str) -> None:
        self._backend, self._name = backend, name

    def __getattr__(self, method: str) -> Any:
        return lambda name, *rest, **named: getattr(self._backend, method)(self._name, *rest, **named)


def calls_of(state: Any) -> list[Callable[[], Any]]:
    """Every operation of a state on stored rows."""
    arguments: dict[str, tuple[Any, ...]] = {
        "update": (["x"],) if hasattr(state, "add_all") else (1,),
        "add": (1,),
        "add_all": ([],),
        "put": ("x", 1),
        "put_all": ({},),
        "remove": ("x",),
        "contains": ("x",),
        "get": ("x",) if hasattr(state, "put") else (),
    }
    for name in ("value", "clear", "entries", "keys", "values", "is_empty"):
        arguments[name] = ()
    if len(state.spec.namespace):
        arguments["merge_namespaces"] = 1, []
    return [partial(getattr(state, name), *given) for name, given in arguments.items() if hasattr(state, name)]


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


# Disposal


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


def test_a_key_may_be_bare_a_tuple_or_a_mapping(backend: KeyedBackend) -> None:
    state = backend.value_state("s", "bigint")
    backend.set_current_key("a")
    state.update(1)
    for key in ("a", ("a",), {"k": "a"}):
        backend.set_current_key(key)
        assert state.value() == 1
        assert backend.key_group(key) == backend.key_group("a")


def deleted_ranges(backend: KeyedBackend, state: str) -> int:
    """The number of deleted ranges in the table files of a state, as RocksDB counts them."""
    table = backend.database._table(state)
    table.flush()
    told = dict(each.strip().split("=") for each in table.property_value(PROPERTIES).split(";") if "=" in each)
    return int(told["# range deletions"])


PROPERTIES = "rocksdb.aggregated-table-properties"


@pytest.mark.parametrize("rows", [1, 4, 5, 6])
def test_only_large_states_are_cleared_as_a_range(
    rows: int, backend: KeyedBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each read goes through all such ranges; one for each key would take quadratic time."""
    monkeypatch.setattr(database, "RANGE_ROWS", 5)
    elements, entries = backend.list_state("l", "bigint"), backend.map_state("m", "bigint", "bigint")
    for key in ("a", "b", "c"):
        backend.set_current_key(key)
        elements.add_all(range(rows))
        entries.put_all((number, number) for number in range(rows))
    backend.set_current_key("b")
    elements.clear()
    entries.clear()
    assert (elements.get(), entries.is_empty()) == ([], True)
    assert deleted_ranges(backend, "l") == deleted_ranges(backend, "m") == (0 if rows < 5 else 1)
    elements.add(7)
    assert elements.get() == [7]
    for key in ("a", "c"):
        backend.set_current_key(key)
        assert elements.get() == list(range(rows))
        assert dict(entries.entries()) == {number: number for number in range(rows)}


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
