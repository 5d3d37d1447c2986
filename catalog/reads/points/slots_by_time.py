"""The segments that can have a row of a moment, as slots of the `SegmentFilter`."""

from __future__ import annotations

from collections.abc import Sequence

from statestore.formats.segments.segment_meta import SegmentMeta

CHECKPOINTS = 64  # of the segments in order of time, for which the slots before and behind them are kept


class SlotsByTime:
    """Segments in order of their greatest ends, and the slots of those that can have a row of a moment.

    Every ``step`` segments, ``from_end`` has the slots from there on, and ``to_start`` the slots of the segments with
    the least starts up to there.
    """

    def __init__(self, metas: Sequence[SegmentMeta], slots: dict[str, int]) -> None:
        self.ends = [meta.max_valid_to for meta in metas]
        by_end = [slots[meta.name] for meta in metas]
        by_start = sorted((meta.min_valid_from, slots[meta.name]) for meta in metas)
        self.starts = [start for start, _ in by_start]
        self.step = len(metas) // CHECKPOINTS + 1
        self.from_end = _sums(by_end[::-1], len(metas) % self.step, self.step)[::-1]
        self.to_start = _sums([slot for _, slot in by_start], 0, self.step)


def _sums(slots: Sequence[int], offset: int, step: int) -> list[int]:
    """Return the bits of the first ``offset + n * step`` slots, for each n, and at the end those of all."""
    sums, bits = [], 0
    for number, slot in enumerate(slots):
        if number >= offset and (number - offset) % step == 0:
            sums.append(bits)
        bits |= 1 << slot
    return [*sums, bits]
