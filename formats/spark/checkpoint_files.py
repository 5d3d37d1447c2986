"""Reading a checkpoint's folders and small files through pyarrow's file systems; nothing is ever written."""

from __future__ import annotations

import json
import posixpath
import re
from dataclasses import dataclass
from typing import Any

import pyarrow.fs as pafs

from statestore.formats.spark.damage import MAX_METADATA_BYTES, corrupt_file, missing

_DATA_FILE = re.compile(r"(\d{1,19})(?:_([0-9a-fA-F-]{1,64}))?\.(delta|snapshot|zip|changelog)")


@dataclass(frozen=True)
class Folder:
    """A folder of a file system; ``path`` has no slash at the end."""

    filesystem: pafs.FileSystem
    path: str

    def at(self, *names: str | int) -> Folder:
        return Folder(self.filesystem, posixpath.join(self.path, *map(str, names)))

    def files(self) -> dict[str, int]:
        """Sizes of the files in it by name, hidden and temporary ones left out; none if there is no such folder."""
        return {info.base_name: info.size or 0 for info in self._entries() if info.type == pafs.FileType.File}

    def folders(self) -> list[str]:
        """Names of the folders in it."""
        return sorted(info.base_name for info in self._entries() if info.type == pafs.FileType.Directory)

    def numbered(self) -> list[int]:
        """Files with a plain number as name, as the logs of offsets and commits have them, ascending."""
        return sorted(int(name) for name in self.files() if name.isdecimal())

    def _entries(self) -> list[pafs.FileInfo]:
        found = self.filesystem.get_file_info(pafs.FileSelector(self.path, allow_not_found=True))
        return [info for info in found if not info.base_name.startswith(".") and not info.base_name.endswith(".tmp")]

    def read_small(self, name: str | int) -> bytes:
        """A metadata file. Raises NotFoundError SPARK_STATE_NOT_FOUND, CorruptError SPARK_STATE_FILE."""
        path = posixpath.join(self.path, str(name))
        try:
            with self.filesystem.open_input_stream(path, compression=None) as stream:
                found: bytes = stream.read(MAX_METADATA_BYTES + 1)
        except FileNotFoundError as error:
            raise missing(path, "no such file; expected it in a checkpoint of Structured Streaming") from error
        if len(found) > MAX_METADATA_BYTES:
            raise corrupt_file(path, f"found more than {MAX_METADATA_BYTES} bytes in a metadata file")
        return found

    def read_log(self, name: str | int) -> list[Any]:
        """The JSON documents of a log entry: a version line, then one document a line."""
        path = posixpath.join(self.path, str(name))
        lines = self.read_small(name).decode("utf-8", "replace").split("\n")
        if not re.fullmatch(r"v\d{1,4}", lines[0].strip()):
            raise corrupt_file(path, f"found first line {lines[0][:40]!r}, expected a version such as v1")
        return [parse_json(line, path) for line in lines[1:2]]


def parse_json(text: str, path: str) -> Any:
    """JSON of the file ``path``; CorruptError SPARK_STATE_FILE."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise corrupt_file(path, f"found {text[:80]!r}, expected JSON") from error


@dataclass(frozen=True)
class DataFile:
    """A file of state: ``kind`` is delta, snapshot, zip or changelog; ``uid`` is that of checkpoint format 2."""

    name: str
    version: int
    uid: str | None
    kind: str
    size: int


def data_files(folder: Folder) -> list[DataFile]:
    """The state files of a partition's folder, by version; side files (``.crc``) and all others are left out."""
    found = []
    for name, size in folder.files().items():
        if match := _DATA_FILE.fullmatch(name):
            found.append(DataFile(name, int(match[1]), match[2], match[3], size))
    return sorted(found, key=lambda file: (file.version, file.kind, file.name))
