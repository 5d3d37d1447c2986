"""Each system call of each operation fails in turn: the answer is right or an error of the tree, and nothing is
lost."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from faults.campaign import ONLY, Sweep, scratch, shuffled
from faults.children import Children, Zygote, children
from faults.library import DOING, KINDS
from faults.subjects import SUBJECTS
from faults.trials.failing_trials import operations as operations_of
from faults.trials.keyed_trials import OPERATIONS as KEYED_OPERATIONS

MODES: dict[str, tuple[tuple[str, ...], str, int]] = {
    "EIO once": (DOING, "once", errno.EIO),
    "ENOSPC from then on": (("write", "open to write", "mkdir", "link", "rename"), "from then on", errno.ENOSPC),
    "EMFILE once": (("open to read", "open to write"), "once", errno.EMFILE),
    "EROFS from then on": (
        ("open to write", "write", "mkdir", "link", "rename", "unlink", "truncate"),
        "from then on",
        errno.EROFS,
    ),
    "short write": (("write",), "short", 0),
    "short read": (("read",), "short", 0),
    "EIO of fsync from then on": (("sync",), "from then on", errno.EIO),
    "EIO from then on": (DOING, "from then on", errno.EIO),
    "EIO of looking once": (("look",), "once", errno.EIO),
    "ENOLCK once": (("lock",), "once", errno.ENOLCK),
}
STORES = (*SUBJECTS, "keyed")
SHARE = 0.15 / len(STORES)


@dataclass(frozen=True)
class Trial:
    kind: str
    operation: str
    mode: str
    at: int

    def __str__(self) -> str:
        return f"{self.kind}/{self.operation}/{self.mode}/{self.at}"


def module(kind: str) -> str:
    """The module with the trials of a kind of store."""
    return "faults.trials.keyed_trials" if kind == "keyed" else "faults.trials.failing_trials"


def calls(zygote: Zygote, folder: Path, kind: str, operation: str) -> dict[str, int]:
    """The number of calls of each kind that the operation makes without a fault; nothing may be wrong then."""
    template, root = str(folder / "template"), str(folder / f"count-{id(zygote)}")
    arguments: dict[str, Any] = {"template": template, "root": root, "kind": kind, "operation": operation}
    ended = zygote.run(module(kind) + ":struck", **arguments, kinds=KINDS, way="never", at=1, errno=0)
    assert ended.bad is None, ended.bad
    assert ended.value["wrong"] == [] and ended.value["error"] is None, (operation, ended.value)
    arguments = {"root": root, "kind": kind, "operation": operation, "acknowledged": ended.value["acknowledged"]}
    after = zygote.run(module(kind) + ":beyond", **arguments)
    assert after.value == [], (operation, after)
    counts: dict[str, int] = ended.value["counts"]
    return counts


def all_trials(found: Children, folder: Path, kind: str) -> list[Trial]:
    """One trial for each call of each operation, in each mode of the call."""
    ended = found.run(module(kind) + ":make_template", root=str(folder / "template"), kind=kind)
    assert ended.bad is None, ended.bad
    operations = list(KEYED_OPERATIONS) if kind == "keyed" else operations_of(kind)
    counted: dict[str, dict[str, int]] = {}

    def count(zygote: Zygote, operation: str) -> None:
        counted[operation] = calls(zygote, folder, kind, operation)

    found.each(operations, count, lambda: True)
    return [
        Trial(kind, operation, mode, at + 1)
        for operation in operations
        for mode, (kinds, _, _) in MODES.items()
        for at in range(sum(counted[operation][each] for each in kinds))
    ]


def attempt(sweep: Sweep, folder: Path, zygote: Zygote, trial: Trial) -> None:
    root = folder / f"root-{id(zygote)}"
    kinds, way, number = MODES[trial.mode]
    ended = zygote.run(
        module(trial.kind) + ":struck",
        template=str(folder / "template"), root=str(root), kind=trial.kind, operation=trial.operation, kinds=kinds,
        way=way, at=trial.at, errno=number,
    )  # fmt: skip
    sweep.figures["trials"] += 1
    if ended.bad is not None:
        sweep.found(f"{trial.operation}: {ended.bad}", str(trial))
        return
    wrong = list(ended.value["wrong"])
    sweep.figures["struck"] += ended.value["fired"]
    sweep.figures["errors raised"] += ended.value["error"] is not None
    if ended.value["fired"]:
        after = zygote.run(
            module(trial.kind) + ":beyond", root=str(root), kind=trial.kind, operation=trial.operation,
            acknowledged=ended.value["acknowledged"],
        )  # fmt: skip
        wrong += [after.bad.splitlines()[0]] if after.bad is not None else after.value
    for what in wrong:
        sweep.found(f"{trial.operation}: {what}", str(trial))


def sweep_kind(kind: str) -> None:
    sweep = Sweep(f"failing calls, {kind}", SHARE)
    found = children()
    with scratch() as folder:
        if ONLY:
            name, operation, mode, at = ONLY.split("/")
            trials = [Trial(name, operation, mode, int(at))] if name == kind else []
            all_trials(found, folder, kind)
        else:
            trials = shuffled(all_trials(found, folder, kind), sweep.name)
        sweep.begin()
        found.each(trials, lambda zygote, trial: attempt(sweep, folder, zygote, trial), sweep.goes_on)
    sweep.finish()


@pytest.mark.slow
@pytest.mark.parametrize("kind", STORES)
def test_any_system_call_may_fail(kind: str) -> None:
    sweep_kind(kind)
