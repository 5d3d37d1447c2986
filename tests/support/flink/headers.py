"""The backend headers in the fixtures' savepoints and checkpoints, with the bytes that hold them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from statestore.formats.flink.snapshot.handles import KeyGroupHandle, RocksHandle, stream_size
from statestore.formats.flink.snapshot.snapshot_files import SnapshotFiles
from statestore.formats.places.folder import folder_at
from statestore.formats.places.locations import parse_location
from support.flink.fixtures import fixture, snapshots


@dataclass(frozen=True)
class HeaderBytes:
    """The header of one subtask's keyed backend: bytes that begin with it, and where it ends."""

    run: str
    kind: str
    truth: str
    operator: str
    data: bytes
    end: int


@cache
def keyed_headers() -> tuple[HeaderBytes, ...]:
    """One header of each operator, of each readable snapshot of each run."""
    return tuple(_found())


def _found() -> Iterator[HeaderBytes]:
    for run, facts in snapshots():
        if run == "changelog" and facts["kind"] == "checkpoint":
            continue
        files = SnapshotFiles(folder_at(parse_location(fixture(run) / facts["path"])))
        for operator in files.metadata().operators:
            for subtask in operator.subtasks:
                handle = subtask.managed_keyed
                if isinstance(handle, KeyGroupHandle):
                    end = min((offset for offset in handle.offsets if offset > 0), default=stream_size(handle.stream))
                    with files.open_at(handle.stream) as part:
                        data = part.read_at(0, end)
                elif isinstance(handle, RocksHandle):
                    data = files.read(handle.meta)
                else:
                    continue
                name = operator.uid or operator.id
                yield HeaderBytes(run, facts["kind"], facts["truth"], name, data, len(data))
                break
