"""Numbers for the keys of changes: equal keys have one number."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.bytes.byte_columns import Cells, ends_of
from statestore.formats.kernels.arrays import Bools, Ints
from statestore.formats.kernels.compiled_use import is_loaded

S = TypeVar("S", bound=np.generic)
_NO_GROUPS = np.empty(0, np.int64)


@dataclass(frozen=True)
class NumberedKeys:
    """``number`` and ``is_newest`` of each key, and the place of the ``first`` key of each number.

    ``is_newest`` where no later key is equal.
    """

    keys: Cells
    number: Ints
    first: Ints
    is_newest: Bools
    _table: Any

    def __len__(self) -> int:
        return len(self.first)

    @property
    def names(self) -> Cells:
        """The keys by number."""
        return self.keys.select(self.first)

    def last_among(self, which: Bools) -> Ints:
        """The place of the last key of each number among those of the mask, -1 where there is none."""
        found = np.full(len(self), -1)
        places = np.flatnonzero(which)
        found[self.number[places]] = places  # of equal positions the last one is kept
        return found

    def find(self, keys: Cells, groups: Ints | None = None) -> Ints:
        """The number of each of other keys, -1 where there is none; ``groups`` if these were numbered by groups."""
        if isinstance(self._table, pa.Array):
            found: Ints = pc.index_in(keys.copied(), value_set=self._table).fill_null(-1).to_numpy().astype(np.int64)
            return found
        from statestore.formats.kernels.numbered_key_kernels import find_strings

        number = np.empty(len(keys), np.int64)
        own, groups = self.keys, _NO_GROUPS if groups is None else groups
        secret, regions, slots = self._table
        find_strings(
            without_writing(keys.data), keys.start, keys.size, groups, secret, regions, slots, self.first,
            without_writing(own.data), own.start, own.size, number,
        )  # fmt: skip
        return number


def numbered(keys: Cells, groups: Ints | None = None) -> NumberedKeys:
    """Number keys, none of which is null. Keys of different groups are different; without groups, any may be equal."""
    if not is_loaded():
        return _numbered_plainly(keys)
    from statestore.formats.kernels.numbered_key_kernels import hash_strings, number_strings

    count = len(keys)
    secret = np.frombuffer(secrets.token_bytes(16), np.uint64)
    hashes = np.empty(count, np.uint64)
    data, start, size = without_writing(keys.data), keys.start, keys.size
    hash_strings(data, start, size, secret, hashes)
    order = None
    if groups is None:
        parts = (hashes >> np.uint64(56)).astype(np.uint8)
        order = np.argsort(parts, kind="stable")
        start, size, hashes, groups = start[order], size[order], hashes[order], parts[order].astype(np.int64)
    counts = np.bincount(groups, minlength=1)
    room = np.where(counts > 0, 1 << np.ceil(np.log2(1.5 * counts + 1)).astype(np.int64), 0)
    regions = ends_of(room)
    slots = np.zeros(int(regions[-1]), np.uint64)
    first, number, newest = np.empty(count, np.int64), np.empty(count, np.int64), np.empty(count, np.bool_)
    found = number_strings(data, start, size, groups, hashes, regions, slots, first, number, newest)
    first = first[:found].copy()
    if order is not None:
        first, number, newest = order[first], _back(number, order), _back(newest, order)
    return NumberedKeys(keys, number, first, newest, (secret, regions, slots))


def _back(values: npt.NDArray[S], order: Ints) -> npt.NDArray[S]:
    found = np.empty_like(values)
    found[order] = values
    return found


def without_writing(data: np.ndarray) -> np.ndarray:
    """The bytes as the loops take them, which are compiled once, for those that cannot be written."""
    found = data.view()
    found.flags.writeable = False
    return found


def _numbered_plainly(keys: Cells) -> NumberedKeys:
    coded = keys.copied().dictionary_encode()
    number = coded.indices.to_numpy().astype(np.int64)
    places = np.arange(len(number))
    first, last = np.empty(len(coded.dictionary), np.int64), np.empty(len(coded.dictionary), np.int64)
    first[number[::-1]] = places[::-1]  # of equal positions the last one is kept
    last[number] = places
    newest = np.zeros(len(number), np.bool_)
    newest[last] = True
    return NumberedKeys(keys, number, first, newest, coded.dictionary)
