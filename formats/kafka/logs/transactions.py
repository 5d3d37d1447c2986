"""Transactions in a log: which batches are committed, by the markers in the log itself (``ProducerStateManager``).

A transaction of a producer begins with its first transactional batch after its last marker, and ends with the next
marker: control batches with a key of version:int16 | type:int16, 0 abort, 1 commit. An index of aborted transactions
(``.txnindex``) says nothing more. A consumer under read_committed stops before the first open transaction.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from statestore.formats.kafka.changelogs.record_log import OpenTransaction
from statestore.formats.kafka.logs.plain_batches import parse_records
from statestore.formats.kafka.logs.record_batches import Batches, damaged
from statestore.formats.kernels.arrays import Bools, Ints
from statestore.formats.kernels.batch_layout import (
    ATTRIBUTES,
    BASE_OFFSET,
    CONTROL,
    COUNT,
    HEADER,
    POSITION,
    PRODUCER,
    RECORD_COLUMNS,
    SIZE,
    TRANSACTIONAL,
)

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
    """Which transactional batches are not committed: those aborted, and all from the offset ``stable`` on."""

    aborted: tuple[Aborted, ...] = ()
    stable: int = _END

    def committed(self, table: Ints) -> Bools:
        """Which batches of data a consumer under read_committed is given."""
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
