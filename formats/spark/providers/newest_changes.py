"""Find which change of each key is the newest while holding only hashes of keys: neither keys nor values.

Changes are noted in the order in which they were made, and numbered. A note takes some forty bytes of memory, so a
partition is seldom too large for one pass. If it is, a pass is about the keys whose hashes lie in one range.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import numpy as np

from statestore.formats.bytes.byte_columns import Cells
from statestore.formats.kernels import newest_kernels
from statestore.formats.kernels.arrays import Bools, Hashes

MOST_KEYS = 3 << 20  # of one pass; they take 96 MiB
_END = 1 << 64
FIRST_SLOTS = 1 << 12


class NewestChanges:
    """The newest change of each key whose hash lies in a range."""

    def __init__(self, secret: Hashes, first: int, most_keys: int) -> None:
        self._secret, self._most = secret, most_keys
        self._first, self.last = first, _END - 1
        self._table = np.zeros(3 * FIRST_SLOTS, np.uint64)
        self._newest = np.zeros(FIRST_SLOTS, np.uint8)
        self._counts = np.zeros(2, np.int64)

    def note(self, keys: Cells) -> None:
        """Note the keys of further changes. If they become too many, the range ends earlier."""
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

    def newest(self, first: int, count: int) -> Bools:
        """Return which of ``count`` changes from number ``first`` on are the newest of their keys."""
        return self._newest[first : first + count].view(np.bool_)

    def unchanged(self, keys: Cells) -> Bools | None:
        """Return which keys lie in the range and were not changed; None: all."""
        found = np.empty(len(keys), np.bool_)
        count = newest_kernels.find_unchanged(
            keys.data, keys.start, keys.size, self._secret, self._within, self._table, found
        )
        return None if count == len(keys) else found

    @property
    def _within(self) -> Hashes:
        return np.array([self._first, self.last], np.uint64)

    def _make_room(self) -> None:
        words = len(self._table)
        if int(self._counts[0]) >= self._most:
            self.last = self._first + (self.last - self._first) // 2
        else:
            words *= 2
        wider = np.zeros(words, np.uint64)
        self._counts[0] = newest_kernels.move_keys(self._table, self._within, wider, self._newest)
        self._table = wider


def passes(most_keys: int | None = None) -> Iterator[NewestChanges]:
    """Yield what notes the changes of one pass after another, until together they are about all keys, mostly one.

    A pass holds few more than ``most_keys`` keys, MOST_KEYS by default. All changes must be noted before the next pass
    begins.
    """
    secret = np.frombuffer(secrets.token_bytes(16), np.uint64)
    first = 0
    while first < _END:
        noted = NewestChanges(secret, first, MOST_KEYS if most_keys is None else most_keys)
        yield noted
        first = noted.last + 1
