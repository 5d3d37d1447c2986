"""A failed commit reports its outcome: not made, made, or unknown with an id; a retry never commits twice."""

from __future__ import annotations

import errno
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import statestore
from statestore.catalog.commits import publish_commit as write
from statestore.catalog.log import storage
from statestore.catalog.log.storage import LocalStorage
from statestore.catalog.reads.segment_files import _shared
from statestore.catalog.upkeep import compaction_rules, publish_compaction
from statestore.catalog.upkeep.background_compaction import background_of
from statestore.catalog.upkeep.compaction_rules import Rules
from statestore.formats.error_codes import ErrorCode

COLUMNS: dict[str, Any] = {"key": {"k": "string"}, "value": {"v": "bigint"}}
KINDS: dict[str, dict[str, Any]] = {
    "versioned": {},
    "versioned_kafka": {"serde": "kafka", "history_retention": "365 days"},
    "key_value": {"kind": "key_value"},
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def put(store: Any, key: str, value: int) -> None:
    if store.spec.kind == "versioned":
        store.put(key, value, timestamp=1000 + value)
    else:
        store.put(key, value)


def rows_of(store: Any, version: int | None = None) -> dict[str, int]:
    return {row["k"]: row["v"] for row in store.scan(version=version).read_all().to_pylist()}


class Disk:
    """A disk that fails to sync a folder of this name while ``broken``."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.broken = False
        self._sync = storage.sync_folder

    def sync(self, folder: Path) -> None:
        if self.broken and folder.name == self.folder:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._sync(folder)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    found = Disk("log")
    monkeypatch.setattr(storage, "sync_folder", found.sync)
    return found


@every_kind
@pytest.mark.parametrize("more", [False, True], ids=["at once", "after another put"])
def test_a_commit_whose_last_step_fails_is_not_repeated(tmp_path: Path, disk: Disk, kind: str, more: bool) -> None:
    """Its entry is there, so the retry finds it; later puts are in the next version."""
    with statestore.connect(tmp_path).create_store("s", **COLUMNS, **KINDS[kind]) as store:
        put(store, "zero", 0)
        store.commit()
        put(store, "a", 1)
        disk.broken = True
        with pytest.raises(statestore.CommitUnknownError, match="COMMIT_UNKNOWN") as raised:
            store.commit()
        if more:
            put(store, "b", 2)
        with pytest.raises(statestore.StorageError):
            store.commit()
        disk.broken = False
        assert store.was_committed(raised.value.commit)
        assert store.commit() == (3 if more else 2)
        expected = {"zero": 0, "a": 1} | ({"b": 2} if more else {})
        assert rows_of(store) == expected
        assert rows_of(store, 2) == {"zero": 0, "a": 1}
        put(store, "c", 3)
        assert store.commit() == (4 if more else 3)
        assert rows_of(store) == expected | {"c": 3}
        changes = store.changes(start_version=0).read_all().to_pylist()
        assert [row["k"] for row in changes] == ["zero", "a", *(["b"] if more else []), "c"]
        assert not list((tmp_path / "s" / "changelog").glob("*"))
    with statestore.connect(tmp_path).open_store("s") as again:
        assert again.commit() == again.version == (4 if more else 3)


@every_kind
def test_a_process_that_dies_after_an_unknown_outcome(tmp_path: Path, disk: Disk, kind: str) -> None:
    """The next process takes over later puts, and nothing twice."""
    store = statestore.connect(tmp_path).create_store("s", **COLUMNS, **KINDS[kind])
    put(store, "zero", 0)
    store.commit()
    put(store, "a", 1)
    disk.broken = True
    with pytest.raises(statestore.CommitUnknownError):
        store.commit()
    disk.broken = False
    put(store, "b", 2)
    store.close()
    with statestore.connect(tmp_path).open_store("s") as again:
        assert again.commit() == 3
        assert rows_of(again) == {"zero": 0, "a": 1, "b": 2}
        assert len(again.changes(start_version=0).read_all()) == 3


@every_kind
def test_a_write_whose_outcome_is_unknown_is_seen_by_point_reads(tmp_path: Path, disk: Disk, kind: str) -> None:
    """The hot tier has the rows of the table."""
    rows = pa.table({"k": ["a"], "v": pa.array([5], pa.int64()), "timestamp": pa.array([1500], pa.int64())})
    with statestore.connect(tmp_path).create_store("s", **COLUMNS, **KINDS[kind]) as store:
        put(store, "zero", 0)
        store.commit()
        disk.broken = True
        with pytest.raises(statestore.CommitUnknownError) as raised:
            store.write(rows.select(["k", "v"]) if kind == "key_value" else rows)
        disk.broken = False
        assert store.was_committed(raised.value.commit)
        found = store.get("a")
        assert (found if kind == "key_value" else found.value) == 5
        assert rows_of(store) == {"zero": 0, "a": 5}


@every_kind
def test_rows_after_a_repeated_transaction_are_not_taken_for_committed_ones(
    tmp_path: Path, disk: Disk, kind: str
) -> None:
    """Rows that a commit of unknown outcome took in stay in the changelog, as the log has its offsets."""
    catalog = statestore.connect(tmp_path)
    with catalog.create_store("s", **COLUMNS, **KINDS[kind]) as store:
        put(store, "zero", 0)
        store.commit(transaction=("app", 1))
        put(store, "adopted", 4)
    with catalog.open_store("s") as store:
        put(store, "a", 1)
        disk.broken = True
        with pytest.raises(statestore.CommitUnknownError):
            store.commit()
        disk.broken = False
        put(store, "b", 2)
        assert store.commit(transaction=("app", 1)) == 1, "and b is discarded as a repetition"
        put(store, "c", 3)
    with catalog.open_store("s") as again:
        assert again.get("c") is not None
        assert again.commit() == 3
        assert rows_of(again) == {"zero": 0, "adopted": 4, "a": 1, "c": 3}


def test_a_commit_of_nothing_but_refused_records_is_not_repeated(tmp_path: Path, disk: Disk) -> None:
    """No changelog shows whether the commit took place; its id does."""
    with statestore.connect(tmp_path).create_store("s", **COLUMNS, history_retention=1000) as store:
        store.put("a", 1, timestamp=10_000)
        store.commit()
        store.put("late", 1, timestamp=1)
        disk.broken = True
        with pytest.raises(statestore.CommitUnknownError):
            store.commit()
        disk.broken = False
        assert store.commit() == 2
        assert store.dropped_records == 1


def test_a_changelog_that_is_gone_is_not_committed_as_if_it_were_empty(tmp_path: Path) -> None:
    with statestore.connect(tmp_path).create_store("s", kind="key_value", **COLUMNS) as store:
        store.put("a", 1)
        (file,) = (tmp_path / "s" / "changelog").iterdir()
        away = file.rename(tmp_path / "away")
        with pytest.raises(statestore.CorruptError, match="CHANGELOG_CORRUPT"):
            store.commit()
        away.rename(file)
        assert store.commit() == 1
        assert rows_of(store) == {"a": 1}


@pytest.mark.parametrize("act", ["compact", "expire"])
def test_upkeep_whose_last_step_fails_loses_no_file(tmp_path: Path, disk: Disk, act: str) -> None:
    """Its entry names the files that it has written, and a reader sees it."""
    catalog = statestore.connect(tmp_path)
    with catalog.create_store("s", **COLUMNS) as store:
        for number in range(3):
            put(store, f"k{number}", number)
            store.commit()
        disk.broken = True
        with pytest.raises(statestore.CommitUnknownError) as raised:
            _ = store.compact(full=True) if act == "compact" else store.expire(before=1001)
        disk.broken = False
        assert store.was_committed(raised.value.commit)
        for found in (store, catalog.open_store("s", read_only=True)):
            assert found.refresh() == 4
            assert rows_of(found) == {"k0": 0, "k1": 1, "k2": 2}
    assert catalog.verify("s").ok


@every_kind
def test_a_commit_that_fails_before_its_last_step_was_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Its rows are still pending, its files are gone, and the handle still works."""
    with statestore.connect(tmp_path).create_store("s", **COLUMNS, **KINDS[kind]) as store:
        put(store, "a", 1)
        with monkeypatch.context() as patch:
            patch.setattr(os, "link", refusing(errno.ENOSPC))
            with pytest.raises(statestore.StorageError, match="DISK_FAILED") as raised:
                store.commit()
        assert raised.value.errno == errno.ENOSPC
        assert not isinstance(raised.value, statestore.CommitUnknownError)
        assert not list((tmp_path / "s" / "segments").iterdir())
        put(store, "b", 2)
        assert store.commit() == 1
        assert rows_of(store) == {"a": 1, "b": 2}


@every_kind
@pytest.mark.parametrize("readable", [True, False])
def test_an_entry_whose_link_is_made_and_reported_as_failed_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, readable: bool
) -> None:
    """A commit whose entry exists, or cannot be looked up, does not count as not made: its files stay, and its retry
    finds it."""
    link = os.link

    def made_and_failed(source: Any, target: Any, **options: Any) -> None:
        link(source, target, **options)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with statestore.connect(tmp_path).create_store("s", **COLUMNS, **KINDS[kind]) as store:
        put(store, "a", 1)
        with monkeypatch.context() as patch:
            patch.setattr(os, "link", made_and_failed)
            if not readable:
                patch.setattr(LocalStorage, "read", refusing(errno.EIO))
            with pytest.raises(statestore.CommitUnknownError):
                store.commit()
        assert store.commit() == 1
        assert rows_of(store) == {"a": 1}
    assert statestore.connect(tmp_path).verify("s").ok


def refusing(code: int) -> Callable[..., None]:
    def refuse(*arguments: object, **options: object) -> None:
        raise OSError(code, os.strerror(code))

    return refuse


def test_an_interrupted_commit_is_found_by_its_changelog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C between the log entry and the answer: nothing is repeated, and no file of the commit is removed."""
    with statestore.connect(tmp_path).create_store("s", **COLUMNS) as store:
        put(store, "a", 1)

        def interrupted(*arguments: Any) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(write, "after_publish", interrupted)
            with pytest.raises(KeyboardInterrupt):
                store.commit()
        assert store.commit() == 1
        assert rows_of(store) == {"a": 1}
        assert store.vacuum(older_than=0) == []
    assert statestore.connect(tmp_path).verify("s").ok


def test_the_outcome_of_a_commit_can_be_asked_for_anywhere(tmp_path: Path, disk: Disk) -> None:
    catalog = statestore.connect(tmp_path)
    with catalog.create_store("s", **COLUMNS) as store, catalog.open_store("s", read_only=True) as reader:
        put(store, "a", 1)
        store.commit()
        put(store, "b", 2)
        disk.broken = True
        with pytest.raises(statestore.CommitUnknownError) as raised:
            store.commit()
        with pytest.raises(statestore.StorageError):
            reader.was_committed(raised.value.commit)
        disk.broken = False
        assert reader.was_committed(raised.value.commit)
        version, attempt = raised.value.commit.split("-")
        assert version == "2"
        assert not reader.was_committed(f"3-{attempt}")
        assert not reader.was_committed(f"1-{attempt}")
        for wrong in ("", "2", attempt, f"{'9' * 5000}-{attempt}", f"-1-{attempt}", f"2-{attempt}x", None, 2):
            with pytest.raises(statestore.InvalidInputError, match="INVALID_COMMIT"):
                reader.was_committed(wrong)


@pytest.mark.parametrize(
    "error", [MemoryError(), OSError(errno.ENOSPC, "full"), statestore.CorruptError(ErrorCode.LOG_CORRUPT, "y")]
)
@every_kind
def test_a_commit_answers_its_version_though_the_compaction_after_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, kind: str, error: Exception
) -> None:
    """The compaction is reported, and is due again after the next commit."""
    monkeypatch.setattr(compaction_rules, "DEFAULT", Rules(small_fan_in=2))
    with statestore.connect(tmp_path).create_store("s", **COLUMNS, **KINDS[kind]) as store:
        put(store, "a", 1)
        store.commit()

        def failing(*arguments: Any) -> None:
            raise error

        with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "statestore"):
            patch.setattr(publish_compaction, "run_step", failing)
            put(store, "b", 2)
            assert store.commit() == 2
            background_of(store._files).finish()
        assert type(error).__name__ in store.metrics()["failed_compaction"]
        assert "after version 2 failed" in caplog.text
        assert rows_of(store) == {"a": 1, "b": 2}
        put(store, "c", 3)
        assert store.commit() == 3
        background_of(store._files).finish()
        assert store.refresh() == 4, "the compaction that was due"
        assert store.metrics()["failed_compaction"] is None


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Every path that is forced to the disk, in order."""
    found: list[str] = []
    fsync = os.fsync

    def noted(file: int) -> None:
        found.append(str(Path(f"/proc/self/fd/{file}").readlink()))
        fsync(file)

    monkeypatch.setattr(os, "fsync", noted)
    yield found


def test_every_folder_on_the_way_to_a_commit_is_forced_to_the_disk(tmp_path: Path, syncs: list[str]) -> None:
    """The commit forces the folders that name the warehouse, the store, its log and its segments to the disk, because
    the process that made them may have died before."""
    root = tmp_path / "a" / "b"
    catalog = statestore.connect(root)
    store = catalog.create_store("s", **COLUMNS)
    assert {str(path) for path in (tmp_path, tmp_path / "a", root, root / "s", root / "s" / "log")} <= set(syncs)
    store.put("a", 1, timestamp=1000)
    store.commit()
    store.close()
    syncs.clear()
    _shared.clear()
    with catalog.open_store("s") as again:
        again.put("b", 1, timestamp=1000)
        again.commit()
    assert {str(path) for path in (tmp_path / "a", root, root / "s", root / "s" / "log")} <= set(syncs)
    segments = root / "s" / "segments"
    written = [path for path in syncs if path.startswith(f"{segments}/")]
    entry = next(number for number, path in enumerate(syncs) if Path(path).parent == root / "s" / "log")
    assert written and str(segments) in syncs[syncs.index(written[-1]) : entry], "its files and their names come first"


def test_a_folder_is_renamed_durably_before_its_files_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, syncs: list[str]
) -> None:
    """Else a power failure could bring back a dropped store with half of its files."""
    catalog = statestore.connect(tmp_path)
    catalog.create_store("s", **COLUMNS).close()
    seen: list[list[str]] = []
    remove = shutil.rmtree

    def removing(path: Path, **options: Any) -> None:
        seen.append(list(syncs))
        remove(path, **options)

    monkeypatch.setattr(shutil, "rmtree", removing)
    for act in (lambda: catalog.rebuild("s", key_groups=64).close(), lambda: catalog.drop_store("s")):
        syncs.clear()
        seen.clear()
        act()
        assert seen and all(before[-1] == str(tmp_path) for before in seen)


def test_a_temporary_file_that_somebody_removes_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link
    removed: list[str] = []

    def after_vacuum(source: str, target: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        if not removed:
            removed.append(source)
            os.unlink(source, dir_fd=src_dir_fd)
        link(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    monkeypatch.setattr(os, "link", after_vacuum)
    LocalStorage(tmp_path).create("x", b"1")
    assert removed and (tmp_path / "x").read_bytes() == b"1"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
