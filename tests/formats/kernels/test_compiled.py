"""Folders of compiled code: those that nobody else can write to, shared by processes."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from statestore.formats.kernels import compiled


@pytest.fixture
def homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home and a temporary folder; nothing is compiled meanwhile."""
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    return tmp_path


def folder() -> Path | None:
    found = compiled._cache_folder.__wrapped__()
    return None if found is None else Path(found)


def in_temporary(homes: Path) -> Path:
    return homes / "temporary" / f"statestore-{os.getuid()}"


@pytest.mark.parametrize("umask", [0o022, 0o002, 0o000])
def test_the_folder_is_the_users_alone(umask: int, homes: Path) -> None:
    before = os.umask(umask)
    try:
        found, again = folder(), folder()
    finally:
        os.umask(before)
    assert found is not None and found == again and found.parent == homes / "cache" / "statestore"
    assert [stat.S_IMODE(path.stat().st_mode) for path in (found, found.parent)] == [0o700, 0o700]


def test_a_folder_that_others_may_write_to(homes: Path) -> None:
    root = homes / "cache" / "statestore"
    root.mkdir(parents=True)
    root.chmod(0o770)
    found = folder()
    assert found is not None and found.parent == in_temporary(homes)
    found.chmod(0o707)
    assert folder() is None


def test_a_folder_behind_a_link(homes: Path) -> None:
    (homes / "elsewhere").mkdir(mode=0o700)
    (homes / "cache").mkdir()
    for link in (homes / "cache" / "statestore", in_temporary(homes)):
        link.symlink_to(homes / "elsewhere")
    assert folder() is None


def test_folders_of_another_user(homes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = os.getuid() + 1
    monkeypatch.setattr(os, "getuid", lambda: other)
    assert folder() is None


def test_a_home_that_can_not_be_written_to(homes: Path) -> None:
    (homes / "cache").write_bytes(b"a file, where a folder should be")
    found = folder()
    assert found is not None and found.parent == in_temporary(homes)


def test_a_user_without_a_home(homes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "expanduser", fail)
    found = folder()
    assert found is not None and found.parent == in_temporary(homes)


def test_a_folder_that_is_given(homes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(homes / "given"))
    found = folder()
    assert found is not None and found.parent == homes / "given" / "statestore"
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(homes / "file"))
    (homes / "file").write_bytes(b"")
    assert folder() is None


@pytest.mark.slow
def test_processes_that_compile_at_once(homes: Path) -> None:
    """Processes share the folder, and a later one uses what they left."""
    program = (
        "import numpy as np; from statestore.formats.kernels.checksum_kernels import crc32c\n"
        "array = np.frombuffer(b'123456789' + bytes(64), np.uint8)\n"
        "print(int(crc32c(array, 0, 9)), sum(crc32c.stats.cache_hits.values()))"
    )
    environment = os.environ | {"NUMBA_CACHE_DIR": str(homes / "given")}
    command = [sys.executable, "-c", program]
    running = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    found = [process.communicate()[0].split() for process in running]
    assert [answer[0] for answer in found] == [str(0xE3069283)] * 2
    last = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()
    assert last == [str(0xE3069283), "1"]
