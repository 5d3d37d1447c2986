"""A temporary file without a name, for what memory has no room for: nothing of it is left if the process dies."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from typing import IO

from statestore.formats.places.disk_errors import disk_errors

_PLACE = "the system's temporary directory"


class UnnamedFile:
    """A file that is made with the first bytes that are appended. Its methods raise StorageError DISK_FAILED."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None

    def close(self) -> None:
        """Remove the file, if there is one."""
        if self._file is not None:
            self._file.close()

    @property
    def is_written(self) -> bool:
        """Return whether anything was appended."""
        return self._file is not None

    def append(self, pieces: Iterable[memoryview]) -> int:
        """Write pieces behind all others, and return where they begin."""
        with disk_errors("write a temporary file in", _PLACE):
            if self._file is None:
                self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed where the block of this object ends
            at = self._file.seek(0, 2)
            for piece in pieces:
                self._file.write(piece)
        return at

    def fill(self, target: memoryview, at: int) -> None:
        """Read as many bytes as ``target`` has room for from byte ``at`` on."""
        if not target.nbytes:
            return
        assert self._file is not None
        with disk_errors("read a temporary file in", _PLACE):
            self._file.seek(at)
            found = self._file.readinto(target)  # type: ignore[attr-defined]
        assert found == target.nbytes, "a temporary file is shorter than it was written"
