"""A keyed store's tasks with one state of each kind, and plain dicts of the expected contents."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from statestore.catalog.keyed.backend import KeyedBackend
from statestore.catalog.keyed.keyed_store import KeyedStore
from statestore.catalog.keyed.snapshots.snapshot_part import SnapshotKind, SnapshotPart, part_from_json
from statestore.catalog.keyed.snapshots.take_snapshot import Running
from support.keyed.keyed_backends import Mean

Scope = tuple[Any, Any]
"""A key and a namespace, as `frozen`."""
Content = dict[str, dict[Scope, Any]]
"""What is under each key and namespace of each state; nothing where nothing is."""

TEXTS = ("", "\x00", "a", "a\x00", "aa", "é😀")
NAMESPACES: dict[str, tuple[Any, ...]] = {
    "total": (None,),
    "words": (-1, 0, 2**40),
    "facts": tuple({"by": text, "m": number} for text in ("", "\x00", "a") for number in (-1, 0)),
    "joined": TEXTS[:3],
    "mean": (0, 1, -(2**63)),
    "shape": (None,),
}
SHAPES = ("struct<n:int>", "struct<n:bigint,by:string>", "struct<added:array<int>,n:bigint,by:string>")
"""The types that the state ``shape`` has, one migration after the other."""
FIELDS = (("n",), ("n", "by"), ("added", "n", "by"))
USER_KEYS = ("", "a", "a\x00", "\x00")


def frozen(value: Any) -> Any:
    """The value as a key of a dict; equal values have equal keys."""
    if isinstance(value, dict):
        return tuple((name, frozen(member)) for name, member in value.items())
    return tuple(map(frozen, value)) if isinstance(value, (list, tuple)) else value


def thawed(value: Any) -> Any:
    """The inverse of `frozen` for dicts of plain values."""
    return {name: thawed(member) for name, member in value} if isinstance(value, tuple) else value


def migrated(content: Content, generation: int) -> Content:
    """The content with the fields of ``shape`` at that generation: added fields are null."""
    shapes = {
        scope: {name: row.get(name) for name in FIELDS[generation]} for scope, row in content.get("shape", {}).items()
    }
    return {**content, "shape": shapes} if shapes else content


@dataclass
class Model:
    """The values written so far. Its operations return nothing; `content` is compared."""

    generation: int = 0
    states: Content = field(default_factory=dict)

    def content(self) -> Content:
        """A copy of the present content, which later writes do not change."""
        return copy.deepcopy({name: scopes for name, scopes in self.states.items() if scopes})

    def load(self, content: Content) -> None:
        self.states = copy.deepcopy(content)

    def put(self, state: str, scope: Scope, value: Any) -> None:
        """Set a value; None or an empty value removes it."""
        scopes = self.states.setdefault(state, {})
        scopes.pop(scope, None)
        if value is not None and value != [] and value != {}:
            scopes[scope] = value

    def get(self, state: str, scope: Scope, default: Any) -> Any:
        return copy.deepcopy(self.states.get(state, {}).get(scope, default))

    def merge(self, state: str, key: Any, target: Any, sources: Iterable[Any]) -> None:
        """Merge namespaces; contents are lists of the added elements, in order."""
        scopes = self.states.setdefault(state, {})
        found = scopes.pop((key, target), [])
        for source in sources:
            found = found + scopes.pop((key, source), [])
        self.put(state, (key, target), found)


@dataclass
class Task:
    """A backend with its states."""

    backend: KeyedBackend
    generation: int

    def __post_init__(self) -> None:
        backend = self.backend
        self.states: dict[str, Any] = {
            "total": backend.value_state("total", "bigint"),
            "words": backend.list_state("words", "string", namespace="bigint"),
            "facts": backend.map_state("facts", "string", "bigint", namespace={"by": "string", "m": "int"}),
            "joined": backend.reducing_state("joined", "string", lambda old, new: old + new, namespace="string"),
            "mean": backend.aggregating_state("mean", Numbers(), namespace="bigint"),
        }
        self.migrate(self.generation)

    def migrate(self, generation: int) -> None:
        self.generation = generation
        self.states["shape"] = self.backend.value_state("shape", SHAPES[generation])

    def content(self) -> Content:
        """All contents of its states, found by their lists of keys."""
        found: Content = {}
        for name, state in self.states.items():
            for namespace in NAMESPACES[name]:
                for key in self.backend.keys(name, namespace):
                    self.backend.set_current_key(key)
                    if namespace is not None:
                        state.set_current_namespace(namespace)
                    scope = frozen(key), frozen(namespace)
                    assert scope not in found.setdefault(name, {}), f"{name} lists {scope} twice"
                    found[name][scope] = ANSWERS[name](state)
        return found


class Numbers(Mean):
    """Keeps all numbers, so that their order shows."""

    accumulator_type = "array<bigint>"

    def create(self) -> Any:
        return []

    def add(self, value: int, accumulator: Any) -> Any:
        return [*accumulator, value]

    def result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, left: Any, right: Any) -> Any:
        return [*left, *right]


ANSWERS: dict[str, Callable[[Any], Any]] = {
    "total": lambda state: state.value(),
    "words": lambda state: state.get(),
    "facts": lambda state: dict(state.entries()),
    "joined": lambda state: list(state.get()),
    "mean": lambda state: state.get(),
    "shape": lambda state: state.value(),
}


@dataclass
class Tasks:
    """All tasks of a store, which have all key groups among them."""

    store: KeyedStore
    directory: Path
    tasks: list[Task] = field(default_factory=list)
    model: Model = field(default_factory=Model)

    def open(self, number: int, version: int | None = None) -> None:
        self.tasks = [
            Task(self.store.backend(groups, version=version, directory=self.directory), self.model.generation)
            for groups in self.store.task_groups(number)
        ]

    def dispose(self) -> None:
        for task in self.tasks:
            task.backend.dispose()
        self.tasks = []

    def content(self) -> Content:
        """The content of all tasks; no key is in two of them."""
        found: Content = {}
        for task in self.tasks:
            for name, scopes in task.content().items():
                assert not scopes.keys() & found.setdefault(name, {}).keys()
                found[name] |= scopes
        return {name: scopes for name, scopes in found.items() if scopes}

    def of(self, key: Any) -> Task:
        """The task that a key belongs to; the key is its current one then."""
        group = self.tasks[0].backend.key_group(key)
        (task,) = [task for task in self.tasks if group in task.backend.key_groups]
        task.backend.set_current_key(key)
        return task

    def snapshot(self, kinds: Sequence[SnapshotKind]) -> list[Running]:
        """Take a snapshot of each task ``i``, of kind ``kinds[i % n]``."""
        return [task.backend.snapshot(kinds[number % len(kinds)]) for number, task in enumerate(self.tasks)]

    def commit(self, *kinds: SnapshotKind) -> int:
        """Commit and confirm snapshots of all tasks."""
        version = self.store.commit(travelled(self.snapshot(kinds or ("incremental",))))
        self.confirm(version)
        return version

    def confirm(self, version: int) -> None:
        for task in self.tasks:
            task.backend.notify_complete(version)

    # Operations, on the tasks and on the model

    def set_total(self, key: Any, value: int | None) -> None:
        self.of(key).states["total"].update(value)
        self.model.put("total", (frozen(key), None), value)

    def set_shape(self, key: Any, number: int | None) -> None:
        """Set the shape of a key; None clears it."""
        whole = None if number is None else {"added": [number, None], "n": number, "by": str(number)}
        row = whole and {name: whole[name] for name in FIELDS[self.model.generation]}
        self.of(key).states["shape"].update(row)
        self.model.put("shape", (frozen(key), None), row)

    def add(self, state: str, key: Any, namespace: Any, elements: list[Any]) -> None:
        """Add elements to ``words``, ``joined`` (single letters) or ``mean``."""
        found = self.of(key).states[state]
        found.set_current_namespace(namespace)
        if state == "words":
            found.add_all(elements)
        else:
            for element in elements:
                found.add(element)
        scope = frozen(key), frozen(namespace)
        self.model.put(state, scope, self.model.get(state, scope, []) + elements)

    def set_words(self, key: Any, namespace: Any, elements: list[str]) -> None:
        found = self.of(key).states["words"]
        found.set_current_namespace(namespace)
        found.update(elements)
        self.model.put("words", (frozen(key), namespace), elements)

    def put_fact(self, key: Any, namespace: Any, user_key: str, value: int | None) -> None:
        found = self.of(key).states["facts"]
        found.set_current_namespace(namespace)
        found.put(user_key, value)
        scope = frozen(key), frozen(namespace)
        self.model.put("facts", scope, {**self.model.get("facts", scope, {}), user_key: value})

    def remove_fact(self, key: Any, namespace: Any, user_key: str) -> None:
        found = self.of(key).states["facts"]
        found.set_current_namespace(namespace)
        found.remove(user_key)
        scope = frozen(key), frozen(namespace)
        left = self.model.get("facts", scope, {})
        left.pop(user_key, None)
        self.model.put("facts", scope, left)

    def clear(self, state: str, key: Any, namespace: Any) -> None:
        found = self.of(key).states[state]
        if namespace is not None:
            found.set_current_namespace(namespace)
        found.clear()
        self.model.put(state, (frozen(key), frozen(namespace)), None)

    def merge(self, state: str, key: Any, target: Any, sources: list[Any]) -> None:
        self.of(key).states[state].merge_namespaces(target, sources)
        self.model.merge(state, frozen(key), target, sources)


def travelled(running: Iterable[Running]) -> list[SnapshotPart]:
    """The results of snapshots, as they arrive from other processes."""
    return [part_from_json(json.loads(json.dumps(each.result().to_json()))) for each in running]
