"""The seam between sources of records and what is computed from them: the log of one partition.

Sources are a broker's segment files (``log_reading``), files of records (``file_records``), and later a broker. Replay,
versions and changes read a log from its beginning, some of them twice; each reading has the same records.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

from statestore.formats.kafka.changelogs.records import Records

Isolation = Literal["read_committed", "read_uncommitted"]
"""Which records of transactions are read, as ``isolation.level`` of a consumer."""


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
    batch. ``records`` are those that are read. ``control_records`` are transaction markers. ``aborted_records`` and
    ``unstable_records`` are left out under read_committed: the latter lie at or after the first open transaction, where
    a consumer stops, too (the last stable offset). ``missing_offsets`` are those from 0 on of which the log holds
    nothing, because compaction or retention removed them or transaction markers were not exported; None: unknown.
    """

    partition: int
    first_offset: int | None
    next_offset: int
    records: int
    missing_offsets: int | None
    control_records: int = 0
    aborted_records: int = 0
    unstable_records: int = 0
    open_transactions: tuple[OpenTransaction, ...] = ()
    tail: IncompleteTail | None = None

    @property
    def is_complete(self) -> bool:
        """Whether the log holds each of its offsets from 0 on, so that its history is the whole history."""
        return self.missing_offsets == 0

    def notes(self) -> tuple[str, ...]:
        """Sentences on what a reader of the log must know; empty if it is complete and at rest."""
        found = []
        if self.missing_offsets is None:
            found.append(f"partition {self.partition}: no offsets are known, so records may be missing anywhere")
        elif self.missing_offsets:
            found.append(
                f"partition {self.partition}: compacted: {self.missing_offsets} offsets missing below "
                f"{self.next_offset}; what they held is unknown"
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
