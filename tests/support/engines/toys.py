"""Folders of toys, and the package that brings their engine."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

Toys = dict[tuple[str, str], int]
"""``n`` by ``k`` and ``field``."""

VERSIONS: dict[int, Toys] = {
    1: {("a", "x"): 1, ("a", "y"): 2, ("b", "x"): 3},
    2: {("a", "x"): 1, ("a", "y"): 20, ("c", "x"): 4},
    5: {("a", "x"): 1, ("b", "x"): 3, ("c", "x"): 4},
}
STEP = 1000
"""Milliseconds of state time from version to version: version ``n`` began at ``n * STEP``."""


def write_toys(folder: Path, versions: dict[int, Toys] = VERSIONS) -> Path:
    """A folder of toys with these versions."""
    folder.mkdir()
    (folder / "toy.txt").write_text("toy-1")
    for number, toys in versions.items():
        write_version(folder, number, toys)
    return folder


def write_version(folder: Path, number: int, toys: Toys) -> None:
    """One more version."""
    rows = [{"k": k, "field": field, "n": n} for (k, field), n in toys.items()]
    (folder / f"{number}.json").write_text(json.dumps({"time": number * STEP, "rows": rows}))


def as_toys(rows: list[dict[str, Any]]) -> Toys:
    """The toys in the rows of a scan."""
    found = {(row["k"], row["field"]): row["n"] for row in rows}
    assert len(found) == len(rows)
    return found


def write_package(file: Path) -> Path:
    """An installed package, zipped, whose entry point names the engine."""
    with zipfile.ZipFile(file, "w") as package:
        package.write(Path(__file__).with_name("toy_engine.py"), "toy_engine.py")
        package.writestr("toys-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: toys\nVersion: 1.0\n")
        package.writestr("toys-1.0.dist-info/entry_points.txt", "[statestore.engines]\ntoy = toy_engine\n")
    return file
