"""Keys that split a set of table files into parts of about equal size, from a few entries of their indexes.

The bytes read here are not trusted and need not be right: any keys split rows into parts that together are the whole.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from statestore.formats.rocksdb.fields import Malformed
from statestore.formats.rocksdb.key_ranges import KeyRange
from statestore.formats.rocksdb.table_index import ReadAt, read_index

SAMPLES = 64


def split_points(files: Sequence[tuple[int, ReadAt]], parts: int, within: KeyRange) -> list[bytes]:
    """Up to ``parts - 1`` keys inside a range, ascending, of files as (size, reader).

    None where the indexes of the files are not of the usual kind.
    """
    samples = []
    for size, read in files:
        keys = sample_keys(size, read)
        samples += [(key, size / len(keys)) for key in keys if within.holds_inside(key)]
    samples.sort()
    total = sum(weight for _, weight in samples)
    reached = itertools.accumulate(weight for _, weight in samples)
    points: list[bytes] = []
    part = 1
    for (key, _), reached_here in zip(samples, reached, strict=True):
        if part < parts and reached_here >= total * part / parts:
            part += 1
            if not points or key > points[-1]:
                points.append(key)
    return points


def sample_keys(size: int, read: ReadAt) -> list[bytes]:
    """Return at most SAMPLES keys of a table file, evenly spread, ascending; none if its index is of an unusual
    kind."""
    try:
        index = read_index(size, read)
        return [] if index is None else [index.key(number) for number in range(0, len(index), _step(len(index)))]
    except (Malformed, OSError, IndexError):
        return []


def _step(entries: int) -> int:
    return max(1, entries // SAMPLES)
