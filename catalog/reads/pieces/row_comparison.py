"""Comparison of two sets of rows: the rows that match by key, and the differences between them.

Values are compared null-safe; NaN equals NaN, 0.0 equals -0.0, and the order of a map's entries is ignored. Keys are
equal where their bits are, because engines compare the bytes of keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from statestore.formats.kernels.arrays import Bools, Hashes, Ints
from statestore.formats.segments.key_index import KeyIndex
from statestore.formats.values.comparable_values import comparable
from statestore.formats.values.key_equality import keys_equal
from statestore.formats.values.key_hash import hash_keys


@dataclass(frozen=True)
class Side:
    """Rows of one point, as parallel columns. ``by_bits``: keys are equal where their bits are, as in engines."""

    keys: list[pa.Array]
    values: list[pa.Array]
    hashes: Hashes
    by_bits: bool = True


def keyed_rows(keys: list[pa.Array], values: list[pa.Array]) -> Side:
    """Return rows that are identified by their keys, of which there is one at least."""
    return Side(keys, values, hash_keys([comparable(column, by_bits=True) for column in keys]))


def counted_rows(columns: Sequence[pa.Array]) -> Side:
    """Return the rows of a bag, each identified by all of its columns; of two equal rows the second gets another
    hash."""
    hashes = hash_keys([comparable(column) for column in columns])
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    first = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1]))) if len(order) else order
    rank = np.arange(len(order)) - np.repeat(first, np.diff(np.append(first, len(order))))
    mixed = np.empty_like(hashes)
    mixed[order] = ordered + rank.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return Side(list(columns), [], mixed, by_bits=False)


def pairs(before: Side, after: Side) -> tuple[Ints, Ints]:
    """Return the rows of both sides that have the same key; within a side no two rows have the same key."""
    left, matches = KeyIndex.build(after.hashes).match(before.hashes)
    right = matches.astype(np.int64)
    sides = ([comparable(column, by_bits=side.by_bits) for column in side.keys] for side in (before, after))
    same = keys_equal(next(sides), left, next(sides), right)
    return left[same], right[same]


def differences(before: Side, after: Side, left: Ints, right: Ints) -> Bools:
    """Return a mask of the differing values, with one row for each pair and one column for each value column."""
    different = np.zeros((len(left), len(before.values)), bool)
    for number, (ours, theirs) in enumerate(zip(before.values, after.values, strict=True)):
        different[:, number] = ~keys_equal([comparable(ours)], left, [comparable(theirs)], right)
    return different


def others(count: int, rows: Ints) -> Ints:
    """Return the rows among ``count`` that are not in ``rows``."""
    rest = np.ones(count, bool)
    rest[rows] = False
    return np.flatnonzero(rest)
