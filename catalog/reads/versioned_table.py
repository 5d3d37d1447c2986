"""A versioned store as a `StateTable`, which Spark, DuckDB, SQL and the command line read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from statestore.catalog.log.leases import Lease, leave_lease
from statestore.catalog.log.log_state import LogState, file_names
from statestore.catalog.log.storage import Storage, local_root
from statestore.catalog.log.store_log import PinnedLog
from statestore.catalog.log.store_spec import StoreSpec
from statestore.catalog.log.version_rows import versions_table
from statestore.catalog.reads.added_columns import CHANGE_COLUMNS, VERSION_COLUMN
from statestore.catalog.reads.belief import BEGINNING, NOW, Piece, TimeRange, live_rows
from statestore.catalog.reads.captured import has_own_key, hidden_columns, unknown_of
from statestore.catalog.reads.key_versions import key_writers, newest_first
from statestore.catalog.reads.plan import StoreSplit, extremes, hashed_splits, plan, splits_of
from statestore.catalog.reads.scan import lookup_hashes, masked, read_split
from statestore.catalog.reads.segment_files import SegmentFiles, shared_files
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, InvalidInputError, NotFoundError, shown
from statestore.formats.notices import notify
from statestore.formats.state_table import MaskedSplit, NewestBatch, Query, StateTable, check_number
from statestore.formats.table_columns import check_filter_columns, chosen_columns, narrowed
from statestore.formats.values.times import format_time
from statestore.formats.values.types import TIME

if TYPE_CHECKING:
    from statestore.catalog.reads.change_events import ChangeSplit

ENTRUSTED_SECONDS = 3_600.0  # for which files are kept for readers whose planner may have ended


@dataclass(frozen=True)
class VersionedTable(StateTable):
    """Scan, history and change feed of one versioned store; holds no open files and is picklable.

    Splits are pinned to the version that ``splits`` resolved, so later commits do not disturb a running read. What
    reads a split needs the storage, the description and the split alone: neither the log nor ``store.json`` is read.
    ``strict``: answers that may not be what a source had are refused (`statestore.formats.notices`).
    """

    is_columnar = has_log = True

    storage: Storage
    spec: StoreSpec
    # What `for_plan` saw, which answers every question; it stays in the process that saw it.
    _seen: tuple[LogState, Lease | None] | None = field(default=None, repr=False, compare=False)
    # The state that alone is read, which all tables of the store in one warehouse share (`at`).
    _pinned: PinnedLog | None = field(default=None, repr=False, compare=False)
    strict: bool = False

    def __reduce__(self) -> tuple[Any, ...]:
        return VersionedTable, (self.storage, self.spec, None, None, self.strict)

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns that a user calls the key, without those that distinguish windows and sessions of one key."""
        return tuple(self.spec.user_key.names) if self.spec.captured is None else self.spec.captured.key

    @property
    def row_key(self) -> tuple[str, ...]:
        """The key columns and those that distinguish windows and sessions of one key; () for a captured bag."""
        return tuple(self.spec.key_names) if self.spec.captured is None else self.spec.captured.row_key

    @property
    def identity(self) -> str:
        return self.spec.store_id

    def versions(self) -> pa.Table:
        """Return one row per commit."""
        return versions_table(self.log_state())

    def pin(self) -> VersionedTable:
        """Return the table bound to the version that is the newest when the first question is put to it.

        No file is kept for it. A read is planned on the newest files, which have the rows of the version, too. It
        raises NotFoundError VERSION_NOT_FOUND or TIME_NOT_KEPT where an expiry has removed what was there.
        """
        return self if self._pinned is not None else self.at(PinnedLog())

    def at(self, pinned: PinnedLog) -> VersionedTable:
        """Return the table bound to a state of the log, which is looked at with the first question."""
        return replace(self, _pinned=pinned)

    @property
    def is_pinned(self) -> bool:
        """Whether the table never has a newer version."""
        return self._pinned is not None

    def log_state(self) -> LogState:
        """Return the state of the log that has all answers: that of the pin or the plan, or else the newest one."""
        if self._pinned is not None:
            return self._pinned.log_state(self.files().log, self._seen)
        return self.files().log.newest() if self._seen is None else self._seen[0]

    def for_plan(self) -> VersionedTable:
        """Return the table at its newest version, for the questions of one plan: the log is looked at here alone.

        Its files stay as long as it exists, so it must not outlive the plan. Raises NotFoundError STORE_REPLACED.
        """
        if self._pinned is not None and self._pinned.keeps_files:
            return self
        files = self.files()
        try:
            seen = files.log.leased()
            if self._pinned is not None and self._pinned.log_state(files.log, seen).version > seen[0].version:
                seen = files.log.leased()  # another thread has looked later
            return replace(self, _seen=seen)
        except CorruptError:
            files.log.check_identity()  # the log of a store that is gone is gone, too
            raise

    def for_tasks(self) -> VersionedTable:
        return replace(self, _seen=None, _pinned=None)

    def for_results(self) -> VersionedTable:
        """Return the table itself, which keeps no file: what it is asked again states its version (`repeatable`)."""
        return self

    def change_start(self) -> int:
        return self.kept_versions()[0]

    def known_from(self, version: int) -> int | None:
        return None

    def lookup_floor(self, version: int) -> int | None:
        """Return the earliest moment for lookups, by the history retention and by the last expiry.

        The retention is measured from the stream time of ``version``.
        """
        log_state = self.log_state()
        check_version(self.name, log_state, version)
        floors = [] if log_state.horizon is None else [log_state.horizon.time]
        if self.spec.history_retention is not None:
            floors.append(log_state.versions.stream_time_at(version) - self.spec.history_retention * 1000)
        return max(floors, default=None)

    def schema(self, query: Query) -> pa.Schema:
        """Return the requested columns in order; all of the mode's columns if none are requested.

        Raises NotFoundError COLUMN_NOT_FOUND for a column that the mode does not have.
        """
        shown, hidden = _columns(self.spec, query)
        return chosen_columns(pa.schema(shown), query, f"store {self.name!r}", hidden)

    def splits(self, query: Query) -> Sequence[StoreSplit | ChangeSplit]:
        """Return the splits. Raises NotFoundError or InvalidInputError for a version or time outside the kept range."""
        _checked(self, query)
        if query.mode == "changes":
            from statestore.catalog.reads.changes import plan_changes

            log_state, lease, query = _planned(self, query)
            self.notify(query, log_state)
            return [replace(split, lease=lease) for split in plan_changes(self.files(), log_state, query)]
        pieces, window, lease = _pieces(self, query)
        return splits_of(pieces, window, lease=lease)

    def newest_first(self, query: Query, rows: int) -> Iterator[NewestBatch] | None:
        """Return the history of keys that the filters name, as `newest_first` does.

        None for other queries, and in an object store, where a read of all parts at once takes fewer rounds.
        """
        files = self.files()
        schema = _checked(self, query)
        hashes = lookup_hashes(files, query.filters) if query.mode == "history" and files.is_local else None
        if hashes is None or query.fields:
            return None
        pieces, window, lease = _pieces(self, query)
        return _leased(newest_first(files, pieces, window, schema, query.filters, hashes, rows), lease)

    def writers(self, query: Query) -> Sequence[int] | None:
        """Return the kept versions that wrote or deleted the keys that the filters name; None unless they are keys."""
        self.splits(query)  # checks version and filters
        files = self.files()
        hashes = lookup_hashes(files, query.filters)
        if hashes is None:
            return None
        log_state, _lease, query = _planned(self, query)
        last = log_state.version if query.version is None else query.version
        found = key_writers(files, log_state, query.filters, hashes)
        return [each for each in found.tolist() if oldest_version(log_state) <= each <= last]

    def count(self, query: Query) -> int | None:
        """Return the number of rows of a state or history without filters, from statistics and ends of rows."""
        if query.mode == "changes" or query.filters:
            return None
        self.schema(query)
        pieces, window, _lease = _pieces(self, query)
        return sum(live_rows(self.files(), piece, window) for piece in pieces)

    def extremes(self, query: Query, name: str) -> tuple[Any, Any] | None:
        """Return the least and greatest value of a column of a state without filters; None where it is not known."""
        if query.mode != "state" or query.filters:
            return None
        self.schema(query)
        pieces, window, _lease = _pieces(self, query)
        return extremes(self.files(), pieces, window, name)

    def for_lookups(self, query: Query) -> tuple[LogState, Lease | None] | None:
        """Return the log state in which keys of a query can be looked up, with a lease on its files.

        None for an earlier version than its newest one, in an object store, and for a state with another key than the
        store.
        """
        if not has_own_key(self.spec):
            return None
        log_state, lease, query = _planned(self, query)
        self.notify(query, log_state)
        version = check_version(self.name, log_state, query.version)
        return (log_state, lease) if self.files().is_local and version == log_state.version else None

    def masked_splits(self, splits: Sequence[StoreSplit | ChangeSplit]) -> Sequence[MaskedSplit]:
        """Return the rows of splits with marks of the dead ones; changes have none."""
        files = self.files()
        found: list[MaskedSplit] = []
        for split in splits:
            found += masked(files, split) if isinstance(split, StoreSplit) else [MaskedSplit(split, None, None)]
        return found

    def read_marked(self, split: StoreSplit | ChangeSplit, query: Query) -> Iterator[pa.RecordBatch]:
        """Read a split of `masked_splits`, with its dead rows, in the order of its marks."""
        if not isinstance(split, StoreSplit):
            yield from self.read(split, query)
            return
        schema = self.schema(query)
        whole = self.schema(replace(query, fields=())) if query.fields else schema
        for batch in read_split(self.files(), split, tuple(schema.names), in_order=True, schema=whole):
            yield narrowed(batch, schema) if query.fields else batch

    def is_mapped(self, split: StoreSplit | ChangeSplit, columns: Sequence[str]) -> bool:
        """Return whether batches of these columns are views of mapped files.

        Ends of rows are computed for each read, and segments of several blocks may be compressed.
        """
        if not isinstance(split, StoreSplit) or local_root(self.storage) is None or "valid_to" in columns:
            return False
        files = self.files()
        return not any(piece.cut or files.open_segment(piece.segment.meta).is_compressed for piece in split.pieces)

    def hashed_splits(self, query: Query, ranges: int) -> Sequence[tuple[int, StoreSplit]] | None:
        """Return splits by ranges of key hashes; None where rows are not placed by the key: changes, and a state with
        another key than the store.
        """
        if query.mode == "changes" or not has_own_key(self.spec):
            return None
        self.splits(query)
        pieces, window, lease = _pieces(self, query)
        return hashed_splits(pieces, window, ranges, lease)

    def read(self, split: StoreSplit | ChangeSplit, query: Query) -> Iterator[pa.RecordBatch]:
        schema = self.schema(query)
        if not isinstance(split, StoreSplit):
            from statestore.catalog.reads.changes import read_changes

            whole = self.schema(replace(query, fields=()))
            for batch in read_changes(self.files(), split, whole, query.filters):
                yield narrowed(batch, schema)
            return
        whole = self.schema(replace(query, fields=())) if query.fields else schema
        for batch in read_split(self.files(), split, tuple(schema.names), query.filters, schema=whole):
            yield narrowed(batch, schema) if query.fields else batch

    def released(self, splits: Sequence[StoreSplit | ChangeSplit]) -> Sequence[StoreSplit | ChangeSplit]:
        """Return the splits without their leases."""
        return [replace(split, lease=None) for split in splits]

    def held(self, splits: Sequence[StoreSplit | ChangeSplit]) -> Sequence[StoreSplit | ChangeSplit] | None:
        """Return splits that were planned before with a new lease, if no file of theirs was replaced; else None."""
        log_state, lease = self.leased()
        present = {meta.name for meta in log_state.segments}
        if not all(segment.meta.name in present for split in splits for segment in split.segments):
            return None
        return [replace(split, lease=lease) for split in splits]

    def entrust(self, splits: Sequence[StoreSplit | ChangeSplit]) -> None:
        """Leave a timed lease for the readers of the splits in other processes."""
        root = local_root(self.storage)
        leases = {split.lease for split in splits if split.lease is not None}
        for version in {lease.version for lease in leases}:
            if root is not None:
                leave_lease(root, version, ENTRUSTED_SECONDS)

    def kept_versions(self) -> tuple[int, int]:
        """Return (oldest, newest) version that can be read now."""
        log_state = self.log_state()
        return oldest_version(log_state), log_state.version

    def files(self) -> SegmentFiles:
        return shared_files(self.storage, self.spec)

    def leased(self) -> tuple[LogState, Lease | None]:
        """Return the newest log state with a lease on its files, or what `for_plan` or the pin saw."""
        if self._pinned is not None and self._pinned.keeps_files:
            return self._pinned.leased(self.files().log)
        return self.files().log.leased() if self._seen is None else self._seen

    def repeatable(self, query: Query) -> Query | None:
        """Return the query with the version and the beginning that it means now; None for changes by state time."""
        return _bound(self.name, self.log_state(), query)

    def expired_to(self) -> tuple[int, int] | None:
        """Return the version and the state time up to which an expiry has removed changes; None if there was none."""
        horizon = self.log_state().horizon
        return None if horizon is None else (horizon.version, horizon.time)

    def notify(self, query: Query, log_state: LogState) -> None:
        """Pass on why the answer of a captured store may not be what the source had. Raises NotFoundError
        ROWS_UNCERTAIN in a strict table.
        """
        if self.spec.captured is not None:
            subject = f"{self.name}, captured from {self.spec.captured.path}"
            notify(subject, unknown_of(self.spec, log_state, query), strict=self.strict)


def _checked(table: VersionedTable, query: Query) -> pa.Schema:
    """Return the schema of a query whose columns and filters the table has."""
    schema = table.schema(query)
    fields = pa.schema([field for part in _columns(table.spec, query) for field in part])
    check_filter_columns(query.filters, fields, query, f"store {table.name!r}")
    return schema


def _columns(spec: StoreSpec, query: Query) -> tuple[list[pa.Field], list[pa.Field]]:
    """Return (columns shown if none are requested, further columns that can be requested)."""
    hidden = hidden_columns(spec)
    rows = [f.with_nullable(True) for f in [*spec.key, *spec.value] if f.name not in hidden]
    further = [f.with_nullable(True) for f in [*spec.key, *spec.value] if f.name in hidden]
    interval = [pa.field("valid_from", TIME), pa.field("valid_to", TIME)]
    version = pa.field(VERSION_COLUMN, pa.int64())
    if query.mode == "changes":
        return [*rows, *CHANGE_COLUMNS], further
    if query.mode == "history":
        return [*rows, *interval, version], further
    return [*rows, *interval], [*further, version]


def _planned(table: VersionedTable, query: Query) -> tuple[LogState, Lease | None, Query]:
    """Return the log state on which to plan a query, with a lease on its files, and the query as it is put to it.

    Raises the errors of the pinned state for what that does not have.
    """
    newest, lease = table.leased()
    if table._pinned is None:
        return newest, lease, query
    pinned = table._pinned.log_state(table.files().log, (newest, lease))
    if newest.version < pinned.version:  # another thread has looked later
        newest, lease = table.files().log.leased()
    if newest is pinned or file_names(pinned) <= file_names(newest):
        return pinned, lease, query
    bound = _bound(table.name, pinned, query)
    is_by_time = query.mode == "changes" and (query.start_time is not None or query.end_time is not None)
    if bound is None or is_by_time:
        raise NotFoundError(
            ErrorCode.FILES_REPLACED,
            f"{table.name!r} is read as of version {pinned.version}, whose files were replaced since by those of "
            f"version {newest.version}, and only changes by version can be read from these; read again, or ask "
            "for changes by version",
        )
    if query.mode == "changes" and newest.horizon != pinned.horizon:
        raise NotFoundError(
            ErrorCode.TIME_NOT_KEPT,
            f"{table.name!r} is read as of version {pinned.version}, and an expiry has removed changes since; read "
            "again, which returns what is kept",
        )
    return newest, lease, bound


def _pieces(table: VersionedTable, query: Query) -> tuple[list[Piece], TimeRange, Lease | None]:
    """Return the pieces for a state or history, its times and version, and the lease that keeps the files of both."""
    log_state, lease, query = _planned(table, query)
    window = window_of(table.name, log_state, query)
    table.notify(query, log_state)
    return plan(table.files(), log_state, window, query.filters), window, lease


def _leased(batches: Iterator[NewestBatch], lease: Lease | None) -> Iterator[NewestBatch]:
    """Yield the batches, and hold the lease until there are no more or nobody wants them."""
    yield from batches
    del lease


def _bound(name: str, log_state: LogState, query: Query) -> Query | None:
    """Return the query with the version and the beginning that it means in a log state; None for changes by state
    time. Raises the errors of that state.
    """
    if query.mode == "state":
        window = window_of(name, log_state, query)
        return replace(query, version=window.version)
    if query.mode == "history":
        window = window_of(name, log_state, query)
        return replace(query, version=window.version, start_time=window.low)
    if query.start_time is not None or query.end_time is not None:
        return None
    from statestore.catalog.reads.changes import check_changes, oldest_change

    first = oldest_change(log_state) if query.start_version is None else query.start_version
    last = log_state.version if query.end_version is None else query.end_version
    check_changes(name, log_state, query)
    return replace(query, start_version=first if first <= last else query.start_version, end_version=last)


def window_of(name: str, log_state: LogState, query: Query) -> TimeRange:
    """Return the state times and version of a scan or history query, checked against the kept range."""
    version = check_version(name, log_state, query.version)
    newest = version == log_state.version
    if query.mode == "history":
        kept_from = BEGINNING if log_state.horizon is None else log_state.horizon.time
        low = kept_from if query.start_time is None else query.start_time
        high = NOW if query.end_time is None else query.end_time
        if low > high:
            raise InvalidInputError(
                ErrorCode.INVALID_RANGE,
                f"history from {format_time(low)} to {format_time(high)}: the start is after the end; swap them",
            )
        if query.start_time is not None:
            check_time(name, log_state, low)
        return TimeRange(low, high, version, newest)
    moment = NOW if query.as_of is None else check_time(name, log_state, query.as_of)
    return TimeRange(moment, moment, version, newest)


def oldest_version(log_state: LogState) -> int:
    """Return the oldest version that can be read, after the last expiry."""
    return 0 if log_state.horizon is None else log_state.horizon.version


def check_version(name: str, log_state: LogState, version: int | None) -> int:
    """Return the version to read. Raises NotFoundError VERSION_NOT_FOUND, which states the kept range."""
    first = oldest_version(log_state)
    if version is None:
        return log_state.version
    check_number(version)
    if not first <= version <= log_state.version:
        raise NotFoundError(
            ErrorCode.VERSION_NOT_FOUND,
            f"store {name!r} has no version {shown(version)}; versions {first} to {log_state.version} can be read",
        )
    return int(version)


def check_time(name: str, log_state: LogState, moment: int) -> int:
    """Return the state time to read. Raises NotFoundError TIME_NOT_KEPT, which states the kept range after an
    expiry."""
    horizon = log_state.horizon
    if horizon is not None and moment < horizon.time:
        raise NotFoundError(
            ErrorCode.TIME_NOT_KEPT,
            f"store {name!r} keeps state from {format_time(horizon.time)} on, asked for "
            f"{format_time(moment)}; ask for a later moment (earlier history has expired)",
        )
    return moment
