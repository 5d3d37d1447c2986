"""Edits of real jobs' state of which a moment kills the process or fails: a system call, or a request of a store.

Trials run in children (`faults.children`).
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from faults.library import CHANGING, Faults
from statestore.connector.edit.edit import edit
from statestore.formats.errors import StateStoreError


def on_disk(root: str, source: str, text: str, given: dict[str, Any], **struck: Any) -> dict[str, Any]:
    """Edit a path into ``target``, both below ``root``, where the folder for temporary files is, too; return the error
    and the calls of each kind on files below ``below``, by default the root.

    ``struck`` has the arguments of `Faults.arm`.
    """
    folder, faults, error = Path(root), Faults(), None
    tempfile.tempdir = str(folder / "tmp")
    below = struck.pop("below", root)
    try:
        with edit(folder / source, folder / "target", **given) as made:
            if text:
                made.sql(text)
            faults.below(Path(below))
            faults.arm(struck.pop("kinds", list(CHANGING)), **struck)
            made.apply()
    except StateStoreError as raised:
        error = f"{raised.code}: {raised}"
    except OSError as raised:
        error = f"{type(raised).__name__}: {raised}"
    counts = faults.counts
    faults.disarm()
    return {"error": error, "counts": counts}


def in_store(source: str, target: str, at: int, text: str, given: dict[str, Any]) -> int:
    """Edit from and to an object store, and return the number of steps: before and after requests that write."""
    from support.processes.dying_requests import die_at_request

    steps = die_at_request(at, "put", "copy", "delete")
    with edit(source, target, **given) as made:
        if text:
            made.sql(text)
    return steps()
