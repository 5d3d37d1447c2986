"""One edit of toys of which a system call fails or kills the process, and what is there afterwards.

Trials run in children (`faults.children`).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.engines.toy_edits import NOW, Model, edits_between, opened, read, same
from support.engines.toy_engine import Toys, plan_of

from faults.library import KINDS, Faults
from statestore.catalog.edits.apply import apply_edit
from statestore.catalog.edits.receipt import read_receipt
from statestore.formats.edits import EditOptions, EditPlan, StateEdit
from statestore.formats.errors import StateStoreError
from statestore.formats.places.folder import folder_at
from statestore.formats.places.locations import Location

AFTER = Model({("a", "x"): 1, ("a", "y"): 20, ("d", "x"): 5}, {"a": [1.0, 2.0], "c": [7.5], "d": [None, -0.0]})


@dataclass(frozen=True)
class Linking(Toys):
    """Toys whose lists are never changed in place, so that the target may have links to them."""

    def edit_plan(self, version: int, edits: Any, options: EditOptions) -> EditPlan:
        plan = plan_of(self, version, edits, options)
        kept = tuple(dataclasses.replace(file, immutable=file.path.startswith("queues/")) for file in plan.kept)
        return dataclasses.replace(plan, kept=kept)


def edits() -> list[StateEdit]:
    return edits_between(NOW, AFTER)


def edited(root: str, below: str, kinds: list[str], way: str, at: int, errno: int) -> dict[str, Any]:
    """Edit ``source`` into ``target``, both below ``root``, while a call on files in ``below`` is struck."""
    folder, faults = Path(root), Faults()
    toys, wanted = opened(folder / "source"), edits()
    faults.below(Path(below))
    faults.arm(kinds, way, at, errno)
    error = None
    try:
        apply_edit(Linking(toys.folder, toys.times), 2, wanted, str(folder / "target"))
    except StateStoreError as raised:
        error = str(raised.code)
    except OSError as raised:  # of the toy engine's own reads
        error = type(raised).__name__
    finally:
        counts = faults.counts
        fired = faults.fired
        faults.disarm()
    return {"error": error, "counts": counts, "fired": fired}


def counted(root: str, below: str) -> dict[str, int]:
    """The calls of each kind that an edit makes on files in ``below``."""
    found: dict[str, int] = edited(root, below, list(KINDS), "never", 1, 0)["counts"]
    return found


def whole_or_absent(target: Path) -> str:
    """Tell what is at the place of a target: absent, whole, or what is wrong with it."""
    if not target.exists():
        return "absent"
    receipt = read_receipt(folder_at(Location(str(target))))
    if receipt is None:
        return "no receipt"
    found = opened(target)
    if not same(read(found, 2), AFTER) or sorted(found.times) != [1, 2]:
        return f"other rows: {read(found, 2)}"
    return "whole"
