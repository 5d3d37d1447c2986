"""Steps at which a Python process of Spark kills itself, or the executor that it works for, with SIGKILL.

A driver arms one step: ``arm(folder, "stage", "middle", deaths=2)``. Processes of Spark that have the folder in their
environment ask at each step whether they die there. Each death is marked by a file that only one process can make.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import Any

FOLDER = "STATESTORE_TEST_DEATHS"


def arm(folder: Path, step: str, when: str, *, deaths: int = 1, who: str = "worker", passes: int = 0) -> None:
    """Let the next processes that come to this step die, after ``passes`` of it and until there were so many deaths."""
    folder.mkdir(exist_ok=True)
    for file in folder.iterdir():
        file.unlink()
    new = folder / "new"
    new.write_text(json.dumps([step, when, deaths, who, passes]))
    new.rename(folder / "armed")


def count(folder: Path) -> int:
    """Return the number of deaths since a step was armed, and disarm it."""
    (folder / "armed").unlink()
    return len(list(folder.glob("died-*")))


def reach(step: str, when: str) -> None:
    """Die here, if this is the armed step and not enough have died."""
    folder = Path(os.environ.get(FOLDER, "/nowhere"))
    try:
        armed, armed_when, deaths, who, passes = json.loads((folder / "armed").read_text())
    except (FileNotFoundError, NotADirectoryError):
        return
    if (armed, armed_when) != (step, when):
        return
    if _first_of(folder, "passed", passes) or not _first_of(folder, "died", deaths):
        return
    if who == "worker":
        os.kill(os.getpid(), signal.SIGKILL)
    os.kill(_parent(os.getppid()), signal.SIGKILL)  # worker, daemon, executor
    signal.pause()


def _first_of(folder: Path, name: str, most: int) -> bool:
    """Make the next of so many files that only one process can make; return whether there was one left."""
    for number in range(most):
        try:
            os.close(os.open(folder / f"{name}-{number}", os.O_CREAT | os.O_EXCL))
            return True
        except FileExistsError:
            continue
    return False


def _parent(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def dying_rows(step: str, batches: Iterator[Any]) -> Iterator[Any]:
    """Pass on the batches in halves; die before the first, between two, or after the last."""
    reach(step, "first")
    for batch in batches:
        half = batch.num_rows // 2
        if half:
            yield batch.slice(0, half)
            reach(step, "middle")
        yield batch.slice(half)
    reach(step, "last")


def dying_call(function: Callable[..., Any], step: str) -> Callable[..., Any]:
    """Die before the call, or when it is done and nothing has left this process."""

    @wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        reach(step, "before")
        found = function(*given, **named)
        reach(step, "after")
        return found

    return call


def dying_reader(function: Callable[..., Iterator[Any]], step: str) -> Callable[..., Iterator[Any]]:
    @wraps(function)
    def read(*given: Any, **named: Any) -> Iterator[Any]:
        return dying_rows(step, function(*given, **named))

    return read


def dying_stage(stage: Callable[..., Any]) -> Callable[..., Any]:
    """Die before the first row was staged, in the middle, or before the message is sent."""

    @wraps(stage)
    def staged(folder: Path, batches: Iterator[Any], write: Any) -> Any:
        found = stage(folder, dying_rows("stage", batches), write)
        reach("stage", "message")
        return found

    return staged
