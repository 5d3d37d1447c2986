"""The records that a log has gained since it was read up to some place, and the place where it ends now.

A log may have lost records behind that place: to compaction, which leaves of each key the newest record, or, after a
while, nothing of a key that was deleted; and to retention, which removes the oldest. Offsets without a record tell how
many. A broker tells them from transaction markers to nobody, so there a marker counts as lost.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import ConflictError, UnsupportedError, shown
from statestore.formats.kafka.broker.broker_log import BrokerLog
from statestore.formats.kafka.changelogs.record_log import RecordLog
from statestore.formats.kafka.changelogs.records import RECORDS, Records
from statestore.formats.places.held_tables import held_rows

STREAM_TIME = "stream_time"
_COLUMNS = ("key", "value", "headers", "timestamp", "offset")
NEW_RECORDS = pa.schema([*(RECORDS.field(name) for name in _COLUMNS), pa.field(STREAM_TIME, pa.int64(), False)])
"""Columns of records that have a key; ``stream_time`` is the greatest timestamp of their partition up to each."""


@dataclass(frozen=True)
class Place:
    """The offset behind the last record that was read of a partition, and the greatest timestamp until there
    (milliseconds; -1: none)."""

    offset: int = 0
    stream_time: int = -1


Places = Mapping[int, Place]
"""A place in each partition of a topic."""


@dataclass(frozen=True)
class NewRecords:
    """The records of a partition between two places. ``missing`` is the number of offsets that were lost there."""

    partition: int
    until: Place
    records: pa.Table
    missing: int


def text_of_places(places: Places) -> str:
    """Return places as JSON: {"0": {"offset": 12, "stream_time": 1700000000000}}."""
    found = {str(number): vars(places[number]) for number in sorted(places)}
    return json.dumps(found)


def places_of_text(text: str) -> Places:
    """Return what `text_of_places` has written. Raises ConflictError CAPTURE_CONFLICT for anything else."""
    try:
        return {int(number): Place(int(each["offset"]), int(each["stream_time"])) for number, each in _parsed(text)}
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ConflictError(
            ErrorCode.CAPTURE_CONFLICT,
            f"the captured offsets of a changelog are {shown(text)}; expected a JSON object of offset and stream_time "
            "for each partition: the store was captured from something else; capture into another warehouse",
        ) from None


def _parsed(text: str) -> list[tuple[str, Mapping[str, int]]]:
    return list(json.loads(text).items())


def stable_end(log: RecordLog) -> int:
    """Return the offset behind the last one of a log whose records are final: that of the first open transaction."""
    known = log.findings
    return min([known.next_offset, *(each.first_offset for each in known.open_transactions)])


def new_records(log: RecordLog, since: Place, where: str) -> NewRecords:
    """Read what a log has gained since a place, once.

    Raises ConflictError CAPTURE_CONFLICT for a log that ends before the place, UnsupportedError CAPTURE_UNSUPPORTED for
    one without offsets or times, and the errors of the log.
    """
    reading = _Reading(log, since, where)
    records = held_rows(NEW_RECORDS, reading.batches())
    return NewRecords(log.partition, Place(reading.end, reading.stream_time), records, reading.missing)


class _Reading:
    """One reading of a log from a place on: its batches, and afterwards what was counted."""

    def __init__(self, log: RecordLog, since: Place, where: str) -> None:
        self._log, self._since, self._where = log, since, where
        self.end, self.stream_time, self.missing = stable_end(log), since.stream_time, 0
        if self.end < since.offset:
            raise ConflictError(
                ErrorCode.CAPTURE_CONFLICT,
                f"partition {log.partition} of {where} ends at offset {self.end}, and was captured up to "
                f"{since.offset}: the topic was made anew, or cut. Capture it into another warehouse",
            )

    def batches(self) -> Iterator[pa.RecordBatch]:
        log, begin = self._log, self._since.offset
        if self.end == begin:
            return
        if isinstance(log, BrokerLog):
            log = log.after(begin)
        count, earlier = 0, None
        for records in log.read():
            offset = self._offsets(records)
            new = np.flatnonzero(offset >= begin)
            if not len(new):
                continue
            if earlier is None and records.missing is not None:
                first = new[0]  # what is missing right before it was lost behind the place, if that is possible
                earlier = int(records.missing[first]) - min(int(records.missing[first]), int(offset[first]) - begin)
            count += len(new)
            yield from self._keyed(records.select(new))
        known = self._log.findings
        if isinstance(log, BrokerLog):  # it knows of no markers
            self.missing = self.end - begin - count
        elif known.missing_offsets is None:
            raise self._unsupported("records whose offsets are not all known")
        else:
            self.missing = min(known.missing_offsets - (earlier or 0), self.end - begin)

    def _keyed(self, records: Records) -> Iterator[pa.RecordBatch]:
        records = records.select(~records.key.nulls)
        if not len(records):
            return
        times = np.maximum(np.maximum.accumulate(records.timestamp), self.stream_time)
        self.stream_time = int(times[-1])
        found = records.batch(_COLUMNS)
        yield pa.RecordBatch.from_arrays([*found.columns, pa.array(times)], schema=NEW_RECORDS)

    def _offsets(self, records: Records) -> np.ndarray:
        if not self._log.findings.times_known:
            raise self._unsupported("records without a timestamp")
        if records.offset is None or (records.offset < 0).any():
            raise self._unsupported("records without an offset")
        return records.offset

    def _unsupported(self, found: str) -> UnsupportedError:
        return UnsupportedError(
            ErrorCode.CAPTURE_UNSUPPORTED,
            f"partition {self._log.partition} of {self._where}: found {found}, by which a capture goes on; export them "
            "with offsets and timestamps, or capture the topic of the broker",
        )
