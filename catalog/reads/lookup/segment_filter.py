"""A filter that names, for a key hash, the segments that may have the key, with one look for all segments.

Each segment has a slot, which is one bit of every bucket. The first bits of a hash are the number of its bucket, whose
bits are the slots of the segments that may have it. So a look touches one line of the processor's cache, and costs the
same however many segments there are, beyond the width of a bucket. Buckets are in the order of hashes, as the key
indexes are, so a segment is entered from front to back. It is entered when looks into it have been in vain often
enough. Until then its slot is set for every hash, and always in a segment that is too large for the number of buckets.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from itertools import accumulate
from operator import or_

import numpy as np
import numpy.typing as npt

from statestore.formats.kernels.arrays import Hashes
from statestore.formats.segments.segment_meta import SegmentMeta

SPARE_SLOTS = 16
BUCKETS_A_ROW = 16
MAX_BYTES = 32 << 20

Words = npt.NDArray[np.uint64]


class SegmentFilter:
    """The slots of segments, by name, and the bits of their hashes: a few bytes a row, at most MAX_BYTES.

    Threads may read while others `enter`, because bits are only added, and because a slot is used again only in a copy
    (`following`). ``every``: the slots that are set for every hash, as one integer. ``view`` has ``width`` words of 64
    slots for each bucket, and ``shift`` makes the bucket of a hash.
    """

    def __init__(self, rows: Mapping[str, int]) -> None:
        """Make the filter of segments with so many ``rows``; no segment is entered yet."""
        words = -(-(len(rows) + SPARE_SLOTS) // 64)
        self._mean = _mean(rows)
        buckets = min(self._mean * BUCKETS_A_ROW, MAX_BYTES // (8 * words))
        bits = max(buckets.bit_length() - 1, 1)
        slots = {name: slot for slot, name in enumerate(rows)}
        self._use(np.zeros((1 << bits, words), np.uint64), slots, (1 << 64 * words) - 1)

    def _use(self, words: Words, slots: dict[str, int], every: int) -> None:
        self._words = words
        self.width: int = words.shape[1]
        self.shift = 65 - len(words).bit_length()
        self.view = words.reshape(-1).data
        self.slots = slots
        self.every = every
        taken = set(slots.values())
        self._free = [slot for slot in range(64 * self.width) if slot not in taken]
        # Never waited for: whoever finds it taken leaves the segment for later. So a fork cannot inherit it held.
        self._entering = threading.Lock()

    def following(self, rows: Mapping[str, int]) -> SegmentFilter:
        """Return the filter of the segments of another log state; what was entered of those in both is kept."""
        new = [name for name in rows if name not in self.slots]
        if len(new) <= len(self._free):
            self.slots |= zip(new, self._free)  # noqa: B905 - as many as there are new ones
            del self._free[: len(new)]
            return self
        if len(rows) + SPARE_SLOTS > 64 * self.width or not self._mean // 2 <= _mean(rows) <= self._mean * 2:
            return SegmentFilter(rows)
        return self._renewed(rows).following(rows)

    def _renewed(self, rows: Mapping[str, int]) -> SegmentFilter:
        """Return a copy in which the slots of segments that are gone are free."""
        slots = {name: slot for name, slot in self.slots.items() if name in rows}
        kept = sum(1 << slot for slot in slots.values())
        every = self.every | ~kept & (1 << 64 * self.width) - 1  # before the copy, in which others may be half entered
        renewed = SegmentFilter.__new__(SegmentFilter)
        renewed._mean = self._mean
        renewed._use(self._words & np.frombuffer(kept.to_bytes(8 * self.width, "little"), np.uint64), slots, every)
        return renewed

    def slots_of(self, key_hash: int) -> int:
        """Return the slots of the segments that may have a hash, as one integer, without those of ``every``."""
        at = (key_hash >> self.shift) * self.width
        slots: int = self.view[at]
        for number in range(1, self.width):
            slots |= self.view[at + number] << 64 * number
        return slots

    def words_of(self, hashes: Hashes) -> Words:
        """Return the slots of `slots_of` for each hash, in words of 64."""
        words: Words = self._words[(hashes >> np.uint64(self.shift)).view(np.int64)]
        return words

    def enter(self, name: str, hashes: Hashes) -> None:
        """Enter the ascending hashes of a segment, unless it is too large, or another thread enters one now."""
        slot = self.slots[name]
        if len(hashes) > len(self._words) // 2 or not self._entering.acquire(blocking=False):
            return
        try:
            bit, column = np.uint64(1 << slot % 64), self._words[:, slot // 64]
            column[(hashes >> np.uint64(self.shift)).view(np.int64)] |= bit
            self.every &= ~(1 << slot)
        finally:
            self._entering.release()


def _mean(rows: Mapping[str, int]) -> int:
    """Return the mean number of rows in the segment of a row."""
    return max(sum(count * count for count in rows.values()) // max(sum(rows.values()), 1), 1)


SUMS = 1_024  # of slots in each order of time; sums of each number of 50,000 segments would take 300 MB


class SlotsByTime:
    """Segments in order of their greatest ends, and the slots of those that can have a row of a moment.

    ``from_end[n]`` has the slots of all but the first n * ``step`` segments, ``to_start[n]`` those of so many with the
    least starts.
    """

    def __init__(self, metas: Sequence[SegmentMeta], slots: dict[str, int]) -> None:
        self.ends = [meta.max_valid_to for meta in metas]
        by_end = [slots[meta.name] for meta in metas]
        by_start = sorted((meta.min_valid_from, slots[meta.name]) for meta in metas)
        self.starts = [start for start, _ in by_start]
        self.step = len(metas) // SUMS + 1
        self.from_end = _sums(by_end[::-1], len(metas) % self.step, self.step)[::-1]
        self.to_start = _sums([slot for _, slot in by_start], 0, self.step)


def _sums(slots: Sequence[int], first: int, step: int) -> list[int]:
    """Return the bits of the first ``first + n * step`` slots, for each n, up to those of all."""
    sums = accumulate((1 << slot for slot in slots), or_, initial=0)
    wanted = {*range(first, len(slots), step), len(slots)}
    return [bits for number, bits in enumerate(sums) if number in wanted]
