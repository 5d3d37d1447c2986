"""Files of the source are copied, or linked where they never change, and a source that changes meanwhile is refused."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pytest
from support.engines.toy_edits import NOW, Model, edits_between, opened, read, same, tree, write_source
from support.engines.toy_engine import Toys, plan_of

from statestore.catalog.edits import copied_files
from statestore.catalog.edits.apply import EditProgress, apply_edit
from statestore.catalog.edits.copied_files import copy_files
from statestore.catalog.edits.receipt import Receipt
from statestore.catalog.edits.target_folder import TargetFolder
from statestore.formats.edits import CopiedFile, EditOptions, EditPlan
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import ConflictError, StateStoreError, StorageError
from statestore.formats.places.folder import Folder, folder_at
from statestore.formats.places.locations import parse_location

AFTER = Model({**NOW.toys, ("a", "x"): 8}, NOW.queues)


@dataclass(frozen=True)
class Linking(Toys):
    """Toys whose copied files never change in place."""

    def edit_plan(self, version: int, edits: Any, options: EditOptions) -> EditPlan:
        plan = plan_of(self, version, edits, options)
        return dataclasses.replace(plan, kept=tuple(dataclasses.replace(f, immutable=True) for f in plan.kept))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_source(tmp_path / "source")


def linked(source: Path, target: Path) -> Receipt:
    toys = opened(source)
    return apply_edit(Linking(toys.folder, toys.times), 2, edits_between(NOW, AFTER), str(target))


def links(target: Path) -> set[str]:
    files = [path for path in target.rglob("*") if path.is_file()]
    return {path.relative_to(target).as_posix() for path in files if path.stat().st_nlink > 1}


def test_only_files_that_never_change_are_linked(source: Path, tmp_path: Path) -> None:
    before = tree(source)
    receipt = linked(source, tmp_path / "linked")
    copied = {"1.json"} | {f"queues/{version}-{place}.json" for version in (1, 2) for place in range(3)}
    assert links(tmp_path / "linked") == copied and receipt.copied.linked == len(copied)
    apply_edit(opened(source), 2, edits_between(NOW, AFTER), str(tmp_path / "copied"))
    assert links(tmp_path / "copied") == set()
    assert tree(source) == before


def test_a_copy_that_is_written_leaves_the_source(source: Path, tmp_path: Path) -> None:
    before = tree(source)
    apply_edit(opened(source), 2, edits_between(NOW, AFTER), str(tmp_path / "target"))
    for path in (tmp_path / "target").rglob("*.*"):
        with path.open("ab") as stream:
            stream.write(b"more")
    assert tree(source) == before


@pytest.mark.parametrize("number", [errno.EXDEV, errno.EPERM, errno.EMLINK])
def test_what_cannot_be_linked_is_copied(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, "refused")

    monkeypatch.setattr(os, "link", refuse)
    receipt = linked(source, tmp_path / "target")
    assert receipt.copied.linked == 0 and receipt.copied.files == 7
    assert same(read(opened(tmp_path / "target"), 2), AFTER)


def other_file_system(folder: Path) -> Path | None:
    """A folder on another file system than the given one, where the machine has one that can be written to."""
    for place in (Path("/dev/shm"), Path("/tmp"), Path.home()):
        if place.is_dir() and os.access(place, os.W_OK) and place.stat().st_dev != folder.stat().st_dev:
            return place
    return None


def test_the_target_may_lie_on_another_file_system(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the machine has one only, links fail as they do between two."""
    place = other_file_system(tmp_path)
    if place is None:
        place = tmp_path

        def refuse(*_: object, **__: object) -> None:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

        monkeypatch.setattr(os, "link", refuse)
    target = place / f"statestore-edit-{os.getpid()}"
    try:
        receipt = linked(source, target)
        assert receipt.copied.linked == 0
        assert same(read(opened(target), 2), AFTER)
    finally:
        shutil.rmtree(target, ignore_errors=True)


def test_a_link_in_the_source_becomes_a_file(source: Path, tmp_path: Path) -> None:
    (source / "1.json").rename(tmp_path / "elsewhere.json")
    (source / "1.json").symlink_to(tmp_path / "elsewhere.json")
    linked(source, tmp_path / "target")
    made = tmp_path / "target" / "1.json"
    assert not made.is_symlink() and made.stat().st_nlink == 1
    assert made.read_bytes() == (tmp_path / "elsewhere.json").read_bytes()


def test_blocks_are_shared_where_the_file_system_can(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for the request copies; the rest must not copy again."""

    def share(made: int, source: int, devices: tuple[int, int]) -> bool:
        os.write(made, os.pread(source, 1 << 20, 0))
        return True

    monkeypatch.setattr(copied_files, "_shares_blocks", share)
    receipt = apply_edit(opened(source), 2, edits_between(NOW, AFTER), str(tmp_path / "target"))
    assert receipt.copied.shared == receipt.copied.files == 7
    assert same(read(opened(tmp_path / "target"), 2), AFTER)


# Other storages


def test_files_of_another_storage_are_fetched(tmp_path: Path) -> None:
    storage = pafs._MockFileSystem()
    contents = {"a/one": b"1" * 3_000_000, "a/two": b"", "three": b"3"}
    storage.create_dir("a")
    for path, content in contents.items():
        with storage.open_output_stream(path) as stream:
            stream.write(content)
    root = tmp_path / "root"
    root.mkdir()
    target = TargetFolder(str(tmp_path / "target"), str(root))
    files = [
        CopiedFile(Folder(storage, "a"), "one", "a/one", 3_000_000),
        CopiedFile(Folder(storage, "a"), "two", "two"),
        CopiedFile(Folder(storage, ""), "three", "b/c/three", 1, immutable=True),
    ]
    found = copy_files(files, target)
    assert {p: (root / p).read_bytes() for p in ("a/one", "two", "b/c/three")} == {
        "a/one": contents["a/one"],
        "two": b"",
        "b/c/three": b"3",
    }
    lines = sorted(f"{p}\t{len(c)}\t{hashlib.sha256(c).hexdigest()}" for p, c in
                   {"a/one": contents["a/one"], "two": b"", "b/c/three": b"3"}.items())  # fmt: skip
    assert (found.files, found.bytes, found.linked) == (3, 3_000_001, 0)
    assert found.sha256 == hashlib.sha256("\n".join(lines).encode()).hexdigest()


@pytest.mark.parametrize("place", ["here", "elsewhere"])
def test_a_file_of_another_size_is_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "root").mkdir()
    folder = folder_at(parse_location(str(tmp_path)))
    if place == "elsewhere":
        storage = pafs._MockFileSystem()
        with storage.open_output_stream("file") as stream:
            stream.write(b"12345")
        folder = Folder(storage, "")
    target = TargetFolder(str(tmp_path / "target"), str(tmp_path / "root"))
    with pytest.raises(ConflictError, match=r"file has 5 bytes, it had 4 when it was listed"):
        copy_files([CopiedFile(folder, "file", "file", 4)], target)


# Sources that change


def append(file: Path) -> None:
    with file.open("a") as stream:
        stream.write(" ")


def replace(file: Path) -> None:
    """Give another file of the same size and time the name."""
    status = file.stat()
    other = file.with_suffix(".new")
    other.write_bytes(file.read_bytes())
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.rename(file)


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a new version": (lambda source: (source / "3.json").write_text('{"time": 3, "rows": []}'), "3.json is new"),
    "a new hidden file": (lambda source: (source / "queues/.tmp").touch(), "queues/.tmp is new"),
    "a log that grows": (lambda source: append(source / "toy.txt"), "toy.txt was written"),
    "an older version that goes": (lambda source: (source / "1.json").unlink(), "1.json is gone"),
    "a file that is replaced": (lambda source: replace(source / "2.json"), "2.json was written"),
    "many files": (
        lambda source: [(source / f"x{number}").write_text("") for number in range(6)],
        "x0 is new; x1 is new; x2 is new; and 3 more",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("step", ["copying", "verifying"])
def test_a_source_that_changes_is_refused(source: Path, tmp_path: Path, change: str, step: str) -> None:
    changing, told = CHANGES[change]
    done: list[str] = []

    def listen(event: EditProgress) -> None:
        if event.step == step and not done:
            done.append(change)
            changing(source)

    with pytest.raises(ConflictError) as raised:
        apply_edit(opened(source), 2, edits_between(NOW, AFTER), str(tmp_path / "target"), progress=listen)
    assert raised.value.code == ErrorCode.SOURCE_CHANGED
    assert told in str(raised.value) and "stop the job" in str(raised.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source"]


def test_a_change_behind_a_link_is_noticed(source: Path, tmp_path: Path) -> None:
    (source / "queues").rename(tmp_path / "elsewhere")
    (source / "queues").symlink_to(tmp_path / "elsewhere")

    def listen(event: EditProgress) -> None:
        if event.step == "verifying":
            append(tmp_path / "elsewhere" / "1-0.json")

    with pytest.raises(ConflictError, match=r"1-0.json was written"):
        apply_edit(opened(source), 2, edits_between(NOW, AFTER), str(tmp_path / "target"), progress=listen)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["elsewhere", "source"]


def test_a_source_that_cannot_be_read_is_named(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    monkeypatch.setattr(copied_files, "open_regular", refuse)
    with pytest.raises(StorageError, match=rf"{source}/.*json: cannot copy: Permission denied"):
        apply_edit(opened(source), 2, edits_between(NOW, AFTER), str(tmp_path / "target"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source"]


def test_a_source_that_is_gone_is_refused(source: Path, tmp_path: Path) -> None:
    toys = opened(source)
    edits = edits_between(NOW, AFTER)

    def listen(event: EditProgress) -> None:
        if event.step == "copying" and source.exists():
            source.rename(tmp_path / "moved")

    with pytest.raises((StateStoreError, FileNotFoundError)):
        apply_edit(toys, 2, edits, str(tmp_path / "target"), progress=listen)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["moved"]


@pytest.mark.parametrize("step", ["copying", "verifying"])
def test_a_target_whose_folder_is_removed_meanwhile_is_an_error(source: Path, tmp_path: Path, step: str) -> None:
    before, parent = tree(source), tmp_path / "parent"
    parent.mkdir()

    def listen(event: EditProgress) -> None:
        if event.step == step:
            shutil.rmtree(parent, ignore_errors=True)

    with pytest.raises(StateStoreError) as raised:
        apply_edit(opened(source), 2, edits_between(NOW, AFTER), str(parent / "target"), progress=listen)
    assert raised.value.code in (ErrorCode.DISK_FAILED, ErrorCode.EDIT_DIFFERS)
    assert tree(source) == before and not (parent / "target").exists()
