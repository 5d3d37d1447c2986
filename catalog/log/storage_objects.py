"""A store's files in an object store, through obstore; create-only puts make commits atomic.

A request whose answer was lost may have been carried out. A put is therefore never taken for failed before the object
of its name was looked at: an object with the sent bytes is this put's, any other one is another writer's.

Requests are the cost: objects that belong together are read at the same time, and data files part by part into a cache
on the local disk (`statestore.formats.places.object_cache`).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import obstore
import pyarrow as pa
from obstore.exceptions import (
    AlreadyExistsError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)

from statestore.catalog.log.log_names import STORE_FILE
from statestore.catalog.log.storage import (
    Data,
    Guard,
    ObjectInfo,
    StorageExistsError,
    UnsettledError,
    check_folder,
    check_name,
    missing,
)
from statestore.catalog.log.store_spec import DESCRIPTION_COPY, DROPPED, stored_identity
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, InvalidInputError, StorageError
from statestore.formats.places.locations import Location
from statestore.formats.places.object_cache import (
    PARALLEL_SMALL_REQUESTS,
    CachedObject,
    Part,
    cached_object,
    fetch_all,
    in_parallel,
)
from statestore.formats.places.object_clients import (
    is_missing,
    no_bucket,
    object_client,
    refused,
    repeated,
    request_errors,
    said,
)
from statestore.formats.places.regular_files import MAX_METADATA_BYTES, too_large
from statestore.formats.segments.regions import missing_parts
from statestore.formats.segments.segment_meta import FileRef

REFUSED = (PermissionDeniedError, UnauthenticatedError)
# Azure answers a failed create with PreconditionError in some releases of obstore.
EXISTS = (AlreadyExistsError, PreconditionError, FileExistsError)
Listing: TypeAlias = list[ObjectInfo]
ATTEMPTS = 3  # to create an object
PAUSE = 0.1  # seconds before the second attempt, and twice as many before the third
DATA_FILES = ("segments/", "shared/", "private/", "emitted/")
"""Folders of what this machine may read soon after it has put it: segments, and files of a keyed store's snapshots."""
WHOLE_BYTES = 1 << 20  # a smaller file is fetched whole
PART_BYTES = 8 << 20  # of an object that is put in parts


@dataclass(frozen=True)
class ObjectStorage:
    """Objects below a location of an object store; see `Storage`.

    ``folder``: where below it the files are, but for the store's description. A store that took the place of a dropped
    one has a folder of its own, so that late writes of the old one never meet it. ``local`` is the directory for what
    writers of this machine keep on a disk: changelogs, locks and hot tiers. ``cache`` is the folder of the cache, by
    default that of the environment.
    """

    location: Location
    folder: str = ""
    local: Path | None = None
    cache: str | None = field(default=None, repr=False)
    # A listing that was begun when the store's description was read.
    _begun: tuple[str, Future[Listing]] | None = field(default=None, repr=False, compare=False)
    # The location of the store's name, if a rebuild put the store into a folder below it.
    _root: Location | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.folder:
            object.__setattr__(self, "folder", check_folder(self.folder.rstrip("/") + "/"))

    def __reduce__(self) -> tuple[Any, ...]:
        """Leave the folders of this machine here: a process that gets the storage has those of its own environment."""
        return ObjectStorage, (self.location, self.folder)

    def __str__(self) -> str:
        return str(self.location)

    def create(self, name: str, data: Data, guard: Guard | None = None) -> None:
        if guard is not None:
            guard.check(self._read_or_none(guard.name))
        sent, failed = memoryview(data).cast("B"), ""
        for attempt in range(ATTEMPTS):
            time.sleep(PAUSE * attempt)  # S3 refuses a put while another one of the name is under way
            failed = self._try_to_create(name, sent)
            if not failed:
                return
            with contextlib.suppress(StorageError):  # then nothing is known, and the put is repeated
                found = self._read_or_none(name)
                if found is None:
                    continue
                if memoryview(found) == sent:
                    return
                raise StorageExistsError(
                    ErrorCode.FILE_EXISTS, f"{self._shown(name)} exists; files are never overwritten"
                )
        raise UnsettledError(
            ErrorCode.REQUEST_FAILED, f"{self._shown(name)}: cannot write: {failed}; the object may yet appear"
        )

    def _try_to_create(self, name: str, sent: memoryview) -> str:
        """Put an object; return "" if the store says that it did, else what the store says.

        Whatever the store says, the object may be there, or come later: an answer is lost, or a put that obstore
        repeats finds the object of its first attempt. "Exists" may also mean that another put of the name is under way.
        """
        try:
            obstore.put(self._store, self._key(name), sent, mode="create", use_multipart=False)
        except EXISTS as error:
            return said(error)
        except (obstore.exceptions.BaseError, OSError) as error:
            if is_missing(error):
                raise no_bucket(self.location) from None
            if isinstance(error, REFUSED):
                raise refused("write", self._shown(name), error) from None
            return said(error)
        return ""

    def tries_to_create(self, name: str, data: bytes) -> bool:
        """Return whether an object could be created: False if there is one, or if this user may not write.

        Raises StorageError REQUEST_FAILED.
        """
        try:
            put = partial(obstore.put, self._store, self._key(name), data, mode="create", use_multipart=False)
            self._repeated("write", name, put)
        except (*EXISTS, InvalidInputError):
            return False
        except (obstore.exceptions.BaseError, OSError) as error:
            if is_missing(error):
                raise no_bucket(self.location) from None
            raise
        return True

    def settle(self, name: str) -> None:
        """Do nothing: an object is durable once its put is answered."""

    def create_many(self, files: Mapping[str, Data]) -> None:
        in_parallel(lambda each: self._create_unique(*each), list(files.items()))

    def read(self, name: str) -> bytes:
        found = self._read_or_none(name)
        if found is None:
            raise missing(self._shown(name))
        return found

    def read_many(self, names: Sequence[str]) -> list[bytes | None]:
        return in_parallel(self._read_or_none, names, PARALLEL_SMALL_REQUESTS)

    def map(self, name: str) -> pa.Buffer:
        return pa.py_buffer(self.read(name))

    def opened(self, ref: FileRef) -> CachedObject:
        """Return a data file, of which nothing is fetched yet; its regions are, before they are verified."""
        return self._cached(ref.name, ref.bytes)

    def _cached(self, name: str, size: int) -> CachedObject:
        identity = f"{object_client(self.location).identity}/{self._key(name)}/{size}"
        return cached_object(identity, size, lambda start, stop: self._read_part(name, size, start, stop), self.cache)

    def fetch_ahead(self, wanted: Iterable[tuple[FileRef, Sequence[tuple[int, int]] | None]]) -> None:
        """Fetch ranges (offset, length) of data files, None: all of a file, at the same time."""
        parts: list[tuple[CachedObject, Part]] = []
        for ref, ranges in wanted:
            cached = self.opened(ref)
            asked = [(0, ref.bytes)] if ranges is None or ref.bytes <= WHOLE_BYTES else ranges
            parts += [(cached, part) for part in missing_parts(ref, cached, asked)]
        fetch_all(parts)

    def exists(self, name: str) -> bool:
        return self._head(name) is not None

    def state(self, name: str) -> Hashable:
        about = self._head(name)
        return None if about is None else (about["e_tag"], about["last_modified"], about["size"])

    def size(self, name: str) -> int | None:
        """Return the length of an object; None if there is none."""
        about = self._head(name)
        return None if about is None else int(about["size"])

    def look(self, name: str) -> ObjectInfo | None:
        """Return what a listing says of an object; None if there is none."""
        about = self._head(name)
        if about is None:
            return None
        return ObjectInfo(name, int(about["size"]), int(about["last_modified"].timestamp() * 1e6))

    def shown(self, name: str) -> str:
        """Return the name of an object in messages."""
        return self._shown(name)

    def opened_anew(self, ref: FileRef) -> CachedObject:
        """Return a data file as `opened` does, but in memory: what is read of it comes from the object store."""
        return CachedObject(ref.bytes, partial(self._read_part, ref.name, ref.bytes), None)

    def create_in_parts(self, name: str, pieces: Iterable[bytes]) -> None:
        """Put a large object of a unique name, of which only a few parts are in memory at a time.

        Raises what ``pieces`` raises, and StorageError REQUEST_FAILED; an object of the name may then be there, which
        the caller removes. obstore aborts an upload that fails, after which the store removes its parts. Those that
        were under way just then may stay, as those of a killed process do, until a rule of the bucket removes them.
        """
        upload = UploadedPieces(pieces)
        try:
            with request_errors("write", self._shown(name)):
                obstore.put(
                    self._store, self._key(name), iter(upload),
                    use_multipart=True, chunk_size=PART_BYTES, max_concurrency=4,
                )  # fmt: skip
        except (obstore.exceptions.NotFoundError, FileNotFoundError, StorageError) as error:
            if upload.failed is None and not self._was_put(name, upload.sent):
                if isinstance(error, StorageError):
                    raise
                raise (self._no_upload(name) if upload.sent else no_bucket(self.location)) from None
        if upload.failed is not None:
            raise upload.failed

    def _was_put(self, name: str, size: int) -> bool:
        """Return whether an object of a unique name is there as a whole, although the put's answer was lost."""
        with contextlib.suppress(StorageError):
            return size > 0 and self.size(name) == size
        return False

    def _no_upload(self, name: str) -> StorageError:
        return StorageError(
            ErrorCode.REQUEST_FAILED,
            f"{self._shown(name)}: cannot write: the object store ended its upload meanwhile; repeat the call",
        )

    def list(self, prefix: str, after: str = "") -> Listing:
        begun, key = self._begun, f"{prefix} {after}"
        if begun is not None and begun[0] == key:
            object.__setattr__(self, "_begun", None)  # an older answer may lack what was written since
            return begun[1].result()
        return self._listed(prefix, after)

    def beginning(self, prefix: str, after: str = "") -> ObjectStorage:
        """Return this storage with a listing under way, which the next `list` with these arguments returns."""
        pool = ThreadPoolExecutor(1)
        begun = pool.submit(self._listed, prefix, after)
        pool.shutdown(wait=False)
        return replace(self, _begun=(f"{prefix} {after}", begun))

    def having_listed(self, prefix: str, listing: Listing) -> ObjectStorage:
        """Return this storage with a listing that was made just now, as if it were under way (`beginning`)."""
        made: Future[Listing] = Future()
        made.set_result(listing)
        return replace(self, _begun=(f"{prefix} ", made))

    def beside(self, root: ObjectStorage, folder: str) -> ObjectStorage:
        """Return the storage of a store that was rebuilt in a folder of the store at ``root``, with a description of
        its own.
        """
        return replace(self, location=root.location.at(folder), folder="", _begun=None, _root=root.location)

    @property
    def root(self) -> ObjectStorage:
        """Return the storage of everything below the store's name: of this store, those that it replaced, and others
        that rebuilds make there.
        """
        return replace(self, location=self._root or self.location, folder="", _begun=None, _root=None)

    def within(self, folder: str) -> ObjectStorage:
        """Return the storage of a store whose files are in a folder of their own."""
        return replace(self, folder=folder, _begun=None)

    def elsewhere(self) -> ObjectStorage:
        """Return this storage as another machine sees it, without a local directory."""
        return replace(self, local=None, _begun=None)

    def is_listing(self, prefix: str) -> bool:
        return self._begun is not None and self._begun[0].startswith(f"{prefix} ")

    def _listed(self, prefix: str, after: str) -> Listing:
        base = self._base
        start = f"{base}{check_folder(prefix)}"
        offset = f"{base}{after}" if after else None
        found = partial(obstore.list, self._store, prefix=start.rstrip("/") or None, offset=offset)
        items = self._repeated("list", prefix, lambda: [item for batch in found() for item in batch])
        return sorted(
            ObjectInfo(item["path"].removeprefix(base), item["size"], int(item["last_modified"].timestamp() * 1e6))
            for item in items
            if item["path"].startswith(start) and (offset is None or item["path"] > offset)  # not all stores know it
        )

    def delete(self, name: str) -> None:
        self.delete_many([name])

    def delete_once(self, name: str) -> None:
        """Remove an object by one request, which is not repeated: another object may have taken the name meanwhile.

        Raises StorageError REQUEST_FAILED if it is not known whether the object was removed.
        """
        with (
            request_errors("remove", self._shown(name)),
            contextlib.suppress(obstore.exceptions.NotFoundError, FileNotFoundError),
        ):
            obstore.delete(object_client(self.location).once, [self._key(name)])

    def delete_many(self, names: Sequence[str]) -> None:
        """Remove objects, many with one request; missing ones are no error."""
        try:
            if names:
                self._delete_all(names)
        except (obstore.exceptions.NotFoundError, FileNotFoundError):
            # Google Cloud Storage reports a missing object, and obstore then leaves the objects behind it.
            in_parallel(self._delete_if_there, list(names), PARALLEL_SMALL_REQUESTS)

    def _delete_if_there(self, name: str) -> None:
        with contextlib.suppress(obstore.exceptions.NotFoundError, FileNotFoundError):
            self._delete_all([name])

    def _delete_all(self, names: Sequence[str]) -> None:
        keys = [self._key(name) for name in names]
        self._repeated("remove", names[0], lambda: obstore.delete(self._store, keys))

    @property
    def _store(self) -> Any:
        return object_client(self.location).store

    @property
    def _base(self) -> str:
        path = f"{self.location.path}/" if self.location.path else ""
        return f"{path}{self.folder}"

    def _key(self, name: str) -> str:
        check_name(name)
        if name == STORE_FILE:
            return f"{self.location.path}/{name}" if self.location.path else name
        return f"{self._base}{name}"

    def _shown(self, name: str) -> str:
        return f"{self.location}/{'' if name == STORE_FILE else self.folder}{name}"

    def _head(self, name: str) -> Any:
        key = self._key(name)
        try:
            return self._repeated("look for", name, lambda: obstore.head(self._store, key))
        except (obstore.exceptions.NotFoundError, FileNotFoundError):
            return None

    def kept_description(self) -> bytes | None:
        """Return the copy of the description of a store with a folder; None if it has none, or was dropped.

        It counts where the description is missing: the delete of an older store of the name, carried out late, removes
        the description of the newer one. A drop makes its mark before it deletes anything.
        """
        data = self._object_or_none(DESCRIPTION_COPY) if self.folder else None
        if data is None or self.within("").exists(f"{DROPPED}{stored_identity(data)}"):
            return None
        return data

    def _read_or_none(self, name: str) -> bytes | None:
        data = self._object_or_none(name)
        return self.kept_description() if data is None and name == STORE_FILE else data

    def _object_or_none(self, name: str) -> bytes | None:
        key = self._key(name)

        def read() -> bytes | None:
            found = obstore.get(self._store, key)
            if found.meta["size"] > MAX_METADATA_BYTES:
                raise too_large(self._shown(name), found.meta["size"], MAX_METADATA_BYTES)
            return bytes(found.bytes())

        try:
            data: bytes | None = self._repeated("read", name, read)
            return data
        except (obstore.exceptions.NotFoundError, FileNotFoundError):
            return None

    def _read_part(self, name: str, whole: int, start: int, stop: int) -> bytes:
        """Read bytes of a data file. Raises NotFoundError FILE_NOT_FOUND, CorruptError SEGMENT_TRUNCATED."""
        key = self._key(name)

        def read() -> bytes:
            found = obstore.get(self._store, key, options={"range": (start, stop)})
            size = int(found.meta["size"])
            if size != whole:
                raise self._wrong_length(name, whole, size)
            return bytes(found.bytes())

        try:
            data: bytes = self._repeated("read", name, read)
        except (obstore.exceptions.NotFoundError, FileNotFoundError):
            raise missing(self._shown(name)) from None
        except StorageError:
            size = self.size(name)  # a part behind the end of a shorter object is refused, too
            if size is not None and size != whole:
                raise self._wrong_length(name, whole, size) from None
            raise
        if len(data) != stop - start:
            raise self._wrong_length(name, whole, start + len(data))
        return data

    def _wrong_length(self, name: str, whole: int, size: int) -> CorruptError:
        return CorruptError(
            ErrorCode.SEGMENT_TRUNCATED,
            f"{self._shown(name)}: {size} bytes found, the commit says {whole}; restore the file from a copy",
        )

    def _repeated(self, doing: str, name: str, request: Callable[[], Any]) -> Any:
        return repeated(doing, self._shown(name), request)

    def _create_unique(self, name: str, data: Data) -> None:
        """Put a data file, whose name nobody else has; what is read of it soon need not be fetched."""
        try:
            self.create(name, data)
        except UnsettledError as error:
            raise StorageError(error.code, error.message) from None
        sent = memoryview(data).cast("B")
        if name.startswith(DATA_FILES) and len(sent):
            self._cached(name, len(sent)).keep(sent)


# Pieces of a large object on their way to an object store, which takes it in parts


class UploadedPieces:
    """Pieces to iterate over once; ``sent`` is the number of their bytes so far.

    They end where making one raises, and ``failed`` is the error. So the upload is completed, to an object that nobody
    asked for: if it were aborted, parts that are under way could arrive later, and would stay in the bucket.
    """

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = pieces
        self.sent = 0
        self.failed: BaseException | None = None

    def __iter__(self) -> Iterator[bytes]:
        try:
            for piece in self._pieces:
                self.sent += len(piece)
                yield piece
        except GeneratorExit:  # the upload failed
            raise
        except BaseException as error:
            self.failed = error
