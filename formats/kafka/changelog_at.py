"""The rows of a store as its changelog gives them: a `StateAt` that holds the past, in a part for each partition.

Moments are stream time, the greatest record timestamp so far: the rows at a moment are those of the records before the
first one that is later. So a row is valid from the stream time of its record to that of its key's next one. Versions of
versioned stores are valid by their own timestamps (KIP-889).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from statestore.formats.bytes.hash_passes import Rereader
from statestore.formats.bytes.newest_of_keys import MOST_KEYS, newest_passes
from statestore.formats.engine import HoldsPast, Part, StateAt
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, NotFoundError
from statestore.formats.kafka.changelogs.key_ranges import KeyRange, in_key_ranges, of_keys
from statestore.formats.kafka.changelogs.record_history import BATCH_ROWS, neighbours
from statestore.formats.kafka.changelogs.record_log import END, LogMoment, RecordLog, keyed
from statestore.formats.kafka.changelogs.records import COLUMNS, Records, offset_column
from statestore.formats.kafka.changelogs.version_history import VersionedRules, versions
from statestore.formats.kafka.columns.header_columns import HEADERS
from statestore.formats.kafka.columns.store_form import StoreForm, StoreKind
from statestore.formats.kafka.columns.store_kinds import KINDS, logged_rows, logged_schema
from statestore.formats.kafka.key_filters import PARTITION, encoded_keys, partitions_asked
from statestore.formats.kafka.known_store import KnownStore
from statestore.formats.kafka.log_wholeness import NEVER, Wholeness, length_of, wholeness
from statestore.formats.kafka.stores.visibility import (
    EXPIRED,
    expired_column,
    marks_expired,
    segment_times_of,
    without_expired,
)
from statestore.formats.places.reading_threads import in_order, reading_threads
from statestore.formats.values.filters import Filter
from statestore.formats.values.times import format_time

OFFSET = "changelog_offset"
TIME = pa.timestamp("us", tz="UTC")
VERSION = 1
READ = ("key", "value", "headers", "timestamp", "offset")
_NOT_SHOWN = ("tombstone", "record")


@dataclass(frozen=True)
class LogPart:
    """The log of one partition; ``stream_time`` (milliseconds) is known where rows are marked by it."""

    log: RecordLog
    stream_time: int | None = None
    rows: int | None = None


@dataclass(frozen=True)
class ChangelogAt(HoldsPast):
    """A changelog up to a moment. ``retention`` is that of windows, sessions or versions, in milliseconds.

    ``whole`` is a cache by partition.
    """

    logs: tuple[RecordLog, ...]
    form: StoreForm
    retention: int | None = None
    moment: LogMoment = END
    hide_expired: bool = False
    whole: dict[int, Wholeness] = field(default_factory=dict, repr=False, compare=False)

    @property
    def version(self) -> int:
        return VERSION

    @property
    def schema(self) -> pa.Schema:
        return changelog_schema(self.form, self.retention)

    def parts(self, filters: Sequence[Filter]) -> Sequence[LogPart]:
        wanted = partitions_asked(filters)
        for log in self.logs:
            self._check_times(log)
            self._check_prefix(log)
        marked = marks_expired(self.kind, self.retention)
        return [
            LogPart(log, self._stream_time(log) if marked else None)
            for log in self.logs
            if wanted is None or log.partition in wanted
        ]

    def rows(self, part: Any, columns: Collection[str], filters: Sequence[Filter]) -> Iterator[pa.RecordBatch]:
        if self.is_versioned:
            for batch in self.past_rows(part, columns, filters):
                yield batch.filter(batch.column("valid_to").is_null()).drop_columns(["valid_to"])
            return
        for batch in replayed([part.log], self.moment, columns=READ, keys=self._keys(filters)):
            rows = self.decoded(batch, part, columns)
            yield without_expired(rows) if self.hide_expired else rows

    def past_from(self) -> int | None:
        """The stream time from which on no record is missing, of all partitions (epoch microseconds)."""
        self.check_past()
        begins = [self._wholeness(log).stream_time for log in self.logs]
        known = [begin for begin in begins if begin is not None]
        if self.hide_expired and self.retention is not None and self.is_versioned:
            known += [self._stream_time(log) - self.retention for log in self.logs]
        return max(known) * 1000 if known else None

    def check_past(self) -> None:
        """Raise InvalidInputError CONFLICTING_OPTIONS for rows of now in a question about the past."""
        for log in self.logs:
            if not log.findings.times_known:
                raise NotFoundError(
                    ErrorCode.TIME_NOT_KEPT,
                    f"partition {log.partition} of the changelog has records without a timestamp, so its past is "
                    "unknown; export them with timestamps (kcat -J, or print.timestamp=true)",
                )
        if self.hide_expired and not self.is_versioned and marks_expired(self.kind, self.retention):
            raise InvalidInputError(
                ErrorCode.CONFLICTING_OPTIONS,
                "option hideExpired is about the rows of now, and a moment, a history or changes were asked for; leave "
                "it out",
            )

    def past_hint(self) -> str:
        if self.kind.segmented and self.retention is None:
            return "; give the store's retention with option retention, and the past is longer"
        return ""

    def past_rows(self, part: Any, columns: Collection[str], filters: Sequence[Filter]) -> Iterator[pa.RecordBatch]:
        log = part.log
        if self.is_versioned:
            for batch in versions([log], VersionedRules(self.retention), self.moment, expired=True):
                batch = batch.rename_columns({"valid_from": "timestamp"})
                rows = self.decoded(batch, part, columns, ends=batch.column("valid_to"))
                yield without_expired(rows) if self.hide_expired else rows
            return
        for found in in_key_ranges(partial(keyed, log, self.moment), log.partition, keys=self._keys(filters)):
            batch = _intervals(found)
            for begin in range(0, len(batch), BATCH_ROWS):
                piece = batch.slice(begin, BATCH_ROWS)
                rows = self.decoded(piece, part, columns, piece.column("valid_from"), piece.column("valid_to"))
                if EXPIRED in rows.schema.names:  # it is about now, and the rows are those of any moment
                    at = rows.schema.get_field_index(EXPIRED)
                    rows = rows.set_column(at, EXPIRED, pa.nulls(len(rows), pa.bool_()))
                yield rows

    def _wholeness(self, log: RecordLog) -> Wholeness:
        if log.partition not in self.whole:
            self.whole[log.partition] = wholeness(log)
        return self.whole[log.partition].for_kind(self.kind, self.retention)

    def _check_prefix(self, log: RecordLog) -> None:
        """Raise NotFoundError TIME_NOT_KEPT if a prefix ends where records are missing."""
        if self.moment.time is None and self.moment.offsets.get(log.partition) is None:
            return
        whole = self._wholeness(log)
        if whole.stream_time is None:
            return
        count, stream_time = length_of(log, self.moment)
        if count < whole.records or stream_time < whole.stream_time:
            begin = "never" if whole.stream_time == NEVER else f"from {format_time(whole.stream_time * 1000)} on"
            raise NotFoundError(
                ErrorCode.TIME_NOT_KEPT,
                f"partition {log.partition} of the changelog ends where records are missing that were compacted or "
                f"removed; what is left is whole {begin}: give a later untilOffset or untilTime, or none",
            )

    def _check_times(self, log: RecordLog) -> None:
        """Raise InvalidInputError KAFKA_RECORDS where rows or a moment follow from timestamps that are absent."""
        if not log.findings.times_known and (self.is_versioned or self.moment.time is not None):
            what = "option untilTime" if self.moment.time is not None else f"a {self.kind.name} store"
            raise InvalidInputError(
                ErrorCode.KAFKA_RECORDS,
                f"partition {log.partition}: found records without a timestamp, expected one in each for {what}; "
                "export them with timestamps (kcat -J, or print.timestamp=true)",
            )

    @property
    def kind(self) -> StoreKind:
        return KINDS[self.form.kind]

    @property
    def is_versioned(self) -> bool:
        return self.kind.has_past

    def _stream_time(self, log: RecordLog) -> int:
        """The greatest segment time that the store has seen, which a null put counts for, too; -1: none.

        That of a versioned store is the greatest timestamp.
        """
        if self.is_versioned:
            return max((int(records.timestamp.max()) for records in keyed(log, self.moment)), default=-1)
        times = (segment_times_of(self._decoded_keys(records.batch(READ))) for records in keyed(log, self.moment))
        return max((int(each.max()) for each in times if len(each)), default=-1)

    def _decoded_keys(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        form = replace(self.form, key_serde="bytes", value_serde="bytes")
        return logged_rows(form, batch["key"], batch["value"], batch["timestamp"], _known_headers(batch))

    def _keys(self, filters: Sequence[Filter]) -> list[bytes] | None:
        """The raw keys to which filters limit an answer; None: any."""
        kind = self.kind
        return encoded_keys(self.form, kind, filters) if kind.rows in ("plain", "versioned") else None

    def decoded(
        self,
        batch: pa.RecordBatch,
        part: LogPart,
        wanted: Collection[str],
        starts: pa.Array | None = None,
        ends: pa.Array | None = None,
    ) -> pa.RecordBatch:
        """Records (`READ`) as rows of the state; with their intervals, in milliseconds, where they are given."""
        rows = logged_rows(self.form, batch["key"], batch["value"], batch["timestamp"], _known_headers(batch), wanted)
        record = rows.column("record")
        columns = {name: rows.column(name) for name in rows.schema.names if name not in _NOT_SHOWN}
        columns[OFFSET] = batch.column("offset").take(record)
        known = part.log.findings
        place = part.log.partition if known.partition_known else None
        columns[PARTITION] = pa.repeat(pa.scalar(place, pa.int32()), len(rows))
        if not known.times_known and self.kind.timestamp and self.kind.rows != "outer-join buffer":
            columns["timestamp"] = pa.nulls(len(rows), columns["timestamp"].type)
        names = list(self.schema.names)
        for name, times in (("valid_from", starts), ("valid_to", ends)):
            if times is not None:
                columns[name] = _times(times).take(record)
                names += [] if name in names else [name]
        if part.stream_time is not None and self.retention is not None:
            judged = pa.RecordBatch.from_pydict(columns)
            columns[EXPIRED] = expired_column(judged, self.kind, part.stream_time, self.retention)
        elif EXPIRED in names:
            columns[EXPIRED] = pa.nulls(len(rows), pa.bool_())
        return pa.RecordBatch.from_arrays([columns[name] for name in names], names=names)


def changelog_schema(form: StoreForm, retention: int | None) -> pa.Schema:
    """The columns of a changelog's state: those of the store's kind, and where the record of each row lies."""
    own = [each for each in logged_schema(form) if each.name not in _NOT_SHOWN]
    if marks_expired(KINDS[form.kind], retention):
        own.append(pa.field(EXPIRED, pa.bool_()))
    return pa.schema([*own, pa.field(OFFSET, pa.int64()), pa.field(PARTITION, pa.int32())])


def _intervals(found: KeyRange) -> pa.RecordBatch:
    """Records with a value (`READ`) and the stream times between which they were the newest of their key."""
    following = neighbours(found).following
    rows = np.flatnonzero(found.value.is_valid().to_numpy(zero_copy_only=False))
    last = following[rows] < 0
    chosen = pa.array(rows)
    columns = {
        "key": found.key.take(chosen),
        "value": found.value.take(chosen),
        "headers": found.headers.take(chosen),
        "timestamp": pa.array(found.timestamp[rows]),
        "offset": pa.nulls(len(rows), pa.int64()) if found.offset is None else offset_column(found.offset[rows]),
        "valid_from": pa.array(found.stream_time[rows]),
        "valid_to": pa.array(found.stream_time[following[rows]], mask=last),
    }
    return pa.RecordBatch.from_pydict(columns)


def _known_headers(batch: pa.RecordBatch) -> pa.ListArray:
    """Headers of records, none where a file has no such column."""
    headers = batch.column("headers")
    return headers.fill_null(pa.scalar([], HEADERS)) if headers.null_count else headers


def _times(milliseconds: pa.Array) -> pa.Array:
    return milliseconds.cast(pa.timestamp("ms", tz="UTC")).cast(TIME)


# Replay: the rows that a store held at a moment, as a restore from its changelog gives them.
#
# Of each raw changelog key the newest record of the prefix is the row, and a null value is no row: so restore all
# kinds but versioned stores (``StateRestoreCallback``); in buffers of suppression and joins a null removes the entry.
# The raw key of a window is ``key | start | seqnum``, that of a session ``key | end | start``. Rows that have expired
# by stream time are still among them: retention is a matter of the store's kind. Records without a key are skipped, as
# ``StoreChangelogReader`` does. Versioned stores: see ``version_history``.
#
# A prefix is read twice: once for the newest records, holding hashes of keys only, and once for their rows. What fits
# in 64 MiB stays in memory between.


HELD_BYTES = 64 << 20
_POSITIONS = 120  # bytes that a record takes besides the bytes of its batch


def replayed(
    logs: Iterable[RecordLog],
    moment: LogMoment = END,
    *,
    columns: tuple[str, ...] = COLUMNS,
    most_keys: int = MOST_KEYS,
    held_bytes: int = HELD_BYTES,
    keys: Collection[bytes] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an unversioned store at a moment: columns of RECORDS, each row the record that wrote it.

    ``keys``: only the rows of these raw keys.

    Rows come in the order of partitions and offsets, or, over ``most_keys`` keys in a partition, in several such runs.
    Up to ``held_bytes`` of records are held between the two readings of a partition. Raises as the logs do.
    """
    for log in logs:
        read = partial(_keyed, log, moment, keys)
        yield from in_order(partial(_batch, columns), newest_of(read, most_keys, held_bytes), reading_threads())


def _batch(columns: tuple[str, ...], records: Records) -> pa.RecordBatch:
    return records.batch(columns)


def _keyed(log: RecordLog, moment: LogMoment, keys: Collection[bytes] | None) -> Iterator[Records]:
    """Yield the records of a prefix that have a key, of some keys alone where these are given."""
    for records in keyed(log, moment):
        asked = None if keys is None else of_keys(records.key, keys)
        if asked is None:
            yield records
        elif len(asked):
            yield records.select(asked)


def newest_of(read: Callable[[], Iterator[Records]], most_keys: int, held_bytes: int) -> Iterator[Records]:
    """Yield the newest record of each key of one partition, without deletes."""
    reader = Rereader(read, _held_bytes, held_bytes)
    for noted in newest_passes(most_keys):
        for records in reader.read():
            noted.note(records.key)
        first = 0
        for records in reader.read():
            kept = noted.newest(first, len(records)) & ~records.value.nulls
            first += len(records)
            if kept.all():
                yield records
            elif kept.any():
                yield records.select(np.flatnonzero(kept))


def _held_bytes(records: Records) -> int:
    return records.key.data.nbytes + _POSITIONS * len(records)


# A store of a directory once the records of an edit are in its changelog. The rows of the directory and the records
# are replayed as one changelog, and shown as those of the directory are.


@dataclass(frozen=True)
class EditedAt(StateAt):
    """A store as a restore from ``replay`` has it, in the columns of a directory."""

    replay: ChangelogAt

    @property
    def version(self) -> int:
        return self.replay.version

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([each for each in self.replay.schema if each.name != OFFSET])

    def parts(self, filters: Sequence[Filter]) -> Sequence[Part]:
        return self.replay.parts(filters)

    def rows(self, part: Any, columns: Collection[str], filters: Sequence[Filter]) -> Iterator[pa.RecordBatch]:
        for batch in self.replay.rows(part, columns, filters):
            yield batch.drop_columns([OFFSET])


@dataclass(frozen=True)
class EditedVersionsAt(EditedAt, HoldsPast):
    """A versioned store as a restore from ``replay`` has it."""

    def past_from(self) -> int | None:
        return self.replay.past_from()

    def past_rows(self, part: Any, columns: Collection[str], filters: Sequence[Filter]) -> Iterator[pa.RecordBatch]:
        for batch in self.replay.past_rows(part, columns, filters):
            yield batch.drop_columns([OFFSET])


def edited_at(store: KnownStore, logs: tuple[RecordLog, ...], *, hide_expired: bool) -> EditedAt:
    """Return a store as of the rows and records in ``logs``."""
    kind = EditedVersionsAt if store.kind.has_past else EditedAt
    return kind(ChangelogAt(logs, store.form, store.retention, hide_expired=hide_expired))
