"""A filter that names, for a key hash, the segments that may have the key, with one look for all segments.

Each segment has a slot, which is one bit of every bucket. A hash has two buckets, and the bits that both have in common
are the slots of the segments that may have it. So the cost of a look does not grow with the number of segments, beyond
the width of a bucket. A segment is entered when looks into it have been in vain often enough. Until then its slot is
set for every hash, and always in a segment that is too large for the number of buckets.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from statestore.formats.kernels.arrays import Hashes

SPARE_SLOTS = 48
BITS_A_ROW = 8
MAX_BYTES = 64 << 20
AT_ONCE = 1 << 18

Words = npt.NDArray[np.uint64]


class SegmentFilter:
    """The slots of segments, by name, and the bits of their hashes: a few bytes a row, at most MAX_BYTES.

    Threads may read while others `enter`, because bits are only added, and because a slot is used again only in a copy
    (`following`). ``every``: the slots that are set for every hash, as one integer.
    """

    def __init__(self, rows: Mapping[str, int]) -> None:
        """Make the filter of segments with so many ``rows``; no segment is entered yet."""
        words = -(-(len(rows) + SPARE_SLOTS) // 64)
        self._mean = _mean(rows)
        buckets = min(self._mean * BITS_A_ROW, MAX_BYTES // (8 * words))
        bits = max(buckets.bit_length() - 1, 1)
        self._use(np.zeros((1 << bits, words), np.uint64), {name: slot for slot, name in enumerate(rows)})
        self._next = len(rows)

    def _use(self, words: Words, slots: dict[str, int]) -> None:
        self._words = words
        self.slots = slots
        self.width: int = 8 * words.shape[1]
        self.mask = len(words) - 1
        self.shift = 65 - len(words).bit_length()
        self.view = memoryview(words).cast("B")  # type: ignore[arg-type]
        self.every: int = (1 << 8 * self.width) - 1
        # Never waited for: whoever finds it taken leaves the segment for later. So a fork cannot inherit it held.
        self._entering = threading.Lock()

    def following(self, rows: Mapping[str, int]) -> SegmentFilter:
        """Return the filter of the segments of another log state; what was entered of those in both is kept."""
        new = [name for name in rows if name not in self.slots]
        if self._next + len(new) <= 8 * self.width:
            for name in new:
                self.slots[name] = self._next
                self._next += 1
            return self
        if not self._mean // 2 <= _mean(rows) <= self._mean * 2:
            return SegmentFilter(rows)
        return self._renewed(rows)

    def _renewed(self, rows: Mapping[str, int]) -> SegmentFilter:
        """Return a copy in which the slots of segments that are gone are free."""
        kept = [name for name in self.slots if name in rows]
        others = [name for name in rows if name not in self.slots]
        renewed = SegmentFilter(dict.fromkeys([*kept, *others], self._mean))
        every = self.every  # before the copy: what is entered meanwhile counts as not entered
        for name in kept:
            slot = self.slots[name]
            if not every >> slot & 1 and len(renewed._words) == len(self._words):
                bits = self._words[:, slot // 64] >> np.uint64(slot % 64) & np.uint64(1)
                target = renewed.slots[name]
                renewed._words[:, target // 64] |= bits << np.uint64(target % 64)
                renewed.every &= ~(1 << target)
        return renewed

    def common(self, hashes: Hashes) -> Words:
        """Return the slots, in words of 64, of the segments that may have each hash; ``every`` is not among them."""
        first, second = hashes >> np.uint64(self.shift), hashes & np.uint64(self.mask)
        words: Words = self._words[first.astype(np.int64)] & self._words[second.astype(np.int64)]
        return words

    def enter(self, name: str, hashes: Hashes) -> None:
        """Enter the hashes of a segment, unless it is too large, or another thread enters one at this moment."""
        slot = self.slots[name]
        if len(hashes) > len(self._words) // 2 or not self._entering.acquire(blocking=False):
            return
        try:
            bit, column = np.uint64(1 << slot % 64), self._words[:, slot // 64]
            for start in range(0, len(hashes), AT_ONCE):
                some = hashes[start : start + AT_ONCE]
                for buckets in (some >> np.uint64(self.shift), some & np.uint64(self.mask)):
                    column[buckets.astype(np.int64)] |= bit
            self.every &= ~(1 << slot)
        finally:
            self._entering.release()


def _mean(rows: Mapping[str, int]) -> int:
    """Return the mean number of rows in the segment of a row."""
    return max(sum(count * count for count in rows.values()) // max(sum(rows.values()), 1), 1)
