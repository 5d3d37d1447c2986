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
from statestore.catalog.log import store_log
from statestore.formats.engines import EngineOpening
from support.engines.toys import write_toys, write_version

KEYS = 4


@dataclass
class Moving:
    """Sources below a path. Commit number n writes n to all keys, so all that is read of one version has the same n.

    ``numbers``: the n of each version, by source.
    """

    path: Path
    numbers: dict[str, dict[int, int]]
    step: Callable[[int], None] = field(default=lambda number: None, repr=False)
    steps: int = 0
    is_moving: bool = False
    _lock: Any = field(default_factory=threading.RLock, repr=False)

    def move(self) -> None:
        """Commit to all sources, unless that is what is going on."""
        with self._lock:
            if not self.is_moving:
                self.is_moving = True
                try:
                    self.steps += 1
                    self.step(self.steps)
                finally:
                    self.is_moving = False


def moving_stores(folder: Path) -> Moving:
    """A warehouse with the versioned stores ``t`` and ``u`` and the keyed store ``s`` with the states ``x`` and ``y``.

    Each third time, files of the stores are replaced, and the old ones removed.
    """
    moving = Moving(folder, {name: {} for name in ("t", "u", "s")})
    catalog, key = statestore.connect(folder), {"k": "bigint"}
    for name in ("t", "u"):
        catalog.create_store(name, key=key, value={"n": "bigint"}).close()
    stores = {name: catalog.open_store(name, auto_compact=False) for name in ("t", "u")}
    keyed = catalog.create_store("s", kind="keyed", key=key)
    backend = keyed.backend()
    states = [backend.value_state(name, "bigint", default=0) for name in ("x", "y")]

    def step(number: int) -> None:
        for name, store in stores.items():
            for k in range(KEYS):
                store.put(k, {"n": number}, timestamp=1_000 * number)
            moving.numbers[name][store.commit()] = number
            if number % 3 == 0:
                moving.numbers[name][store.compact(full=True)] = number
                store.vacuum()
        for k in range(KEYS):
            backend.set_current_key(k)
            for state in states:
                state.update(number)
        version = keyed.commit([backend.snapshot("full").result()])
        backend.notify_complete(version)
        moving.numbers["s"][version] = number

    moving.step = step
    moving.move()
    return moving


def moving_toys(folder: Path) -> Moving:
    """A folder of toys, whose package must be importable."""
    moving = Moving(write_toys(folder, {}), {"toys": {}})

    def step(number: int) -> None:
        write_version(folder, number, {("a", "x"): number, ("b", "x"): number})
        moving.numbers["toys"][number] = number

    moving.step = step
    moving.move()
    return moving


@contextmanager
def moved_on_by_looks(moving: Moving) -> Iterator[None]:
    """Let every look at the log of a store or at the folder of an engine find a version of its own."""

    def after_a_move(look: Callable[..., Any]) -> Callable[..., Any]:
        def looked(*given: Any, **named: Any) -> Any:
            if named.get("version") is None:
                moving.move()
            return look(*given, **named)

        return looked

    with pytest.MonkeyPatch.context() as patch:
        for module in (store_log, store_metadata):
            patch.setattr(module, "load_log_state", after_a_move(module.load_log_state))
        patch.setattr(keyed_source, "shared_log", after_a_move(vars(keyed_source)["shared_log"]))
        patch.setattr(EngineOpening, "open", after_a_move(EngineOpening.open))
        yield
