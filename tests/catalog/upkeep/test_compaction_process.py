"""Compaction in a process of its own: the same answers, an end with the handle, and a death that is noticed."""

from __future__ import annotations

import logging
import os
import signal
from pathlib import Path
from typing import Any

import pytest

import statestore
from statestore.catalog.upkeep.background_compaction import compaction_lock
from statestore.catalog.upkeep.compaction_process import CompactionProcess, compaction_process_of
from statestore.catalog.upkeep.compaction_rules import DEFAULT

MANY = DEFAULT.small_fan_in


def opened(root: Path, **options: Any) -> statestore.VersionedStore:
    catalog = statestore.connect(root)
    if not (root / "s").exists():
        catalog.create_store("s", key={"k": "string"}, value={"v": "int"}).close()
    store: statestore.VersionedStore = catalog.open_store("s", **{"auto_compact": "process", **options})
    return store


def commit_many(store: statestore.VersionedStore, first: int = 0) -> None:
    """As many commits as make a step due, each of two keys."""
    for number in range(first, first + MANY):
        store.put("a", number, timestamp=2 * number)
        store.put(f"b{number % 7}", number, timestamp=2 * number + 1)
        store.commit()


def process_of(store: statestore.VersionedStore) -> CompactionProcess:
    return compaction_process_of(store._files)


def segments(store: statestore.VersionedStore) -> int:
    count: int = store.metrics()["segments"]
    return count


def value(store: statestore.VersionedStore, key: str, moment: int) -> Any:
    found = store.get(key, as_of=moment)
    return None if found is None else found.value


def check(root: Path, commits: int) -> None:
    """Each moment and each key has the value that was put."""
    with opened(root, read_only=True) as store:
        for number in range(0, commits, 9):
            assert value(store, "a", 2 * number) == value(store, f"b{number % 7}", 2 * number + 1) == number
        assert store.scan().read_all().num_rows == 8


def test_another_process_compacts_and_ends_with_the_handle(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        commit_many(store)
        worker = process_of(store)._worker
        assert worker is not None and worker.process.pid != os.getpid()
    assert worker.process.poll() == 0
    with opened(tmp_path) as store:
        assert store.version > MANY
        assert segments(store) < MANY // 4
        assert store.metrics()["failed_compaction"] is None
        assert process_of(store)._worker is None
    check(tmp_path, MANY)


def test_a_killed_process_is_reported_and_replaced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """No commit fails; the next one with due work starts another process."""
    with opened(tmp_path) as store, caplog.at_level(logging.WARNING, "statestore"):
        process = process_of(store)
        with compaction_lock(store._files):  # so that it has published nothing
            commit_many(store)
            worker = process._worker
            assert worker is not None
            os.kill(worker.process.pid, signal.SIGKILL)
            worker.finished.wait()
        assert store.metrics()["failed_compaction"] == "the process that compacts ended with status -9"
        assert "all commits are there" in caplog.text
        commit_many(store, MANY)
        assert process._worker is not None and process._worker is not worker
    with opened(tmp_path) as store:
        assert process_of(store).failed is None
        assert segments(store) <= MANY + 1  # 2 * MANY without it; what came after its start is not due yet
    check(tmp_path, 2 * MANY)


@pytest.mark.slow
def test_a_process_whose_store_is_gone_says_so(tmp_path: Path) -> None:
    """The error is that of the process; it ends when it is told to."""
    store = opened(tmp_path)
    commit_many(store)
    process = process_of(store)
    store.close()
    (tmp_path / "s").rename(tmp_path / "t")
    worker = process._tell(b"finish\n")
    assert worker is not None
    worker.finished.wait()
    process.stop()
    assert process.failed is not None and process.failed.startswith("NotFoundError: [FILE_NOT_FOUND]")
    (tmp_path / "t").rename(tmp_path / "s")
    check(tmp_path, MANY)


def test_a_process_that_cannot_be_started_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "none"))
    with opened(tmp_path) as store:
        commit_many(store)
        assert "cannot be started" in store.metrics()["failed_compaction"]
        assert store.version == MANY
    check(tmp_path, MANY)


@pytest.mark.parametrize("choice", ["thread", 1, None, "processes"])
def test_other_choices_are_refused(tmp_path: Path, choice: Any) -> None:
    opened(tmp_path).close()
    with pytest.raises(statestore.InvalidInputError, match=r"\[INVALID_OPTION\] auto_compact=.*expected True"):
        opened(tmp_path, auto_compact=choice)
