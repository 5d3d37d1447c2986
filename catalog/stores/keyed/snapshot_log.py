"""The log of a keyed store: which snapshots were committed and which discarded, so which files are needed.

One JSON file per version, created once (``catalog.log`` has the names). Version 0 is the empty store. Files are counted
by replaying: a file is needed while a snapshot that was not discarded names it.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from statestore.catalog.log import PUBLISH_ATTEMPTS, entry_name
from statestore.catalog.storage import Storage, StorageExistsError
from statestore.catalog.stores.keyed.snapshot_handle import Handle, StoredFile, handle_from_json
from statestore.formats.errors import ConflictError, CorruptError, InvalidInputError, NotFoundError

Transaction = tuple[str, int]
_OPERATIONS = ("snapshot", "discard")


@dataclass(frozen=True)
class Entry:
    """What one version did; ``timestamp`` is epoch microseconds. A discard names the version it takes away."""

    version: int
    timestamp: int
    operation: str
    writer: str
    transaction: Transaction | None
    handles: tuple[Handle, ...] = ()
    discarded: int | None = None


@dataclass(frozen=True)
class SnapshotLog:
    """All entries, by version from 1 on."""

    entries: tuple[Entry, ...]

    @property
    def newest(self) -> int:
        return len(self.entries)

    def retained(self) -> dict[int, Entry]:
        """The snapshots that can be restored, by version, oldest first."""
        gone = {entry.discarded for entry in self.entries if entry.operation == "discard"}
        return {e.version: e for e in self.entries if e.operation == "snapshot" and e.version not in gone}

    def files(self) -> dict[str, StoredFile]:
        """All files that retained snapshots name."""
        parts = (handle for entry in self.retained().values() for handle in entry.handles)
        return {name: file for handle in parts for name, file in handle.files().items()}

    def transaction(self, asked: Transaction) -> int | None:
        """The version that committed it, whether it was discarded since or not."""
        return next((entry.version for entry in self.entries if entry.transaction == asked), None)

    def snapshot(self, version: int | None) -> Entry | None:
        """A retained snapshot, the newest by default; None if there is none yet, and for version 0.

        Raises NotFoundError VERSION_NOT_FOUND, naming those that are kept.
        """
        kept = self.retained()
        if version == 0 or (version is None and not kept):
            return None
        if version is None:
            return kept[max(kept)]
        if version not in kept:
            told = ", ".join(map(str, kept)) or "none"
            raise NotFoundError("VERSION_NOT_FOUND", f"no snapshot {version!r} is kept; there are {told}")
        return kept[version]


def read_log(storage: Storage, known: SnapshotLog = SnapshotLog(())) -> SnapshotLog:
    """The log as it is now, from what was read before on. Raises CorruptError LOG_CORRUPT."""
    entries = list(known.entries)
    while storage.exists(entry_name(len(entries) + 1)):
        name = entry_name(len(entries) + 1)
        entries.append(_decoded(name, storage.read(name), len(entries) + 1))
    return SnapshotLog(tuple(entries))


def publish(storage: Storage, entry: Entry) -> bool:
    """Make the version exist; false if another writer has it."""
    data = json.dumps(_to_json(entry) | {"format": 1, "id": uuid.uuid4().hex}).encode()
    name = entry_name(entry.version)
    for _ in range(PUBLISH_ATTEMPTS):
        try:
            storage.create(name, data)
            return True
        except StorageExistsError:
            if storage.exists(name):
                return storage.read(name) == data
    raise ConflictError("VERSION_TAKEN", f"version {entry.version} could not be written; try again")


def check_complete(handles: Sequence[Handle], max_parallelism: int) -> None:
    """InvalidInputError INCOMPLETE_SNAPSHOT unless the parts have every key group once."""
    at = 0
    for handle in sorted(handles, key=lambda part: part.key_groups.start):
        if handle.key_groups.start != at:
            break
        at = handle.key_groups.stop
    else:
        if at == max_parallelism:
            return
    told = ", ".join(f"{part.key_groups.start} to {part.key_groups.stop - 1}" for part in handles) or "none"
    raise InvalidInputError(
        "INCOMPLETE_SNAPSHOT",
        f"parts with key groups {told}; expected each of 0 to {max_parallelism - 1} once: commit all parts",
    )


def _to_json(entry: Entry) -> dict[str, Any]:
    return {
        "version": entry.version,
        "timestamp": entry.timestamp,
        "operation": entry.operation,
        "writer": entry.writer,
        "transaction": entry.transaction,
        "handles": [handle.to_json() for handle in entry.handles],
        "discarded": entry.discarded,
    }


def _decoded(name: str, data: bytes, version: int) -> Entry:
    try:
        found: Mapping[str, Any] = json.loads(data)
        if found["version"] != version or found["operation"] not in _OPERATIONS or found["format"] != 1:
            raise ValueError("not the version, operation or format that was expected")
        transaction = found["transaction"]
        return Entry(
            version,
            int(found["timestamp"]),
            found["operation"],
            str(found["writer"]),
            None if transaction is None else (str(transaction[0]), int(transaction[1])),
            tuple(handle_from_json(handle) for handle in found["handles"]),
            None if found["discarded"] is None else int(found["discarded"]),
        )
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise CorruptError("LOG_CORRUPT", f"{name}: {error!r}; restore it from a copy") from error
