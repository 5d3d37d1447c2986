"""Threads that share a versioned handle: writes go on during a commit, and the next commit takes in all of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import statestore
from statestore.catalog.commits.publish_commit import commit_change
from statestore.catalog.stores.versioned import natural_versioned
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import StorageError

WAIT = 60  # seconds, after which a test fails instead of hanging


class Gate:
    """Stops the first commit that passes before it does anything, until it is opened, and then lets it do ``then``."""

    def __init__(self, then: Callable[..., Any] = commit_change) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()
        self.calls = 0
        self._then = then

    def __call__(self, *arguments: Any) -> Any:
        self.calls += 1
        if self.calls > 1:
            return commit_change(*arguments)
        self.reached.set()
        assert self.opened.wait(WAIT)
        return self._then(*arguments)


def refused(*_: Any) -> Any:
    raise StorageError(ErrorCode.DISK_FAILED, "the disk is full")


@pytest.fixture
def catalog(tmp_path: Path) -> statestore.Catalog:
    return statestore.connect(tmp_path)


@pytest.fixture
def store(catalog: statestore.Catalog) -> Iterator[statestore.VersionedStore]:
    store = catalog.create_store("s", key={"k": "string"}, value={"v": "bigint"})
    yield store
    store.close()


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as executor:
        yield executor


def gated(monkeypatch: pytest.MonkeyPatch, **options: Any) -> Gate:
    gate = Gate(**options)
    monkeypatch.setattr(natural_versioned, "commit_change", gate)
    return gate


def changelogs(store: statestore.VersionedStore, folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "s" / "changelog").iterdir())


def values(store: statestore.VersionedStore, **options: Any) -> dict[str, int]:
    rows = store.scan(columns=["k", "v"], **options).read_all().to_pylist()
    return {row["k"]: row["v"] for row in rows}


def test_writes_go_on_during_a_commit_and_share_the_next_one(
    store: statestore.VersionedStore, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = gated(monkeypatch)
    store.put("first", 0, 1)
    first = threads.submit(store.commit)
    assert gate.reached.wait(WAIT)
    written = threading.Barrier(5)

    def put_and_commit(number: int) -> int:
        store.put(f"k{number}", number, 10 + number)
        written.wait(WAIT)
        return store.commit()

    others = [threads.submit(put_and_commit, number) for number in range(4)]
    written.wait(WAIT)
    assert store.get("k0") is not None and store.get("first") is not None
    assert not first.done()
    gate.opened.set()
    assert first.result(WAIT) == 1
    assert {other.result(WAIT) for other in others} == {2} and store.version == 2
    assert values(store, version=1) == {"first": 0}
    assert values(store) == {"first": 0} | {f"k{number}": number for number in range(4)}


def test_a_write_during_a_commit_survives_the_process(
    catalog: statestore.Catalog,
    store: statestore.VersionedStore,
    threads: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The commit removes its own changelog, not that of later writes; the next handle takes in only these."""
    gate = gated(monkeypatch)
    store.put("a", 1, 1)
    commit = threads.submit(store.commit)
    assert gate.reached.wait(WAIT)
    before = changelogs(store, catalog.root)
    store.put("b", 2, 2)
    gate.opened.set()
    assert commit.result(WAIT) == 1
    after = changelogs(store, catalog.root)
    assert len(before) == len(after) == 1 and before != after
    store.close()  # as the end of the process: nothing is committed
    with catalog.open_store("s") as again:
        assert values(again) == {"a": 1}
        again.commit()
        assert values(again) == {"a": 1, "b": 2}
        assert [len(list(again.get_versions(key))) for key in ("a", "b")] == [1, 1]
        assert changelogs(again, catalog.root) == []


def test_after_a_commit_that_failed_all_writes_are_pending(
    catalog: statestore.Catalog,
    store: statestore.VersionedStore,
    threads: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = gated(monkeypatch, then=refused)
    store.put("a", 1, 1)
    commit = threads.submit(store.commit)
    assert gate.reached.wait(WAIT)
    store.put("b", 2, 2)
    gate.opened.set()
    with pytest.raises(StorageError):
        commit.result(WAIT)
    store.put("c", 3, 3)
    assert store.commit() == 1
    assert values(store) == {"a": 1, "b": 2, "c": 3}
    assert changelogs(store, catalog.root) == []


@pytest.mark.parametrize("adopted", [False, True])
def test_a_repeated_transaction_takes_back_the_writes_of_all_own_changelogs(
    catalog: statestore.Catalog, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch, adopted: bool
) -> None:
    """Own writes in two changelogs, after a commit that failed; writes of a dead writer stay."""
    catalog.create_store("s", key={"k": "string"}, value={"v": "bigint"}).close()
    store: statestore.VersionedStore = catalog.open_store("s")
    store.put("x", 0, 1)
    store.commit(transaction=("app", 1))
    if adopted:
        store.put("adopted", 1, 2)
    store.close()
    store = catalog.open_store("s")
    gate = gated(monkeypatch, then=refused)
    store.put("a", 1, 3)
    commit = threads.submit(store.commit)
    assert gate.reached.wait(WAIT)
    store.put("b", 2, 4)
    gate.opened.set()
    with pytest.raises(StorageError):
        commit.result(WAIT)
    assert store.commit(transaction=("app", 1)) == 1
    assert store.get("a") is None and store.get("b") is None
    store.close()
    with catalog.open_store("s") as again:
        again.commit()
        assert values(again) == ({"x": 0, "adopted": 1} if adopted else {"x": 0})


def test_refused_records_during_a_commit_are_counted_by_the_next(
    catalog: statestore.Catalog, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = catalog.create_store("s", key={"k": "string"}, value={"v": "bigint"}, history_retention=1_000)
    gate = gated(monkeypatch)
    store.put("a", 1, 100_000)
    store.put("late", 1, 1)
    commit = threads.submit(store.commit)
    assert gate.reached.wait(WAIT)
    assert not store.put("late", 2, 2).accepted
    gate.opened.set()
    assert commit.result(WAIT) == 1
    assert store.dropped_records == 2
    assert store.commit() == 2
    assert store.dropped_records == 2
    store.close()


@pytest.mark.parametrize("count", [2, 9])
def test_every_commit_of_many_threads_has_the_writes_of_its_thread(
    store: statestore.VersionedStore, threads: ThreadPoolExecutor, count: int
) -> None:
    def work(thread: int) -> list[int]:
        versions = []
        for number in range(12):
            store.put(f"t{thread}", number, 1 + number)
            versions.append(store.commit())
        return versions

    with ThreadPoolExecutor(count) as executor:
        found = list(executor.map(work, range(count)))
    for thread, versions in enumerate(found):
        for number, version in enumerate(versions):
            assert values(store, version=version, as_of=1 + number).get(f"t{thread}") == number
        assert len(list(store.get_versions(f"t{thread}"))) == len(versions)
