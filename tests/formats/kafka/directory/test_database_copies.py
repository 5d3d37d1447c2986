"""Private copies of a database while its application changes it."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pytest
from rocksdict import Options, Rdict
from support.kafka.applications import copied, fingerprint, folder_of

from statestore.formats.errors import ConflictError, CorruptError, NotFoundError
from statestore.formats.kafka.directory import database_copies
from statestore.formats.kafka.directory.applications import find_applications
from statestore.formats.kafka.directory.database_copies import opened_copy
from statestore.formats.kafka.directory.store_facts import application_facts
from statestore.formats.places.folder import Folder
from statestore.formats.rocksdb.key_ranges import KeyRange
from statestore.formats.rocksdb.scan import scan_family


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A database without a write-ahead log, with two table files, closed."""
    path = tmp_path / "store"
    made = opened(path)
    for number in range(2):
        write(made, number)
    made.close()
    return path


def opened(path: Path) -> Rdict:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_disable_auto_compactions(True)
    return Rdict(str(path), options=options)


def write(database: Rdict, number: int) -> None:
    database[b"key %d" % number] = b"value"
    database.flush()


def rewrite(database: Rdict) -> None:
    """Put rows that lie in several files, and compact: files without a common key would only be moved."""
    for number in range(3):
        database[b"key %d" % number] = b"value"
    database.flush()
    database.compact_range(None, None)
    live = {Path(file["name"]).name for file in database.live_files()}
    for path in Path(database.path()).glob("*.sst"):  # a thread of RocksDB removes them, at once or somewhat later
        if path.name not in live:
            path.unlink(missing_ok=True)


def rows(path: Path) -> dict[bytes, bytes]:
    batches = scan_family(path, "default", [KeyRange()], 1000)
    return {row["key"]: row["value"] for batch in batches for row in batch.to_pylist()}


def expected(count: int) -> dict[bytes, bytes]:
    return {b"key %d" % number: b"value" for number in range(count)}


def test_table_files_are_linked_and_changing_files_copied(database: Path) -> None:
    with opened_copy(folder_of(database)) as copy:
        tables = sorted(path.name for path in database.glob("*.sst"))
        assert tables
        for path in copy.iterdir():
            assert (path.stat().st_ino == (database / path.name).stat().st_ino) == (path.suffix == ".sst")
        assert rows(copy) == expected(2)
    assert not copy.exists()


def test_the_tree_is_as_before_also_with_its_locks_and_logs(tmp_path: Path) -> None:
    app = copied("orders", tmp_path, "2_1")
    store = app / "2_1" / "rocksdb" / "prices"
    before = fingerprint(app)
    assert {"LOCK", "000004.log", "LOG"} <= {path.name for path in store.iterdir()}
    with opened_copy(folder_of(store)) as copy:
        assert {"LOCK", "LOG"}.isdisjoint(path.name for path in copy.iterdir())
        rows(copy)
    assert fingerprint(app) == before


def test_a_database_that_another_process_has_open_can_be_read(database: Path) -> None:
    writer = opened(database)
    write(writer, 2)
    with opened_copy(folder_of(database)) as copy:
        write(writer, 3)
        writer.compact_range(None, None)
        assert rows(copy) == expected(3)
    writer.close()
    assert rows(database) == expected(4)


def change_while_copied(monkeypatch: pytest.MonkeyPatch, change: Callable[[int], None]) -> list[int]:
    """Call ``change`` with a running number before a table file is linked, as long as none is; return the numbers."""
    link, attempts = os.link, list[int]()

    def changing(source: str, target: Path, **options: Any) -> None:
        if not list(target.parent.glob("*.sst")):
            attempts.append(len(attempts) + 1)
            change(attempts[-1])
        link(source, target, **options)

    monkeypatch.setattr("os.link", changing)
    return attempts


def test_a_compaction_meanwhile_is_noticed_and_the_copy_repeated(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = opened(database)

    def once(attempt: int) -> None:
        if attempt == 1:
            write(writer, 2)
            rewrite(writer)

    attempts = change_while_copied(monkeypatch, once)
    with opened_copy(folder_of(database)) as copy:
        assert rows(copy) == expected(3)
    assert len(attempts) > 1
    writer.close()


def test_a_database_that_never_stops_changing_is_reported(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = opened(database)

    def compacted(attempt: int) -> None:
        write(writer, attempt)
        rewrite(writer)

    change_while_copied(monkeypatch, compacted)
    with pytest.raises(ConflictError, match=r"STATE_CHANGED.*20 times"), opened_copy(folder_of(database)):
        pass
    writer.close()


def test_a_flush_meanwhile_changes_nothing(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = opened(database)
    attempts = change_while_copied(monkeypatch, lambda attempt: write(writer, 2))
    with opened_copy(folder_of(database)) as copy:
        assert rows(copy) == expected(2)
    assert attempts == [1]
    writer.close()


def test_a_new_manifest_meanwhile_changes_nothing(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def reopened(attempt: int) -> None:
        if attempt == 1:
            writer = opened(database)  # RocksDB makes a new MANIFEST and deletes the old one
            write(writer, 2)
            writer.close()

    change_while_copied(monkeypatch, reopened)
    with opened_copy(folder_of(database)) as copy:
        assert rows(copy) == expected(2)


def test_a_store_that_its_application_wipes_is_gone_and_not_damaged(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    next(database.glob("MANIFEST*")).unlink()
    monkeypatch.setattr("time.sleep", lambda seconds: shutil.rmtree(database, ignore_errors=True))
    with pytest.raises(NotFoundError, match=r"VERSION_GONE.*read again"), opened_copy(folder_of(database)):
        pass


@pytest.mark.parametrize("code", [errno.EXDEV, errno.EPERM, errno.EMLINK])
def test_where_links_are_refused_files_are_copied(database: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("os.link", refuse)
    with opened_copy(folder_of(database)) as copy:
        assert all(path.stat().st_nlink == 1 for path in copy.iterdir())
        assert rows(copy) == expected(2)


def test_files_that_are_deleted_before_they_are_copied_are_held(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without links, the files are opened before any is copied: a compaction then takes nothing away."""
    writer = opened(database)
    copy_bytes = database_copies._copy
    copies: list[Path] = []

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    def copying(descriptor: int, target: Path) -> None:
        if target.suffix == ".sst" and not copies:
            copies.append(target)
            write(writer, 2)
            writer.compact_range(None, None)
        copy_bytes(descriptor, target)

    monkeypatch.setattr("os.link", refuse)
    monkeypatch.setattr(database_copies, "_copy", copying)
    with opened_copy(folder_of(database)) as copy:
        assert rows(copy) == expected(2)
    assert copies
    writer.close()


def test_a_database_that_is_gone_is_a_change(tmp_path: Path) -> None:
    said = r"VERSION_GONE.*no such folder any more"
    with pytest.raises(NotFoundError, match=said), opened_copy(folder_of(tmp_path / "dropped")):
        pass


def test_a_database_behind_a_link_is_refused(database: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(database)
    with pytest.raises(CorruptError, match="symbolic link"), opened_copy(folder_of(tmp_path / "link")):
        pass


def test_unknown_files_are_not_taken(database: Path) -> None:
    (database / "secret").write_text("secret")
    (database / "link").symlink_to("/etc/hostname")
    with opened_copy(folder_of(database)) as copy:
        assert {"secret", "link"}.isdisjoint(path.name for path in copy.iterdir())


def test_a_directory_in_another_storage_is_read_as_a_local_one(tmp_path: Path) -> None:
    app = copied("bookings", tmp_path, "0_0", "3_0", "global")
    elsewhere = Folder(pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem()), "bookings")
    assert not elsewhere.is_local
    (far,), (near,) = find_applications(elsewhere), find_applications(folder_of(app))
    assert [(part.store, part.databases) for part in far.partitions] == [
        (part.store, part.databases) for part in near.partitions
    ]
    for there, here in zip(application_facts(far), application_facts(near), strict=True):
        assert there.offsets == here.offsets
        assert there.problems == here.problems == ()
        assert [found.families for found in there.databases] == [found.families for found in here.databases]
        assert there.generation == here.generation


@pytest.mark.parametrize("name", ["MANIFEST", "000099.log"])
def test_a_metadata_file_without_end_is_refused(database: Path, name: str) -> None:
    path = next(database.glob("MANIFEST*")) if name == "MANIFEST" else database / name
    with path.open("ab") as file:
        file.truncate(5 << 30)
    with pytest.raises(CorruptError, match="FILE_TOO_LARGE"), opened_copy(folder_of(database)):
        pass


@pytest.mark.slow
def test_reads_beside_a_writer_see_a_gapless_beginning_of_its_rows(tmp_path: Path) -> None:
    """The writer flushes and compacts all the time and has no write-ahead log, as Kafka Streams."""
    path = tmp_path / "store"
    script = f"""
from rocksdict import Options, Rdict, WriteOptions
options = Options(raw_mode=True)
options.create_if_missing(True)
options.set_level_zero_file_num_compaction_trigger(2)
database = Rdict({str(path)!r}, options=options)
writing = WriteOptions()
writing.disable_wal = True
database.set_write_options(writing)
for number in range(150_000):
    database[b"%09d" % number] = b"value"
    if number % 1000 == 0:
        database.flush()
        if number == 0:
            print("begun", flush=True)
database.flush()
database.close()
"""
    writer = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    with writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "begun\n"
        counts: list[int] = []
        while writer.poll() is None or not counts or counts[-1] < 150_000:
            with opened_copy(folder_of(path)) as copy:
                found = sorted(rows(copy))
            assert found == [b"%09d" % number for number in range(len(found))]
            counts.append(len(found))
        assert counts == sorted(counts)
    assert writer.returncode == 0
