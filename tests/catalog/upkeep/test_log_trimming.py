"""Packing and trimming of the log: every entry is still found, nobody is left behind, and no kill does harm."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.stores.killing_storage import Killed, KillingStorage, Plan
from support.stores.log_entries import folded, plain
from support.stores.short_chunks import LENGTH, short_chunks

import statestore
from statestore.catalog.commits.claims import claim
from statestore.catalog.commits.new_files import NewFiles
from statestore.catalog.commits.publish_commit import Change, after_publish, commit_change, new_entry
from statestore.catalog.log.entries import CommitEntry, entry_name, read_entry, was_committed, write_entry
from statestore.catalog.log.entry_packs import PACKS
from statestore.catalog.log.log_checkpoint import load_log_state
from statestore.catalog.log.log_names import ENTRY
from statestore.catalog.log.log_state import LogState
from statestore.catalog.log.storage import LocalStorage
from statestore.catalog.reads.segment_files import SegmentFiles, shared_files
from statestore.catalog.stores.pending_writes import records_of
from statestore.catalog.upkeep import background_compaction, log_trimming
from statestore.catalog.upkeep.background_compaction import background_of
from statestore.catalog.upkeep.vacuum import run_vacuum
from statestore.formats.errors import ConflictError, CorruptError, NotFoundError

COMMITS = 5 * LENGTH + 3
PACKED = 4 * LENGTH  # the newest 16 entries stay, and whole packs are made


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    with short_chunks():
        yield


def add(store: statestore.VersionedStore, count: int) -> None:
    """Commit one key after the other, each three times in turn."""
    for _ in range(count):
        number = store.version + 1
        store.put(f"key {number % 3}", {"v": number}, timestamp=number * 1_000)
        assert store.commit((f"app {number % 2}", number)) == number


def open_store(folder: Path) -> statestore.VersionedStore:
    store: statestore.VersionedStore = statestore.connect(folder).open_store("s", auto_compact=False)
    return store


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("template")
    with short_chunks(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        statestore.connect(folder).create_store("s", key={"k": "string"}, value={"v": "bigint"}).close()
        with open_store(folder) as store:
            for version in (20, 50, COMMITS - 1):
                add(store, version - 1 - store.version)
                store.compact(full=True)
                add(store, 1)
            assert store.version == COMMITS
    return folder


@pytest.fixture
def made(tmp_path: Path, template: Path) -> Iterator[tuple[statestore.VersionedStore, list[CommitEntry]]]:
    """An open store, and the entries of its commits as they were when they were made."""
    shutil.copytree(template, tmp_path / "w")
    with open_store(tmp_path / "w") as store:
        yield store, [read_entry(store._storage, version) for version in range(store.version + 1)]


Made = tuple[statestore.VersionedStore, list[CommitEntry]]


def entries_left(store: statestore.VersionedStore) -> list[int]:
    return [int(item.name[4:24]) for item in store._storage.list("log/") if ENTRY.fullmatch(item.name)]


def anew(store: statestore.VersionedStore) -> LogState:
    """Load as a process does that never saw the store."""
    return load_log_state(LocalStorage(store._storage.root), store=store.spec.store_id)  # type: ignore[attr-defined]


def expire(store: statestore.VersionedStore, version: int) -> None:
    """Make ``version`` the first that can be read."""
    store.expire(before=version * 1_000)
    horizon = store._files.log.newest().horizon
    assert horizon is not None and horizon.version == version


def check(store: statestore.VersionedStore, log: list[CommitEntry], kept: int = 0) -> None:
    """Compare everything that the log can be asked with the truth; ``kept``: the first version that it still has."""
    newest = anew(store)
    assert plain(newest) == folded(log)
    for version in (*range(kept, len(log), 3), len(log) - 1):
        assert read_entry(store._storage, version) == log[version]
        assert was_committed(store._storage, log[version].commit_id)
        assert not was_committed(store._storage, f"{version}-{'0' * 32}")
    for version in (*range(kept, len(log), 23), len(log) - 1):
        assert plain(load_log_state(store._storage, version)) == folded(log[: version + 1])
    for entry in log:
        if entry.transaction is not None:
            assert newest.versions.find_transaction(*entry.transaction) == entry.version
    assert [row["version"] for row in store.versions().to_pylist()] == list(range(len(log)))
    assert statestore.verify(store._storage.root)[0].problems == ()  # type: ignore[attr-defined]


@pytest.mark.slow
def test_packed_entries_are_found_and_their_files_are_gone(made: Made) -> None:
    store, log = made
    check(store, log)
    listed = store.vacuum(older_than="7 days", dry_run=True)
    removed = store.vacuum(older_than="7 days")
    assert [item.name for item in removed] == [item.name for item in listed] == [*map(entry_name, range(PACKED))]
    assert entries_left(store) == list(range(PACKED, COMMITS + 1))
    check(store, log)
    assert store.vacuum(older_than="7 days") == []
    add(store, 2 * LENGTH)
    store.vacuum(older_than="7 days")
    log += [read_entry(store._storage, version) for version in range(len(log), store.version + 1)]
    assert entries_left(store)[0] == 6 * LENGTH
    check(store, log)


def test_two_that_trim_at_once_do_not_fail(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    store, log = made
    create = LocalStorage.create
    began: list[str] = []

    def late(storage: LocalStorage, name: str, *rest: Any) -> None:
        if name.startswith(PACKS) and not began:
            began.append(name)
            with open_store(store._storage.root.parent) as other:  # type: ignore[attr-defined]
                other.vacuum(older_than="7 days")
        create(storage, name, *rest)

    monkeypatch.setattr(LocalStorage, "create", late)
    store.vacuum(older_than="7 days")
    assert began and entries_left(store) == list(range(PACKED, COMMITS + 1))
    check(store, log)


def test_the_background_packs_what_is_due_without_waiting_for_its_next_vacuum(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An hour of small commits would be tens of thousands of files."""
    store, log = made
    background = background_of(store._files)
    background._pack(store._files, store._log_state)
    assert entries_left(store) == list(range(PACKED, COMMITS + 1))
    check(store, log)
    listed = []
    monkeypatch.setattr(background_compaction, "trim_log", lambda *_, **__: listed.append(1))
    background._pack(store._files, store._log_state)
    assert listed == []  # the folder is listed once for each pack


def test_a_log_is_trimmed_at_the_horizon(made: Made) -> None:
    store, log = made
    store.vacuum(older_than="7 days")
    horizon = 2 * LENGTH + 5
    expire(store, horizon)
    log.append(read_entry(store._storage, store.version))
    assert store.vacuum(older_than="7 days") == [], "too young"
    removed = store.vacuum(older_than=0)
    assert {f"{PACKS}{first:020d}.arrow" for first in (0, LENGTH)} <= {item.name for item in removed}
    assert [item.name for item in store._storage.list(PACKS)] == [
        f"{PACKS}{first:020d}.arrow" for first in (2 * LENGTH, 3 * LENGTH)
    ]
    check(store, log, kept=2 * LENGTH)
    for version in (0, 7, 2 * LENGTH - 1):
        with pytest.raises(NotFoundError, match=rf"VERSION_NOT_FOUND.*version {version} is not kept"):
            load_log_state(store._storage, version)
        with pytest.raises(NotFoundError, match=r"VERSION_NOT_FOUND.*not kept"):
            was_committed(store._storage, log[version].commit_id)
    add(store, 1)
    assert store.get("key 0") is not None and anew(store).version == store.version


def test_entries_before_the_horizon_need_no_pack(made: Made) -> None:
    store, log = made
    expire(store, 3 * LENGTH)
    log.append(read_entry(store._storage, store.version))
    store.vacuum(older_than=0)
    assert [item.name for item in store._storage.list(PACKS)] == [f"{PACKS}{3 * LENGTH:020d}.arrow"]
    check(store, log, kept=3 * LENGTH)


def test_a_changelog_of_old_keeps_the_log(made: Made) -> None:
    """The log may have to tell how much of it was committed."""
    store, _ = made
    expire(store, 3 * LENGTH)
    folder = store._storage.root / "changelog"  # type: ignore[attr-defined]
    folder.mkdir(exist_ok=True)
    (folder / f"{1:020d}-{'0' * 32}.changelog").write_bytes(b"")
    store.vacuum(older_than=0)
    assert read_entry(store._storage, 0).version == 0


def test_a_reader_that_was_left_behind_sees_the_newest_version(made: Made, tmp_path: Path) -> None:
    """The entry after its version is gone, and so is that of its version."""
    store, log = made
    for version in (0, 5, PACKED - 1, PACKED, COMMITS):
        base = load_log_state(store._storage, version)
        store.vacuum(older_than=0)
        assert plain(load_log_state(store._storage, base=base)) == folded(log)
        assert plain(load_log_state(store._storage, COMMITS - 1, base)) == folded(log[:COMMITS])


def test_a_point_reader_that_was_left_behind_notices(tmp_path: Path) -> None:
    """Soon, and every scan at once."""
    catalog = statestore.connect(tmp_path / "w")
    writer = catalog.create_store("s", key={"k": "string"}, value={"v": "bigint"})
    writer.auto_compact = False
    add(writer, 3)
    reader = catalog.open_store("s")
    assert reader.get("key 0").value == 3
    stale = reader._log_state
    add(writer, COMMITS)
    writer.vacuum(older_than=0)
    assert reader._log_state is stale and stale.version + 1 not in entries_left(writer)
    seen = [reader.get("key 0").value for _ in range(70)]
    newest = max(version for version in range(writer.version + 1) if version % 3 == 0)
    assert seen[-1] == newest and set(seen) == {3, newest}


def given(change: Change, _: LogState) -> Change:
    return change


def test_a_writer_that_was_left_behind_takes_no_old_version(made: Made) -> None:
    """Its entry would be the only one of its version, and no reader would ever see it."""
    store, log = made
    storage = store._storage
    for version in (0, 3, LENGTH - 1, PACKED - 2):
        base = load_log_state(storage, version)
        entry = new_entry(base, "write", NewFiles(), transaction=("late", version))
        store.vacuum(older_than=0)
        with pytest.raises(ConflictError, match="VERSION_TAKEN"):
            write_entry(storage, entry)
        assert not storage.exists(entry_name(version + 1))
        files = SegmentFiles(storage, store.spec)
        change = Change(
            "write", records_of(store.spec, store.spec.record_schema().empty_table()), transaction=("late", version)
        )
        log_state = commit_change(files, base, partial(given, change))
        log.append(read_entry(storage, log_state.version))
        assert log_state.version == len(log) - 1 and log[-1].transaction == ("late", version)
    check(store, log)


def test_the_newest_entry_that_is_lost_is_not_called_trimmed(made: Made) -> None:
    """No commit can follow it: the log needs its copy."""
    store, _ = made
    add(store, 4 - store.version % 4)  # the newest version has a checkpoint
    newest = load_log_state(store._storage)
    store._storage.delete(entry_name(newest.version))
    with pytest.raises(CorruptError, match=rf"LOG_CORRUPT.*{entry_name(newest.version)}: it is missing"):
        write_entry(store._storage, new_entry(newest, "write", NewFiles()))


def test_a_commit_under_way_keeps_the_entries(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit may have looked for its entry already. A commit that begins later does no harm."""
    store, log = made
    monkeypatch.setattr(log_trimming, "CLAIM_WAIT", 0.0)
    with claim(store._storage):
        assert not any(ENTRY.fullmatch(item.name) for item in store.vacuum(older_than=0))
        assert entries_left(store) == list(range(COMMITS + 1))
    begun: list[Any] = []

    def later(root: Path, held: Any) -> set[str]:
        begun.append(claim(store._storage))
        begun[-1].__enter__()
        return set()

    monkeypatch.setattr(log_trimming, "held_claims", later)
    assert len(store.vacuum(older_than=0)) == PACKED
    begun[0].__exit__(None, None, None)
    check(store, log)


def test_a_damaged_entry_stays_with_all_after_it(made: Made) -> None:
    """The end of the log always remains, so that a reader can tell the newest version."""
    store, _ = made
    path = store._storage.root / entry_name(LENGTH + 2)  # type: ignore[attr-defined]
    saved = path.read_bytes()
    path.write_bytes(saved[:-9])
    store.vacuum(older_than=0)
    assert entries_left(store) == list(range(LENGTH, COMMITS + 1))
    path.write_bytes(saved)
    store.vacuum(older_than=0)
    assert entries_left(store) == list(range(PACKED, COMMITS + 1))


def test_a_damaged_pack_is_an_error_and_never_a_wrong_entry(made: Made) -> None:
    store, log = made
    store.vacuum(older_than=0)
    path = store._storage.root / f"{PACKS}{LENGTH:020d}.arrow"  # type: ignore[attr-defined]
    data = path.read_bytes()
    for position in range(0, len(data), 331):
        path.write_bytes(data[:position] + bytes([data[position] ^ 4]) + data[position + 1 :])
        os.utime(path, ns=(position, position))
        with pytest.raises(CorruptError, match=r"LOG_CORRUPT.*_packs"):
            read_entry(store._storage, LENGTH + 3)
    assert plain(anew(store)) == folded(log)
    problems = statestore.verify(store._storage.root)[0].problems  # type: ignore[attr-defined]
    assert [problem.file for problem in problems] == [f"{PACKS}{LENGTH:020d}.arrow"]
    assert problems[0].versions == (LENGTH, 2 * LENGTH - 1)
    path.unlink()
    problems = statestore.verify(store._storage.root)[0].problems  # type: ignore[attr-defined]
    assert [problem.versions for problem in problems] == [(LENGTH, LENGTH), (LENGTH + 1, 2 * LENGTH - 1)]


def test_verification_reads_every_chunk(made: Made) -> None:
    """Reads go on without it as long as the entries are there."""
    store, log = made
    root = store._storage.root  # type: ignore[attr-defined]
    expire(store, 3 * LENGTH)
    store.vacuum(older_than=0)
    assert f"versions {3 * LENGTH} to {store.version} follow" in statestore.verify(root)[0].verified
    for path in sorted((root / "log/_chunks").iterdir())[::2]:  # before and behind the horizon
        saved = path.read_bytes()
        first = int(path.name[:20])
        path.write_bytes(saved[:200] + bytes([saved[200] ^ 1]) + saved[201:])
        for damage in ("changed", "gone"):
            if damage == "gone":
                path.unlink()
            problem, *others = statestore.verify(root)[0].problems
            assert (problem.file, problem.versions) == (f"log/_chunks/{path.name}", (first, first + LENGTH - 1))
            assert all(path.name in other.message for other in others), "segments that could not be judged"
        found = anew(store)
        if first < 3 * LENGTH:
            with pytest.raises(CorruptError, match=r"LOG_CORRUPT.*_chunks"):
                found.versions.timestamp_at(first)
        else:
            assert found.versions.timestamp_at(first) == log[first].timestamp
        assert store.scan().read_all().num_rows == 3
        path.write_bytes(saved)
    assert statestore.verify(root)[0].ok


def test_files_of_versions_since_the_age_stay(made: Made) -> None:
    """Also those that only packed entries name."""
    store, log = made
    store.vacuum(older_than=0)
    data = {ref for entry in log for meta in entry.added for ref in (meta.file.name,)}
    found = log_trimming.data_files_since(store._storage, 2, COMMITS, data)
    named = {name for entry in log[3:] for name in (*(m.name for m in entry.added), *entry.removed)}
    assert named <= found <= data
    assert log_trimming.data_files_since(store._storage, COMMITS, COMMITS, data) == set()
    with pytest.raises((NotFoundError, CorruptError)):
        log_trimming.data_files_since(store._storage, COMMITS, COMMITS + 1, data)


@pytest.mark.quick("35-*")
@pytest.mark.parametrize("stride", [293, pytest.param(17, marks=pytest.mark.slow)])
@pytest.mark.parametrize("horizon", [0, 2 * LENGTH + 3])
def test_a_kill_at_any_step_does_no_harm(made: Made, tmp_path: Path, horizon: int, stride: int) -> None:
    """Whoever opens the store after it finds every entry that is kept, and the next vacuum goes on.

    The whole log is asked after every fourth death of many: each death is followed by a verification and by reads at
    both ends of the log. The strides are prime to the three steps of a call, so all three are met.
    """
    store, log = made
    if horizon:
        expire(store, horizon)
        log.append(read_entry(store._storage, store.version))
    kept = horizon // LENGTH * LENGTH
    store.close()
    source, copy = tmp_path / "w/s", tmp_path / "copy/s"
    step = 0
    while True:
        step += stride
        shutil.copytree(source, copy)
        plan = Plan(at=step)
        files = SegmentFiles(KillingStorage(copy, plan), store.spec)
        died = False
        try:
            run_vacuum(files, files.log.newest(), 0, dry_run=False)
        except Killed:
            died = True
        left = sorted(int(item.name[4:24]) for item in LocalStorage(copy).list("log/") if ENTRY.fullmatch(item.name))
        assert left == list(range(left[0], len(log))), "an end of the log"
        with statestore.connect(copy.parent).open_store("s") as again:
            shared_files(again._storage, again.spec).forget()
            assert plain(anew(again)) == folded(log)
            assert statestore.verify(copy)[0].problems == ()
            for version in (max(kept, left[0] - 1), left[0], len(log) - 1):
                assert read_entry(again._storage, version) == log[version]
            again.vacuum(older_than=0)
            if stride > 100 or step // stride % 4 == 0 or not died:
                check(again, log, kept)
        shutil.rmtree(copy)
        if not died:
            break
    assert step > 100


@pytest.mark.slow
def test_the_log_grows_on_after_trimming(made: Made) -> None:
    """In rounds, with handles that stay open."""
    store, log = made
    for round_number in range(3):
        add(store, LENGTH + 3)
        expire(store, store.version - 2 * LENGTH)
        add(store, 4)  # a log checkpoint has to know the horizon
        store.vacuum(older_than=0)
        state = store._files.log.newest()
        entry = new_entry(state, "write", NewFiles())
        with claim(store._storage):
            write_entry(store._storage, entry)
        after_publish(store._storage, state, entry)
        log += [replace(read_entry(store._storage, v)) for v in range(len(log), entry.version + 1)]
        store.refresh()
        assert len(store._storage.list(PACKS)) <= 3, round_number
        horizon = anew(store).horizon
        assert horizon is not None
        check(store, log, kept=horizon.version // LENGTH * LENGTH)
