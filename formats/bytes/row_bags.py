"""Bags of stored rows as sums of hashes of their bytes: two are equal if their rows are, in whatever order these come.

Of each row, XXH64 of the key and of the value are joined to two words, which are added up modulo 2**64. So a bag that
lacks a row, has one more, or in which two rows have exchanged their values, has another sum. Sums are the same with
compiled loops and without them, in every process.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass

import numpy as np

from statestore.formats.bytes.byte_columns import Cells
from statestore.formats.kernels.arrays import Hashes
from statestore.formats.kernels.compiled_use import is_loaded
from statestore.formats.values.xxh64 import xxh64_strings

_P1, _P2, _P3 = np.uint64(0x9E3779B185EBCA87), np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(0x165667B19E3779F9)
_MOD = 1 << 64


@dataclass(frozen=True)
class RowBag:
    """A bag of rows: their number, and two sums."""

    rows: int = 0
    low: int = 0
    high: int = 0

    def __add__(self, other: RowBag) -> RowBag:
        return RowBag(self.rows + other.rows, (self.low + other.low) % _MOD, (self.high + other.high) % _MOD)


NO_ROWS = RowBag()


def bag_of(keys: Cells, values: Cells) -> RowBag:
    """Return the bag of rows, none of which has a null."""
    if not len(keys):
        return NO_ROWS
    sums = np.zeros(2, np.uint64)
    if is_loaded():
        from statestore.formats.kernels.key_kernels import add_rows

        if add_rows(keys.data, keys.start, keys.size, values.data, values.start, values.size, sums):
            return RowBag(len(keys), int(sums[0]), int(sums[1]))
        raise IndexError("found a key or a value outside of the bytes that were read")
    key = xxh64_strings(*keys.content())
    value = xxh64_strings(*values.content())
    one, other = key + _rotated(value, 23) * _P1, value + _rotated(key, 41) * _P2
    one = (one ^ (one >> np.uint64(33))) * _P2
    other = (other ^ (other >> np.uint64(29))) * _P3
    low, high = one ^ (one >> np.uint64(32)), other ^ (other >> np.uint64(31))
    return RowBag(len(keys), int(low.sum(dtype=np.uint64)), int(high.sum(dtype=np.uint64)))


def _rotated(words: Hashes, bits: int) -> Hashes:
    return (words << np.uint64(bits)) | (words >> np.uint64(64 - bits))


def text_of_bags(pieces: Sequence[Mapping[str, RowBag]]) -> str:
    """Return named bags as a text, which `bags_of_text` reads."""
    return json.dumps([{name: astuple(bag) for name, bag in piece.items()} for piece in pieces])


def bags_of_text(text: str) -> list[dict[str, RowBag]]:
    return [{name: RowBag(*bag) for name, bag in piece.items()} for piece in json.loads(text)]
