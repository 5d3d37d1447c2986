"""Rows that a checkpoint has written since an earlier one, by the table files that its RocksDB has gained.

As long as no file of the earlier checkpoint is gone from a state, the new ones say all by themselves
(`statestore.formats.rocksdb.written_entries`), also when the earlier checkpoint was removed meanwhile: a process
remembers which files the last checkpoints had. Where a compaction has replaced files of a subtask, its databases are
compared, while both are there.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from statestore.formats.engine import Source, StateAt
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import StateStoreError, UnsupportedError
from statestore.formats.flink.differing_snapshots import compared_databases, stored_as, stored_rows
from statestore.formats.flink.snapshot.handles import RelativeHandle, RocksHandle
from statestore.formats.flink.snapshot.rocksdb_copy import DELIMITER, listing_files, opened_tables
from statestore.formats.flink.snapshot.snapshot_files import SnapshotFiles
from statestore.formats.flink.state_at import KeyedAt, Origin
from statestore.formats.flink.streams.keyed_reading import KeyedReading
from statestore.formats.flink.streams.state_form import PLACEMENT, POSITION
from statestore.formats.places.kept_results import kept_result
from statestore.formats.rocksdb.flushed_files import flushed_since
from statestore.formats.rocksdb.kept_tables import BYTES_OF_A_TABLE, kept_families
from statestore.formats.rocksdb.manifest import FamilyFiles, TableEntry
from statestore.formats.rocksdb.plain_tables import opened_files
from statestore.formats.rocksdb.rocksdb_errors import Unreadable
from statestore.formats.rocksdb.rows import ROW_SCHEMA
from statestore.formats.rocksdb.written_entries import WrittenEntries, written_entries
from statestore.formats.written import APPEND, PUT, REMOVE, WRITE, Written

_VERSIONS = 8
"""Checkpoints of which a process remembers the files."""
_MOST_FILES = 50_000
"""A checkpoint of more files is not remembered."""


@dataclass(frozen=True)
class NewTables:
    """The rows of a subtask that are in table files which its database has gained."""

    subtask: int
    files: tuple[TableEntry, ...]
    rows: None = None


@dataclass(frozen=True)
class ComparedSubtask:
    """The rows of a subtask by a comparison of its databases."""

    subtask: int
    rows: None = None


@dataclass(frozen=True)
class SeenState:
    """The files of a state at a version, which may be gone by now; ``facts`` are those of `stored_as`."""

    facts: tuple[object, ...]
    number: int
    files: SnapshotFiles
    handles: tuple[RocksHandle, ...]


@dataclass(frozen=True)
class WrittenStates(Written):
    """What a keyed state at ``new`` has that it had not before; ``old`` is None where its files are gone."""

    origin: Origin = field(repr=False, compare=False)
    old: KeyedAt | None
    new: KeyedAt
    found: tuple[NewTables | ComparedSubtask, ...]

    @property
    def group(self) -> tuple[str, ...]:
        return tuple(name for name in self.new.form.row_key if name != POSITION)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the batches."""
        own = [each for each in self.new.schema if each.name not in PLACEMENT]
        return pa.schema([pa.field(WRITE, pa.int8()), *own])

    def parts(self) -> Sequence[NewTables | ComparedSubtask]:
        return self.found

    def rows(self, part: Any) -> Iterator[pa.RecordBatch]:
        handle = _handles(self.new)[part.subtask]
        reading = _reading(self.new, handle, self.schema.names)
        with self.new.explaining(self.new.form, handle):
            if isinstance(part, NewTables):
                yield from self._new_rows(part, reading, handle)
                return
            assert self.old is not None
            other = _handles(self.old)[part.subtask]
            for found in compared_databases(_reading(self.old, other, ()), reading, (other, handle)):
                come = pa.concat_batches([found.added, found.after])
                yield from self._batches(reading, WrittenEntries(come, come.slice(0, 0), found.removed.column(0)))

    def explain_loss(self, error: StateStoreError, state: str, versions: Sequence[int]) -> StateStoreError:
        return self.origin.explain_loss(error, [self.new.number])

    def _new_rows(self, part: NewTables, reading: KeyedReading, handle: RocksHandle) -> Iterator[pa.RecordBatch]:
        def rows(found: WrittenEntries) -> list[pa.RecordBatch]:
            return list(self._batches(reading, found))

        with opened_tables(reading.files, handle, [file.name for file in part.files]) as directory:
            try:
                for batches in written_entries(
                    directory, part.files, rows, within=reading.stored_range, delimiter=DELIMITER
                ):
                    yield from batches
            except Unreadable as error:
                raise UnsupportedError(
                    ErrorCode.ROCKSDB_UNSUPPORTED,
                    f"{reading.files.path}: {error}, so that its new files do not say what was written; read the "
                    "checkpoint as a whole",
                ) from error

    def _batches(self, reading: KeyedReading, found: WrittenEntries) -> Iterator[pa.RecordBatch]:
        for kind, stored in ((PUT, found.put), (APPEND, found.added)):
            if stored.num_rows:
                yield self._written(kind, stored_rows(reading, stored))
        if len(found.deleted):
            form = reading.form if reading.form.kind != "list" else replace(reading.form, kind="value")
            keys = replace(reading, form=form, columns=self.group)  # a list that is gone is one row
            nothing = pa.repeat(pa.scalar(b"", pa.binary()), len(found.deleted))
            stored = pa.RecordBatch.from_arrays([found.deleted, nothing], schema=ROW_SCHEMA)
            yield self._written(REMOVE, stored_rows(keys, stored))

    def _written(self, kind: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows in all columns; positions in what is added to a list are not known."""
        known = [name for name in rows.schema.names if kind != APPEND or name != POSITION]
        columns = [
            rows.column(each.name) if each.name in known else pa.nulls(rows.num_rows, each.type)
            for each in list(self.schema)[1:]
        ]
        kinds = pa.repeat(pa.scalar(kind, pa.int8()), rows.num_rows)
        return pa.RecordBatch.from_arrays([kinds, *columns], schema=self.schema)


def written_since(origin: Origin, seen: SeenState | None, old: StateAt | None, new: StateAt) -> WrittenStates | None:
    """What a keyed state has written since it was ``seen``; ``old`` is the same version where its files are there.

    None where only a read of both states tells it. Raises as reads of ``new``.
    """
    if seen is None or not isinstance(new, KeyedAt) or seen.facts != stored_as(new):
        return None
    parts: list[NewTables | ComparedSubtask] = []
    for subtask in range(len(new.stored)):
        found = _gained(seen, new, subtask)
        if found is None:
            if not isinstance(old, KeyedAt) or not new.files_of.folder.is_local:
                return None
            parts.append(ComparedSubtask(subtask))
        elif found:
            parts.append(NewTables(subtask, found))
    return WrittenStates(origin, old if isinstance(old, KeyedAt) else None, new, tuple(parts))


def _handles(at: KeyedAt) -> tuple[RocksHandle, ...]:
    return tuple(stored.handle for stored, _ in at.stored if isinstance(stored.handle, RocksHandle))


def _reading(at: KeyedAt, handle: RocksHandle, columns: Collection[str]) -> KeyedReading:
    return at.reading(handle.first_group, handle.first_group + handle.groups - 1, columns)


def _gained(seen: SeenState, new: KeyedAt, subtask: int) -> tuple[TableEntry, ...] | None:
    """The table files of a database that hold all rows of a state which were written since; None: unknown."""
    handle, family = _handles(new)[subtask], new.form.name
    had, has = _places(seen.files, seen.handles[subtask]), _places(new.files_of, handle)
    if had == has:
        return ()
    try:
        after = _tables(new.files_of, new.number, handle)
        found = after.families.get(family)
        if found is None or any(file.name not in has for file in found.files):
            return None
        gained: tuple[TableEntry, ...] | None = tuple(
            file for file in found.files if had.get(file.name) != has[file.name]
        )
        if not all(has.get(name) == place for name, place in had.items()):
            before = _tables(seen.files, seen.number, seen.handles[subtask])
            files = () if family not in before.families else before.families[family].files
            if any(has.get(file.name) != had.get(file.name) for file in files):
                where, filtered = new.files_of.path, new.form.has_ttl
                gained = flushed_since(before.listing, after.listing, found, where, filtered=filtered)
        if gained and new.files_of.folder.is_local:
            names = [file.name for file in gained]
            with opened_tables(new.files_of, handle, names) as directory, opened_files(directory, gained, DELIMITER):
                return gained  # they are of forms that are read
    except (Unreadable, StateStoreError):  # a read of the state says so
        return None
    return gained


def _places(files: SnapshotFiles, handle: RocksHandle) -> Mapping[str, object]:
    """The table files of a database by name, each with its place, which no other file ever has."""
    found = (pair for pair in (*handle.shared, *handle.private) if pair[0].endswith(".sst"))
    return {name: (files.path, place) if isinstance(place, RelativeHandle) else place for name, place in found}


@dataclass(frozen=True)
class _Tables:
    """The column families of a database, by the files of ``listing``."""

    listing: Mapping[str, bytes]
    families: Mapping[str, FamilyFiles]


def _tables(files: SnapshotFiles, number: int, handle: RocksHandle) -> _Tables:
    """The tables of a database, which are kept by the names of its files: Flink never gives one twice."""

    def read() -> tuple[_Tables, int]:
        listing = listing_files(files, handle)
        found = kept_families(listing, files.path, whole=True)
        tables = sum(len(each.files) for each in found.values())
        return _Tables(listing, found), sum(map(len, listing.values())) + BYTES_OF_A_TABLE * (1 + tables)

    return kept_result(("tables at", files.path, number, handle), [], read)


# What a process remembers of checkpoints that may be gone by now


Version = tuple[str, str, int]
"""The path of a source, its job, and a checkpoint id."""
_seen: OrderedDict[Version, dict[str, SeenState]] = OrderedDict()
_lock = threading.Lock()


def seen_state(at: StateAt) -> SeenState | None:
    """The files of a state at a version; None where they would not tell what was written since."""
    facts = stored_as(at) if isinstance(at, KeyedAt) else None
    if facts is None or not isinstance(at, KeyedAt):
        return None
    return SeenState(facts, at.number, replace(at.files_of, held=None), _handles(at))


def remember(source: Source, state: str, at: StateAt) -> None:
    """Remember the files of a state, so that a later checkpoint can be told from this one when it is gone."""
    seen = seen_state(at)
    if seen is None or sum(len(handle.shared) for handle in seen.handles) > _MOST_FILES:
        return
    version = (source.path, source.identity, seen.number)
    with _lock:
        _seen.setdefault(version, {})[state] = seen
        _seen.move_to_end(version)
        while len(_seen) > _VERSIONS:
            _seen.popitem(last=False)


def remembered(source: Source, state: str, version: int) -> SeenState | None:
    """The files of a state at a version that this process has looked at before."""
    with _lock:
        return _seen.get((source.path, source.identity, version), {}).get(state)


def forget() -> None:
    """Forget all checkpoints."""
    with _lock:
        _seen.clear()
