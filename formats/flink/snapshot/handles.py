"""Handles of a snapshot: where each part of the state lies, as ``_metadata`` says.

Source: ``org.apache.flink.runtime.checkpoint.metadata.MetadataV2V3SerializerBase``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import UnsupportedError, shown


@dataclass(frozen=True)
class InPlace:
    """Bytes in ``_metadata`` itself (``ByteStreamStateHandle``, type 1)."""

    name: str
    data: bytes


@dataclass(frozen=True)
class FileHandle:
    """A file by its absolute URI at the time of writing (``FileStateHandle``, type 2)."""

    uri: str
    size: int


@dataclass(frozen=True)
class ChangesFile(FileHandle):
    """A file of changes, which several subtasks may share. ``size`` is that of the changes in it, unpacked: a byte
    before them says whether they are packed.
    """


@dataclass(frozen=True)
class RelativeHandle:
    """A file in the folder of ``_metadata`` (``RelativeFileStateHandle``, type 6)."""

    path: str
    size: int


@dataclass(frozen=True)
class RelativeChanges(RelativeHandle):
    """A `ChangesFile` in the folder of ``_metadata``, as copies of snapshots have it."""


@dataclass(frozen=True)
class SegmentHandle:
    """A part of a file that several handles share (``SegmentFileStateHandle``, type 15)."""

    uri: str
    start: int
    size: int
    logical_id: str


@dataclass(frozen=True)
class EmptyHandle:
    """No bytes (``EmptySegmentFileStateHandle``, type 16)."""


StreamHandle: TypeAlias = InPlace | FileHandle | RelativeHandle | SegmentHandle | EmptyHandle


KeyGroupForm: TypeAlias = Literal["savepoint", "heap", "rocksdb"]


@dataclass(frozen=True)
class KeyGroupHandle:
    """Key groups in one stream: ``offsets`` has one offset a key group, from ``first_group`` on.

    "savepoint" is type 7, where offset 0 stands for no data, and "heap" types 3 and 12. Raw keyed state is "heap", too;
    there -1 stands for no data. "rocksdb" is the form of savepoints behind type 3: RocksDB wrote it before type 7 came,
    into savepoints up to Flink 1.12 and full checkpoints up to 1.15. Only the bytes tell it from "heap"
    (`statestore.formats.flink.streams.savepoint_entries.written_form`).

    ``partial``: other key groups may lie in the stream, before and between, as in what the changelog backend keeps of
    several subtasks after a change of the parallelism.
    """

    form: KeyGroupForm
    first_group: int
    offsets: tuple[int, ...]
    stream: StreamHandle
    partial: bool = False

    @property
    def groups(self) -> int:
        return len(self.offsets)


@dataclass(frozen=True)
class RocksHandle:
    """Files of a RocksDB directory by their names in it (``IncrementalRemoteKeyedStateHandle``, types 5 and 11).

    ``shared`` holds the table files, ``private`` the others, ``meta`` the header of the backend.
    """

    checkpoint_id: int
    backend_id: str
    first_group: int
    groups: int
    meta: StreamHandle
    shared: tuple[tuple[str, StreamHandle], ...]
    private: tuple[tuple[str, StreamHandle], ...]


@dataclass(frozen=True)
class ChangeSet:
    """Changes of a subtask, which begin at byte ``offset`` of the unpacked changes in a file."""

    stream: StreamHandle
    offset: int


@dataclass(frozen=True)
class PlainChanges:
    """Changes in ``_metadata`` itself, each with its key group (``InMemoryChangelogStateHandle``, type 9)."""

    changes: tuple[tuple[int, bytes], ...]


@dataclass(frozen=True)
class ChangelogHandle:
    """Keyed state of the changelog state backend (``ChangelogStateBackendHandle``, types 8 and 14).

    ``materialized`` holds what the backend below wrote last, of which key groups outside of the handle's range do not
    count; ``changes`` are those since, in their order, of ``size`` bytes.
    """

    first_group: int
    groups: int
    materialized: tuple[KeyGroupHandle | RocksHandle, ...]
    changes: tuple[ChangeSet | PlainChanges, ...]
    size: int


@dataclass(frozen=True)
class UnreadableHandle:
    """Keyed state in a form that is not read; ``why`` says which form."""

    type: int
    first_group: int
    groups: int
    why: str


KeyedHandle: TypeAlias = KeyGroupHandle | RocksHandle | ChangelogHandle | UnreadableHandle


@dataclass(frozen=True)
class OperatorStateOffsets:
    """Elements of a list or broadcast state of an operator; ``offsets`` has one offset an element.

    ``mode`` says how Flink gives the elements to the subtasks after a change of the parallelism.
    """

    name: str
    mode: Literal["split", "union", "broadcast"]
    offsets: tuple[int, ...]


@dataclass(frozen=True)
class OperatorHandle:
    """States without key in one stream (``OperatorStreamStateHandle``, types 4 and 17)."""

    states: tuple[OperatorStateOffsets, ...]
    stream: StreamHandle


def stream_size(handle: StreamHandle) -> int:
    """The bytes that a handle stands for."""
    if isinstance(handle, InPlace):
        return len(handle.data)
    return 0 if isinstance(handle, EmptyHandle) else handle.size


def described(handle: StreamHandle) -> str:
    """A handle in words, for messages."""
    if isinstance(handle, InPlace):
        return f"{len(handle.data)} bytes in place ({shown(handle.name)})"
    if isinstance(handle, FileHandle):
        return f"file {shown(handle.uri)} of {handle.size} bytes"
    if isinstance(handle, RelativeHandle):
        return f"relative file {shown(handle.path)} of {handle.size} bytes"
    if isinstance(handle, SegmentHandle):
        return f"{handle.size} bytes from byte {handle.start} on of file {shown(handle.uri)}"
    return "an empty segment"


def unreadable(handle: UnreadableHandle, where: str) -> UnsupportedError:
    """The error for keyed state that cannot be read; ``where`` names the file and the operator."""
    last = handle.first_group + handle.groups - 1
    return UnsupportedError(
        ErrorCode.FLINK_UNSUPPORTED,
        f"{where}: found handle type {handle.type} ({handle.why}) for key groups {handle.first_group} to {last}: "
        "take a canonical savepoint of the job (flink savepoint --type canonical) and read that",
    )
