"""A tree is synced as a whole where the file system can, and else file by file; failures are errors."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path
from typing import Any

import pytest

from statestore.formats.places import durable_files
from statestore.formats.places.durable_files import sync_tree


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("a/one", "a/b/two", "three"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    os.mkfifo(tmp_path / "pipe")
    return tmp_path


def recorded(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    found: set[str] = set()
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        found.add(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    return found


def test_one_call_syncs_all(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced, calls = recorded(monkeypatch), list[str]()

    def call(descriptor: int) -> int:
        calls.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        return 0

    monkeypatch.setattr(durable_files, "_FEW", 3)
    monkeypatch.setattr(durable_files, "_is_of_disk", lambda device: True)
    monkeypatch.setattr(durable_files, "_syncfs", lambda: call)
    sync_tree(str(tree))
    assert calls == [str(tree)] and synced == set()


@pytest.mark.parametrize("lacks", ["call", "disk", "files"])
def test_every_file_and_folder_is_synced_elsewhere(tree: Path, monkeypatch: pytest.MonkeyPatch, lacks: str) -> None:
    """Few files do not wait for what other programs have written."""
    synced = recorded(monkeypatch)
    monkeypatch.setattr(durable_files, "_FEW", 512 if lacks == "files" else 3)
    monkeypatch.setattr(durable_files, "_is_of_disk", lambda device: lacks != "disk")
    monkeypatch.setattr(durable_files, "_syncfs", lambda: None if lacks == "call" else pytest.fail)
    sync_tree(str(tree))
    assert synced == {str(tree / name) for name in ("a/one", "a/b/two", "three", "a", "a/b")} | {str(tree)}


def test_what_the_system_could_not_write_is_an_error(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> int:
        ctypes.set_errno(errno.ENOSPC)
        return -1

    monkeypatch.setattr(durable_files, "_FEW", 3)
    monkeypatch.setattr(durable_files, "_is_of_disk", lambda device: True)
    monkeypatch.setattr(durable_files, "_syncfs", lambda: fail)
    with pytest.raises(OSError, match="No space left"):
        sync_tree(str(tree))


@pytest.mark.parametrize(
    ("release", "kind", "expected"),
    [("6.1.0", "ext4", True), ("5.8.0-1", "xfs", True), ("5.4.0", "ext4", False), ("6.1.0", "nfs4", False),
     ("6.1.0", "overlay", False), ("6.1.0", "fuse.sshfs", False), ("odd", "ext4", False)],
)  # fmt: skip
def test_only_disks_of_systems_that_report_are_synced_as_a_whole(
    monkeypatch: pytest.MonkeyPatch, release: str, kind: str, expected: bool
) -> None:
    mounts = f"1 0 8:1 / / rw - {kind} /dev/a rw\n2 1 0:20 / /proc rw shared:1 - proc proc rw\n"

    class System:
        def __init__(self) -> None:
            self.release = release

    def read(path: Path, *given: Any) -> str:
        return mounts

    monkeypatch.setattr(os, "uname", System)
    monkeypatch.setattr(Path, "read_text", read)
    assert durable_files._is_of_disk(os.makedev(8, 1)) is expected
    assert durable_files._is_of_disk(os.makedev(9, 1)) is False
