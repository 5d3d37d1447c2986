"""Edits of real jobs' state of which a moment kills the process: a system call, or a request of an object store.

Trials run in children (`faults.children`).
"""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

from faults.library import CHANGING, Faults
from statestore.connector.edit.edit import edit


def on_disk(root: str, source: str, way: str, at: int, text: str) -> int:
    """Edit a path into ``target``, both below ``root``, and return the number of calls that change files."""
    folder, faults = Path(root), Faults()
    with edit(folder / source, folder / "target") as made:
        made.sql(text)
        faults.below(folder)
        faults.arm(list(CHANGING), way, at, 0)
        made.apply()
    found = sum(faults.counts[kind] for kind in CHANGING)
    faults.disarm()
    return found


class _Death:
    """Kills the process at its ``last``-th step; counts them."""

    def __init__(self, last: int) -> None:
        self.last, self.steps, self.lock = last, 0, threading.Lock()

    def step(self) -> None:
        with self.lock:
            self.steps += 1
            if self.steps == self.last:
                os.kill(os.getpid(), signal.SIGKILL)

    def around(self, request: Any) -> Any:
        def requested(*given: Any, **options: Any) -> Any:
            self.step()
            answer = request(*given, **options)
            self.step()
            return answer

        return requested


def in_store(source: str, target: str, at: int, text: str) -> int:
    """Edit from and to an object store, and return the number of steps: before and after requests that write."""
    import obstore

    death = _Death(at)
    for name in ("put", "copy", "delete"):
        setattr(obstore, name, death.around(getattr(obstore, name)))
    with edit(source, target) as made:
        made.sql(text)
    return death.steps
