"""Namespaces of keyed states: they do not see each other, and merge."""

from __future__ import annotations

from typing import Any

import pytest
from support.keyed.keyed_backends import refused
from support.keyed.state_steps import STATES, Refused, Step, run

from statestore.catalog.keyed.backend import KeyedBackend

pytest_plugins = ["support.keyed.keyed_fixtures"]


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


@pytest.mark.parametrize("case", BY_NAMESPACE)
def test_namespaces_do_not_see_each_other(case: str, backend: KeyedBackend) -> None:
    kind, steps = BY_NAMESPACE[case]
    state = STATES[kind](backend, "bigint")
    backend.set_current_key("a")
    run(backend, state, steps)


def test_namespaces_that_begin_alike_do_not_see_each_other(backend: KeyedBackend) -> None:
    """With a map's keys behind them, and the key before them, no two rows may have the same bytes."""
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
