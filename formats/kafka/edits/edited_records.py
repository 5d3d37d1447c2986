"""Edits of a store's rows as records of its changelog: a null value for a row that goes, a value for one that comes.

A row that is there keeps the bytes of its key, its partition and, unless it changes, the bytes of its value. Timestamps
are those of the rows where the store keeps them. A version that goes becomes a tombstone at its own time, or at the
first one that the store still accepts, and in other stores a row goes at the time of the edit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.bytes.byte_columns import cells_of
from statestore.formats.edits import EditOptions, StateEdit
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, UnsupportedError, shown
from statestore.formats.kafka.changelogs.record_log import END
from statestore.formats.kafka.changelogs.version_history import VersionedRules, versions
from statestore.formats.kafka.columns.header_columns import HEADERS, empty_headers
from statestore.formats.kafka.columns.record_encoders import (
    SESSIONS,
    WINDOWS,
    kept_headers,
    kept_timestamps,
    record_keys,
)
from statestore.formats.kafka.columns.schema_encoders import Stored as StoredCells
from statestore.formats.kafka.columns.schema_encoders import has_id
from statestore.formats.kafka.columns.serde_encoders import encoded
from statestore.formats.kafka.columns.time_columns import window_ends
from statestore.formats.kafka.edits.edited_store import (
    KEY_SERDE,
    VALUE_SERDE,
    EditedStore,
    check_editable,
    last_times,
    present_records,
    sample_of,
    segment_times,
    stream_time,
    user_keys,
)
from statestore.formats.kafka.edits.edited_units import (
    FoundRows,
    Stored,
    cells_of_rows,
    found_rows,
    rows_of,
    same_cells,
)
from statestore.formats.kafka.edits.partitioning import fitting_counts, murmur2, partitions_of
from statestore.formats.kafka.stores.visibility import EXPIRED, is_visible, marks_expired
from statestore.formats.kernels.arrays import Ints

PARTITIONS = "partitions"
"""The setting of an edit that names the number of partitions of the topic."""
ERASE_HISTORY = "erase_history"
"""The setting of an edit by which a delete takes all versions of a key from a versioned store, true or false."""
RECORDS = pa.schema(
    [
        pa.field("partition", pa.int32(), False),
        pa.field("timestamp", pa.int64(), False),
        pa.field("key", pa.binary(), False),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS, False),
    ]
)


@dataclass(frozen=True)
class TopicRecords:
    """Records for a topic (RECORDS), in the order in which they are to be written, and what to know about them.

    ``needs_restore``: a store that goes on from its files would not apply all of them, as one that is restored does.
    """

    topic: str
    records: pa.Table
    notes: tuple[str, ...] = ()
    needs_restore: bool = False

    @property
    def erased(self) -> int:
        """The number of records that delete."""
        return int(self.records.column("value").null_count)


@dataclass(frozen=True)
class _Written:
    """Records in columns; ``key`` and ``value`` of type binary, the others numbers."""

    partition: Ints
    timestamp: Ints
    key: pa.Array
    value: pa.Array
    headers: pa.Array


def topic_records(store: EditedStore, edit: StateEdit, options: EditOptions, now: int) -> TopicRecords:
    """Return the records that make the changelog so. ``now`` is the time of the edit in milliseconds.

    Raises UnsupportedError EDIT_UNSUPPORTED, and InvalidInputError EDIT_REFUSED, WRONG_VALUE or INVALID_OPTION.
    """
    check_editable(store)
    if store.past:
        return _past_records(store, edit)
    added = rows_of(store, edit.added)
    plan = found_rows(store, edit)
    notes: list[str] = []
    times = _Times(store)
    erases_all = is_set(options, ERASE_HISTORY)
    parts = [_deletes(store, plan.erased, now, times, notes, newest_alone=not erases_all)]
    if store.kind.has_past and len(plan.erased) and erases_all:
        parts.append(_earlier_deletes(store, plan.erased, times, notes))
    if len(added):
        chosen = np.concatenate([plan.kept_by, plan.new])
        keys, partition = _places(store, plan, added, options, notes)
        rows = added.take(pa.array(chosen))
        parts.append(_puts(store, plan, rows, keys, partition, now))
        _check_times(store, plan, rows, parts[-1], times, options)
        _check_derived(store, edit, chosen, rows, options)
    found = _ordered(store, parts)
    if store.kind.segmented and store.retention is None and len(found):
        notes.append(
            f"{store.where}: its retention was not given (option retention), so it was not checked that no row of the "
            "edit has expired; the application drops those that have"
        )
    return TopicRecords(store.topic, found, tuple(notes), erases_all and bool(len(found)) and store.kind.has_past)


def is_set(options: EditOptions, name: str) -> bool:
    """Return whether a setting is true. Raises InvalidInputError INVALID_OPTION for anything but true and false."""
    text = options.settings.get(name, "false").lower()
    if text not in ("true", "false"):
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION, f"setting {name} is {shown(options.settings[name])}; expected true or false"
        )
    return text == "true"


# Deletes


class _Times:
    """The stream time of each partition, looked up once."""

    def __init__(self, store: EditedStore) -> None:
        self._store, self._known = store, dict[int, int]()
        self._logs = {log.partition: log for log in store.logs}

    def of(self, partition: int) -> int:
        if partition not in self._known:
            log = self._logs.get(partition)
            self._known[partition] = -1 if log is None else stream_time(self._store, log)
        return self._known[partition]

    def oldest(self, partition: int) -> int:
        """The first time of which a versioned store still accepts a version."""
        if self._store.retention is None:
            raise UnsupportedError(
                ErrorCode.EDIT_UNSUPPORTED,
                f"{self._store.where}: a versioned store ignores versions older than its history retention, which "
                "nothing here names; give it with option retention (milliseconds)",
            )
        return max(self.of(partition) - self._store.retention, 0)


def _deletes(
    store: EditedStore, rows: Stored, now: int, times: _Times, notes: list[str], *, newest_alone: bool
) -> _Written:
    moments = np.full(len(rows), now, np.int64)
    if store.kind.has_past and len(rows):
        begin = rows.milliseconds("valid_from")
        least = np.empty(len(rows), np.int64)
        for partition in np.unique(rows.partition).tolist():
            least[rows.partition == partition] = times.oldest(partition)
        moments = np.maximum(begin, least)
        late = int(np.count_nonzero(begin < least))
        if newest_alone:
            notes.append(
                f"{store.where}: only the newest version of {len(rows)} deleted keys goes; their earlier versions stay "
                f"in its history until they expire, unless setting {ERASE_HISTORY} deletes them, too"
            )
        if late:
            notes.append(
                f"{store.where}: {late} deleted versions are older than the history retention, so they end at the "
                "first moment that the store accepts, and what was before it stays in its history until it expires"
            )
    return _tombstones(rows.partition, moments, rows.key)


def _tombstones(partition: Ints, moments: Ints, keys: pa.Array) -> _Written:
    return _Written(partition, moments, keys, pa.nulls(len(keys), pa.binary()), empty_headers(len(keys)))


def _earlier_deletes(store: EditedStore, rows: Stored, times: _Times, notes: list[str]) -> _Written:
    """The deletes of versions before the newest one: each at the time of the version, whose place it takes.

    What was before the first moment that the store accepts is out of reach, and so of its queries.
    """
    found = [_tombstones(np.empty(0, np.int64), np.empty(0, np.int64), pa.array([], pa.binary()))]
    for log in store.logs:
        keys = rows.key.filter(pa.array(rows.partition == log.partition))
        if not len(keys):
            continue
        oldest = times.oldest(log.partition)
        for batch in versions([log], VersionedRules(store.retention), END, expired=True):
            earlier = pc.fill_null(pc.greater(batch.column("valid_to"), oldest), False)
            own = batch.filter(pc.and_(pc.is_in(batch.column("key"), value_set=keys), earlier))
            moments = np.maximum(own.column("valid_from").to_numpy(), oldest)
            found.append(_tombstones(np.full(len(own), log.partition, np.int64), moments, own.column("key")))
    written = _joined(found)
    notes.append(
        f"{store.where}: {len(written.key)} earlier versions of {len(rows)} deleted keys go, too; what the history has "
        "from before its retention stays in files until its segments expire, and no query shows it"
    )
    return written


# The past of versioned stores
#
# A put at the time of a version takes its place, wherever it comes in the topic. A compaction of the topic leaves the
# last record of a key, though, which has to be that of its newest version; so this one is written once more.


def _past_records(store: EditedStore, edit: StateEdit) -> TopicRecords:
    """The records that change past versions: a put or a tombstone at the time of each, then the newest of its key."""
    times = _Times(store)
    _check_same_times(store, edit)
    rows, plan = rows_of(store, edit.added), found_rows(store, edit)
    rows = rows.take(pa.array(plan.kept_by))
    gone = _tombstones(plan.erased.partition, plan.erased.milliseconds("valid_from"), plan.erased.key)
    changed = _puts(store, plan, rows, plan.kept.key, plan.kept.partition, 0)
    past = _joined([gone, changed])
    for partition in np.unique(past.partition).tolist():
        oldest, time = times.oldest(partition), int(past.timestamp[past.partition == partition].min())
        if time < oldest:
            raise store.refused(
                f"found a version from {time} ms in partition {partition}, and the store ignores records from before "
                f"{oldest} ms (stream time less history retention), so nothing can take its place any more"
            )
    found = _ordered(store, [past, _newest_again(store, past)])
    notes = [
        f"{store.where}: the newest version or delete of each key is written once more behind its past ones, so that a "
        "compaction of the topic leaves it"
    ]
    if len(plan.erased):
        notes.append(
            f"{store.where}: from the time of each of {len(plan.erased)} deleted versions to that of the next one, its "
            "key has no value. That is not as if the version had never been: to let the one before it hold on, give "
            "the version its value by UPDATE"
        )
    return TopicRecords(store.topic, found, tuple(notes) if len(found) else (), bool(len(found)))


def _check_same_times(store: EditedStore, edit: StateEdit) -> None:
    """Raise InvalidInputError EDIT_REFUSED for a row that comes with a key and times that no row has which goes."""
    names = ["key", "valid_from", "valid_to"]
    there, come = (table.select(names).combine_chunks().to_batches() for table in (edit.removed, edit.added))
    known = {cells for batch in there for cells in cells_of_rows(batch, names)}
    if any(cells not in known for batch in come for cells in cells_of_rows(batch, names)):
        raise store.refused(
            "found a past version with another key, valid_from or valid_to than before, expected the value alone to "
            "change: a version that comes would end the one before it"
        )


def _newest_again(store: EditedStore, past: _Written) -> _Written:
    """The records of the newest versions of some keys, or of the deletes that ended them."""
    found = [_tombstones(np.empty(0, np.int64), np.empty(0, np.int64), pa.array([], pa.binary()))]
    for log in store.logs:
        keys = past.key.filter(pa.array(past.partition == log.partition))
        if not len(keys):
            continue
        newest: dict[bytes, tuple[int, bytes | None]] = {}
        for batch in versions([log], VersionedRules(store.retention), END, expired=True):
            own = batch.filter(pc.is_in(batch.column("key"), value_set=keys))
            columns = (own.column(name).to_pylist() for name in ("key", "value", "valid_from", "valid_to"))
            for key, value, begin, end in zip(*columns, strict=True):
                latest = (begin, value) if end is None else (end, None)
                newest[key] = max(newest.get(key, (-1, None)), latest, key=lambda each: (each[0], each[1] is not None))
        moments, values = ([each[at] for each in newest.values()] for at in (0, 1))
        place = np.full(len(newest), log.partition, np.int64)
        cells = pa.array(list(newest), pa.binary()), pa.array(values, pa.binary())
        found.append(_Written(place, np.array(moments, np.int64), *cells, empty_headers(len(newest))))
    return _joined(found)


# Rows that come


def _places(
    store: EditedStore, plan: FoundRows, added: pa.RecordBatch, options: EditOptions, notes: list[str]
) -> tuple[pa.Array, Ints]:
    """The keys and partitions of the records: those of now, and for new rows those of the serde and the partitioner."""
    stored, partition = plan.kept.key, plan.kept.partition
    if not len(plan.new):
        return stored, partition
    store.given(KEY_SERDE)
    rows = added.take(pa.array(plan.new))
    sample = sample_of(store, is_key=True) if has_id(store.form.key_serde) else None
    own = encoded(store.form.key_serde, rows.column("key"), f"{store.where}, column key", StoredCells(None, sample))
    keys = record_keys(store.kind, own, rows)
    placed = partitions_of(murmur2(cells_of(own)), _count(store, options, notes))
    return pa.concat_arrays([stored, keys]), np.concatenate([partition, placed])


def _count(store: EditedStore, options: EditOptions, notes: list[str]) -> int:
    """The number of partitions with which the default partitioner puts the present keys where they are."""
    given = store.partitions if store.partitions is not None else _partitions_given(store, options)
    found = [(log.partition, user_keys(store, log)) for log in store.logs]
    hashes = np.concatenate([np.empty(0, np.uint32), *(murmur2(keys) for _, keys in found)])
    places = np.concatenate([np.empty(0, np.int64), *(np.full(len(keys), at, np.int64) for at, keys in found)])
    if given is not None:
        if not bool((partitions_of(hashes, given) == places).all()):
            raise _other_partitioner(store, f"with {given} partitions")
        if not len(hashes):
            notes.append(
                f"{store.where}: no key is there to show how the application places them; new ones were placed by "
                f"Kafka's default partitioner among {given} partitions"
            )
        return given
    fitting = fitting_counts(hashes, places, 1 + max((at for at, _ in found), default=0))
    if not fitting:
        raise _other_partitioner(store, "with any number of partitions")
    if len(fitting) > 1:
        raise store.refused(
            f"the topic may have {fitting[0]} or {fitting[1]} partitions by the keys that are here, so where a new key "
            f"belongs is unknown; give the number of its partitions as option {PARTITIONS}, or read the topic from "
            "the broker"
        )
    return fitting[0]


def _partitions_given(store: EditedStore, options: EditOptions) -> int | None:
    text = options.settings.get(PARTITIONS)
    if text is None:
        return None
    least = 1 + max((log.partition for log in store.logs), default=0)
    if not text.isdecimal() or not least <= int(text) < 1 << 31:
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION,
            f"option {PARTITIONS} is {shown(text)}; expected the number of partitions of {store.topic}, {least} or "
            "more",
        )
    return int(text)


def _other_partitioner(store: EditedStore, among: str) -> InvalidInputError:
    return store.refused(
        f"the keys that are there do not lie where Kafka's default partitioner puts them {among}, so where a new key "
        "belongs is unknown; put an input record for it, which the application places itself"
    )


def _puts(
    store: EditedStore, plan: FoundRows, rows: pa.RecordBatch, keys: pa.Array, partition: Ints, now: int
) -> _Written:
    kept = kept_timestamps(store.kind, rows)
    if kept is not None and (kept < 0).any():
        name = "valid_from" if store.kind.has_past else "timestamp"
        raise store.refused(f"found {name} null or before 1970 in a row, expected the time that its record is to have")
    _check_headers(store, rows)
    moments = np.full(len(rows), now, np.int64) if kept is None else kept
    return _Written(partition, moments, keys, _values(store, plan, rows), kept_headers(store.kind, rows))


def _check_headers(store: EditedStore, rows: pa.RecordBatch) -> None:
    """Raise InvalidInputError EDIT_REFUSED for headers that no record can have."""
    if not store.kind.headers:
        return
    column = rows.column("headers")
    each = column.flatten()
    if column.null_count or each.null_count or each.field("name").null_count:
        raise store.refused(
            "found null headers in a row, or a header that is null or has no name; give a list, [] for none, with a "
            "name for each"
        )


def _values(store: EditedStore, plan: FoundRows, rows: pa.RecordBatch) -> pa.Array:
    """The bytes of the values: those of the replaced record where the value stays."""
    column, count = rows.column("value"), len(plan.kept)
    if column.null_count and not pa.types.is_null(column.type):
        raise store.refused("found a null value in a row, which is how Kafka deletes; delete the row, or give a value")
    own = pa.concat_arrays([plan.kept.value, pa.nulls(len(plan.new), pa.binary())])
    fresh = np.ones(len(rows), bool)
    fresh[:count] = ~same_cells(plan.kept.rows.column("value"), column.slice(0, count))
    if not fresh.any():
        return own
    store.given(VALUE_SERDE)
    mask = pa.array(fresh)
    sample = sample_of(store) if has_id(store.form.value_serde) else None
    replaced = StoredCells(own.filter(mask), sample)
    found = encoded(store.form.value_serde, column.filter(mask), f"{store.where}, column value", replaced)
    places = np.arange(len(rows))
    places[fresh] = len(rows) + np.arange(len(found))
    return pa.concat_arrays([own, found]).take(pa.array(places))


# What the application would drop at once, or what a reader computes


def _check_times(
    store: EditedStore, plan: FoundRows, rows: pa.RecordBatch, written: _Written, times: _Times, options: EditOptions
) -> None:
    if store.kind.has_past:
        _check_versions(store, plan, written, times)
    elif store.kind.rows in (*WINDOWS, *SESSIONS):
        segments = segment_times(store, cells_of(written.key))
        if len(segments) and int(segments.min()) < 0:
            raise store.refused(f"found a window or session at {int(segments.min())} ms, expected 0 or more")
        if store.retention is not None:
            for partition in np.unique(written.partition).tolist():
                own = segments[written.partition == partition]
                _check_segments(store, store.retention, partition, own, times.of(partition), options)


def _check_versions(store: EditedStore, plan: FoundRows, written: _Written, times: _Times) -> None:
    begin = np.full(len(written.timestamp), -1, np.int64)
    begin[: len(plan.kept)] = plan.kept.milliseconds("valid_from") if len(plan.kept) else 0
    for log in store.logs:
        fresh = len(plan.kept) + np.flatnonzero(written.partition[len(plan.kept) :] == log.partition)
        keys = written.key.take(pa.array(fresh)).to_pylist()
        last = last_times(store, log, set(keys)) if keys else {}
        if last:
            begin[fresh] = [last.get(key, -1) for key in keys]
    early = np.flatnonzero(written.timestamp < begin)
    if len(early):
        time, there = int(written.timestamp[early[0]]), int(begin[early[0]])
        raise store.refused(
            f"found valid_from {time} ms of a key that has a version or a delete at {there} ms, expected that time or "
            "a later one: a version of the past would not be the newest (those that are there are edited in state "
            f"{store.state}.past)"
        )
    for partition in np.unique(written.partition).tolist():
        oldest, time = times.oldest(partition), int(written.timestamp[written.partition == partition].min())
        if time < oldest:
            raise store.refused(
                f"found valid_from {time} ms in partition {partition}, and the store ignores versions from before "
                f"{oldest} ms (stream time less history retention); give a later valid_from"
            )


def _check_segments(
    store: EditedStore, retention: int, partition: int, own: Ints, seen: int, options: EditOptions
) -> None:
    form = store.kind.rows
    if not options.allow_late and not bool(is_visible(form, own, seen, retention).all()):
        raise store.refused(
            f"found a row of {int(own.min())} ms in partition {partition}, which has expired: its stream time is "
            f"{seen} and the retention {retention} ms, so the application drops the row; allow late rows to write it "
            "all the same"
        )
    newest = int(own.max())
    if newest <= seen:
        return
    for log in store.logs:
        if log.partition == partition:
            for records in present_records(store, log):
                there = segment_times(store, cells_of(records["key"]))
                live = is_visible(form, there, seen, retention)
                if not bool(is_visible(form, there[live], newest, retention).all()):
                    raise store.refused(
                        f"found a row of {newest} ms, later than the stream time {seen} of partition {partition}: "
                        "other rows would expire by it, at the start of the application; give an earlier time"
                    )


def _check_derived(
    store: EditedStore, edit: StateEdit, chosen: Ints, rows: pa.RecordBatch, options: EditOptions
) -> None:
    """Raise InvalidInputError EDIT_REFUSED for columns that a reader computes, and would compute otherwise."""
    if "window_end" in rows.schema.names:
        starts = rows.column("window_start").cast(pa.int64()).to_numpy(zero_copy_only=False) // 1000
        right = window_ends(starts, store.form.window_size)
        if not right.equals(rows.column("window_end")):
            expected = "null" if store.form.window_size is None else f"window_start and {store.form.window_size} ms"
            raise store.refused(f"found another window_end in a row than {expected}, which it is by the window size")
    if marks_expired(store.kind, store.retention) and EXPIRED in edit.added.column_names and not options.allow_late:
        late = edit.added.column(EXPIRED).take(pa.array(chosen))
        if late.null_count or pc.any(late).as_py():
            raise store.refused(f"found {EXPIRED} true or null in a row, expected false: a reader computes it")


def _joined(parts: Sequence[_Written]) -> _Written:
    partition = np.concatenate([each.partition for each in parts])
    timestamp = np.concatenate([each.timestamp for each in parts])
    cells = (pa.concat_arrays([getattr(each, name) for each in parts]) for name in ("key", "value", "headers"))
    return _Written(partition, timestamp, *cells)


def _ordered(store: EditedStore, parts: Sequence[_Written]) -> pa.Table:
    """The records of all parts by partition; versions by their times, as a store refuses what is far behind another.

    So the newest version of a key comes last, too, which is the one that a compaction of the topic leaves.
    """
    whole = _joined(parts)
    partition, timestamp = whole.partition, whole.timestamp
    order = np.lexsort((timestamp, partition)) if store.kind.has_past else np.argsort(partition, kind="stable")
    if not timestamp.all():
        raise store.refused(
            "found a record of 1970-01-01T00:00:00, which clients of Kafka other than Java's take for a record without "
            "a time; give another time"
        )
    columns = [pa.array(partition, pa.int32()), pa.array(timestamp, pa.int64()), whole.key, whole.value, whole.headers]
    return pa.Table.from_arrays(columns, schema=RECORDS).take(pa.array(order))
