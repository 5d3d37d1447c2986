"""Figures of benchmarks that are files of their own: they print JSON lines with ``measure``, ``ratio`` and ``goal``."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.results.figure import Figure

FOLDER = Path(__file__).resolve().parents[1]
FILES = tuple(sorted(path.name for path in FOLDER.glob("*.py") if not path.name.startswith("__")))


def run_file(name: str, quick: bool) -> Iterator[Figure]:
    """Run a file of this folder in a process of its own, and yield its figures as it prints them."""
    command = [sys.executable, str(FOLDER / name), *(["--quick"] if quick else [])]
    with subprocess.Popen(command, cwd=FOLDER.parent, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        yield from figures_of_lines(name, child.stdout)
    if child.returncode:
        raise ChildProcessError(f"benchmarks/{name} ended with status {child.returncode}.")


def figures_of_lines(name: str, lines: Iterable[str]) -> Iterator[Figure]:
    """The figures among these lines; a second one with the same name and load gets a number."""
    seen: Counter[tuple[str, str]] = Counter()
    for line in lines:
        fields = json.loads(line) if line.startswith("{") else {}
        if "measure" in fields and _number(fields.get("ratio")) is not None:
            figure = _figure(name, fields)
            seen[figure.name, figure.load] += 1
            times = seen[figure.name, figure.load]
            yield figure if times == 1 else _figure(name, {**fields, "number": f"no. {times}"})


def _figure(name: str, fields: dict[str, Any]) -> Figure:
    """Texts among the fields tell of which load the figure is."""
    texts = [value for key, value in fields.items() if isinstance(value, str) and key not in ("measure", "goal")]
    details = {key: value for key, value in fields.items() if key not in ("measure", "ratio")}
    return Figure(
        name, fields["measure"], fields["ratio"], _number(fields.get("goal")), load=", ".join(texts), details=details
    )


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
