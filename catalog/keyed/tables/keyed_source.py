"""A keyed store as a `Source` of states: a version is a snapshot, and its state time is the time of its commit.

A part is some key groups of one task's part of a snapshot, so that Spark reads by key group; filters that name a whole
key leave one group. Snapshots are compared by ranges of key groups.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa

from statestore.catalog.engines.engine_table import EngineTable
from statestore.catalog.keyed.rows.state_rows import (
    POSITION,
    Grouped,
    decoder,
    group_bytes,
    prefix_encoder,
    table_schema,
    widened,
)
from statestore.catalog.keyed.rows.state_spec import StateDescriptor, StateKind, merged, widest
from statestore.catalog.keyed.snapshots.restore_snapshot import link_database, stored_range, table_rows
from statestore.catalog.keyed.snapshots.snapshot_log import SnapshotEntry, SnapshotLog, shared_log
from statestore.catalog.keyed.snapshots.snapshot_part import SnapshotPart
from statestore.catalog.keyed.tables.keyed_metadata import entry_facts, new_files, size_of, state_files
from statestore.catalog.log.storage import Storage
from statestore.catalog.log.store_spec import StoreSpec
from statestore.formats.engine import Opening, Source, StateAt, StateFile, StateInfo, StateSize, Version
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import NotFoundError, StateStoreError
from statestore.formats.places.local_directory import temporary_directory
from statestore.formats.places.reading_threads import processors
from statestore.formats.rocksdb.key_ranges import KeyRange, successor
from statestore.formats.rocksdb.scan import scan_rocksdb
from statestore.formats.values.filters import Filter, key_lookups
from statestore.formats.values.key_codec import KeyCodec
from statestore.formats.values.key_groups import key_group_function

LOOKED_UP = 64
"""Beyond this many keys, whole key groups are read from a database instead of single keys.

Were they always, a scan of 30 of 60,000 keys would take 1.4 times as long.
"""
SPLIT_BYTES = 1 << 26
"""Bytes of files, approximately, that hold the rows of a slice in one snapshot."""
SMALL_BYTES = 1 << 20
"""Bytes of files that are read as one part.

With a part for each of 8 cores in any case, a scan of 50 rows would take 5 (full) to 8 times (incremental) as long.
"""


@dataclass(frozen=True)
class KeyedOpening:
    """A keyed store."""

    storage: Storage
    spec: StoreSpec

    def open(self) -> KeyedSource:
        return open_keyed(self.storage, self.spec)


@dataclass(frozen=True)
class GroupsPart:
    """Key groups of part ``number`` of a snapshot."""

    number: int
    groups: range
    rows: int | None


def open_keyed(storage: Storage, spec: StoreSpec) -> KeyedSource:
    """Open the store with the snapshots that are committed by now.

    Raises CorruptError LOG_CORRUPT, NotFoundError STORE_REPLACED.
    """
    return KeyedSource(storage, spec, shared_log(storage, spec.store_id))


@dataclass(frozen=True)
class KeyedSource(Source):
    """The snapshots of a keyed store. After unpickling it reads the log again: snapshots never change."""

    storage: Storage
    spec: StoreSpec
    log: SnapshotLog = field(repr=False, compare=False)

    def __reduce__(self) -> tuple[object, ...]:
        return open_keyed, (self.storage, self.spec)

    @property
    def path(self) -> str:
        return str(self.storage)

    @property
    def identity(self) -> str:
        return self.spec.store_id

    @property
    def version_words(self) -> tuple[str, str]:
        return "snapshot", "snapshots"

    @cached_property
    def kept_snapshots(self) -> dict[int, SnapshotEntry]:
        """The snapshots that can be read, by version."""
        return self.log.kept_snapshots()

    def states(self) -> Sequence[str]:
        """Return the states of the newest kept snapshot."""
        entries = list(self.kept_snapshots.values())[-1:]
        return sorted({spec.name for entry in entries for part in entry.parts for spec in part.states})

    def info(self, state: str) -> StateInfo:
        """Return the description of a state.

        Raises NotFoundError STATE_NOT_FOUND, or NO_SNAPSHOT if there is no snapshot yet.
        """
        spec, keys = self._newest_state(state), tuple(self.spec.key_names)
        columns = table_schema(self.spec.key, spec)
        row_key = tuple(columns.names[:-1])
        lookups = tuple(dict.fromkeys([keys, (*keys, *spec.namespace.names), row_key]))
        shown_as = {"value": "value", "user_key": "user_key", POSITION.name: POSITION.name}
        roles = {name: "key" if name in keys else shown_as.get(name, "namespace") for name in columns.names}
        return StateInfo(state, f"keyed {spec.kind}", columns, keys, row_key, lookups, (), roles)

    def last_known(self, state: str) -> int:
        return self.log.newest

    def kept(self, state: str) -> Sequence[int]:
        if not self.kept_snapshots:
            raise NotFoundError(
                ErrorCode.NO_SNAPSHOT, f"keyed store {self.spec.name!r} has no snapshot yet; take and commit one"
            )
        return list(self.kept_snapshots)

    def check_readable(self, state: str, version: int) -> None:
        if self.log.snapshot(version) is None:
            self.kept(state)
            raise NotFoundError(
                ErrorCode.VERSION_NOT_FOUND,
                f"{self.spec.name}.{state}: version 0 is the empty store; read a later version",
            )

    def versions(self, state: str, numbers: Sequence[int] | None = None) -> Sequence[Version]:
        """Return the versions, by default for all entries of the log, including those that discard a snapshot."""
        chosen = self.log.entries if numbers is None else [self.log.entries[number - 1] for number in numbers]
        return [self._version(entry, state) for entry in chosen]

    def is_origin(self, state: str) -> bool:
        first = next(entry.version for entry in self.log.entries if entry.operation == "snapshot")
        return first == next(iter(self.kept_snapshots))

    def at(self, state: str, version: int) -> StateAt:
        return KeyedAt(self, state, version)

    def shared_schema(self, state: str) -> pa.Schema:
        """Return the columns in types in which all kept snapshots can be read.

        Raises InvalidInputError INCOMPATIBLE_STATE if there are no such types.
        """
        return table_schema(self.spec.key, self._widest_state(state))

    def size(self, state: str) -> StateSize:
        self.state_of(self.kept_snapshots[self.newest(state)], state)
        return size_of(self.storage, list(self.kept_snapshots.values()), state)

    def slices(self, state: str, versions: Sequence[int], filters: Sequence[Filter]) -> Sequence[range]:
        """Return ranges of key groups."""
        lookup = key_lookup(self.spec, filters)
        size = max(_bytes(part for part in entry.parts) for entry in self.kept_snapshots.values())
        count = self.spec.key_groups
        parts = min(max(side_by_side(size), -(-size // SPLIT_BYTES)), count)
        return [groups for groups in _cut(range(count), parts) if runs_of(lookup, groups)]

    def slice_parts(self, at: StateAt, piece: range, filters: Sequence[Filter]) -> Sequence[GroupsPart]:
        """Return the parts of a slice in a snapshot, which may not have the state at all."""
        entry, parts = self.entry(at.version), []
        if not _has_state(entry, at.state if isinstance(at, KeyedAt) else ""):
            return []
        for number, part in enumerate(entry.parts):
            first, stop = max(part.key_groups.start, piece.start), min(part.key_groups.stop, piece.stop)
            if first < stop:
                parts.append(GroupsPart(number, range(first, stop), None))
        return parts

    def content(self, at: StateAt, piece: range) -> Hashable | None:
        """Return the database files that have the key groups; None if a part is no database.

        Other parts have different files in each snapshot.
        """
        entry = self.entry(at.version)
        parts = [p for p in entry.parts if p.key_groups.start < piece.stop and piece.start < p.key_groups.stop]
        if any(part.kind == "full" for part in parts):
            return None
        return tuple((p.key_groups, frozenset(f.name for f in p.shared.values()), p.states) for p in parts)

    def check_resumable(self, state: str, version: int) -> None:
        """Raise NotFoundError VERSION_NOT_FOUND if the snapshot up to which changes were read is gone."""
        read = [entry.version for entry in self.log.entries[:version] if entry.operation == "snapshot"]
        if read and read[-1] not in self.kept_snapshots:
            kept = ", ".join(map(str, self.kept_snapshots)) or "none"
            raise NotFoundError(
                ErrorCode.VERSION_NOT_FOUND,
                f"changes of {self.spec.name}.{state} were read up to snapshot {read[-1]}, which was "
                f"discarded since; kept are {kept}: restart the query with a new checkpoint, and "
                "retain snapshots until the stream has read them",
            )

    def explain_loss(self, error: StateStoreError, state: str, versions: Sequence[int]) -> StateStoreError:
        """Return VERSION_NOT_FOUND for a missing file of a snapshot that was discarded meanwhile, other errors
        unchanged.
        """
        if error.code != ErrorCode.SNAPSHOT_FILE_MISSING:
            return error
        kept = shared_log(self.storage, self.spec.store_id).kept_snapshots()
        gone = [str(version) for version in versions if version not in kept]
        if not gone:
            return error
        listed = ", ".join(map(str, kept)) or "none"
        return NotFoundError(
            ErrorCode.VERSION_NOT_FOUND,
            f"snapshot {', '.join(gone)} of {self.spec.name}.{state} was discarded while it was read; "
            f"kept are {listed}: read again",
        )

    def entry(self, version: int) -> SnapshotEntry:
        """Return a kept snapshot. Raises NotFoundError VERSION_NOT_FOUND."""
        entry = self.log.snapshot(version)
        assert entry is not None  # no caller passes version 0
        return entry

    def state_of(self, entry: SnapshotEntry, state: str) -> StateDescriptor:
        """Return the state's description in a snapshot. Raises NotFoundError STATE_NOT_FOUND."""
        states = widest(spec for part in entry.parts for spec in part.states)
        if state not in states:
            names = ", ".join(sorted(states)) or "none"
            others = [str(each.version) for each in self.kept_snapshots.values() if _has_state(each, state)]
            hint = f"; version {', '.join(others)} has it" if others else ""
            raise NotFoundError(
                ErrorCode.STATE_NOT_FOUND,
                f"version {entry.version} of keyed store {self.spec.name!r} has no state {state!r}; it has "
                f"{names}{hint}",
            )
        return states[state]

    def _newest_state(self, state: str) -> StateDescriptor:
        """Return the state's description in the newest snapshot that has the state."""
        entry = next((each for each in reversed(self.kept_snapshots.values()) if _has_state(each, state)), None)
        return self.state_of(self.kept_snapshots[self.kept(state)[-1]] if entry is None else entry, state)

    def _widest_state(self, state: str) -> StateDescriptor:
        kept = self.kept_snapshots.values()
        specs = [spec for entry in kept for part in entry.parts for spec in part.states if spec.name == state]
        return functools.reduce(merged, specs) if specs else self._newest_state(state)

    def _version(self, entry: SnapshotEntry, state: str) -> Version:
        readable = entry.version in self.kept_snapshots
        files = (new_files(part, state) for part in entry.parts)
        facts = entry_facts(entry, files if readable else None)
        return Version(entry.version, entry.timestamp, readable, entry.operation == "snapshot", None, facts)


@dataclass(frozen=True)
class KeyedAt(StateAt):
    """One state as of one snapshot, ``number``."""

    source: KeyedSource
    state: str
    number: int

    @property
    def version(self) -> int:
        return self.number

    @cached_property
    def spec(self) -> StateDescriptor:
        """The state's description in the snapshot. Raises NotFoundError STATE_NOT_FOUND."""
        return self.source.state_of(self.entry, self.state)

    @property
    def entry(self) -> SnapshotEntry:
        return self.source.entry(self.version)

    @property
    def schema(self) -> pa.Schema:
        return table_schema(self.source.spec.key, self.spec)

    def parts(self, filters: Sequence[Filter]) -> Sequence[GroupsPart]:
        """Return the key groups that may have keys of the filters. Raises NotFoundError STATE_NOT_FOUND."""
        assert self.spec
        lookup = key_lookup(self.source.spec, filters)
        pieces, parts = [], self.entry.parts
        for number, part in enumerate(parts):
            for groups in _cut(part.key_groups, -(-side_by_side(_bytes([part])) // len(parts))):
                rows = [_rows_in(part, self.state, run) for run in runs_of(lookup, groups)]
                counts = [count for count in rows if count is not None]
                if any(count != 0 for count in rows):
                    pieces.append(GroupsPart(number, groups, sum(counts) if len(counts) == len(rows) else None))
        return pieces

    def rows(self, part: GroupsPart, columns: Collection[str], filters: Sequence[Filter]) -> Iterator[pa.RecordBatch]:
        """Yield rows in the order of key groups and, within a group, of stored keys.

        Raises NotFoundError SNAPSHOT_FILE_MISSING, CorruptError SEGMENT_CORRUPT, SEGMENT_TRUNCATED or ROCKSDB_FILE.
        """
        wide = widened(self.source.spec.key, self.spec)
        lookup = key_lookup(self.source.spec, filters)
        for grouped in self.stored_rows(self.entry.parts[part.number], part.groups, lookup):
            yield wide(grouped).rows

    def files(self) -> Iterator[StateFile]:
        return state_files(self.entry, self.state, self.source.kept_snapshots.values())

    def explain_loss(self, error: StateStoreError, state: str, versions: Sequence[int]) -> StateStoreError:
        return self.source.explain_loss(error, state, versions)

    def stored_rows(self, part: SnapshotPart, groups: range, lookup: KeyLookup | None) -> Iterator[Grouped]:
        """Yield the rows of a part before any migration; with a ``lookup``, at least the rows of its keys."""
        specs = {spec.name: spec for spec in part.states}
        if self.state not in specs:
            return
        storage, key = self.source.storage, self.source.spec.key
        if part.kind == "full":
            table = part.tables.get(self.state)
            if table is not None:
                for run in runs_of(lookup, groups):
                    yield from table_rows(storage, table, run)
            return
        ranges = ranges_of(lookup, groups, specs[self.state].kind)
        if not ranges:
            return
        decode = decoder(key, specs[self.state])
        with temporary_directory() as folder:
            directory = folder / "database"
            link_database(storage, part, directory)
            yield from scan_rocksdb(directory, decode, family=self.state, key_ranges=ranges)


# Lookup of the whole keys that filters name: only these keys and their key groups are read.


@dataclass(frozen=True)
class KeyLookup:
    """The beginnings of stored keys with their key groups, ascending."""

    keys: tuple[tuple[int, bytes], ...]

    def runs(self, groups: range) -> Iterator[range]:
        """Yield the key groups among these that have a key, as ranges."""
        with_keys = sorted({group for group, _ in self.keys if group in groups})
        for _, run in itertools.groupby(enumerate(with_keys), lambda pair: pair[1] - pair[0]):
            run_groups = [group for _, group in run]
            yield range(run_groups[0], run_groups[-1] + 1)

    def ranges(self, groups: range) -> list[KeyRange]:
        """Return the ranges of the stored keys in a database."""
        return [KeyRange(prefix, successor(prefix)) for group, prefix in self.keys if group in groups]


def key_lookup(store: StoreSpec, filters: Sequence[Filter]) -> KeyLookup | None:
    """Return the keys that the filters allow.

    None if the filters do not name whole keys, or name a value that no key of this type can have.
    """
    pinned = key_lookups(filters, store.key.names)
    if pinned is None:
        return None
    codec, encode = KeyCodec(store.key), prefix_encoder(store.key)
    group_of = key_group_function(store.key, store.key_groups)
    try:
        groups = [group_of(codec.normalize(key)) for key in pinned]
        return KeyLookup(
            tuple(sorted({(g, group_bytes(g) + encode(key)) for g, key in zip(groups, pinned, strict=True)}))
        )
    except StateStoreError:
        return None


def runs_of(lookup: KeyLookup | None, groups: range) -> list[range]:
    """Return the key groups to read among these, as ranges."""
    return [groups] if lookup is None else list(lookup.runs(groups))


def ranges_of(lookup: KeyLookup | None, groups: range, kind: StateKind) -> list[KeyRange]:
    """Return the ranges of stored keys to read in a database for these key groups.

    Whole groups are read for many keys, and for timers, whose stored keys have the time before the key.
    """
    ranges = None if lookup is None or kind == "timer" else lookup.ranges(groups)
    if ranges is not None and len(ranges) <= LOOKED_UP:
        return ranges
    return [stored_range(run) for run in runs_of(lookup, groups)]


def side_by_side(size: int) -> int:
    """Return the number of parts in which to read files of ``size`` bytes at a time."""
    return min(processors(), -(-size // SMALL_BYTES)) or 1


def _bytes(parts: Iterator[SnapshotPart] | Sequence[SnapshotPart]) -> int:
    return sum(file.bytes for part in parts for file in part.files().values())


def _has_state(entry: SnapshotEntry, state: str) -> bool:
    return any(spec.name == state for part in entry.parts for spec in part.states)


def _cut(groups: range, parts: int) -> Iterator[range]:
    edges = [groups.start + len(groups) * number // parts for number in range(parts + 1)]
    return (range(first, stop) for first, stop in itertools.pairwise(edges) if first < stop)


def _rows_in(part: SnapshotPart, state: str, groups: range) -> int | None:
    """Return the number of rows in the key groups; None if it is unknown."""
    if part.kind != "full" or not groups:
        return None if groups else 0
    table = part.tables.get(state)
    if table is None:
        return 0
    first, last = groups.start - table.first_group, groups.stop - table.first_group
    return table.groups[last] - table.groups[first]


def keyed_table(opening: Opening, spec: StoreSpec, state: str) -> EngineTable:
    """Return the table of one state of the store that ``opening`` opens; its name is ``store.state``."""
    return EngineTable(opening, f"{spec.name}.{state}", state)
