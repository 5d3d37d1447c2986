"""Threads that share a live handle: writes go on during a commit, and the next commit takes in those of all threads."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from support.stores.live_places import PLACES, warehouse_in

import statestore
from statestore.catalog.commits.publish_commit import commit_change
from statestore.catalog.stores.live import live_store
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


def gated(monkeypatch: pytest.MonkeyPatch, **options: Any) -> Gate:
    gate = Gate(**options)
    monkeypatch.setattr(live_store, "commit_change", gate)
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
    """What a commit acknowledged is in the table, what a put acknowledged is there for the next commit, all once."""
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
