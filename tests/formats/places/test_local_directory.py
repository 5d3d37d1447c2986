"""Directories for local files in the temporary folder are removed soon after their process ends, and no others are
touched."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest

import statestore
from statestore.formats.places.local_directory import remove_abandoned, take_directory, temporary_directory

COLUMNS: dict[str, Any] = {"key": {"k": "string"}, "value": {"v": "bigint"}}
READER = """
import os, signal, sys, statestore
reader = statestore.connect(sys.argv[1]).open_store("s", read_only=True)
assert reader.get("a") == 1
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary folder of the test's own."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return folder


def made(root: Path) -> statestore.Catalog:
    catalog = statestore.connect(root)
    with catalog.create_store("s", kind="key_value", **COLUMNS) as store:
        store.put("a", 1)
        store.commit()
    return catalog


def directories(temporary: Path) -> list[Path]:
    return [path for folder in temporary.iterdir() for path in folder.iterdir()]


@pytest.fixture(scope="module")
def of_a_killed_reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of local files that a killed reader left, in a temporary folder of its own."""
    place = tmp_path_factory.mktemp("killed")
    made(place / "warehouse")
    (place / "tmp").mkdir()
    kill_a_reader(place / "warehouse", place / "tmp")
    (left,) = (place / "tmp").iterdir()
    assert len(directories(place / "tmp")) == 1
    return left


@pytest.fixture
def abandoned(of_a_killed_reader: Path, temporary: Path) -> Path:
    """A copy in this test's temporary folder. Nobody has the lock of a copy either."""
    return Path(shutil.copytree(of_a_killed_reader, temporary / of_a_killed_reader.name))


def kill_a_reader(root: Path, temporary: Path) -> None:
    command = [sys.executable, "-c", READER, str(root)]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == -signal.SIGKILL, done.stderr


def test_the_next_reader_removes_those_of_killed_readers(tmp_path: Path, temporary: Path) -> None:
    catalog = made(tmp_path / "warehouse")
    with catalog.open_store("s", read_only=True) as living:
        assert living.get("a") == 1
        (own,) = directories(temporary)
        for _ in range(2):
            kill_a_reader(tmp_path / "warehouse", temporary)
        assert len(directories(temporary)) == 2, "the second has removed the first's"
        with catalog.open_store("s", read_only=True) as reader:
            assert reader.get("a") == 1
            assert own in directories(temporary) and len(directories(temporary)) == 2
        assert directories(temporary) == [own]
        assert [row.key for row in living.all()] == ["a"]
    assert not list(temporary.iterdir())


@pytest.mark.usefixtures("abandoned")
def test_upkeep_removes_them_too(temporary: Path) -> None:
    assert directories(temporary)
    remove_abandoned()
    assert not list(temporary.iterdir())
    remove_abandoned()  # nothing there


@pytest.mark.usefixtures("abandoned")
@pytest.mark.parametrize("kind", ["versioned", "keyed"])
def test_vacuum_of_any_store_removes_them(tmp_path: Path, temporary: Path, kind: str) -> None:
    options: dict[str, Any] = COLUMNS if kind == "versioned" else {"kind": "keyed", "key": COLUMNS["key"]}
    with statestore.connect(tmp_path / "warehouse").create_store("other", **options) as store:
        assert directories(temporary)
        store.vacuum(0)
        assert not list(temporary.iterdir())


def test_nothing_else_is_removed(tmp_path: Path, abandoned: Path) -> None:
    """Links are not followed, and files and folders with other names stay, however old."""
    folder = abandoned
    precious = tmp_path / "precious"
    (precious / "deep").mkdir(parents=True)
    (precious / "owner.lock").touch()
    for name in ("0" * 32, "dead-" + "1" * 32, "new-" + "2" * 32):
        (folder / name).symlink_to(precious)
    (folder / "data").mkdir()
    (folder / ("3" * 32)).mkdir()
    os.utime(folder / "data", (0, 0))
    pipe = folder / ("4" * 32)
    pipe.mkdir()
    os.mkfifo(pipe / "owner.lock")
    kept = {path.name for path in folder.iterdir() if path.is_symlink()} | {"data", "3" * 32}
    remove_abandoned()
    assert {path.name for path in folder.iterdir()} >= kept
    assert not [path for path in folder.iterdir() if (path / "live").exists()]
    assert (precious / "deep").is_dir() and (precious / "owner.lock").is_file()


def test_a_folder_of_somebody_else_is_neither_used_nor_swept(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = take_directory()
    (folder,) = temporary.iterdir()
    os.close(directory.lock)  # as if its process were dead
    stranger = os.getuid() + 1
    folder.rename(folder.with_name(f"statestore-local-{stranger}"))
    monkeypatch.setattr(os, "getuid", lambda: stranger)
    remove_abandoned()
    assert directories(temporary)
    with pytest.raises(statestore.InvalidInputError, match="FOREIGN_DIRECTORY"):
        take_directory()


def test_directories_are_taken_and_given_up_side_by_side(temporary: Path) -> None:
    """Their parent folder is made and removed with them; no process loses its directory to another."""
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for number in range(30):
                with temporary_directory() as folder:
                    (folder / "mine").write_text(str(number))
                    remove_abandoned()
                    assert (folder / "mine").read_text() == str(number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert not list(temporary.iterdir())


def test_a_child_closes_no_descriptor_that_another_file_has_by_now(temporary: Path) -> None:
    """The directory was given up, and its lock's number is that of another file: hooks of forks run in children of
    subprocess, too, where these have something to do before they begin."""
    directory = take_directory()
    directory.remove()
    with (temporary / "other").open("w") as other:
        assert other.fileno() == directory.lock
        command = [sys.executable, "-c", f"import os; os.write({other.fileno()}, b'mine')"]
        subprocess.run(command, pass_fds=[other.fileno()], preexec_fn=lambda: None, check=True)
    assert (temporary / "other").read_text() == "mine"
    assert directory.path.parent.exists() is False


def test_a_child_does_not_keep_the_directory_of_its_parent(temporary: Path) -> None:
    """A child inherits the lock, and may live longer."""
    directory = take_directory()
    ready, done = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.write(ready[1], b"x")
        os.read(done[0], 1)
        os._exit(0)
    os.read(ready[0], 1)
    os.close(directory.lock)  # as if its process were dead
    remove_abandoned()
    left = directory.path.exists()
    os.write(done[1], b"x")
    os.waitpid(child, 0)
    for end in (*ready, *done):
        os.close(end)
    assert not left


def test_a_removal_that_ends_after_the_lock_is_gone_on_with(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = take_directory()
    (directory.path / "rows").write_bytes(b"x")
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", lambda path, **_: (path / "owner.lock").unlink())
        directory.remove()
    assert directories(temporary)
    remove_abandoned()
    assert not list(temporary.iterdir())


def test_a_disk_that_takes_no_directory_is_a_storage_error(tmp_path: Path, temporary: Path) -> None:
    catalog = made(tmp_path / "warehouse")
    (temporary / f"statestore-local-{os.getuid()}").write_text("no folder")
    with (
        catalog.open_store("s", read_only=True) as reader,
        pytest.raises((statestore.StorageError, statestore.InvalidInputError)),
    ):
        reader.get("a")


def test_directories_that_were_never_finished_go_unless_somebody_makes_them(temporary: Path) -> None:
    """Directories of a process that died, or whose disk failed, between any two steps are removed; no clock decides."""
    held = take_directory()
    folder = held.path.parent
    empty, left, made = (folder / f"new-{digit * 32}" for digit in "123")
    for path in (empty, left, made):
        path.mkdir()
    (left / "owner.lock").touch()
    lock = os.open(made / "owner.lock", os.O_CREAT | os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    remove_abandoned()
    assert {path.name for path in folder.iterdir()} == {held.path.name, made.name}
    os.close(lock)
    remove_abandoned()
    assert {path.name for path in folder.iterdir()} == {held.path.name}
    held.remove()


def test_a_directory_that_cannot_be_renamed_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk refuses so."""
    directory = take_directory(tmp_path / "taken")
    (directory.path / "files").mkdir()
    (directory.path / "files" / "one").write_text("1")

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "rename", refuse)
    directory.remove()
    assert list((tmp_path / "taken").iterdir()) == []
