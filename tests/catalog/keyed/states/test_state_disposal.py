"""Keyed backends that are disposed of, and states that are cleared."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.keyed.keyed_backends import Mean, local, refused
from support.keyed.state_steps import STATES, Renamed, calls_of

from statestore.catalog.keyed.backend import KeyedBackend
from statestore.catalog.keyed.keyed_store import KeyedStore
from statestore.catalog.keyed.rows import database

pytest_plugins = ["support.keyed.keyed_fixtures"]


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
