"""The files of a checkpoint: which hold state, how logs are written, and what is said of files that cannot be read."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property, partial
from typing import IO, Any, NamedTuple, cast

from statestore.formats.errors import StateStoreError
from statestore.formats.places.folder import PARALLEL_REQUESTS, FileRules, Folder, Seen
from statestore.formats.places.local_files import FileSystem
from statestore.formats.places.reading_threads import in_order
from statestore.formats.spark.checkpoint.crc_files import VerifiedStream, side_checksums
from statestore.formats.spark.checkpoint.state_errors import corrupt_file, missing
from statestore.formats.values import expansion

AHEAD_BYTES = 4 << 20
"""Larger files are not fetched ahead, but read when they are needed."""

_DATA_FILE = re.compile(r"(0|[1-9][0-9]{0,18})(?:_([0-9a-fA-F-]{1,64}))?\.(delta|snapshot|zip|changelog)")
PURGED = "no such file any more: the query purged it; read again"
"""The message about a file that was listed and is gone."""

NO_METADATA = "no such file; expected it in a checkpoint of Structured Streaming"


LOGS = ("offsets", "commits")
"""Folders of logs, which are read without their checksums, as Spark reads them."""


def _verified(stream: IO[bytes], path: str) -> IO[bytes]:
    if posixpath.basename(posixpath.dirname(path)) in LOGS:
        return stream
    checksums = side_checksums(path)
    return stream if checksums is None else cast(IO[bytes], VerifiedStream(stream, checksums, path))


SPARK_FILES = FileRules(missing, corrupt_file, _verified, PURGED)


def spark_folder(filesystem: FileSystem, path: str) -> Folder:
    """A folder of a checkpoint."""
    return Folder(filesystem, path, SPARK_FILES)


def read_metadata(folder: Folder, name: str | int) -> bytes:
    """Read a metadata file.

    Raises NotFoundError SPARK_STATE_NOT_FOUND, CorruptError SPARK_STATE_FILE, InvalidInputError NO_ACCESS.
    """
    return folder.read_small(name, gone=NO_METADATA)


def read_log(folder: Folder, name: str | int) -> list[Any]:
    """Read the JSON documents of a log entry: a version line, then one document a line."""
    path = posixpath.join(folder.path, str(name))
    lines = read_metadata(folder, name).decode("utf-8", "replace").split("\n")
    if not re.fullmatch(r"v\d{1,4}", lines[0].strip()):
        raise corrupt_file(path, f"found first line {lines[0][:40]!r}, expected a version such as v1")
    return [parse_json(line, path) for line in lines[1:2]]


def parse_json(text: str, path: str) -> Any:
    """Parse the JSON of the file ``path``. Raises CorruptError SPARK_STATE_FILE."""
    try:
        return expansion.parse_json(text)
    except ValueError as error:
        raise corrupt_file(path, f"found {text[:80]!r}, expected JSON") from error


class DataFile(NamedTuple):
    """A file of state: ``kind`` is delta, snapshot, zip or changelog; ``uid`` is set in checkpoint format 2."""

    name: str
    version: int
    uid: str | None
    kind: str
    size: int


BASES = ("snapshot", "zip")
CHANGES = ("delta", "changelog")

TABLES = "SSTs"
"""The folder in that of a partition with the table files of RocksDB."""


class DataFiles(tuple[DataFile, ...]):
    """The state files of a partition, by version."""

    @cached_property
    def bases(self) -> Mapping[int, DataFile]:
        """The snapshots or zips without a uid, by version."""
        return {file.version: file for file in self if file.uid is None and file.kind in BASES}

    @cached_property
    def changes(self) -> Mapping[int, DataFile]:
        """The deltas or changelogs without a uid, by version."""
        return {file.version: file for file in self if file.uid is None and file.kind in CHANGES}


def data_files(folder: Folder) -> DataFiles:
    """The state files of a partition's folder; side files (``.crc``) and all others are left out."""
    return folder.once("data files", partial(_data_files, folder))


def _data_files(folder: Folder) -> DataFiles:
    files = []
    for name, size in folder.files().items():
        if match := _DATA_FILE.fullmatch(name):
            version, uid, kind = match.groups()
            files.append(DataFile(name, int(version), uid, kind, size))
    return DataFiles(sorted(files, key=lambda file: (file.version, file.kind, file.name)))


def read_ahead(folder: Folder, files: Iterable[DataFile]) -> Iterator[tuple[Folder, DataFile]]:
    """Yield each file with a folder from which to read it.

    Unless the files are local, small ones are fetched while those before them are processed, PARALLEL_REQUESTS at a
    time. One that cannot be fetched is left to its read.
    """
    if folder.is_local:
        yield from ((folder, file) for file in files)
        return

    def held(file: DataFile) -> Folder:
        if file.size > AHEAD_BYTES:
            return folder
        try:
            data = folder.read_once(file.name)
        except StateStoreError:
            return folder
        covered = {} if folder.seen is None else folder.seen.covered
        return replace(folder, seen=Seen(files={posixpath.join(folder.path, file.name): data}, covered=covered))

    requested = list(files)
    yield from zip(in_order(held, requested, min(len(requested), PARALLEL_REQUESTS // 3)), requested, strict=True)
