"""Restoring a new local database from the parts of a snapshot.

If there is one part with exactly the requested key groups, its files are linked and opened in place. Otherwise rows of
the requested groups are inserted, regardless of which other groups and parts there are.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from statestore.catalog.keyed.rows.database import LocalDatabase
from statestore.catalog.keyed.rows.state_rows import Grouped, decoder, encoder, group_bytes, widened
from statestore.catalog.keyed.rows.state_spec import StateDescriptor
from statestore.catalog.keyed.snapshots.snapshot_part import SnapshotPart, StateSegment
from statestore.catalog.keyed.snapshots.stored_files import link_files, opened
from statestore.catalog.log.storage import Storage
from statestore.formats.places.disk_errors import disk_errors
from statestore.formats.rocksdb.key_ranges import KeyRange
from statestore.formats.rocksdb.scan import scan_rocksdb
from statestore.formats.segments.ipc_file import open_file, verify_column
from statestore.formats.segments.segment_meta import FileRef

Specs = dict[str, StateDescriptor]
FETCHED_BYTES = 64 << 20
"""About so much of a segment in an object store is fetched at a time."""


def opens_in_place(parts: Sequence[SnapshotPart], key_groups: range) -> bool:
    """Return whether `link_database` can restore the key groups from these parts."""
    return len(parts) == 1 and parts[0].kind == "incremental" and parts[0].key_groups == key_groups


def link_database(storage: Storage, part: SnapshotPart, directory: Path) -> None:
    """Make the files of an incremental part a database; table files are linked, as RocksDB never writes to them again.

    Raises NotFoundError SNAPSHOT_FILE_MISSING, CorruptError SEGMENT_CORRUPT, after which the directory is removed.
    """
    with disk_errors("make a folder", directory):
        directory.mkdir(parents=True)
    try:
        shared, private = (
            {directory / name: file for name, file in files.items()} for files in (part.shared, part.private)
        )
        link_files(storage, shared, private)
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise


def insert(
    storage: Storage, part: SnapshotPart, key: pa.Schema, key_groups: range, specs: Specs, database: LocalDatabase
) -> None:
    """Insert the rows of a part whose groups are in the range into a database, in the types of ``specs``.

    The database has column families for these states.
    """
    groups = range(max(part.key_groups.start, key_groups.start), min(part.key_groups.stop, key_groups.stop))
    if not groups:
        return
    if part.kind == "full":
        rows = _of_tables(storage, part, key, groups, specs)
    else:
        rows = _of_files(storage, part, key, groups, specs, database.directory.parent)
    for state, stored in rows:
        database.load(state, stored)


StateBatches = Iterator[tuple[str, pa.RecordBatch]]


def _of_tables(storage: Storage, part: SnapshotPart, key: pa.Schema, groups: range, specs: Specs) -> StateBatches:
    for spec in part.states:
        if (table := part.tables.get(spec.name)) is not None:
            wide, encode = widened(key, specs[spec.name]), encoder(key, specs[spec.name])
            for found in table_rows(storage, table, groups):
                yield spec.name, encode(wide(found))


def table_rows(storage: Storage, table: StateSegment, groups: range) -> Iterator[Grouped]:
    """Yield the rows of some groups of a state in a full snapshot, in batches; only their bytes are compared and read.

    Raises NotFoundError SNAPSHOT_FILE_MISSING, CorruptError SEGMENT_CORRUPT or SEGMENT_TRUNCATED.
    """
    edges = np.array(table.groups)
    first, last = groups.start - table.first_group, groups.stop - table.first_group
    begin, end = int(edges[first]), int(edges[last])
    if begin == end:
        return
    with opened(storage, table.file) as verified:
        storage.fetch_ahead([(table.file, table.file.metadata_ranges)])
        at, fetched = 0, 0
        batches = open_file(verified)[1]
        for number, batch in enumerate(batches):
            low, high = max(begin - at, 0), min(end - at, batch.num_rows)
            if low < high:
                if number >= fetched:
                    fetched = _fetch_batches(storage, table.file, batches, number, end - at)
                columns = [verify_column(verified, batch, number) for number in range(batch.num_columns)]
                rows = pa.RecordBatch.from_arrays(columns, schema=batch.schema).slice(low, high - low)
                positions = np.arange(at + low, at + high)
                yield Grouped(np.searchsorted(edges, positions, "right") - 1 + table.first_group, rows)
            at += batch.num_rows


def _fetch_batches(storage: Storage, file: FileRef, batches: Sequence[pa.RecordBatch], first: int, rows: int) -> int:
    """Fetch batches from ``first`` on that have ``rows`` rows, up to FETCHED_BYTES, of a file in an object store.

    Return the number of the first batch that was not fetched.
    """
    starts = [start for start, _ in file.metadata_ranges[1:]]  # of each batch, then of the footer
    last = first
    while last < len(batches) and rows > 0 and (last == first or starts[last + 1] - starts[first] <= FETCHED_BYTES):
        rows -= batches[last].num_rows
        last += 1
    storage.fetch_ahead([(file, [(starts[first], starts[last] - starts[first])])])
    return last


def _of_files(
    storage: Storage, part: SnapshotPart, key: pa.Schema, groups: range, specs: Specs, local: Path
) -> StateBatches:
    """Yield rows from a temporary database in ``local``; its files are removed with that folder if the process is
    killed.
    """
    directory = local / f"restoring-{uuid.uuid4().hex}"
    try:
        link_database(storage, part, directory)
        for old in part.states:
            each = converter(key, old, specs[old.name])
            for batch in scan_rocksdb(directory, each, family=old.name, key_ranges=[stored_range(groups)]):
                yield old.name, batch
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def converter(key: pa.Schema, old: StateDescriptor, new: StateDescriptor) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """Return a function from stored rows of a state to its stored rows after a migration."""
    if old.value == new.value:
        return _same
    decode, wide, encode = decoder(key, old), widened(key, new), encoder(key, new)
    return lambda stored: encode(wide(decode(stored)))


def stored_range(groups: range) -> KeyRange:
    """Return the range of the stored keys of some key groups."""
    return KeyRange(group_bytes(groups.start), group_bytes(groups.stop) if groups.stop < 1 << 15 else None)


def _same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch
