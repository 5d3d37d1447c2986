"""The failing-call sweep of keyed stores: backends, snapshots, commits, restores and discards.

As in `faults.trials.failing_trials`, ``struck`` does the operation and continues, ``beyond`` reads in another process.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import statestore
from faults.library import Faults
from faults.subjects import WrongAnswer
from faults.trials.failing_trials import judge_error
from statestore import CommitUnknownError, StateStoreError

KEYS = 12
RESTORE = re.compile(r"\b(re-?open|restore|another backend|a new backend|open_store|open it again)", re.IGNORECASE)
COMMITTED = 3  # versions of the template; each value is its version


@dataclass
class Scene:
    """A store, a backend of it, and parts that were taken; ``versions``: the committed values, by version."""

    root: Path
    store: Any = None
    backend: Any = None
    parts: list[Any] = field(default_factory=list)
    newest: int = COMMITTED

    @property
    def warehouse(self) -> Path:
        return self.root / "warehouse"

    @property
    def local(self) -> Path:
        return self.root / "local"


Operation = Callable[[Scene], None]


def fill(backend: Any, value: int) -> None:
    state, many = backend.value_state("v", "bigint"), backend.map_state("m", "string", "bigint")
    for number in range(KEYS):
        backend.set_current_key(f"k{number}")
        state.update(value)
        many.put("a", value)


def check_backend(backend: Any, value: int) -> None:
    """Check that all keys have this value in both states."""
    state, many = backend.value_state("v", "bigint"), backend.map_state("m", "string", "bigint")
    for number in range(KEYS):
        backend.set_current_key(f"k{number}")
        if state.value() != value or many.get("a") != value:
            raise WrongAnswer(f"k{number} has {state.value()} and {many.get('a')}, expected {value}")


def _update(scene: Scene) -> None:
    fill(scene.backend, COMMITTED + 1)


def _full(scene: Scene) -> None:
    scene.parts.append(scene.backend.snapshot("full").result())


def _incremental(scene: Scene) -> None:
    scene.parts.append(scene.backend.snapshot("incremental").result())


def _commit(scene: Scene) -> None:
    scene.store.commit(scene.parts, transaction=("job", 1))


def _restore(scene: Scene) -> None:
    with scene.store.backend(directory=scene.local) as backend:
        check_backend(backend, COMMITTED)


def _restore_old(scene: Scene) -> None:
    with scene.store.backend(version=2, directory=scene.local) as backend:
        check_backend(backend, 2)


def _discard(scene: Scene) -> None:
    scene.store.discard(1)


def _vacuum(scene: Scene) -> None:
    scene.store.vacuum(older_than=0)


def _table(scene: Scene) -> None:
    for version in (2, COMMITTED):
        query = f"SELECT * FROM s.v VERSION AS OF {version}"
        found = sorted((row["k"], row["value"]) for row in statestore.sql(str(scene.warehouse), query).to_pylist())
        if found != sorted((f"k{number}", version) for number in range(KEYS)):
            raise WrongAnswer(f"version {version} answers {found!r:.200}")


def _verify(scene: Scene) -> None:
    report = statestore.verify(str(scene.warehouse))[0]
    if not report.ok:
        codes = {problem.code for problem in report.problems}
        if codes - {"DISK_FAILED"}:
            raise WrongAnswer(f"verify reports {codes} of an undamaged store: {report.problems[0].message[:120]}")


def _create(scene: Scene) -> None:
    statestore.connect(scene.warehouse).create_store("new", kind="keyed", key={"k": "string"}).close()


# name: (what is done, whether parts were taken before)
OPERATIONS: dict[str, tuple[Operation, bool]] = {
    "update": (_update, False),
    "full snapshot": (_full, False),
    "incremental snapshot": (_incremental, False),
    "commit": (_commit, True),
    "restore": (_restore, False),
    "restore an old version": (_restore_old, False),
    "discard": (_discard, False),
    "vacuum": (_vacuum, False),
    "table": (_table, False),
    "verify": (_verify, False),
    "create_store": (_create, False),
}


def make_template(root: str, kind: str = "keyed") -> None:
    warehouse, local = Path(root) / "warehouse", Path(root) / "local"
    store = statestore.connect(warehouse).create_store("s", kind="keyed", key={"k": "string"}, key_groups=8)
    with store.backend(directory=local) as backend:
        for version in range(1, COMMITTED + 1):
            fill(backend, version)
            part = backend.snapshot("full" if version == 2 else "incremental").result()
            backend.notify_complete(store.commit([part]))
    store.close()


def struck(
    template: str, root: str, kind: str, operation: str, kinds: Sequence[str], way: str, at: int, errno: int
) -> dict[str, Any]:
    """Do the operation on a copy of the template with the fault, and continue without it."""
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(template, root)
    faults, scene, wrong = Faults(), Scene(Path(root)), []
    faults.below(Path(root))
    act, taken = OPERATIONS[operation]
    scene.store = statestore.connect(scene.warehouse).open_store("s")
    scene.backend = scene.store.backend(directory=scene.local)
    fill(scene.backend, COMMITTED + 1)
    if taken:
        _incremental(scene)
    error: BaseException | None = None
    faults.arm(kinds, way, at, errno)
    try:
        act(scene)
    except BaseException as caught:
        faults.disarm()
        error = caught
        wrong += judge_error(caught)
    faults.disarm()
    fired, counts = faults.fired, faults.counts
    if fired or way == "never":
        wrong += _go_on(scene, operation, act, error)
    return {
        "fired": fired,
        "counts": counts,
        "wrong": wrong,
        "error": None if error is None else f"{type(error).__name__}: {str(error)[:200]}",
        "acknowledged": [scene.newest],
    }


def _go_on(scene: Scene, operation: str, act: Operation, error: BaseException | None) -> list[str]:
    """Check that the same store works without the fault: the operation can be repeated, a snapshot taken, committed,
    restored."""
    wrong: list[str] = []

    def step(name: str, again: Callable[[], None]) -> None:
        try:
            again()
        except BaseException as caught:
            if isinstance(caught, StateStoreError) and RESTORE.search(caught.message):
                return
            wrong.append(f"{name}: {type(caught).__name__}: {str(caught)[:200]}")

    if isinstance(error, CommitUnknownError):
        step("was_committed", lambda: scene.store.was_committed(error.commit))
    if error is not None and not (operation == "discard" and 1 not in scene.store.retained()):
        step("repeated without the fault", lambda: _repeat(scene, operation, act))
    if operation == "commit":  # by now it must be there
        scene.newest += 1

    def goes_on() -> None:
        check_backend(scene.backend, COMMITTED + 1)
        fill(scene.backend, 50)
        part = scene.backend.snapshot("incremental").result()
        version = scene.store.commit([part])
        scene.newest = version
        scene.backend.notify_complete(version)

    if error is None or operation != "update":
        step("the same backend afterwards", goes_on)
    step("disposing the backend", scene.backend.dispose)

    def another() -> None:
        with scene.store.backend(directory=scene.local) as backend:
            fill(backend, 60)
            scene.newest = scene.store.commit([backend.snapshot("full").result()])

    step("another backend afterwards", another)
    step("close", scene.store.close)
    return wrong


def _repeat(scene: Scene, operation: str, act: Operation) -> None:
    if operation == "create_store":
        with contextlib.suppress(statestore.InvalidInputError):  # STORE_EXISTS: the first attempt did it
            act(scene)
        statestore.connect(scene.warehouse).open_store("new").close()
        return
    act(scene)


def beyond(root: str, kind: str, operation: str, acknowledged: list[int]) -> list[str]:
    """The problems that another process finds; ``acknowledged`` is the newest version."""
    wrong: list[str] = []
    scene = Scene(Path(root))
    try:
        with statestore.connect(scene.warehouse).open_store("s") as store:
            kept = sorted(store.retained())
            if kept[-1] != acknowledged[0]:
                wrong.append(f"the newest version is {kept[-1]}, acknowledged was {acknowledged[0]}")
            with store.backend(directory=scene.local) as backend:
                check_backend(backend, 60)
            for version in kept:
                with store.backend(version=version, directory=scene.local) as backend:
                    if version <= COMMITTED:
                        check_backend(backend, version)
            store.vacuum(older_than=0)
        for report in statestore.verify(str(scene.warehouse), "s"):
            if not report.ok:
                wrong.append(f"verify: {report.problems[0].code} {report.problems[0].message[:160]}")
            if report.unreferenced:
                wrong.append(f"left after vacuum: {[name for name, _ in report.unreferenced][:3]}")
        left = [path.name for path in scene.local.iterdir()] if scene.local.exists() else []
        if left:
            wrong.append(f"local files are left: {left[:3]}")
    except BaseException as error:
        wrong.append(f"another process: {type(error).__name__}: {str(error)[:250]}")
    return wrong
