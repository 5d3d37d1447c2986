"""Writers, compactions and readers at the same time: no update is lost, no reader is disturbed."""

from __future__ import annotations

import json
import pickle
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from support.processes.concurrent_writer import commits
from support.processes.scripts import command
from support.stores.versioned_checks import INTERVAL, Put, as_table, check_everything, create, rows_of
from support.stores.versioned_model import Model

import statestore
from statestore.catalog.commits import publish_commit as write
from statestore.catalog.log.entries import read_entry, write_entry
from statestore.catalog.reads.segment_files import _shared
from statestore.catalog.stores.versioned.versioned_store import VersionedStore
from statestore.catalog.upkeep import compaction, compaction_rules, publish_compaction
from statestore.catalog.upkeep.compaction_rules import Rules
from statestore.formats.state_table import Query

WRITERS = 3
COMMITS = 8
Done = list[tuple[int, list[Put]]]


@pytest.fixture(autouse=True)
def small_thresholds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction_rules, "DEFAULT", Rules(small_store=3, small_fan_in=3, block_rows=2))


@pytest.fixture
def catalog(tmp_path: Path) -> statestore.Catalog:
    found = statestore.connect(tmp_path)
    create(found).close()
    return found


def model_of(store: VersionedStore, done: Done) -> Model:
    """The commits in the order of their versions; the other versions are compactions. Each version has one winner."""
    rows_by_version = dict(done)
    assert len(rows_by_version) == len(done)
    model = Model()
    for version, operation in enumerate(store.versions()["operation"].to_pylist()):
        if version == 0:
            continue
        assert operation == ("write" if version in rows_by_version else "compact")
        if operation == "compact":
            model.same_again()
            continue
        for row in rows_by_version[version]:
            model.put(*row)
        model.commit()
    return model


@pytest.mark.slow
def test_processes(catalog: statestore.Catalog) -> None:
    processes = [
        subprocess.Popen(
            command("concurrent_writer", catalog.root, f"p{number}", COMMITS),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(WRITERS)
    ]
    for process in processes:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    done: Done = []
    for process in processes:
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        lines = [json.loads(line) for line in output.splitlines()]
        assert len(lines) == COMMITS
        done += [(version, [tuple(row) for row in rows]) for version, rows in lines]
    with catalog.open_store("s", auto_compact=False) as store:
        check_everything(store, model_of(store, done), step=6)


@pytest.mark.slow
def test_threads(catalog: statestore.Catalog) -> None:
    """Handles of one process share files and the list of commits; readers see whole versions throughout."""
    stop = threading.Event()

    def read() -> int:
        reads = 0
        with catalog.open_store("s", auto_compact=False) as store:
            while not stop.is_set():
                version = store.refresh()
                found = store.scan(version=version).read_all()
                assert len(set(found["k"].to_pylist())) == found.num_rows
                assert store.versions().num_rows > version
                reads += 1
        return reads

    with ThreadPoolExecutor(WRITERS + 1) as pool:
        reader = pool.submit(read)
        writers = [
            pool.submit(lambda n=n: list(commits(str(catalog.root), f"t{n}", COMMITS)))  # type: ignore[misc]
            for n in range(WRITERS)
        ]
        try:
            done = [item for writer in writers for item in writer.result()]
        finally:
            stop.set()
        assert reader.result() > 0
    _shared.clear()
    with catalog.open_store("s", auto_compact=False) as store:
        check_everything(store, model_of(store, done), step=6)


class Rival:
    """Another handle, which steps in at a chosen moment of an operation of the first one."""

    def __init__(self, catalog: statestore.Catalog, model: Model) -> None:
        self.store = catalog.open_store("s", auto_compact=False)
        self.model = model
        self.steps: list[Callable[[], object]] = []

    def write(self, rows: list[Put], compact: bool = False, **options: Any) -> None:
        self.store.write(as_table(rows), **options)
        for row in rows:
            self.model.put(*row)
        self.model.commit()
        if compact:
            self.compact()

    def compact(self) -> None:
        before = self.store.version
        if self.store.compact(full=True) > before:
            self.model.same_again()

    def before(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap ``call``: a step of the rival precedes each of the next calls."""

        def stepping(*arguments: Any) -> Any:
            if self.steps:
                self.steps.pop(0)()
            return call(*arguments)

        return stepping


BASE: list[list[Put]] = [
    [("a", 1, 2), ("b", 2, 3), ("c", 3, 4), ("d", 4, 5)],
    [("a", 4, 8), ("b", None, 9)],
    [("a", 5, 5), ("c", 6, 10)],
]


@pytest.fixture
def rival(catalog: statestore.Catalog) -> Iterator[Rival]:
    found = Rival(catalog, Model())
    for rows in BASE:
        found.write(rows)
    yield found
    found.store.close()


LATE: list[Put] = [("a", 7, 6), ("b", 8, 4), ("c", None, 11), ("d", 9, 1)]
LATER: list[Put] = [("a", None, 7), ("b", 1, 12), ("c", 2, 4), ("d", None, 6)]


@pytest.mark.quick("full-closed")
@pytest.mark.parametrize("compacted", [False, True], ids=["deltas", "closed"])
@pytest.mark.parametrize("full", [False, True], ids=["minor", "full"])
def test_commits_during_a_compaction(
    catalog: statestore.Catalog, rival: Rival, monkeypatch: pytest.MonkeyPatch, full: bool, compacted: bool
) -> None:
    """The commits win their versions; their closures of rewritten rows are carried to the rows' new places."""
    if compacted:
        rival.compact()
        rival.write([("a", 3, 3), ("c", 1, 1)])
        rival.write([("b", 3, 5), ("d", 1, 3)])
        rival.write([("b", 3, 6), ("d", 1, 4)])
    if not full:
        monkeypatch.setattr(compaction_rules, "DEFAULT", Rules(small_fan_in=3))
    with catalog.open_store("s", auto_compact=False) as store:
        before = store.version
        rival.steps = [lambda: rival.write(LATE), lambda: rival.write(LATER)]
        monkeypatch.setattr(publish_compaction, "write_entry", rival.before(write_entry))
        assert store.compact(full=full) == before + 3
        rival.model.same_again()
        assert store.versions()["operation"].to_pylist()[-3:] == ["write", "write", "compact"]
        check_everything(store, rival.model, step=7)
        store.vacuum(older_than=0)
        store.compact(full=True)
        while len(rival.model.states) <= store.version:
            rival.model.same_again()
        check_everything(store, rival.model)


def test_compaction_during_a_compaction(
    catalog: statestore.Catalog, rival: Rival, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one wins; the first one's files are removed, and it does the remaining work."""
    with catalog.open_store("s", auto_compact=False) as store:
        before = store.version
        rival.steps = [lambda: rival.write(LATE, compact=True)]
        monkeypatch.setattr(publish_compaction, "write_entry", rival.before(write_entry))
        store.compact(full=True)
        assert store.version == before + 2
        check_everything(store, rival.model)
        on_disk = {item.name for item in store._storage.list("segments/")}
        named = {ref for version in range(store.version + 1) for ref in _files_of(store, version)}
        assert on_disk == named


def _files_of(store: VersionedStore, version: int) -> set[str]:
    entry = read_entry(store._storage, version)
    indexes = {m.index.name for m in entry.added if m.index is not None}
    return {m.name for m in entry.added} | indexes | {c.file.name for c in entry.closures}


def test_compaction_that_never_wins(catalog: statestore.Catalog, rival: Rival, monkeypatch: pytest.MonkeyPatch) -> None:
    def again() -> None:
        rival.compact()
        rival.write([("a", 1, 20), ("b", 1, 20)])

    """A compaction of all that is there; work that only later commits made would not be due."""
    with catalog.open_store("s", auto_compact=False) as store:
        monkeypatch.setattr(publish_compaction, "MAX_ATTEMPTS", 4)
        rival.steps = [again] * 4
        with monkeypatch.context() as patch:
            patch.setattr(publish_compaction, "run_step", _then(rival, compaction.run_step))
            with pytest.raises(statestore.ConflictError, match="COMPACTION_OVERTAKEN"):
                publish_compaction.run_one_step(store._files, store._log_state, compaction_rules.DEFAULT, "full")
        store.refresh()
        check_everything(store, rival.model, step=7)


def _then(rival: Rival, compact: Callable[..., Any]) -> Callable[..., Any]:
    """``compact``, followed by a step of the rival, whose own compactions are followed by none."""
    inside = False

    def compacting(*arguments: Any) -> Any:
        nonlocal inside
        rewrite = compact(*arguments)
        if not inside and rival.steps:
            inside = True
            rival.steps.pop(0)()
            inside = False
        return rewrite

    return compacting


def test_commit_during_a_commit(catalog: statestore.Catalog, rival: Rival, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loser places its records into the history that the winner left, and removes its first files."""
    with catalog.open_store("s", auto_compact=False) as store:
        before = store.version
        for row in LATER:
            store.put(*row)
        rival.steps = [lambda: rival.write(LATE), rival.compact]
        monkeypatch.setattr(write, "write_entry", rival.before(write_entry))
        assert store.commit() == before + 3
        for row in LATER:
            rival.model.put(*row)
        rival.model.commit()
        check_everything(store, rival.model)
        on_disk = {item.name for item in store._storage.list("segments/")}
        assert on_disk == {ref for version in range(store.version + 1) for ref in _files_of(store, version)}


def test_the_same_transaction_twice(catalog: statestore.Catalog, rival: Rival, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two handles commit one transaction at the same time, and only one commits it."""
    with catalog.open_store("s", auto_compact=False) as store:
        for row in LATE:
            store.put(*row)
        rival.steps = [lambda: rival.write(LATE, transaction=("app", 1))]
        monkeypatch.setattr(write, "write_entry", rival.before(write_entry))
        assert store.commit(transaction=("app", 1)) == rival.store.version == store.version
        assert store.write(as_table(LATER), transaction=("app", 1)) == store.version
        check_everything(store, rival.model)


def test_overwrite_during_a_commit(catalog: statestore.Catalog, rival: Rival, monkeypatch: pytest.MonkeyPatch) -> None:
    """An overwrite that lost looks again for the keys that are to go."""
    with catalog.open_store("s", auto_compact=False) as store:
        rival.steps = [lambda: rival.write([("e", 5, 12)])]
        monkeypatch.setattr(write, "write_entry", rival.before(write_entry))
        store.write(as_table([("a", 1, 20)]), mode="overwrite")
        assert rows_of(store.scan(), *INTERVAL) == [("a", 1, 20, None)]
        assert ("e", 5, 12, 20) in rows_of(store.history(), *INTERVAL)


def test_started_reader(catalog: statestore.Catalog, rival: Rival) -> None:
    """A reader keeps its version, whatever is committed, compacted or removed meanwhile."""
    with catalog.open_store("s", auto_compact=False) as store:
        expected = set(rows_of(store.scan(), *INTERVAL))
        readers = [store.scan(), store.scan()]
        started = [readers[0].read_next_batch()]
        rival.write(LATE)
        rival.compact()
        rival.write(LATER)
        rival.compact()
        rival.store.vacuum(older_than="1 hour")
        rest = readers[0].read_all()
        found = rest.schema.empty_table().from_batches([*started, *rest.to_batches()])
        assert set(rows_of(found.to_reader(), *INTERVAL)) == expected
        assert set(rows_of(readers[1], *INTERVAL)) == expected


@pytest.mark.parametrize(
    "query",
    [Query(), Query(as_of=5_000), Query(version=2), Query(mode="history"), Query(mode="changes")],
    ids=["snapshot", "as of", "version", "history", "changes"],
)
def test_planned_splits(catalog: statestore.Catalog, rival: Rival, query: Query) -> None:
    """Splits name their files, so another process reads them as they were planned, as long as vacuum keeps them."""
    table = rival.store.table
    expected = [batch.to_pylist() for split in table.splits(query) for batch in table.read(split, query)]
    planned = pickle.dumps([(table, split) for split in table.splits(query)])
    rival.write(LATE)
    rival.compact()
    rival.store.vacuum(older_than="1 hour")
    _shared.clear()
    found = [batch.to_pylist() for table, split in pickle.loads(planned) for batch in table.read(split, query)]
    assert found == expected
    assert rival.store.vacuum(older_than=0)
    _shared.clear()
    with pytest.raises(statestore.NotFoundError, match=r"FILES_REPLACED.*vacuum"):
        for table, split in pickle.loads(planned):
            list(table.read(split, query))


def test_readers_of_old_versions_after_vacuum(catalog: statestore.Catalog, rival: Rival) -> None:
    """Vacuum removes files, not versions: each is still answered from the files that took their place."""
    rival.write(LATE)
    rival.compact()
    rival.store.vacuum(older_than=0)
    _shared.clear()
    with catalog.open_store("s", auto_compact=False) as store:
        check_everything(store, rival.model)
