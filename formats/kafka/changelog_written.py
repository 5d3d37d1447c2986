"""The rows that the records of a changelog wrote since it was captured last, each at its own time.

A record of a versioned store counts from its timestamp on, unless the store refused it as too old. Any other record
counts from its stream time on, the greatest timestamp of its partition so far (`changelog_at`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.engine import Version
from statestore.formats.kafka.changelog_at import READ, TIME, ChangelogAt, LogPart
from statestore.formats.kafka.changelogs.record_log import keyed
from statestore.formats.kafka.columns.store_form import StoreKind
from statestore.formats.kafka.new_records import (
    STREAM_TIME,
    NewRecords,
    Place,
    Places,
    new_records,
    places_of_text,
    stable_end,
    text_of_places,
)
from statestore.formats.written import PUT, REMOVE, WRITE, WRITTEN_AT, Written

OFFSETS = "offsets"


@dataclass(frozen=True)
class NewPart:
    """The new records of one partition."""

    log: LogPart
    new: NewRecords

    @property
    def rows(self) -> int:
        return len(self.new.records)


@dataclass(frozen=True)
class ChangelogWritten(Written):
    """The writes of new records to a state with the columns and the row key that are given.

    ``at`` is the state after them. With ``lost``, others were lost between.
    """

    at: ChangelogAt
    new: tuple[NewRecords, ...]
    columns: tuple[str, ...]
    row_key: tuple[str, ...]
    lost: bool

    @property
    def group(self) -> tuple[str, ...]:
        return self.row_key

    @property
    def timed(self) -> bool:
        return True

    def remaining(self) -> Iterator[pa.RecordBatch] | None:
        """The keys of all records, deletes too: of a key that is not among them, compaction has left nothing.

        A record of another time may have taken the place of a version that still holds, so of versioned stores no more
        than this is known.
        """
        return self._keys() if self.lost else None

    def _keys(self) -> Iterator[pa.RecordBatch]:
        for log in self.at.logs:
            for records in keyed(log):
                batch = records.batch(READ)
                nulls = pa.nulls(len(batch), pa.binary())
                batch = batch.set_column(READ.index("value"), "value", nulls)
                yield self.at.decoded(batch, LogPart(log), self.row_key).select(self.row_key)

    def parts(self) -> Sequence[NewPart]:
        logs = {log.partition: log for log in self.at.logs}
        return [NewPart(LogPart(logs[each.partition]), each) for each in self.new]

    def rows(self, part: Any) -> Iterator[pa.RecordBatch]:
        for batch in part.new.records.to_batches():
            accepted = self._accepted(batch)
            if accepted.num_rows:
                yield self._writes(accepted, part.log)

    def _accepted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the records that a versioned store has not refused."""
        if not self.at.is_versioned or self.at.retention is None:
            return batch
        oldest = pc.subtract(batch.column(STREAM_TIME), self.at.retention)
        return batch.filter(pc.greater_equal(batch.column("timestamp"), oldest))

    def _writes(self, batch: pa.RecordBatch, part: LogPart) -> pa.RecordBatch:
        times = batch.column("timestamp" if self.at.is_versioned else STREAM_TIME)
        is_put = pc.is_valid(batch.column("value"))
        rows = self.at.decoded(batch.select(READ), part, self.columns)
        writes = pc.if_else(is_put, pa.scalar(PUT, pa.int8()), pa.scalar(REMOVE, pa.int8()))
        cells = {WRITE: writes, WRITTEN_AT: times.cast(pa.timestamp("ms", tz="UTC")).cast(TIME)}
        for name in self.columns:
            column = rows.column(name)
            if name not in self.row_key:
                column = pc.if_else(is_put, column, pa.scalar(None, column.type))
            cells[name] = column
        return pa.RecordBatch.from_pydict(cells)


def has_one_row_a_record(kind: StoreKind) -> bool:
    """Return whether each record of a store's changelog is one row. An outer join's buffer logs lists of rows."""
    return kind.rows != "outer-join buffer"


@dataclass(frozen=True)
class ChangelogMoment:
    """A changelog as it is now, as the version as which it is captured, with what it has gained since ``before``.

    ``missing`` is the number of offsets in between that were lost.
    """

    before: str | None
    version: Version
    new: tuple[NewRecords, ...]
    missing: int


def is_behind(at: ChangelogAt, before: Version | None) -> bool:
    """Return whether a partition ends before the place up to which it was captured."""
    known = _places(before)
    return any(stable_end(log) < known.get(log.partition, Place()).offset for log in at.logs)


def _places(before: Version | None) -> Places:
    text = None if before is None else before.facts.get(OFFSETS)
    return {} if text is None else places_of_text(str(text))


def changelog_moment(at: ChangelogAt, before: Version | None, where: str) -> ChangelogMoment | None:
    """Read what a changelog has gained; None if it has nothing yet.

    The number of the version is the sum of the offsets behind the last ones of all partitions: it grows with each
    record, and is the same in every look. Its time is the greatest timestamp. Raises as `new_records`.
    """
    known = _places(before)
    new = tuple(new_records(log, known.get(log.partition, Place()), where) for log in at.logs)
    until = {**known, **{each.partition: each.until for each in new}}
    number = sum(each.offset for each in until.values())
    time = max((each.stream_time for each in until.values()), default=-1) * 1000
    if time < 0:
        return None
    version = Version(number, time, facts={OFFSETS: text_of_places(until)})
    text = None if before is None else before.facts.get(OFFSETS)
    return ChangelogMoment(text, version, new, sum(each.missing for each in new))
