"""Ranges of keys, each with a bounded amount of all files: the scanner reads one range at a time."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from statestore.formats.rocksdb.table_file import TableFile  # imports numba


SAMPLES_OF_RANGE = 16


@dataclass(frozen=True)
class KeyRange:
    """User keys from ``first`` (None: the least) up to, not including, ``stop`` (None: no end).

    With ``rest``, only those keys are wanted that begin with ``first``, continue with any ``hole`` bytes, and then with
    ``rest``. A reader may return other keys of the range, too.
    """

    first: bytes | None = None
    stop: bytes | None = None
    hole: int = 0
    rest: bytes = b""

    @property
    def empty(self) -> bool:
        return self.first is not None and self.stop is not None and self.first >= self.stop

    def holds_inside(self, key: bytes) -> bool:
        """Return whether a key is in the range and is not its first."""
        return (self.first is None or self.first < key) and (self.stop is None or key < self.stop)


def successor(prefix: bytes) -> bytes | None:
    """The least string that is greater than all strings with the prefix."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def blocks_of(table: TableFile, within: KeyRange) -> tuple[int, int]:
    """The blocks, from the first up to but not including the second, that may hold keys of a range."""
    count = len(table.separators)
    if within.stop is not None and table.smallest >= within.stop:
        return 0, 0
    first = 0 if within.first is None else bisect.bisect_left(range(count), within.first, key=table.separators.key)
    if within.stop is None:
        return first, count
    # The block whose separator is the first not below ``stop`` may hold keys before it.
    last = bisect.bisect_left(range(count), within.stop, lo=first, key=table.separators.key)
    return first, min(last + 1, count)


def cut_ranges(tables: Sequence[TableFile], within: KeyRange, target: int) -> list[KeyRange]:
    """Split ``within`` into ranges of about ``target`` bytes of raw blocks. All versions of a key are in one range."""
    spans = [(table, *blocks_of(table, within)) for table in tables]
    blocks = sum(stop - first for _, first, stop in spans)
    total = sum(int(table.size[first:stop].sum()) for table, first, stop in spans)
    step = max(1, blocks * target // (SAMPLES_OF_RANGE * max(total, 1)))
    weights: list[tuple[bytes, int]] = []
    for table, first, stop in spans:
        starts = np.arange(first, stop, step)
        if len(starts):
            sizes = np.add.reduceat(table.size[:stop], starts)
            ends = np.append(starts[1:], stop)
            weights += zip(map(table.separators.key, (ends - 1).tolist()), sizes.tolist(), strict=True)
    weights.sort()
    cuts: list[bytes] = []
    gathered = 0
    for separator, weight in weights:
        gathered += weight
        if gathered >= target:
            # The separator itself may be a key of its block: the next range begins just behind it.
            cut = separator + b"\0"
            if (within.stop is None or cut < within.stop) and (not cuts or cut > cuts[-1]):
                cuts.append(cut)
            gathered = 0
    edges = [within.first, *cuts, within.stop]
    return [KeyRange(first, stop) for first, stop in itertools.pairwise(edges)]
