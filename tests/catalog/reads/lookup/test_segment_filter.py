"""The filter of segments never hides a segment from a hash that it has."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from support.properties import few_or_many

from statestore.catalog.reads.lookup.segment_filter import SegmentFilter
from statestore.formats.kernels.arrays import Hashes


def hashes_of(name: str, rows: int) -> Hashes:
    random = np.random.default_rng(sum(name.encode()))
    return np.sort(random.integers(0, 2**64, rows, np.uint64, endpoint=False))


def named(found: SegmentFilter, key_hash: int) -> int:
    """Return the slots that are named for a hash, which are the same for one hash and for many."""
    slots = found.slots_of(key_hash)
    assert slots == int.from_bytes(found.words_of(np.array([key_hash], np.uint64)).tobytes(), "little")
    return slots | found.every


@few_or_many(
    25,
    200,
    st.lists(
        st.tuples(st.lists(st.integers(0, 40), max_size=6), st.lists(st.integers(0, 199), max_size=60)), max_size=8
    ),
)
def test_entered_hashes_are_found_whatever_came_and_went(steps: list[tuple[list[int], list[int]]]) -> None:
    rows = {"s0": 50}
    found = SegmentFilter(rows)
    entered: set[str] = set()
    for gone, come in steps:
        rows = {name: count for name, count in rows.items() if int(name[1:]) not in gone}
        rows |= {f"s{number}": number + 1 for number in come}
        found = found.following(rows)
        assert len({found.slots[name] for name in rows}) == len(rows)
        for name in rows:
            if int(name[1:]) % 3:
                found.enter(name, hashes_of(name, rows[name]))
                entered.add(name)
        for name, count in rows.items():
            for key_hash in hashes_of(name, count)[:: max(count // 5, 1)].tolist():
                assert named(found, key_hash) >> found.slots[name] & 1


def test_other_hashes_are_seldom_found() -> None:
    rows = {f"s{number}": 4_000 for number in range(80)}
    found = SegmentFilter(rows)
    for name in rows:
        found.enter(name, hashes_of(name, rows[name]))
    others = np.random.default_rng(9).integers(0, 2**64, 300, np.uint64, endpoint=False).tolist()
    mine = sum(1 << found.slots[name] for name in rows)
    assert sum((named(found, other) & mine).bit_count() for other in others) < 300 * 80 * 0.2


def test_what_was_entered_is_kept_when_slots_run_out() -> None:
    rows = {f"s{number}": 100 for number in range(10)}
    found = SegmentFilter(rows)
    found.enter("s3", hashes_of("s3", 100))
    for round_ in range(20):
        later = {"s3": 100} | {f"r{round_}-{number}": 100 for number in range(9)}
        found = found.following(later)
        assert not found.every >> found.slots["s3"] & 1
        assert all(named(found, key_hash) >> found.slots["s3"] & 1 for key_hash in hashes_of("s3", 100).tolist())


def test_too_large_segments_are_not_entered() -> None:
    found = SegmentFilter({"small": 10, "large": 12})
    large = hashes_of("large", 100_000)
    found.enter("large", large)
    assert found.every >> found.slots["large"] & 1
