"""A script that takes and discards keyed snapshots and kills itself at the n-th change of a file system.

Python reports every file that is opened, linked, renamed or removed (audit events), in any thread. The process is
killed at each of these events, one fork after another, until one survives. The script prints the number of deaths, then
checks the files that each left, in a process of its own, and prints the problems.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import statestore
from statestore.catalog.keyed.backend import KeyedBackend
from statestore.catalog.keyed.keyed_store import KeyedStore

CHANGES = ("os.rename", "os.remove", "os.link", "os.mkdir", "os.rmdir", "shutil.rmtree", "shutil.copyfile")
KEYS = 60
Content = dict[str, Any]


class Death:
    """Kills the process at its ``last``-th step in ``root``; counts them."""

    def __init__(self, root: Path, last: int) -> None:
        self.root, self.last, self.steps = str(root), last, 0
        self.lock = threading.Lock()

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        writes = event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if not (writes or event in CHANGES) or not any(str(arg).startswith(self.root) for arg in args[:2]):
            return
        with self.lock:
            self.steps += 1
            if self.steps == self.last:
                os.kill(os.getpid(), signal.SIGKILL)


def states(backend: KeyedBackend, wide: bool) -> tuple[Any, Any]:
    kind = "struct<n:bigint,by:string>" if wide else "struct<n:int>"
    return backend.value_state("v", kind), backend.list_state("l", "string", namespace="int")


def write(backend: KeyedBackend, model: Content, number: int, wide: bool = False) -> None:
    value, elements = states(backend, wide)
    for key in range(number, KEYS, number + 1):
        name = f"k{key}"
        if backend.key_group(name) not in backend.key_groups:
            continue
        backend.set_current_key(name)
        row = {"n": number, "by": "w"} if wide else {"n": number}
        value.update(row)
        elements.set_current_namespace(number % 2)
        elements.add(str(number))
        model.setdefault(name, {"v": None, "l": {"0": [], "1": []}})
        model[name]["v"] = row
        model[name]["l"][str(number % 2)].append(str(number))


def content(backend: KeyedBackend, wide: bool) -> Content:
    value, elements = states(backend, wide)
    found: Content = {}
    for name in (f"k{key}" for key in range(KEYS)):
        if backend.key_group(name) in backend.key_groups:
            backend.set_current_key(name)
            lists: dict[str, list[str]] = {"0": [], "1": []}
            for namespace in lists:
                elements.set_current_namespace(int(namespace))
                lists[namespace] = elements.get()
            if value.value() is not None or any(lists.values()):
                found[name] = {"v": value.value(), "l": lists}
    return found


def widened(model: Content) -> Content:
    """The model after a migration: the added field is null."""
    return {
        key: {**row, "v": None if row["v"] is None else {"n": row["v"]["n"], "by": row["v"].get("by")}}
        for key, row in model.items()
    }


def prepare(store: KeyedStore, local: Path) -> Content:
    """Commit version 1, an incremental snapshot of two tasks."""
    model: Content = {}
    parts = []
    for groups in store.task_groups(2):
        with store.backend(groups, directory=local) as backend:
            write(backend, model, 0)
            parts.append(backend.snapshot("incremental").result())
    store.commit(parts)
    return model


def operate(store: KeyedStore, local: Path, model: Content) -> dict[int, Content]:
    """Run the operations; return the expected content of each version."""
    expected = {1: json.loads(json.dumps(model))}
    backends = [store.backend(groups, directory=local) for groups in store.task_groups(2)]
    for backend in backends:
        write(backend, model, 1)
    running = [backend.snapshot("incremental") for backend in backends]
    expected[2] = json.loads(json.dumps(model))
    assert store.commit([each.result() for each in running], transaction=("app", 1)) == 2
    for backend in backends:
        backend.notify_complete(2)
        write(backend, model, 2)
    store.discard(1)  # version 3
    running = [backends[0].snapshot("incremental"), backends[1].snapshot("full")]
    expected[4] = json.loads(json.dumps(model))
    assert store.commit([each.result() for each in running]) == 4
    for backend in backends:
        backend.dispose()
    store.discard(2)  # version 5
    with store.backend(directory=local) as backend:
        model = widened(model)
        write(backend, model, 3, wide=True)
        expected[6] = json.loads(json.dumps(model))
        assert store.commit([backend.snapshot("full").result()]) == 6
    store.discard(4)  # version 7
    return expected


def check(warehouse: Path, local: Path, expected: dict[int, Content], last: int) -> list[str]:
    """The problems of the files that were left."""
    wrong = []
    (verified,) = statestore.verify(warehouse)
    wrong += [str(problem) for problem in verified.problems]
    store = statestore.connect(warehouse).open_store("s")
    kept = store.retained()
    if not kept:
        wrong.append("no snapshot is kept")
    for version in kept:
        found: Content = {}
        for groups in store.task_groups(3):
            with store.backend(groups, version=version, directory=local) as backend:
                found |= content(backend, wide=True)
        right = widened(expected[version])
        if found != right:
            key = min(key for key in found | right if found.get(key) != right.get(key))
            wrong.append(f"version {version} has {found.get(key)} for {key}, expected {right.get(key)}")
    store.vacuum(older_than=0)
    (verified,) = statestore.verify(warehouse)
    if verified.unreferenced:
        wrong.append(f"left in the store: {verified.unreferenced}")
    left = [path.name for path in local.iterdir() if not path.name.startswith("new-")]  # they go after an hour
    if left:
        wrong.append(f"left in the local directory: {left}")
    with store.backend(directory=local) as backend:  # it can go on
        part = backend.snapshot("incremental").result()
        if store.commit([part]) not in range(kept[-1] + 1, 9):
            wrong.append("a commit has another version")
    return [f"killed at step {last}: {each}" for each in wrong]


def survived(run: Any) -> bool:
    """Return whether a fork that runs it survived; a fork that fails otherwise ends the script."""
    child = os.fork()
    if not child:
        try:
            run()
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return False
    if status:
        os._exit(1)
    return True


def main(root: Path, first: int, step: int) -> None:
    base, work = root / "base", root / "work"
    model_file = root / "expected.json"

    def begin() -> None:
        store = statestore.connect(base).create_store("s", kind="keyed", key={"k": "string"}, key_groups=16)
        model = prepare(store, root / "local")
        (root / "model.json").write_text(json.dumps(model))

    def run(last: int) -> None:
        store = statestore.connect(work / "warehouse").open_store("s")
        sys.addaudithook(Death(work, last))
        expected = operate(store, work / "local", json.loads((root / "model.json").read_text()))
        model_file.write_text(json.dumps(expected))

    def look(last: int) -> None:
        expected = {int(version): found for version, found in json.loads(model_file.read_text()).items()}
        wrong = check(work / "warehouse", work / "local", expected, last)
        if wrong:
            print("\n".join(wrong), flush=True)

    def fresh() -> None:
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(base, work / "warehouse")
        (work / "local").mkdir()

    survived(begin)
    fresh()
    survived(partial(run, 0))
    last, died = first, 0
    while True:
        fresh()
        alive = survived(partial(run, last))
        survived(partial(look, last))
        if alive:
            break
        died, last = died + 1, last + step
    print(f"died {died} times", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
