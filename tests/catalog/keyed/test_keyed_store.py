"""Keyed stores whose snapshots are discarded during a read, and whose process is killed at any moment."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from support.keyed.keyed_backends import refused
from support.keyed.keyed_gates import files, fill, named
from support.keyed.keyed_model import Tasks, travelled
from support.object_stores.s3_server import S3Server
from support.parameters import SHARE
from support.places import DIRECTORY, MEMORY, S3, below
from support.processes.scripts import command

import statestore
from statestore.catalog.keyed.keyed_store import KeyedStore
from statestore.catalog.keyed.snapshots import stored_files
from statestore.catalog.log.storage import LocalStorage
from statestore.catalog.log.storage_objects import ObjectStorage

pytest_plugins = ["support.keyed.keyed_fixtures"]
PLACES = (DIRECTORY, MEMORY, S3)


def overtaken(store: KeyedStore, tasks: Tasks, monkeypatch: pytest.MonkeyPatch) -> int:
    """A snapshot that is discarded, while another one is committed, just after its first file was compared."""
    fill(tasks, 1)
    version = tasks.commit("incremental")
    fill(tasks, 2)
    parts = travelled(tasks.snapshot(["full"]))
    whole, opened = stored_files.checked, ObjectStorage.opened

    def overtake() -> None:
        if version in store.retained():
            store.commit(parts)
            store.discard(version)

    def late(storage: LocalStorage, file: Any) -> Path:
        found = whole(storage, file)
        overtake()
        return found

    def late_object(storage: ObjectStorage, file: Any) -> Any:
        overtake()
        return opened(storage, file)

    monkeypatch.setenv("STATESTORE_CACHE", str(tasks.directory.parent / "empty"))  # this machine has what it wrote
    monkeypatch.setattr(stored_files, "checked", late)
    monkeypatch.setattr(ObjectStorage, "opened", late_object)
    return version


@pytest.mark.quick("directory*")
@pytest.mark.parametrize("groups", [range(128), range(64)])
def test_a_backend_begins_with_the_newest_though_another_was(
    groups: range, store: KeyedStore, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = overtaken(store, tasks, monkeypatch)
    with store.backend(groups, directory=tasks.directory) as backend:
        assert store.retained() == [version + 1]
        found = list(backend.keys("total"))
    assert found == [
        key for key in tasks.tasks[0].backend.keys("total") if tasks.tasks[0].backend.key_group(key) in groups
    ]
    assert found


@pytest.mark.quick("directory", "memory")
def test_a_version_that_is_discarded_while_it_is_read_is_refused(
    store: KeyedStore, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = overtaken(store, tasks, monkeypatch)
    with refused("VERSION_NOT_FOUND", f"snapshot {version} of s.total", f"kept are {version + 1}"):
        store.scan("total").read_all()
    assert files(store) == named(store)


@pytest.mark.quick("directory", "memory")
def test_a_backend_of_a_version_that_is_discarded_meanwhile_is_refused(
    store: KeyedStore, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = overtaken(store, tasks, monkeypatch)
    with refused("VERSION_NOT_FOUND", str(version), f"kept are {version + 1}"):
        store.backend(version=version, directory=tasks.directory)
    assert len(list(tasks.directory.iterdir())) == 1, "that of the tasks"


# A process that is killed while it takes, commits, restores or discards keyed snapshots loses and leaks nothing.
#
# The last completed snapshot can be restored with another number of tasks, `verify` finds all its files, vacuum
# removes what was left behind, and the next backend removes the local files of the dead process.

EACH = 3 * SHARE.denominator
"""A process is killed at each of so many steps."""


def killed(root: Path, first: int, step: int) -> tuple[int, str]:
    """Run the script; return the number of processes that died, and the problems found afterwards."""
    run = subprocess.run(command("dying_backend", root, first, step), capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    *wrong, last = run.stdout.splitlines()
    return int(last.split()[1]), "\n".join(wrong)


@pytest.mark.slow
def test_killed_at_many_steps(tmp_path: Path) -> None:
    died, wrong = killed(tmp_path, 1, EACH)
    assert not wrong, wrong
    assert died >= 120 // EACH


@pytest.mark.slow
def test_killed_at_requests_of_an_object_store(
    s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every committed snapshot is complete, no batch is there twice, and vacuum removes the rest after a day."""
    for name in ("STATESTORE_CACHE", "STATESTORE_LOCAL"):
        monkeypatch.setenv(name, str(tmp_path / name))
    warehouse = s3_server.warehouse("crash")
    run = subprocess.run(
        command("keyed.dying_objects", below(warehouse, "s"), tmp_path / "local", EACH),
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    *wrong, last = run.stdout.splitlines()
    assert not wrong, wrong
    died = int(last.split()[1])
    assert died >= 75 // EACH
    catalog = statestore.connect(warehouse)
    left = {name for name, _ in catalog.verify("s").unreferenced}
    assert left or died < 12, "few deaths may all be at steps that leave nothing"
    with catalog.open_store("s") as store:
        assert store.vacuum("1 day") == []
        now = time.time_ns
        monkeypatch.setattr(time, "time_ns", lambda: now() + 25 * 3_600_000_000_000)
        assert {each.name for each in store.vacuum("1 day")} == left
    verified = catalog.verify("s")
    assert verified.ok and verified.unreferenced == ()
