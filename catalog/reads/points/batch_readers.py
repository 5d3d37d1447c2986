"""Columns of a segment's batches for point reads, and readers of their rows, made when a read first reaches a batch.

A point read needs a few rows of a segment. Where columns are compressed, only the batches of these rows are
decompressed. They are kept, up to `BATCH_BYTES` of all stores of the process; those that were made first go first.
"""

from __future__ import annotations

import os
import threading
import weakref
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from statestore.catalog.reads.points.cell_readers import column_parts
from statestore.formats.kernels.arrays import Ints
from statestore.formats.segments.segment import Segment

BATCH_BYTES = 1 << 30  # reads of any key at any moment touch all of a history, and a batch takes a millisecond

COLUMN_FIELDS = 4  # as in `answer_kernels`, which cannot be imported without numba

ROWS_A_TAKE = 12  # of a batch, which cost as much one by one

OpenFile = Callable[[], Segment]  # opens the file again, and checks that it still has its length
Make = Callable[[list[pa.Array]], Any]


class _KeptBatches:
    """The decompressed batches, oldest first, and their size together."""

    def __init__(self) -> None:
        self.bytes = 0
        # A weak reference: batches of closed stores are gone, but are counted until it is their turn.
        self._kept: deque[tuple[weakref.ref[BatchColumns], int, int]] = deque()
        # Held while columns change, and the addresses by which compiled code reads them.
        self.lock = threading.RLock()

    def keep(self, batches: BatchColumns, number: int, size: int) -> None:
        """Count a batch of so many bytes; drop the oldest ones beyond the bound. The caller holds ``lock``."""
        self._kept.append((weakref.ref(batches), number, size))
        self.bytes += size
        while self.bytes > BATCH_BYTES and len(self._kept) > 1:
            reference, oldest, freed = self._kept.popleft()
            self.bytes -= freed
            others = reference()
            if others is not None:
                others.drop(oldest)

    def renew_lock(self) -> None:
        """Replace the lock, which a thread that a forked child does not have may have held."""
        self.lock = threading.RLock()


kept_batches = _KeptBatches()
os.register_at_fork(after_in_child=kept_batches.renew_lock)


class BatchColumns:
    """Some columns of a file by batch. ``firsts`` is the first row of each batch."""

    def __init__(self, opened: OpenFile, names: Sequence[str]) -> None:
        self.firsts = opened().batch_starts
        self._opened = opened
        self._names = names
        self._columns: list[list[pa.Array] | None] = [None] * len(self.firsts)
        self._readers: list[list[Any]] = []
        self._addresses: Ints | None = None
        self._parts: list[Any] = [None] * len(self.firsts)  # of the columns, which have these addresses

    def columns(self, number: int) -> list[pa.Array]:
        """Return the columns of one batch."""
        found = self._columns[number]
        if found is not None:
            return found
        made, decompressed = self._opened().batch_columns(number, self._names)
        with kept_batches.lock:
            found = self._columns[number]
            if found is None:
                found = self._columns[number] = made
                if self._addresses is not None:
                    self._describe(self._addresses, number, made)
                if decompressed:
                    kept_batches.keep(self, number, decompressed)
        return found

    def drop(self, number: int) -> None:
        """Drop a batch and all that was made of it; not the only one of a file, which its readers hold anyway."""
        if len(self.firsts) == 1:
            return
        if self._addresses is not None:
            self._batch_in(self._addresses, number)[0] = 0  # before the columns, which compiled code may read until now
        self._columns[number] = self._parts[number] = None
        for readers in self._readers:
            readers[number] = None

    def addresses(self) -> Ints:
        """Return the table of columns of `answer_kernels`; batches that are opened and dropped later are noted in
        it.
        """
        with kept_batches.lock:
            if self._addresses is None:
                made = np.zeros(1 + len(self.firsts) * (2 + COLUMN_FIELDS * len(self._names)), np.int64)
                made[0] = len(self.firsts)
                made[1 : 1 + len(self.firsts)] = self.firsts
                for number, columns in enumerate(self._columns):
                    if columns is not None:
                        self._describe(made, number, columns)
                self._addresses = made
            return self._addresses

    def _describe(self, addresses: Ints, number: int, columns: list[pa.Array]) -> None:
        if not columns:
            return
        parts = self._parts[number] = [column_parts(column) for column in columns]
        batch = self._batch_in(addresses, number)
        batch[1:] = [field for part in parts for field in (*map(_address, part), _bytes_of(part[-1]))]
        batch[0] = len(columns[0])

    def _batch_in(self, addresses: Ints, number: int) -> Ints:
        """Return the fields of a batch."""
        fields = 1 + COLUMN_FIELDS * len(self._names)
        return addresses[1 + len(self.firsts) :][number * fields : (number + 1) * fields]

    def reader(self, make: Make) -> Callable[[int], Any]:
        """Return a function of the rows of the file; ``make`` makes that of one batch from its columns."""
        if len(self.firsts) == 1:
            return make(self.columns(0))  # type: ignore[no-any-return]
        firsts = self.firsts
        readers, load = self._made_by(make)

        def read(row: int) -> Any:
            number = bisect_right(firsts, row) - 1
            return (readers[number] or load(number))(row - firsts[number])

        return read

    def test(self, make: Make) -> Callable[[int, Any], bool]:
        """Return a function of a row and what it is compared with, as `reader` does."""
        if len(self.firsts) == 1:
            return make(self.columns(0))  # type: ignore[no-any-return]
        firsts = self.firsts
        readers, load = self._made_by(make)

        def test(row: int, expected: Any) -> bool:
            number = bisect_right(firsts, row) - 1
            return (readers[number] or load(number))(row - firsts[number], expected)  # type: ignore[no-any-return]

        return test

    def _made_by(self, make: Make) -> tuple[list[Any], Callable[[int], Any]]:
        """Return what was made of each batch, None where nothing was yet, and the function that makes it."""
        readers: list[Any] = [None] * len(self.firsts)
        self._readers.append(readers)

        def load(number: int) -> Any:
            reader = readers[number] = make(self.columns(number))
            return reader

        return readers, load

    def is_scattered(self, rows: Ints) -> bool:
        """Return whether it costs less to read these rows, which ascend, one by one than to `take` them."""
        if len(self.firsts) == 1:
            return len(rows) < ROWS_A_TAKE
        bounds = rows.searchsorted(self.firsts)
        batches = int(np.count_nonzero(bounds[1:] > bounds[:-1])) + int(bounds[-1] < len(rows))
        return len(rows) < ROWS_A_TAKE * batches

    def take(self, rows: Ints) -> list[pa.Array]:
        """Return the cells of the columns at rows, which ascend; only their batches are read."""
        self._opened()  # for its check of the length
        bounds = [*rows.searchsorted(self.firsts).tolist(), len(rows)]
        found: list[list[pa.Array]] = []
        for number, start in enumerate(self.firsts):
            low, high = bounds[number], bounds[number + 1]
            if low < high:
                here = pa.array(rows[low:high] - start if start else rows[low:high])
                columns = pa.RecordBatch.from_arrays(self.columns(number), names=self._names)
                found.append(columns.take(here).columns)
        return found[0] if len(found) == 1 else [pa.concat_arrays(parts) for parts in zip(*found, strict=True)]


def _address(part: Any) -> int:
    return int(np.asarray(part).ctypes.data) if isinstance(part, memoryview) else 0


def _bytes_of(part: Any) -> int:
    return part.nbytes if isinstance(part, memoryview) else 0
