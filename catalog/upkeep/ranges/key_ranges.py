"""Ranges of key hashes: a store's keys in parts that share no key, and the rows of a segment in one of them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.segments.segment_meta import SegmentMeta
from statestore.formats.values.key_hash import hash_keys

Numbers = npt.NDArray[np.int32]
HASHES = 1 << 64


@dataclass(frozen=True)
class KeyRange:
    """The keys whose hashes lie from ``first`` to ``last``, both included."""

    first: int
    last: int


def key_ranges(count: int, key_groups: int) -> tuple[KeyRange, ...]:
    """Return about ``count`` ranges of equal size that together have every key once.

    They are ranges of whole key groups, unless there are more ranges than key groups.
    """
    if count <= key_groups:
        groups = [n * key_groups // count for n in range(count + 1)]
        borders = [-(-(group << 32) // key_groups) << 32 for group in groups]
    else:
        borders = [n * HASHES // count for n in range(count + 1)]
    return tuple(KeyRange(first, last - 1) for first, last in itertools.pairwise(borders))


def rows_in_range(files: SegmentFiles, meta: SegmentMeta, keys: KeyRange) -> Numbers:
    """Return the rows of a segment whose keys lie in a range, ascending."""
    first, last = np.uint64(keys.first), np.uint64(keys.last)
    if meta.index is None:  # an index made here would stay in memory
        file = files.open_segment(meta)
        hashes = hash_keys([file.column_array(name) for name in files.spec.key_names])
        return np.flatnonzero((hashes >= first) & (hashes <= last)).astype(np.int32)
    index = files.index(meta)
    low, high = np.searchsorted(index.hashes, first, "left"), np.searchsorted(index.hashes, last, "right")
    return np.sort(index.rows[low:high]).astype(np.int32)
