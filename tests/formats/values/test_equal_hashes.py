"""Equal hashes have one number, against dicts of Python."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from statestore.formats.values.equal_hashes import distinct, first_of_each, numbered

HASHES = st.lists(st.sampled_from([0, 1, 2**63, 2**64 - 1]) | st.integers(0, 2**64 - 1), max_size=20)


@given(HASHES)
def test_equal_hashes_have_one_number(found: list[int]) -> None:
    hashes = np.array(found, np.uint64)
    numbers, first = numbered(hashes)
    ascending = sorted(set(found))
    assert numbers.tolist() == [ascending.index(each) for each in found]
    assert first.tolist() == [found.index(each) for each in ascending]
    assert distinct(hashes).tolist() == ascending
    assert first_of_each(numbers).tolist() == sorted(first.tolist())
    assert first_of_each(numbers * 2).tolist() == sorted(first.tolist())
