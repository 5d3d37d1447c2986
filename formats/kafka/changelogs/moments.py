"""A moment of a changelog: a prefix of each partition's log.

"To offset n" is the records with offsets up to n, n included. "As of time t" is the records before the first one whose
stream time, the greatest record timestamp so far, exceeds t: what an application had processed when its stream time
was t. Records that come late within the prefix belong to it. Records of aborted transactions take no part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.kafka.changelogs.record_log import RecordLog
from statestore.formats.kafka.changelogs.records import Records


@dataclass(frozen=True)
class LogMoment:
    """``offsets``: the last offset included, by partition; a partition that is not named is read to its end. ``time``:
    epoch milliseconds. With both, a prefix ends where the first of them ends it."""

    offsets: Mapping[int, int] = field(default_factory=dict)
    time: int | None = None


END = LogMoment()
"""The whole log."""


def prefix(log: RecordLog, moment: LogMoment = END) -> Iterator[Records]:
    """Yield the records of the prefix. Raises InvalidInputError INVALID_OPTION for an offset where none are known."""
    last = moment.offsets.get(log.partition)
    if last is None and moment.time is None:
        yield from log.read()
        return
    for records in log.read():
        count = len(records)
        if last is not None:
            if records.offset is None:
                raise InvalidInputError(
                    ErrorCode.INVALID_OPTION,
                    f"partition {log.partition}: found records without offsets, so offset {last} is unknown; give a "
                    "time, or a file with a column offset",
                )
            count = int(np.searchsorted(records.offset, last, side="right"))
        if moment.time is not None:
            later = records.timestamp > moment.time
            if later.any():
                count = min(count, int(np.argmax(later)))
        if count:
            yield records.first(count)
        if count < len(records):
            return


def keyed(log: RecordLog, moment: LogMoment = END) -> Iterator[Records]:
    """Yield the records of the prefix that have a key. A restore skips others (``StoreChangelogReader``)."""
    for records in prefix(log, moment):
        without = records.key.is_null
        if not without.any():
            yield records
        elif not without.all():
            yield records.select(~without)
