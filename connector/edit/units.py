"""The units of a state: rows that are equal in the columns by which an engine finds them, and are stored together.

Units are compared as engines compare keys, by their bits: 0.0 and -0.0 are two, and null is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import UnsupportedError
from statestore.formats.kernels.arrays import Bools, Hashes, Ints
from statestore.formats.places.held_tables import ROWS_AT_ONCE, held_rows
from statestore.formats.values.comparable_values import comparable
from statestore.formats.values.equal_hashes import first_of_each, numbered
from statestore.formats.values.key_equality import keys_equal
from statestore.formats.values.key_hash import hash_keys
from statestore.formats.values.without_pandas import arrow_numbers


def one_array(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return a column as one array."""
    if isinstance(column, pa.Array):
        return column
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays([pa.nulls(0, column.type), *column.chunks])


def in_pieces(rows: pa.Table, change: Callable[[pa.Table], pa.Table], schema: pa.Schema) -> pa.Table:
    """Return rows changed some at a time, as the columns ``schema``; very many are not held in memory (`held`)."""
    if rows.num_rows <= ROWS_AT_ONCE:
        return change(rows)
    pieces = (pa.Table.from_batches([batch]) for batch in rows.to_batches(max_chunksize=ROWS_AT_ONCE))
    return held_rows(schema, (batch for piece in pieces for batch in change(piece).to_batches()))


_Numbered = tuple[pa.Table | pa.RecordBatch, Ints]
"""Rows, and the numbers of those that are meant."""


@dataclass(frozen=True)
class _Cells:
    """Rows of the unit columns, and a hash for each of them."""

    rows: pa.Table | pa.RecordBatch
    hashes: Hashes

    @staticmethod
    def of(rows: pa.Table | pa.RecordBatch, unit: Sequence[str]) -> _Cells:
        rows = rows.select(list(unit))
        if not unit:
            return _Cells(rows, np.zeros(rows.num_rows, np.uint64))
        batches = [rows] if isinstance(rows, pa.RecordBatch) else rows.to_batches(max_chunksize=ROWS_AT_ONCE)
        hashes = [hash_keys(_by_bits(batch)) for batch in batches if batch.num_rows]
        return _Cells(rows, np.concatenate([np.empty(0, np.uint64), *hashes]))

    def check_same(self, rows: Ints, other: _Cells, others: Ints) -> None:
        """Raise UnsupportedError EDIT_UNSUPPORTED for two units of one hash."""
        if not all(same.all() for same in equal_rows((self.rows, rows), (other.rows, others))):
            raise UnsupportedError(
                ErrorCode.EDIT_UNSUPPORTED, "two different keys have the same 64-bit hash; edit them one by one"
            )


def equal_rows(one: _Numbered, other: _Numbered, *, in_order: bool = False) -> Iterator[Bools]:
    """Yield, some at a time, which of two tables' numbered rows are equal in all columns, by their bits.

    ``in_order``: maps with other orders of their entries are not equal.
    """
    (mine, rows), (theirs, others) = one, other
    for at in range(0, len(rows), ROWS_AT_ONCE):
        some = slice(at, at + ROWS_AT_ONCE)
        pairs = mine.take(arrow_numbers(rows[some])), theirs.take(arrow_numbers(others[some]))
        every = np.arange(len(rows[some]))
        left, right = (_by_bits(each, in_order=in_order) for each in pairs)
        yield keys_equal(left, every, right, every)


def _by_bits(rows: pa.Table | pa.RecordBatch, *, in_order: bool = False) -> list[pa.Array]:
    """Return columns in a form in which equal cells have equal bits."""
    names = rows.schema.names
    return [comparable(one_array(rows.column(name)), by_bits=True, in_order=in_order) for name in names]


@dataclass(frozen=True)
class Units:
    """Distinct units: ``keys`` has the unit columns and nothing else."""

    keys: pa.Table

    @staticmethod
    def of(rows: pa.Table, unit: Sequence[str]) -> Units:
        """Return the units of rows, in the order of their first rows."""
        keys, first = rows.select(list(unit)), first_of_each(unit_numbers(rows, unit))
        return Units(keys if len(first) == rows.num_rows else keys.take(arrow_numbers(first)))

    def __len__(self) -> int:
        return int(self.keys.num_rows)

    @property
    def unit(self) -> tuple[str, ...]:
        return tuple(self.keys.schema.names)

    @cached_property
    def _cells(self) -> _Cells:
        return _Cells.of(self.keys, self.unit)

    @cached_property
    def _order(self) -> Ints:
        return np.argsort(self._cells.hashes)

    @cached_property
    def _sorted(self) -> Hashes:
        return self._cells.hashes[self._order]

    def find(self, rows: pa.Table | pa.RecordBatch) -> Ints:
        """Return the number of the unit of each row, -1 for a row of none of these."""
        found = np.full(rows.num_rows, -1, np.int64)
        if not len(self) or not rows.num_rows:
            return found
        cells = _Cells.of(rows, self.unit)
        places = np.minimum(np.searchsorted(self._sorted, cells.hashes), len(self) - 1)
        here = np.flatnonzero(self._sorted[places] == cells.hashes)
        found[here] = self._order[places[here]]
        cells.check_same(here, self._cells, found[here])
        return found

    def have(self, rows: pa.Table | pa.RecordBatch) -> Bools:
        """Return which rows are of one of these units."""
        return self.find(rows) >= 0

    def without(self, others: Units) -> Units:
        """Return the units that are not among ``others``."""
        return self if not len(others) else Units(self.keys.filter(arrow_numbers(~others.have(self.keys))))

    def joined(self, others: Units) -> Units:
        """Return these units and others, none of which is among these."""
        return Units(pa.concat_tables([self.keys, others.keys]))


def unit_numbers(rows: pa.Table, unit: Sequence[str]) -> Ints:
    """Return a number for each row, the same for rows of one unit."""
    cells = _Cells.of(rows, unit)
    numbers, first = numbered(cells.hashes)
    if len(first) < rows.num_rows:
        same = first[numbers]
        again = np.flatnonzero(same != np.arange(rows.num_rows))
        cells.check_same(again, cells, same[again])
    return numbers


def repeated_row(numbers: Ints) -> int | None:
    """Return a row whose number an earlier one has; None where there is none. Of several, the one with the least number
    is returned, so that an error names the same row in whatever order DuckDB returns them."""
    first = first_of_each(numbers)
    if len(first) == len(numbers):
        return None
    again = np.ones(len(numbers), np.bool_)
    again[first] = False
    repeated = np.flatnonzero(again)
    return int(repeated[np.argmin(numbers[repeated])])
