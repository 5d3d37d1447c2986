"""Passes over the keys of something that is too large to be held: it is read once for each range of the keys' hashes.

The size of a range is unknown before it is read. While it is too large, the range is reduced from its upper end, and
the keys above it are left to a further pass. What is small is read once, and none of its keys is hashed.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

import numpy as np

from statestore.formats.bytes.byte_columns import Cells
from statestore.formats.kernels.arrays import Bools, Hashes
from statestore.formats.kernels.compiled_use import is_loaded
from statestore.formats.values.xxh64 import xxh64_strings

_LEAST_WIDTH = 1 << 44  # rows of one key cannot be separated, and narrower ranges would be many
_WIDER = 16
_END = 1 << 64
T = TypeVar("T")


class Hashing(Protocol):
    """How keys are hashed."""

    def of(self, keys: Cells) -> Hashes:
        """The hash of each key."""


class SecretHashes:
    """Compiled SipHash under a secret of the reading, or XXH64 where the compiled loops are not in use."""

    def __init__(self) -> None:
        self.secret = np.frombuffer(secrets.token_bytes(16), np.uint64)
        self._compiled = is_loaded()  # once for all passes: both kinds must not meet

    def of(self, keys: Cells) -> Hashes:
        """The hash of each key."""
        if not self._compiled:
            return xxh64_strings(*keys.content())
        from statestore.formats.kernels.newest_kernels import sip_hashes

        low, high = np.empty(len(keys), np.uint64), np.empty(len(keys), np.uint64)
        sip_hashes(keys.data, keys.start, keys.size, self.secret, low, high)
        return low


@dataclass(frozen=True)
class HashRange:
    """The keys whose hashes are from ``first`` to ``last``, both included; without ``hashing`` always all keys."""

    hashing: Hashing | None
    first: int = 0
    last: int = _END - 1

    @property
    def is_whole(self) -> bool:
        """Return whether the range contains all keys."""
        return self.hashing is None or (self.first == 0 and self.last == _END - 1)

    def inside(self, hashes: Hashes) -> Bools:
        """A mask of the hashes that are in the range."""
        found: Bools = (hashes >= np.uint64(self.first)) & (hashes <= np.uint64(self.last))
        return found

    def holds(self, keys: Cells) -> Bools | None:
        """A mask of the keys that are in the range; None: all are."""
        if self.hashing is None or self.is_whole:
            return None
        inside = self.inside(self.hashing.of(keys))
        return None if inside.all() else inside


class HashPass:
    """One pass: its range, which is narrowed while what is held of it weighs more than ``most``.

    ``weight`` is what the reader holds in the end, in the unit of ``most``.
    """

    def __init__(self, kept: HashRange, most: int) -> None:
        self.kept = kept
        self.most = most
        self.weight = 0

    @property
    def is_narrow(self) -> bool:
        """Return whether the range cannot be narrowed."""
        return self.kept.hashing is None or self.kept.last - self.kept.first < _LEAST_WIDTH

    def narrow(self, eighths: int) -> None:
        """Keep so many eighths of the range, from its lower end on."""
        width = self.kept.last - self.kept.first + 1
        self.kept = replace(self.kept, last=self.kept.first + width * eighths // 8 - 1)


def hash_passes(whole: HashRange, most: int) -> Iterator[HashPass]:
    """Yield one pass after the other, often one; together their ranges are all of ``whole``.

    A pass is over when the next is taken, which begins behind what was kept.
    """
    first, width = whole.first, whole.last - whole.first + 1
    while first <= whole.last:
        part = HashPass(replace(whole, first=first, last=min(first + width - 1, whole.last)), most)
        yield part
        first, width = part.kept.last + 1, part.kept.last - part.kept.first + 1
        if part.weight < most // 2:  # a key with many rows made the range narrow
            width *= min(most // max(part.weight, 1), _WIDER)


def in_passes(whole: HashRange, most: int, read: Callable[[HashPass], T]) -> Iterator[tuple[HashRange, T]]:
    """Yield the range of each pass and what ``read`` returned for it.

    The caller must release each result before it takes the next.
    """
    for part in hash_passes(whole, most):
        answer = read(part)
        yield part.kept, answer
        del answer


class Rereader(Generic[T]):
    """Reads the same for every pass: again, or from memory once it is found to weigh at most ``held_bytes``."""

    def __init__(self, read: Callable[[], Iterator[T]], weight: Callable[[T], int], held_bytes: int) -> None:
        self._read, self._weight, self._most = read, weight, held_bytes
        self._held: list[T] | None = None

    @property
    def is_one(self) -> bool:
        """Return whether all of it is known to be one piece, or nothing."""
        return self._held is not None and len(self._held) <= 1

    def read(self) -> Iterator[T]:
        """Yield all of it, in the same order each time."""
        if self._held is not None:
            yield from self._held
            return
        held: list[T] = []
        size = 0
        for each in self._read():
            size += self._weight(each)
            if size <= self._most:
                held.append(each)
            else:
                held.clear()
            yield each
        if size <= self._most:
            self._held = held
