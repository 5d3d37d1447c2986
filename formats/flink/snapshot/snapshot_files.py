"""The files of a savepoint or checkpoint: ``_metadata`` itself, its handles' bytes, and those of an operator."""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TypeVar

from statestore.formats.engine import StateFile
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, NotFoundError, UnsupportedError
from statestore.formats.flink.snapshot.file_places import StoredHandle, places, places_outside
from statestore.formats.flink.snapshot.handles import (
    ChangelogHandle,
    ChangeSet,
    ChangesFile,
    EmptyHandle,
    FileHandle,
    InPlace,
    KeyedHandle,
    KeyGroupHandle,
    RelativeChanges,
    RocksHandle,
    SegmentHandle,
    StreamHandle,
    UnreadableHandle,
    described,
    stream_size,
)
from statestore.formats.flink.snapshot.held_files import HeldFiles, OpenFiles, hold
from statestore.formats.flink.snapshot.metadata import (
    HEAD_BYTES,
    OperatorSnapshot,
    SnapshotMetadata,
    checkpoint_id,
    parse_metadata,
)
from statestore.formats.flink.snapshot.snapshot_names import METADATA
from statestore.formats.places.folder import (
    MAX_SMALL_BYTES,
    PARALLEL_REQUESTS,
    FileRules,
    Folder,
    RandomAccess,
)
from statestore.formats.places.foreign_storages import STORAGE_ERRORS
from statestore.formats.places.kept_results import kept_result
from statestore.formats.places.listings import EntryKind, entry_at
from statestore.formats.places.locations import no_access
from statestore.formats.places.regular_files import MAX_METADATA_BYTES

_SHARED = (
    "copy it from where the snapshot was written; a retained checkpoint needs the folders shared and taskowned beside "
    "it, a savepoint its whole folder"
)
PIECE_BYTES = 8 << 20
_PARSED = 8
"""About how many times larger a file ``_metadata`` is once it is parsed."""
Damage = TypeVar("Damage", CorruptError, UnsupportedError)


def _missing(path: str, found: str) -> NotFoundError:
    return NotFoundError(ErrorCode.FLINK_FILE_MISSING, f"{path}: {found}")


def _corrupt(path: str, found: str) -> CorruptError:
    return CorruptError(ErrorCode.FLINK_FILE, f"{path}: {found}; restore the file from a copy")


RULES = FileRules(_missing, _corrupt, gone="no such file; it may have been removed meanwhile: read another snapshot")


@dataclass(frozen=True)
class Located:
    """Bytes ``start`` to ``start + size`` of file ``name`` in ``folder``, which has ``file_size`` bytes."""

    folder: Folder
    name: str
    start: int
    size: int
    file_size: int

    @property
    def path(self) -> str:
        return posixpath.join(self.folder.path, self.name)


@dataclass(frozen=True)
class Part:
    """The open bytes of a handle; several threads may read them. Close it, or use it as a context manager."""

    path: str
    size: int
    source: bytes | RandomAccess
    start: int = 0

    def read_at(self, offset: int, size: int) -> bytes:
        """Read ``size`` bytes from ``offset`` on; fewer only at the end of the handle's bytes.

        Raises CorruptError FLINK_FILE where the file has become shorter, NotFoundError FLINK_FILE_MISSING,
        InvalidInputError NO_ACCESS.
        """
        size = max(0, min(size, self.size - offset)) if offset >= 0 else 0
        if isinstance(self.source, bytes):
            return self.source[offset : offset + size]
        found = self.source.read_at(self.start + offset, size) if size else b""
        if len(found) != size:
            raise _corrupt(self.path, f"found {len(found)} bytes at byte {self.start + offset}, expected {size}")
        return found

    def close(self) -> None:
        if not isinstance(self.source, bytes):
            self.source.close()

    def __enter__(self) -> Part:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True)
class SnapshotFiles:
    """The files that a snapshot needs, found from the folder of its ``_metadata``.

    It can be pickled. ``outside``: files may lie where the snapshot says, wherever that is. ``held``: files that are
    kept open, which another process opens for itself.
    """

    folder: Folder
    outside: bool = False
    held: HeldFiles | None = field(default=None, compare=False, repr=False)

    def __reduce__(self) -> tuple[object, ...]:
        return SnapshotFiles, (self.folder, self.outside)

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", replace(self.folder, rules=RULES))

    @property
    def path(self) -> str:
        """The path of ``_metadata``, for messages."""
        return posixpath.join(self.folder.path, METADATA)

    def metadata(self) -> SnapshotMetadata:
        """Read and parse ``_metadata``.

        Raises NotFoundError FLINK_FILE_MISSING, CorruptError FLINK_METADATA and FLINK_FILE, UnsupportedError
        FLINK_UNSUPPORTED, InvalidInputError NO_ACCESS.
        """

        def parse() -> tuple[SnapshotMetadata, int]:
            data = self.metadata_bytes()
            return parse_metadata(data, self.path), _PARSED * len(data)

        # A job's folder may be opened each second, and a large job's file takes longer than that.
        return kept_result(("_metadata", self.path), [self.path], parse) if self.folder.is_local else parse()[0]

    def metadata_bytes(self) -> bytes:
        """Read ``_metadata``. Raises as `metadata`, but for what it holds."""
        parts: list[bytes] = []
        size = 0
        with self.folder.stream(METADATA) as stream:
            while part := stream.read(PIECE_BYTES):
                parts.append(part)
                size += len(part)
                if size > MAX_METADATA_BYTES:
                    raise _corrupt(self.path, f"found more than {MAX_METADATA_BYTES} bytes in a metadata file")
        return b"".join(parts)

    def checkpoint_id(self) -> int:
        """The checkpoint id that ``_metadata`` begins with. Raises as `metadata`."""
        with self.folder.stream(METADATA) as stream:
            return checkpoint_id(stream.read(HEAD_BYTES), self.path)

    def holding(self, handles: Iterable[StreamHandle]) -> SnapshotFiles:
        """The files with those of the handles kept open, where they are local and not too many."""
        if not self.folder.is_local:
            return self
        wanted: dict[tuple[str, ...], None] = {}
        for handle in handles:
            if not isinstance(handle, InPlace | EmptyHandle):
                with contextlib.suppress(CorruptError):  # of a strange path, which who reads it names
                    wanted[tuple(places(self.folder, handle, outside=self.outside))] = None
        return replace(self, held=hold(wanted))

    def locate(self, handle: StoredHandle) -> Located:
        """The place of a handle's bytes. The file's size is checked.

        Raises NotFoundError FLINK_FILE_MISSING where there is no file at any place that the handle may mean,
        CorruptError FLINK_FILE where it has another size, CorruptError FLINK_METADATA for a path that Flink does not
        write, InvalidInputError NO_ACCESS.
        """
        tried = places(self.folder, handle, outside=self.outside)
        for path in tried:
            size = self._size(path)
            if size is not None:
                return self._checked(handle, path, size)
        raise self.missing(handle, tried)

    def missing(self, handle: StreamHandle, tried: Sequence[str]) -> NotFoundError:
        """The error FLINK_FILE_MISSING for a handle whose file is at none of the places."""
        untried: list[str] = []
        if not self.outside and not isinstance(handle, InPlace | EmptyHandle):
            untried = places_outside(self.folder, handle)
        elsewhere = (
            f"; {untried[0]} lies outside of the folder with the job's folder, and is not looked at: if you trust the "
            "snapshot, read with option allowOutsideFiles"
            if untried
            else ""
        )
        return _missing(self.path, f"found no {described(handle)}; looked for {', '.join(tried)}{elsewhere}; {_SHARED}")

    def locate_all(self, handles: Iterable[StoredHandle]) -> list[Located]:
        """The places of several handles, looked up at the same time. Raises as `locate`."""
        wanted = list(handles)
        if self.folder.is_local or len(wanted) < 2:
            return [self.locate(handle) for handle in wanted]
        with ThreadPoolExecutor(min(len(wanted), PARALLEL_REQUESTS)) as pool:
            return list(pool.map(self.locate, wanted))

    def read(self, handle: StreamHandle) -> bytes:
        """All bytes of a small handle, such as a header. Raises as `locate`, and CorruptError FLINK_FILE where it is
        larger than MAX_SMALL_BYTES."""
        if stream_size(handle) > MAX_SMALL_BYTES:
            raise _corrupt(self.path, f"found {described(handle)}, expected at most {MAX_SMALL_BYTES} bytes")
        with self.open_at(handle) as part:
            return part.read_at(0, part.size)

    def open_at(self, handle: StreamHandle) -> Part:
        """Open a handle's bytes to read parts of them. Raises as `locate`."""
        if isinstance(handle, InPlace):
            return Part(f"{self.path} ({described(handle)})", len(handle.data), handle.data)
        if isinstance(handle, EmptyHandle):
            return Part(f"{self.path} ({described(handle)})", 0, b"")
        held = self.opened()
        found = self.locate(handle)
        source = found.folder.random_access(
            found.name,
            found.file_size,
            unique=not isinstance(handle, SegmentHandle),
            opened=None if held is None else held.path(found.path),
        )
        return Part(found.path, found.size, source, found.start)

    def opened(self) -> OpenFiles | None:
        """The files that are kept open now; who reads them keeps the reference meanwhile."""
        return None if self.held is None else self.held.open

    def _size(self, path: str) -> int | None:
        """The size of a file, None where there is no such file."""
        held = self.opened()
        size = None if held is None else held.size(path)
        if size is not None:
            return size
        try:
            info = entry_at(self.folder.filesystem, path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except STORAGE_ERRORS as error:
            raise no_access(path, error) from error
        return info.size if info.kind is EntryKind.FILE else None

    def _checked(self, handle: StoredHandle, path: str, found: int) -> Located:
        folder, name = posixpath.split(path)
        if isinstance(handle, ChangesFile | RelativeChanges):  # its reader knows how many bytes it must have
            return Located(replace(self.folder, path=folder, seen=None), name, 0, found, found)
        start = handle.start if isinstance(handle, SegmentHandle) else 0
        end = start + handle.size
        if found != end if not isinstance(handle, SegmentHandle) else found < end:
            at_least = "at least " if isinstance(handle, SegmentHandle) else ""
            raise _corrupt(path, f"found {found} bytes, expected {at_least}{end} ({described(handle)} in {self.path})")
        return Located(replace(self.folder, path=folder, seen=None), name, start, handle.size, found)


def naming_files(error: Damage, handles: Iterable[StreamHandle]) -> Damage:
    """The error with the files that hold the bytes of a row or header; those in ``_metadata`` itself are named already.

    An error that names one of them is returned as it is.
    """
    stored = (each for each in handles if not isinstance(each, InPlace | EmptyHandle))
    names = list(dict.fromkeys(map(described_name, stored)))
    if error.code not in _WITHOUT_FILES or not names or any(posixpath.basename(n) in error.message for n in names):
        return error
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    named = f"{error.message}; its bytes are in {', '.join(names[:_MOST_NAMED])}{more}"
    return type(error)(error.code, named)


def naming_metadata(error: CorruptError, path: str) -> CorruptError:
    """The error with ``_metadata``, at ``path``, beside the file that it points into: either may be damaged."""
    if error.code not in (ErrorCode.FLINK_FILE, ErrorCode.FLINK_ROW) or path in error.message:
        return error
    return CorruptError(
        error.code, f"{error.message}; where this state lies is said by {path}, which may be the damaged file instead"
    )


# The files that the state of an operator needs: in the snapshot's folder, or in another one


_MOST_NAMED = 3
_WITHOUT_FILES = (
    ErrorCode.FLINK_ROW,
    ErrorCode.FLINK_FILE,
    ErrorCode.FLINK_METADATA,
    ErrorCode.FLINK_UNSUPPORTED,
)
"""Codes of errors that may say where a state is by ``_metadata`` alone."""
MISSING, DAMAGED, CHANGES = "missing", "damaged", "changes"
TABLE, OTHER, KEYED = "table", "RocksDB file", "keyed state"


def needed_files(files: SnapshotFiles, operator: OperatorSnapshot) -> Iterator[StateFile]:
    """Yield each file once. A name with ``../`` is that of a file which another folder holds.

    The role says what it is: keyed state, timers, operator state, a table or other file of RocksDB. A file that is not
    there is reported by its handle, with the role "missing", and one of another size with the role "damaged".
    """
    seen: set[tuple[str, int]] = set()
    for role, handle in handles_of(operator):
        if isinstance(handle, InPlace | EmptyHandle):
            continue
        try:
            found = files.locate(handle)
        except KeyError:  # NotFoundError FLINK_FILE_MISSING
            name = described_name(handle)
            if (name, 0) not in seen:
                seen.add((name, 0))
                yield StateFile(name, MISSING, stream_size(handle))
            continue
        except CorruptError:
            name = described_name(handle)
            if (name, 1) not in seen:
                seen.add((name, 1))
                yield StateFile(name, DAMAGED, stream_size(handle))
            continue
        if (found.path, found.start) not in seen:
            seen.add((found.path, found.start))
            yield StateFile(posixpath.relpath(found.path, files.folder.path), role, found.size)


def described_name(handle: StoredHandle) -> str:
    """The path or URI by which a snapshot knows a file."""
    return handle.uri if isinstance(handle, FileHandle | SegmentHandle) else handle.path


def handles_bytes(operator: OperatorSnapshot) -> int:
    """The bytes of an operator's state, in files and in the metadata."""
    changes = [each.managed_keyed.size for each in operator.subtasks if isinstance(each.managed_keyed, ChangelogHandle)]
    return sum(stream_size(handle) for role, handle in handles_of(operator) if role != CHANGES) + sum(changes)


def handles_of(operator: OperatorSnapshot) -> Iterator[tuple[str, StreamHandle]]:
    """Yield the handles of an operator's state, each with its role."""
    for subtask in operator.subtasks:
        for keyed, role in ((subtask.managed_keyed, KEYED), (subtask.raw_keyed, "timers")):
            if keyed is not None:
                yield from handles_of_keyed(keyed, role)
        for elements in (subtask.managed_operator, subtask.raw_operator):
            if elements is not None:
                yield "operator state", elements.stream


def handles_of_keyed(keyed: KeyedHandle, role: str) -> Iterator[tuple[str, StreamHandle]]:
    """Yield the handles of the keyed state of a subtask, each with its role."""
    if isinstance(keyed, RocksHandle):
        yield "header", keyed.meta
        for name, handle in (*keyed.shared, *keyed.private):
            yield (TABLE if name.endswith(".sst") else OTHER), handle
    elif isinstance(keyed, KeyGroupHandle):
        yield role, keyed.stream
    elif isinstance(keyed, ChangelogHandle):
        for base in keyed.materialized:
            yield from handles_of_keyed(base, role)
        for part in keyed.changes:
            if isinstance(part, ChangeSet):
                yield CHANGES, part.stream
    else:
        assert isinstance(keyed, UnreadableHandle)
