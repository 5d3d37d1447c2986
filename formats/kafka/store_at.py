"""The rows of one store as the files of its application have them: a `StateAt`, in parts that tasks read alone.

A part is one database: a segment, or the whole of a store partition. Each database is read through a private copy, as
it is when its turn comes. Every part sees the databases that were there when the source was opened.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from statestore.formats.bytes.byte_columns import cells_of
from statestore.formats.engine import HoldsPast, StateAt, StateFile
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import NotFoundError
from statestore.formats.kafka.columns.store_form import StoreKind
from statestore.formats.kafka.columns.store_kinds import row_schema, stored_rows
from statestore.formats.kafka.directory.applications import Application, Database, StorePartition
from statestore.formats.kafka.directory.database_copies import CURRENT, MANIFEST, opened_copy
from statestore.formats.kafka.directory.listings import entries_of
from statestore.formats.kafka.directory.store_facts import store_facts
from statestore.formats.kafka.key_filters import PARTITION, encoded_keys, partitions_asked, time_bounds
from statestore.formats.kafka.known_store import KnownStore
from statestore.formats.kafka.stores.key_bounds import begins_with_key, key_range, rows_of_keys, time_range
from statestore.formats.kafka.stores.store_rows import (
    ALL,
    StoredRows,
    databases_until,
    find_segments,
    looked_up_rows,
    read_database,
    read_versioned,
)
from statestore.formats.kafka.stores.visibility import (
    EXPIRED,
    NOTHING_SEEN,
    expired_column,
    marks_expired,
    observed_stream_time,
    without_expired,
)
from statestore.formats.kafka_rows.byte_reader import corrupt
from statestore.formats.kafka_rows.versioned_store import TIME
from statestore.formats.kafka_rows.window_keys import MAX_TIME
from statestore.formats.kernels.arrays import Ints
from statestore.formats.places.folder import Folder
from statestore.formats.places.reading_threads import in_order, reading_threads
from statestore.formats.rocksdb.key_ranges import KeyRange, successor
from statestore.formats.rocksdb.opened_families import Family, opened_family, rows_in
from statestore.formats.rocksdb.rows import BATCH_ROWS, DEFAULT_FAMILY
from statestore.formats.values.filters import Filter

VERSION = 1
TABLE_SUFFIX = ".sst"


@dataclass(frozen=True)
class DatabasePart:
    """One database of a store partition; ``stream_time`` of the partition is known where rows are marked by it."""

    partition: StorePartition
    database: Database
    stream_time: int | None = None
    rows: int | None = None


@dataclass(frozen=True)
class StoreAt(StateAt):
    """A store of an application. ``folder`` is the application's.

    ``allow_unflushed``: see `_check_flushed`. ``hide_expired``: leave out rows that are marked as expired.
    """

    folder: Folder
    store: KnownStore
    allow_unflushed: bool = False
    hide_expired: bool = False

    @property
    def version(self) -> int:
        return VERSION

    @property
    def schema(self) -> pa.Schema:
        return state_schema(self.store)

    def parts(self, filters: Sequence[Filter]) -> Sequence[DatabasePart]:
        wanted = partitions_asked(filters)
        _, last = time_bounds(self.store.kind.rows, filters)
        found = []
        for partition in self.store.partitions:
            if wanted is not None and partition.partition not in wanted:
                continue
            time = self._stream_time(partition) if EXPIRED in self.schema.names else None
            chosen = databases_until(partition.databases, last)
            found += [DatabasePart(partition, database, time) for database in chosen]
        return found

    def rows(self, part: Any, columns: Collection[str], filters: Sequence[Filter]) -> Iterator[pa.RecordBatch]:
        for batch in self._read(part, columns, filters):
            shown = self._shown(batch, part)
            yield without_expired(shown) if self.hide_expired else shown

    def files(self) -> Iterator[StateFile]:
        for partition in self.store.partitions:
            for database in partition.databases:
                for entry in entries_of(self.folder.at(*database.path.split("/"))).values():
                    role = (
                        "table" if entry.name.endswith(TABLE_SUFFIX) else "log" if "log" in entry.name else "metadata"
                    )
                    yield StateFile(f"{database.path}/{entry.name}", role, entry.size)

    def has_checksum(self, file: StateFile) -> bool | None:
        """Blocks of tables have one, and records of a MANIFEST; nothing else is read but CURRENT."""
        name = file.name.rpartition("/")[2]
        if file.role == "table" or MANIFEST.fullmatch(name):
            return True
        return False if name == CURRENT else None

    def _read(
        self, part: DatabasePart, columns: Collection[str], filters: Sequence[Filter]
    ) -> Iterator[pa.RecordBatch]:
        """Decoded rows of a database that may pass the filters."""
        form, kind = self.store.form, self.store.kind
        keys = encoded_keys(self.store.form, kind, filters)
        first, last = time_bounds(kind.rows, filters)

        def decoded(rows: pa.RecordBatch, family: str) -> pa.RecordBatch:
            return stored_rows(form, family, rows.column(0), rows.column(1), columns)

        def each(stored: StoredRows) -> pa.RecordBatch:
            rows = stored.rows
            if keys is not None:
                rows = rows_of_keys(kind.rows, rows, keys)
            return decoded(rows, stored.family)

        if kind.rows == "versioned":
            with self._opened(part) as copy:
                versioned = [(key, key + b"\0") for key in sorted(keys)] if keys is not None else [(None, None)]
                batches = read_versioned(copy, key_ranges=versioned)
                yield from in_order(lambda rows: decoded(rows, kind.families[0]), batches, reading_threads())
            return
        few = keys is not None and begins_with_key(kind.rows)
        if keys is not None:
            bounds = (0 if first is None else first, 2**63 - 1 if last is None else last)
            ranges = [key_range(kind.rows, key, *bounds) for key in keys]
        elif first is not None or last is not None:
            low, high = -(2**63) if first is None else first, 2**63 - 1 if last is None else last
            ranges = [time_range(kind.rows, low, high)]
        else:
            ranges = list(ALL)
        start = part.database.start
        found = looked_up_rows(self._folder(part), kind.families, start, ranges) if few else None
        if found is not None:
            yield from map(each, found)
            return
        with self._opened(part) as copy:
            yield from read_database(copy, each, families=kind.families, start=start, key_ranges=ranges, lookup=few)

    def _folder(self, part: DatabasePart) -> Folder:
        return self.folder.at(*part.database.path.split("/"))

    @contextmanager
    def _opened(self, part: DatabasePart) -> Iterator[Path]:
        folder = self._folder(part)
        with opened_copy(folder) as copy:
            if not self.allow_unflushed:
                _check_flushed(copy, folder, part.partition)
            yield copy

    def _shown(self, batch: pa.RecordBatch, part: DatabasePart) -> pa.RecordBatch:
        """The batch in the columns of the state."""
        columns = {name: batch.column(name) for name in batch.schema.names}
        columns[PARTITION] = pa.nulls(len(batch), pa.int32())
        if part.partition.partition is not None:
            columns[PARTITION] = pa.repeat(pa.scalar(part.partition.partition, pa.int32()), len(batch))
        if part.stream_time is not None:
            assert self.store.retention is not None
            columns[EXPIRED] = expired_column(batch, self.store.kind, part.stream_time, self.store.retention)
        elif EXPIRED in self.schema.names:
            columns[EXPIRED] = pa.nulls(len(batch), pa.bool_())
        names = [*self.schema.names, *(["valid_to"] if "valid_to" in columns else [])]
        return pa.RecordBatch.from_arrays([columns[name] for name in names], names=names)

    def _stream_time(self, partition: StorePartition) -> int | None:
        return stream_time_of(self.folder, self.store.kind, partition)


@dataclass(frozen=True)
class VersionedAt(StoreAt, HoldsPast):
    """A versioned store, which holds the versions of its history (KIP-889)."""

    def rows(self, part: Any, columns: Collection[str], filters: Sequence[Filter]) -> Iterator[pa.RecordBatch]:
        for batch in self.past_rows(part, columns, filters):
            yield batch.filter(batch.column("valid_to").is_null()).drop_columns(["valid_to"])

    def past_from(self) -> int | None:
        """The first moment from which on no version can have expired, of all partitions (epoch microseconds).

        With ``hide_expired``, moments before the retention are none. Raises NotFoundError TIME_NOT_KEPT for a partition
        that has had rows and has none left.
        """
        begins: list[int] = []
        for partition in self.store.partitions:
            found = [past_begins(database, self.store.retention) for database in self._databases(partition)]
            begin = max((each for each in found if each is not None), default=None)
            if begin is None:
                self._check_unused(partition)
                continue
            stream_time = self._stream_time(partition) if self.hide_expired else None
            if stream_time is not None and self.store.retention is not None:
                begin = max(begin, stream_time - self.store.retention)
            begins.append(begin)
        return max(begins) * 1000 if begins else None

    def check_past(self) -> None:
        """Raise NotFoundError TIME_NOT_KEPT as `past_from` does; no more than a row of each partition is read."""
        for partition in self.store.partitions:
            if not any(map(has_versions, self._databases(partition))):
                self._check_unused(partition)

    def past_hint(self) -> str:
        if self.store.retention is not None:
            return ""
        return "; nothing on disk names the history retention: give it with option retention, and the past is longer"

    def past_rows(self, part: Any, columns: Collection[str], filters: Sequence[Filter]) -> Iterator[pa.RecordBatch]:
        for batch in self._read(part, columns, filters):
            shown = self._shown(batch, part)
            yield without_expired(shown) if self.hide_expired else shown

    def stream_times(self) -> dict[int, int]:
        """The greatest time in the rows of each partition, in milliseconds."""
        found = {each.partition: self._stream_time(each) for each in self.store.partitions}
        return {number: time for number, time in found.items() if number is not None and time is not None}

    def _stream_time(self, partition: StorePartition) -> int | None:
        found = [stream_time_of_versions(database) for database in self._databases(partition)]
        return max((each for each in found if each is not None), default=None)

    def _databases(self, partition: StorePartition) -> list[Folder]:
        return [self.folder.at(*database.path.split("/")) for database in partition.databases]

    def _check_unused(self, partition: StorePartition) -> None:
        """Raise an error if a partition without rows has applied records of its changelog."""
        application = Application(self.folder, posixpath.basename(self.folder.path), partitions=self.store.partitions)
        offsets = store_facts(application, partition).offsets.changelog
        if any(offset is not None and offset >= 0 for offset in offsets.values()):
            raise NotFoundError(
                ErrorCode.TIME_NOT_KEPT,
                f"store {self.store.name} of {self.folder.path} has no row left in task {partition.task}, though it "
                "has applied records of its changelog: all have expired, and nothing is known of its past; its "
                "changelog may have it",
            )


def state_schema(store: KnownStore) -> pa.Schema:
    """The columns of a store: those of its kind, whether Kafka would still show the row, and its partition."""
    own = [each for each in row_schema(store.form) if each.name != "valid_to"]
    if marks_expired(store.kind, store.retention):
        own.append(pa.field(EXPIRED, pa.bool_()))
    return pa.schema([*own, pa.field(PARTITION, pa.int32())])


def store_at(folder: Folder, store: KnownStore, *, allow_unflushed: bool, hide_expired: bool) -> StoreAt:
    """Return a store as of the files that it has."""
    kind = VersionedAt if store.kind.has_past else StoreAt
    return kind(folder, store, allow_unflushed, hide_expired)


def _check_flushed(copy: Path, folder: Folder, partition: StorePartition) -> None:
    """Raise NotFoundError ROWS_NOT_FLUSHED where a database has no table file, so that its rows are unknown."""
    if any(file.suffix == TABLE_SUFFIX for file in copy.iterdir()):
        return
    raise NotFoundError(
        ErrorCode.ROWS_NOT_FLUSHED,
        f"{folder.path}: store {partition.store!r} of task {partition.task} has no table file: it is empty, or its "
        "rows are in the memory of the application only; read its changelog, close the application first, or read "
        "what is on disk with option allowUnflushed",
    )


# Times of a store partition that no file states: observed stream time, and where its past begins. Both come from the
# rows on disk. See `visibility` for what they mean.


def stream_time_of(application: Folder, kind: StoreKind, partition: StorePartition) -> int:
    """The greatest segment time in a segmented store partition, in epoch milliseconds; -1 where there are no rows.

    Segments are in the order of their times, so few of them are read. Raises as `read_database`.
    """
    ranges = [time_range(kind.rows, -MAX_TIME - 1, MAX_TIME)]
    for database in reversed(partition.databases):
        with opened_copy(application.at(*database.path.split("/"))) as copy:
            batches = read_database(copy, _rows, families=kind.families, key_ranges=ranges)
            time = observed_stream_time(kind.rows, batches)
        if time != NOTHING_SEEN:
            return time
    return NOTHING_SEEN


def past_begins(database: Folder, retention: int | None) -> int | None:
    """The first moment (epoch milliseconds) from which on no version of a versioned store can be missing.

    With the history ``retention`` in milliseconds, these are versions that end later than stream time less retention.
    Without it, nothing on disk proves that a version is not missing: after a restart, Kafka drops segments that it
    writes to and forgets older ones, so the oldest segment may lie before a gap. Then only the newest moment is known.
    None: the store has no rows.
    """
    with opened_copy(database) as copy, opened_family(copy, DEFAULT_FAMILY) as table:
        segments = find_segments(table, database.path)
        if not segments:
            return None
        return _newest(table, segments, database.path) - (retention or 0)


def has_versions(database: Folder) -> bool:
    """Return whether a versioned store has a row."""
    with opened_copy(database) as copy, opened_family(copy, DEFAULT_FAMILY) as table:
        return next(rows_in(table, KeyRange(), 1), None) is not None


def stream_time_of_versions(database: Folder) -> int | None:
    """The greatest time in the rows of a versioned store (epoch milliseconds); None: it has no row."""
    with opened_copy(database) as copy, opened_family(copy, DEFAULT_FAMILY) as table:
        segments = find_segments(table, database.path)
        return _newest(table, segments, database.path) if segments else None


def _newest(table: Family, segments: Sequence[int], where: str) -> int:
    return max(int(times.max()) for each in segments for times in _first_fields(table, each, where) if len(times))


def _first_fields(table: Family, segment: int, where: str) -> Iterator[Ints]:
    """The first number in each value of a segment: the end of a row of history, the start of a latest version."""
    prefix = TIME.pack(segment)
    for batch in rows_in(table, KeyRange(prefix, successor(prefix)), BATCH_ROWS):
        values = cells_of(batch.column(1))
        if len(values) and values.size.min() < TIME.size:
            raise corrupt(
                f"versioned row in {where}", f"found a value of {int(values.size.min())} bytes, expected 8 or more"
            )
        yield values.numbers(0, ">i8")


def _rows(stored: StoredRows) -> pa.RecordBatch:
    return stored.rows
