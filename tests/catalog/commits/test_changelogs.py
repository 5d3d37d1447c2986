"""Changelogs from owner to owner: continued, taken into the log once, and never mistaken for another file."""

from __future__ import annotations

import gc
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.open_files import open_below

import statestore
from statestore.catalog.commits import changelogs as store_changelogs
from statestore.catalog.commits.changelogs import Changelogs
from statestore.catalog.log import entries as log
from statestore.catalog.log import log_state as log_states
from statestore.formats.changelogs.changelog import ROW_SCHEMA, made_at, read_changelog
from statestore.formats.changelogs.changelog_writer import ChangelogWriter, try_adopt
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, StorageError

COLUMNS: dict[str, Any] = {"key": {"k": "string"}, "value": {"v": "bigint"}}
KINDS = ["versioned", "key_value"]


def changelogs(root: Path) -> list[Path]:
    return sorted((root / "s/changelog").iterdir())


def put(store: Any, key: str, value: int, timestamp: int = 1000) -> None:
    store.put(key, value, timestamp=timestamp)


def table(store: Any) -> dict[str, int]:
    return {row["k"]: row["v"] for row in store.scan().read_all().to_pylist()}


@pytest.mark.parametrize("kind", KINDS)
def test_rounds_without_a_commit_use_one_file(tmp_path: Path, kind: str) -> None:
    """Each handle continues the file of the one before, and no file descriptor stays open."""
    catalog = statestore.connect(tmp_path)
    catalog.create_store("s", kind=kind, **COLUMNS).close()
    rounds = 40 if kind == "versioned" else 15
    for number in range(rounds):
        with catalog.open_store("s") as store:
            put(store, f"k{number}", number)
        assert len(changelogs(tmp_path)) == 1
    assert open_below(tmp_path) == []
    with catalog.open_store("s") as store:
        store.commit()
        assert table(store) == {f"k{number}": number for number in range(rounds)}
    assert changelogs(tmp_path) == []


@pytest.mark.slow
def test_hundreds_of_rounds_without_a_commit(tmp_path: Path) -> None:
    catalog = statestore.connect(tmp_path)
    catalog.create_store("s", **COLUMNS).close()
    for number in range(400):
        with catalog.open_store("s") as store:
            put(store, f"k{number}", number)
        assert open_below(tmp_path) == [] and len(changelogs(tmp_path)) == 1
    with catalog.open_store("s") as store:
        store.commit()
        assert len(table(store)) == 400


@pytest.mark.parametrize("kind", KINDS)
def test_opening_and_closing_changes_nothing(tmp_path: Path, kind: str) -> None:
    catalog = statestore.connect(tmp_path)
    with catalog.create_store("s", kind=kind, **COLUMNS) as store:
        put(store, "a", 1)
    (file,) = changelogs(tmp_path)
    data = file.read_bytes()
    for _ in range(3):
        with catalog.open_store("s") as store:
            assert store.get("a") is not None
            store.flush()
        assert changelogs(tmp_path) == [file] and file.read_bytes() == data


@pytest.mark.parametrize("kind", KINDS)
def test_a_handle_that_is_dropped_gives_up_its_changelogs(tmp_path: Path, kind: str) -> None:
    """Its own and those that it adopted; the next handle has their records."""
    catalog = statestore.connect(tmp_path)
    with catalog.create_store("s", kind=kind, **COLUMNS) as store:
        put(store, "a", 1)
    dropped = catalog.open_store("s")
    put(dropped, "b", 2)
    del dropped
    gc.collect()
    with catalog.open_store("s") as store:
        store.commit()
        assert table(store) == {"a": 1, "b": 2}
    assert changelogs(tmp_path) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_with_a_torn_end_is_not_gone_on_with(tmp_path: Path, kind: str) -> None:
    """Its end was never acknowledged; a new file holds what comes, and the commit takes in both."""
    catalog = statestore.connect(tmp_path)
    with catalog.create_store("s", kind=kind, **COLUMNS) as store:
        put(store, "a", 1)
    (file,) = changelogs(tmp_path)
    with file.open("ab") as torn:
        torn.write(b"SSLOG\x03")
    with catalog.open_store("s") as store:
        put(store, "b", 2)
        assert len(changelogs(tmp_path)) == 2
    with catalog.open_store("s") as store:
        put(store, "c", 3)
        assert len(changelogs(tmp_path)) == 2
        store.commit()
        assert table(store) == {"a": 1, "b": 2, "c": 3}
    assert changelogs(tmp_path) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_repeated_transaction_takes_back_only_what_was_appended(tmp_path: Path, kind: str) -> None:
    """Adopted records stay acknowledged, in the file that the handle continued."""
    catalog = statestore.connect(tmp_path)
    with catalog.create_store("s", kind=kind, **COLUMNS) as store:
        put(store, "done", 1)
        store.commit(transaction=("app", 1))
        put(store, "adopted", 2, 2000)
    (file,) = changelogs(tmp_path)
    with catalog.open_store("s") as store:
        put(store, "done", 1)
        assert store.commit(transaction=("app", 1)) == 1
        put(store, "own", 3, 3000)
    assert changelogs(tmp_path) == [file]
    with catalog.open_store("s") as store:
        assert store.commit() == 2
        found = store.changes(start_version=2, columns=["k"]).read_all()["k"].to_pylist()
        assert sorted(found) == ["adopted", "own"]


def test_what_is_taken_back_cannot_come_back_after_a_power_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shorter length is on the disk before anything is appended behind it."""
    calls: list[tuple[str, int]] = []
    catalog = statestore.connect(tmp_path)
    with catalog.create_store("s", **COLUMNS) as store:
        put(store, "done", 1)
        store.commit(transaction=("app", 1))
        put(store, "adopted", 2)
    (file,) = changelogs(tmp_path)
    real = os.fsync

    def note(descriptor: int) -> None:
        if os.path.samestat(os.fstat(descriptor), file.stat()):
            calls.append(("fsync", file.stat().st_size))
        real(descriptor)

    with catalog.open_store("s") as store:
        before = file.stat().st_size
        put(store, "done", 1)
        monkeypatch.setattr(os, "fsync", note)
        store.commit(transaction=("app", 1))
        assert calls == [("fsync", before)]


def test_a_repeated_transaction_whose_rows_cannot_be_taken_back_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And can be repeated: nothing is forgotten before the file is in order."""
    catalog = statestore.connect(tmp_path)
    with catalog.create_store("s", **COLUMNS) as store:
        put(store, "done", 1)
        store.commit(transaction=("app", 1))
        put(store, "adopted", 2)
    with catalog.open_store("s") as store:
        put(store, "done", 1)

        def refuse(*_: object) -> None:
            raise OSError(5, "Input/output error")

        with monkeypatch.context() as patch:
            patch.setattr(os, "ftruncate", refuse)
            with pytest.raises(StorageError):
                store.commit(transaction=("app", 1))
        assert store.commit(transaction=("app", 1)) == 1
        assert store.commit() == 2
        assert store.changes(start_version=2, columns=["k"]).read_all().to_pylist() == [{"k": "adopted"}]


def test_an_adopted_file_is_not_gone_on_with_where_a_living_writer_has_a_newer_one(tmp_path: Path) -> None:
    """Files are replayed in the order of their names: the later of two puts of one time has to be in the later file."""
    catalog = statestore.connect(tmp_path)
    store = catalog.create_store("s", **COLUMNS)
    store.put("a", 1, timestamp=1000)
    with catalog.open_store("s") as living:
        living.put("a", 2, timestamp=1000)
        before = {path.name for path in (tmp_path / "s" / "changelog").iterdir()}
        store.close()
        with catalog.open_store("s") as third:
            third.put("a", 3, timestamp=1000)
            (new,) = {path.name for path in (tmp_path / "s" / "changelog").iterdir()} - before
            assert new > max(before)


def test_two_writers_have_a_file_each(tmp_path: Path) -> None:
    """The newest file is gone on with if it was adopted, never while its owner lives."""
    catalog = statestore.connect(tmp_path)
    with catalog.create_store("s", **COLUMNS) as store:
        put(store, "old", 1)
    with catalog.open_store("s") as first, catalog.open_store("s") as second:
        put(second, "second", 2)
        put(first, "first", 3)
        assert len(changelogs(tmp_path)) == 2
    for _ in range(3):
        with catalog.open_store("s") as store:
            put(store, "old", 4, 2000)
        assert len(changelogs(tmp_path)) == 2
    with catalog.open_store("s") as store:
        store.commit()
        assert table(store) == {"old": 4, "first": 3, "second": 2}


# Taken into the log once


@pytest.fixture
def died(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A handle, beside a committed changelog that was not removed and that the newest log state no longer lists."""
    monkeypatch.setattr(log_states, "KEPT_CHANGELOGS", 5)
    catalog = statestore.connect(tmp_path)
    catalog.create_store("s", **COLUMNS).close()
    with catalog.open_store("s", auto_compact=False) as store:
        put(store, "first", 0)
        store.commit()
        with catalog.open_store("s", auto_compact=False) as dying:
            put(dying, "balance", 100)
            (file,) = changelogs(tmp_path)
            data = file.read_bytes()
            dying.commit()
        put(store, "balance", 999)
        store.commit()
        for number in range(8):
            put(store, f"x{number}", number, 2000 + number)
            store.commit()
        file.write_bytes(data)
        assert file.name not in store._log_state.changelogs
        yield store


def test_a_changelog_of_which_the_log_holds_the_name_is_not_applied_again(died: Any, tmp_path: Path) -> None:
    """However many others were committed since: the entries of the log are asked. It is removed at once."""
    (file,) = changelogs(tmp_path)
    (found,) = statestore.verify(tmp_path)
    assert found.ok and found.uncommitted == 0
    with statestore.connect(tmp_path).open_store("s") as store:
        assert not file.exists()
        version = store.version
        assert store.commit() == version
        assert store.get("balance").value == 999


def test_a_changelog_that_the_log_does_not_name_is_adopted(died: Any, tmp_path: Path) -> None:
    """Entries after the version at which a changelog was made can name it, and only these are read."""
    read: list[int] = []
    (old,) = changelogs(tmp_path)
    old.unlink()
    put(died, "new", 7)
    died.close()
    (file,) = changelogs(tmp_path)
    assert made_at(file) == died.version == 11
    with pytest.MonkeyPatch.context() as patch:

        def note(storage: Any, version: int) -> Any:
            read.append(version)
            return log.read_entry(storage, version)

        patch.setattr(store_changelogs, "read_entry", note)
        with statestore.connect(tmp_path).open_store("s") as store:
            store.commit()
            assert store.get("new").value == 7
    assert read == []


def test_a_file_that_does_not_say_when_it_was_made_is_looked_for_in_the_whole_log(died: Any, tmp_path: Path) -> None:
    """One of an older release, or a forged one that says it was made later than the newest version."""
    (file,) = changelogs(tmp_path)
    assert made_at(file) == 1
    ends = store_changelogs.consumed_ends(
        died._storage, died._log_state, [file.name, "0" * 20 + "-" + "0" * 32 + ".changelog"]
    )
    assert ends == {file.name: file.stat().st_size}
    file.unlink()
    ChangelogWriter(file, ROW_SCHEMA, died.version + 1, died.spec.store_id).close()
    assert made_at(file) == died.version + 1
    assert store_changelogs.consumed_ends(died._storage, died._log_state, [file.name]) == ends
    file.write_bytes(b"")
    assert store_changelogs.consumed_ends(died._storage, died._log_state, [file.name]) == ends


def test_a_take_over_that_fails_holds_no_lock(tmp_path: Path) -> None:
    catalog = statestore.connect(tmp_path)
    with catalog.create_store("s", kind="key_value", **COLUMNS) as store:
        store.put("a", 1)
        store_id = store.spec.store_id
    (file,) = changelogs(tmp_path)

    def failing(names: Any) -> Any:
        raise CorruptError(ErrorCode.LOG_CORRUPT, "an entry of the log")

    found = Changelogs(tmp_path / "s", ROW_SCHEMA, store=store_id)
    with pytest.raises(CorruptError):
        found.take_over(failing)
    adopted = try_adopt(file)
    assert adopted is not None and found.sizes() == {}
    adopted.close()


def test_a_missing_log_entry_stops_the_search(died: Any, tmp_path: Path) -> None:
    """Then it is unknown whether the file was committed, and there is no guess."""
    (file,) = changelogs(tmp_path)
    entry = tmp_path / "s" / log.entry_name(3)
    document = json.loads(entry.read_text())
    assert document["commit"]["version"] == 3
    entry.unlink()
    with pytest.raises(statestore.StateStoreError):
        store_changelogs.consumed_ends(died._storage, died._log_state, [file.name])


# Nothing else is taken for one


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", ["pipe", "folder", "link", "dangling link"])
def test_something_else_in_the_place_of_a_changelog_is_refused(tmp_path: Path, kind: str, what: str) -> None:
    """Neither waited for nor followed, and verify reports it."""
    catalog = statestore.connect(tmp_path)
    catalog.create_store("s", kind=kind, **COLUMNS).close()
    folder = tmp_path / "s/changelog"
    folder.mkdir(exist_ok=True)
    place = folder / f"{1:020d}-{'0' * 32}.changelog"
    if what == "pipe":
        os.mkfifo(place)
    elif what == "folder":
        place.mkdir()
    else:
        target = tmp_path / "elsewhere"
        if what == "link":
            shutil.copy(tmp_path / "s/store.json", target)
        place.symlink_to(target)
    with pytest.raises(CorruptError, match=r"CHANGELOG_CORRUPT.*is no regular file"), catalog.open_store("s") as store:
        store.get("a")
    (found,) = statestore.verify(tmp_path)
    assert [problem.code for problem in found.problems] == ["CHANGELOG_CORRUPT"]
    statestore.inspect(tmp_path)
    with pytest.raises(CorruptError, match="CHANGELOG_CORRUPT"):
        list(read_changelog(place, None))


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_in_the_place_of_the_folder_is_an_error_of_ours(tmp_path: Path, kind: str) -> None:
    catalog = statestore.connect(tmp_path)
    catalog.create_store("s", kind=kind, **COLUMNS).close()
    (tmp_path / "s/changelog").write_text("no folder")
    with pytest.raises(StorageError, match="changelog"), catalog.open_store("s") as store:
        put(store, "a", 1)


def test_a_changelog_whose_temporary_file_vacuum_removes_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link
    removed: list[Path] = []

    def after_vacuum(source: Path, target: Path, **options: Any) -> None:
        if not removed and target.parent.name == "changelog":
            removed.append(source)
            source.unlink()
        link(source, target, **options)

    with statestore.connect(tmp_path).create_store("s", **COLUMNS) as store:
        with monkeypatch.context() as patch:
            patch.setattr(os, "link", after_vacuum)
            put(store, "a", 1)
        assert removed and [path.suffix for path in changelogs(tmp_path)] == [".changelog"]
        store.commit()
        assert table(store) == {"a": 1}
