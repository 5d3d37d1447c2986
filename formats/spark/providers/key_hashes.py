"""Reading a state that is too large to be held several times, each time for the keys whose hashes are in one range.

The size of a range is unknown before it is read. While it is too large, the range is reduced from its upper end, and
the rows above it are left to a further pass. Small states are read once, and none of their keys is hashed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import pyarrow as pa

from statestore.formats.bytes.byte_columns import cells_of
from statestore.formats.kernels.arrays import Bools
from statestore.formats.kernels.compiled_use import load_if_it_pays
from statestore.formats.spark.checkpoint.state_errors import corrupt_row
from statestore.formats.spark.providers.file_records import Changes
from statestore.formats.spark.providers.replay import Parts, weight_of
from statestore.formats.values.xxh64 import U64s, xxh64_strings

HELD_BYTES = 64 << 20  # bytes by weight; with all that is computed from them, rows take about three times as much
_LEAST_WIDTH = 1 << 44  # rows of one key cannot be separated, and narrower ranges would be many
_WIDER = 16
_END = 1 << 64
T = TypeVar("T")


@dataclass(frozen=True)
class KeyHashes:
    """Hashes of stored keys without their first ``front`` bytes and without the eight at ``hole`` after these."""

    front: int = 0
    hole: int | None = None

    def of(self, keys: pa.Array) -> U64s:
        """The hash of each key of a binary or large binary array."""
        spans = cells_of(
            cells_of(keys).behind(self.front, "a key", corrupt_row).copied(corrupt_row) if self.front else keys
        )
        data = spans.data
        if self.hole is not None:
            data = data.copy()
            starts = spans.start[spans.size >= self.hole + 8] + self.hole
            for index in range(8):
                data[starts + index] = 0
        if not len(spans):
            return np.empty(0, np.uint64)
        return xxh64_strings(data, np.append(spans.start, spans.start[-1] + spans.size[-1]))


@dataclass(frozen=True)
class HashRange:
    """The keys whose hashes are from ``first`` to ``last``, both included; without ``hashes`` always all keys."""

    hashes: KeyHashes | None
    first: int = 0
    last: int = _END - 1

    @property
    def is_whole(self) -> bool:
        """Return whether the range contains all keys."""
        return self.hashes is None or (self.first == 0 and self.last == _END - 1)

    def holds(self, keys: pa.Array) -> Bools | None:
        """A mask of the keys that are in the range; None: all are."""
        if self.hashes is None or self.is_whole:
            return None
        hashes = self.hashes.of(keys)
        inside: Bools = (hashes >= np.uint64(self.first)) & (hashes <= np.uint64(self.last))
        return None if inside.all() else inside

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows (key, value) in the range."""
        inside = self.holds(batch.column(0))
        return batch if inside is None else batch.filter(pa.array(inside))

    def changes(self, changes: Changes) -> Changes:
        """The changes in the range."""
        if self.is_whole:
            return changes
        inside = self.holds(changes.keys.copied(corrupt_row))
        if inside is None:
            return changes
        return Changes(changes.kind[inside], changes.keys.select(inside), changes.values.select(inside))

    def parts(self, parts: Parts) -> Parts:
        """The rows of parts in the range."""
        kind, keys, values = parts
        inside = self.holds(keys)
        if inside is None:
            return parts
        chosen = pa.array(inside)
        return kind[inside], keys.filter(chosen), values.filter(chosen)


class Narrowing:
    """A range that is reduced while the rows held of it weigh too much."""

    def __init__(self, kept: HashRange) -> None:
        self.kept = kept
        self.most = HELD_BYTES
        self.weight = 0

    def fit(self, changes: list[Parts]) -> list[Parts]:
        """Reduce the range if necessary, and return the held rows that are still in it."""
        self.weight = sum(map(weight_of, changes))
        while self.weight > self.most and self.kept.hashes is not None:
            width = self.kept.last - self.kept.first + 1
            if width <= _LEAST_WIDTH:
                break
            load_if_it_pays(self.weight)  # all files will be read again
            self.kept = replace(self.kept, last=self.kept.first + width * 7 // 8 - 1)
            changes = [self.kept.parts(parts) for parts in changes]
            self.weight = sum(map(weight_of, changes))
        return changes


def in_passes(whole: HashRange, read: Callable[[Narrowing], T]) -> Iterator[tuple[HashRange, T]]:
    """Yield each range and what ``read`` returned for it; together the ranges are all of ``whole``, often one.

    The caller must release each result before it takes the next.
    """
    first, width = whole.first, whole.last - whole.first + 1
    while first <= whole.last:
        narrowing = Narrowing(replace(whole, first=first, last=min(first + width - 1, whole.last)))
        answer = read(narrowing)
        kept = narrowing.kept
        yield kept, answer
        del answer
        first, width = kept.last + 1, kept.last - kept.first + 1
        if narrowing.weight < narrowing.most // 2:
            width *= min(narrowing.most // max(narrowing.weight, 1), _WIDER)
