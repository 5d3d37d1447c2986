"""A rebuild that is killed at any step, or overtaken, loses no store and leaves nothing that could reappear."""

from __future__ import annotations

import fcntl
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import statestore
from statestore.catalog.log.store_spec import REPLACED
from statestore.catalog.upkeep import store_folders
from statestore.catalog.upkeep.rebuild import replay
from statestore.catalog.upkeep.store_folders import replace_store

COLUMNS: dict[str, Any] = {"key": {"k": "string"}, "value": {"v": "bigint"}}


class Killed(BaseException):
    """The end of the process: no error handler may do anything after it."""


def filled(catalog: statestore.Catalog, name: str, commits: int) -> None:
    with catalog.create_store("s", **COLUMNS) as store:
        for number in range(commits):
            store.put(f"{name}{number}", number, timestamp=1000 + number)
            store.commit()


def keys_of(catalog: statestore.Catalog) -> set[str]:
    with catalog.open_store("s") as store:
        return {row["k"] for row in store.scan().read_all().to_pylist()}


def kill_a_rebuild(catalog: statestore.Catalog, step: int) -> None:
    """Die before the ``step``-th renaming of the folder; step 3 is before the replaced store is removed."""
    steps = 0
    rename = Path.rename

    def renaming(path: Path, target: Path) -> Path:
        nonlocal steps
        steps += 1
        if steps >= step:
            raise Killed
        return rename(path, target)

    def removing(*given: Any, **named: Any) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "rename", renaming)
        patch.setattr(shutil, "rmtree", removing)
        with pytest.raises(Killed):
            catalog.rebuild("s", key_groups=64)


@pytest.mark.parametrize("step", [1, 2, 3])
@pytest.mark.parametrize("first", ["list", "open", "create", "inspect"])
def test_a_store_is_there_after_a_rebuild_that_was_killed(tmp_path: Path, step: int, first: str) -> None:
    catalog = statestore.connect(tmp_path)
    filled(catalog, "old", 3)
    kill_a_rebuild(catalog, step)
    if first == "list":
        assert catalog.stores() == ["s"]
    elif first == "inspect":
        assert statestore.inspect(tmp_path).tables() == ["s"]
    elif first == "create":
        with pytest.raises(statestore.InvalidInputError, match="STORE_EXISTS"):
            catalog.create_store("s", **COLUMNS)
    assert keys_of(catalog) == {"old0", "old1", "old2"}
    assert catalog.stores() == ["s"] and catalog.verify("s").ok


@pytest.mark.parametrize("step", [1, 2, 3])
def test_what_a_killed_rebuild_left_goes_with_its_store_and_does_not_come_back(tmp_path: Path, step: int) -> None:
    catalog = statestore.connect(tmp_path)
    filled(catalog, "old", 3)
    kill_a_rebuild(catalog, step)
    catalog.drop_store("s")
    with pytest.raises(statestore.NotFoundError, match="STORE_NOT_FOUND"):
        catalog.open_store("s")
    assert list(tmp_path.iterdir()) == []
    filled(catalog, "new", 1)
    assert keys_of(catalog) == {"new0"}


@pytest.mark.parametrize("step", [1, 2, 3])
def test_the_next_rebuild_removes_what_a_killed_one_left(tmp_path: Path, step: int) -> None:
    catalog = statestore.connect(tmp_path)
    filled(catalog, "old", 3)
    kill_a_rebuild(catalog, step)
    catalog.rebuild("s", key_groups=32).close()
    assert keys_of(catalog) == {"old0", "old1", "old2"}
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


def test_two_rebuilds_of_one_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The later one to end has begun with a store that is gone, and does not touch what was written since."""
    catalog = statestore.connect(tmp_path)
    filled(catalog, "old", 3)

    def overtaken(old: Any, new: Any) -> None:
        replay(old, new)
        monkeypatch.setattr("statestore.catalog.stores.versioned.replay_in_tasks.replay", replay)
        with statestore.connect(tmp_path).rebuild("s", key_groups=32) as other:
            other.put("since", 1, timestamp=9000)
            other.commit()
        assert len(list(tmp_path.glob(".rebuilt-*"))) == 1, "the folder of this rebuild, which goes on"

    monkeypatch.setattr("statestore.catalog.stores.versioned.replay_in_tasks.replay", overtaken)
    with pytest.raises(statestore.StateStoreError, match=r"REBUILD_OVERTAKEN|STORE_REPLACED"):
        catalog.rebuild("s", key_groups=64)
    assert keys_of(catalog) == {"old0", "old1", "old2", "since"}
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


def test_a_live_store_is_not_replaced_under_a_writer_that_came_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its hot tier goes on to make files by their paths."""
    catalog = statestore.connect(tmp_path)
    with catalog.create_store("s", kind="key_value", **COLUMNS) as store:
        store.put("a", 1)
        store.commit()
    with catalog.open_store("s") as writer:

        def overtaken(*given: Any) -> None:
            assert writer.get("a") == 1
            replace_store(*given)

        monkeypatch.setattr("statestore.catalog.catalog.replace_store", overtaken)
        with pytest.raises(statestore.ConflictError, match="STORE_LOCKED"):
            catalog.rebuild("s", key_groups=64)
        writer.put("b", 2)
        assert writer.commit() == 2
    assert keys_of(catalog) == {"a", "b"}
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


def test_a_put_that_nobody_has_committed_is_not_lost_to_a_rebuild(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = statestore.connect(tmp_path)
    filled(catalog, "old", 1)
    with catalog.open_store("s") as writer:

        def overtaken(*given: Any) -> None:
            writer.put("put", 1, timestamp=5000)
            replace_store(*given)

        monkeypatch.setattr("statestore.catalog.catalog.replace_store", overtaken)
        with pytest.raises(statestore.ConflictError, match="REBUILD_OVERTAKEN"):
            catalog.rebuild("s", key_groups=64)
        writer.commit()
    assert keys_of(catalog) == {"old0", "put"}


@pytest.mark.parametrize("written", ["commit", "put", "dropped"])
def test_a_refused_rebuild_moves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str) -> None:
    """Nobody but its caller notices it: neither the writer, whose files have paths, nor a reader."""
    catalog = statestore.connect(tmp_path)
    filled(catalog, "old", 1)
    with catalog.open_store("s") as writer:

        def overtaken(*given: Any) -> None:
            if written == "dropped":
                catalog.drop_store("s")
                filled(catalog, "new", 1)
            else:
                writer.put("put", 1, timestamp=5000)
            if written == "commit":
                writer.commit()
            monkeypatch.setattr(store_folders, "_exchange", None)
            replace_store(*given)

        monkeypatch.setattr("statestore.catalog.catalog.replace_store", overtaken)
        with pytest.raises(statestore.ConflictError, match="REBUILD_OVERTAKEN"):
            catalog.rebuild("s", key_groups=64)
        if written == "put":
            writer.commit()
    assert keys_of(catalog) == ({"new0"} if written == "dropped" else {"old0", "put"})
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


@pytest.mark.parametrize("beginning", ["claim", "changelog"])
def test_writers_wait_at_the_gates_while_a_store_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beginning: str
) -> None:
    """Else a write could begin between the last look for writes and the exchange, and would be lost or undone."""
    catalog = statestore.connect(tmp_path)
    filled(catalog, "old", 1)
    writer = catalog.open_store("s", auto_compact=False)
    begin: Callable[[], object] = partial(writer.put, "x", 1, timestamp=9)
    if beginning == "claim":
        begin = partial(writer.write, pa.table({"k": ["x"], "v": [1], "timestamp": [9]}))
    exchange = store_folders._exchange
    waits, others = threading.Event(), ThreadPoolExecutor(1)
    started: list[Future[object]] = []
    lock_gate = fcntl.flock

    def locking(file: int, how: int) -> None:
        if how == fcntl.LOCK_SH:
            with pytest.raises(BlockingIOError):
                lock_gate(file, how | fcntl.LOCK_NB)
            waits.set()
        lock_gate(file, how)

    def exchanging(*given: Any) -> None:
        monkeypatch.setattr(fcntl, "flock", locking)
        started.append(others.submit(begin))
        assert waits.wait(60)
        monkeypatch.setattr(fcntl, "flock", lock_gate)
        exchange(*given)

    monkeypatch.setattr(store_folders, "_exchange", exchanging)
    catalog.rebuild("s", key_groups=64).close()
    with pytest.raises(statestore.NotFoundError, match="STORE_REPLACED"):
        started[0].result(60)
    others.shutdown()
    writer.close()
    assert keys_of(catalog) == {"old0"}


def test_a_rebuild_that_goes_on_is_not_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = statestore.connect(tmp_path)
    filled(catalog, "old", 3)
    given_up = store_folders._claims_given_up
    seen: list[str] = []

    def while_it_is_away(folder: Path) -> bool:
        assert folder.name.startswith(REPLACED)
        for ask in (catalog.open_store, catalog.drop_store, lambda name: catalog.create_store(name, **COLUMNS)):
            with pytest.raises(statestore.ConflictError, match="STORE_BUSY") as raised:
                ask("s")
            seen.append(raised.value.code)
        return given_up(folder)

    monkeypatch.setattr(store_folders, "CLAIM_WAIT", 0.05)
    monkeypatch.setattr(store_folders, "_claims_given_up", while_it_is_away)
    catalog.rebuild("s", key_groups=64).close()
    assert len(seen) == 3 and keys_of(catalog) == {"old0", "old1", "old2"}
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


@pytest.mark.parametrize("commits", [1, 5])
def test_a_store_that_took_the_place_of_the_rebuilt_one_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commits: int
) -> None:
    """However few versions it has: that no later one is in its log does not mean that it was not written to."""
    catalog = statestore.connect(tmp_path)
    filled(catalog, "old", 3)

    def overtaken(old: Any, new: Any) -> None:
        replay(old, new)
        other = statestore.connect(tmp_path)
        other.drop_store("s")
        filled(other, "new", commits)

    monkeypatch.setattr("statestore.catalog.stores.versioned.replay_in_tasks.replay", overtaken)
    with pytest.raises(statestore.StateStoreError, match=r"REBUILD_OVERTAKEN|STORE_REPLACED"):
        catalog.rebuild("s", key_groups=64)
    assert keys_of(catalog) == {f"new{number}" for number in range(commits)}
    assert [path.name for path in tmp_path.iterdir()] == ["s"]
