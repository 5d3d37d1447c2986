"""A file of a snapshot while it is written: its checksums come from the bytes that are written, not from the disk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import xxhash

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import NotFoundError
from statestore.formats.places.disk_errors import disk_errors
from statestore.formats.segments.regions import REGION_BYTES
from statestore.formats.segments.segment_meta import FileRef


@dataclass
class NewFile:
    """A file that is being written, with the interface that pyarrow expects; ``check`` is called between its
    regions."""

    name: str
    sink: IO[bytes]
    check: Callable[[], None]
    bytes: int = 0
    checksums: list[str] = field(default_factory=list)
    _hash: Any = field(default_factory=xxhash.xxh3_64)

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        at = 0
        while at < len(view):
            taken = min(len(view) - at, REGION_BYTES - self.bytes % REGION_BYTES)
            self._hash.update(view[at : at + taken])
            self.sink.write(view[at : at + taken])
            self.bytes, at = self.bytes + taken, at + taken
            if self.bytes % REGION_BYTES == 0:
                self._region()
                self.check()
        return len(view)

    def tell(self) -> int:
        return self.bytes

    @property
    def closed(self) -> bool:
        return self.sink.closed

    def flush(self) -> None:
        """Do nothing: the file is flushed at the end."""

    def close(self) -> None:
        """Do nothing: `new_file` finishes the file after its writer is done."""

    def ref(self) -> FileRef:
        """Return the reference to the file as it is now; nothing may be written later."""
        if self.bytes % REGION_BYTES:
            self._region()
        return FileRef(self.name, self.bytes, "".join(self.checksums))

    def _region(self) -> None:
        self.checksums.append(self._hash.hexdigest())
        self._hash = xxhash.xxh3_64()


def no_check() -> None:
    """Do nothing: the write cannot be cancelled."""


def read_region(data: IO[bytes], source: Path) -> bytes:
    """Return the next bytes of an open file, at most a region."""
    with disk_errors("read", source):
        return data.read(REGION_BYTES)


def file_missing(where: object) -> NotFoundError:
    """Return the error for a file that a snapshot needs and that is not there."""
    return NotFoundError(
        ErrorCode.SNAPSHOT_FILE_MISSING,
        f"{where} is missing, but a snapshot needs it; restore it from a copy, or use another snapshot",
    )
