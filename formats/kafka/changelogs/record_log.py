"""The seam between sources of records and what is computed from them: the log of one partition.

Sources are a broker's segment files (``log_reading``), files of records (``file_records``), and a broker
(``broker_log``). Replay,
versions and changes read a log from its beginning, some of them twice; each reading has the same records.

A moment is a prefix of each partition's log. "To offset n" is the records with offsets up to n, n included. "As of time
t" is the records before the first one whose stream time, the greatest record timestamp so far, exceeds t: what an
application had processed when its stream time was t. Records that come late within the prefix belong to it. Records of
aborted transactions take no part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.kafka.changelogs.records import Records
from statestore.formats.kernels.arrays import Ints

Isolation = Literal["read_committed", "read_uncommitted"]
"""The records of transactions that are read, as ``isolation.level`` of a consumer."""


@dataclass(frozen=True)
class IncompleteTail:
    """The end of a segment file that holds no whole batch: its broker was writing when the file was copied."""

    file: str
    position: int
    bytes: int


@dataclass(frozen=True)
class OpenTransaction:
    """A transaction without a marker at the end of the log: neither committed nor aborted yet."""

    producer_id: int
    first_offset: int
    records: int


@dataclass(frozen=True)
class LogFindings:
    """The account of one partition's log: what it holds, and what it cannot tell.

    ``first_offset`` is the offset of the first batch, None for an empty log; ``next_offset`` the one after the last
    batch. ``records`` are those that are read, None before a broker was read once. ``control_records`` are transaction
    markers. ``aborted_records`` and ``unstable_records`` are left out under read_committed: the latter lie at or after
    the first open transaction, where a consumer stops, too (the last stable offset). ``missing_offsets`` are those from
    0 on of which the log holds nothing: compaction or retention removed them or, unless ``markers_known``, the source
    has no transaction markers and no aborted records. None: unknown.

    Without ``times_known`` the timestamps of the records are any, without ``partition_known`` the partition is 0 and
    stands for all. With ``offsets_partly_known`` some records have offsets and others do not. ``remarks`` are reasons
    why records may not be those of the topic.
    """

    partition: int
    first_offset: int | None
    next_offset: int
    records: int | None
    missing_offsets: int | None
    control_records: int = 0
    aborted_records: int = 0
    unstable_records: int = 0
    open_transactions: tuple[OpenTransaction, ...] = ()
    tail: IncompleteTail | None = None
    markers_known: bool = True
    times_known: bool = True
    partition_known: bool = True
    offsets_partly_known: bool = False
    remarks: tuple[str, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Return whether the log holds each of its offsets from 0 on, so that its history is the whole history."""
        return self.missing_offsets == 0

    def notes(self) -> tuple[str, ...]:
        """Sentences on what a reader of the log must know; empty if it is complete and at rest."""
        found = list(self.remarks)
        if not self.times_known:
            found.append(f"partition {self.partition}: records without a timestamp, so no moment of the past is known")
        if self.missing_offsets is None and self.records is None:
            if self.first_offset:
                found.append(
                    f"partition {self.partition}: begins at offset {self.first_offset}; what was before is unknown"
                )
        elif self.missing_offsets is None and self.offsets_partly_known:
            found.append(
                f"partition {self.partition}: begins at offset {self.first_offset}; later offsets are not all known, "
                "so records may be missing anywhere"
            )
        elif self.missing_offsets is None:
            found.append(f"partition {self.partition}: no offsets are known, so records may be missing anywhere")
        elif self.missing_offsets:
            found.append(
                f"partition {self.partition}: compacted: {self.missing_offsets} offsets missing below "
                f"{self.next_offset}; what they held is unknown"
                if self.markers_known
                else f"partition {self.partition}: {self.missing_offsets} offsets missing below {self.next_offset}: "
                "compacted, or without a record because a transaction ended there or was aborted"
            )
        for transaction in self.open_transactions:
            found.append(
                f"partition {self.partition}: producer {transaction.producer_id} has an open transaction of "
                f"{transaction.records} records from offset {transaction.first_offset}"
            )
        if self.unstable_records:
            found.append(
                f"partition {self.partition}: {self.unstable_records} records from the first open transaction on are "
                "not read"
            )
        if self.tail is not None:
            found.append(
                f"partition {self.partition}: file {self.tail.file} ends in {self.tail.bytes} bytes of an unfinished "
                f"batch at byte {self.tail.position}; the log ends before it"
            )
        return tuple(found)


class RecordLog(Protocol):
    """The records of one partition, to be read from the beginning any number of times."""

    @property
    def partition(self) -> int: ...

    @property
    def findings(self) -> LogFindings: ...

    def read(self) -> Iterator[Records]:
        """Yield all records in the order of the log, some at a time and never none."""


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
            count = _count_to(records.offset, last, log.partition)
        if moment.time is not None:
            later = records.timestamp > moment.time
            if later.any():
                count = min(count, int(np.argmax(later)))
        if count:
            yield records.first(count)
        if count < len(records):
            return


def _count_to(offset: Ints, last: int, partition: int) -> int:
    """The number of records up to an offset. Raises InvalidInputError where unknown offsets leave it open."""
    if not (offset < 0).any():
        return int(np.searchsorted(offset, last, side="right"))
    there, behind = np.flatnonzero(offset == last), np.flatnonzero(offset > last)
    if len(there):
        return int(there[0]) + 1
    if len(behind) and (offset[: behind[0]] >= 0).all():
        return int(behind[0])
    raise InvalidInputError(
        ErrorCode.INVALID_OPTION,
        f"partition {partition}: found records whose offsets are unknown, so offset {last} may be any of them; give "
        "an offset that is known, or none",
    )


def keyed(log: RecordLog, moment: LogMoment = END) -> Iterator[Records]:
    """Yield the records of the prefix that have a key. A restore skips others (``StoreChangelogReader``)."""
    for records in prefix(log, moment):
        without = records.key.nulls
        if not without.any():
            yield records
        elif not without.all():
            yield records.select(~without)
