"""Forks of a process that has used live stores: refused where RocksDB would hang, harmless for the parent."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from support.parameters import mostly_slow

import statestore

WAIT = 120
PROLOGUE = """
import multiprocessing, os, sys
import statestore
COLUMNS = {"key": {"k": "string"}, "value": {"v": "bigint"}}
KINDS = {
    "key_value": {"kind": "key_value"},
    "window": {"kind": "window", "retention": "1 day", "window_size": "1 minute"},
    "versioned": {"serde": "kafka", "history_retention": "1 day"},
    "natural": {},
}
root, kind = sys.argv[1], sys.argv[2]
catalog = statestore.connect(root)

def put(store, key, value):
    store.put(key, value) if kind == "key_value" else store.put(key, value, 1_000)

def code_of(call):
    try:
        call()
    except statestore.StateStoreError as error:
        return error.code

def in_fork(work):
    child = os.fork()
    if child == 0:
        work()
        sys.exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7

def elsewhere(code):
    import subprocess
    found = subprocess.run([sys.executable, "-c", code, root], capture_output=True, text=True, timeout=60)
    return found.stdout.strip() or found.stderr

OPEN = '''
import statestore, sys
try:
    with statestore.connect(sys.argv[1]).open_store("s") as store:
        store.commit()
        print("opened")
except statestore.StateStoreError as error:
    print(error.code)
'''
"""


def run(code: str, *arguments: object) -> str:
    """Run code in a process of its own, because this one has already used RocksDB."""
    done = subprocess.run(
        [sys.executable, "-c", PROLOGUE + textwrap.dedent(code), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=WAIT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("kind", mostly_slow(["key_value", "window", "versioned"], ()))
def test_live_verbs_are_refused_in_a_fork_and_tables_are_read(tmp_path: Path, kind: str) -> None:
    """The child ends with the status that it gave; the parent still works, and keeps its lock."""
    run(
        """
        store = catalog.create_store("s", **COLUMNS, **KINDS[kind])
        put(store, "a", 1)
        store.commit()
        put(store, "pending", 2)
        other = catalog.create_store("unused", **COLUMNS, **KINDS[kind])

        def child():
            for handle in (store, other, catalog.open_store("s")):
                assert code_of(lambda: put(handle, "b", 1)) == "FORKED"
                for verb in (handle.commit, handle.flush, lambda: list(handle.physical()), handle.changelog().__next__):
                    assert code_of(verb) == "FORKED", verb
                if kind != "window":
                    assert code_of(lambda: handle.get("a")) == "FORKED"
                assert handle.history(columns=["k"]).read_all().num_rows == (0 if handle is other else 1)
            assert statestore.sql(root, "SELECT k FROM s")["k"].to_pylist() == ["a"]
            with catalog.open_store("s", read_only=True) as reader:
                assert reader.scan().read_all().num_rows == 1
                assert code_of(lambda: list(reader.physical())) == "FORKED"
            store.close()

        in_fork(child)
        assert elsewhere(OPEN) == "STORE_LOCKED"
        put(store, "c", 3)
        store.commit()
        assert sorted(store.history(columns=["k"]).read_all()["k"].to_pylist()) == ["a", "c", "pending"]
        store.close()
        assert elsewhere(OPEN) == "opened"
        assert statestore.verify(root)[0].ok
        """,
        tmp_path,
        kind,
    )


@pytest.mark.slow
def test_a_fork_does_not_hold_the_lock_when_its_parent_gives_it_up(tmp_path: Path) -> None:
    run(
        """
        store = catalog.create_store("s", **COLUMNS, **KINDS[kind])
        put(store, "a", 1)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(writing)
            os.read(reading, 1)  # until the parent has seen the other process
            os._exit(0)
        store.close()
        assert elsewhere(OPEN) == "opened"
        os.close(writing)
        os.waitpid(child, 0)
        """,
        tmp_path,
        "key_value",
    )


@pytest.mark.slow
def test_processes_of_multiprocessing(tmp_path: Path) -> None:
    """multiprocessing forks by default before Python 3.14: the child fails at once, even if the parent has closed its
    stores; a spawned child works."""
    script = tmp_path / "script.py"
    body = """
        def work():
            with catalog.open_store("s") as store:
                put(store, "a", 1)
                store.commit()

        if __name__ == "__main__":
            catalog.create_store("s", **COLUMNS, **KINDS[kind]).close()
            work()
            for method in ("fork", "spawn", "forkserver"):
                process = multiprocessing.get_context(method).Process(target=work)
                process.start()
                process.join(60)
                print(method, process.exitcode)
        """
    script.write_text(PROLOGUE + textwrap.dedent(body))
    done = subprocess.run(
        [sys.executable, script, tmp_path / "warehouse", "key_value"],
        capture_output=True,
        text=True,
        timeout=WAIT,
        check=False,
    )
    assert done.stdout.split() == ["fork", "1", "spawn", "0", "forkserver", "0"], done.stderr
    assert "[FORKED]" in done.stderr and "spawn" in done.stderr


def test_what_a_fork_inherited_stays_the_parents(tmp_path: Path) -> None:
    """Iterators, a reader's own tier with its folder, a backend and its snapshot: dropped and closed in the child.

    Before its first live verb an open handle shares nothing with a child, which may use it.
    """
    run(
        """
        import gc, tempfile
        from pathlib import Path
        tempfile.tempdir = root + "/tmp"
        os.mkdir(tempfile.tempdir)
        store = catalog.create_store("s", **COLUMNS, **KINDS[kind])

        def first():
            put(store, "before", 1)
            store.commit()
            store.close()

        in_fork(first)
        assert store.get("before") == 1
        for number in range(2000):
            put(store, f"key-{number:04}", number)
        store.commit()
        reader = catalog.open_store("s", read_only=True)
        rows = [store.all(), reader.all()]
        for each in rows:
            next(each)
        backend = catalog.create_store("keyed", kind="keyed", key={"k": "string"}).backend()
        state = backend.value_state("v", "bigint")
        backend.set_current_key("a")
        state.update(1)
        running = backend.snapshot()
        running.result()
        before = sorted(path.name for path in Path(tempfile.tempdir).rglob("*"))

        def child():
            global rows, reader, backend, state, store
            assert code_of(running.result) == "FORKED"
            assert code_of(state.value) == "FORKED"
            assert code_of(catalog.open_store("keyed").backend) == "FORKED"
            backend.dispose()
            reader.close()
            rows = reader = backend = state = store = None
            gc.collect()

        in_fork(child)
        assert sorted(path.name for path in Path(tempfile.tempdir).rglob("*")) == before
        assert [len(list(each)) for each in rows] == [2000, 2000]
        state.update(state.value() + 1)
        assert state.value() == 2 and backend._local.path.is_dir()
        backend.snapshot("full").result()
        put(store, "more", 1)
        assert store.get("more") == 1
        store.commit()
        reader.close()
        backend.dispose()
        assert not list(Path(tempfile.tempdir).iterdir())
        """,
        tmp_path,
        "key_value",
    )


@pytest.mark.slow
def test_a_versioned_store_goes_on_in_a_fork_with_a_changelog_of_its_own(tmp_path: Path) -> None:
    """Pending rows of the parent belong to the parent; each row is committed once, by the process that put it, also
    below a fork."""
    found = run(
        """
        store = catalog.create_store("s", **COLUMNS, **KINDS[kind])
        store.put("parent", 1, timestamp=1_000)

        def grandchild():
            assert store.get("child") is None and store.get("parent") is None
            store.put("grandchild", 3, timestamp=3_000)
            store.commit()

        def child():
            assert store.get("parent") is None
            store.put("child", 2, timestamp=2_000)
            in_fork(grandchild)
            store.commit()
            store.put("left", 5, timestamp=5_000)
            store.close()

        in_fork(child)
        assert store.get("parent").value == 1
        store.put("again", 4, timestamp=4_000)
        store.commit()
        store.close()
        with catalog.open_store("s") as store:
            store.commit()
            changes = store.changes(start_version=1, columns=["k", "v", "_commit_version"]).read_all().to_pylist()
        assert statestore.verify(root)[0].ok
        found = sorted((row["k"], row["v"], row["_commit_version"]) for row in changes)
        print(found)
        """,
        tmp_path,
        "natural",
    )
    expected = [("again", 4, 3), ("child", 2, 2), ("grandchild", 3, 1), ("left", 5, 4), ("parent", 1, 3)]
    assert found.strip() == str(expected)
    with statestore.connect(tmp_path).open_store("s") as store:
        assert store.scan().read_all().num_rows == 5
