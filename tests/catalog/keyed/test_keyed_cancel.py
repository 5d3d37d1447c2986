"""Keyed snapshots that are cancelled, fail, or whose backend is disposed of leave no files."""

from __future__ import annotations

import itertools
import os
import threading
import time
from typing import Any

import obstore
import pytest
from support.keyed.keyed_backends import refused
from support.keyed.keyed_gates import KINDS, WAIT, Gate, files, fill, own_files, reopened
from support.keyed.keyed_model import Tasks, travelled
from support.places import DIRECTORY, MEMORY

from statestore.catalog.keyed.keyed_store import KeyedStore
from statestore.catalog.keyed.snapshots import stored_files, written_file
from statestore.catalog.keyed.snapshots.snapshot_part import SnapshotKind

pytest_plugins = ["support.keyed.keyed_fixtures"]
PLACES = (DIRECTORY, MEMORY)


@pytest.mark.quick("memory-full--1", "directory-full-1", "directory-incremental*")
@pytest.mark.parametrize("passing", [0, 1, -1])
@pytest.mark.parametrize("kind", KINDS)
def test_a_cancelled_snapshot_leaves_nothing(
    kind: SnapshotKind, passing: int, store: KeyedStore, tasks: Tasks, gate: Gate
) -> None:
    """No file is left in the store or locally, whether none, one or all but one were written; the backend still
    works."""
    fill(tasks, 1)
    parts = travelled(tasks.snapshot([kind]))
    store.discard_files(parts)
    passing %= len(parts[0].files())
    gate.shut(passing)
    (running,) = tasks.snapshot([kind])
    assert gate.reached()
    deadline = time.monotonic() + WAIT
    while len(files(store)) < passing and time.monotonic() < deadline:  # those that pass may be on their way
        time.sleep(0.01)
    assert len(files(store)) == passing
    running.cancel()
    gate.open()
    with refused("SNAPSHOT_CANCELLED"):
        running.result(WAIT)
    assert files(store) == set() and running.done()
    assert own_files(tasks) == {"database", "owner.lock"}
    fill(tasks, 2)
    assert reopened(tasks, 1, tasks.commit(kind)) == tasks.model.content()


def test_cancelling_one_that_is_done_changes_nothing(store: KeyedStore, tasks: Tasks) -> None:
    fill(tasks, 1)
    (running,) = tasks.snapshot(["incremental"])
    part = running.result(WAIT)
    running.cancel()
    assert running.result(WAIT) is part and files(store) == set(part.files())


def test_cancelled_in_the_middle_of_a_file(store: KeyedStore, tasks: Tasks, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a region of a file no other one is written, except the end of an Arrow file, and written regions are
    removed."""
    monkeypatch.setattr(written_file, "REGION_BYTES", 64)
    monkeypatch.setattr(stored_files, "PARALLEL_UPLOADS", 1)
    fill(tasks, 1)
    running: list[Any] = []
    begun = threading.Event()
    regions = []
    region = written_file.NewFile._region

    def cancelled(file: written_file.NewFile) -> None:
        assert begun.wait(WAIT)
        regions.append(file.name)
        running[0].cancel()
        region(file)

    monkeypatch.setattr(written_file.NewFile, "_region", cancelled)
    for kind in KINDS:
        running[:] = tasks.snapshot([kind])
        begun.set()
        with refused("SNAPSHOT_CANCELLED"):
            running[0].result(WAIT)
        begun.clear()
        assert files(store) == set() and 1 <= len(regions) <= 2
        regions.clear()


@pytest.mark.parametrize("kind", KINDS)
def test_disposal_ends_a_snapshot_that_is_under_way(
    kind: SnapshotKind, store: KeyedStore, tasks: Tasks, gate: Gate
) -> None:
    fill(tasks, 1)
    gate.shut(1)
    (running,) = tasks.snapshot([kind])
    assert gate.reached()
    disposing = threading.Thread(target=tasks.dispose)
    disposing.start()
    assert running.cancelled.wait(WAIT)
    gate.open()
    disposing.join(WAIT)
    assert not disposing.is_alive() and running.done()
    with refused("SNAPSHOT_CANCELLED"):
        running.result()
    assert files(store) == set() and list(tasks.directory.iterdir()) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_result_outlives_its_backend(kind: SnapshotKind, store: KeyedStore, tasks: Tasks) -> None:
    fill(tasks, 1)
    (running,) = tasks.snapshot([kind])
    running.result(WAIT)
    expected = tasks.model.content()
    tasks.dispose()
    assert reopened(tasks, 2, store.commit(travelled([running]))) == expected


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("after", [0, 1])
def test_a_snapshot_that_fails_leaves_nothing(
    kind: SnapshotKind, after: int, store: KeyedStore, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk or the object store is full at some file; the same backend's next snapshot is whole."""
    left, put = itertools.count(-after), obstore.put

    def full(*given: Any, **options: Any) -> None:
        if next(left) >= 0:
            raise OSError(28, "No space left on device")
        if options:
            put(*given, **options)

    fill(tasks, 1)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        patched.setattr(obstore, "put", full)
        (running,) = tasks.snapshot([kind])
        with pytest.raises(OSError, match="No space left"):
            running.result(WAIT)
    assert files(store) == set() and own_files(tasks) == {"database", "owner.lock"}
    assert reopened(tasks, 1, tasks.commit(kind)) == tasks.model.content()


def test_waiting_for_a_result_may_end(tasks: Tasks, gate: Gate) -> None:
    fill(tasks, 1)
    gate.shut()
    (running,) = tasks.snapshot(["full"])
    with pytest.raises(TimeoutError):
        running.result(0)
    gate.open()
    assert running.result(WAIT).kind == "full"
