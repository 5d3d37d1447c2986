"""FIFOs, devices, directories, sockets and loops of links in the place of a store's files: no hang, no raw error."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.open_files import open_below
from support.processes.scripts import command
from support.processes.strange_files import COLUMNS, KINDS

import statestore
from statestore import CorruptError, StateStoreError
from statestore.formats.errors import StorageError
from statestore.formats.places.regular_files import open_regular, read_regular


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
