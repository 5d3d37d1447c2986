"""Edits of real jobs' state of which a moment kills the process: a system call, or a request of an object store.

Trials run in children (`faults.children`).
"""

from __future__ import annotations

from pathlib import Path

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


def in_store(source: str, target: str, at: int, text: str) -> int:
    """Edit from and to an object store, and return the number of steps: before and after requests that write."""
    from support.processes.dying_requests import die_at_request

    steps = die_at_request(at, "put", "copy", "delete")
    with edit(source, target) as made:
        made.sql(text)
    return steps()
