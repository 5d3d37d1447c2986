"""Times and versions of the rows of a segment, read where the file has them: no column is copied, whatever its batches.

The keys of a store of ten million versions are asked for one by one, and all of its times would be 160 MB.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from statestore.formats.kernels.arrays import Ints
from statestore.formats.segments.coded_numbers import NumbersInPlace


class RowNumbers:
    """A column of times in epoch microseconds, or of versions, by row. ``firsts``: the first row of each batch."""

    def __init__(self, firsts: Sequence[int], batches: Sequence[NumbersInPlace]) -> None:
        self._firsts = firsts
        self._batches = batches
        self._readers: list[Callable[[int], int] | None] = [None] * len(batches)
        # Returns the number of a row, as ``[row]`` does at twice the cost.
        self.read: Callable[[int], int] = batches[0].reader() if len(batches) == 1 else self._read

    def __getitem__(self, row: int) -> int:
        return self.read(row)

    def _read(self, row: int) -> int:
        number = bisect_right(self._firsts, row) - 1
        read = self._readers[number]
        if read is None:
            read = self._readers[number] = self._batches[number].reader()
        return read(row - self._firsts[number])

    def take(self, rows: Ints) -> Ints:
        """Return the numbers of these rows, in their order."""
        if len(self._batches) == 1:
            return self._batches[0].take(rows)
        batch = np.searchsorted(self._firsts, rows, "right") - 1
        order = np.argsort(batch, kind="stable")
        bounds = batch[order].searchsorted(np.arange(len(self._batches) + 1)).tolist()
        found = np.empty(len(rows), np.int64)
        for number, (low, high) in enumerate(pairwise(bounds)):
            if low < high:
                mine = order[low:high]
                found[mine] = self._batches[number].take(rows[mine] - self._firsts[number])
        return found

    def addresses(self) -> Ints:
        """Return the table of numbers of `belief_kernels`; it is valid as long as this object."""
        fields = [
            (np.frombuffer(each.data, np.uint8).ctypes.data if each.data.size else 0, *each[:-1])
            for each in self._batches
        ]
        return np.array([len(fields), *self._firsts, *(number for each in fields for number in each)], np.int64)
