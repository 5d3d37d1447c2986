"""Threads that share a handle: writes go on during a commit, and the next commit takes in those of all threads."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support.stores.live_places import PLACES, warehouse_in

import statestore
from statestore.catalog.commits.publish_commit import commit_change
from statestore.catalog.stores.live import live_store
from statestore.catalog.stores.versioned import natural_versioned
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CommitUnknownError, StorageError

WAIT = 60  # seconds, after which a test fails instead of hanging
THREADS = 6
MINUTE = 60_000
EVERYWHERE = pytest.mark.quick("directory-key_value", "directory-session", "objects-versioned*")
"""A few kinds in each place: kinds differ in what they write, places in publishing it."""
VERSIONED = "versioned, serde kafka"
OPTIONS: dict[str, dict[str, Any]] = {
    "key_value": {},
    "window": {"retention": 60 * MINUTE, "window_size": MINUTE},
    "session": {"retention": 60 * MINUTE},
    "join_window": {"window_before": MINUTE, "window_after": MINUTE, "retention": 60 * MINUTE, "num_segments": 3},
    VERSIONED: {"kind": "versioned", "serde": "kafka", "history_retention": 60 * MINUTE, "segment_interval": MINUTE},
}


class Gate:
    """Stops the first commit until it is opened, and then lets it do ``then``; counts the commits."""

    def __init__(self, then: Callable[..., Any] = commit_change, after: bool = False) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()
        self.calls = 0
        self._then, self._after = then, after

    def __call__(self, *arguments: Any) -> Any:
        self.calls += 1
        if self.calls > 1:
            return commit_change(*arguments)
        done = commit_change(*arguments) if self._after else None
        self.reached.set()
        assert self.opened.wait(WAIT)
        return done if self._after else self._then(*arguments)


def gated(monkeypatch: pytest.MonkeyPatch, module: ModuleType = live_store, **options: Any) -> Gate:
    gate = Gate(**options)
    monkeypatch.setattr(module, "commit_change", gate)
    return gate


def refused(*_: Any) -> Any:
    raise StorageError(ErrorCode.DISK_FAILED, "the disk is full")


def published_and_unknown(*arguments: Any) -> Any:
    commit_change(*arguments)
    raise CommitUnknownError(ErrorCode.COMMIT_UNKNOWN, "the machine may lose it")


@pytest.fixture(params=OPTIONS)
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(params=PLACES)
def catalog(tmp_path: Path, request: pytest.FixtureRequest) -> statestore.Catalog:
    return warehouse_in(tmp_path / "live", request.param)


@pytest.fixture
def store(catalog: statestore.Catalog, kind: str) -> Iterator[Any]:
    options = {"kind": kind, **OPTIONS[kind]}
    columns: dict[str, Any] = {"key": {"k": "string"}, "value": {"v": "bigint"}}
    with catalog.create_store("s", **columns, **options) as store:
        yield store


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(THREADS + 1) as executor:
        yield executor


def put(store: Any, kind: str, key: str, number: int) -> None:
    if kind == "key_value":
        store.put(key, number)
    elif kind == "session":
        store.put(key, 1_000, 1_000 + number, number)
    else:
        store.put(key, number, 1_000 + number)


def values(store: Any, **options: Any) -> list[tuple[str, int]]:
    """All rows of the table, repeated ones included."""
    rows = store.history(**options) if options else store.scan()
    return sorted((row["k"], row["v"]) for row in rows.read_all().to_pylist())


@pytest.fixture
def waiting(
    store: Any, kind: str, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[Gate, Any, list[Any]]]:
    """A commit that is stopped on its way, with those of other threads that wait for it."""

    def wait(**options: Any) -> tuple[Gate, Any, list[Any]]:
        gate = gated(monkeypatch, **options)
        put(store, kind, "first", 0)
        first = threads.submit(store.commit)
        assert gate.reached.wait(WAIT)
        written = threading.Barrier(THREADS + 1)

        def put_and_commit(number: int) -> int:
            put(store, kind, f"k{number}", number)
            written.wait(WAIT)
            version: int = store.commit()
            return version

        others = [threads.submit(put_and_commit, number) for number in range(THREADS)]
        written.wait(WAIT)
        return gate, first, others

    return wait


EVERYTHING = [("first", 0), *((f"k{number}", number) for number in range(THREADS))]


TWO = pytest.mark.parametrize("kind", ["key_value", VERSIONED], indirect=True)
"""Which kind a store has is nothing to the threads that share a commit: the kinds differ in what each one writes."""


@TWO
def test_threads_need_fewer_publications_than_commits(store: Any, waiting: Any) -> None:
    gate, first, others = waiting()
    assert not first.done()
    gate.opened.set()
    assert first.result(WAIT) == 1
    assert {other.result(WAIT) for other in others} == {2}
    assert gate.calls == 2 and store.version == 2
    assert values(store) == EVERYTHING


@EVERYWHERE
def test_each_commit_is_there_for_others_before_it_returns(
    catalog: statestore.Catalog, store: Any, kind: str, threads: ThreadPoolExecutor
) -> None:
    def work(thread: int) -> None:
        for number in range(3):
            put(store, kind, f"t{thread}", number)
            version = store.commit()
            with catalog.open_store("s", read_only=True) as reader:
                assert reader.version >= version
                found = reader.scan(version=version).read_all().to_pylist()
                assert number in [row["v"] for row in found if row["k"] == f"t{thread}"]

    for done in [threads.submit(work, thread) for thread in range(3)]:
        done.result(WAIT)


@TWO
def test_an_error_is_raised_in_the_thread_whose_commit_failed(store: Any, waiting: Any) -> None:
    gate, first, others = waiting(then=refused)
    gate.opened.set()
    with pytest.raises(StorageError, match="the disk is full"):
        first.result(WAIT)
    assert {other.result(WAIT) for other in others} == {1}
    assert values(store) == EVERYTHING
    assert store.commit() == 1


@EVERYWHERE
def test_a_commit_that_may_have_taken_place_is_not_repeated_by_those_who_wait(
    catalog: statestore.Catalog, store: Any, waiting: Any
) -> None:
    version = 2 if catalog.location.is_local else 3  # a fence is between: an object store may yet carry a put out
    gate, first, others = waiting(then=published_and_unknown)
    gate.opened.set()
    with pytest.raises(CommitUnknownError):
        first.result(WAIT)
    assert {other.result(WAIT) for other in others} == {version}
    assert values(store) == EVERYTHING
    assert values(store, version=version) == EVERYTHING


@pytest.mark.parametrize("catalog", ["directory"], indirect=True)
@pytest.mark.parametrize("published", [False, True])
def test_a_process_that_dies_during_a_commit_loses_no_write_and_repeats_none(
    tmp_path: Path, store: Any, kind: str, waiting: Any, published: bool
) -> None:
    """The directory is copied as a kill leaves it: before the commit is published, and before its writes are
    forgotten.
    """
    gate, first, others = waiting(after=published)
    shutil.copytree(tmp_path / "live", tmp_path / "killed")
    gate.opened.set()
    for done in (first, *others):
        done.result(WAIT)
    with statestore.connect(tmp_path / "killed").open_store("s") as again:
        assert again.version == int(published)
        if kind == "key_value":
            assert again.get("k1") == 1 and again.get("first") == 0
        again.commit()
        assert values(again) == EVERYTHING
        assert values(again, version=again.version) == EVERYTHING


@TWO
def test_closing_waits_for_the_commit_of_another_thread(
    catalog: statestore.Catalog, store: Any, kind: str, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = gated(monkeypatch)
    put(store, kind, "first", 0)
    commit = threads.submit(store.commit)
    assert gate.reached.wait(WAIT)
    closing = threads.submit(store.close)
    with (
        pytest.raises(statestore.ConflictError),
        catalog.open_store("s") as other,
    ):
        other.commit()
    assert not closing.done()
    gate.opened.set()
    assert commit.result(WAIT) == 1
    closing.result(WAIT)
    with catalog.open_store("s") as other:
        assert other.commit() == 1
        assert values(other) == [("first", 0)]


@EVERYWHERE
def test_a_refused_transaction_takes_back_only_its_own_writes(
    store: Any, kind: str, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, kind, "first", 0)
    assert store.commit(transaction=("app", 1)) == 1
    gate = gated(monkeypatch)
    put(store, kind, "k0", 0)
    commit = threads.submit(store.commit)
    assert gate.reached.wait(WAIT)
    put(store, kind, "k1", 1)
    repeated = threads.submit(store.commit, ("app", 1))
    gate.opened.set()
    assert commit.result(WAIT) == 2
    assert repeated.result(WAIT) == 1
    assert store.commit() == 2
    assert values(store) == [("first", 0), ("k0", 0)]


# Acknowledges each put and each commit of its threads by a line.
WRITER = """
import os, sys, threading, statestore
root, kind = sys.argv[1:]
store = statestore.connect(root).open_store("s")
def work(thread):
    for number in range(100_000):
        key = f"{thread}-{number}"
        store.put(key, number) if kind == "key_value" else store.put(key, number, number)
        os.write(1, b"put %s\\n" % key.encode())
        if number % 3 == 2:
            store.commit()
            os.write(1, b"commit %s\\n" % key.encode())
for thread in range(5):
    threading.Thread(target=work, args=(thread,)).start()
"""


@pytest.mark.quick("versioned")
@pytest.mark.parametrize("kind", ["key_value", "versioned"])
def test_threads_that_are_killed_lose_nothing_that_was_acknowledged(tmp_path: Path, kind: str) -> None:
    """Rows of an acknowledged commit are in the table, and acknowledged puts in the next commit, each once."""
    catalog = statestore.connect(tmp_path)
    catalog.create_store("s", kind=kind, key={"k": "string"}, value={"v": "bigint"}).close()
    command = [sys.executable, "-c", WRITER, str(tmp_path), kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        said = b""
        while said.count(b"commit") < 40:
            said += os.read(writer.stdout.fileno(), 65_536)
        writer.kill()
        said += writer.stdout.read()
    lines = [line.split() for line in said.decode().rpartition("\n")[0].splitlines()]
    put = {key for what, key in lines if what == "put"}
    committed = set()
    for key in (key for what, key in lines if what == "commit"):
        thread, _, last = key.partition("-")
        committed |= {f"{thread}-{number}" for number in range(int(last) + 1)}
    with catalog.open_store("s") as store:
        assert committed <= {key for key, _ in values(store)}
        store.commit()
        rows = values(store, version=store.version)
        assert len(rows) == len(set(rows)) and put <= {key for key, _ in rows}
        assert all(number == int(key.partition("-")[2]) for key, number in rows)
        assert len(rows) - len(put) <= 5  # a put whose line was not written yet


# Stores without a hot tier: writes go on during a commit, and the next commit takes in all of them


@pytest.fixture
def local(tmp_path: Path) -> statestore.Catalog:
    return statestore.connect(tmp_path)


@pytest.fixture
def natural(local: statestore.Catalog) -> Iterator[statestore.VersionedStore]:
    store = local.create_store("s", key={"k": "string"}, value={"v": "bigint"})
    yield store
    store.close()


def changelogs(store: statestore.VersionedStore, folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "s" / "changelog").iterdir())


def by_key(store: statestore.VersionedStore, **options: Any) -> dict[str, int]:
    rows = store.scan(columns=["k", "v"], **options).read_all().to_pylist()
    return {row["k"]: row["v"] for row in rows}


def test_writes_go_on_during_a_commit_and_share_the_next_one(
    natural: statestore.VersionedStore, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = gated(monkeypatch, natural_versioned)
    natural.put("first", 0, 1)
    first = threads.submit(natural.commit)
    assert gate.reached.wait(WAIT)
    written = threading.Barrier(5)

    def put_and_commit(number: int) -> int:
        natural.put(f"k{number}", number, 10 + number)
        written.wait(WAIT)
        return natural.commit()

    others = [threads.submit(put_and_commit, number) for number in range(4)]
    written.wait(WAIT)
    assert natural.get("k0") is not None and natural.get("first") is not None
    assert not first.done()
    gate.opened.set()
    assert first.result(WAIT) == 1
    assert {other.result(WAIT) for other in others} == {2} and natural.version == 2
    assert by_key(natural, version=1) == {"first": 0}
    assert by_key(natural) == {"first": 0} | {f"k{number}": number for number in range(4)}


def test_a_write_during_a_commit_survives_the_process(
    local: statestore.Catalog,
    natural: statestore.VersionedStore,
    threads: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The commit removes its own changelog, not that of later writes; the next handle takes in only these."""
    gate = gated(monkeypatch, natural_versioned)
    natural.put("a", 1, 1)
    commit = threads.submit(natural.commit)
    assert gate.reached.wait(WAIT)
    before = changelogs(natural, local.root)
    natural.put("b", 2, 2)
    gate.opened.set()
    assert commit.result(WAIT) == 1
    after = changelogs(natural, local.root)
    assert len(before) == len(after) == 1 and before != after
    natural.close()  # as the end of the process: nothing is committed
    with local.open_store("s") as again:
        assert by_key(again) == {"a": 1}
        again.commit()
        assert by_key(again) == {"a": 1, "b": 2}
        assert [len(list(again.get_versions(key))) for key in ("a", "b")] == [1, 1]
        assert changelogs(again, local.root) == []


def test_after_a_commit_that_failed_all_writes_are_pending(
    local: statestore.Catalog,
    natural: statestore.VersionedStore,
    threads: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = gated(monkeypatch, natural_versioned, then=refused)
    natural.put("a", 1, 1)
    commit = threads.submit(natural.commit)
    assert gate.reached.wait(WAIT)
    natural.put("b", 2, 2)
    gate.opened.set()
    with pytest.raises(StorageError):
        commit.result(WAIT)
    natural.put("c", 3, 3)
    assert natural.commit() == 1
    assert by_key(natural) == {"a": 1, "b": 2, "c": 3}
    assert changelogs(natural, local.root) == []


@pytest.mark.parametrize("adopted", [False, True])
def test_a_repeated_transaction_takes_back_the_writes_of_all_own_changelogs(
    local: statestore.Catalog, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch, adopted: bool
) -> None:
    """Own writes in two changelogs, after a commit that failed; writes of a dead writer stay."""
    local.create_store("s", key={"k": "string"}, value={"v": "bigint"}).close()
    store: statestore.VersionedStore = local.open_store("s")
    store.put("x", 0, 1)
    store.commit(transaction=("app", 1))
    if adopted:
        store.put("adopted", 1, 2)
    store.close()
    store = local.open_store("s")
    gate = gated(monkeypatch, natural_versioned, then=refused)
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
    with local.open_store("s") as again:
        again.commit()
        assert by_key(again) == ({"x": 0, "adopted": 1} if adopted else {"x": 0})


def test_refused_records_during_a_commit_are_counted_by_the_next(
    local: statestore.Catalog, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = local.create_store("s", key={"k": "string"}, value={"v": "bigint"}, history_retention=1_000)
    gate = gated(monkeypatch, natural_versioned)
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
    natural: statestore.VersionedStore, threads: ThreadPoolExecutor, count: int
) -> None:
    def work(thread: int) -> list[int]:
        versions = []
        for number in range(12):
            natural.put(f"t{thread}", number, 1 + number)
            versions.append(natural.commit())
        return versions

    with ThreadPoolExecutor(count) as executor:
        found = list(executor.map(work, range(count)))
    for thread, versions in enumerate(found):
        for number, version in enumerate(versions):
            assert by_key(natural, version=version, as_of=1 + number).get(f"t{thread}") == number
        assert len(list(natural.get_versions(f"t{thread}"))) == len(versions)
