"""Damaged, missing and foreign files: refused where they are needed, with the file's name, and nothing else is lost."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.open_files import open_below
from support.processes.scripts import command
from support.processes.strange_files import COLUMNS, KINDS
from support.refusals import TIMES, Warehouse, committed, refused, three_commits
from support.stores.log_entries import verbose_commit
from support.stores.versioned_checks import check_answers

import statestore
from statestore import CorruptError, NotFoundError, StateStoreError
from statestore.catalog.commits import publish_commit as write
from statestore.catalog.stores.versioned.versioned_store import VersionedStore
from statestore.catalog.warehouse import open_table
from statestore.formats.errors import StorageError
from statestore.formats.places.regular_files import open_regular, read_regular
from statestore.formats.state_table import Query


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return three_commits(tmp_path)


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)


def _replaced(path: Path, damage: Callable[[Path], object]) -> None:
    """Damage a copy and put it in place of the file, because a change of a mapped file is a different case."""
    other = path.with_name("damaged")
    shutil.copy(path, other)
    damage(other)
    other.rename(path)


def _read_everything(store: VersionedStore) -> None:
    store.history().read_all()


@pytest.mark.parametrize("damage", [_truncate, _flip, Path.unlink], ids=["truncated", "flipped", "missing"])
@pytest.mark.parametrize("suffix", ["segment", "closures"])
def test_damaged_data_file(warehouse: Warehouse, suffix: str, damage: Callable[[Path], None]) -> None:
    """Reads that need the file are refused, others work, and an intact copy makes the store whole."""
    entry = verbose_commit(warehouse.entry(3))
    found = entry["added"][0]["file"] if suffix == "segment" else entry["closures"][0]["file"]
    path = warehouse.folder / found["name"]
    saved = path.read_bytes()
    if damage is Path.unlink:
        path.unlink()
    else:
        _replaced(path, damage)
    kind: type[StateStoreError] = NotFoundError if damage is Path.unlink else CorruptError
    code = "SEGMENT_TRUNCATED" if damage is _truncate else "SEGMENT_CORRUPT"
    code = "FILE_NOT_FOUND" if damage is Path.unlink else code
    with warehouse.open() as store:
        refused(kind, code, lambda: _read_everything(store), found["name"])
        refused(kind, code, lambda: store.compact(full=True), found["name"])
        check_answers(store, warehouse.model, TIMES, versions=[0, 1, 2])
        assert store.versions().num_rows == 4
    path.write_bytes(saved)
    warehouse.check()


def _other_version(path: Path) -> None:
    document = json.loads(path.read_text())
    document["commit"]["rows"] = 7
    path.write_text(json.dumps(document))


DAMAGES: dict[str, Callable[[Path], object]] = {
    "truncated": _truncate,
    "flipped": _flip,
    "empty": lambda path: path.write_bytes(b""),
    "not JSON": lambda path: path.write_bytes(b"\xff\xfe"),
    "another document": lambda path: path.write_text("[1]"),
    "deep": lambda path: path.write_text("[" * 100_000),
}


@pytest.mark.parametrize("version", [0, 1, 3])
def test_damaged_log_entry(warehouse: Warehouse, version: int) -> None:
    saved = warehouse.entry(version).read_bytes()
    for damage in (*DAMAGES.values(), _other_version):
        _replaced(warehouse.entry(version), damage)
        refused(CorruptError, "LOG_CORRUPT", warehouse.open, warehouse.entry(version).name)
        warehouse.entry(version).write_bytes(saved)
    warehouse.check()


def test_missing_log_entries(warehouse: Warehouse) -> None:
    """Never an older store in place of the one that was: its next commit would take a version that is taken."""
    for missing in ([0], [1], [2], [1, 2], [0, 1, 2]):
        saved = {version: warehouse.entry(version).read_bytes() for version in missing}
        for version in missing:
            warehouse.entry(version).unlink()
        refused(CorruptError, "LOG_CORRUPT", warehouse.open, warehouse.entry(missing[0]).name)
        for version, data in saved.items():
            warehouse.entry(version).write_bytes(data)
    warehouse.check()


def test_log_entry_of_another_version(warehouse: Warehouse) -> None:
    shutil.copy(warehouse.entry(3), warehouse.entry(4))
    refused(CorruptError, "LOG_CORRUPT", warehouse.open, warehouse.entry(4).name, "3")
    warehouse.entry(4).unlink()
    warehouse.check()


@pytest.fixture
def with_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Warehouse:
    monkeypatch.setattr(write, "LOG_CHECKPOINT_INTERVAL", 1)
    return committed(tmp_path)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("all_of_them", [False, True])
def test_damaged_checkpoint(with_checkpoints: Warehouse, damage: str, all_of_them: bool) -> None:
    """The older one, or the log, says the same."""
    checkpoints = sorted((with_checkpoints.folder / "log/_checkpoint").iterdir())
    assert len(checkpoints) == 2
    for path in checkpoints if all_of_them else checkpoints[1:]:
        _replaced(path, DAMAGES[damage])
    with_checkpoints.check()


def test_checkpoint_covers_lost_entries(with_checkpoints: Warehouse) -> None:
    for version in range(3):
        with_checkpoints.entry(version).unlink()
    with_checkpoints.check()
    for path in (with_checkpoints.folder / "log/_checkpoint").iterdir():
        _replaced(path, _flip)
    refused(CorruptError, "LOG_CORRUPT", with_checkpoints.open, with_checkpoints.entry(0).name)


def test_damaged_description(warehouse: Warehouse) -> None:
    path = warehouse.folder / "store.json"
    saved = path.read_bytes()
    for damage in DAMAGES.values():
        _replaced(path, damage)
        refused(CorruptError, "STORE_CORRUPT", warehouse.open, str(path))
        refused(CorruptError, "STORE_CORRUPT", lambda: open_table(warehouse.folder).schema(Query()), str(path))
        assert statestore.connect(warehouse.root).stores() == ["s"]
        path.write_bytes(saved)
    warehouse.check()


def test_every_flipped_bit_of_the_description(warehouse: Warehouse) -> None:
    """A damaged description is refused: another retention or type would give another answer."""
    path = warehouse.folder / "store.json"
    saved = path.read_bytes()
    for position in range(len(saved)):
        path.write_bytes(saved[:position] + bytes([saved[position] ^ 1 << position % 7]) + saved[position + 1 :])
        try:
            _, spec = statestore.connect(warehouse.root).locate("s")
        except CorruptError:
            continue
        path.write_bytes(saved)
        assert spec == statestore.connect(warehouse.root).locate("s")[1], saved[max(position - 20, 0) : position + 1]


def test_damaged_changelog(warehouse: Warehouse) -> None:
    """Damage before acknowledged frames is refused; a torn tail, which was never acknowledged, is not missed."""
    with warehouse.open() as store:
        store.put("e", 8, timestamp=12)
        store.put("e", 9, timestamp=13)
        path = store._changelogs._writer.path  # type: ignore[attr-defined]
    saved = path.read_bytes()
    _replaced(path, _flip)
    refused(CorruptError, "CHANGELOG_CORRUPT", warehouse.open, path.name)
    refused(CorruptError, "CHANGELOG_CORRUPT", warehouse.open, path.name)
    path.write_bytes(saved + saved[:30])
    for row in [("e", 8, 12), ("e", 9, 13)]:
        warehouse.model.put(*row)
    warehouse.check()


FOREIGN = [
    "notes.txt",
    "log/notes.txt",
    "log/00000000000000000099.json.bak",
    "log/_checkpoint/notes.arrow",
    "segments/notes.txt",
    "segments/notes.arrow",
    "changelog/notes.txt",
    "changelog/notes.changelog",
    ".DS_Store",
]


def test_foreign_files(warehouse: Warehouse) -> None:
    """Files that are not the store's change no answer, and nothing removes them."""
    for name in FOREIGN:
        (warehouse.folder / name).parent.mkdir(exist_ok=True)
        (warehouse.folder / name).write_text("mine")
    (warehouse.folder / "log/_checkpoint/00000000000000000002.arrow").write_text("mine, too")
    (warehouse.root / "notes.txt").write_text("mine")
    (warehouse.root / "notes").mkdir()
    warehouse.check()
    with warehouse.open() as store:
        store.commit()
        warehouse.model.commit()
        store.compact(full=True)
        warehouse.model.same_again()
        store.vacuum(older_than=0)
    warehouse.check()
    assert all((warehouse.folder / name).read_text() == "mine" for name in FOREIGN)
    assert statestore.connect(warehouse.root).stores() == ["s"]


def test_directory_that_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "s" / "log").mkdir(parents=True)
    (tmp_path / "s" / "log" / "notes.txt").write_text("mine")
    catalog = statestore.connect(tmp_path)
    refused(NotFoundError, "STORE_NOT_FOUND", lambda: catalog.open_store("s"), "'s'")
    refused(NotFoundError, "STORE_NOT_FOUND", lambda: catalog.drop_store("s"), "'s'")
    assert (tmp_path / "s" / "log" / "notes.txt").read_text() == "mine"


# FIFOs, devices, directories, sockets and loops of links in the place of a store's files: no hang, no raw error.


def _wrong(folder: Path, share: str) -> list[str]:
    """Trials that hang or raise raw errors. A trial that takes two minutes counts as hanging: all trials of a share
    take seconds."""
    try:
        done = subprocess.run(command("strange_files", folder, share), capture_output=True, text=True, timeout=1_200)
    except subprocess.TimeoutExpired as hang:
        lines = (hang.stdout or b"").decode().splitlines()
        return [f"hangs: {lines[-1]}"]
    lines = done.stdout.splitlines()
    return [line for line in lines if line.startswith("raw")] + ([] if lines[-1:] == ["done"] else [done.stderr])


@pytest.mark.slow
def test_nothing_in_the_place_of_a_file_hangs(tmp_path: Path) -> None:
    """A FIFO in the place of each kind of file, in every way to use the store."""
    assert not _wrong(tmp_path, "FIFO")


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "FIFO"])
def test_no_other_kind_of_file_hangs(tmp_path: Path, kind: str) -> None:
    assert not _wrong(tmp_path, kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("file", ["store.json", "segments", "log"])
def test_an_error_names_the_path_and_what_is_there(tmp_path: Path, file: str, kind: str) -> None:
    catalog = statestore.connect(tmp_path)
    with catalog.create_store("s", **COLUMNS) as store:
        store.put("a", 1, timestamp=1_000)
        store.commit()
    path = tmp_path / "s" / file
    if path.is_dir():  # a data file in it, or the newest entry's follower
        path = path / "00000000000000000002.json" if file == "log" else next(path.glob("*.arrow"))
    path.unlink(missing_ok=True)
    KINDS[kind](path)
    if kind == "loop" and file != "segments":
        return  # where only existence is asked, a link that leads nowhere is nothing
    with pytest.raises(CorruptError, match="NOT_A_FILE") as found:
        shutil.rmtree(tmp_path / "s/log/_checkpoint", ignore_errors=True)
        with catalog.open_store("s", read_only=True) as store:
            store.history().read_all()
    words = {"device": "character device", "loop": "symbolic link"}
    assert str(path) in found.value.message and words.get(kind, kind) in found.value.message


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.EMFILE])
def test_a_file_that_cannot_be_opened(tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x")

    def refused(*_: object) -> int:
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(StorageError, match=os.strerror(number)):
        read_regular(path)


def test_no_descriptor_is_left(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    os.mkfifo(tmp_path / "fifo")
    for _ in range(20):
        os.close(open_regular(tmp_path / "file"))
        for name in ("fifo", "."):
            with pytest.raises(CorruptError, match="NOT_A_FILE"):
                open_regular(tmp_path / name)
    assert open_below(tmp_path) == []


def test_a_missing_file_stays_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "missing")


@pytest.mark.parametrize("path", ["a\0b", "\ud800", "x" * 5_000, "x/" * 9_000, b"bytes", None, 7])
def test_a_path_that_is_none(path: Any) -> None:
    for ask in (statestore.connect, statestore.inspect, statestore.verify, statestore.attach):
        with pytest.raises(StateStoreError, match="INVALID_LOCATION"):
            ask(path)


def test_a_warehouse_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StateStoreError, match="NOT_A_WAREHOUSE"):
        statestore.connect(tmp_path / "file")
    with pytest.raises(StorageError, match="DISK_FAILED"):
        statestore.connect(tmp_path / "file/below")
