"""Numbers of rows in the file: read one by one, taken together and found by compiled code, they are the same."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from statestore.catalog.reads.lookup.row_numbers import RowNumbers
from statestore.formats.kernels.arrays import Ints
from statestore.formats.segments.coded_numbers import NumbersInPlace


def batches(seed: int) -> Iterator[Ints]:
    """Yield batches whose numbers take from 0 to 8 bytes each."""
    random = np.random.default_rng(seed)
    for bits in (0, 8, 16, 24, 32, 40, 48, 55, 60):
        numbers = random.integers(0, 1 << bits, 3 + bits % 5 * 7)
        numbers[random.permutation(len(numbers))[:2]] = 0, (1 << bits) - 1
        yield numbers + int(random.integers(-(2**60), 2**60))


@pytest.mark.parametrize("seed", range(3))
def test_all_ways_to_read_are_the_same(seed: int) -> None:
    from statestore.formats.kernels.belief_kernels import number_of
    from statestore.formats.kernels.compiled import kernel

    @kernel
    def read(numbers: int, found: Ints) -> None:
        for row in range(len(found)):
            found[row] = number_of(numbers, row)

    values = list(batches(seed))
    stored = [NumbersInPlace.packed(each) for each in values]
    assert {each.width for each in stored} == set(range(9))
    for some in (slice(0, 1), slice(3, 4), slice(None)):
        whole = np.concatenate(values[some])
        firsts = [0, *np.cumsum([len(each) for each in values[some]]).tolist()[:-1]]
        numbers = RowNumbers(firsts, stored[some])
        assert [numbers[row] for row in range(len(whole))] == whole.tolist()
        rows = np.random.default_rng(seed).integers(0, len(whole), 100)
        assert numbers.take(rows).tolist() == whole[rows].tolist()
        assert numbers.take(rows[:0]).tolist() == []
        compiled, table = np.empty(len(whole), np.int64), numbers.addresses()
        read(table.ctypes.data, compiled)
        assert compiled.tolist() == whole.tolist()
