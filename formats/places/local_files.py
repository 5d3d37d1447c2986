"""The files of this machine, with the calls of a file system of pyarrow that folders make.

A process whose state is local does not load pyarrow's own file systems, which bring the clients of object stores.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

if TYPE_CHECKING:
    import pyarrow.fs as pafs

LOCAL = "local"
"""The name of the type, as of pyarrow's own file system of this machine."""


@dataclass(frozen=True)
class LocalFiles:
    """The file system of this machine. Errors are those of the system."""

    @property
    def type_name(self) -> str:
        return LOCAL

    def open_input_stream(self, path: str, compression: None = None, buffer_size: int = 0) -> pa.NativeFile:
        file = pa.OSFile(path)
        return pa.BufferedInputStream(file, buffer_size) if buffer_size else file

    def open_input_file(self, path: str) -> pa.NativeFile:
        return pa.OSFile(path)


FileSystem: TypeAlias = "LocalFiles | pafs.FileSystem"


def is_local(filesystem: FileSystem) -> bool:
    """Return whether a file system is that of this machine, opened here or by pyarrow."""
    return bool(filesystem.type_name == LOCAL)
