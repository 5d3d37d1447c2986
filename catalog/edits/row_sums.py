"""Bags of rows as sums of their hashes, which say whether two bags are equal without holding either.

A sum does not depend on the order of the rows, and bags are added and subtracted by their sums. Rows are equal where
all cells are, by their bits; all NaNs are one. Sums are kept by the last bits of the hashes, so that a difference is
searched among few rows.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from statestore.formats.kernels.arrays import Hashes
from statestore.formats.values.comparable_values import comparable
from statestore.formats.values.key_hash import hash_keys
from statestore.formats.values.without_pandas import arrow_numbers

BUCKETS = 1 << 10
_HASHED_AT_ONCE = 1 << 17


@dataclass(frozen=True)
class RowSums:
    """A bag of rows: their number, and the sums of their hashes modulo 2**64, by bucket."""

    rows: int
    sums: Hashes

    def __add__(self, other: RowSums) -> RowSums:
        return RowSums(self.rows + other.rows, self.sums + other.sums)

    def __sub__(self, other: RowSums) -> RowSums:
        return RowSums(self.rows - other.rows, self.sums - other.sums)

    def as_text(self) -> str:
        """Return the bag as a text, which `of_text` reads."""
        return f"{self.rows} {base64.b64encode(self.sums.tobytes()).decode()}"

    @staticmethod
    def of_text(text: str) -> RowSums:
        rows, _, sums = text.partition(" ")
        return RowSums(int(rows), np.frombuffer(base64.b64decode(sums), np.uint64))

    def differing_bucket(self, other: RowSums) -> int | None:
        """Return the first bucket in which two bags differ; None for equal bags."""
        found = np.flatnonzero(self.sums != other.sums)
        return int(found[0]) if len(found) else None


def no_rows() -> RowSums:
    return RowSums(0, np.zeros(BUCKETS, np.uint64))


def row_hashes(rows: pa.RecordBatch, names: Sequence[str]) -> Hashes:
    """Return the hash of each row in these columns, of which there is one at least."""
    return hash_keys([comparable(rows.column(name), by_bits=True, one_nan=True) for name in names])


def table_hashes(table: pa.Table, names: Sequence[str]) -> Hashes:
    """Return the hash of each row of a table in these columns."""
    batches = table.to_batches(max_chunksize=_HASHED_AT_ONCE)
    return np.concatenate([np.empty(0, np.uint64), *(row_hashes(batch, names) for batch in batches if batch.num_rows)])


def sums_of(batches: Iterable[pa.RecordBatch], names: Sequence[str]) -> RowSums:
    """Return the bag of all rows of the batches in these columns."""
    count, sums = 0, np.zeros(BUCKETS, np.uint64)
    for batch in batches:
        if batch.num_rows:
            hashes = row_hashes(batch, names)
            np.add.at(sums, hashes & np.uint64(BUCKETS - 1), hashes)
            count += batch.num_rows
    return RowSums(count, sums)


def differing_row(
    more: Iterable[pa.RecordBatch], less: Iterable[pa.RecordBatch], names: Sequence[str], bucket: int
) -> tuple[pa.RecordBatch, int] | None:
    """Return a row that one bag has more often than another one, and by how much ``more`` has it more often.

    Only the rows of a bucket are held. None where the bags are equal in it.
    """
    counts, rows = Counter[int](), dict[int, pa.RecordBatch]()
    for sign, batches in ((1, more), (-1, less)):
        for hash_, row in _in_bucket(batches, names, bucket):
            counts[hash_] += sign
            rows.setdefault(hash_, row)
    return next(((rows[each], count) for each, count in counts.items() if count), None)


def _in_bucket(
    batches: Iterable[pa.RecordBatch], names: Sequence[str], bucket: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    for batch in batches:
        if not batch.num_rows:
            continue
        hashes = row_hashes(batch, names)
        chosen = np.flatnonzero((hashes & np.uint64(BUCKETS - 1)) == bucket)
        picked = batch.select(list(names)).take(arrow_numbers(chosen))
        for number, at in enumerate(chosen.tolist()):
            yield int(hashes[at]), picked.slice(number, 1)
