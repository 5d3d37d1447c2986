"""Trials like `faults.trials.neighbour_trials` on a keyed store: jobs that snapshot, commit, discard, vacuum and
restore."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import statestore
from faults.library import DOING, Faults
from faults.subjects import WrongAnswer
from faults.trials.keyed_trials import COMMITTED, KEYS, check_backend, fill, make_template
from statestore import CorruptError, StateStoreError

VALUES = {"a": 100, "b": 200}
__all__ = ["ACTS", "act", "copy", "judge", "make_template"]


@dataclass
class Act:
    """A finished act. ``committed``: the version of the snapshot that the process has committed."""

    committed: int | None = None
    read: list[int] = field(default_factory=list)
    new: bool = False


def _commits(root: Path, who: str, done: Act, kind: str) -> None:
    with (
        statestore.connect(root / "warehouse").open_store("s") as store,
        store.backend(directory=root / f"local-{who}") as backend,
    ):
        fill(backend, VALUES[who])
        done.committed = store.commit([backend.snapshot(kind).result()])


def _full(root: Path, who: str, done: Act) -> None:
    _commits(root, who, done, "full")


def _incremental(root: Path, who: str, done: Act) -> None:
    _commits(root, who, done, "incremental")


def _discards(root: Path, who: str, done: Act) -> None:
    with statestore.connect(root / "warehouse").open_store("s") as store:
        store.discard(1)


def _discards_the_newest(root: Path, who: str, done: Act) -> None:
    with statestore.connect(root / "warehouse").open_store("s") as store:
        store.discard(max(store.retained()))


def _vacuums(root: Path, who: str, done: Act) -> None:
    with statestore.connect(root / "warehouse").open_store("s") as store:
        store.vacuum(older_than=0)


def _restores(root: Path, who: str, done: Act) -> None:
    with (
        statestore.connect(root / "warehouse").open_store("s") as store,
        store.backend(directory=root / f"local-{who}") as backend,
    ):
        values = set()
        state = backend.value_state("v", "bigint")
        for number in range(KEYS):
            backend.set_current_key(f"k{number}")
            values.add(state.value())
        if len(values) > 1:
            raise WrongAnswer(f"a restored snapshot mixes {values}")
        done.read.append(values.pop())


def _tables(root: Path, who: str, done: Act) -> None:
    found = statestore.sql(str(root / "warehouse"), "SELECT * FROM s.v").to_pylist()
    values = {row["value"] for row in found}
    if len(values) != 1 or len(found) != KEYS:
        raise WrongAnswer(f"a table has {len(found)} rows with {values}")
    done.read.append(values.pop())


def _verifies(root: Path, who: str, done: Act) -> None:
    report = statestore.verify(root / "warehouse")[0]
    if not report.ok:
        raise WrongAnswer(f"verify beside others: {report.problems[0].code} {report.problems[0].message[:160]}")


ACTS: dict[str, Callable[[Path, str, Act], None]] = {
    "full snapshot": _full,
    "incremental snapshot": _incremental,
    "discard": _discards,
    "discard the newest": _discards_the_newest,
    "vacuum": _vacuums,
    "restore": _restores,
    "table": _tables,
    "verify": _verifies,
}


def copy(template: str, root: str) -> None:
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(template, root)


def act(root: str, kind: str, name: str, who: str, at: int, gate: str) -> dict[str, Any]:
    """Do the act; wait at the ``at``-th call (0: never) at the gate until the other process is through."""
    faults, done, error = Faults(), Act(), None
    faults.below(Path(root))
    faults.arm(DOING, "pause" if at else "never", max(at, 1), gate=gate)
    try:
        ACTS[name](Path(root), who, done)
    except StateStoreError as caught:
        error = f"{type(caught).__name__}: {str(caught)[:200]}"
        if isinstance(caught, CorruptError):
            error = f"WRONG: an undamaged store is called damaged: {error}"
    except BaseException as caught:
        error = f"WRONG: raw {type(caught).__name__}: {str(caught)[:200]}"
    faults.disarm()
    return {
        "committed": done.committed,
        "value": VALUES[who],
        "read": done.read,
        "error": error,
        "calls": faults.count,
    }


def judge(root: str, kind: str, a: dict[str, Any], b: dict[str, Any], acts: list[str]) -> list[str]:
    """The problems found after both processes are through."""
    wrong = []
    for name, one in zip(acts, (a, b), strict=True):
        if one["error"] and one["error"].startswith("WRONG"):
            wrong.append(f"{name}: {one['error']}")
        wrong += [f"{name} has read {value}" for value in one["read"] if value not in (*VALUES.values(), *range(1, 4))]
    try:
        wrong += _judge_versions(Path(root), a, b, "discard the newest" in acts)
    except BaseException as error:
        wrong.append(f"afterwards: {type(error).__name__}: {str(error)[:250]}")
    return wrong


def _judge_versions(root: Path, a: dict[str, Any], b: dict[str, Any], any_may_go: bool) -> list[str]:
    expected = {version: version for version in range(1, COMMITTED + 1)}
    expected |= {one["committed"]: one["value"] for one in (a, b) if one.get("committed") is not None}
    wrong = []
    with statestore.connect(root / "warehouse").open_store("s") as store:
        kept = list(store.retained())
        for one in (a, b):
            version = one.get("committed")
            if version is not None and version not in kept and not any_may_go:
                wrong.append(f"LOST: version {version}, kept are {kept}")
        store.vacuum(older_than=0)
        for version in kept:
            with store.backend(version=version, directory=root / "local") as backend:
                if version in expected:
                    check_backend(backend, expected[version])
    report = statestore.verify(root / "warehouse")[0]
    if not report.ok or report.unreferenced:
        wrong.append(f"verify: {report.problems[:1]} left: {report.unreferenced[:2]}")
    return wrong
