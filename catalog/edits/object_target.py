"""A target in an object store while it is made: at its place from the first object on, and no state before the last.

Objects cannot be renamed. So the files that make the target a state are held back in memory until everything else is
there and was verified together with them; they are then put one after the other, each only if there is none of its
name. Before the first object, the place is claimed (`statestore.catalog.edits.object_claim`). An edit that fails
removes what it has put. One that is killed leaves it, with the claim, and the next edit to the same target says so.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import TracebackType
from typing import IO, Any, cast

import obstore

from statestore.catalog.edits.object_claim import Claim, claimed
from statestore.catalog.edits.receipt import RECEIPT_FILE, WrittenFile
from statestore.catalog.edits.target_errors import check_path, target_exists, wrong_plan
from statestore.catalog.log.storage import StorageExistsError, UnsettledError
from statestore.catalog.log.storage_objects import PART_BYTES, ObjectStorage
from statestore.formats.edits import UNFINISHED_FILE
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import StateStoreError
from statestore.formats.places.disk_errors import disk_errors
from statestore.formats.places.local_directory import temporary_directory
from statestore.formats.places.locations import Location
from statestore.formats.places.object_cache import in_parallel
from statestore.formats.places.object_clients import object_client, request_errors
from statestore.formats.places.s3_objects import S3Object
from statestore.formats.places.unfinished_folders import unfinished_folder

MEMORY_BYTES = 16 << 20
"""Upper bound of a file that is in memory while it is written; a larger one lies in the system's temporary folder."""
PUTS = 32


@dataclass(frozen=True)
class ObjectTarget:
    """A `statestore.formats.edits.Target` below a location of an object store.

    ``written`` are the files that were created, with digests, by path, and ``held`` the contents of those that are not
    put yet; another process has its own. ``taken`` are the paths of all files, ``put`` of those that may be there.
    ``claims`` has the claim of the place once it is taken.
    """

    location: Location
    written: dict[str, WrittenFile] = field(default_factory=dict, compare=False, repr=False)
    held: dict[str, bytes] = field(default_factory=dict, compare=False, repr=False)
    taken: set[str] = field(default_factory=set, compare=False, repr=False)
    put: set[str] = field(default_factory=set, compare=False, repr=False)
    claims: list[Claim] = field(default_factory=list, compare=False, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return ObjectTarget, (self.location,)

    @property
    def path(self) -> str:
        return str(self.location)

    @cached_property
    def storage(self) -> ObjectStorage:
        return ObjectStorage(self.location)

    def create(self, path: str) -> IO[bytes]:
        """Open a new file below the target for writing, which is an object once it is closed.

        Raises StateStoreError EDIT_DIFFERS for a path that leads out of the target, or is taken; StorageError
        DISK_FAILED or REQUEST_FAILED.
        """
        return cast("IO[bytes]", _NewObject(self, self.take(path), is_held=False))

    @property
    def last_files(self) -> LastFiles:
        """The target of `EditPlan.finish`."""
        return LastFiles(self)

    def take(self, path: str) -> str:
        """Take a path for a new file. Raises as `create`."""
        check_path(self.path, path)
        if path == UNFINISHED_FILE:
            raise wrong_plan(self.path, f"{path} is the name of the claim")
        if path in self.taken:
            raise wrong_plan(self.path, f"{path} is written twice")
        self.taken.add(path)
        return path

    def hold(self, path: str, content: bytes) -> None:
        """Keep a file until the target is published. Raises as `create`."""
        self.held[self.take(path)] = content

    def put_object(self, path: str, content: bytes) -> None:
        """Put an object of a path that was taken. Raises InvalidInputError TARGET_EXISTS where there is one."""
        self.put.add(path)
        try:
            self.storage.create(path, content)
        except StorageExistsError as error:
            self.put.discard(path)  # another one's
            raise target_exists(f"{self.path}/{path}") from error

    def put_pieces(self, path: str, pieces: Iterable[bytes]) -> None:
        """Put a large object of a path that was taken."""
        self.put.add(path)
        self.storage.create_in_parts(path, pieces)

    def files(self) -> dict[str, int]:
        """Return the sizes of all files that are there or held, by path below the target."""
        found = {info.name: info.bytes for info in self.storage.list("")}
        found.pop(UNFINISHED_FILE, None)
        return found | {path: len(content) for path, content in self.held.items()}

    def digest(self, path: str) -> str:
        """Return the SHA-256 of a file's content."""
        if path in self.held:
            return hashlib.sha256(self.held[path]).hexdigest()
        client, hasher = object_client(self.location), hashlib.sha256()
        with contextlib.closing(S3Object(client.store, client.identity, f"/{self._key(path)}").stream()) as stream:
            while piece := stream.read(PART_BYTES):
                hasher.update(piece)
        return hasher.hexdigest()

    def _key(self, path: str) -> str:
        return f"{self.location.path}/{path}".lstrip("/")

    @contextlib.contextmanager
    def shown(self, *, locally: bool) -> Iterator[str]:
        """Lend a path at which the target is read with the files that are held; ``locally``: a local folder with the
        files that were written."""
        if locally:
            with temporary_directory() as folder:
                for path in self.written:
                    place = folder / path
                    with disk_errors("write", place):
                        place.parent.mkdir(parents=True, exist_ok=True)
                        place.write_bytes(self.held[path] if path in self.held else self.storage.read(path))
                yield str(folder)
            return
        objects = {path: size for path, size in self.files().items() if path not in self.held}
        with unfinished_folder(self.location, objects, self.held) as lent:
            yield lent.uri

    # Beginning and end

    def claim(self) -> None:
        """Take the place, where there is nothing. Raises as `claimed`."""
        self.claims.append(claimed(self.location))

    def publish(self, receipt: bytes, stages: Sequence[Sequence[str]], mode: int | None) -> None:
        """Put the files that are held, those of ``stages`` last and one stage after the other, with the receipt before
        the last one.

        Raises InvalidInputError TARGET_EXISTS, also where the claim is lost, StorageError REQUEST_FAILED.
        """
        for claim in self.claims:
            claim.check()
        named = [[path for path in stage if path in self.held] for stage in stages]
        later = {path for stage in named for path in stage}
        order = [*([path] for path in self.held if path not in later), *(stage for stage in named if stage)]
        self.held[RECEIPT_FILE] = receipt
        for stage in [*order[:-1], [RECEIPT_FILE], *order[-1:]]:
            in_parallel(lambda path: self.put_object(path, self.held[path]), stage, PUTS)
        try:
            self.storage.delete(UNFINISHED_FILE)
        except StateStoreError as error:
            raise UnsettledError(
                ErrorCode.REQUEST_FAILED,
                f"{self.path} is whole, but for {UNFINISHED_FILE}, which could not be removed ({error}); remove that "
                "object, as nothing is read there before",
            ) from error

    def replace_receipt(self, content: bytes) -> None:
        """Put the receipt of the published target anew. Raises StorageError REQUEST_FAILED."""
        with request_errors("write", f"{self.path}/{RECEIPT_FILE}"):
            obstore.put(object_client(self.location).store, self._key(RECEIPT_FILE), content)

    def discard(self, error: BaseException) -> None:
        """Remove what was put, after an error; leave all where an object may yet appear, or the claim is lost."""
        if isinstance(error, UnsettledError):
            return
        with contextlib.suppress(StateStoreError, OSError):
            if not all(claim.is_held() for claim in self.claims):
                return  # what is there may be of another edit
            last = [path for path in reversed(self.held) if path in self.put]
            for names in (last, sorted(self.put.difference(last)), [UNFINISHED_FILE]):
                self.storage.delete_many(names)


@dataclass(frozen=True)
class LastFiles:
    """A target whose files are held until it is published."""

    target: ObjectTarget

    @property
    def path(self) -> str:
        return self.target.path

    def create(self, path: str) -> IO[bytes]:
        return cast("IO[bytes]", _NewObject(self.target, self.target.take(path), is_held=True))


class _NewObject(tempfile.SpooledTemporaryFile[bytes]):
    """A new file of a target, which is put and noted once it is closed, and forgotten if its block raises."""

    def __init__(self, target: ObjectTarget, path: str, *, is_held: bool) -> None:
        super().__init__(MEMORY_BYTES)
        self._target, self._path, self._is_held = target, path, is_held

    def write(self, data: Any) -> int:
        with disk_errors("write", tempfile.gettempdir()):
            return super().write(data)

    def close(self) -> None:
        if self.closed:
            return
        try:
            self.seek(0, os.SEEK_END)
            size = self.tell()
            self.seek(0)
            digest = hashlib.file_digest(self, "sha256").hexdigest()
            self.seek(0)
            if self._is_held:
                self._target.held[self._path] = self.read()
            else:
                self._upload(size)
        finally:
            super().close()
        self._target.written[self._path] = WrittenFile(self._path, size, digest)

    def _upload(self, size: int) -> None:
        if size <= PART_BYTES:
            self._target.put_object(self._path, self.read())
        else:
            self._target.put_pieces(self._path, iter(lambda: self.read(PART_BYTES), b""))

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            super().close()


# The place


@contextlib.contextmanager
def new_objects(location: Location) -> Iterator[ObjectTarget]:
    """Lend a target that is there once it is published, and whose objects are removed if it was not."""
    target = ObjectTarget(location)
    target.claim()
    try:
        yield target
    except BaseException as error:
        target.discard(error)
        raise
