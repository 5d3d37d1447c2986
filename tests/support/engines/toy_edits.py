"""Folders of toys with all three states, edits of them, and what their rows must be then."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from statestore.formats.edits import StateEdit
from statestore.formats.places.locations import Location
from support.engines.toy_engine import COLUMNS, QUEUES, Toys, open_toys, place_of, queue_path
from support.engines.toys import STEP

PLACES = 3
Map = Mapping[tuple[str, str], int]
Lists = Mapping[str, Sequence[float | None]]


@dataclass(frozen=True)
class Model:
    """The states of a version: ``toys`` by ``k`` and ``field``, and ``queues`` by ``k``. ``totals`` follow."""

    toys: Map
    queues: Lists = field(default_factory=dict)

    def totals(self) -> dict[str, int]:
        return dict(Counter(k for k, _ in self.toys))


BEFORE = Model({("z", "x"): 9}, {"z": [0.0]})
NOW = Model(
    {("a", "x"): 1, ("a", "y"): 2, ("b", "x"): 3, ("c", "x"): 4},
    {"a": [1.0, 1.0, None], "b": [float("nan"), -0.0], "c": [7.5]},
)
"""The rows of versions 1 and 2 of `write_source`."""


def write_source(folder: Path, versions: Mapping[int, Model] | None = None) -> Path:
    """A folder of toys with these versions; their lists lie in three places."""
    (folder / "queues").mkdir(parents=True)
    for number, model in (versions or {1: BEFORE, 2: NOW}).items():
        rows = [{"k": k, "field": name, "n": n} for (k, name), n in model.toys.items()]
        totals = [{"k": k, "count": count} for k, count in model.totals().items()]
        content = {"time": number * STEP, "rows": rows, "places": PLACES, "totals": totals}
        (folder / f"{number}.json").write_text(json.dumps(content))
        for place in range(PLACES):
            here = [
                {"k": k, "item": item}
                for k, items in model.queues.items()
                if place_of(k, PLACES) == place
                for item in items
            ]
            (folder / queue_path(number, place)).write_text(json.dumps(here))
    (folder / "toy.txt").write_text("toy-1")
    return folder


def opened(folder: Path) -> Toys:
    found = open_toys(Location(str(folder)), {})
    assert isinstance(found, Toys)
    return found


def read(source: Toys, version: int) -> Model:
    """The rows of a version; its totals must be those that follow."""
    toys = {(row["k"], row["field"]): row["n"] for row in _rows(source, "toys", version)}
    queues: dict[str, list[float | None]] = {}
    for row in _rows(source, "queues", version):
        queues.setdefault(row["k"], []).append(row["item"])
    found = Model(toys, queues)
    assert {row["k"]: row["count"] for row in _rows(source, "totals", version)} == found.totals()
    return found


def _rows(source: Toys, state: str, version: int) -> list[dict[str, Any]]:
    at = source.at(state, version)
    return [row for part in at.parts(()) for batch in at.rows(part, at.schema.names, ()) for row in batch.to_pylist()]


def same(one: Model, other: Model) -> bool:
    """Whether two models are equal to the bit; NaN is one."""
    return repr(_sorted(one)) == repr(_sorted(other))


def _sorted(model: Model) -> tuple[object, object]:
    lists = {k: list(items) for k, items in model.queues.items() if items}
    return sorted(model.toys.items()), sorted(lists.items())


def edits_between(before: Model, after: Model) -> list[StateEdit]:
    """The edits that make one model of another: a whole unit is replaced where anything in it differs."""
    changed = [unit for unit in {**before.toys, **after.toys} if before.toys.get(unit) != after.toys.get(unit)]
    toys = StateEdit("toys", ("k", "field"), _toys(before, changed), _toys(after, changed))
    lists = [
        k
        for k in {**before.queues, **after.queues}
        if repr(list(before.queues.get(k, ()))) != repr(list(after.queues.get(k, ())))
    ]
    queues = StateEdit("queues", ("k",), _queues(before, lists), _queues(after, lists))
    return [edit for edit in (toys, queues) if edit.removed.num_rows or edit.added.num_rows]


def _toys(model: Model, units: Sequence[tuple[str, str]]) -> pa.Table:
    rows = [{"k": u[0], "field": u[1], "n": model.toys[u]} for u in units if u in model.toys]
    return pa.Table.from_pylist(rows, COLUMNS)


def _queues(model: Model, keys: Sequence[str]) -> pa.Table:
    rows = [{"k": k, "item": item} for k in keys for item in model.queues.get(k, ())]
    return pa.Table.from_pylist(rows, pa.schema([f for f in QUEUES if f.name != "place"]))


def tree(folder: Path) -> dict[str, tuple[int, str]]:
    """Time of modification and content of each file, and the times of folders."""
    return {
        path.relative_to(folder).as_posix(): (
            path.stat().st_mtime_ns,
            "" if path.is_dir() else hashlib.sha256(path.read_bytes()).hexdigest(),
        )
        for path in (folder, *folder.rglob("*"))
    }
