"""Keys of keyed states: which there are, and how they are given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.keyed.keyed_backends import keyed_store, local, refused

from statestore.catalog.keyed.backend import KeyedBackend
from statestore.catalog.keyed.keyed_store import KeyedStore

pytest_plugins = ["support.keyed.keyed_fixtures"]


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
