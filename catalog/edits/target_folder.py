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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from statestore.catalog.edits.receipt import RECEIPT_FILE, WrittenFile
from statestore.catalog.edits.target_errors import check_path, lies_in_source, target_exists, wrong_plan
from statestore.formats.places.disk_errors import disk_errors
from statestore.formats.places.durable_files import sync_path, sync_tree
from statestore.formats.places.local_directory import take_directory

BUFFER_BYTES = 1 << 20
_MODE = 0o777


@dataclass(frozen=True)
class TargetFolder:
    """A `statestore.formats.edits.Target`: ``root`` is where its files are until ``path`` is.

    ``written`` are the files that were created, with digests, by path; another process has its own. ``folders`` are
    those that are known to exist.
    """

    path: str
    root: str
    written: dict[str, WrittenFile] = field(default_factory=dict, compare=False, repr=False)
    folders: set[str] = field(default_factory=set, compare=False, repr=False)

    def create(self, path: str) -> IO[bytes]:
        """Open a new file below the target for writing. Raises StateStoreError EDIT_DIFFERS for a path that leads out
        of the target, or is taken; StorageError DISK_FAILED."""
        return _NewFile(self, path, self.place(path))

    def place(self, path: str) -> Path:
        """Return where a new file of the target is written, in a folder that exists. Raises as `create`."""
        check_path(self.path, path)
        return self._place(path)

    def _place(self, path: str) -> Path:
        found = Path(f"{self.root}/{path}")
        folder = path.rpartition("/")[0]
        if folder not in self.folders:
            names = path.split("/")
            with disk_errors("make a folder", found.parent):
                for count in range(1, len(names)):  # the root itself is never made again once it is gone
                    Path(self.root, *names[:count]).mkdir(exist_ok=True)
            self.folders.add(folder)
        return found

    def take(self, path: str, made: Path) -> None:
        """Give a file of the same file system, which is durable, its place. Raises as `create`."""
        place = self.place(path)
        with disk_errors("rename", made):
            if os.path.lexists(place):
                raise wrong_plan(self.path, f"{path} is written twice")
            made.rename(place)

    @property
    def last_files(self) -> TargetFolder:
        """The target of `EditPlan.finish`: the same, as the folder appears as a whole."""
        return self

    @contextlib.contextmanager
    def shown(self, *, locally: bool) -> Iterator[str]:
        """Lend the path at which the target is read before it is published."""
        yield self.root

    def digest(self, path: str) -> str:
        """Return the SHA-256 of a file's content."""
        return _sha256_of(Path(self.root, path))

    def replace_receipt(self, content: bytes) -> None:
        """Write the receipt of the published target anew: at any moment the old one is there, or the new one."""
        place = Path(self.path, RECEIPT_FILE)
        beside = place.with_name(f".{RECEIPT_FILE}.new")
        with disk_errors("write", place):
            with beside.open("wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            beside.replace(place)
            sync_path(self.path)

    def files(self) -> dict[str, int]:
        """Return the sizes of all files that are there, by path below the target."""
        found: dict[str, int] = {}
        with disk_errors("list", self.root):
            _list_sizes(self.root, "", found)
        return found

    def publish(self, receipt: bytes, stages: Sequence[Sequence[str]], mode: int | None) -> None:
        """Give the folder its place, with a receipt and the mode of the source's folder.

        Raises InvalidInputError TARGET_EXISTS, StorageError DISK_FAILED.
        """
        with _NewFile(self, RECEIPT_FILE, self._place(RECEIPT_FILE)) as stream:
            stream.write(receipt)
        with disk_errors("make durable", self.root):
            if mode is not None:
                # A job writes there, and a folder that its owner cannot write to cannot be renamed either.
                Path(self.root).chmod(stat.S_IMODE(mode) & _MODE | stat.S_IRWXU)
            sync_tree(self.root)
        refuse_existing(self.path)
        try:
            # An empty folder that appeared in the meantime is replaced, and nothing else can be.
            Path(self.root).rename(self.path)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise target_exists(self.path) from error
            raise
        with disk_errors("make durable", self.path):
            sync_path(os.path.dirname(self.path))  # noqa: PTH120 (a path that is absolute)


def _list_sizes(folder: str, below: str, found: dict[str, int]) -> None:
    """Add the sizes of the files in a folder and below, as the entries of the folders tell them: of links, their own.

    A folder may have a hundred thousand files, for which objects of paths would take longer than the disk does.
    """
    with os.scandir(folder) as entries:
        for entry in entries:
            path = f"{below}{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                _list_sizes(entry.path, f"{path}/", found)
            else:
                found[path] = entry.stat(follow_symlinks=False).st_size


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
        self.target.written[self.path] = WrittenFile(self.path, size, digest or _sha256_of(self.place))

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


def _sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file's content."""
    with disk_errors("read", path), path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


# The place


def refuse_existing(path: str) -> None:
    """Raise InvalidInputError TARGET_EXISTS where a path leads to anything, also to a link without an end."""
    if os.path.lexists(path):
        raise target_exists(path)


def refuse_inside(target: str, folder: str) -> None:
    """Raise InvalidInputError TARGET_EXISTS for a target within a folder of the source, or around it.

    Links are followed, and folders are known by their numbers: on some file systems a folder has several spellings, and
    a mount gives it another path.
    """
    place, source = (Path(os.path.realpath(each)) for each in (target, folder))
    if source.is_relative_to(place) or any(_is_same(each, source) for each in (place, *place.parents)):
        raise lies_in_source(target, folder)


def _is_same(one: Path, other: Path) -> bool:
    if one == other:
        return True
    try:
        return one.samefile(other)
    except OSError:  # one of them does not exist
        return False


@contextlib.contextmanager
def new_folder(place: Path) -> Iterator[TargetFolder]:
    """Lend a folder that becomes the one at ``place`` when it is published, and is removed if it was not.

    What killed edits to the same target left is removed first.
    """
    beside = place.with_name(f".{place.name}.edit")
    directory = take_directory(beside)
    try:
        files = directory.path / "files"
        with disk_errors("make a folder", files):
            files.mkdir()
        yield TargetFolder(str(place), str(files))
    finally:
        directory.remove()
        with contextlib.suppress(OSError):  # another edit to the same target is under way
            beside.rmdir()
