"""A disk that fails for a moment ends no live handle: acknowledged rows stay, and the handle still works.

The hot tier is a cache, so an operation does not fail because of it alone; an operation that fails raises StorageError.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.open_files import open_below

import statestore
from statestore.catalog.stores.live.hot_tier import HotTier
from statestore.catalog.stores.live.tier_errors import broken
from statestore.formats.errors import CorruptError, StorageError

WAIT = 120
COLUMNS: dict[str, Any] = {"key": {"k": "string"}, "value": {"v": "bigint"}}
OPTIONS: dict[str, dict[str, Any]] = {
    "key_value": {"kind": "key_value"},
    "window": {"kind": "window", "retention": "1 day", "window_size": "1 minute"},
    "session": {"kind": "session", "retention": "1 day"},
    "join_window": {"kind": "join_window", "window_before": "1 hour", "window_after": "1 hour", "retention": "1 day"},
    "batched": {
        "kind": "join_window",
        "window_before": "1 hour",
        "window_after": "1 hour",
        "retention": "1 day",
        "batched_changelog": True,
    },
    "versioned": {"serde": "kafka", "history_retention": "1 day"},
}
FULL = "IO error: No space left on device: While appending to file: live/rocksdb/s/000012.sst: No space left on device"


def create(root: Path, kind: str) -> Any:
    return statestore.connect(root).create_store("s", **COLUMNS, **OPTIONS[kind])


def put(store: Any, key: str, value: int | None) -> Any:
    match store.spec.kind:
        case "key_value":
            return store.put(key, value)
        case "session":
            return store.put(key, 1_000, 2_000, value)
        case _:
            return store.put(key, value, 1_000)


def rows(store: Any) -> dict[str, int]:
    """The rows that the live verbs return."""
    match store.spec.kind:
        case "key_value" | "window":
            return {row.key: row.value for row in store.all()}
        case "session":
            return {row.key: row.value for row in store.fetch_range(None, None)}
        case "join_window":
            return {row.key: row.value for key in "abcd" for row in store.fetch(key, 1_000)}
        case _:
            return {key: found.value for key in "abcd" if (found := store.get(key)) is not None}


def table(store: Any) -> dict[str, int]:
    found = store.scan(columns=["k", "v"]).read_all()
    return dict(zip(found["k"].to_pylist(), found["v"].to_pylist(), strict=True))


def reopened(root: Path) -> dict[str, int]:
    """The rows that another handle returns, and the table after its commit."""
    with statestore.connect(root).open_store("s") as store:
        found = rows(store)
        store.commit()
        assert table(store) == found == rows(store)
    return found


class Failing:
    """Make chosen operations of hot tiers fail for a number of calls, as RocksDB reports it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self.calls = 0

    def fail(self, *operations: str, times: int = 1, text: str = FULL) -> None:
        self.calls = times
        for operation in operations:
            self._patch(operation, text)

    def _patch(self, operation: str, text: str) -> None:
        real = getattr(HotTier, operation)

        def failing(tier: HotTier, *arguments: Any) -> Any:
            if self.calls > 0:
                self.calls -= 1
                raise broken(Exception(text))
            return real(tier, *arguments)

        self._monkeypatch.setattr(HotTier, operation, failing)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Failing]:
    found = Failing(monkeypatch)
    yield found
    found.calls = 0


class FailingDatabase:
    """A replacement for the database that a key-value store reads directly."""

    def __getattr__(self, name: str) -> Any:
        raise Exception(FULL)

    def __setitem__(self, key: bytes, value: bytes) -> None:
        raise Exception(FULL)

    def __delitem__(self, key: bytes) -> None:
        raise Exception(FULL)


@pytest.mark.parametrize("kind", OPTIONS)
@pytest.mark.parametrize("text", [FULL, "Corruption: block checksum mismatch"])
def test_a_put_that_was_logged_is_acknowledged(tmp_path: Path, kind: str, text: str, failing: Failing) -> None:
    """A logged put counts even if the tier refuses it: the next call opens the tier again, with the rows of the
    changelog."""
    with create(tmp_path, kind) as store:
        put(store, "a", 1)
        store.commit()
        put(store, "b", 2)
        if kind == "key_value":
            store._database = FailingDatabase()
        failing.fail("put", text=text)
        put(store, "c", 3)
        put(store, "d", 4)
        assert rows(store) == {"a": 1, "b": 2, "c": 3, "d": 4}
        assert store.commit() == 2
        assert table(store) == {"a": 1, "b": 2, "c": 3, "d": 4}
    assert reopened(tmp_path) == {"a": 1, "b": 2, "c": 3, "d": 4}


def test_a_delete_that_was_logged_is_acknowledged(tmp_path: Path) -> None:
    with create(tmp_path, "key_value") as store:
        put(store, "a", 1)
        put(store, "b", 2)
        store._database = FailingDatabase()
        put(store, "a", None)
        assert rows(store) == {"b": 2}
    assert reopened(tmp_path) == {"b": 2}


@pytest.mark.parametrize("kind", OPTIONS)
def test_a_commit_that_is_published_is_answered(tmp_path: Path, kind: str, failing: Failing) -> None:
    """Though the tier cannot be flushed afterwards; and flush, whose promise is the changelog's, succeeds, too."""
    with create(tmp_path, kind) as store:
        put(store, "a", 1)
        failing.fail("flush", times=100)
        store.flush()
        assert store.commit() == 1
        put(store, "b", 2)
        store.flush()
        assert store.commit() == 2
        failing.calls = 0
        put(store, "c", 3)
        assert rows(store) == {"a": 1, "b": 2, "c": 3}
        assert store.commit() == 3
        assert [row["operation"] for row in store.versions().to_pylist()][1:] == ["write"] * 3
    assert reopened(tmp_path) == {"a": 1, "b": 2, "c": 3}


@pytest.mark.parametrize("kind", OPTIONS)
def test_a_read_that_failed_once_is_repeated(tmp_path: Path, kind: str, failing: Failing) -> None:
    with create(tmp_path, kind) as store:
        put(store, "a", 1)
        store.commit()
        put(store, "b", 2)
        for operation in ("get", "scan_lists"):
            failing.fail(operation, text="IO error: While pread: Input/output error")
            if kind == "key_value":
                store._database = None
                assert store.get("a") == 1
            assert rows(store) == {"a": 1, "b": 2}


@pytest.mark.parametrize("kind", OPTIONS)
def test_a_tier_that_cannot_be_made_at_all_is_a_storage_error(tmp_path: Path, kind: str, failing: Failing) -> None:
    """Operations fail as long as no tier can be made. The handle works afterwards, and the lock is held throughout."""
    with create(tmp_path, kind) as store:
        put(store, "a", 1)
        store.flush()
        failing.fail("scan_lists", "get", "open", "remove_files", times=10**6, text="IO error: Input/output error")
        if kind in ("key_value", "versioned"):
            store._database = None
        with pytest.raises(StorageError, match="DISK_FAILED"):
            rows(store)
        with pytest.raises(StorageError, match="DISK_FAILED"):
            rows(store)
        failing.calls = 0
        with pytest.raises(statestore.ConflictError, match="STORE_LOCKED"):
            statestore.connect(tmp_path).open_store("s").flush()
        put(store, "b", 2)
        assert rows(store) == {"a": 1, "b": 2}
    assert reopened(tmp_path) == {"a": 1, "b": 2}


def test_a_versioned_put_says_where_it_ends_though_the_tier_failed(tmp_path: Path, failing: Failing) -> None:
    """Each of a few orders of puts, with the failure at each of the tier's writes: the answers are those without."""
    puts = [("a", 1, 5_000), ("a", 2, 1_000), ("a", None, 3_000), ("a", 4, 2_000), ("a", 5, 9_000), ("a", 6, 7_000)]
    with create(tmp_path / "truth", "versioned") as store:
        expected = [store.put(*each) for each in puts]
        versions = list(store.get_versions("a"))
    for at in range(12):
        with create(tmp_path / str(at), "versioned") as store:
            store.put("b", 1, 1)
            found = []
            for number, each in enumerate(puts):
                if number == at // 2:
                    failing.fail("put" if at % 2 else "get")
                found.append(store.put(*each))
            assert (found, list(store.get_versions("a"))) == (expected, versions)


def test_a_versioned_put_whose_end_nobody_can_say_is_taken_back(tmp_path: Path, failing: Failing) -> None:
    with create(tmp_path, "versioned") as store:
        store.put("a", 1, 1_000)
        failing.fail("put", "get", "open", "remove_files", times=10**6)
        with pytest.raises(StorageError):
            store.put("b", 2, 1_000)
        failing.calls = 0
        store.put("c", 3, 1_000)
        assert rows(store) == {"a": 1, "c": 3}
        store.commit()
        assert table(store) == {"a": 1, "c": 3}
    assert reopened(tmp_path) == {"a": 1, "c": 3}


@pytest.mark.parametrize("kind", OPTIONS)
def test_closing_gives_up_the_lock_whatever_fails(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = create(tmp_path, kind)
    put(store, "a", 1)
    store.flush()
    put(store, "b", 2)

    def broken_disk(file: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", broken_disk)
        with pytest.raises(StorageError, match="DISK_FAILED"):
            store.close()
    store.close()
    assert reopened(tmp_path) == {"a": 1, "b": 2}


def test_a_lock_that_is_not_taken_leaves_nothing_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = create(tmp_path, "key_value")

    def no_locks(file: int, operation: int) -> None:
        raise OSError(37, "No locks available")

    before = open_below(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr("fcntl.flock", no_locks)
        for _ in range(3):
            with pytest.raises(StorageError, match="No locks available"):
                store.put("a", 1)
    assert open_below(tmp_path) == before
    store.put("a", 1)
    store.close()


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_something_else_in_the_place_of_the_lock_is_named(tmp_path: Path, make: Any) -> None:
    store = create(tmp_path, "key_value")
    make(tmp_path / "s/writer.lock")
    with pytest.raises(CorruptError, match=r"LOCK_FILE.*writer\.lock"):
        store.put("a", 1)
    assert store.scan().read_all().num_rows == 0


LIMITED = """
import os, resource, sys
import statestore
root, kind = sys.argv[1:]
store = statestore.connect(root).open_store("s")
put = (lambda k, v: store.put(k, v)) if kind == "key_value" else (lambda k, v: store.put(k, v, 1_000))

def outcome(call):
    try:
        call()
        return "works"
    except statestore.StateStoreError as error:
        return error.code
    except Exception as error:
        return "raw " + repr(error)
"""


def limited(code: str, root: Path, kind: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", LIMITED + textwrap.dedent(code), str(root), kind],
        capture_output=True,
        text=True,
        timeout=WAIT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["key_value", "versioned"])
def test_a_disk_that_takes_no_more_bytes_for_a_while(tmp_path: Path, kind: str) -> None:
    """Files may not grow beyond some bytes, which RocksDB meets as it flushes."""
    create(tmp_path, kind).close()
    said = limited(
        """
        for number in range(2000):
            put(f"key-{number}", number)
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, hard))
        print(outcome(store.flush), store.get("key-7") is not None)
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        for call in (lambda: put("a", 1), store.flush, store.commit, lambda: put("b", 2), store.close):
            print(outcome(call))
        """,
        tmp_path,
        kind,
    )
    assert said.split("\n")[:-1] == ["works True", *["works"] * 5]
    with statestore.connect(tmp_path).open_store("s") as store:
        assert rows(store).items() >= {"a": 1, "b": 2}.items()
        store.commit()
        assert len(table(store)) == 2002


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["key_value", "versioned"])
def test_too_many_open_files_for_a_while(tmp_path: Path, kind: str) -> None:
    """Leave each number of descriptors in turn: the first put works or raises our error, the next one works."""
    create(tmp_path, kind).close()
    said = limited(
        """
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        for left in range(0, 24):
            store = statestore.connect(root).open_store("s")
            spare = [os.open("/", os.O_RDONLY) for _ in range(60)]
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(spare) + 1, hard))
            for file in spare[:left]:
                os.close(file)
            found = outcome(lambda: put("a", left))
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            print(found, outcome(lambda: put("b", left)), outcome(store.commit), outcome(store.close))
            for file in spare[left:]:
                os.close(file)
        """,
        tmp_path,
        kind,
    )
    lines = said.splitlines()
    assert len(lines) == 24
    assert {line.partition(" ")[2] for line in lines} == {"works works works"}
    assert {line.partition(" ")[0] for line in lines} == {"works", "DISK_FAILED"}


@pytest.mark.parametrize("kind", [kind for kind in OPTIONS if kind != "batched"])
def test_an_interrupt_after_the_changelog_has_the_row(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The put raises, but the logged row will be committed: the live store answers the same as the table."""
    real = HotTier.put

    class Interrupting(FailingDatabase):
        def __setitem__(self, key: bytes, value: bytes) -> None:
            raise KeyboardInterrupt

    def interrupted(*arguments: Any) -> None:
        monkeypatch.setattr(HotTier, "put", real)
        raise KeyboardInterrupt

    with create(tmp_path, kind) as store:
        put(store, "a", 1)
        if kind == "key_value":
            store._database = Interrupting()
        else:
            monkeypatch.setattr(HotTier, "put", interrupted)
        with pytest.raises(KeyboardInterrupt):
            put(store, "b", 2)
        assert rows(store) == {"a": 1, "b": 2}
        store.commit()
        assert table(store) == {"a": 1, "b": 2}
