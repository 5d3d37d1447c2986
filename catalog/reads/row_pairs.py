"""Comparison of two sets of rows: those that match by key, and the differences between them.

Keys are equal where their bits are, because engines compare the bytes of keys; of keys with maps see
`with_distinct_keys`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from statestore.formats.kernels.arrays import Bools, Hashes, Ints
from statestore.formats.values.comparable_values import comparable
from statestore.formats.values.comparison import has_maps
from statestore.formats.values.key_equality import keys_equal
from statestore.formats.values.key_hash import hash_keys


@dataclass(frozen=True)
class Side:
    """Rows of one point, as parallel columns. ``by_bits``: keys are equal where their bits are, as in engines.
    ``in_order``: maps in keys are equal where their entries come in the same order."""

    keys: list[pa.Array]
    values: list[pa.Array]
    hashes: Hashes
    by_bits: bool = True
    in_order: bool = False

    def comparable_keys(self) -> list[pa.Array]:
        """Return the keys in the form of `comparable`."""
        return [comparable(column, by_bits=self.by_bits, in_order=self.in_order) for column in self.keys]


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
    from statestore.formats.segments.key_index import KeyIndex  # compiled loops, for comparisons alone

    before, after = with_distinct_keys(before, after)
    left, matches = KeyIndex.build(after.hashes).match(before.hashes)
    right = matches.astype(np.int64)
    same = keys_equal(before.comparable_keys(), left, after.comparable_keys(), right)
    return left[same], right[same]


def with_distinct_keys(before: Side, after: Side) -> tuple[Side, Side]:
    """Return the sides, in which maps in keys are compared in the order of their entries if one side has two keys that
    differ in that alone.

    Flink's heap compares keys by ``Map.equals``, so two such keys are of RocksDB, which compares bytes. Where no two
    are, the order says nothing: the heap may write the same key in another order after a restore.
    """
    has_two = any(has_maps(column.type) for column in before.keys) and (repeats(before) or repeats(after))
    if not (has_two and before.by_bits):
        return before, after
    return _in_order(before), _in_order(after)


def repeats(side: Side) -> bool:
    """Return whether two rows may have the same key, as where the place of a row tells them apart."""
    return len(np.unique(side.hashes)) < len(side.hashes)


def _in_order(side: Side) -> Side:
    keys = [comparable(column, by_bits=True, in_order=True) for column in side.keys]
    return replace(side, hashes=hash_keys(keys), in_order=True)


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
