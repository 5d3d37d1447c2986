"""Files of snapshots in a store's folder: written whole or not at all, with the checksum of what was written."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import xxhash

from statestore.catalog.stores.keyed.snapshot_handle import StoredFile
from statestore.formats.errors import CorruptError, NotFoundError

UNFINISHED = ".tmp"
_READ_BYTES = 1 << 20


@dataclass
class NewFile:
    """A file that is being written, as pyarrow and others write."""

    path: Path
    name: str
    sink: IO[bytes]
    bytes: int = 0
    hash: Any = field(default_factory=xxhash.xxh3_64)

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self.hash.update(view)
        self.bytes += len(view)
        return self.sink.write(view)

    @property
    def closed(self) -> bool:
        return self.sink.closed

    def flush(self) -> None:
        """Done at the end."""

    def close(self) -> None:
        """Whoever writes is done; the file is finished by `new_file`."""

    def stored(self) -> StoredFile:
        return StoredFile(self.name, self.bytes, self.hash.hexdigest())


@contextmanager
def new_file(folder: Path, place: str, suffix: str) -> Iterator[NewFile]:
    """A file ``<place>/<unique><suffix>`` in the store's folder; it is there, and durable, when the block ends well."""
    (folder / place).mkdir(parents=True, exist_ok=True)
    name = f"{place}/{uuid.uuid4().hex}{suffix}"
    unfinished = folder / f"{name}{UNFINISHED}"
    try:
        with unfinished.open("wb") as sink:
            yield NewFile(unfinished, name, sink)
            sink.flush()
            os.fsync(sink.fileno())
        unfinished.rename(folder / name)
        sync_folder(folder / place)
    finally:
        unfinished.unlink(missing_ok=True)


def store_copy(folder: Path, place: str, source: Path) -> StoredFile:
    """A copy of a file."""
    with new_file(folder, place, source.suffix) as target, source.open("rb") as data:
        while chunk := data.read(_READ_BYTES):
            target.write(chunk)
    return target.stored()


def place_copy(folder: Path, file: StoredFile, target: Path, *, linked: bool) -> None:
    """A stored file under another name, as a hard link if it will not be written to.

    Raises NotFoundError SNAPSHOT_FILE_MISSING, CorruptError SNAPSHOT_FILE_CORRUPT.
    """
    source = checked(folder, file)
    if linked:
        os.link(source, target)
    else:
        shutil.copyfile(source, target)


def checked(folder: Path, file: StoredFile) -> Path:
    """Where a stored file is, after its size and checksum were verified."""
    path = folder / file.name
    found, size = xxhash.xxh3_64(), 0
    try:
        with path.open("rb") as data:
            while chunk := data.read(_READ_BYTES):
                found.update(chunk)
                size += len(chunk)
    except FileNotFoundError:
        raise NotFoundError("SNAPSHOT_FILE_MISSING", f"{path} is not there; restore it from a copy") from None
    if (size, found.hexdigest()) != (file.bytes, file.checksum):
        raise CorruptError(
            "SNAPSHOT_FILE_CORRUPT",
            f"{path}: {size} bytes with checksum {found.hexdigest()}, the log says {file.bytes} with {file.checksum}; "
            "it was changed or damaged after it was written: restore it from a copy, or use another snapshot",
        )
    return path


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
