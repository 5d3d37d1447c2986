"""A state of a keyed store as a `StateTable`: a version is a snapshot, state time is when it was committed.

A split is some key groups of one task's part, so that Spark reads by key group; filters that name a whole key leave one
group. History and changes are those of snapshots and are found by comparing them (``catalog.difference``).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa

from statestore.catalog.storage import LocalStorage
from statestore.catalog.store_spec import StoreSpec
from statestore.catalog.stores.keyed.restoring import place, stored_range, table_rows
from statestore.catalog.stores.keyed.snapshot_handle import Handle
from statestore.catalog.stores.keyed.snapshot_log import Entry, SnapshotLog, read_log
from statestore.catalog.stores.keyed.state_spec import StateSpec, widest
from statestore.catalog.stores.keyed.state_table_rows import Grouped, decoder, table_schema, widened
from statestore.formats.errors import NotFoundError, UnsupportedError
from statestore.formats.filters import check_filters, mask
from statestore.formats.flink.key_groups import key_group_function
from statestore.formats.key_codec import KeyCodec
from statestore.formats.reading_threads import processors
from statestore.formats.rocksdb.scan import scan_rocksdb
from statestore.formats.state_table import Query
from statestore.formats.times import format_time


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
        """All that tells rows apart: of a list, the place of an element, too."""
        return tuple(table_schema(self.spec.key, self._state(self._snapshot(Query()))).names[:-1])

    @property
    def identity(self) -> str:
        return f"{self.spec.store_id}/{self.state}"

    def kept_versions(self) -> tuple[int, int]:
        """(oldest, newest) snapshot that is kept; others between them may have been discarded."""
        kept = list(self._log().retained())
        if not kept:
            raise NotFoundError(
                "NO_SNAPSHOT", f"keyed store {self.spec.name!r} has no snapshot yet; take and commit one"
            )
        return kept[0], kept[-1]

    def lookup_floor(self, version: int) -> int | None:
        return None

    def schema(self, query: Query) -> pa.Schema:
        """Raises NotFoundError COLUMN_NOT_FOUND, UnsupportedError KEYED_READ for histories."""
        if query.mode != "snapshot":
            raise UnsupportedError(
                "KEYED_READ", f"{query.mode} of {self.name}: ask for versions, or for the diff of two snapshots"
            )
        whole = table_schema(self.spec.key, self._state(self._snapshot(query)))
        if query.columns is None:
            return whole
        missing = [name for name in query.columns if name not in whole.names]
        if missing:
            raise NotFoundError(
                "COLUMN_NOT_FOUND", f"{self.name} has no column {missing[0]!r}; it has {', '.join(whole.names)}"
            )
        return pa.schema([whole.field(name) for name in query.columns])

    def splits(self, query: Query) -> Sequence[GroupsSplit]:
        """Raises NotFoundError VERSION_NOT_FOUND, TIME_NOT_KEPT, COLUMN_NOT_FOUND or STATE_NOT_FOUND."""
        self.schema(query)
        entry = self._snapshot(query)
        spec = self._state(entry)
        whole = table_schema(self.spec.key, spec)
        for item in query.filters:
            if item.column not in whole.names:
                raise NotFoundError(
                    "COLUMN_NOT_FOUND", f"filter on {item.column!r}: {self.name} has {', '.join(whole.names)}"
                )
        check_filters(query.filters, whole)
        wanted = self._wanted(query)
        found = []
        for number, handle in enumerate(entry.handles):
            for groups in _cut(handle.key_groups, -(-processors() // len(entry.handles))):
                if wanted is not None:
                    groups = range(wanted, wanted + 1) if wanted in groups else range(0)
                rows = _rows_in(handle, spec, groups)
                if groups and rows != 0:
                    found.append(GroupsSplit(entry.version, number, groups, rows))
        return found

    def read(self, split: GroupsSplit, query: Query) -> Iterator[pa.RecordBatch]:
        """Rows in the order of key groups and, within one, of stored keys.

        Raises NotFoundError SNAPSHOT_FILE_MISSING, CorruptError SEGMENT_CORRUPT, SEGMENT_TRUNCATED or ROCKSDB_FILE.
        """
        entry = self._snapshot(Query(version=split.version))
        names = self.schema(replace(query, version=split.version, as_of=None)).names
        wide = widened(self.spec.key, self._state(entry))
        for found in self._rows(entry.handles[split.number], split.groups):
            batch = wide(found).rows
            selected = mask(query.filters, batch) if query.filters else None
            kept = batch if selected is None else batch.filter(selected)
            if kept.num_rows:
                yield kept.select(names)

    def _rows(self, handle: Handle, groups: range) -> Iterator[Grouped]:
        """The rows of a part as it has them, before any migration."""
        known = {spec.name: spec for spec in handle.states}
        if self.state not in known:
            return
        if handle.kind == "full":
            table = handle.tables.get(self.state)
            if table is not None:
                yield from table_rows(self.root, table, groups)
            return
        decode = decoder(self.spec.key, known[self.state])
        with TemporaryDirectory(prefix="statestore-") as name:
            directory = Path(name, "database")
            place(self.root, handle, directory)
            yield from scan_rocksdb(directory, decode, family=self.state, key_ranges=[stored_range(groups)])

    def _wanted(self, query: Query) -> int | None:
        """The key group of a key that filters name in whole."""
        values = {item.column: item.value for item in query.filters if item.op == "=" and not item.path}
        if not set(self.spec.key.names) <= set(values):
            return None
        row = KeyCodec(self.spec.key).normalize({name: values[name] for name in self.spec.key.names})
        return key_group_function(self.spec.key, self.spec.key_groups)(row)

    def _snapshot(self, query: Query) -> Entry:
        log = self._log()
        if query.as_of is not None:
            if query.version is not None:
                log.snapshot(query.version)
            known = [e for e in log.retained().values() if query.version is None or e.version <= query.version]
            begun = [e for e in known if e.timestamp <= query.as_of]
            if not begun:
                kept = "no snapshot" if not known else f"snapshots of {format_time(known[0].timestamp)} or later"
                raise NotFoundError("TIME_NOT_KEPT", f"{self.name} keeps {kept}, asked for {format_time(query.as_of)}")
            return begun[-1]
        found = log.snapshot(query.version)
        if found is None:
            self.kept_versions()
            raise NotFoundError("VERSION_NOT_FOUND", f"{self.name}: version 0 is the empty store")
        return found

    def _state(self, entry: Entry) -> StateSpec:
        known = widest(spec for handle in entry.handles for spec in handle.states)
        if self.state not in known:
            told = ", ".join(sorted(known)) or "none"
            raise NotFoundError(
                "STATE_NOT_FOUND",
                f"version {entry.version} of keyed store {self.spec.name!r} has no state {self.state!r}; it has {told}",
            )
        return known[self.state]

    def _log(self) -> SnapshotLog:
        return read_log(LocalStorage(self.root))


def _cut(groups: range, parts: int) -> Iterator[range]:
    edges = [groups.start + len(groups) * number // parts for number in range(parts + 1)]
    return (range(first, stop) for first, stop in itertools.pairwise(edges) if first < stop)


def _rows_in(handle: Handle, spec: StateSpec, groups: range) -> int | None:
    """None where nobody knows before it is read."""
    if handle.kind != "full" or not groups:
        return None if groups else 0
    table = handle.tables.get(spec.name)
    if table is None:
        return 0
    first, last = groups.start - table.first_group, groups.stop - table.first_group
    return table.groups[last] - table.groups[first]
