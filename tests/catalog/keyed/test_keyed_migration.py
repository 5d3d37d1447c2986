"""States that are registered again with wider types: their rows, snapshots from before and after, and refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.keyed.keyed_backends import keyed_store, local, refused
from support.parameters import mostly_slow

from statestore.catalog.keyed import backend as backend_module
from statestore.catalog.keyed.backend import KeyedBackend
from statestore.catalog.keyed.keyed_store import KeyedStore
from statestore.catalog.keyed.snapshots.snapshot_part import SnapshotPart
from statestore.catalog.keyed.snapshots.take_snapshot import Running

Cell = tuple[Any, Any]
"""A value before and after."""

WIDER: dict[str, tuple[str, str, list[Cell]]] = {
    "tinyint": ("tinyint", "smallint", [(-128, -128), (127, 127)]),
    "int": ("int", "bigint", [(-(2**31), -(2**31)), (0, 0), (2**31 - 1, 2**31 - 1)]),
    "int, two steps": ("tinyint", "bigint", [(-1, -1)]),
    "float": ("float", "double", [(0.1, 0.10000000149011612), (float("inf"), float("inf")), (-1.5, -1.5)]),
    "int as double": ("int", "double", [(2**31 - 1, float(2**31 - 1)), (-1, -1.0)]),
    "decimal": ("decimal(4,2)", "decimal(12,5)", [(Decimal("-99.99"), Decimal("-99.99000")), (Decimal(0), Decimal(0))]),
    "decimal, more digits": ("decimal(9,2)", "decimal(38,2)", [(Decimal("1234567.89"), Decimal("1234567.89"))]),
    "field at the end": (
        "struct<a:int>",
        "struct<a:int,b:string>",
        [({"a": 1}, {"a": 1, "b": None}), ({"a": None}, {"a": None, "b": None})],
    ),
    "field at the front": ("struct<a:int>", "struct<b:string,a:int>", [({"a": 1}, {"b": None, "a": 1})]),
    "field in the middle": (
        "struct<a:int,c:string>",
        "struct<a:int,b:double,c:string>",
        [({"a": 1, "c": ""}, {"a": 1, "b": None, "c": ""})],
    ),
    "fields in another order": ("struct<a:int,b:int>", "struct<b:int,a:int>", [({"a": 1, "b": 2}, {"b": 2, "a": 1})]),
    "another order and a field more": (
        "struct<a:int,b:string>",
        "struct<c:int,b:string,a:bigint>",
        [({"a": 1, "b": "x"}, {"c": None, "b": "x", "a": 1})],
    ),
    "fields widened": (
        "struct<a:int,b:float,c:decimal(4,1)>",
        "struct<a:bigint,b:double,c:decimal(6,2)>",
        [({"a": 1, "b": 0.5, "c": Decimal("1.5")}, {"a": 1, "b": 0.5, "c": Decimal("1.50")})],
    ),
    "struct in a struct": (
        "struct<s:struct<a:int>>",
        "struct<s:struct<z:string,a:bigint>,t:struct<x:int>>",
        [
            ({"s": {"a": 1}}, {"s": {"z": None, "a": 1}, "t": None}),
            ({"s": None}, {"s": None, "t": None}),
            ({"s": {"a": None}}, {"s": {"z": None, "a": None}, "t": None}),
        ],
    ),
    "list": ("array<int>", "array<bigint>", [([], []), ([1, None, -1], [1, None, -1])]),
    "list of structs": (
        "array<struct<a:int>>",
        "array<struct<b:array<string>,a:int>>",
        [([{"a": 1}, None, {"a": None}], [{"b": None, "a": 1}, None, {"b": None, "a": None}]), ([], [])],
    ),
    "map": ("map<string,int>", "map<string,bigint>", [({}, {}), ({"a": 1, "b": None}, {"a": 1, "b": None})]),
    "map of structs": (
        "map<string,struct<a:int>>",
        "map<string,struct<b:int,a:bigint>>",
        [({"k": {"a": 1}, "l": None}, {"k": {"b": None, "a": 1}, "l": None})],
    ),
}
EACH_CONVERSION = (
    "int, two steps",
    "float",
    "int as double",
    "decimal",
    "another order and a field more",
    "fields widened",
    "struct in a struct",
    "list of structs",
    "map of structs",
)

NO_WIDER = {
    "narrower": ("bigint", "int"),
    "inexact": ("bigint", "double"),
    "int as float": ("int", "float"),
    "double as float": ("double", "float"),
    "int as decimal": ("int", "decimal(20,0)"),
    "fewer digits before the point": ("decimal(10,2)", "decimal(10,4)"),
    "fewer digits behind the point": ("decimal(10,4)", "decimal(20,2)"),
    "text": ("int", "string"),
    "bytes": ("string", "binary"),
    "day": ("date", "timestamp"),
    "field gone": ("struct<a:int,b:int>", "struct<a:int>"),
    "field renamed": ("struct<a:int>", "struct<A:int>"),
    "field narrower": ("struct<a:int,b:bigint>", "struct<a:int,b:int,c:int>"),
    "struct of one": ("int", "struct<a:int>"),
    "list for one": ("int", "array<int>"),
    "elements narrower": ("array<struct<a:bigint>>", "array<struct<a:int>>"),
    "keys of a map": ("map<int,int>", "map<bigint,int>"),
    "values of a map": ("map<string,bigint>", "map<string,int>"),
}

KINDS = ("value", "list", "map", "reducing", "aggregating")


class Newest:
    """An aggregate that keeps the newest value."""

    def __init__(self, accumulator_type: str) -> None:
        self.accumulator_type: Any = accumulator_type

    def create(self) -> Any:
        return None

    def add(self, value: Any, accumulator: Any) -> Any:
        return value

    def result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, left: Any, right: Any) -> Any:
        return right


def register(backend: KeyedBackend, kind: str, of: str) -> Any:
    """Register a state of this kind and type, named after its kind."""
    match kind:
        case "value":
            return backend.value_state(kind, of)
        case "list":
            return backend.list_state(kind, of, namespace="string")
        case "map":
            return backend.map_state(kind, "int", of, namespace="string")
        case "reducing":
            return backend.reducing_state(kind, of, lambda old, new: new, namespace="string")
        case _:
            return backend.aggregating_state(kind, Newest(of), namespace="string")


def states(backend: KeyedBackend, of: str) -> list[Any]:
    return [register(backend, kind, of) for kind in KINDS]


def at(found: Any, namespace: str) -> Any:
    if len(found.spec.namespace):
        found.set_current_namespace(namespace)
    return found


def write(backend: KeyedBackend, found: Sequence[Any], key: str, cells: Sequence[Any]) -> None:
    """Write cells to a state. The last cell is the value of kinds with one value; a map has nulls beside them."""
    backend.set_current_key(key)
    value, listed, mapped, reducing, aggregating = found
    value.update(cells[-1])
    at(listed, "n").add_all(cells)
    at(mapped, "n").put_all({**dict(enumerate(cells)), -1: None})
    for state in (reducing, aggregating):
        for cell in cells:
            at(state, "n").add(cell)


def check(backend: KeyedBackend, found: Sequence[Any], key: str, cells: Sequence[Any]) -> None:
    backend.set_current_key(key)
    value, listed, mapped, reducing, aggregating = found
    assert value.value() == cells[-1]
    assert at(listed, "n").get() == list(cells)
    assert dict(at(mapped, "n").entries()) == {-1: None, **dict(enumerate(cells))}
    assert at(reducing, "n").get() == at(aggregating, "n").get() == cells[-1]
    if isinstance(cells[-1], dict):
        assert list(value.value()) == list(cells[-1]), "order of the fields"
    assert [at(state, "other") and answer(state) for state in found[1:]] == [[], {}, None, None]


def answer(state: Any) -> Any:
    return dict(state.entries()) if hasattr(state, "entries") else state.get()


@pytest.fixture
def store(tmp_path: Path) -> KeyedStore:
    return keyed_store(tmp_path)


@contextmanager
def again(store: KeyedStore, backend: KeyedBackend, folder: Path) -> Iterator[KeyedBackend]:
    yield backend


@contextmanager
def of_full(store: KeyedStore, backend: KeyedBackend, folder: Path) -> Iterator[KeyedBackend]:
    store.commit([backend.snapshot("full").result()])
    with store.backend(directory=folder) as restored:
        yield restored


@contextmanager
def in_place(store: KeyedStore, backend: KeyedBackend, folder: Path) -> Iterator[KeyedBackend]:
    store.commit([backend.snapshot("incremental").result()])
    with store.backend(directory=folder) as restored:
        yield restored


@contextmanager
def by_rows(store: KeyedStore, backend: KeyedBackend, folder: Path) -> Iterator[KeyedBackend]:
    """A backend restored from table files that also hold other key groups."""
    store.commit([backend.snapshot("incremental").result()])
    group = backend.key_group("a")
    with store.backend(range(group, group + 1), directory=folder) as restored:
        yield restored


Way = Callable[[KeyedStore, KeyedBackend, Path], Any]


@pytest.mark.parametrize("way", mostly_slow([again, of_full, in_place, by_rows], [in_place]))
@pytest.mark.parametrize("case", mostly_slow(WIDER, EACH_CONVERSION))
def test_rows_of_a_wider_type(case: str, way: Way, store: KeyedStore, tmp_path: Path) -> None:
    """Existing rows of all kinds of states are unchanged, with nulls for added fields."""
    old, new, cells = WIDER[case]
    before, after = [cell for cell, _ in cells], [cell for _, cell in cells]
    with store.backend(directory=local(tmp_path)) as first:
        write(first, states(first, old), "a", before)
        with way(store, first, local(tmp_path)) as backend:
            found = states(backend, new)
            check(backend, found, "a", after)
            assert backend.num_entries() == 4 + 2 * len(cells)
            write(backend, found, "a", after)
            backend.set_current_key("a")
            assert at(found[1], "n").get() == [*after, *after]
            if case != "fields in another order":  # which goes both ways
                with refused("INCOMPATIBLE_STATE"):
                    backend.value_state("value", old)


@pytest.mark.parametrize("case", NO_WIDER)
def test_types_that_are_no_wider_are_refused(case: str, store: KeyedStore, tmp_path: Path) -> None:
    """The error names both types, and all is as it was."""
    old, new = NO_WIDER[case]
    with store.backend(directory=local(tmp_path)) as backend:
        states(backend, old)
        for kind in KINDS:
            with refused("INCOMPATIBLE_STATE", f"state '{kind}'", f"stored is {kind} of", old, "asked for is", new):
                register(backend, kind, new)
        states(backend, old)


def test_keys_of_maps_and_namespaces_can_not_be_wider(store: KeyedStore, tmp_path: Path) -> None:
    """Keys of maps and namespaces are parts of stored keys, which would sort otherwise."""
    with store.backend(directory=local(tmp_path)) as backend:
        backend.map_state("m", "int", "int", namespace="int")
        with refused("INCOMPATIBLE_STATE", "map of int -> int by namespace int", "map of bigint -> int"):
            backend.map_state("m", "bigint", "int", namespace="int")
        with refused("INCOMPATIBLE_STATE", "map of int -> int by namespace bigint"):
            backend.map_state("m", "int", "int", namespace="bigint")
        backend.map_state("m", "int", "bigint", namespace="int")


def test_objects_of_before_go_on_with_the_wider_type(store: KeyedStore, tmp_path: Path) -> None:
    """State objects from before a migration would otherwise take new rows for old ones."""
    with store.backend(directory=local(tmp_path)) as backend:
        old = states(backend, "int")
        write(backend, old, "a", [1, 2])
        under_way = old[2].entries()
        new = states(backend, "bigint")
        check(backend, old, "a", [1, 2])
        write(backend, old, "b", [2**40])
        check(backend, new, "b", [2**40])
        check(backend, old, "b", [2**40])
        assert list(under_way) == [(-1, None), (0, 1), (1, 2)]

        shaped = backend.value_state("shaped", "struct<a:int>", default={"a": 7})
        backend.value_state("shaped", "struct<b:string,a:int>")
        assert shaped.value() == {"a": 7}
        shaped.update({"b": "x", "a": 1})
        assert shaped.value() == {"b": "x", "a": 1}


def test_a_migration_leaves_no_files(store: KeyedStore, tmp_path: Path) -> None:
    with store.backend(directory=local(tmp_path)) as backend:
        write(backend, states(backend, "int"), "a", [1])
        states(backend, "bigint")
        (own,) = local(tmp_path).iterdir()
        assert {path.name for path in own.iterdir()} == {"database", "owner.lock"}


def test_a_backend_whose_migration_fails_is_closed(
    store: KeyedStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows are partly of either type and must not be read or kept. The snapshot before is unchanged."""

    def failing(*arguments: Any) -> Any:
        raise OSError(28, "No space left on device")

    with store.backend(directory=local(tmp_path)) as backend:
        found = states(backend, "int")
        write(backend, found, "a", [1])
        store.commit([backend.snapshot().result()])
        with monkeypatch.context() as patched:
            patched.setattr(backend_module, "converter", failing)
            with pytest.raises(OSError, match="No space left"):
                backend.value_state("value", "bigint")
        for call in (backend.snapshot, found[0].value, lambda: backend.value_state("value", "int")):
            with refused("BACKEND_CLOSED"):
                call()
        assert list(local(tmp_path).iterdir()) == []
    with store.backend(directory=local(tmp_path)) as backend:
        check(backend, states(backend, "bigint"), "a", [1])


# Snapshots of both types

OLD, NEW = "struct<n:int>", "struct<by:string,n:bigint>"


def two_types(store: KeyedStore, folder: Path, kinds: Sequence[Any] = ("full", "incremental")) -> dict[str, Any]:
    """Commit one snapshot of two tasks of which one was migrated; return the value of each key in the wider type."""
    parts: list[SnapshotPart] = []
    expected = {}
    for number, groups in enumerate(store.task_groups(2)):
        with store.backend(groups, directory=folder) as task:
            state = task.value_state("s", NEW if number else OLD)
            for key in (f"k{each}" for each in range(40)):
                if task.key_group(key) in groups:
                    task.set_current_key(key)
                    state.update({"by": key, "n": 2**40} if number else {"n": 3})
                    expected[key] = {"by": key, "n": 2**40} if number else {"by": None, "n": 3}
            parts.append(task.snapshot(kinds[number]).result())
    store.commit(parts)
    return expected


def content(backend: KeyedBackend, of: str) -> dict[str, Any]:
    state = backend.value_state("s", of)
    found = {}
    for key in backend.keys("s"):
        backend.set_current_key(key)
        found[key] = state.value()
    return found


@pytest.mark.quick("1-full-incremental", "3-incremental-full", "2-full-full")
@pytest.mark.parametrize("kinds", [("full", "incremental"), ("incremental", "full"), ("full", "full")], ids="-".join)
@pytest.mark.parametrize("tasks", [1, 2, 3])
def test_parts_of_two_types_in_one_snapshot(
    kinds: Sequence[Any], tasks: int, store: KeyedStore, tmp_path: Path
) -> None:
    """Both have the wider one when they are restored, with any number of tasks, and in the snapshot's table."""
    expected = two_types(store, local(tmp_path), kinds)
    found: dict[str, Any] = {}
    for groups in store.task_groups(tasks):
        with store.backend(groups, directory=local(tmp_path)) as backend:
            found |= content(backend, NEW)
            with refused("INCOMPATIBLE_STATE"):
                backend.value_state("s", OLD)
    assert found == expected and len(expected) == 40
    assert table(store, 1) == expected
    assert store.scan("s", version=1).schema.field("value").type == pa.struct([("by", pa.string()), ("n", pa.int64())])


def test_parts_of_types_that_exclude_each_other_are_not_committed(store: KeyedStore, tmp_path: Path) -> None:
    """Such parts could not be restored together."""
    running: list[Running] = []
    for groups, of in zip(store.task_groups(2), ("struct<a:int,b:int>", "struct<a:int,c:int>"), strict=True):
        with store.backend(groups, directory=local(tmp_path)) as backend:
            backend.value_state("s", of)
            running.append(backend.snapshot())
            running[-1].result()
    with refused("INCOMPATIBLE_STATE", "struct<a:int,b:int>", "struct<a:int,c:int>"):
        store.commit([each.result() for each in running])
    assert store.retained() == []


def table(store: KeyedStore, version: int, **query: Any) -> dict[str, Any]:
    rows = store.scan("s", version=version, **query).read_all()
    found = dict(zip(rows["k"].to_pylist(), rows["value"].to_pylist(), strict=True))
    assert len(found) == rows.num_rows
    return found


@pytest.mark.parametrize("kind", ["full", "incremental"])
def test_tables_of_versions_before_and_after(kind: Any, store: KeyedStore, tmp_path: Path) -> None:
    """Each version has its own type and rows; a diff lists only rows that differ."""
    with store.backend(directory=local(tmp_path)) as backend:
        state = backend.value_state("s", "int")
        for number in range(20):
            backend.set_current_key(f"k{number}")
            state.update(number)
        backend.notify_complete(store.commit([backend.snapshot(kind).result()]))
        state = backend.value_state("s", "bigint")
        for number in (1, 30):
            backend.set_current_key(f"k{number}")
            state.update(2**40)
        backend.set_current_key("k2")
        state.clear()
        store.commit([backend.snapshot(kind).result()])
    before = {f"k{number}": number for number in range(20)}
    after = {**before, "k1": 2**40, "k30": 2**40}
    del after["k2"]
    assert table(store, 1) == before and table(store, 2) == after
    assert store.scan("s", version=1).schema.field("value").type == pa.int32()
    assert store.scan("s", version=2).schema.field("value").type == pa.int64()
    assert table(store, 2, filter=("k", "=", "k3")) == {"k3": 3}
    assert table(store, 2, filter=("value", ">", 2**39)) == {"k1": 2**40, "k30": 2**40}
    for start, end, kinds in ((1, 2, ("added", "removed")), (2, 1, ("removed", "added"))):
        changes = {row["k"]: row for row in store.diff("s", start, end).read_all().to_pylist()}
        assert {key: row["_change"] for key, row in changes.items()} == {
            "k1": "changed",
            "k30": kinds[0],
            "k2": kinds[1],
        }


def test_a_diff_over_a_field_that_was_added(store: KeyedStore, tmp_path: Path) -> None:
    """Rows that have null in it are as they were."""
    with store.backend(directory=local(tmp_path)) as backend:
        state = backend.value_state("s", OLD)
        for key in "abc":
            backend.set_current_key(key)
            state.update({"n": 1})
        store.commit([backend.snapshot().result()])
        state = backend.value_state("s", NEW)
        backend.set_current_key("b")
        state.update({"by": "x", "n": 1})
        store.commit([backend.snapshot().result()])
    assert [row["k"] for row in store.diff("s", 1, 2).read_all().to_pylist()] == ["b"]
    assert [row["k"] for row in store.diff("s", 2, 1).read_all().to_pylist()] == ["b"]


def test_a_migrated_state_is_snapshotted_incrementally_and_restored(store: KeyedStore, tmp_path: Path) -> None:
    """Restore in place, by rows, and then from a full snapshot; the version before the migration has its old type."""
    folder = local(tmp_path)
    with store.backend(directory=folder) as backend:
        state = backend.value_state("s", OLD)
        other = backend.list_state("other", "string")
        for number in range(30):
            backend.set_current_key(f"k{number}")
            state.update({"n": number})
            other.add("x")
        store.commit([backend.snapshot("incremental").result()])
    expected: dict[str, Any] = {f"k{number}": {"by": None, "n": number} for number in range(30)}
    with store.backend(directory=folder) as backend:
        assert content(backend, NEW) == expected
        backend.set_current_key("k7")
        backend.value_state("s", NEW).update({"by": "me", "n": 2**50})
        part = backend.snapshot("incremental").result()
        assert part.reused, "files of the other state at least"
        version = store.commit([part])
        backend.notify_complete(version)
        expected["k7"] = {"by": "me", "n": 2**50}
        backend.set_current_key("k8")
        backend.value_state("s", NEW).clear()
        last = store.commit([backend.snapshot("incremental").result()])
    assert table(store, version) == expected
    for tasks in (1, 3):
        found: dict[str, Any] = {}
        for groups in store.task_groups(tasks):
            with store.backend(groups, version=version, directory=folder) as backend:
                found |= content(backend, NEW)
        assert found == expected
    with store.backend(version=last, directory=folder) as backend:
        with refused("INCOMPATIBLE_STATE"):
            backend.value_state("s", OLD)
        full = store.commit([backend.snapshot("full").result()])
    del expected["k8"]
    with store.backend(version=full, directory=folder) as backend:
        assert content(backend, NEW) == expected
    with store.backend(version=1, directory=folder) as backend:
        assert content(backend, OLD) == {f"k{number}": {"n": number} for number in range(30)}
