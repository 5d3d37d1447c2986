"""The files that the state of an operator needs, and where they lie: in the snapshot's folder, or in another one."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from statestore.formats.engine import StateFile
from statestore.formats.flink.snapshot.handles import (
    EmptyHandle,
    InPlace,
    KeyGroupHandle,
    RocksHandle,
    StreamHandle,
    UnreadableHandle,
    stream_size,
)
from statestore.formats.flink.snapshot.metadata import OperatorSnapshot
from statestore.formats.flink.snapshot.snapshot_files import SnapshotFiles

MISSING = "missing"


def needed_files(files: SnapshotFiles, operator: OperatorSnapshot) -> Iterator[StateFile]:
    """Yield each file once. A name with ``../`` is that of a file which another folder holds.

    The role says what it is: keyed state, timers, operator state, a table or other file of RocksDB. A file that is not
    there is reported by its handle, with the role "missing".
    """
    seen: set[tuple[str, int]] = set()
    for role, handle in _handles(operator):
        if isinstance(handle, InPlace | EmptyHandle):
            continue
        try:
            found = files.locate(handle)
        except KeyError:  # NotFoundError FLINK_FILE_MISSING
            uri = handle.path if not hasattr(handle, "uri") else handle.uri
            if (uri, 0) not in seen:
                seen.add((uri, 0))
                yield StateFile(uri, MISSING, stream_size(handle))
            continue
        if (found.path, found.start) not in seen:
            seen.add((found.path, found.start))
            yield StateFile(posixpath.relpath(found.path, files.folder.path), role, found.size)


def handles_bytes(operator: OperatorSnapshot) -> int:
    """The bytes of an operator's state, in files and in the metadata."""
    return sum(stream_size(handle) for _, handle in _handles(operator))


def _handles(operator: OperatorSnapshot) -> Iterator[tuple[str, StreamHandle]]:
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
