"""Vacuum removes files that are no longer needed, and keeps those that a reader within the limit may still open."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support.processes.scripts import command
from support.stores.killing_storage import Killed, KillingStorage, Plan
from support.stores.versioned_checks import Put, as_table, check_everything, create, rows_of
from support.stores.versioned_model import Model

import statestore
from statestore.catalog.log import store_log
from statestore.catalog.log.leases import FOLDER, leased_versions, take_lease
from statestore.catalog.log.log_checkpoint import load_log_state
from statestore.catalog.log.log_state import file_names
from statestore.catalog.reads.segment_files import SegmentFiles, _shared
from statestore.catalog.reads.versioned_table import VersionedTable
from statestore.catalog.stores.versioned.versioned_store import VersionedStore
from statestore.catalog.upkeep import vacuum
from statestore.catalog.upkeep.vacuum import remove_replaced
from statestore.formats.state_table import Query

HOUR = 3_600
ROWS: list[list[Put]] = [
    [("a", 1, 2), ("b", 2, 3), ("c", 3, 4)],
    [("a", 4, 8), ("b", None, 9)],
    [("a", 5, 5), ("c", 6, 10)],
]


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def store(tmp_path: Path, model: Model) -> VersionedStore:
    """Three commits and a compaction of all of them, which leaves what it replaced."""
    found = create(statestore.connect(tmp_path))
    found.auto_compact = False
    for rows in ROWS:
        write(found, model, rows)
    found.compact(full=True)
    model.same_again()
    return found


def write(store: VersionedStore, model: Model, rows: list[Put]) -> None:
    store.write(as_table(rows))
    for row in rows:
        model.put(*row)
    model.commit()


def names(store: VersionedStore) -> set[str]:
    return {item.name for item in store._storage.list("segments/")}


def make_older(store: VersionedStore, seconds: float) -> None:
    """Make the store's files look as if they had been written that long ago."""
    moment = time.time() - seconds
    for path in store._storage.root.rglob("*"):  # type: ignore[attr-defined]
        os.utime(path, (moment, moment))


def test_everything_unneeded_goes(store: VersionedStore, model: Model) -> None:
    before = names(store)
    listed = store.vacuum(older_than=0, dry_run=True)
    assert names(store) == before
    removed = store.vacuum(older_than=0)
    assert removed == listed and len(removed) == 6  # four segments and two closure lists of the commits
    assert all(item.bytes > 0 for item in removed)
    assert names(store) == before - {item.name for item in removed}
    assert store.vacuum(older_than=0) == []
    _shared.clear()
    check_everything(store, model)


def test_files_of_recent_versions_stay(store: VersionedStore, model: Model) -> None:
    """Commit times decide, and a file younger than the limit stays in any case: its commit may be about to be made."""
    for limit in ("7 days", timedelta(hours=1), 60_000):
        assert store.vacuum(older_than=limit) == []
    make_older(store, 2 * HOUR)
    assert store.vacuum(older_than="1 hour") == [], "their versions were the newest within the last hour"
    check_everything(store, model)


def test_orphans_go_once_they_are_old(store: VersionedStore, model: Model) -> None:
    root = store._storage.root  # type: ignore[attr-defined]
    orphans = {
        f"segments/{'0' * 32}.arrow",
        f"segments/{'0' * 32}.index.arrow",
        f"segments/{'0' * 32}.closures.arrow",
        f"segments/.tmp-{'0' * 32}",
        f"log/.tmp-{'0' * 32}",
        f"log/_checkpoint/.tmp-{'0' * 32}",
        f".tmp-{'0' * 32}",
        "staging/job/part.arrow",
    }
    for name in orphans:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"half a fi")
    assert store.vacuum(older_than="1 hour") == []
    make_older(store, 2 * HOUR)
    assert {item.name for item in store.vacuum(older_than="1 hour")} == orphans
    check_everything(store, model)


def test_pending_writes_stay(store: VersionedStore, model: Model) -> None:
    """Neither the changelog of this handle nor one that waits for its next owner is touched."""
    store.put("d", 7, timestamp=11)
    model.put("d", 7, 11)
    store.vacuum(older_than=0)
    store.close()
    with statestore.connect(store._storage.root.parent).open_store("s") as again:  # type: ignore[attr-defined]
        again.vacuum(older_than=0)
        again.commit()
        model.commit()
        check_everything(again, model)


def test_after_expiry(store: VersionedStore, model: Model) -> None:
    kept = {item.name for item in store.vacuum(older_than=0)}
    before = names(store) - kept
    store.expire(before=10)
    removed = {item.name for item in store.vacuum(older_than=0)}
    assert removed and removed < before
    assert {row["k"] for row in store.scan(as_of=10).read_all().to_pylist()} == {"a", "c"}


def test_commits_after_vacuum(store: VersionedStore, model: Model) -> None:
    store.vacuum(older_than=0)
    write(store, model, [("a", 9, 4), ("b", 1, 12)])
    store.compact(full=True)
    model.same_again()
    store.vacuum(older_than=0)
    check_everything(store, model)


# Vacuum at once: what compactions replaced goes, unless a read under way in any process may still open it.

LATER: list[Put] = [("a", 7, 20), ("d", 8, 1)]


@pytest.fixture
def uncompacted(tmp_path: Path, model: Model) -> Iterator[VersionedStore]:
    """Three commits that were not compacted."""
    create(statestore.connect(tmp_path)).close()
    with statestore.connect(tmp_path).open_store("s", auto_compact=False) as found:
        for rows in ROWS:
            write(found, model, rows)
        yield found


def replace_all(store: VersionedStore, model: Model) -> set[str]:
    """Commit and compact, so that no file of an earlier version is needed; return the names of those."""
    before = names(store)
    write(store, model, LATER)
    store.compact(full=True)
    model.same_again()
    return before - file_names(store._log_state)


def root(store: VersionedStore) -> Path:
    return Path(store._storage.root)  # type: ignore[attr-defined]


def test_what_nobody_reads_goes_at_once(uncompacted: VersionedStore, model: Model) -> None:
    replaced = replace_all(uncompacted, model)
    listed = uncompacted.vacuum(dry_run=True)
    assert replaced <= names(uncompacted)
    assert uncompacted.vacuum() == listed and {item.name for item in listed} >= replaced
    assert names(uncompacted) == file_names(uncompacted._log_state)
    assert uncompacted.vacuum() == []
    check_everything(uncompacted, model)
    _shared.clear()
    check_everything(uncompacted, model)


def test_the_files_of_a_commit_under_way_and_of_staging_stay(uncompacted: VersionedStore, model: Model) -> None:
    replace_all(uncompacted, model)
    for name in ("staging/job/part.arrow", f"log/.tmp-{'0' * 32}"):
        (root(uncompacted) / name).parent.mkdir(parents=True, exist_ok=True)
        (root(uncompacted) / name).write_bytes(b"young")
    removed = {item.name for item in uncompacted.vacuum()}
    assert removed and all(name.startswith("segments/") for name in removed)


@pytest.mark.parametrize("older_than", [None, 0])
def test_a_read_under_way_keeps_its_files(uncompacted: VersionedStore, model: Model, older_than: int | None) -> None:
    """It keeps those of its version only, in the process that vacuums, too."""
    expected = {row[:2] for row in model.state_at(uncompacted.version, None)}
    reader = uncompacted.scan(columns=["k", "v"])
    needed = file_names(uncompacted._log_state)
    replace_all(uncompacted, model)
    between = names(uncompacted) - needed - file_names(uncompacted._log_state)
    assert {item.name for item in uncompacted.vacuum(older_than=older_than)} == between
    _shared.clear()
    assert set(rows_of(reader, "k", "v")) == expected
    assert {item.name for item in uncompacted.vacuum(older_than=older_than)} == needed
    assert names(uncompacted) == file_names(uncompacted._log_state)


def test_a_read_that_is_given_up_keeps_nothing(uncompacted: VersionedStore, model: Model) -> None:
    readers = [uncompacted.scan(), uncompacted.history(), uncompacted.changes(), uncompacted.diff(start_version=1)]
    assert leased_versions(root(uncompacted)) == {uncompacted.version}
    readers.clear()
    assert leased_versions(root(uncompacted)) == set()
    uncompacted.scan().read_all()
    list(uncompacted.changes())
    uncompacted.get("a")
    assert statestore.attach(str(root(uncompacted).parent)).execute("select count(*) from s").fetchone() == (2,)
    assert leased_versions(root(uncompacted)) == set()


class Reader:
    """Another process with a read that was planned and has not begun."""

    def __init__(self, store: VersionedStore, kind: str) -> None:
        self.process = subprocess.Popen(
            command("waiting_reader", root(store).parent, kind),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None and self.process.stdout.readline() == "planned\n"

    def rows(self) -> list[tuple[Any, ...]]:
        output, _ = self.process.communicate("go\n", timeout=60)
        assert self.process.returncode == 0
        return sorted(tuple(row) for row in json.loads(output))

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.mark.quick("diff")
@pytest.mark.parametrize("kind", ["scan", "changes", "diff"])
def test_a_planned_read_of_another_process_keeps_its_files(
    uncompacted: VersionedStore, model: Model, kind: str
) -> None:
    reader = Reader(uncompacted, kind)
    expected: list[tuple[Any, ...]]
    if kind == "scan":
        expected = [("a", 4), ("c", 6)]
    elif kind == "changes":
        columns = ["k", "v", "_change_type"]
        expected = sorted(tuple(row.values()) for row in uncompacted.changes(columns=columns).read_all().to_pylist())
        assert len(expected) > 5
    else:
        expected = [("changed", "a"), ("removed", "b")]
    replaced = replace_all(uncompacted, model)
    uncompacted.vacuum()
    assert replaced <= names(uncompacted)
    assert reader.rows() == expected
    assert {item.name for item in uncompacted.vacuum()} == replaced


@pytest.mark.quick("get-expected1")
@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("attach", [("a", 7), ("c", 6), ("d", 8)]),
        ("get", [("a", 7), ("b", None), ("c", 6)]),
        ("put", [("a", 0), ("a", 2), ("b", 0), ("b", 3), ("c", 0), ("c", 4)]),
    ],
)
def test_an_idle_process_keeps_nothing_and_reads_on(
    uncompacted: VersionedStore, model: Model, kind: str, expected: list[tuple[Any, ...]]
) -> None:
    reader = Reader(uncompacted, kind)
    replaced = replace_all(uncompacted, model)
    uncompacted.vacuum()
    assert not replaced & names(uncompacted)
    assert reader.rows() == expected


def test_a_dead_reader_keeps_nothing(uncompacted: VersionedStore, model: Model) -> None:
    reader = Reader(uncompacted, "scan")
    replaced = replace_all(uncompacted, model)
    assert not {item.name for item in uncompacted.vacuum()} & replaced
    reader.kill()
    assert {item.name for item in uncompacted.vacuum()} == replaced


def test_files_that_go_while_a_read_takes_its_lease(
    uncompacted: VersionedStore, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader finds a newer version when it looks again, and reads that."""
    rival = statestore.connect(root(uncompacted).parent).open_store("s", auto_compact=False)
    rounds: list[int] = []

    def late(folder: Path, version: int) -> Any:
        if not rounds:
            rounds.append(version)
            assert replace_all(rival, model)
            rival.vacuum()
        return take_lease(folder, version)

    _shared.clear()
    with statestore.connect(root(uncompacted).parent).open_store("s", read_only=True) as reader:
        monkeypatch.setattr(store_log, "take_lease", late)
        rows = set(rows_of(reader.scan(), "k", "v"))
    assert rounds == [3] and rows == {("a", 7), ("c", 6), ("d", 8)}
    rival.close()


@pytest.mark.parametrize("query", [Query(), Query(mode="changes")], ids=["state", "changes"])
def test_a_planner_that_ends_leaves_a_lease_for_a_time(
    uncompacted: VersionedStore, model: Model, monkeypatch: pytest.MonkeyPatch, query: Query
) -> None:
    """Tasks of a Spark query read its files after the process that planned it has ended."""
    table = uncompacted.table
    assert isinstance(table, VersionedTable)
    splits = table.splits(query)
    expected = [b.to_pylist() for split in splits for b in table.read(split, query)]
    table.entrust(splits)
    planned = pickle.dumps(splits)
    del splits
    replaced = replace_all(uncompacted, model)
    uncompacted.vacuum()
    assert replaced <= names(uncompacted)
    _shared.clear()
    assert [b.to_pylist() for split in pickle.loads(planned) for b in table.read(split, query)] == expected
    later = time.time_ns() + 3_601 * 10**9
    with monkeypatch.context() as patch:
        patch.setattr(time, "time_ns", lambda: later)
        assert {item.name for item in uncompacted.vacuum()} >= replaced
    assert list((root(uncompacted) / FOLDER).iterdir()) == []
    _shared.clear()
    with pytest.raises(statestore.NotFoundError, match=r"FILES_REPLACED.*run the read again"):
        for split in pickle.loads(planned):
            list(table.read(split, query))


def test_a_held_store_can_be_copied_file_by_file(uncompacted: VersionedStore, model: Model, tmp_path: Path) -> None:
    """Versions that come after the hold are copied, too, although their files are replaced before that."""
    copy = tmp_path / "copy/s"
    with statestore.connect(root(uncompacted).parent).open_store("s", read_only=True) as reader:
        assert isinstance(reader, VersionedStore)
        with reader.hold() as version:
            assert version == 3
            write(uncompacted, model, [("b", 9, 30)])
            shutil.copytree(root(uncompacted) / "log", copy / "log")
            replace_all(uncompacted, model)
            assert uncompacted.vacuum() == [] == uncompacted.vacuum(older_than=0)
            shutil.copytree(root(uncompacted) / "segments", copy / "segments")
            shutil.copy(root(uncompacted) / "store.json", copy)
        assert uncompacted.vacuum() != []
    verification = statestore.verify(copy)[0]
    assert verification.problems == () and verification.versions == (0, 4)
    with statestore.connect(copy.parent).open_store("s", read_only=True) as copied:
        assert set(rows_of(copied.scan(), "k", "v")) == {("a", 4), ("b", 9), ("c", 6)}


def test_a_missing_file_that_is_needed_is_damage(uncompacted: VersionedStore) -> None:
    splits = uncompacted.table.splits(Query())
    for name in names(uncompacted):
        (root(uncompacted) / name).unlink()
    _shared.clear()
    with pytest.raises(statestore.NotFoundError, match=r"FILE_NOT_FOUND.*restore it"):
        list(uncompacted.table.read(splits[0], Query()))
    with pytest.raises(statestore.NotFoundError, match="FILE_NOT_FOUND"):
        uncompacted.get("a")


def test_where_readers_cannot_lease_files_stay_for_days(
    uncompacted: VersionedStore, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced = replace_all(uncompacted, model)
    monkeypatch.setattr(vacuum, "leased_versions", lambda root: None)
    assert remove_replaced(uncompacted._files, uncompacted._log_state) == 0
    assert uncompacted.vacuum() == []
    assert {item.name for item in uncompacted.vacuum(older_than=0)} >= replaced


def test_a_leased_version_that_cannot_be_loaded_keeps_all(
    uncompacted: VersionedStore, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = take_lease(root(uncompacted), uncompacted.version)
    replace_all(uncompacted, model)

    def missing(storage: Any, version: int | None = None, **given: Any) -> Any:
        if version is not None:
            raise statestore.NotFoundError("VERSION_NOT_FOUND", "trimmed")  # type: ignore[arg-type]
        return load_log_state(storage, version=version, **given)

    with monkeypatch.context() as patch:
        patch.setattr(vacuum, "load_log_state", missing)
        assert uncompacted.vacuum() == []
    del held
    assert uncompacted.vacuum()


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_a_kill_at_any_step_does_no_harm(uncompacted: VersionedStore, model: Model, tmp_path: Path, every: int) -> None:
    replaced = replace_all(uncompacted, model)
    source, copy = root(uncompacted), tmp_path / "copy/s"
    for step in range(1, 200, every):
        shutil.copytree(source, copy)
        files = SegmentFiles(KillingStorage(copy, Plan(at=step)), uncompacted.spec)
        died = False
        try:
            remove_replaced(files, files.log.newest())
        except Killed:
            died = True
        assert statestore.verify(copy)[0].problems == ()
        with statestore.connect(copy.parent).open_store("s") as again:
            assert set(rows_of(again.scan(), "k", "v")) == {("a", 7), ("c", 6), ("d", 8)}
            remove_replaced(again._files, again._log_state)
            assert names(again) == file_names(again._log_state)
        shutil.rmtree(copy)
        if not died:
            break
    assert step > 2 * len(replaced)
