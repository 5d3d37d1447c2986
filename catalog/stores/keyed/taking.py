"""Taking snapshots: at once a RocksDB checkpoint of hard links, which later writes do not touch; then, in a thread,
what the snapshot keeps of it is written into the store's folder.

A full snapshot has an Arrow file for each state, its rows by key group. An incremental one has RocksDB's own files:
table files that the last confirmed snapshot of the same backend has are named again and not written. Cancelled or
failed, it leaves nothing.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from statestore.catalog.stores.keyed.snapshot_handle import Handle, StateFile, StoredFile
from statestore.catalog.stores.keyed.state_spec import StateSpec
from statestore.catalog.stores.keyed.state_table_rows import decoder, table_schema
from statestore.catalog.stores.keyed.stored_files import new_file, store_copy
from statestore.formats.errors import ConflictError
from statestore.formats.rocksdb.scan import scan_rocksdb

TABLES, SHARED, PRIVATE = "tables", "shared", "private"
_KEPT_PRIVATE = ("CURRENT", "MANIFEST-", "OPTIONS-")


@dataclass(frozen=True)
class Running:
    """A snapshot under way. ``result`` waits for its handle; `cancel` has it end and leave nothing."""

    future: Future[Handle]
    cancelled: threading.Event

    def result(self, timeout: float | None = None) -> Handle:
        """Raises ConflictError SNAPSHOT_CANCELLED, or what went wrong. ``timeout`` is in seconds."""
        return self.future.result(timeout)

    def done(self) -> bool:
        return self.future.done()

    def cancel(self) -> None:
        self.cancelled.set()


def start(checkpoint: Path, folder: Path, key: pa.Schema, handle: Handle, base: Handle | None) -> Running:
    """Write the snapshot that ``handle`` begins to describe, of the RocksDB checkpoint in ``checkpoint``, which is
    removed in the end. ``base``: the confirmed snapshot that an incremental one builds on."""
    running = Running(Future(), threading.Event())

    def work() -> None:
        written: list[StoredFile] = []
        try:
            check = _checker(running)
            if handle.kind == "full":
                found = _full(checkpoint, folder, key, handle, check, written)
            else:
                found = _incremental(checkpoint, folder, handle, base, check, written)
            check()
        except BaseException as error:
            for file in written:
                (folder / file.name).unlink(missing_ok=True)
            shutil.rmtree(checkpoint, ignore_errors=True)
            running.future.set_exception(error)
        else:
            shutil.rmtree(checkpoint, ignore_errors=True)
            running.future.set_result(found)

    threading.Thread(target=work, name="statestore-snapshot", daemon=True).start()
    return running


def _checker(running: Running) -> Callable[[], None]:
    def check() -> None:
        if running.cancelled.is_set():
            raise ConflictError("SNAPSHOT_CANCELLED", "the snapshot was cancelled; nothing of it was kept")

    return check


def _full(
    checkpoint: Path, folder: Path, key: pa.Schema, handle: Handle, check: Callable[[], None], written: list[StoredFile]
) -> Handle:
    tables: dict[str, StateFile] = {}
    for spec in handle.states:
        found = _write_table(checkpoint, folder, key, spec, handle.key_groups, check)
        if found is not None:
            written.append(found.file)
            tables[spec.name] = found
    return replace(handle, tables=tables)


def _write_table(
    checkpoint: Path, folder: Path, key: pa.Schema, spec: StateSpec, groups: range, check: Callable[[], None]
) -> StateFile | None:
    """None of a state without rows."""
    counts = np.zeros(len(groups), np.int64)
    batches: Iterator[pa.RecordBatch] = _rows(checkpoint, key, spec, groups, counts, check)
    first = next(batches, None)
    if first is None:
        return None
    schema = table_schema(key, spec)
    with (
        new_file(folder, TABLES, ".arrow") as target,
        pa.ipc.new_file(pa.PythonFile(target, "w"), schema) as writer,
    ):
        writer.write_batch(first)
        for batch in batches:
            writer.write_batch(batch)
    ends = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
    return StateFile(target.stored(), groups.start, tuple(ends.tolist()))


def _rows(
    checkpoint: Path,
    key: pa.Schema,
    spec: StateSpec,
    groups: range,
    counts: np.ndarray[tuple[int], np.dtype[np.int64]],
    check: Callable[[], None],
) -> Iterator[pa.RecordBatch]:
    for found in scan_rocksdb(checkpoint, decoder(key, spec), family=spec.name):
        check()
        counts += np.bincount(found.groups - groups.start, minlength=len(groups))
        yield found.rows


def _incremental(
    checkpoint: Path,
    folder: Path,
    handle: Handle,
    base: Handle | None,
    check: Callable[[], None],
    written: list[StoredFile],
) -> Handle:
    known: Mapping[str, StoredFile] = {} if base is None else base.shared
    shared: dict[str, StoredFile] = {}
    private: dict[str, StoredFile] = {}
    for path in sorted(checkpoint.iterdir()):
        check()
        if path.suffix == ".sst":
            same = known.get(path.name)
            if same is None or same.bytes != path.stat().st_size:
                same = store_copy(folder, SHARED, path)
                written.append(same)
            shared[path.name] = same
        elif path.name.startswith(_KEPT_PRIVATE):
            private[path.name] = store_copy(folder, PRIVATE, path)
            written.append(private[path.name])
    return replace(handle, shared=shared, private=private)
