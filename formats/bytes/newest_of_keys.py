"""Find which record of each key is the newest, while holding hashes of keys instead of keys and values.

Records are noted in the order in which they were made, and numbered. Keys are compared by 128 bits of SipHash under a
secret of the reading, see ``newest_kernels``. A note takes some forty bytes of memory, so a partition is seldom too
large for one pass. Without numba the keys of a partition are held, and compared by Arrow.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.bytes.byte_columns import Cells
from statestore.formats.bytes.hash_passes import HashPass, HashRange, SecretHashes, hash_passes
from statestore.formats.kernels.arrays import Bools, Bytes, Hashes
from statestore.formats.kernels.compiled_use import is_loaded
from statestore.formats.values.without_pandas import bools, numbers

MOST_KEYS = 3 << 20  # of one pass; they take 96 MiB
FIRST_SLOTS = 1 << 12


class NewestOfKeys(Protocol):
    """One pass: all records are noted, then each is asked for again."""

    def note(self, keys: Cells) -> None:
        """Note the keys of further records."""

    def newest(self, first: int, count: int) -> Bools:
        """Return which of ``count`` records from number ``first`` on are the newest of their keys, in this pass."""

    def unnoted(self, keys: Cells) -> Bools | None:
        """Return which keys belong to this pass and were not noted; None: all."""


def newest_passes(most_keys: int = MOST_KEYS) -> Iterator[NewestOfKeys]:
    """Yield what notes the records of one pass after another, until together they are about all keys, mostly one.

    A pass holds few more than ``most_keys`` keys. All records must be noted before the next pass begins.
    """
    if not is_loaded():
        yield _HeldKeys()
        return
    hashing = SecretHashes()
    for part in hash_passes(HashRange(hashing), most_keys):
        yield _HashedKeys(part, hashing.secret)


class _HashedKeys:
    """The newest record of each key whose hash lies in the range of a pass."""

    def __init__(self, part: HashPass, secret: Hashes) -> None:
        self._pass, self._secret = part, secret
        self._table = np.zeros(3 * FIRST_SLOTS, np.uint64)
        self._newest: Bytes = np.zeros(FIRST_SLOTS, np.uint8)
        self._counts = np.zeros(2, np.int64)

    def note(self, keys: Cells) -> None:
        """Note keys. If they become too many, the range ends earlier."""
        from statestore.formats.kernels import newest_kernels

        if len(self._newest) < self._counts[1] + len(keys):
            longer = np.zeros(max(2 * len(self._newest), int(self._counts[1]) + len(keys)), np.uint8)
            longer[: len(self._newest)] = self._newest
            self._newest = longer
        at = 0
        while at < len(keys):
            at += newest_kernels.note_newest(
                keys.data,
                keys.start[at:],
                keys.size[at:],
                self._secret,
                self._within,
                self._table,
                self._newest,
                self._counts,
                len(self._table) // 4,
            )
            if at < len(keys):
                self._make_room()
        self._pass.weight = int(self._counts[0])

    def newest(self, first: int, count: int) -> Bools:
        return self._newest[first : first + count].view(np.bool_)

    def unnoted(self, keys: Cells) -> Bools | None:
        from statestore.formats.kernels.newest_kernels import find_unchanged

        found = np.empty(len(keys), np.bool_)
        count = find_unchanged(keys.data, keys.start, keys.size, self._secret, self._within, self._table, found)
        return None if count == len(keys) else found

    @property
    def _within(self) -> Hashes:
        return np.array([self._pass.kept.first, self._pass.kept.last], np.uint64)

    def _make_room(self) -> None:
        from statestore.formats.kernels.newest_kernels import move_keys

        words = len(self._table)
        if int(self._counts[0]) >= self._pass.most and not self._pass.is_narrow:
            self._pass.narrow(4)
        else:
            words *= 2
        wider = np.zeros(words, np.uint64)
        self._counts[0] = move_keys(self._table, self._within, wider, self._newest)
        self._table = wider


class _HeldKeys:
    """The newest record of each key, by the keys themselves."""

    def __init__(self) -> None:
        self._keys: list[pa.Array] = []
        self._found: tuple[Bools, pa.Array] | None = None

    def note(self, keys: Cells) -> None:
        self._keys.append(keys.copied())

    def newest(self, first: int, count: int) -> Bools:
        return self._all[0][first : first + count]

    def unnoted(self, keys: Cells) -> Bools | None:
        found: Bools = ~bools(pc.is_in(keys.copied(), value_set=self._all[1]))
        return None if found.all() else found

    @property
    def _all(self) -> tuple[Bools, pa.Array]:
        """(which records are the newest, the keys)."""
        if self._found is None:
            coded = pa.chunked_array(self._keys, pa.binary()).dictionary_encode().chunks
            codes = np.concatenate([np.empty(0, np.int64), *(numbers(chunk.indices) for chunk in coded)])
            codes = codes.astype(np.int64)
            last = np.zeros(int(codes.max(initial=-1)) + 1, np.int64)
            last[codes] = np.arange(len(codes))  # of equal positions the last one is kept
            newest = np.zeros(len(codes), np.bool_)
            newest[last] = True
            self._found = newest, coded[-1].dictionary if coded else pa.nulls(0, pa.binary())
            self._keys = []
        return self._found
