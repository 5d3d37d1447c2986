"""Files of the source as objects of a target: copied by the server where it has them, else sent there.

A copy by the server is one request, whatever the size up to `MOST_COPIED`. What is in another storage, and what is
larger, streams through this process.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain
from typing import IO, TYPE_CHECKING, Any

from statestore.catalog.edits.object_target import ObjectTarget
from statestore.catalog.edits.receipt import Copied
from statestore.catalog.edits.target_errors import source_changed
from statestore.catalog.log.storage_objects import PART_BYTES
from statestore.formats.edits import CopiedFile
from statestore.formats.errors import StateStoreError
from statestore.formats.places.disk_errors import storage_error
from statestore.formats.places.foreign_storages import STORAGE_ERRORS
from statestore.formats.places.locations import AZURE, GCS, OBJECT_SCHEMES, S3, bucket_of, open_location
from statestore.formats.places.object_clients import object_client, repeated
from statestore.formats.places.regular_files import open_regular

if TYPE_CHECKING:
    import pyarrow.fs as pafs

COPIES_AT_ONCE = 64
_ARROW_NAMES = {S3: "s3", GCS: "gcs", AZURE: "abfs"}
"""pyarrow's names of the file systems of stores."""
MOST_COPIED = 5 << 30
"""Upper bound of what S3 copies by one request."""


@dataclass(frozen=True)
class ObjectCopies:
    """Copies into a target; those of the paths ``last`` are held until it is published."""

    target: ObjectTarget
    last: Collection[str]

    def copied(self, file: CopiedFile) -> Copied:
        """Bring a file into the target. Raises ConflictError SOURCE_CHANGED for one that is gone."""
        if file.path in self.last:
            with _opened(file) as source:
                content = b"".join(iter(lambda: source.read(PART_BYTES), b""))
            self.target.hold(file.path, content)
            return Copied(file.path, len(content), hashlib.sha256(content).hexdigest())
        path = self.target.take(file.path)
        if file.bytes is not None and file.bytes <= MOST_COPIED and self._has(file):
            return self._copied_by_server(file, path, file.bytes)
        return self._sent(file, path)

    # By the server

    @cached_property
    def _filesystem(self) -> pafs.FileSystem | None:
        """The file system that reads the target's store, and by which it is known to have a file; None without one."""
        try:
            return open_location(self.target.location)[0]
        except (StateStoreError, *STORAGE_ERRORS):
            return None

    def _has(self, file: CopiedFile) -> bool:
        """Return whether the store of the target has a file, and may read it with the same credentials."""
        filesystem: Any = file.folder.filesystem
        if filesystem.type_name != _ARROW_NAMES[OBJECT_SCHEMES[self.target.location.scheme]]:
            return False
        mine = self._filesystem
        return mine is not None and (filesystem is mine or bool(filesystem.equals(mine)))

    def _copied_by_server(self, file: CopiedFile, path: str, size: int) -> Copied:
        import obstore

        bucket, _, key = f"{file.folder.path}/{file.name}".partition("/")
        location = self.target.location
        copy = partial(self._copy_from_bucket, file, path)
        if bucket == bucket_of(location):
            into = f"{location.path}/{path}" if location.path else path
            copy = partial(obstore.copy, object_client(location).store, key, into)
        self.target.put.add(path)
        try:
            repeated("copy", f"{self.target.path}/{path}", copy)
        except FileNotFoundError as error:
            raise source_changed([f"{file.folder.path}/{file.name} is gone"]) from error
        return Copied(path, size)

    def _copy_from_bucket(self, file: CopiedFile, path: str) -> None:
        """Copy from another bucket of the same server."""
        filesystem, place = open_location(self.target.location)
        filesystem.copy_file(f"{file.folder.path}/{file.name}", f"{place}/{path}")

    # Through this process

    def _sent(self, file: CopiedFile, path: str) -> Copied:
        hasher, sizes = hashlib.sha256(), [0]

        def seen(piece: bytes) -> bytes:
            hasher.update(piece)
            sizes[0] += len(piece)
            return piece

        with _opened(file) as source:
            first = seen(source.read(PART_BYTES))
            second = seen(source.read(PART_BYTES))
            if len(first) + len(second) <= PART_BYTES:
                self.target.put_object(path, first + second)
            else:
                rest = iter(lambda: seen(source.read(PART_BYTES)), b"")
                self.target.put_pieces(path, chain([first, second], rest))
        return Copied(path, sizes[0], hasher.hexdigest())


def _opened(file: CopiedFile) -> IO[bytes]:
    """Open a file as it is, also one whose checksums say that it is damaged, as the copies on a disk do."""
    if not file.folder.is_local:
        return file.folder.fresh().stream(file.name)
    path = f"{file.folder.path}/{file.name}"
    try:
        return os.fdopen(open_regular(path), "rb")
    except FileNotFoundError as error:
        raise source_changed([f"{path} is gone"]) from error
    except OSError as error:
        raise storage_error(error, "copy", path) from error
