"""A process that dies at any point of any operation leaves the old or the new version, never a third thing.

Each operation is repeated, dying at its first, second, … step of storage or changelog, until it survives. After each
death a fresh handle must find exactly the versions that were committed, with every answer that the model gives, and
every acknowledged put; it must be able to go on, and vacuum must remove what was left behind and nothing else.
"""

from __future__ import annotations

import copy
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.parameters import SHARE
from support.processes.scripts import command
from support.stores.killing_storage import Killed, KillingStorage, Plan, killing_changelog
from support.stores.versioned_checks import Put, as_table, check_answers, check_points, create
from support.stores.versioned_model import Model

import statestore
from statestore.catalog import catalog as catalog_module
from statestore.catalog.commits import divided_records
from statestore.catalog.commits import open_rows as current_rows
from statestore.catalog.commits import publish_commit as write
from statestore.catalog.commits.writer_state import writer_of
from statestore.catalog.log.log_state import file_names
from statestore.catalog.stores.versioned.natural_versioned import NaturalVersionedStore
from statestore.catalog.stores.versioned.versioned_store import VersionedStore
from statestore.catalog.upkeep import compaction_rules
from statestore.catalog.upkeep.compaction_rules import Rules

TIMES = (None, 5, 9)
MAX_STEPS = 200
TRANSACTION = ("app", 7)

COMMITTED: list[list[Put]] = [
    [("a", 1, 2), ("b", 2, 3), ("c", 3, 4)],
    [("a", 4, 8), ("b", None, 9)],
    [("a", 5, 5), ("c", 6, 10)],
    [("b", 7, 12), ("c", None, 7), ("a", 4, 8)],
]
ADOPTED: list[Put] = [("a", 9, 11), ("c", 8, 1)]
OWN: list[Put] = [("d", 10, 13), ("a", None, 14), ("b", 11, 6)]


@dataclass(frozen=True)
class Operation:
    """An operation to interrupt.

    ``effects``: the effect on the model of each version that it commits; an interrupted operation may have made the
    first of them. ``settings`` replace thresholds of modules while the store is prepared and while it is operated on.
    """

    run: Callable[[VersionedStore], object]
    effects: list[Callable[[Model], None]]
    puts: bool = True
    settings: tuple[tuple[object, str, Any], ...] = ()
    compacted: bool = False
    replay: bool = False
    horizon: int | None = None


def _overwrite(model: Model) -> None:
    for row in [("a", None, 20), ("c", None, 20), ("b", 1, 20), ("e", 2, 20)]:
        model.put(*row)
    model.commit()


def _bulk_write(store: VersionedStore) -> None:
    writer_of(store._files).bulk_commits = 1  # so that it takes the index of open rows, and writes by two threads
    store.write(as_table(BULK))


def _bulk(model: Model) -> None:
    for row in BULK:
        model.put(*row)
    model.commit()


BULK: list[Put] = [("a", 1, 20), ("b", 2, 21), ("e", 3, 22)]
SMALL = ((compaction_rules, "DEFAULT", Rules(small_store=2, block_rows=2)),)
MINOR = ((compaction_rules, "DEFAULT", Rules(small_fan_in=3)),)
OPERATIONS = {
    "commit": Operation(lambda s: s.commit(), [Model.commit]),
    "transaction": Operation(lambda s: s.commit(transaction=TRANSACTION), [Model.commit], replay=True),
    "commit and compact": Operation(
        lambda s: (s.commit(), s.compact()),
        [Model.commit, Model.same_again, Model.same_again],
        settings=((compaction_rules, "DEFAULT", Rules(small_store=2, small_fan_in=3, block_rows=2)),),
    ),
    "overwrite": Operation(
        lambda s: s.write(as_table([("b", 1, 20), ("e", 2, 20)]), mode="overwrite"), [_overwrite], puts=False
    ),
    "bulk write": Operation(_bulk_write, [_bulk], puts=False, settings=((current_rows, "MIN_KEYS", 1),)),
    "divided write": Operation(
        _bulk_write, [_bulk], puts=False, settings=((current_rows, "MIN_KEYS", 1), (divided_records, "MEMORY", 1))
    ),
    "divided commit": Operation(
        lambda s: s.commit(), [Model.commit], settings=((current_rows, "MIN_KEYS", 1), (divided_records, "MEMORY", 1))
    ),
    "full compaction": Operation(lambda s: s.compact(full=True), [Model.same_again], settings=SMALL),
    "second compaction": Operation(lambda s: s.compact(full=True), [Model.same_again], settings=SMALL, compacted=True),
    "minor compaction": Operation(lambda s: s.compact(), [Model.same_again], settings=MINOR),
    "expiry": Operation(lambda s: s.expire(before=8), [Model.same_again], settings=SMALL, compacted=True, horizon=8),
    "log checkpoint": Operation(
        lambda s: s.commit(), [Model.commit], settings=((write, "LOG_CHECKPOINT_INTERVAL", 1),)
    ),
}


@pytest.fixture(params=OPERATIONS)
def operation(request: pytest.FixtureRequest) -> Iterator[Operation]:
    found = OPERATIONS[request.param]
    with pytest.MonkeyPatch.context() as patch:
        for module, name, value in found.settings:
            patch.setattr(module, name, value)
        yield found


@pytest.mark.quick("commit and compact-seventh step", "divided commit-seventh step", "expiry-seventh step")
@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.slow)], ids=["seventh step", "step"])
def test_killed_at_every_step(operation: Operation, every: int, tmp_path: Path) -> None:
    template, base = _prepare(tmp_path / "template", operation)
    first, steps = len(base.states) - 1, min(0, 3 - every)  # the first death is at step 3 at the latest
    outcomes = set()
    while steps < MAX_STEPS:
        steps += every
        root = tmp_path / str(steps)
        shutil.copytree(template, root)
        model = copy.deepcopy(base)
        survived = _operate(root, operation, model, steps)
        outcomes.add(_check_recovery(root, operation, model) - first)
        shutil.rmtree(root)
        if survived:
            break
    assert survived and steps >= 5
    assert outcomes == set(range(len(operation.effects) + 1)), "some death left the old, some the new version"


def _prepare(root: Path, operation: Operation) -> tuple[Path, Model]:
    catalog, model = statestore.connect(root), Model()
    create(catalog).close()
    store = catalog.open_store("s", auto_compact=False)
    for number, rows in enumerate(COMMITTED):
        _put(store, model, rows)
        store.commit()
        model.commit()
        if operation.compacted and number == 1:
            store.compact(full=True)
            model.same_again()
    if operation.puts:
        _put(store, model, ADOPTED)
    store.close()
    return root, model


def _put(store: VersionedStore, model: Model, rows: list[Put]) -> None:
    for key, value, time in rows:
        assert tuple(store.put(key, value, timestamp=time)) == model.put(key, value, time)


def _operate(root: Path, operation: Operation, model: Model, die_at: int) -> bool:
    """Run the operation; return whether it survived."""
    plan = Plan()
    _, spec = statestore.connect(root).locate("s")
    store = NaturalVersionedStore(KillingStorage(root / "s", plan), spec, auto_compact=False)
    if operation.puts:
        _put(store, model, OWN)
    plan.at = plan.done + die_at
    try:
        with killing_changelog(plan):
            operation.run(store)
        return True
    except Killed:
        return False
    finally:
        plan.at = 0
        _release_locks(store)


def _release_locks(store: NaturalVersionedStore) -> None:
    """Release the locks, as the system does when a process dies."""
    if store._changelogs._writer is not None:
        store._changelogs._writer.close()
    for file in store._changelogs._adopted.values():
        file.close()


def _check_recovery(root: Path, operation: Operation, model: Model) -> int:
    """Check the store after a death and return its version."""
    committed = len(model.states) - 1
    with statestore.connect(root).open_store("s", auto_compact=False) as store:
        found = int(store.version)
        for effect in operation.effects[: found - committed]:
            effect(model)
        _check(store, model, operation)
        if operation.replay:
            _replay(store, model)
        _put(store, model, [("d", 12, 21), ("a", 13, 9)])
        store.commit()
        model.commit()
        store.vacuum(older_than=0)
        assert _files(root / "s") == _expected_files(store)
    with statestore.connect(root).open_store("s", auto_compact=False) as store:
        assert len(store._pending.parts) == 0
        _check(store, model, operation)
    return found


def _replay(store: VersionedStore, model: Model) -> None:
    """Write the same rows again with the same transaction, as a streaming query does after a failure."""
    known = store._log_state.versions.find_transaction(*TRANSACTION)
    store.put_all(as_table(OWN))
    version = store.commit(transaction=TRANSACTION)
    if known is None:
        for row in OWN:
            model.put(*row)
        model.commit()
    assert version == len(model.states) - 1 if known is None else known
    assert store.versions()["application"].to_pylist().count(TRANSACTION[0]) == 1


def _check(store: VersionedStore, model: Model, operation: Operation) -> None:
    assert store.version == len(model.states) - 1
    horizon = store._log_state.horizon
    if horizon is None:
        check_points(store, model)
        check_answers(store, model, TIMES)
    else:
        assert operation.horizon is not None and horizon.time == operation.horizon * 1000
        for version in range(horizon.version, store.version + 1):
            for time in (None, operation.horizon, 9, 12):
                found = store.scan(version=version, as_of=time).read_all()
                assert found.num_rows == len(model.state_at(version, time))


def _files(root: Path) -> set[str]:
    return {p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file()}


def _expected_files(store: VersionedStore) -> set[str]:
    checkpoints = {i.name for i in store._storage.list("log/_checkpoint/") if i.name.endswith(".arrow")}
    log = {f"log/{version:020d}.json" for version in range(store.version + 1)}
    return {"store.json"} | log | checkpoints | file_names(store._log_state)


FIRST, LAST = 2, 44


@pytest.mark.slow
@pytest.mark.parametrize("step", [2 if SHARE == 1 else 4])
def test_processes_that_kill_themselves(step: int, tmp_path: Path) -> None:
    """Processes that really die before system calls leave every acknowledged put and whole versions."""
    kept = OPERATIONS["full compaction"]
    template, base = _prepare(tmp_path / "template", Operation(kept.run, kept.effects))
    copies = [shutil.copytree(template, tmp_path / str(n)) for n in range(FIRST, LAST + step, step)]
    deaths = command("dying_process", FIRST, step, *copies)
    done = subprocess.run(deaths, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    outcomes = []
    for root, line in zip(copies, done.stdout.splitlines(), strict=True):
        acknowledged, _, ending = line.rpartition(" ")
        assert ending in ("survived", f"{-signal.SIGKILL}"), done.stderr
        model = copy.deepcopy(base)
        for row in OWN[: len(acknowledged.removesuffix("c"))]:
            model.put(*row)
        outcomes.append(_check_death(root, model, "c" in acknowledged) - len(base.states) + 1)
    assert set(outcomes) == {0, 1, 2} and ending == "survived"


def _check_death(root: Path, model: Model, committed: bool) -> int:
    with statestore.connect(root).open_store("s", auto_compact=False) as store:
        found, before = int(store.version), len(model.states) - 1
        assert found > before or not committed
        for effect in [Model.commit, Model.same_again][: found - before]:
            effect(model)
        operation = OPERATIONS["commit"]
        _check(store, model, operation)
        _put(store, model, [("d", 12, 21)])
        store.commit()
        model.commit()
        store.vacuum(older_than=0)
        assert _files(root / "s") == _expected_files(store)
        _check(store, model, operation)
    return found


def test_killed_while_creating_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill leaves the store or none; where there is none, one of another schema can be created."""
    plan = Plan()
    outcomes = []
    for die_at in range(1, MAX_STEPS):
        catalog = statestore.connect(tmp_path / str(die_at))
        plan.at, plan.done = die_at, 0
        with monkeypatch.context() as patch:
            patch.setattr(catalog_module, "LocalStorage", lambda root: KillingStorage(root, plan))
            try:
                create(catalog).close()
                survived = True
            except Killed:
                survived = False
        outcomes.append(catalog.stores())
        if not catalog.stores():
            with pytest.raises(statestore.NotFoundError, match="STORE_NOT_FOUND"):
                catalog.open_store("s")
            catalog.create_store("s", key={"k": "string"}, value={"v": "bigint"}).close()
        with pytest.raises(statestore.InvalidInputError, match="STORE_EXISTS"):
            create(catalog)
        _use(catalog)
        if survived:
            break
    assert survived and [] in outcomes and outcomes[-1] == ["s"]


def _use(catalog: statestore.Catalog) -> None:
    model = Model()
    with catalog.open_store("s") as store:
        _put(store, model, COMMITTED[0])
        store.commit()
        model.commit()
        check_points(store, model)
        check_answers(store, model, TIMES)
        store.vacuum(older_than=0)
        assert _files(catalog.root / "s") == _expected_files(store)


def test_killed_while_dropping_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that is half gone is not there, and its name is free."""
    catalog = statestore.connect(tmp_path)
    create(catalog).close()

    def dies(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", dies)
        with pytest.raises(Killed):
            catalog.drop_store("s")
    assert catalog.stores() == []
    create(catalog).close()
    assert catalog.stores() == ["s"]
    catalog.drop_store("s")
    assert list(tmp_path.iterdir()) == []


def test_repeated_transaction_keeps_what_a_dead_writer_acknowledged(tmp_path: Path) -> None:
    """A repetition discards the rows that were written for it, not those taken over from another writer."""
    catalog, model = statestore.connect(tmp_path), Model()
    with create(catalog) as store:
        store.write(as_table(OWN), transaction=TRANSACTION)
        for row in OWN:
            model.put(*row)
        model.commit()
        _put(store, model, ADOPTED)
    with catalog.open_store("s") as store:
        store.put_all(as_table(OWN))
        assert store.commit(transaction=TRANSACTION) == 1
        check_points(store, model)
    with catalog.open_store("s") as store:
        check_points(store, model)
        assert store.commit() == 2
        model.commit()
        check_answers(store, model, TIMES)


def test_checkpoint_that_can_not_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit is made, and made once."""

    def no_space(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(write, "LOG_CHECKPOINT_INTERVAL", 1)
    monkeypatch.setattr(write, "write_log_checkpoint", no_space)
    model = Model()
    with create(statestore.connect(tmp_path)) as store:
        _put(store, model, OWN)
        assert store.commit() == 1 == store.commit()
        model.commit()
        check_answers(store, model, TIMES)
