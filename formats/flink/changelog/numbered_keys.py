"""Numbers for the keys of changes: equal keys have one number, in the order in which they are first met."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.bytes.byte_columns import Cells, ends_of
from statestore.formats.kernels.arrays import Bools, Ints
from statestore.formats.kernels.compiled_use import is_loaded


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

    def find(self, keys: Cells, groups: Ints) -> Ints:
        """The number of each of other keys, -1 where there is none."""
        if isinstance(self._table, pa.Array):
            found: Ints = pc.index_in(keys.copied(), value_set=self._table).fill_null(-1).to_numpy().astype(np.int64)
            return found
        from statestore.formats.kernels.numbered_key_kernels import find_strings

        number = np.empty(len(keys), np.int64)
        own = self.keys
        find_strings(
            _fixed(keys.data), keys.start, keys.size, groups, *self._table, self.first, _fixed(own.data), own.start,
            own.size, number,
        )  # fmt: skip
        return number


def numbered(keys: Cells, groups: Ints) -> NumberedKeys:
    """Number keys, of which those in different groups are different; none is null."""
    if not is_loaded():
        return _numbered_plainly(keys)
    from statestore.formats.kernels.numbered_key_kernels import number_strings

    count = len(keys)
    counts = np.bincount(groups, minlength=1)
    room = np.where(counts > 0, 1 << np.ceil(np.log2(1.5 * counts + 1)).astype(np.int64), 0)
    regions = ends_of(room)
    secret = np.frombuffer(secrets.token_bytes(16), np.uint64)
    slots, tags = np.zeros(int(regions[-1]), np.int32), np.empty(int(regions[-1]), np.uint32)
    first, number, newest = np.empty(count, np.int64), np.empty(count, np.int64), np.empty(count, np.bool_)
    found = number_strings(
        _fixed(keys.data), keys.start, keys.size, groups, secret, regions, slots, tags, first, number, newest
    )
    return NumberedKeys(keys, number, first[:found].copy(), newest, (secret, regions, slots, tags))


def _fixed(data: np.ndarray) -> np.ndarray:
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
