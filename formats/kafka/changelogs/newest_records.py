"""Find which record of each key is the newest, while holding hashes of keys instead of keys and values.

Keys are compared by 128 bits of SipHash under a secret of the reading, see ``newest_kernels``. Without numba the keys
of a partition are held, and compared by Arrow.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa

from statestore.formats.bytes.byte_columns import Cells
from statestore.formats.kernels.arrays import Bools, Hashes
from statestore.formats.kernels.compiled_use import is_loaded

if TYPE_CHECKING:
    from statestore.formats.kernels.arrays import Bytes

MOST_KEYS = 3 << 20  # of one pass; they take 96 MiB
_END = 1 << 64
_FIRST_SLOTS = 1 << 12


class NewestRecords(Protocol):
    """One pass: all records are noted, then each is asked for again."""

    def note(self, keys: Cells) -> None:
        """Note the keys of further records."""

    def newest(self, first: int, count: int) -> Bools:
        """Return which of ``count`` records from number ``first`` on are the newest of their keys, in this pass."""


def passes(most_keys: int = MOST_KEYS) -> Iterator[NewestRecords]:
    """Yield what notes the records of one pass after another, until together they are about all keys, mostly one."""
    if not is_loaded():
        yield _HeldKeys()
        return
    secret = np.frombuffer(secrets.token_bytes(16), np.uint64)
    first = 0
    while first < _END:
        noted = _HashedKeys(secret, first, most_keys)
        yield noted
        first = noted.last + 1


class _HashedKeys:
    """The newest record of each key whose hash lies in a range."""

    def __init__(self, secret: Hashes, first: int, most_keys: int) -> None:
        self._secret, self._most = secret, most_keys
        self._first, self.last = first, _END - 1
        self._table = np.zeros(3 * _FIRST_SLOTS, np.uint64)
        self._newest: Bytes = np.zeros(_FIRST_SLOTS, np.uint8)
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

    def newest(self, first: int, count: int) -> Bools:
        return self._newest[first : first + count].view(np.bool_)

    @property
    def _within(self) -> Hashes:
        return np.array([self._first, self.last], np.uint64)

    def _make_room(self) -> None:
        from statestore.formats.kernels import newest_kernels

        words = len(self._table)
        if int(self._counts[0]) >= self._most:
            self.last = self._first + (self.last - self._first) // 2
        else:
            words *= 2
        wider = np.zeros(words, np.uint64)
        self._counts[0] = newest_kernels.move_keys(self._table, self._within, wider, self._newest)
        self._table = wider


class _HeldKeys:
    """The newest record of each key, by the keys themselves."""

    def __init__(self) -> None:
        self._keys: list[pa.Array] = []
        self._found: Bools | None = None

    def note(self, keys: Cells) -> None:
        self._keys.append(keys.copied())

    def newest(self, first: int, count: int) -> Bools:
        if self._found is None:
            keys = pa.chunked_array(self._keys, pa.binary()).dictionary_encode()
            codes = np.concatenate([np.empty(0, np.int64), *(chunk.indices.to_numpy() for chunk in keys.chunks)])
            last = np.zeros(int(codes.max(initial=-1)) + 1, np.int64)
            last[codes.astype(np.int64)] = np.arange(len(codes))  # of equal positions the last one is kept
            self._found = np.zeros(len(codes), np.bool_)
            self._found[last] = True
            self._keys = []
        return self._found[first : first + count]
