"""Inspection of keyed snapshots in tests, gates that hold snapshots, and races between commits."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

from statestore.catalog.keyed.keyed_store import KeyedStore
from statestore.catalog.keyed.snapshots.snapshot_part import SnapshotKind
from support.keyed.keyed_model import NAMESPACES, USER_KEYS, Content, Tasks

KINDS: tuple[SnapshotKind, ...] = ("full", "incremental")
PLACES = ("segments", "shared", "private")
WAIT = 60  # seconds for an event that comes at once


def fill(tasks: Tasks, seed: int, keys: range = range(20)) -> None:
    """Fill all states of these keys, differently for each seed; some existing values are cleared."""
    choose = random.Random(seed)
    for number in keys:
        key = f"k{number}"
        tasks.set_total(key, choose.choice([None, seed, number]))
        tasks.set_shape(key, choose.choice([None, number]))
        for state, elements in (("words", [f"w{seed}", ""]), ("joined", list("xy")), ("mean", [seed, number])):
            tasks.add(state, key, choose.choice(NAMESPACES[state]), elements)
        tasks.put_fact(key, choose.choice(NAMESPACES["facts"]), choose.choice(USER_KEYS), choose.choice([None, seed]))
        tasks.remove_fact(key, NAMESPACES["facts"][0], "a")
        cleared = choose.choice(list(NAMESPACES))
        tasks.clear(cleared, key, choose.choice(NAMESPACES[cleared]))


def files(store: KeyedStore) -> set[str]:
    """The files in the store's folders of snapshots, whatever their names."""
    return {item.name for place in PLACES for item in store._storage.list(f"{place}/")}


def named(store: KeyedStore) -> set[str]:
    """The files that kept snapshots need."""
    return set(store._read().files())


def reopened(tasks: Tasks, number: int = 1, version: int | None = None) -> Content:
    """Tasks that begin with a version and replace the present ones; returns their content."""
    tasks.dispose()
    tasks.open(number, version)
    return tasks.content()


def own_files(tasks: Tasks) -> set[str]:
    return {path.name for path in tasks.tasks[0].backend._local.path.iterdir()}


class Gate:
    """Holds snapshots before they write a file, until it is opened."""

    def __init__(self) -> None:
        self._open, self._reached, self._lock = threading.Event(), threading.Event(), threading.Lock()
        self.passing = 0
        self.open()

    def shut(self, passing: int = 0) -> None:
        """Hold snapshots after ``passing`` files are written."""
        self.passing = passing
        self._open.clear()
        self._reached.clear()

    def open(self) -> None:
        self._open.set()

    def reached(self) -> bool:
        """Wait until a snapshot waits here."""
        return self._reached.wait(WAIT)

    def wait(self) -> None:
        with self._lock:  # files for an object store are written at the same time
            if self.passing:
                self.passing -= 1
                return
        self._reached.set()
        assert self._open.wait(WAIT)


class Race:
    """``between`` is called once, before the next entry of the log is written."""

    between: Callable[[], Any] | None = None
