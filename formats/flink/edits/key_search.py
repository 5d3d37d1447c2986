"""The search of rows by their values in some columns, which are compared by their bits: 0.0 and -0.0 are two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from statestore.formats.kernels.arrays import Hashes, Ints
from statestore.formats.values.comparable_values import comparable
from statestore.formats.values.key_equality import keys_equal
from statestore.formats.values.key_hash import hash_keys


@dataclass(frozen=True)
class KeySearch:
    """Distinct rows, by ``columns`` in their comparable form; ``order`` sorts them by their ``hashes``."""

    columns: tuple[pa.Array, ...]
    order: Ints
    hashes: Hashes

    def __len__(self) -> int:
        return len(self.order)

    def found(self, columns: Sequence[pa.Array]) -> Ints:
        """The number of the row that equals each one of ``columns``; -1 where none does."""
        mine = comparable_columns(columns)
        hashes = hashes_of(mine)
        at = np.searchsorted(self.hashes, hashes)
        result = np.full(len(hashes), -1)
        rows = np.flatnonzero(at < len(self.hashes))
        while len(rows):
            rows = rows[self.hashes[at[rows]] == hashes[rows]]
            same = keys_equal(mine, rows, self.columns, self.order[at[rows]])
            result[rows[same]] = self.order[at[rows[same]]]
            rows = rows[~same]  # two keys have one hash
            at[rows] += 1
            rows = rows[at[rows] < len(self.hashes)]
        return result


def distinct(columns: Sequence[pa.Array]) -> tuple[KeySearch, Ints, Ints]:
    """The distinct rows, with the number of each row among them, and the first row of each number."""
    compared = comparable_columns(columns)
    hashes = hashes_of(compared)
    number, first = _numbered(compared, hashes)
    order = np.argsort(hashes[first], kind="stable")
    rows = pa.array(first)
    return KeySearch(tuple(each.take(rows) for each in compared), order, hashes[first][order]), number, first


def search_of(rows: pa.Table, names: Sequence[str]) -> KeySearch:
    """The distinct rows of a table in some columns."""
    return distinct(columns_of(rows, names))[0]


def columns_of(rows: pa.Table, names: Sequence[str]) -> list[pa.Array]:
    """Columns of a table, each as one array."""
    return [one_array(rows, name) for name in names]


def one_array(rows: pa.Table, name: str) -> pa.Array:
    """A column of a table as one array."""
    found = rows.column(name).combine_chunks()
    return found.chunk(0) if isinstance(found, pa.ChunkedArray) else found


def in_schema(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The columns of a schema, cast where they have other types. Raises what a cast of Arrow raises.

    A map to nulls that Arrow casts to its own type is damaged: it has fewer nulls than entries.
    """
    columns = [rows.column(each.name) for each in schema]
    kept = [
        column if column.type == each.type else column.cast(each.type)
        for column, each in zip(columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(kept, schema=schema)


def comparable_columns(columns: Sequence[pa.Array]) -> list[pa.Array]:
    """Columns in a form in which equal rows have equal bits."""
    return [comparable(each, by_bits=True) for each in columns]


def hashes_of(columns: Sequence[pa.Array]) -> Hashes:
    """A hash for each row of comparable columns."""
    return hash_keys(columns) if len(columns[0]) else np.empty(0, np.uint64)


def _numbered(columns: Sequence[pa.Array], hashes: Hashes) -> tuple[Ints, Ints]:
    """A number for each row, the same for rows with equal columns, and the first row of each number."""
    _, first, number = np.unique(hashes, return_index=True, return_inverse=True)
    number, first = number.astype(np.int64), first.astype(np.int64)
    while True:
        other = np.flatnonzero(~keys_equal(columns, np.arange(len(number)), columns, first[number]))
        if not len(other):
            return number, first
        # Other keys have the same hash: the first of them is a key of its own, with those that equal it.
        same = other[keys_equal(columns, other, columns, np.full(len(other), other[0]))]
        number[same], first = len(first), np.append(first, other[0])
