"""A keyed store: backends for its tasks, and the snapshots that they commit together."""

from __future__ import annotations

import shutil
import tempfile
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

from statestore.catalog.storage import LocalStorage
from statestore.catalog.store_spec import StoreSpec
from statestore.catalog.stores.keyed.backend import KeyedBackend
from statestore.catalog.stores.keyed.snapshot_handle import Handle
from statestore.catalog.stores.keyed.snapshot_log import (
    Entry,
    SnapshotLog,
    Transaction,
    check_complete,
    publish,
    read_log,
)
from statestore.catalog.write import writer_name
from statestore.formats.errors import ConflictError, InvalidInputError


class KeyedStore:
    """Handle of a store of kind "keyed". Tasks each open a `backend` on their key groups, of the same version."""

    def __init__(self, storage: LocalStorage, spec: StoreSpec) -> None:
        self.spec = spec
        self._storage = storage
        self._folder = storage.root
        self._log = SnapshotLog(())

    def backend(
        self, key_groups: range | None = None, *, version: int | None = None, directory: Path | None = None
    ) -> KeyedBackend:
        """A backend for some key groups, all by default, with what the newest snapshot (or that of ``version``; 0:
        none) has for them, however many tasks wrote it. ``directory`` is for its local files, else a temporary one.

        Raises NotFoundError VERSION_NOT_FOUND or SNAPSHOT_FILE_MISSING, CorruptError SNAPSHOT_FILE_CORRUPT,
        InvalidInputError INVALID_KEY_GROUPS.
        """
        groups = range(self.spec.key_groups) if key_groups is None else key_groups
        if not groups or groups.step != 1 or groups.start < 0 or groups.stop > self.spec.key_groups:
            raise InvalidInputError(
                "INVALID_KEY_GROUPS", f"key groups {key_groups!r}; expected a range in 0 to {self.spec.key_groups - 1}"
            )
        entry = self._read().snapshot(version)
        parts = [] if entry is None else [h for h in entry.handles if _overlap(h.key_groups, groups)]
        root = Path(tempfile.mkdtemp(prefix="statestore-")) if directory is None else directory
        try:
            local = root / uuid.uuid4().hex
            return KeyedBackend(local, self.spec.key, groups, self.spec.key_groups, self._folder, parts)
        except BaseException:
            if directory is None:
                shutil.rmtree(root, ignore_errors=True)
            raise

    def commit(self, handles: Sequence[Handle], *, transaction: Transaction | None = None) -> int:
        """The parts of all tasks as one snapshot: the version it has. Of a ``transaction`` (application, number) that
        was committed before, that version; the files of the parts given now are removed.

        Raises InvalidInputError INCOMPLETE_SNAPSHOT, ConflictError BASE_DISCARDED.
        """
        check_complete(handles, self.spec.key_groups)
        while True:
            log = self._read()
            if transaction is not None and (before := log.transaction(transaction)) is not None:
                self._remove([file for part in handles for file in part.files()])
                return before
            self._check_files(log, handles)
            version = log.newest + 1
            entry = Entry(version, _now(log), "snapshot", writer_name(), transaction, tuple(handles))
            if publish(self._storage, entry):
                return version

    def discard(self, version: int) -> None:
        """Take a snapshot away, and all files that no other one names. Raises NotFoundError VERSION_NOT_FOUND."""
        while True:
            log = self._read()
            entry = log.snapshot(version)
            if entry is None:
                raise InvalidInputError("INVALID_VERSION", "version 0 is the empty store; it can not be discarded")
            new = Entry(log.newest + 1, _now(log), "discard", writer_name(), None, (), version)
            if publish(self._storage, new):
                self._remove([file for part in entry.handles for file in part.files()])
                return

    def versions(self) -> list[int]:
        """The snapshots that are kept, oldest first."""
        return list(self._read().retained())

    def _read(self) -> SnapshotLog:
        self._log = read_log(self._storage, self._log)
        return self._log

    def _check_files(self, log: SnapshotLog, handles: Sequence[Handle]) -> None:
        """What an incremental part names again must still be there: its base may have been discarded meanwhile."""
        for part in handles:
            for name in part.files():
                if not (self._folder / name).exists():
                    raise ConflictError(
                        "BASE_DISCARDED",
                        f"{name} is gone: the snapshot that this one builds on was discarded; take a new one",
                    )

    def _remove(self, names: Sequence[str]) -> None:
        needed = self._read().files()
        for name in names:
            if name not in needed:
                (self._folder / name).unlink(missing_ok=True)


def _now(log: SnapshotLog) -> int:
    """Epoch microseconds, at least those of the newest version."""
    now = time.time_ns() // 1_000_000 * 1_000
    return max(now, log.entries[-1].timestamp) if log.entries else now


def _overlap(left: range, right: range) -> bool:
    return left.start < right.stop and right.start < left.stop
