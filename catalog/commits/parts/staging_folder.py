"""The private folder of a write in its store: what tasks leave there for the process that commits.

No commit names a file of the folder. In a local directory a segment gets its name in the store by a hard link. An
object store has none, so there a segment is written where the commit names it, and lies there unnamed until then.
Vacuum finds what is left of either.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from statestore.catalog.log.storage import Storage, local_root
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import ConflictError, CorruptError, NotFoundError, StateStoreError, StorageError
from statestore.formats.kernels.arrays import Ints
from statestore.formats.places.disk_errors import disk_errors
from statestore.formats.places.object_cache import CachedObject
from statestore.formats.segments.ipc_file import Batches, encode_file, read_stream, write_file
from statestore.formats.segments.segment_meta import FileRef

STAGING = "staging"
SEGMENTS = "segments/"
ROWS_BYTES = 1 << 25  # of an object with rows, which is in memory while it is written
_OF_ONE_WRITE = re.compile(rf"{STAGING}/([0-9a-f]{{16}})[0-9a-f]{{16}}")


@dataclass(frozen=True)
class StagingFolder:
    """The folder ``name`` of a store, like ``staging/<id of the write>``; can be pickled.

    Names of its files are those in the store.
    """

    storage: Storage
    name: str
    _made: list[str] = field(default_factory=list, repr=False, compare=False)

    @staticmethod
    def of_new_write(storage: Storage) -> StagingFolder:
        """Return a folder that no other write has. It has to be made before tasks use it."""
        return StagingFolder(storage, f"{STAGING}/{uuid.uuid4().hex}")

    @property
    def path(self) -> Path | None:
        """The directory; None in an object store."""
        root = local_root(self.storage)
        return None if root is None else root / self.name

    @property
    def is_linked(self) -> bool:
        """Whether segments lie in the folder, and get their names in the store by hard links."""
        return self.path is not None

    def make(self) -> None:
        """Make the directory; an object store needs none."""
        if self.path is not None:
            self.path.mkdir(parents=True, exist_ok=True)

    # Files of parts

    def new_name(self, ending: str, named: bool = False) -> str:
        """Return the name for a new file; ``named``: for one that a commit may name.

        Such names of one write begin alike in an object store, by which `abandon` finds them.
        """
        if not named or self.is_linked:
            return f"{self.name}/{uuid.uuid4().hex}{ending}"
        return f"{SEGMENTS}{self._mark}{uuid.uuid4().hex[len(self._mark) :]}{ending}"

    def create(self, name: str, schema: pa.Schema, batches: Batches, *, paged: bool = False) -> FileRef:
        """Write a file, durably, because a commit may name it as it is; ``paged``: with a page table where it lies in
        an object store and is large enough.

        Raises ConflictError STAGED_FILE_MISSING if the directory is gone: the write was aborted.
        """
        root = local_root(self.storage)
        if root is None:
            data, ref = encode_file(name, schema, batches, paged=paged)
            self._put(name, data)
            return ref
        path = f"{root}/{name}"
        with disk_errors("stage rows in", path):
            try:
                file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
            except FileNotFoundError:
                raise self.gone() from None
            try:
                ref = write_file(file, name, schema, batches)
                os.fsync(file)
            finally:
                os.close(file)
        return ref

    def opened(self, ref: FileRef) -> pa.Buffer | CachedObject:
        """Return the bytes of a file. Raises ConflictError STAGED_FILE_MISSING."""
        try:
            return self.storage.opened(ref)
        except NotFoundError:
            raise self.gone() from None

    def copied(self, numbers: Ints) -> Ints:
        """Return a copy in a mapped temporary file, so that the rows of a write need no memory.

        Raises ConflictError STAGED_FILE_MISSING.
        """
        if self.path is not None and not self.path.is_dir():
            raise self.gone()
        with (
            disk_errors("write the ends of rows in", self.path or Path(tempfile.gettempdir())),
            tempfile.TemporaryFile(dir=self.path) as file,
        ):
            os.posix_fallocate(file.fileno(), 0, numbers.nbytes)  # a write to a mapped page cannot report a full disk
            copied: Ints = np.memmap(file, np.int64, "r+", shape=numbers.shape)
        copied[:] = numbers
        return copied

    # Rows as they are

    def create_rows(self, beginning: str, batches: Iterable[pa.RecordBatch]) -> tuple[tuple[str, ...], int]:
        """Write rows to a file, in an object store to several; return their names, which begin so, and their bytes."""
        root = local_root(self.storage)
        if root is None:
            return self._create_objects(beginning, batches)
        name = f"{self.name}/{beginning}{uuid.uuid4().hex}.arrow"
        remaining = iter(batches)
        first = next(remaining)
        try:
            with (
                disk_errors("stage rows in", root / name),
                pa.OSFile(str(root / name), "wb") as sink,
                pa.ipc.new_stream(sink, first.schema) as file,
            ):
                file.write_batch(first)
                for batch in remaining:
                    file.write_batch(batch)
                return (name,), sink.tell()
        except StorageError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                raise self.gone() from None
            raise

    def _create_objects(self, beginning: str, batches: Iterable[pa.RecordBatch]) -> tuple[tuple[str, ...], int]:
        names: list[str] = []
        total = 0
        for piece in _pieces(batches):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, piece[0].schema) as file:
                for batch in piece:
                    file.write_batch(batch)
            data = sink.getvalue()
            names.append(f"{self.name}/{beginning}{uuid.uuid4().hex}.arrow")
            self._put(names[-1], data)
            total += data.size
        return tuple(names), total

    def _put(self, name: str, data: pa.Buffer) -> None:
        self._made.append(name)
        self.storage.create_many({name: data})

    def rows(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Read rows. Raises ConflictError STAGED_FILE_MISSING, CorruptError STAGED_FILE."""
        for name in names:
            try:
                yield from read_stream(self.storage.map(name))
            except NotFoundError:
                raise self.gone() from None
            except ValueError as error:
                raise CorruptError(
                    ErrorCode.STAGED_FILE,
                    f"{self.storage}/{name}: not the rows that a task wrote ({error}); run the write again, and keep "
                    "the staging folder until it has ended",
                ) from error

    # The end

    def remove(self) -> None:
        """Remove the folder, and the one around it unless another write stages there. Vacuum removes what cannot be."""
        if self.path is not None:
            shutil.rmtree(self.path, ignore_errors=True)
            with contextlib.suppress(OSError):
                self.path.parent.rmdir()
            return
        with contextlib.suppress(StateStoreError):
            self.storage.delete_many([item.name for item in self.storage.list(f"{self.name}/")])

    @contextlib.contextmanager
    def removing_failed(self) -> Iterator[StagingFolder]:
        """Yield the folder for one attempt of a task, whose objects are removed if it fails.

        What it leaves in a directory goes with the directory.
        """
        attempt = StagingFolder(self.storage, self.name)
        try:
            yield attempt
        except BaseException:
            with contextlib.suppress(StateStoreError):
                self.storage.delete_many(attempt._made)
            raise

    def abandon(self) -> None:
        """Remove the folder of a write of which nothing was committed, and its segments wherever they lie."""
        self.remove()
        self.remove_unnamed(frozenset())

    def remove_unnamed(self, named: Iterable[str], known: Iterable[str] = ()) -> None:
        """Remove the segments that this write made in an object store, but those in ``named``.

        Only a folder that one write has to itself tells which they are; for another one, only those in ``known`` go.
        """
        if self.is_linked:
            return
        with contextlib.suppress(StateStoreError):
            found = {name for name in known if name.startswith(SEGMENTS)}
            if self._mark:
                begin = f"{SEGMENTS}{self._mark}"
                found |= {item.name for item in self.storage.list(SEGMENTS) if item.name.startswith(begin)}
            self.storage.delete_many(sorted(found.difference(named)))

    def gone(self) -> ConflictError:
        """Return the error for files that are no longer there."""
        return ConflictError(
            ErrorCode.STAGED_FILE_MISSING,
            f"{self.storage}/{self.name}, where tasks of this write stage their rows, is gone: the write was aborted, "
            "or vacuum removed it (older_than is less than the time the write took). Nothing was committed; write "
            "again",
        )

    @property
    def _mark(self) -> str:
        found = _OF_ONE_WRITE.fullmatch(self.name)
        return "" if found is None else found[1]


def _pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Yield batches in groups of about ROWS_BYTES."""
    piece: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        piece.append(batch)
        size += batch.nbytes
        if size >= ROWS_BYTES:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece
