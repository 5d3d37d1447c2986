"""Random histories of a keyed store against plain dicts: writes of all kinds, full and incremental snapshots that go on
while more is written, commits, discards, migrations, and restores of any kept snapshot with any number of tasks."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from support.keyed.keyed_backends import catalog_of, keyed_store, local
from support.keyed.keyed_gates import files, named
from support.keyed.keyed_model import NAMESPACES, SHAPES, TEXTS, USER_KEYS, Content, Tasks, migrated, travelled
from support.parameters import mostly_slow
from support.places import DIRECTORY, MEMORY

from statestore.catalog.keyed.keyed_store import KeyedStore
from statestore.catalog.keyed.snapshots import snapshot_log
from statestore.catalog.keyed.snapshots.snapshot_part import SnapshotKind
from statestore.catalog.keyed.snapshots.take_snapshot import Running
from statestore.formats.errors import ConflictError

SEEDS = range(int(os.environ.get("STATESTORE_EXAMPLES", "3")))
STEPS, WRITES = 18, 60
KINDS: list[tuple[SnapshotKind, ...]] = [("full",), ("incremental",), ("incremental", "full"), ("incremental",)]

KEYS: dict[str, tuple[dict[str, str], list[Any]]] = {
    "text": ({"k": "string"}, [*TEXTS, "\x00\x00", "a\x00a", "b"]),
    "columns": (
        {"k": "string", "n": "bigint", "s": "struct<x:int,y:string>"},
        [
            {"k": text, "n": number, "s": {"x": x, "y": y}}
            for text in ("", "\x00", "a")
            for number, x in ((-1, 0), (0, None), (2**63 - 1, -(2**31)))
            for y in ("", None, "\x00")
        ],
    ),
}


@dataclass
class History:
    """A store under test, the contents of each kept version, and a snapshot that may be under way."""

    tasks: Tasks
    keys: list[Any]
    random: random.Random
    kept: dict[int, Content] = field(default_factory=dict)
    under_way: list[Running] = field(default_factory=list)
    expected: Content = field(default_factory=dict)

    def write(self) -> None:
        for _ in range(self.random.randrange(WRITES)):
            self.write_once()

    def write_once(self) -> None:
        tasks, choice = self.tasks, self.random.choice
        key, number = choice(self.keys), self.random.randrange(100)
        fact = choice(NAMESPACES["facts"])
        state = choice(["words", "joined", "mean"])
        by = choice(NAMESPACES[state])
        element: Any = {"words": str(number), "joined": chr(97 + number % 26), "mean": number}[state]
        match choice(["total", "shape", "add", "add", "words", "fact", "fact", "remove", "clear", "merge"]):
            case "total":
                tasks.set_total(key, choice([None, 0, -number]))
            case "shape":
                tasks.set_shape(key, choice([None, number]))
            case "add":
                tasks.add(state, key, by, [element] * self.random.randrange(1, 3))
            case "words":
                tasks.set_words(key, choice(NAMESPACES["words"]), choice([[], ["u"], ["", "v"]]))
            case "fact":
                tasks.put_fact(key, fact, choice(USER_KEYS), choice([None, number]))
            case "remove":
                tasks.remove_fact(key, fact, choice(USER_KEYS))
            case "clear":
                name = choice(list(NAMESPACES))
                tasks.clear(name, key, choice(NAMESPACES[name]))
            case "merge":
                tasks.merge(state, key, by, self.random.choices(NAMESPACES[state], k=2))

    def begin(self) -> None:
        """Begin a snapshot. Writes between this call and `finish` are not in it."""
        if not self.under_way:
            self.under_way = self.tasks.snapshot(self.random.choice(KINDS))
            self.expected = self.tasks.model.content()

    def finish(self) -> None:
        if not self.under_way:
            self.begin()
            self.write()
        parts, self.under_way = travelled(self.under_way), []
        try:
            version = self.tasks.store.commit(parts)
        except ConflictError as error:
            assert error.code == "BASE_DISCARDED"
            self.tasks.store.discard_files(parts)
            return
        self.kept[version] = self.expected
        if self.random.random() < 0.8:
            self.tasks.confirm(version)

    def cancel(self) -> None:
        """Cancel the snapshot. If parts of tasks are already whole, they are removed."""
        for running in self.under_way:
            running.cancel()
        for running in self.under_way:
            try:
                self.tasks.store.discard_files([running.result()])
            except ConflictError as error:
                assert error.code == "SNAPSHOT_CANCELLED"
        self.under_way = []

    def discard(self) -> None:
        if self.kept:
            version = self.random.choice(list(self.kept))
            self.tasks.store.discard(version)
            del self.kept[version]

    def restore(self) -> None:
        """Restore any kept version with any number of tasks; later writes are lost."""
        self.cancel()
        self.tasks.dispose()
        version = self.random.choice([*self.kept, *([] if self.kept else [0])])
        self.tasks.model.load(migrated(self.kept.get(version, {}), self.tasks.model.generation))
        self.tasks.store = opened(self.tasks.store)
        self.tasks.open(self.random.choice([1, 1, 2, 3]), version)
        self.check()

    def migrate(self) -> None:
        """Migrate one task after the other, so that a snapshot may have parts of two types."""
        model = self.tasks.model
        if model.generation + 1 < len(SHAPES):
            model.generation += 1
            for task in self.tasks.tasks:
                if self.random.random() < 0.3:
                    self.begin()
                task.migrate(model.generation)
            model.load(migrated(model.states, model.generation))
            self.expected = migrated(self.expected, model.generation)

    def check(self) -> None:
        model = self.tasks.model
        content = model.content()
        found = self.tasks.content()
        for state in {*content, *found}:
            assert found.get(state, {}) == content.get(state, {}), state
        entries = sum(len(each) for state in ("words", "facts") for each in content.get(state, {}).values())
        entries += sum(len(content.get(state, {})) for state in ("total", "shape", "joined", "mean"))
        assert sum(task.backend.num_entries() for task in self.tasks.tasks) == entries
        assert self.tasks.store.retained() == list(self.kept)

    def check_files(self) -> None:
        """Check that exactly the files named by kept snapshots exist while nothing is under way."""
        assert files(self.tasks.store) == named(self.tasks.store)


def opened(store: KeyedStore) -> KeyedStore:
    """The store as a new process opens it."""
    snapshot_log._known.clear()
    found = catalog_of(store).open_store(store.name)
    assert isinstance(found, KeyedStore)
    return found


pytest_plugins = ["support.keyed.keyed_place_fixtures"]
PLACES = (DIRECTORY, MEMORY)
STEP_WEIGHTS = {"write": 6, "begin": 2, "finish": 4, "cancel": 1, "discard": 2, "restore": 3, "migrate": 1, "check": 1}


@pytest.fixture
def folded_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fold the log's entries into one file after every few entries."""
    monkeypatch.setattr(snapshot_log, "LOG_CHECKPOINT_INTERVAL", 3)


@pytest.mark.quick("directory-columns-1")
@pytest.mark.usefixtures("folded_often")
@pytest.mark.parametrize("seed", mostly_slow(SEEDS, [1]))
@pytest.mark.parametrize("keys", KEYS)
def test_a_random_history_restores_as_plain_dicts_say(keys: str, seed: int, place: str, tmp_path: Path) -> None:
    columns, values = KEYS[keys]
    choose = random.Random(f"{keys} {seed}")
    store = keyed_store(place, columns, key_groups=choose.choice([8, 128, 300]))
    history = History(Tasks(store, local(tmp_path)), values, choose)
    history.tasks.open(choose.choice([1, 2, 4]))
    for _ in range(STEPS):
        getattr(history, choose.choices(list(STEP_WEIGHTS), list(STEP_WEIGHTS.values()))[0])()
    history.check()
    history.finish()
    history.tasks.dispose()
    history.check_files()
    for version in choose.sample(list(history.kept), min(2, len(history.kept))):
        history.tasks.open(choose.randrange(1, 9), version)
        history.tasks.model.load(migrated(history.kept[version], history.tasks.model.generation))
        history.check()
        history.tasks.dispose()
    while history.kept:
        history.discard()
        history.check_files()
    assert list(local(tmp_path).iterdir()) == []
