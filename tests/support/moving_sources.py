"""Sources that move on whenever somebody looks at them: a look never finds what the one before has found.

Whoever looks twice for one answer is therefore wrong each time, and nothing depends on the timing of threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import statestore
from statestore.catalog.describe import store_metadata
from statestore.catalog.keyed.tables import keyed_source
from statestore.catalog.reads import segment_files
from statestore.formats.engines import EngineOpening
from support.engines.toys import write_toys, write_version

KEYS = 4


@dataclass
class Moving:
    """A warehouse with the versioned stores ``t`` and ``u`` and the keyed store ``s`` with the states ``x`` and ``y``,
    and a folder of toys. Commit number n writes n to all keys of a store, so all that is read of one version of it has
    the same n. ``numbers``: the n of each version, by store.
    """

    warehouse: Path
    toys: Path
    numbers: dict[str, dict[int, int]] = field(default_factory=dict)
    steps: int = 0
    looks: int = 0
    _step: Callable[[], None] = field(default=lambda: None, repr=False)
    _lock: Any = field(default_factory=threading.RLock, repr=False)
    _is_moving: bool = False

    def move(self) -> None:
        """Commit to all sources. Each third time, files of the stores are replaced, and the old ones removed."""
        with self._lock:
            if not self._is_moving:
                self._is_moving = True
                try:
                    self._step()
                finally:
                    self._is_moving = False

    def looked(self) -> None:
        """Count a look, and move before it."""
        if not self._is_moving:
            self.looks += 1
        self.move()


def filled(folder: Path) -> Moving:
    """The sources, which move by `Moving.move` alone."""
    moving = Moving(folder / "warehouse", write_toys(folder / "toys", {1: {("a", "x"): 1, ("b", "x"): 1}}))
    catalog = statestore.connect(moving.warehouse)
    key = {"k": "bigint"}
    for name in ("t", "u"):
        catalog.create_store(name, key=key, value={"n": "bigint"}).close()
    stores = {name: catalog.open_store(name, auto_compact=False) for name in ("t", "u")}
    keyed = catalog.create_store("s", kind="keyed", key=key)
    backend = keyed.backend()
    states = [backend.value_state(name, "bigint", default=0) for name in ("x", "y")]
    moving.numbers = {name: {} for name in ("t", "u", "s", "toys")}

    def step() -> None:
        moving.steps += 1
        number = moving.steps
        for name, store in stores.items():
            for k in range(KEYS):
                store.put(k, {"n": number}, timestamp=1_000 * number)
            moving.numbers[name][store.commit()] = number
            if number % 3 == 0:
                moving.numbers[name][store.compact(full=True)] = number
                store.vacuum(older_than=0)
        for k in range(KEYS):
            backend.set_current_key(k)
            for state in states:
                state.update(number)
        version = keyed.commit([backend.snapshot("full").result()])
        backend.notify_complete(version)
        moving.numbers["s"][version] = number
        write_version(moving.toys, number + 1, {("a", "x"): number + 1, ("b", "x"): number + 1})
        moving.numbers["toys"][number + 1] = number + 1

    moving._step = step
    moving.numbers["toys"][1] = 1
    moving.move()
    return moving


@contextmanager
def moved_on_by_looks(moving: Moving) -> Iterator[None]:
    """Let every look at the log of a store or at the folder of an engine find a version of its own."""

    def after_a_move(look: Callable[..., Any]) -> Callable[..., Any]:
        def looked(*given: Any, **named: Any) -> Any:
            if named.get("version") is None:
                moving.looked()
            return look(*given, **named)

        return looked

    with pytest.MonkeyPatch.context() as patch:
        for module in (segment_files, store_metadata):
            patch.setattr(module, "load_log_state", after_a_move(module.load_log_state))
        patch.setattr(keyed_source, "shared_log", after_a_move(keyed_source.shared_log))
        patch.setattr(EngineOpening, "open", after_a_move(EngineOpening.open))
        yield
