"""Rows of mapped Arrow columns as Python values, without an Arrow scalar for each cell, batch by batch.

The function that reads a row is written as source, one expression a column, and compiled once for the types of a
store's columns. The source holds numbers of columns only, and never a name of a user. Columns of nested types are still
read through Arrow scalars.

A point read needs a few rows of a segment. Where columns are compressed, only the batches of these rows are
decompressed. They are kept within a bound for all stores of the process; those that were made first go first.
"""

from __future__ import annotations

import os
import threading
import weakref
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from statestore.formats.kernels.arrays import Ints
from statestore.formats.segments.segment import Segment
from statestore.formats.serdes.numbers import as_number, number_bytes
from statestore.formats.values.canonical import from_arrow

ReadRow = Callable[[int], tuple[Any, ...]]
ReadCell = Callable[[int], Any]

_MAKE = """
def make({names}):
    def read(row):
        return {row}
    return read
"""
_NUMBERS = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}
_DECIMAL_BYTES = 16


def row_reader(columns: Sequence[pa.Array]) -> ReadRow:
    """Return a function from a row of these columns to the tuple of its canonical values."""
    return _reader(None, columns)


def user_reader(columns: Sequence[pa.Array], names: Sequence[str]) -> ReadCell:
    """Return a function from a row of these columns, none of them nested, to the value as users see it."""
    return _reader(tuple(names), columns)


def bytes_test(column: pa.Array) -> Callable[[int, bytes], bool]:
    """Return a function that tests whether a row of a column of text or binary without nulls holds these bytes."""
    _, offsets, data = column_parts(column)
    return lambda row, expected: data[offsets[row] : offsets[row + 1]] == expected


def _reader(names: tuple[str, ...] | None, columns: Sequence[pa.Array]) -> Callable[[int], Any]:
    kinds = tuple((column.type, column.null_count > 0) for column in columns)
    parts = [part for column in columns for part in column_parts(column)]
    return _maker(kinds, names)(*parts)


@lru_cache(maxsize=256)
def _maker(
    kinds: tuple[tuple[pa.DataType, bool], ...], names: tuple[str, ...] | None
) -> Callable[..., Callable[[int], Any]]:
    """Return the function that makes the reader of columns of these types from their `column_parts`.

    Its rows are tuples; with ``names`` they are the bare cell of a single column, else dicts.
    """
    cells: list[str] = []
    known: dict[str, Any] = {}
    for i, (kind, has_nulls) in enumerate(kinds):
        cell, back = _cell(i, kind)
        known[f"back{i}"] = back
        cells.append(f"{cell} if valid{i}[row >> 3] >> (row & 7) & 1 else None" if has_nulls else cell)
    if names is None:
        row = f"({''.join(f'{cell}, ' for cell in cells)})"
    elif len(cells) == 1:
        row = cells[0]
    else:
        known |= {f"name{i}": name for i, name in enumerate(names)}
        row = f"{{{', '.join(f'name{i}: {cell}' for i, cell in enumerate(cells))}}}"
    arguments = ", ".join(f"valid{i}, offsets{i}, data{i}" for i in range(len(kinds)))
    source = _MAKE.format(names=arguments, row=row)
    # The source has numbers of columns and code of this module only; names and data of users are values of ``known``.
    exec(compile(source, "<reader of a row>", "exec"), known)
    made: Callable[..., Callable[[int], Any]] = known["make"]
    return made


def _cell(i: int, kind: pa.DataType) -> tuple[str, Callable[[Any], Any] | None]:
    """Return the expression of a cell that is not null, and the function ``back`` that it uses."""
    types = pa.types
    if types.is_string(kind):
        return f"str(data{i}[offsets{i}[row]:offsets{i}[row + 1]], 'utf-8')", None
    if types.is_binary(kind):
        return f"bytes(data{i}[offsets{i}[row]:offsets{i}[row + 1]])", None
    if types.is_boolean(kind):
        return f"data{i}[row >> 3] >> (row & 7) & 1 == 1", None
    if types.is_signed_integer(kind) or types.is_floating(kind):
        return f"data{i}[row]", None
    if types.is_decimal128(kind):
        size = _DECIMAL_BYTES
        number = f"int.from_bytes(data{i}[row * {size}:row * {size} + {size}], 'little', signed=True)"
        return f"back{i}({number})", as_number(kind).back
    if number_bytes(kind):
        return f"back{i}(data{i}[row])", as_number(kind).back
    return f"data{i}(row)", None


def column_parts(column: pa.Array) -> tuple[Any, Any, Any]:
    """Return (validity bits or None, offsets or None, data) of a column, all of them beginning at its first row."""
    kind, types, rows = column.type, pa.types, len(column)
    if column.null_count and column.offset % 8:
        column = pa.concat_arrays([column.slice(0, 0), column])
    if column.offset % 8 and types.is_boolean(kind):
        column = pa.concat_arrays([column.slice(0, 0), column])
    first = column.offset
    buffers = column.buffers()
    valid = _bytes(buffers[0])[first // 8 :] if column.null_count else None
    if types.is_string(kind) or types.is_binary(kind):
        offsets = np.frombuffer(buffers[1], np.int32, rows + 1, 4 * first) if rows else np.zeros(1, np.int32)
        return valid, offsets.data, _bytes(buffers[2])
    if types.is_boolean(kind):
        return valid, None, _bytes(buffers[1])[first // 8 :]
    if types.is_decimal128(kind):
        return valid, None, _bytes(buffers[1])[_DECIMAL_BYTES * first :]
    size = number_bytes(kind)
    if size:
        form = np.dtype(f"f{size}") if types.is_floating(kind) else np.dtype(_NUMBERS[size])
        return valid, None, np.frombuffer(buffers[1], form, rows, size * first).data
    convert = from_arrow(kind)
    if convert is None:
        return valid, None, lambda row: column[row].as_py()
    return valid, None, lambda row: convert(column[row].as_py())


def _bytes(buffer: pa.Buffer | None) -> memoryview:
    """Return a view of unsigned bytes, in which slices compare with bytes at once."""
    return memoryview(b"" if buffer is None else buffer).cast("B")


# Decompressed batches of all stores that are kept: FIRST_BYTES at first, at most BATCH_BYTES. A batch that is made
# again after it was dropped raises the bound by a quarter of its bytes. Reads of any key at any moment touch all of a
# history, and a batch takes a millisecond: were the bound fixed, each of them could take 100 times as long for good.
FIRST_BYTES, BATCH_BYTES = 64 << 20, 1 << 30
AGAIN_SHIFT = 2

COLUMN_FIELDS = 4  # as in `answer_kernels`, which cannot be imported without numba

# Rows of a batch that cost as much one by one as taken together. Were they always taken, `get_many` of 100 keys would
# take 2.1 to 2.3 times as long where no compiled code answers.
ROWS_A_TAKE = 12

OpenFile = Callable[[], Segment]  # opens the file again, and checks that it still has its length
Make = Callable[[list[pa.Array]], Any]


class _KeptBatches:
    """The decompressed batches, oldest first, their size together, and how large that may be."""

    def __init__(self) -> None:
        self.bytes = 0
        self.limit = FIRST_BYTES
        # A weak reference: batches of closed stores are gone, but are counted until it is their turn.
        self._kept: deque[tuple[weakref.ref[BatchColumns], int, int]] = deque()
        # Held while columns change, and the addresses by which compiled code reads them.
        self.lock = threading.RLock()

    def keep(self, batches: BatchColumns, number: int, size: int, again: bool) -> None:
        """Count a batch of so many bytes; drop the oldest ones beyond the bound. The caller holds ``lock``.

        ``again``: it was dropped before.
        """
        if again:
            self.limit += size >> AGAIN_SHIFT
        self._kept.append((weakref.ref(batches), number, size))
        self.bytes += size
        limit = min(self.limit, BATCH_BYTES)
        while self.bytes > limit and len(self._kept) > 1:
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
        self._dropped: set[int] = set()

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
                    kept_batches.keep(self, number, decompressed, number in self._dropped)
        return found

    def drop(self, number: int) -> None:
        """Drop a batch and all that was made of it; not the only one of a file, which its readers hold anyway."""
        if len(self.firsts) == 1:
            return
        self._dropped.add(number)
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
