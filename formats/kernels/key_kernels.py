"""Compiled loops over the keys of bulk commits: XXH64 of strings, equality of strings, search among sorted hashes.

Each has the result of the numpy code that calls it (`statestore.formats.values.xxh64`,
`statestore.formats.values.key_equality`, `statestore.catalog.commits.open_rows`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from statestore.formats.kernels.arrays import Bools, Bytes, Hashes, Ints
from statestore.formats.kernels.compiled import I64, U64, half_word, inlined, kernel, word

Whole = npt.NDArray[np.integer[Any]]  # of 32 or 64 bits

_P1, _P2, _P3 = U64(0x9E3779B185EBCA87), U64(0xC2B2AE3D27D4EB4F), U64(0x165667B19E3779F9)
_P4, _P5 = U64(0x85EBCA77C2B2AE63), U64(0x27D4EB2F165667C5)
_LANE_1, _LANE_4 = U64(0x60EA27EEADC0B5D6), U64(0x61C8864E7A143579)


@inlined
def _rotated(x: Any, bits: int) -> Any:
    return (x << U64(bits)) | (x >> U64(64 - bits))


@inlined
def _round(lane: Any, read: Any) -> Any:
    return _rotated(lane + read * _P2, 31) * _P1


@inlined
def _merged(hash: Any, lane: Any) -> Any:
    return (hash ^ _round(U64(0), lane)) * _P1 + _P4


@inlined
def _hashed(data: Bytes, at: int, stop: int) -> Any:
    """XXH64 of ``data[at:stop]``."""
    size = stop - at
    if size >= 32:
        a, b, c, d = _LANE_1, _P2, U64(0), _LANE_4
        while at + 32 <= stop:
            a, b = _round(a, word(data, at)), _round(b, word(data, at + 8))
            c, d = _round(c, word(data, at + 16)), _round(d, word(data, at + 24))
            at += 32
        hash = _rotated(a, 1) + _rotated(b, 7) + _rotated(c, 12) + _rotated(d, 18)
        hash = _merged(_merged(_merged(_merged(hash, a), b), c), d)
    else:
        hash = _P5
    hash += U64(size)
    while at + 8 <= stop:
        hash = _rotated(hash ^ _round(U64(0), word(data, at)), 27) * _P1 + _P4
        at += 8
    if at + 4 <= stop:
        hash = _rotated(hash ^ (half_word(data, at) * _P1), 23) * _P2 + _P3
        at += 4
    while at < stop:
        hash = _rotated(hash ^ (U64(data[at]) * _P5), 11) * _P1
        at += 1
    hash = (hash ^ (hash >> U64(33))) * _P2
    hash = (hash ^ (hash >> U64(29))) * _P3
    return hash ^ (hash >> U64(32))


@kernel
def hash_strings(data: Bytes, offsets: Whole, hashes: Hashes) -> bool:
    """Fill in XXH64 of ``data[offsets[i] : offsets[i + 1]]``; return False if an offset lies outside ``data``."""
    for i in range(len(hashes)):
        begin, stop = I64(offsets[i]), I64(offsets[i + 1])
        if begin < 0 or stop < begin or stop > len(data):
            return False
        hashes[i] = _hashed(data, begin, stop)
    return True


@kernel
def strings_equal(
    left: Bytes,
    left_offsets: Whole,
    left_rows: Ints,
    right: Bytes,
    right_offsets: Whole,
    right_rows: Ints,
    equal: Bools,
) -> bool:
    """Fill in whether string ``left_rows[i]`` equals string ``right_rows[i]``; return False if a row or an offset lies
    outside."""
    for i in range(len(equal)):
        ours, theirs = left_rows[i], right_rows[i]
        if ours < 0 or theirs < 0 or ours + 1 >= len(left_offsets) or theirs + 1 >= len(right_offsets):
            return False
        at, stop = I64(left_offsets[ours]), I64(left_offsets[ours + 1])
        other, other_stop = I64(right_offsets[theirs]), I64(right_offsets[theirs + 1])
        if at < 0 or stop < at or stop > len(left) or other < 0 or other_stop < other or other_stop > len(right):
            return False
        same = stop - at == other_stop - other
        if same:
            while at + 8 <= stop and same:
                same = word(left, at) == word(right, other)
                at += 8
                other += 8
            while at < stop and same:
                same = left[at] == right[other]
                at += 1
                other += 1
        equal[i] = same
    return True


@kernel
def find_hashes(hashes: Hashes, directory: Whole, shift: int, probes: Hashes, entries: Ints) -> int:
    """Fill in the entry of each probe in ``hashes`` (ascending), -1 where it has none; return how many it has.

    ``directory`` has, for each value of the upper bits of the hashes, the number of hashes before it.
    """
    found, last = 0, len(hashes) - 1
    for i in range(len(probes)):
        wanted = probes[i]
        at = I64(directory[I64(wanted >> U64(shift))])
        while at <= last and hashes[at] < wanted:
            at += 1
        if at <= last and hashes[at] == wanted:
            entries[i] = at
            found += 1
        else:
            entries[i] = -1
    return found
