"""Filling a new local database from the parts of a snapshot: linked and opened in place where one part is for just
these key groups, else row by row for the groups that are asked for, whatever other groups and parts there are."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa

from statestore.catalog.stores.keyed.database import LocalDatabase
from statestore.catalog.stores.keyed.row_keys import group_bytes
from statestore.catalog.stores.keyed.snapshot_handle import Handle, StateFile
from statestore.catalog.stores.keyed.state_spec import StateSpec
from statestore.catalog.stores.keyed.state_table_rows import Grouped, encoder
from statestore.catalog.stores.keyed.stored_files import checked, place_copy
from statestore.formats.rocksdb.key_ranges import KeyRange
from statestore.formats.rocksdb.scan import scan_rocksdb


def opens_in_place(handles: Sequence[Handle], key_groups: range) -> bool:
    """Whether `place` will do."""
    return len(handles) == 1 and handles[0].kind == "incremental" and handles[0].key_groups == key_groups


def place(folder: Path, handle: Handle, directory: Path) -> None:
    """The files of an incremental part as a database: table files linked, as RocksDB never writes to them again.

    Raises NotFoundError SNAPSHOT_FILE_MISSING, CorruptError SNAPSHOT_FILE_CORRUPT; then the directory is gone.
    """
    directory.mkdir(parents=True)
    try:
        for name, file in handle.shared.items():
            place_copy(folder, file, directory / name, linked=True)
        for name, file in handle.private.items():
            place_copy(folder, file, directory / name, linked=False)
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise


def insert(folder: Path, handle: Handle, key: pa.Schema, key_groups: range, database: LocalDatabase) -> None:
    """The rows of a part whose groups are in the range, into a database that has column families for its states."""
    groups = range(max(handle.key_groups.start, key_groups.start), min(handle.key_groups.stop, key_groups.stop))
    if not groups:
        return
    rows = _of_tables if handle.kind == "full" else _of_files
    for state, stored in rows(folder, handle, key, groups):
        database.load(state, stored)


Rows = Iterator[tuple[str, pa.RecordBatch]]


def _of_tables(folder: Path, handle: Handle, key: pa.Schema, groups: range) -> Rows:
    specs = {spec.name: spec for spec in handle.states}
    for name, table in handle.tables.items():
        for found in table_rows(folder, table, groups):
            yield name, encoder(key, specs[name])(found)


def table_rows(folder: Path, table: StateFile, groups: range) -> Iterator[Grouped]:
    """The rows of some groups of a state in a full snapshot, in batches."""
    edges = np.array(table.groups)
    first, last = groups.start - table.first_group, groups.stop - table.first_group
    begin, end = int(edges[first]), int(edges[last])
    if begin == end:
        return
    with pa.memory_map(str(checked(folder, table.file))) as source:
        at = 0
        reader = pa.ipc.open_file(source)
        for number in range(reader.num_record_batches):
            batch = reader.get_batch(number)
            low, high = max(begin - at, 0), min(end - at, batch.num_rows)
            if low < high:
                places = np.arange(at + low, at + high)
                yield Grouped(
                    np.searchsorted(edges, places, "right") - 1 + table.first_group, batch.slice(low, high - low)
                )
            at += batch.num_rows


def _of_files(folder: Path, handle: Handle, key: pa.Schema, groups: range) -> Rows:
    within = KeyRange(group_bytes(groups.start), group_bytes(groups.stop) if groups.stop < 1 << 15 else None)
    with TemporaryDirectory(prefix="statestore-") as name:
        directory = Path(name, "database")
        place(folder, handle, directory)
        for spec in handle.states:
            for batch in scan_rocksdb(directory, _same, family=spec.name, key_ranges=[within]):
                yield spec.name, batch


def _same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def specs_of(handles: Sequence[Handle]) -> dict[str, StateSpec]:
    """The states of all parts by name."""
    return {spec.name: spec for handle in handles for spec in handle.states}
