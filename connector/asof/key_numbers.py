"""Numbers for keys of any type, so that an engine can join integers: two keys have one number only if they are
equal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statestore.formats.kernels.arrays import Ints
from statestore.formats.values.key_equality import keys_equal
from statestore.formats.values.key_hash import hash_keys


@dataclass(frozen=True)
class KeyNumbers:
    """Distinct keys by their number: ``hashes`` ascending, and ``cells`` as `AsofRequest.cells` makes them."""

    hashes: npt.NDArray[np.uint64]
    cells: list[pa.Array]

    def numbers_of(self, cells: Sequence[pa.Array]) -> tuple[Ints, Ints]:
        """(the rows whose key has a number, their numbers)."""
        if not len(self.hashes) or not len(cells[0]):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        probes = hash_keys(cells)
        number = np.searchsorted(self.hashes, probes)
        number[number == len(self.hashes)] = 0
        rows = np.flatnonzero(self.hashes[number] == probes)
        rows = rows[keys_equal(cells, rows, self.cells, number[rows])]
        return rows, number[rows].astype(np.int64)


def numbered(cells: Sequence[pa.Array]) -> tuple[KeyNumbers, Ints] | None:
    """The distinct keys and the number of each row's key; None where different keys have one hash."""
    hashes = hash_keys(cells) if len(cells[0]) else np.empty(0, np.uint64)
    distinct, first, number = np.unique(hashes, return_index=True, return_inverse=True)
    found = KeyNumbers(distinct, [column.take(pa.array(first)) for column in cells])
    if not keys_equal(cells, np.arange(len(number)), found.cells, number).all():
        return None
    return found, number.astype(np.int64)
