"""History and change feed of a keyed state: what kept snapshots, one after the other, say of its rows.

A version is a snapshot, state time is when it was committed. The changes of the oldest snapshot are known if there was
none before it; else changes are known of every version after it, and of a row that it has nobody knows since when it
was there: ``valid_from`` and ``_commit_version`` are null. What a discarded snapshot changed is a change of the next
that is kept.

A split is some key groups over all snapshots, of which two are in memory at a time.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statestore.catalog.keyed.rows.state_spec import StateSpec
from statestore.catalog.keyed.snapshots.snapshot_log import Entry, SnapshotLog
from statestore.catalog.keyed.tables.keyed_lookup import KeyLookup, runs_of
from statestore.catalog.reads.changes import CHANGE_COLUMNS, CHANGE_TYPES, DELETE, INSERT, POSTIMAGE, PREIMAGE
from statestore.catalog.reads.difference import Side, differences, others, pairs
from statestore.catalog.reads.history_columns import HISTORY_COLUMNS, valid_rows
from statestore.formats.errors import InvalidInputError, NotFoundError
from statestore.formats.places.reading_threads import processors
from statestore.formats.state_table import Query
from statestore.formats.values.comparable_values import comparable
from statestore.formats.values.key_hash import hash_keys
from statestore.formats.values.times import format_time
from statestore.formats.values.types import TIME

Ints = npt.NDArray[np.int64]

SPLIT_BYTES = 1 << 26
"""Of files, about so many hold the rows of a split in one snapshot."""
SMALL_BYTES = 1 << 20
"""So many are read as one."""
UNKNOWN = -1
"""Stands for the version of a row that was there before the oldest snapshot that is kept."""


@dataclass(frozen=True)
class SnapshotsSplit:
    """Key groups over snapshots; ``before`` is the one before the first of a change feed, None for the empty store.
    ``from_first``: there was no snapshot before the first of a history."""

    versions: tuple[int, ...]
    times: tuple[int, ...]
    before: int | None
    groups: range
    from_first: bool

    @property
    def rows(self) -> None:
        """Nobody knows before it is read."""


@dataclass(frozen=True)
class Rows:
    """The rows of some key groups in a snapshot, with the hashes of all columns but the last."""

    batch: pa.RecordBatch
    hashes: npt.NDArray[np.uint64]

    def side(self) -> Side:
        *keys, value = self.batch.columns
        return Side(keys, [value], self.hashes)


def rows_of(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> Rows:
    """In memory."""
    whole = pa.Table.from_batches(batches, schema=schema)
    columns = [pa.concat_arrays([pa.array([], c.type), *c.chunks]) for c in whole.columns]
    keys = [comparable(column) for column in columns[:-1]]
    return Rows(pa.RecordBatch.from_arrays(columns, schema=schema), hash_keys(keys))


def columns_of(mode: str) -> tuple[pa.Field, ...]:
    """What comes behind the columns of a state."""
    return CHANGE_COLUMNS if mode == "changes" else HISTORY_COLUMNS if mode == "history" else ()


# Which snapshots


def side_by_side(size: int) -> int:
    """In how many parts to read files of ``size`` bytes at a time."""
    return min(processors(), -(-size // SMALL_BYTES)) or 1


def change_start(log: SnapshotLog) -> int:
    """The version after which all changes are known: 0 if no snapshot before the oldest kept one was discarded."""
    first = next(entry.version for entry in log.entries if entry.operation == "snapshot")
    oldest = next(iter(log.retained()))
    return 0 if first == oldest else oldest


def history_start(log: SnapshotLog) -> int | None:
    """When the oldest kept snapshot was committed, in epoch microseconds; None if there was none before it."""
    return None if change_start(log) == 0 else next(iter(log.retained().values())).timestamp


def check_told(name: str, log: SnapshotLog, version: int) -> None:
    """NotFoundError VERSION_NOT_FOUND if what was told up to a version can not be gone on with, as its snapshot is
    gone."""
    told = [entry.version for entry in log.entries[:version] if entry.operation == "snapshot"]
    if told and told[-1] not in log.retained():
        kept = ", ".join(map(str, log.retained())) or "none"
        raise NotFoundError(
            "VERSION_NOT_FOUND",
            f"the changes of {name} were told up to snapshot {told[-1]}, which was discarded since; kept are {kept}: "
            "start a query with a new checkpoint, and keep snapshots until they were told",
        )


def plan(
    name: str, log: SnapshotLog, query: Query, lookup: KeyLookup | None, key_groups: int, size: int
) -> list[SnapshotsSplit]:
    """``size``: bytes of the files of the largest snapshot.

    Raises NotFoundError VERSION_NOT_FOUND or TIME_NOT_KEPT, stating what is kept, and InvalidInputError INVALID_RANGE.
    """
    kept = list(log.retained().values())
    start = change_start(log)
    _check_range(query)
    if query.mode == "changes":
        entries, before = _changed(name, log, kept, start, query)
    else:
        if query.version is not None:
            kept = [entry for entry in kept if entry.version <= query.version]
        _check_times(name, kept, query, from_first=start == 0)
        entries, before = kept, None
    if not entries:
        return []
    parts = min(max(side_by_side(size), -(-size // SPLIT_BYTES)), key_groups)
    edges = [key_groups * number // parts for number in range(parts + 1)]
    versions, times = tuple(e.version for e in entries), tuple(e.timestamp for e in entries)
    groups = (range(first, stop) for first, stop in itertools.pairwise(edges))
    return [SnapshotsSplit(versions, times, before, each, start == 0) for each in groups if runs_of(lookup, each)]


def _changed(
    name: str, log: SnapshotLog, kept: list[Entry], start: int, query: Query
) -> tuple[list[Entry], int | None]:
    """The snapshots that a change feed tells, and the one before."""
    known = [entry for entry in kept if entry.version > start]
    if query.start_time is not None or query.end_time is not None:
        _check_times(name, kept, query, from_first=start == 0, exclusive=True)
        low = query.start_time if query.start_time is not None else kept[0].timestamp
        told = [e for e in known if low <= e.timestamp and (query.end_time is None or e.timestamp <= query.end_time)]
    else:
        for version in (query.start_version, query.end_version):
            least = 0 if start == 0 else start + 1
            if version is not None and not least <= version <= log.newest:
                raise NotFoundError(
                    "VERSION_NOT_FOUND",
                    f"{name}: changes of version {version} are not known; "
                    + (f"those of {least} to {log.newest} are" if least <= log.newest else "none are"),
                )
        first = 0 if query.start_version is None else query.start_version
        last = log.newest if query.end_version is None else query.end_version
        told = [entry for entry in known if first <= entry.version <= last]
    if not told:
        return [], None
    place = kept.index(told[0])
    return told, kept[place - 1].version if place else None


def _check_range(query: Query) -> None:
    start, end = query.start_time, query.end_time
    if start is not None and end is not None and start > end:
        raise InvalidInputError(
            "INVALID_RANGE",
            f"{query.mode} from {format_time(start)} to {format_time(end)}: the start is after the end; swap them",
        )
    first, last = query.start_version, query.end_version
    if first is not None and last is not None and first > last:
        raise InvalidInputError("INVALID_RANGE", f"changes from version {first} to {last}: the start is after the end")


def _check_times(name: str, kept: list[Entry], query: Query, *, from_first: bool, exclusive: bool = False) -> None:
    """Of moments before the oldest snapshot nothing is known, if there were others before it."""
    first = kept[0].timestamp + exclusive
    asked = min((moment for moment in (query.start_time, query.end_time) if moment is not None), default=first)
    if not from_first and asked < first:
        since = "after" if exclusive else "from"
        raise NotFoundError(
            "TIME_NOT_KEPT",
            f"{name} has {query.mode} {since} {format_time(kept[0].timestamp)} on, asked for {format_time(asked)}",
        )


def same_files(old: Entry, new: Entry, groups: range) -> bool:
    """Whether key groups are stored in the same files of databases, so that they have the same rows."""
    files = _database_files(old, groups)
    return files is not None and files == _database_files(new, groups)


def _database_files(entry: Entry, groups: range) -> list[tuple[range, set[str], tuple[StateSpec, ...]]] | None:
    """Of each part; None if one is no database, as such have other files each time."""
    parts = [p for p in entry.handles if p.key_groups.start < groups.stop and groups.start < p.key_groups.stop]
    if any(part.kind == "full" for part in parts):
        return None
    return [(part.key_groups, {file.name for file in part.shared.values()}, part.states) for part in parts]


# What they say


def changes(snapshots: Iterator[tuple[int, int, Rows | None]], before: Rows) -> Iterator[pa.RecordBatch]:
    """What each snapshot (version, time, rows; None: as before) changed, with the columns of a change feed."""
    for version, moment, found in snapshots:
        if found is None:
            continue
        left, right, changed = _compared(before, found)
        removed, added = others(before.batch.num_rows, left), others(found.batch.num_rows, right)
        parts = (
            (INSERT, found, added),
            (PREIMAGE, before, left[changed]),
            (POSTIMAGE, found, right[changed]),
            (DELETE, before, removed),
        )
        for kind, rows, places in parts:
            if len(places):
                told = rows.batch.take(pa.array(places))
                yield _with_columns(told, _change_cells(kind, version, moment, len(places)), CHANGE_COLUMNS)
        before = found


def history(
    snapshots: Iterator[tuple[int, int, Rows | None]], empty: Rows, query: Query, *, from_first: bool
) -> Iterator[pa.RecordBatch]:
    """Every row with the times of the snapshots from which, and up to which, it was as it is. ``from_first``: there was
    no snapshot before these."""
    current, since, begun = empty, np.empty(0, np.int64), np.empty(0, np.int64)
    for version, moment, found in snapshots:
        if found is None:
            continue
        left, right, changed = _compared(current, found)
        same = ~changed
        gone = others(current.batch.num_rows, left[same])
        yield from _ended(current.batch, gone, since, begun, moment, query)
        count, known = found.batch.num_rows, from_first or current is not empty
        versions, times = np.full(count, version if known else UNKNOWN), np.full(count, moment)
        versions[right[same]], times[right[same]] = since[left[same]], begun[left[same]]
        current, since, begun = found, versions, times
    yield from _ended(current.batch, np.arange(current.batch.num_rows), since, begun, None, query)


def _compared(before: Rows, after: Rows) -> tuple[Ints, Ints, npt.NDArray[np.bool_]]:
    """Rows with the same key, and which of these have another value."""
    old, new = before.side(), after.side()
    left, right = pairs(old, new)
    return left, right, differences(old, new, left, right)[:, 0]


def _ended(
    batch: pa.RecordBatch, rows: Ints, since: Ints, begun: Ints, end: int | None, query: Query
) -> Iterator[pa.RecordBatch]:
    if not len(rows):
        return
    ends = pa.nulls(len(rows), TIME) if end is None else _moment(end, len(rows))
    unknown = since[rows] == UNKNOWN
    cells = [pa.array(begun[rows], mask=unknown).cast(TIME), ends, pa.array(since[rows], mask=unknown)]
    yield valid_rows(_with_columns(batch.take(pa.array(rows)), cells, HISTORY_COLUMNS), query)


def _change_cells(kind: int, version: int, moment: int, count: int) -> list[pa.Array]:
    names = pa.repeat(pa.scalar(CHANGE_TYPES[kind]), count)
    return [_moment(moment, count), names, pa.repeat(pa.scalar(version, pa.int64()), count), _moment(moment, count)]


def _moment(moment: int, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(moment, pa.int64()).cast(TIME), count)


def _with_columns(batch: pa.RecordBatch, cells: list[pa.Array], fields: Sequence[pa.Field]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([*batch.columns, *cells], schema=pa.schema([*batch.schema, *fields]))
