"""The files that the state of an operator needs, and where they lie: in the snapshot's folder, or in another one."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from statestore.formats.engine import StateFile
from statestore.formats.errors import CorruptError
from statestore.formats.flink.snapshot.file_places import StoredHandle
from statestore.formats.flink.snapshot.handles import (
    EmptyHandle,
    FileHandle,
    InPlace,
    KeyGroupHandle,
    RocksHandle,
    SegmentHandle,
    StreamHandle,
    UnreadableHandle,
    stream_size,
)
from statestore.formats.flink.snapshot.metadata import OperatorSnapshot
from statestore.formats.flink.snapshot.snapshot_files import SnapshotFiles

MISSING, DAMAGED = "missing", "damaged"


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
    return sum(stream_size(handle) for _, handle in handles_of(operator))


def handles_of(operator: OperatorSnapshot) -> Iterator[tuple[str, StreamHandle]]:
    """Yield the handles of an operator's state, each with its role."""
    for subtask in operator.subtasks:
        for keyed, role in ((subtask.managed_keyed, "keyed state"), (subtask.raw_keyed, "timers")):
            if isinstance(keyed, RocksHandle):
                yield "header", keyed.meta
                for name, handle in (*keyed.shared, *keyed.private):
                    yield ("table" if name.endswith(".sst") else "RocksDB file"), handle
            elif isinstance(keyed, KeyGroupHandle):
                yield role, keyed.stream
            else:
                assert keyed is None or isinstance(keyed, UnreadableHandle)
        for elements in (subtask.managed_operator, subtask.raw_operator):
            if elements is not None:
                yield "operator state", elements.stream
