"""From where on a changelog has all that its store's rows follow from.

Compaction removes a record that a newer one of its key has replaced, a tombstone last; the newer one may come much
later. So a key may have had a value before its first record that is left, if anything at all is missing before that
record. Retention removes whole segments of the log, also records that nothing has replaced: rows of windows and
sessions in them were visible for the retention of the store. The newest state is right in any case.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from statestore.formats.kafka.changelogs.key_ranges import in_key_ranges
from statestore.formats.kafka.changelogs.record_history import neighbours
from statestore.formats.kafka.changelogs.record_log import LogMoment, RecordLog, keyed
from statestore.formats.kafka.columns.store_form import StoreKind

NEVER = 253_402_300_799_999
"""The last millisecond of the year 9999: where nothing shows that a log is ever whole."""


@dataclass(frozen=True)
class Wholeness:
    """A log is whole from ``stream_time`` (milliseconds) on; None: everywhere. ``records`` is the number of records
    with a key that a prefix of it must have to be whole. ``gap`` is the stream time behind the last gap."""

    stream_time: int | None
    records: int
    gap: int = -1

    def for_kind(self, kind: StoreKind, retention: int | None) -> Wholeness:
        """The wholeness of the rows of a store: those of windows and sessions are needed for its retention, and then no
        longer, whatever has been removed."""
        if self.stream_time is None or not kind.segmented:
            return self
        return Wholeness(NEVER if retention is None else min(self.gap + retention, NEVER), 0)


def wholeness(log: RecordLog) -> Wholeness:
    """Return from where on a log has every record that counts. An incomplete log is read for it."""
    if log.findings.is_complete:
        return Wholeness(None, 0)
    unknown, last, gaps, behind = (-1, -1), (-1, -1), -1, (-1, -1)
    without_offsets = False
    for found in in_key_ranges(partial(keyed, log), log.partition):
        last = max(last, (int(found.number[-1]), int(found.stream_time[-1])))
        if found.missing is None:
            without_offsets = True
            continue
        first = np.flatnonzero((neighbours(found).previous < 0) & (found.missing > 0))
        if len(first):
            unknown = max(unknown, (int(found.number[first[-1]]), int(found.stream_time[first[-1]])))
        most = int(found.missing[-1])
        at = int(np.argmax(found.missing == most))
        here = int(found.number[at]), int(found.stream_time[at])
        if most > gaps:
            gaps, behind = most, here
        elif most == gaps:
            behind = min(behind, here)
    known = log.findings  # a broker's are known once it was read
    if known.is_complete:
        return Wholeness(None, 0)
    if last[0] < 0:
        return Wholeness(NEVER, 0, NEVER)
    if without_offsets or known.missing_offsets not in (None, gaps):
        return Wholeness(last[1], last[0] + 1, last[1])  # records may be missing anywhere, or behind the last one
    number, stream_time = max(unknown, behind)
    return Wholeness(stream_time, number + 1, behind[1])


def length_of(log: RecordLog, moment: LogMoment) -> tuple[int, int]:
    """Return the number of records with a key in a prefix, and its stream time (milliseconds; -1: no record)."""
    count, stream_time = 0, -1
    for records in keyed(log, moment):
        count += len(records)
        stream_time = max(stream_time, int(records.timestamp.max()))
    return count, stream_time
