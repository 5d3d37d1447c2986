"""The folder of a target while it is made: private, beside its place, and renamed to it once it is whole.

``.<name>.edit`` beside the target has a directory of this process (`statestore.formats.places.local_directory`), in
which ``files`` becomes the target. A process that is killed leaves it there; the next edit to the same target removes
it, which it knows by the lock that died with its owner. The target is absent until it is whole, and durable by then.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import IO, Any

from statestore.catalog.edits.receipt import RECEIPT_FILE, WrittenFile
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, StateStoreError
from statestore.formats.places.disk_errors import disk_errors
from statestore.formats.places.local_directory import take_directory
from statestore.formats.places.locations import Location, not_local, parse_location

BUFFER_BYTES = 1 << 20
_MODE = 0o777


@dataclass(frozen=True)
class TargetFolder:
    """A `statestore.formats.edits.Target`: ``root`` is where its files are until ``path`` is.

    ``written`` are the files that were created, with digests, by path; another process has its own.
    """

    path: str
    root: str
    written: dict[str, WrittenFile] = field(default_factory=dict, compare=False, repr=False)

    def create(self, path: str) -> IO[bytes]:
        """Open a new file below the target for writing. Raises StateStoreError EDIT_DIFFERS for a path that leads out
        of the target, or is taken; StorageError DISK_FAILED."""
        return _NewFile(self, path, self.place(path))

    def place(self, path: str) -> Path:
        """Return where a new file of the target is written, in a folder that exists. Raises as `create`."""
        if path == RECEIPT_FILE:
            raise wrong_plan(self.path, f"{path} is the name of the receipt")
        return self._place(path)

    def _place(self, path: str) -> Path:
        names = PurePosixPath(path).parts
        if not names or "/".join(names) != path or path.startswith("/") or ".." in names or "\0" in path:
            raise wrong_plan(self.path, f"{path!r} is no path below it")
        found = Path(self.root, path)
        with disk_errors("make a folder", found.parent):
            for count in range(1, len(names)):  # the root itself is never made again once it is gone
                Path(self.root, *names[:count]).mkdir(exist_ok=True)
        return found

    def take(self, path: str, made: Path) -> None:
        """Give a file of the same file system, which is durable, its place. Raises as `create`."""
        place = self.place(path)
        with disk_errors("rename", made):
            if os.path.lexists(place):
                raise wrong_plan(self.path, f"{path} is written twice")
            made.rename(place)

    def create_receipt(self, content: bytes) -> None:
        with _NewFile(self, RECEIPT_FILE, self._place(RECEIPT_FILE)) as stream:
            stream.write(content)

    def files(self) -> dict[str, int]:
        """Return the sizes of all files that are there, by path below the target."""
        found = {}
        with disk_errors("list", self.root):
            for folder, _, names in os.walk(self.root):
                for name in names:
                    path = Path(folder, name)
                    found[path.relative_to(self.root).as_posix()] = path.lstat().st_size
        return found

    def sync_folders(self) -> None:
        """Make all names durable."""
        for folder, _, _ in os.walk(self.root):
            _sync(folder)

    def publish(self, mode: int | None) -> None:
        """Give the folder its place, with the mode of the source's folder. Raises InvalidInputError TARGET_EXISTS."""
        with disk_errors("make durable", self.root):
            if mode is not None:
                Path(self.root).chmod(stat.S_IMODE(mode) & _MODE)
            self.sync_folders()
        refuse_existing(self.path)
        try:
            # An empty folder that appeared in the meantime is replaced, and nothing else can be.
            Path(self.root).rename(self.path)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise _exists(self.path) from error
            raise
        with disk_errors("make durable", self.path):
            _sync(os.path.dirname(self.path))  # noqa: PTH120 (a path that is absolute)


def _sync(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class _Hashed(io.FileIO):
    """A new file that hashes what is written to it, as long as that is one byte after the other."""

    def __init__(self, place: Path) -> None:
        super().__init__(place, "x")
        self.hasher = hashlib.sha256()
        self.hashed = 0
        self.in_order = True

    def write(self, data: Any) -> int:
        self.in_order = self.in_order and self.tell() == self.hashed
        count = super().write(data)
        if self.in_order:
            self.hasher.update(memoryview(data)[:count])
            self.hashed += count
        return count


class _NewFile(io.BufferedWriter):
    """A new file of a target, which is durable and noted once it is closed, and removed if its block raises."""

    def __init__(self, target: TargetFolder, path: str, place: Path) -> None:
        self.target, self.path, self.place = target, path, place
        try:
            self.bytes = _Hashed(self.place)
        except FileExistsError as error:
            raise wrong_plan(target.path, f"{path} is written twice") from error
        except OSError as error:
            with disk_errors("create", self.place):
                raise error
        super().__init__(self.bytes, BUFFER_BYTES)

    def close(self) -> None:
        if self.closed:
            return
        try:
            with disk_errors("write", self.place):
                self.flush()
                os.fsync(self.fileno())
                size = os.fstat(self.fileno()).st_size
        except BaseException:
            self._discard()
            raise
        super().close()
        digest = self.bytes.hasher.hexdigest() if self.bytes.in_order and self.bytes.hashed == size else None
        self.target.written[self.path] = WrittenFile(self.path, size, digest or sha256_of(self.place))

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._discard()

    def _discard(self) -> None:
        """Close the file without what is still in the buffer, and remove it."""
        with contextlib.suppress(OSError, ValueError):
            self.bytes.close()
        with contextlib.suppress(OSError):
            self.place.unlink()


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file's content."""
    with disk_errors("read", path), path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def wrong_plan(target: str, what: str) -> StateStoreError:
    """The error for a plan of an engine that does not do what an edit needs."""
    return StateStoreError(
        ErrorCode.EDIT_DIFFERS, f"{target} was not made: {what}. Nothing is there; keep the source, and report the case"
    )


# The place


def target_location(target: str | os.PathLike[str]) -> Location:
    """Return the place of a target. Raises UnsupportedError UNSUPPORTED_PATH for one that is not local, and
    InvalidInputError TARGET_EXISTS where something is."""
    location = parse_location(target)
    if not location.is_local:
        raise not_local(location, "the target of an edit is")
    refuse_existing(location.path)
    return location


def refuse_existing(path: str) -> None:
    """Raise InvalidInputError TARGET_EXISTS where a path leads to anything, also to a link without an end."""
    if os.path.lexists(path):
        raise _exists(path)


def refuse_inside(target: str, folder: str) -> None:
    """Raise InvalidInputError TARGET_EXISTS for a target within a folder of the source, or around it, also by links."""
    place, source = (Path(os.path.realpath(each)) for each in (target, folder))
    if place.is_relative_to(source) or source.is_relative_to(place):
        raise InvalidInputError(
            ErrorCode.TARGET_EXISTS,
            f"the target {target} lies in the folder {folder} of the source, or around it; an edit changes nothing "
            "there: name a target elsewhere",
        )


def _exists(path: str) -> InvalidInputError:
    return InvalidInputError(
        ErrorCode.TARGET_EXISTS, f"{path} exists; an edit makes a new folder and replaces nothing: name another target"
    )


@contextlib.contextmanager
def new_target(location: Location) -> Iterator[TargetFolder]:
    """Lend a folder that becomes the target when it is published, and is removed if it was not.

    What killed edits to the same target left is removed first.
    """
    place = Path(location.path)
    beside = place.with_name(f".{place.name}.edit")
    directory = take_directory(beside)
    try:
        files = directory.path / "files"
        with disk_errors("make a folder", files):
            files.mkdir()
        yield TargetFolder(location.path, str(files))
    finally:
        directory.remove()
        with contextlib.suppress(OSError):  # another edit to the same target is under way
            beside.rmdir()
