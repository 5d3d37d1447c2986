"""A state of a keyed store as a `StateTable`: a version is a snapshot, state time is when it was committed.

A split is some key groups of one task's part, so that Spark reads by key group; filters that name a whole key leave one
group. History and changes are those of snapshots and are found by comparing them (``keyed_changes``).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from statestore.catalog.keyed.rows.state_spec import StateSpec, merged, widest
from statestore.catalog.keyed.rows.state_table_rows import Grouped, decoder, table_schema, widened
from statestore.catalog.keyed.snapshots.restore_snapshot import place, table_rows
from statestore.catalog.keyed.snapshots.shared_log import shared_log
from statestore.catalog.keyed.snapshots.snapshot_handle import Handle
from statestore.catalog.keyed.snapshots.snapshot_log import Entry, SnapshotLog
from statestore.catalog.keyed.tables.keyed_changes import (
    Rows,
    SnapshotsSplit,
    change_start,
    changes,
    check_told,
    columns_of,
    history,
    history_start,
    plan,
    rows_of,
    same_files,
    side_by_side,
)
from statestore.catalog.keyed.tables.keyed_lookup import KeyLookup, key_lookup, ranges_of, runs_of
from statestore.catalog.log.store_spec import StoreSpec
from statestore.formats.errors import InvalidInputError, NotFoundError, shown
from statestore.formats.places.local_directory import temporary_directory
from statestore.formats.rocksdb.scan import scan_rocksdb
from statestore.formats.state_table import Query
from statestore.formats.values.filters import check_filters, mask
from statestore.formats.values.times import format_time


@dataclass(frozen=True)
class GroupsSplit:
    """Key groups of part ``number`` of a snapshot."""

    version: int
    number: int
    groups: range
    rows: int | None


@dataclass(frozen=True)
class KeyedTable:
    """One state. Picklable; holds no open files."""

    root: Path
    spec: StoreSpec
    state: str

    @property
    def name(self) -> str:
        return f"{self.spec.name}.{self.state}"

    @property
    def key_columns(self) -> tuple[str, ...]:
        return tuple(self.spec.key_names)

    @property
    def row_key(self) -> tuple[str, ...]:
        """The key, the namespace, and a map's key or the place of a list's element."""
        return tuple(table_schema(self.spec.key, self._newest_state()).names[:-1])

    @property
    def named_keys(self) -> tuple[tuple[str, ...], ...]:
        """What may be named to look rows up: the key, and with it the namespace, and with these all that is left."""
        key, state = self.spec.key_names, self._newest_state()
        return tuple(dict.fromkeys([key, (*key, *state.namespace.names), self.row_key]))

    @property
    def state_kind(self) -> str:
        """value, list, map, reducing or aggregating."""
        return self._newest_state().kind

    @property
    def placement_columns(self) -> tuple[str, ...]:
        return ()

    @property
    def identity(self) -> str:
        return f"{self.spec.store_id}/{self.state}"

    def kept_versions(self) -> tuple[int, int]:
        """(oldest, newest) snapshot that is kept; others between them may have been discarded."""
        kept = list(self.log().retained())
        if not kept:
            raise NotFoundError(
                "NO_SNAPSHOT", f"keyed store {self.spec.name!r} has no snapshot yet; take and commit one"
            )
        return kept[0], kept[-1]

    def log(self) -> SnapshotLog:
        """Which snapshots are kept."""
        return shared_log(self.root, self.spec.store_id)

    def lookup_floor(self, version: int) -> int | None:
        return None

    def change_start(self) -> int:
        """The version after which all changes are known."""
        self.kept_versions()
        return change_start(self.log())

    def known_from(self, version: int) -> int | None:
        """When the oldest kept snapshot was committed, in epoch microseconds; None if there was none before it."""
        self.kept_versions()
        return history_start(self.log())

    def check_told(self, version: int) -> None:
        """NotFoundError VERSION_NOT_FOUND if what was told up to a version can not be gone on with."""
        check_told(self.name, self.log(), version)

    def schema(self, query: Query) -> pa.Schema:
        """Raises NotFoundError COLUMN_NOT_FOUND, InvalidInputError INCOMPATIBLE_STATE for a history in which the state
        was of types that do not go together."""
        whole = self._whole(query)
        if query.columns is None:
            return whole
        missing = [name for name in query.columns if name not in whole.names]
        if missing:
            raise NotFoundError(
                "COLUMN_NOT_FOUND",
                f"{self.name} has no column {missing[0]!r} in a {query.mode} read; it has {', '.join(whole.names)}",
            )
        return pa.schema([whole.field(name) for name in query.columns])

    def splits(self, query: Query) -> Sequence[GroupsSplit | SnapshotsSplit]:
        """Raises NotFoundError VERSION_NOT_FOUND, TIME_NOT_KEPT, COLUMN_NOT_FOUND or STATE_NOT_FOUND, InvalidInputError
        INVALID_RANGE."""
        self.schema(query)
        if query.mode == "snapshot":
            self.state_of(self._snapshot(query))
        whole = self._whole(query)
        for item in query.filters:
            if item.column not in whole.names:
                raise NotFoundError(
                    "COLUMN_NOT_FOUND", f"filter on {item.column!r}: {self.name} has {', '.join(whole.names)}"
                )
        check_filters(query.filters, whole)
        lookup = key_lookup(self.spec, query.filters)
        if query.mode != "snapshot":
            return self._over_snapshots(query, lookup)
        entry = self._snapshot(query)
        found = []
        for number, handle in enumerate(entry.handles):
            size = sum(file.bytes for file in handle.files().values())
            for groups in _cut(handle.key_groups, -(-side_by_side(size) // len(entry.handles))):
                rows = [_rows_in(handle, self.state, run) for run in runs_of(lookup, groups)]
                known = [count for count in rows if count is not None]
                if any(count != 0 for count in rows):
                    found.append(
                        GroupsSplit(entry.version, number, groups, sum(known) if len(known) == len(rows) else None)
                    )
        return found

    def read(self, split: GroupsSplit | SnapshotsSplit, query: Query) -> Iterator[pa.RecordBatch]:
        """Rows in the order of key groups and, within one, of stored keys; histories and changes in no order.

        Raises NotFoundError SNAPSHOT_FILE_MISSING, or VERSION_NOT_FOUND for a snapshot that was discarded meanwhile,
        CorruptError SEGMENT_CORRUPT, SEGMENT_TRUNCATED or ROCKSDB_FILE.
        """
        try:
            yield from self._read(split, query)
        except NotFoundError as error:
            if error.code == "SNAPSHOT_FILE_MISSING":
                self._check_kept(split)
            raise

    def _check_kept(self, split: GroupsSplit | SnapshotsSplit) -> None:
        kept = self.log().retained()
        needed = (split.before, *split.versions) if isinstance(split, SnapshotsSplit) else (split.version,)
        gone = [str(version) for version in needed if version is not None and version not in kept]
        if gone:
            told = ", ".join(map(str, kept)) or "none"
            raise NotFoundError(
                "VERSION_NOT_FOUND",
                f"snapshot {', '.join(gone)} of {self.name} was discarded while it was read; there are {told}: read "
                "again",
            )

    def _read(self, split: GroupsSplit | SnapshotsSplit, query: Query) -> Iterator[pa.RecordBatch]:
        if isinstance(split, SnapshotsSplit):
            names, found = self.schema(query).names, self._told(split, query)
        else:
            names = self.schema(replace(query, version=split.version, as_of=None)).names
            found = self._rows(split, query)
        for batch in found:
            selected = mask(query.filters, batch) if query.filters else None
            kept = batch if selected is None else batch.filter(selected)
            if kept.num_rows:
                yield kept.select(names)

    def _rows(self, split: GroupsSplit, query: Query) -> Iterator[pa.RecordBatch]:
        entry = self._entry(split.version)
        wide = widened(self.spec.key, self.state_of(entry))
        lookup = key_lookup(self.spec, query.filters)
        return (wide(found).rows for found in self.stored_rows(entry.handles[split.number], split.groups, lookup))

    def _told(self, split: SnapshotsSplit, query: Query) -> Iterator[pa.RecordBatch]:
        lookup = key_lookup(self.spec, query.filters)
        empty = rows_of([], self._columns(self._widest_state()))
        if query.mode == "history":
            return history(self._snapshots(split, lookup), empty, query, from_first=split.from_first)
        before = empty if split.before is None else self._group_rows(self._entry(split.before), split.groups, lookup)
        return changes(self._snapshots(split, lookup), before)

    def _snapshots(self, split: SnapshotsSplit, lookup: KeyLookup | None) -> Iterator[tuple[int, int, Rows | None]]:
        last = None if split.before is None else self._entry(split.before)
        for version, moment in zip(split.versions, split.times, strict=True):
            entry = self._entry(version)
            same = last is not None and same_files(last, entry, split.groups)
            yield version, moment, None if same else self._group_rows(entry, split.groups, lookup)
            last = entry

    def _group_rows(self, entry: Entry, groups: range, lookup: KeyLookup | None) -> Rows:
        """The rows of some key groups in a snapshot, in the widest type; none where it did not have the state."""
        spec = self._widest_state()
        wide = widened(self.spec.key, spec)
        batches = []
        for handle in entry.handles:
            first, stop = max(handle.key_groups.start, groups.start), min(handle.key_groups.stop, groups.stop)
            if first < stop:
                batches += [wide(found).rows for found in self.stored_rows(handle, range(first, stop), lookup)]
        return rows_of(batches, self._columns(spec))

    def _over_snapshots(self, query: Query, lookup: KeyLookup | None) -> list[SnapshotsSplit]:
        self.kept_versions()
        checked_version(query.start_version)
        checked_version(query.end_version)
        if query.mode == "history" and query.version is not None:
            query = replace(query, version=self._snapshot(Query(version=query.version)).version)
        log = self.log()
        sizes = (
            sum(file.bytes for handle in entry.handles for file in handle.files().values())
            for entry in log.retained().values()
        )
        return plan(self.name, log, query, lookup, self.spec.key_groups, max(sizes))

    def _whole(self, query: Query) -> pa.Schema:
        """All columns of an answer."""
        if query.mode != "snapshot":
            return pa.schema([*self._columns(self._widest_state()), *columns_of(query.mode)])
        newest = query.version is None and query.as_of is None
        return self._columns(self._newest_state() if newest else self.state_of(self._snapshot(query)))

    def stored_rows(self, handle: Handle, groups: range, lookup: KeyLookup | None) -> Iterator[Grouped]:
        """The rows of a part as it has them, before any migration; with a ``lookup`` at least those of its keys."""
        known = {spec.name: spec for spec in handle.states}
        if self.state not in known:
            return
        if handle.kind == "full":
            table = handle.tables.get(self.state)
            if table is not None:
                for run in runs_of(lookup, groups):
                    yield from table_rows(self.root, table, run)
            return
        ranges = ranges_of(lookup, groups, known[self.state].kind)
        if not ranges:
            return
        decode = decoder(self.spec.key, known[self.state])
        with temporary_directory() as folder:
            directory = folder / "database"
            place(self.root, handle, directory)
            yield from scan_rocksdb(directory, decode, family=self.state, key_ranges=ranges)

    def state_of(self, entry: Entry) -> StateSpec:
        """What a snapshot says of the state. NotFoundError STATE_NOT_FOUND."""
        known = widest(spec for handle in entry.handles for spec in handle.states)
        if self.state not in known:
            told = ", ".join(sorted(known)) or "none"
            others = [str(e.version) for e in self.log().retained().values() if _has_state(e, self.state)]
            hint = f"; version {', '.join(others)} has it" if others else ""
            raise NotFoundError(
                "STATE_NOT_FOUND",
                f"version {entry.version} of keyed store {self.spec.name!r} has no state {self.state!r}; it has "
                f"{told}{hint}",
            )
        return known[self.state]

    def _columns(self, spec: StateSpec) -> pa.Schema:
        return table_schema(self.spec.key, spec)

    def _newest_state(self) -> StateSpec:
        """Of the newest snapshot that has it."""
        kept = self.log().retained().values()
        entry = next((e for e in reversed(kept) if _has_state(e, self.state)), None)
        return self.state_of(self._snapshot(Query()) if entry is None else entry)

    def _widest_state(self) -> StateSpec:
        """In the type that all kept snapshots can be read in."""
        kept = self.log().retained().values()
        found = [s for entry in kept for part in entry.handles for s in part.states if s.name == self.state]
        return functools.reduce(merged, found) if found else self._newest_state()

    def _entry(self, version: int) -> Entry:
        return self._snapshot(Query(version=version))

    def _snapshot(self, query: Query) -> Entry:
        log = self.log()
        version = checked_version(query.version)
        if query.as_of is not None:
            if version is not None:
                log.snapshot(version)
            known = [e for e in log.retained().values() if version is None or e.version <= version]
            begun = [e for e in known if e.timestamp <= query.as_of]
            if not begun:
                kept = "no snapshot" if not known else f"snapshots of {format_time(known[0].timestamp)} or later"
                raise NotFoundError("TIME_NOT_KEPT", f"{self.name} keeps {kept}, asked for {format_time(query.as_of)}")
            return begun[-1]
        found = log.snapshot(version)
        if found is None:
            self.kept_versions()
            raise NotFoundError("VERSION_NOT_FOUND", f"{self.name}: version 0 is the empty store")
        return found


def checked_version(version: Any) -> int | None:
    """InvalidInputError INVALID_VERSION for what is no number."""
    if version is not None and (isinstance(version, bool) or not isinstance(version, int | np.integer)):
        raise InvalidInputError("INVALID_VERSION", f"version is {shown(version)}; expected an int, that of a snapshot")
    return None if version is None else int(version)


def _has_state(entry: Entry, state: str) -> bool:
    return any(spec.name == state for handle in entry.handles for spec in handle.states)


def _cut(groups: range, parts: int) -> Iterator[range]:
    edges = [groups.start + len(groups) * number // parts for number in range(parts + 1)]
    return (range(first, stop) for first, stop in itertools.pairwise(edges) if first < stop)


def _rows_in(handle: Handle, state: str, groups: range) -> int | None:
    """None where nobody knows before it is read."""
    if handle.kind != "full" or not groups:
        return None if groups else 0
    table = handle.tables.get(state)
    if table is None:
        return 0
    first, last = groups.start - table.first_group, groups.stop - table.first_group
    return table.groups[last] - table.groups[first]
