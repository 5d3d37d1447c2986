"""Taking snapshots: a RocksDB checkpoint of hard links at once, from which a thread then writes the store's files.

Later writes do not touch the checkpoint. A full snapshot has an Arrow segment for each state, with its rows by key
group. An incremental snapshot has RocksDB's own files; table files that the last confirmed snapshot of the same backend
has are named again and not written. A cancelled or failed snapshot leaves nothing.
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

from statestore.catalog.keyed.rows.state_rows import decoder, table_schema
from statestore.catalog.keyed.rows.state_spec import StateDescriptor
from statestore.catalog.keyed.snapshots.snapshot_part import (
    PRIVATE,
    PRIVATE_FILE,
    SEGMENTS,
    SHARED,
    TABLE_FILE,
    SnapshotPart,
    StateSegment,
)
from statestore.catalog.keyed.snapshots.stored_files import (
    remove_if_possible,
    side_by_side,
    store_batches,
    store_copy,
)
from statestore.catalog.log.storage import Storage
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import ConflictError
from statestore.formats.kernels.arrays import Ints
from statestore.formats.places.disk_errors import disk_errors, storage_error
from statestore.formats.places.rocksdb_forks import forked_error
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
        """Wait for the task's part, at most ``timeout`` seconds (TimeoutError).

        Raises ConflictError SNAPSHOT_CANCELLED, or the error of the snapshot; UnsupportedError FORKED in a fork, which
        does not have the thread that writes it.
        """
        if os.getpid() != self.process:
            raise forked_error("the result of a snapshot cannot be waited for")
        return self.future.result(timeout)

    def done(self) -> bool:
        """Return whether `result` returns without waiting."""
        return self.future.done()

    def cancel(self) -> None:
        """Make the snapshot end soon and leave nothing; a finished snapshot stays."""
        self.cancelled.set()


def start(
    linked: Path, storage: Storage, key: pa.Schema, part: SnapshotPart, base: SnapshotPart | None, owner: object
) -> Running:
    """Write the snapshot that ``part`` begins to describe from the RocksDB checkpoint in ``linked``.

    The checkpoint is removed at the end. ``base`` is the confirmed snapshot on which an incremental one builds.
    ``owner`` is kept alive until then: a backend without references removes its local files.
    """
    running = Running(Future(), threading.Event(), os.getpid())

    def check() -> None:
        if running.cancelled.is_set():
            raise ConflictError(ErrorCode.SNAPSHOT_CANCELLED, "the snapshot was cancelled; none of it was kept")

    def work(_owner: object) -> None:
        written: list[FileRef] = []
        try:
            if part.kind == "full":
                taken = _full(linked, storage, key, part, check, written)
            else:
                taken = _incremental(linked, storage, part, base, check, written)
            check()
        except BaseException as error:
            try:
                remove_if_possible(storage, written)
                _remove(linked)
            finally:  # a waiting caller gets a result, whatever fails
                running.future.set_exception(error)
        else:
            try:
                _remove(linked)
            finally:
                running.future.set_result(taken)

    try:
        threading.Thread(target=work, args=(owner,), name="statestore-snapshot", daemon=True).start()
    except RuntimeError as error:  # the system has no more threads
        _remove(linked)
        refusal = OSError(errno.EAGAIN, str(error))
        raise storage_error(refusal, "start a thread that writes the snapshot", linked) from error
    return running


def _remove(linked: Path) -> None:
    """Remove the checkpoint where possible; remaining files are removed with the backend's other local files."""
    with contextlib.suppress(OSError):
        shutil.rmtree(linked, ignore_errors=True)


def _full(
    linked: Path, storage: Storage, key: pa.Schema, part: SnapshotPart, check: Check, written: list[FileRef]
) -> SnapshotPart:
    tables: dict[str, StateSegment] = {}
    for spec in part.states:
        counts = np.zeros(len(part.key_groups), np.int64)
        batches = _rows(linked, key, spec, part.key_groups, counts, check)
        file = store_batches(storage, SEGMENTS, table_schema(key, spec), batches, check, linked.parent)
        if file is not None:
            written.append(file)
            ends = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
            tables[spec.name] = StateSegment(file, part.key_groups.start, tuple(ends.tolist()))
    return replace(part, tables=tables)


def _rows(
    linked: Path, key: pa.Schema, spec: StateDescriptor, groups: range, counts: Ints, check: Check
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a state and count them by key group."""
    for grouped in scan_rocksdb(linked, decoder(key, spec), family=spec.name):
        check()
        counts += np.bincount(grouped.groups - groups.start, minlength=len(groups))
        yield grouped.rows


def _incremental(
    linked: Path,
    storage: Storage,
    part: SnapshotPart,
    base: SnapshotPart | None,
    check: Check,
    written: list[FileRef],
) -> SnapshotPart:
    base_files: Mapping[str, FileRef] = {} if base is None else base.shared
    shared: dict[str, FileRef] = {}
    private: dict[str, FileRef] = {}
    reused, new = set(), []
    with disk_errors("list", linked):
        sizes = {path: path.stat().st_size for path in sorted(linked.iterdir())}
    for path, size in sizes.items():
        if TABLE_FILE.fullmatch(path.name):
            same = base_files.get(path.name)
            if same is None or same.bytes != size:
                new.append((path, SHARED))
            else:
                reused.add(same.name)
                shared[path.name] = same
        elif PRIVATE_FILE.fullmatch(path.name):
            new.append((path, PRIVATE))

    def copy(each: tuple[Path, str]) -> None:
        check()
        path, place = each
        file = store_copy(storage, place, path, check)
        written.append(file)
        (shared if place == SHARED else private)[path.name] = file

    side_by_side(storage, copy, new)
    return replace(part, shared=shared, private=private, reused=frozenset(reused))
