"""Reading a checkpoint's folders and small files through pyarrow's file systems; nothing is ever written.

An object store answers a request in tens of milliseconds. So while a checkpoint is opened no folder is listed twice and
no file fetched twice (`Folder.remembering`), and files that will be needed are fetched together (`Folder.fetch`).
"""

from __future__ import annotations

import contextlib
import json
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import IO, Any, cast

import pyarrow as pa
import pyarrow.fs as pafs

from statestore.formats.errors import StateStoreError
from statestore.formats.places.locations import no_access
from statestore.formats.places.ordered_threads import in_order
from statestore.formats.spark.checkpoint.damage import MAX_METADATA_BYTES, corrupt_file, missing
from statestore.formats.spark.checkpoint.side_checksums import VerifiedStream, side_checksums

PARALLEL_REQUESTS = 16
AHEAD_BYTES = 4 << 20
"""Larger files are not fetched ahead, but read when they are needed."""

NUMBER = re.compile(r"0|[1-9][0-9]{0,18}")
"""A name that is a number, as Spark writes batches, operators and partitions; 007 would be a second 7."""
_DATA_FILE = re.compile(r"(0|[1-9][0-9]{0,18})(?:_([0-9a-fA-F-]{1,64}))?\.(delta|snapshot|zip|changelog)")
PURGED = "no such file any more: the query purged it; read a newer batch"
"""The message about a file that was listed and is gone."""

_NO_METADATA = "no such file; expected it in a checkpoint of Structured Streaming"


@dataclass(frozen=True)
class Seen:
    """Listings and file contents by path."""

    listings: dict[str, list[pafs.FileInfo]] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class Folder:
    """A folder of a file system; ``path`` has no slash at the end. ``seen``: results that need no further request."""

    filesystem: pafs.FileSystem
    path: str
    seen: Seen | None = field(default=None, compare=False, repr=False)

    def at(self, *names: str | int) -> Folder:
        return replace(self, path=posixpath.join(self.path, *map(str, names)))

    @property
    def is_local(self) -> bool:
        return isinstance(self.filesystem, pafs.LocalFileSystem)

    def remembering(self) -> Folder:
        """The folder with a memory, which keeps listings and files of it and of folders reached from it."""
        return self if self.seen is not None else replace(self, seen=Seen())

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle without the memory, so that another process makes its own requests."""
        return Folder, (self.filesystem, self.path)

    def fresh(self) -> Folder:
        """The folder without its memory, so that reads see it as it is then."""
        return replace(self, seen=None)

    def fetch(self, listings: Iterable[Folder] = (), files: Iterable[tuple[Folder, str | int]] = ()) -> None:
        """List folders and read metadata files at the same time, for the reads that follow.

        A read that fails is left to these. Local files are skipped, because reading them is fast.
        """
        work = [folder.files for folder in listings] + [_reading(folder, name) for folder, name in files]
        if self.is_local or not work:
            return
        with ThreadPoolExecutor(min(len(work), PARALLEL_REQUESTS)) as pool:
            for future in [pool.submit(call) for call in work]:
                with contextlib.suppress(StateStoreError):
                    future.result()

    def files(self) -> dict[str, int]:
        """Sizes of the folder's files by name, without hidden and temporary ones; empty if there is no such folder."""
        return {info.base_name: info.size or 0 for info in self.entries() if info.type == pafs.FileType.File}

    def folders(self) -> list[str]:
        """Names of the folders in the folder."""
        return sorted(info.base_name for info in self.entries() if info.type == pafs.FileType.Directory)

    def numbered(self) -> list[int]:
        """Files with a plain number as name, as in the logs of offsets and commits, ascending."""
        return sorted(int(name) for name in self.files() if NUMBER.fullmatch(name))

    def entries(self) -> list[pafs.FileInfo]:
        """The entries of the folder. Raises InvalidInputError NO_ACCESS."""
        if self.seen is not None and self.path in self.seen.listings:
            return self.seen.listings[self.path]
        try:
            listed = self.filesystem.get_file_info(pafs.FileSelector(self.path, allow_not_found=True))
        except FileNotFoundError:  # a missing bucket: not covered by allow_not_found
            listed = []
        except OSError as error:
            raise no_access(self.path, error) from error
        infos = [info for info in listed if not info.base_name.startswith(".") and not info.base_name.endswith(".tmp")]
        if self.seen is not None:
            self.seen.listings[self.path] = infos
        return infos

    def read_small(self, name: str | int, *, gone: str = _NO_METADATA) -> bytes:
        """Read a metadata file.

        Raises NotFoundError SPARK_STATE_NOT_FOUND, CorruptError SPARK_STATE_FILE, InvalidInputError NO_ACCESS.
        """
        path = posixpath.join(self.path, str(name))
        if self.seen is not None and path in self.seen.files:
            return self.seen.files[path]
        with self.stream(name, gone=gone) as stream:
            content = stream.read(MAX_METADATA_BYTES + 1)
        if len(content) > MAX_METADATA_BYTES:
            raise corrupt_file(path, f"found more than {MAX_METADATA_BYTES} bytes in a metadata file")
        if self.seen is not None:
            self.seen.files[path] = content
        return content

    def stream(self, name: str | int, *, gone: str = PURGED, buffer_bytes: int = 0) -> IO[bytes]:
        """Stream a file's bytes from the first on, verified where checksums lie beside it.

        Raises, also while it is read, NotFoundError SPARK_STATE_NOT_FOUND with ``gone`` for a file that does not exist
        (any more), CorruptError SPARK_STATE_FILE and InvalidInputError NO_ACCESS.
        """
        path = posixpath.join(self.path, str(name))
        if self.seen is not None and path in self.seen.files:
            return BytesIO(self.seen.files[path])
        self._refuse_strange(path)
        try:
            opened = self.filesystem.open_input_stream(path, compression=None, buffer_size=buffer_bytes)
        except OSError as error:
            raise self.failure(path, error, gone) from error
        stream = cast(IO[bytes], _Stream(opened, self, path, gone))
        checksums = side_checksums(path) if self.is_local else None
        return stream if checksums is None else cast(IO[bytes], VerifiedStream(stream, checksums, path))

    def random_access(self, name: str) -> RandomAccess:
        """Open a file to read parts of it. Raises as `stream`, now and later."""
        path = posixpath.join(self.path, name)
        self._refuse_strange(path)
        try:
            opened = self.filesystem.open_input_file(path)
            return RandomAccess(opened, self, path, opened.size())
        except OSError as error:
            raise self.failure(path, error, PURGED) from error

    def _refuse_strange(self, path: str) -> None:
        """Raise CorruptError SPARK_STATE_FILE for something other than a file: opening a FIFO would block for ever."""
        if self.is_local and Path(path).exists() and not Path(path).is_file():
            raise corrupt_file(path, "found something other than a file")

    def failure(self, path: str, error: OSError, gone: str) -> StateStoreError:
        """The error for a failed read. Object stores may report a missing object like any other failure."""
        lost = isinstance(error, FileNotFoundError)
        if not lost:
            with contextlib.suppress(OSError):
                lost = self.filesystem.get_file_info(path).type == pafs.FileType.NotFound
        return missing(path, gone) if lost else no_access(path, error)

    def read_log(self, name: str | int) -> list[Any]:
        """Read the JSON documents of a log entry: a version line, then one document a line."""
        path = posixpath.join(self.path, str(name))
        lines = self.read_small(name).decode("utf-8", "replace").split("\n")
        if not re.fullmatch(r"v\d{1,4}", lines[0].strip()):
            raise corrupt_file(path, f"found first line {lines[0][:40]!r}, expected a version such as v1")
        return [parse_json(line, path) for line in lines[1:2]]


@dataclass(frozen=True)
class _Stream:
    """A stream whose errors are StateStoreErrors."""

    source: pa.NativeFile
    folder: Folder
    path: str
    gone: str

    def read(self, size: int = -1) -> bytes:
        try:
            content: bytes = self.source.read(None if size < 0 else size)
        except OSError as error:
            raise self.folder.failure(self.path, error, self.gone) from error
        return content

    def close(self) -> None:
        self.source.close()

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True)
class RandomAccess:
    """An open file whose errors are StateStoreErrors; several threads may read it."""

    source: pa.NativeFile
    folder: Folder
    path: str
    size: int

    def read_at(self, offset: int, size: int) -> bytes:
        """Read ``size`` bytes; fewer only at the end of the file."""
        try:
            content: bytes = self.source.read_at(size, offset)
        except OSError as error:
            raise self.folder.failure(self.path, error, PURGED) from error
        return content

    def close(self) -> None:
        self.source.close()

    def __enter__(self) -> RandomAccess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _reading(folder: Folder, name: str | int) -> Callable[[], object]:
    return lambda: folder.read_small(name)


def parse_json(text: str, path: str) -> Any:
    """Parse the JSON of the file ``path``. Raises CorruptError SPARK_STATE_FILE."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise corrupt_file(path, f"found {text[:80]!r}, expected JSON") from error


@dataclass(frozen=True)
class DataFile:
    """A file of state: ``kind`` is delta, snapshot, zip or changelog; ``uid`` is set in checkpoint format 2."""

    name: str
    version: int
    uid: str | None
    kind: str
    size: int


def data_files(folder: Folder) -> list[DataFile]:
    """The state files of a partition's folder, by version; side files (``.crc``) and all others are left out."""
    files = []
    for name, size in folder.files().items():
        if match := _DATA_FILE.fullmatch(name):
            files.append(DataFile(name, int(match[1]), match[2], match[3], size))
    return sorted(files, key=lambda file: (file.version, file.kind, file.name))


def read_ahead(folder: Folder, files: Iterable[DataFile]) -> Iterator[tuple[Folder, DataFile]]:
    """Yield each file with a folder from which to read it.

    Unless the files are local, small ones are fetched while those before them are processed, PARALLEL_REQUESTS at a
    time.
    """
    if folder.is_local:
        yield from ((folder, file) for file in files)
        return

    def held(file: DataFile) -> Folder:
        if file.size > AHEAD_BYTES:
            return folder
        with folder.stream(file.name) as stream:
            return replace(folder, seen=Seen(files={posixpath.join(folder.path, file.name): stream.read()}))

    requested = list(files)
    yield from zip(in_order(held, requested, min(len(requested), PARALLEL_REQUESTS // 3)), requested, strict=True)
