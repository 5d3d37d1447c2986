"""The units of a state: rows that are equal in the columns by which an engine finds them, and are stored together.

Units are compared as engines compare keys, by their bits: 0.0 and -0.0 are two, and null is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import UnsupportedError
from statestore.formats.kernels.arrays import Bools, Hashes, Ints
from statestore.formats.values.comparable_values import comparable
from statestore.formats.values.key_equality import keys_equal
from statestore.formats.values.key_hash import hash_keys


def one_array(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return a column as one array."""
    if isinstance(column, pa.Array):
        return column
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays([pa.array([], column.type), *column.chunks])


@dataclass(frozen=True)
class _Cells:
    """The unit columns of rows in a form in which equal ones have equal bits, and a hash for each row."""

    columns: list[pa.Array]
    hashes: Hashes

    @staticmethod
    def of(rows: pa.Table | pa.RecordBatch, unit: Sequence[str]) -> _Cells:
        columns = [comparable(one_array(rows.column(name)), by_bits=True) for name in unit]
        return _Cells(columns, hash_keys(columns) if columns else np.zeros(rows.num_rows, np.uint64))

    def check_same(self, rows: Ints, other: _Cells, others: Ints) -> None:
        """Raise UnsupportedError EDIT_UNSUPPORTED for two units of one hash."""
        if not keys_equal(self.columns, rows, other.columns, others).all():
            raise UnsupportedError(
                ErrorCode.EDIT_UNSUPPORTED, "two different keys have the same 64-bit hash; edit them one by one"
            )


@dataclass(frozen=True)
class Units:
    """Distinct units: ``keys`` has the unit columns and nothing else."""

    keys: pa.Table

    @staticmethod
    def of(rows: pa.Table, unit: Sequence[str]) -> Units:
        """Return the units of rows, in the order of their first rows."""
        return Units(rows.select(list(unit)).take(pa.array(first_rows(unit_numbers(rows, unit)))))

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
        return np.argsort(self._cells.hashes, kind="stable")

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
        return self if not len(others) else Units(self.keys.filter(pa.array(~others.have(self.keys))))

    def joined(self, others: Units) -> Units:
        """Return these units and others, none of which is among these."""
        return Units(pa.concat_tables([self.keys, others.keys]))


def unit_numbers(rows: pa.Table, unit: Sequence[str]) -> Ints:
    """Return a number for each row, the same for rows of one unit."""
    cells = _Cells.of(rows, unit)
    _, first, numbers = np.unique(cells.hashes, return_index=True, return_inverse=True)
    numbers = numbers.reshape(-1).astype(np.int64)
    if len(first) < rows.num_rows:
        cells.check_same(np.arange(rows.num_rows), cells, first[numbers])
    return numbers


def first_rows(numbers: Ints) -> Ints:
    """Return the first row of each number, in ascending order."""
    return np.sort(np.unique(numbers, return_index=True)[1])


def repeated_row(numbers: Ints) -> int | None:
    """Return a row whose number an earlier one has; None where there is none. Of several, the one with the least number
    is returned, so that an error names the same row in whatever order DuckDB returns them."""
    first = first_rows(numbers)
    if len(first) == len(numbers):
        return None
    again = np.ones(len(numbers), np.bool_)
    again[first] = False
    repeated = np.flatnonzero(again)
    return int(repeated[np.argmin(numbers[repeated])])
