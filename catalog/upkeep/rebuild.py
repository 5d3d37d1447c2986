"""Rebuilding a store with another kind, retention or segment interval by replaying its writes (KIP-889, upgrade).

Local files are never converted in place, as in Kafka Streams: the new store is made beside the old one, which stays
until the new one is committed. In the replay the time of a version is its state time. Records that are too old for the
new retention at their turn are refused. A commit is one turn, with its records in the order of their times.

Two versioned stores have the same timelines: every value and every delete that the newest version believes, even a
delete that ended nothing, because a later put may find it. In all other cases the writes are replayed in the order of
commits, so that a store without versions keeps the last one of each key.

An expiry leaves nothing of moments before its horizon, so rows that ended by then are not replayed. Between versioned
stores, the rows valid at the horizon are those that the newest version believes, and are never too old: what came
before cannot be known write by write. In the order of commits, what the commits up to the horizon's version left is
replayed first, in the order of times. The new store has the same horizon, so that it refuses the same moments and puts,
except for a key_value store, whose times are new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.catalog.commits.publish_commit import Change, commit_change
from statestore.catalog.commits.sorted_records import Records
from statestore.catalog.log.log_state import LogState
from statestore.catalog.log.store_spec import KEYED, StoreSpec
from statestore.catalog.reads.belief import BEGINNING, NOW, SegmentWithClosures, ends_between, pair_ends, with_closures
from statestore.catalog.reads.change_events import rows_between
from statestore.catalog.reads.changes import SPLIT_EVENTS, plan_changes, read_changes, time_ranges
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.catalog.reads.table import Table
from statestore.catalog.reads.versioned_table import VersionedTable
from statestore.catalog.upkeep.expiry import run_expiry
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import UnsupportedError
from statestore.formats.kernels.arrays import Bools, Ints
from statestore.formats.segments.segment import Segment
from statestore.formats.state_table import Query
from statestore.formats.values.types import TIME

ALIKE = (
    frozenset(("versioned", "key_value")),
    frozenset(("window",)),
    frozenset(("join_window",)),
    frozenset(("session",)),
)
ADDED = ("window_end", "sequence")  # key columns that the new store adds itself
_OfKeys = Callable[[list[pa.Array]], Bools]
"""Returns which of the keys, given by their columns, are chosen."""

_RowsOfSegment = tuple[SegmentWithClosures, Ints, Ints]  # rows of a segment, and their starts


def check_rebuild(spec: StoreSpec, new: str) -> None:
    """Raise UnsupportedError REBUILD_KIND if rows of the store cannot become rows of another kind, or cannot be
    replayed.
    """
    name, old = spec.name, spec.kind
    if spec.captured is not None:
        raise UnsupportedError(
            ErrorCode.REBUILD_KIND,
            f"store {name!r} keeps the versions of {spec.captured.path}, each as one commit, which a rebuild does not "
            "keep; capture into another warehouse, or put the rows of its history into a new store",
        )
    if old == KEYED:
        raise UnsupportedError(
            ErrorCode.REBUILD_KIND,
            f"store {name!r} is a keyed store, which has no changes to replay; read its states, and "
            "put them into a new store",
        )
    if not any({old, new} <= group for group in ALIKE):
        raise UnsupportedError(
            ErrorCode.REBUILD_KIND,
            f"store {name!r} is of kind {old!r} and cannot become {new!r}: its rows have other keys; versioned and "
            "key_value stores can become each other, others keep their kind",
        )


def replay(table: VersionedTable, target: Any) -> None:
    """Put the writes that the table's commits recorded into ``target``, and commit."""
    for batch in writes_for(table, target.spec):
        target.put_all(batch)
    target.commit()
    take_over(table, target, refused_for(table, target.spec))


def refused_for(table: VersionedTable, spec: StoreSpec, mine: _OfKeys | None = None) -> int:
    """Return how many writes of chosen keys, or of all, a store ``spec`` refuses that are not among its `writes_for`.

    They were too old for it when they were committed.
    """
    return _refused_writes(table, _retention(spec), mine) if is_timeline(table.spec, spec) else 0


def take_over(table: VersionedTable, target: Any, refused: int) -> None:
    """Give ``target``, which has the writes, what decides about later puts: the stream time and the horizon.

    ``refused`` is the number of writes that were not among them. The greatest time may be that of a value that was
    taken back, or that an expiry removed, which no row shows.
    """
    source, files, spec, log_state = table.files().log.newest(), target._files, target.spec, target._log_state
    if spec.kind == "key_value":
        return
    if refused or source.stream_time_us > log_state.stream_time_us:
        keys, values = ([pa.array([], field.type) for field in schema] for schema in (spec.key, spec.value))
        nothing = Records(keys, values, np.empty(0, np.int64), np.empty(0, bool))
        stream_time = max(source.stream_time_us, log_state.stream_time_us)
        change = Change("write", nothing, stream_time, refused, expiring=spec.windowing)
        log_state = commit_change(files, log_state, lambda base: change)
    if source.horizon is not None:
        log_state = run_expiry(files, log_state, source.horizon.time)
    target._advance(log_state)


def writes_for(table: VersionedTable, spec: StoreSpec, mine: _OfKeys | None = None) -> Iterator[pa.Table]:
    """Yield key, value, ``timestamp`` and ``_change_type`` of the writes for a store ``spec``, of chosen keys or all.

    They have the order in which the store takes them.
    """
    if is_timeline(table.spec, spec):
        yield from _timeline_writes(table, _retention(spec), mine)
    else:
        yield from _in_order_of_commits(table, mine)


def is_timeline(old: StoreSpec, new: StoreSpec) -> bool:
    """Return whether the writes are those of the newest belief, by time, and none is too late for the new store."""
    return old.kind == new.kind == "versioned"


def _retention(spec: StoreSpec) -> int | None:
    """Return the retention of a versioned store in microseconds."""
    return None if spec.history_retention is None else spec.history_retention * 1000


def _in_order_of_commits(table: VersionedTable, mine: _OfKeys | None) -> Iterator[pa.Table]:
    names = [n for n in (*table.spec.key_names, *table.spec.value_names) if n not in ADDED]
    files = table.files()
    log_state, _lease = files.log.leased()
    first = 0
    if log_state.horizon is not None:
        first = log_state.horizon.version + 1
        yield _history(table, names, log_state.horizon.version, mine)
    if first > log_state.version:
        return
    query = Query(mode="changes", columns=(*names, "valid_from", "_change_type"), start_version=first)
    schema = table.schema(query)
    for split in plan_changes(files, log_state, query):
        for batch in read_changes(files, replace(split, whole=True), schema, ()):
            kept = _of_keys(batch.filter(pc.not_equal(batch.column("_change_type"), "update_preimage")), table, mine)
            if kept.num_rows:
                yield pa.Table.from_batches([kept]).rename_columns([*names, "timestamp", "_change_type"])


def _of_keys(batch: pa.RecordBatch, table: VersionedTable, mine: _OfKeys | None) -> pa.RecordBatch:
    """Return the rows of chosen keys."""
    if mine is None or not batch.num_rows:
        return batch
    return batch.filter(pa.array(mine([batch.column(name) for name in table.spec.key_names])))


def _history(table: VersionedTable, names: list[str], version: int, mine: _OfKeys | None) -> pa.Table:
    """Return the belief of the oldest kept version: every value at its start, and a delete at its end."""
    reader = Table(table).history(version=version, columns=[*names, "valid_from", "valid_to"])
    rows = pa.Table.from_batches((_of_keys(batch, table, mine) for batch in reader), reader.schema)
    ended = rows.filter(pc.is_valid(rows["valid_to"]))
    parts = []
    for part, time, change in ((ended, "valid_to", "delete"), (rows, "valid_from", "insert")):
        kept = part.select([*names, time]).rename_columns([*names, "timestamp"])
        parts.append(kept.append_column("_change_type", pa.array([change] * part.num_rows, pa.string())))
    # At one time the delete comes first, so that a value that follows at once stays.
    return pa.concat_tables(parts).sort_by([("timestamp", "ascending"), ("_change_type", "ascending")])


@dataclass(frozen=True)
class _Belief:
    """The belief that is replayed: the newest, or with ``retention`` that of the last commit accepted at each time.

    An expiry leaves what each commit believed about moments from ``known`` on. Times before are not known one by one,
    so the rows valid at that moment are those of the newest version.
    """

    files: SegmentFiles
    segments: tuple[SegmentWithClosures, ...]
    known: int
    stream_times: Ints | None
    retention: int

    @staticmethod
    def of(files: SegmentFiles, log_state: LogState, retention: int | None) -> _Belief:
        horizon = log_state.horizon
        segments = tuple(with_closures(log_state.segments, log_state.closures))
        if retention is None:  # rows in belief segments are not those of the newest version
            segments = tuple(segment for segment in segments if segment.meta.role != "belief")
        return _Belief(
            files,
            segments,
            BEGINNING if horizon is None else horizon.time,
            None if retention is None else log_state.versions.stream_time,
            retention or 0,
        )

    def has(self, segment: SegmentWithClosures, low: int, high: int, starts: Ints) -> Bools:
        """Return which rows [low, high) are believed, and reach beyond the moments that have expired."""
        if self.stream_times is None:
            ends = ends_between(self.files, segment, low, high)
        else:
            ends = pair_ends(self.files, segment, np.arange(low, high), self._accepted(starts))
        believed: Bools = ends > np.maximum(starts, self.known)
        return believed

    def refused(self, segment: SegmentWithClosures, mine: _OfKeys | None) -> int:
        """Return the number of rows of a segment whose write is refused, of chosen keys or of all."""
        if self.stream_times is None:
            return 0
        count, file = 0, self.files.open_segment(segment.meta)
        for low, high, starts in rows_between(self.files, segment, BEGINNING, NOW):
            added = file.int64_rows("_added", low, high)
            late = _chosen(file, self.files.spec, low, np.flatnonzero(added > self._accepted(starts)), mine)
            first_ends = pair_ends(self.files, segment, low + late, added[late])
            count += int(np.count_nonzero(first_ends > np.maximum(starts[late], self.known)))
        return count

    def _accepted(self, starts: Ints) -> Ints:
        """Return the last version whose writes at these times are accepted: the stream time before it is early
        enough.
        """
        assert self.stream_times is not None
        newest = len(self.stream_times) - 1
        found = np.searchsorted(self.stream_times, starts + self.retention, side="right")
        return np.where(starts <= self.known, newest, np.minimum(found, newest))


def _timeline_writes(table: VersionedTable, retention: int | None, mine: _OfKeys | None) -> Iterator[pa.Table]:
    """Yield key, value, ``timestamp`` and ``_change_type`` of every entry by time, of chosen keys or of all.

    Each key has one entry, a value or a delete, for each time at which its value changes. No two entries share a key
    and a time, so their order changes no answer. They are yielded in memory for about a million rows.

    ``retention`` (microseconds) is that of the new store, which refuses what was too old at its turn; None accepts
    everything. The stream time only grows, so of the writes at one time the new store accepts those of the commits up
    to some version. The entries at that time are those that this version believed.
    """
    files = table.files()
    log_state, _lease = files.log.leased()
    belief = _Belief.of(files, log_state, retention)
    starts = [segment.meta.min_valid_from for segment in belief.segments if segment.meta.rows]
    if not starts:
        return
    last = max(segment.meta.max_valid_from for segment in belief.segments if segment.meta.rows)
    for low, high in time_ranges(files, belief.segments, min(starts), last):
        # Any number of rows may have one start. Where there are many, a range begins with it.
        for rows in _found(belief, low, low, mine):
            yield _writes(files, [rows])
        rest = list(_found(belief, low + 1, high, mine)) if low < high else []
        if rest:
            yield _writes(files, rest).sort_by("timestamp")


def _refused_writes(table: VersionedTable, retention: int | None, mine: _OfKeys | None = None) -> int:
    """Return the number of writes, of chosen keys or of all, that the new store refuses because they were too old at
    their turn.
    """
    files = table.files()
    log_state, _lease = files.log.leased()
    belief = _Belief.of(files, log_state, retention)
    return sum(belief.refused(segment, mine) for segment in belief.segments)


def _found(belief: _Belief, first: int, last: int, mine: _OfKeys | None) -> Iterator[_RowsOfSegment]:
    """Yield the entries that start from ``first`` to ``last``, with at most SPLIT_EVENTS rows of a segment at a
    time."""
    for segment in belief.segments:
        file = belief.files.open_segment(segment.meta)
        for begin, end, all_starts in rows_between(belief.files, segment, first, last):
            for low in range(begin, end, SPLIT_EVENTS):
                high = min(end, low + SPLIT_EVENTS)
                starts = all_starts[low - begin : high - begin]
                believed = np.flatnonzero(belief.has(segment, low, high, starts))
                chosen = _chosen(file, belief.files.spec, low, believed, mine)
                if len(chosen):
                    yield segment, low + chosen, starts[chosen]


def _chosen(file: Segment, spec: StoreSpec, first: int, rows: Ints, mine: _OfKeys | None) -> Ints:
    """Return those of the rows, counted from ``first``, whose keys are chosen."""
    if mine is None or not len(rows):
        return rows
    chosen: Ints = rows[mine([file.take(name, first + rows) for name in spec.key_names])]
    return chosen


def _writes(files: SegmentFiles, found: Sequence[_RowsOfSegment]) -> pa.Table:
    spec = files.spec
    fields = [*spec.key, *spec.value]
    schema = pa.schema(
        [
            *(pa.field(field.name, field.type) for field in fields),
            pa.field("timestamp", TIME),
            pa.field("_change_type", pa.string()),
        ]
    )
    batches = []
    for segment, rows, starts in found:
        file, dead = files.open_segment(segment.meta), segment.meta.tombstone
        columns = [
            pa.nulls(len(rows), field.type)
            if dead and field.name not in spec.key_names
            else file.take(field.name, rows).cast(field.type)
            for field in fields
        ]
        kind = pa.repeat(pa.scalar("delete" if dead else "insert"), len(rows))
        batches.append(pa.RecordBatch.from_arrays([*columns, pa.array(starts).cast(TIME), kind], schema=schema))
    return pa.Table.from_batches(batches, schema=schema)
