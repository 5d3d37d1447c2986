"""Taking snapshots: at once a RocksDB checkpoint of hard links, which later writes do not touch; then, in a thread,
what the snapshot keeps of it is written into the store's folder.

A full snapshot has an Arrow segment for each state, its rows by key group. An incremental one has RocksDB's own files:
table files that the last confirmed snapshot of the same backend has are named again and not written. Cancelled or
failed, it leaves nothing.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from statestore.catalog.keyed.rows.state_spec import StateDescriptor
from statestore.catalog.keyed.rows.state_table_rows import Ints, decoder, table_schema
from statestore.catalog.keyed.snapshots.snapshot_part import (
    PRIVATE,
    PRIVATE_FILE,
    SEGMENTS,
    SHARED,
    TABLE_FILE,
    SnapshotPart,
    StateSegment,
)
from statestore.catalog.keyed.snapshots.stored_files import remove_if_possible, store_batches, store_copy
from statestore.formats.errors import ConflictError
from statestore.formats.places.disk_errors import disk_errors, storage_error
from statestore.formats.places.forks import forked_error
from statestore.formats.rocksdb.scan import scan_rocksdb
from statestore.formats.segments.segment_meta import FileRef

Check = Callable[[], None]


@dataclass(frozen=True)
class Running:
    """A snapshot under way."""

    future: Future[SnapshotPart]
    cancelled: threading.Event
    process: int

    def result(self, timeout: float | None = None) -> SnapshotPart:
        """Waits for the task's part, at most ``timeout`` seconds (TimeoutError).

        Raises ConflictError SNAPSHOT_CANCELLED, or what went wrong; UnsupportedError FORKED in a fork, which does not
        have the thread that writes it.
        """
        if os.getpid() != self.process:
            raise forked_error("a snapshot cannot be waited for")
        return self.future.result(timeout)

    def done(self) -> bool:
        """Whether `result` answers at once."""
        return self.future.done()

    def cancel(self) -> None:
        """Have it end soon and leave nothing; one that is done stays."""
        self.cancelled.set()


def start(
    checkpoint: Path, folder: Path, key: pa.Schema, handle: SnapshotPart, base: SnapshotPart | None, owner: object
) -> Running:
    """Write the snapshot that ``handle`` begins to describe, of the RocksDB checkpoint in ``checkpoint``, which is
    removed in the end. ``base``: the confirmed snapshot that an incremental one builds on. ``owner`` is held until
    then: a backend that nobody holds removes its local files."""
    running = Running(Future(), threading.Event(), os.getpid())

    def check() -> None:
        if running.cancelled.is_set():
            raise ConflictError("SNAPSHOT_CANCELLED", "the snapshot was cancelled; nothing of it was kept")

    def work(_owner: object) -> None:
        written: list[FileRef] = []
        try:
            if handle.kind == "full":
                found = _full(checkpoint, folder, key, handle, check, written)
            else:
                found = _incremental(checkpoint, folder, handle, base, check, written)
            check()
        except BaseException as error:
            try:
                remove_if_possible(folder, written)
                _remove(checkpoint)
            finally:  # whoever waits gets an answer, whatever fails
                running.future.set_exception(error)
        else:
            try:
                _remove(checkpoint)
            finally:
                running.future.set_result(found)

    try:
        threading.Thread(target=work, args=(owner,), name="statestore-snapshot", daemon=True).start()
    except RuntimeError as error:  # the system has no more threads
        _remove(checkpoint)
        refusal = OSError(errno.EAGAIN, str(error))
        raise storage_error(refusal, "start a thread that writes the snapshot", checkpoint) from error
    return running


def _remove(checkpoint: Path) -> None:
    """What the disk refuses to remove goes with the backend's other local files."""
    with contextlib.suppress(OSError):
        shutil.rmtree(checkpoint, ignore_errors=True)


def _full(
    checkpoint: Path, folder: Path, key: pa.Schema, handle: SnapshotPart, check: Check, written: list[FileRef]
) -> SnapshotPart:
    tables: dict[str, StateSegment] = {}
    for spec in handle.states:
        counts = np.zeros(len(handle.key_groups), np.int64)
        batches = _rows(checkpoint, key, spec, handle.key_groups, counts, check)
        file = store_batches(folder, SEGMENTS, table_schema(key, spec), batches, check)
        if file is not None:
            written.append(file)
            ends = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
            tables[spec.name] = StateSegment(file, handle.key_groups.start, tuple(ends.tolist()))
    return replace(handle, tables=tables)


def _rows(
    checkpoint: Path, key: pa.Schema, spec: StateDescriptor, groups: range, counts: Ints, check: Check
) -> Iterator[pa.RecordBatch]:
    """The rows of a state, which are counted by key group as they come."""
    for found in scan_rocksdb(checkpoint, decoder(key, spec), family=spec.name):
        check()
        counts += np.bincount(found.groups - groups.start, minlength=len(groups))
        yield found.rows


def _incremental(
    checkpoint: Path,
    folder: Path,
    handle: SnapshotPart,
    base: SnapshotPart | None,
    check: Check,
    written: list[FileRef],
) -> SnapshotPart:
    known: Mapping[str, FileRef] = {} if base is None else base.shared
    shared: dict[str, FileRef] = {}
    private: dict[str, FileRef] = {}
    reused = set()
    with disk_errors("list", checkpoint):
        sizes = {path: path.stat().st_size for path in sorted(checkpoint.iterdir())}
    for path, size in sizes.items():
        check()
        if TABLE_FILE.fullmatch(path.name):
            same = known.get(path.name)
            if same is None or same.bytes != size:
                same = store_copy(folder, SHARED, path, check)
                written.append(same)
            else:
                reused.add(same.name)
            shared[path.name] = same
        elif PRIVATE_FILE.fullmatch(path.name):
            private[path.name] = store_copy(folder, PRIVATE, path, check)
            written.append(private[path.name])
    return replace(handle, shared=shared, private=private, reused=frozenset(reused))
