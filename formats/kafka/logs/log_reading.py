"""Records of Kafka log segments as they lie on a broker's disk: record batches of format 2, every compression.

A log is surveyed before it is read: checksums, the order of offsets, the outcome of transactions, the end. So nothing
is handed out before the whole log is known to be sound, and a reading has the same records however often it is made.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, NotFoundError
from statestore.formats.kafka.changelogs.record_log import IncompleteTail, Isolation, LogFindings, OpenTransaction
from statestore.formats.kafka.changelogs.records import COLUMNS, Records
from statestore.formats.kafka.logs.log_directory import LogPartition, base_offset, log_partitions, one_topic
from statestore.formats.kafka.logs.plain_batches import parse_records
from statestore.formats.kafka.logs.record_batches import Batches, damaged, decoded
from statestore.formats.kafka.logs.segment_walk import SegmentFile, WalkEnd, judge_end, size_of, walked
from statestore.formats.kernels.arrays import Bools, Ints
from statestore.formats.kernels.batch_layout import (
    ATTRIBUTES,
    BASE_OFFSET,
    CONTROL,
    COUNT,
    HEADER,
    LAST_DELTA,
    POSITION,
    PRODUCER,
    RECORD_COLUMNS,
    SIZE,
    TRANSACTIONAL,
)
from statestore.formats.kernels.compiled_use import load_if_it_pays

ISOLATIONS: tuple[Isolation, ...] = ("read_committed", "read_uncommitted")


@dataclass(frozen=True)
class SegmentLog:
    """The surveyed log of one partition; a `RecordLog`. It holds no open file.

    ``ends`` are the offsets that follow each of its files.
    """

    topic: str
    findings: LogFindings
    isolation: Isolation
    files: tuple[SegmentFile, ...]
    outcomes: Outcomes
    ends: tuple[int, ...] = ()

    @property
    def partition(self) -> int:
        return self.findings.partition

    def read(self) -> Iterator[Records]:
        """Yield all records. Raises ConflictError KAFKA_LOG_CHANGED if the broker replaced or removed a file since."""
        load_if_it_pays(sum(file.stop for file in self.files))
        present = 0
        for file in self.files:
            walk = walked(file, check=False, present=present)
            end: list[WalkEnd] = []
            for batches in _until_end(walk, end):
                yield from decoded(batches.select(self._given(batches)), self.partition)
            present = end[0].present

    def _given(self, batches: Batches) -> Bools:
        if self.isolation == "read_committed":
            return self.outcomes.committed(batches.table)
        given: Bools = batches.table[:, ATTRIBUTES] & CONTROL == 0
        return given


def _until_end(walk: Generator[Batches, None, WalkEnd], end: list[WalkEnd]) -> Iterator[Batches]:
    end.append((yield from walk))


def open_log(partition: LogPartition, isolation: Isolation = "read_committed") -> SegmentLog:
    """Survey the log of a partition.

    Raises CorruptError KAFKA_LOG naming file, byte and checksums for a damaged batch, and UnsupportedError
    KAFKA_LOG_FORMAT for message formats 0 and 1. An unfinished batch at the end is no error: see ``findings``.
    """
    if isolation not in ISOLATIONS:
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION, f"isolation: found {isolation!r}, expected read_committed or read_uncommitted"
        )
    try:
        files = [size_of(str(Path(partition.folder, name))) for name in partition.segments]
    except FileNotFoundError as error:
        raise NotFoundError(
            ErrorCode.FILE_NOT_FOUND, f"file {error.filename} of {partition.folder} is gone; list the partitions again"
        ) from error
    load_if_it_pays(sum(file.stop for file in files))
    survey, ends = _Survey(partition), list[int]()
    for number, (name, file) in enumerate(zip(partition.segments, files, strict=True)):
        files[number] = survey.file(name, file, last=number == len(files) - 1)
        ends.append(max(survey.next, base_offset(name)))
    outcomes = survey.transactions.outcomes()
    unstable = 0
    aborted = survey.transactions.aborted_records
    open_transactions: tuple[OpenTransaction, ...] = survey.transactions.open
    if open_transactions:
        unstable = _unstable(files, outcomes.stable)
        aborted = _aborted_below(files, outcomes)
    data = survey.present - survey.transactions.control_records
    committed = isolation == "read_committed"
    findings = LogFindings(
        partition.partition,
        survey.first,
        survey.next,
        data - (aborted + unstable if committed else 0),
        survey.next - survey.present,
        survey.transactions.control_records,
        aborted if committed else 0,
        unstable if committed else 0,
        open_transactions,
        survey.tail,
    )
    return SegmentLog(partition.topic, findings, isolation, tuple(files), outcomes, tuple(ends))


def log_records(
    path: str | os.PathLike[str],
    topic: str | None = None,
    *,
    isolation: Isolation = "read_committed",
    columns: tuple[str, ...] = COLUMNS,
) -> Iterator[pa.RecordBatch]:
    """Yield batches of the records at ``path``, partition by partition, in the order of offsets.

    ``path`` and ``topic``: see `log_partitions`; a directory with several topics needs ``topic``. ``columns`` are names
    of RECORDS. Raises as `open_log`.
    """
    for partition in one_topic(log_partitions(path, topic), path):
        for records in open_log(partition, isolation).read():
            yield records.batch(columns)


class _Survey:
    """The first reading of a log."""

    def __init__(self, partition: LogPartition) -> None:
        self.transactions = TransactionSurvey()
        self.first: int | None = None
        self.next = 0
        self.present = 0
        self.tail: IncompleteTail | None = None
        self._segments = [base_offset(name) for name in partition.segments]

    def file(self, name: str, file: SegmentFile, *, last: bool) -> SegmentFile:
        """Survey a file and return how far it is to be read."""
        least = base_offset(name)
        limit = min((base for base in self._segments if base > least), default=None)
        if least < self.next:
            raise damaged(file.path, 0, f"found base offset {least} in its name, expected at least {self.next}")
        end: list[WalkEnd] = []
        for batches in _until_end(walked(file, check=True, present=self.present), end):
            self._offsets(batches, max(least, self.next), limit)
            self.transactions.note(batches)
        self.present = end[0].present
        left = judge_end(file, end[0], first=self.first is None, last=last)
        if left:
            self.tail = IncompleteTail(file.path, end[0].position, left)
        return SegmentFile(file.path, file.inode, end[0].position)

    def _offsets(self, batches: Batches, least: int, limit: int | None) -> None:
        """Offsets rise from batch to batch; the checksum does not cover them."""
        base = batches.table[:, BASE_OFFSET]
        ends = base + batches.table[:, LAST_DELTA] + 1
        lower = np.concatenate(([least], ends[:-1]))
        bad = (base < lower) | (ends <= base)
        if limit is not None:
            bad |= ends > limit
        if bad.any():
            row = int(np.argmax(bad))
            wanted = f"from {int(lower[row])}" + ("" if limit is None else f" to {limit - 1}")
            raise damaged(
                batches.file,
                batches.origin + int(batches.table[row, POSITION]),
                f"found a record batch of offsets {int(base[row])} to {int(ends[row]) - 1}, expected offsets {wanted}",
            )
        if self.first is None:
            self.first = int(base[0])
        self.next = int(ends[-1])


def _data_records(files: list[SegmentFile]) -> Iterator[Batches]:
    for file in files:
        for batches in walked(file, check=False, present=0):
            yield batches.select(batches.table[:, ATTRIBUTES] & CONTROL == 0)


def _unstable(files: list[SegmentFile], stable: int) -> int:
    """Number of records of data from the first open transaction on."""
    return sum(int(b.table[b.table[:, BASE_OFFSET] >= stable, COUNT].sum()) for b in _data_records(files))


def _aborted_below(files: list[SegmentFile], outcomes: Outcomes) -> int:
    """Number of records of data before the first open transaction that are not committed."""
    return sum(
        int(b.table[(b.table[:, BASE_OFFSET] < outcomes.stable) & ~outcomes.committed(b.table), COUNT].sum())
        for b in _data_records(files)
    )


# Transactions in a log: which batches are committed, by the markers in the log itself (``ProducerStateManager``).
#
# A transaction of a producer begins with its first transactional batch after its last marker, and ends with the next
# marker: control batches with a key of version:int16 | type:int16, 0 abort, 1 commit. An index of aborted transactions
# (``.txnindex``) says nothing more. A consumer under read_committed stops before the first open transaction.


ABORT, COMMIT = 0, 1
_END = 1 << 63


@dataclass(frozen=True)
class Aborted:
    """An aborted transaction: the batches of a producer from ``first`` to ``last``, the offset of the marker."""

    producer: int
    first: int
    last: int


@dataclass(frozen=True)
class Outcomes:
    """The transactional batches that are not committed: those aborted, and all from the offset ``stable`` on."""

    aborted: tuple[Aborted, ...] = ()
    stable: int = _END

    def committed(self, table: Ints) -> Bools:
        """Return which batches of data a consumer under read_committed is given."""
        base = table[:, BASE_OFFSET]
        kept: Bools = (table[:, ATTRIBUTES] & CONTROL == 0) & (base < min(self.stable, _END - 1))
        if not self.aborted:
            return kept
        producers = table[:, PRODUCER]
        marked = table[:, ATTRIBUTES] & TRANSACTIONAL != 0
        starts = np.array([found.first for found in self.aborted], np.int64)
        ends = np.array([found.last for found in self.aborted], np.int64)
        owners = np.array([found.producer for found in self.aborted], np.int64)
        near = (starts <= base[-1]) & (ends >= base[0]) if len(base) else np.zeros(len(starts), np.bool_)
        for owner in np.unique(owners[near]).tolist():
            mine = owners == owner  # in the order of the log, and not overlapping
            place = np.searchsorted(starts[mine], base, side="right") - 1
            inside = (place >= 0) & (base <= ends[mine][np.maximum(place, 0)])
            kept &= ~(marked & (producers == owner) & inside)
        return kept


@dataclass
class TransactionSurvey:
    """Collects the transactions of a log while its batches go by."""

    aborted: list[Aborted] = field(default_factory=list)
    aborted_records: int = 0
    control_records: int = 0
    _open: dict[int, list[int]] = field(default_factory=dict)  # producer: first offset, number of records

    def note(self, batches: Batches) -> None:
        """Note further batches. Raises CorruptError KAFKA_LOG for a marker that cannot be read."""
        attributes = batches.table[:, ATTRIBUTES]
        control = attributes & CONTROL != 0
        self.control_records += int(batches.table[control, COUNT].sum())
        rows = np.flatnonzero(attributes & TRANSACTIONAL)
        if not len(rows):
            return
        rows = rows[np.argsort(batches.table[rows, PRODUCER], kind="stable")]
        marks, producers = control[rows], batches.table[rows, PRODUCER]
        begins = np.ones(len(rows), np.bool_)
        begins[1:] = marks[1:] | marks[:-1] | (producers[1:] != producers[:-1])
        starts = np.flatnonzero(begins)
        counts = np.add.reduceat(np.where(marks, 0, batches.table[rows, COUNT]), starts)
        for start, count in zip(starts.tolist(), counts.tolist(), strict=True):
            row = int(rows[start])
            producer, base = int(batches.table[row, PRODUCER]), int(batches.table[row, BASE_OFFSET])
            if not marks[start]:
                self._open.setdefault(producer, [base, 0])[1] += count
                continue
            outcome = marker(batches, row)
            if outcome not in (ABORT, COMMIT):
                continue
            begun = self._open.pop(producer, None)
            if outcome == ABORT and begun is not None:
                self.aborted.append(Aborted(producer, begun[0], base))
                self.aborted_records += begun[1]

    @property
    def open(self) -> tuple[OpenTransaction, ...]:
        """The transactions without a marker, by their first offset."""
        found = [OpenTransaction(producer, first, count) for producer, (first, count) in self._open.items()]
        return tuple(sorted((each for each in found if each.records), key=lambda each: each.first_offset))

    def outcomes(self) -> Outcomes:
        """The outcomes once the whole log has gone by."""
        stable = min((found.first_offset for found in self.open), default=_END)
        return Outcomes(tuple(sorted(self.aborted, key=lambda found: found.first)), stable)


def marker(batches: Batches, row: int) -> int | None:
    """The type of a control batch's first record, None where compaction left none."""
    table = batches.table[row : row + 1]
    at, size, count = int(table[0, POSITION]), int(table[0, SIZE]), int(table[0, COUNT])
    if not count:
        return None
    columns = np.empty((RECORD_COLUMNS, count), np.int64)
    begin, end = np.array([at + HEADER]), np.array([at + size])
    zero = np.zeros(1, np.int64)
    data = batches.data[: at + size]
    if parse_records(data, begin, end, table, zero, columns) >= 0 or columns[4, 0] < 4:
        raise damaged(batches.file, batches.origin + at, "found a transaction marker that does not follow the format")
    key = data[columns[3, 0] : columns[3, 0] + 4].tobytes()
    return int.from_bytes(key[2:], signed=True)
