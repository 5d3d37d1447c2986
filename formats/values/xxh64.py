"""XXH64 (seed 0) of many byte strings at once, in numpy.

The hashes equal those of every other XXH64 implementation, bit for bit. Single keys are hashed by the C library
(``xxhash``). For short strings, one call of it per row would cost five times as much as these column operations.
Strings longer than ``LONG`` bytes are hashed by one C call per row, because their bytes cost more than the call.

https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md is the definition.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from xxhash import xxh64_intdigest

from statestore.formats.kernels.arrays import Bytes, Ints
from statestore.formats.kernels.compiled_use import is_loaded

U64s = npt.NDArray[np.uint64]

LONG = 128  # rows of 20 bytes take 4 times as long in C calls, rows of 300 bytes 2.6 times as long in columns
_BLOCK_ROWS = 8192  # blocks fit in the processor's cache and stay below the size for which malloc asks the system

_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)
_LANE_SEEDS = (0x60EA27EEADC0B5D6, 0xC2B2AE3D27D4EB4F, 0, 0x61C8864E7A143579)  # P1 + P2, P2, 0, -P1
_LANE_ROTATIONS = (1, 7, 12, 18)
_SHIFTS = {bits: (np.uint64(bits), np.uint64(64 - bits)) for bits in (1, 7, 11, 12, 18, 23, 27, 31)}


def xxh64_words(columns: Sequence[U64s]) -> U64s:
    """XXH64 per row of the row's 64-bit words, each as 8 little-endian bytes; one to three columns.

    A row of four words or more takes the other branch of XXH64: use ``xxh64_strings``.
    """
    if not 1 <= len(columns) <= 3:
        raise ValueError(f"one to three words per row, found {len(columns)}")
    hashes = np.full(len(columns[0]), _P5 + np.uint64(8 * len(columns)))
    for start in range(0, len(hashes), _BLOCK_ROWS):
        block = hashes[start : start + _BLOCK_ROWS]
        for column in columns:
            _add_word(block, column[start : start + _BLOCK_ROWS])
        _avalanche(block)
    return hashes


def xxh64_strings(data: Bytes, offsets: npt.NDArray[np.integer[Any]]) -> U64s:
    """XXH64 of ``data[offsets[i] : offsets[i + 1]]`` for each i; offsets never decrease and lie within ``data``."""
    hashes = np.empty(len(offsets) - 1, np.uint64)
    if is_loaded():
        from statestore.formats.kernels.key_kernels import hash_strings

        if hash_strings(data, offsets, hashes):
            return hashes
    for start in range(0, len(hashes), _BLOCK_ROWS):
        bounds = offsets[start : start + _BLOCK_ROWS + 1].astype(np.int64)
        hashes[start : start + _BLOCK_ROWS] = _hash_block(data, bounds[:-1], np.diff(bounds))
    return hashes


def _hash_block(data: Bytes, starts: Ints, lengths: Ints) -> U64s:
    """Sort by length, so that rows with a further word are always a suffix: a slice, not a mask."""
    if lengths[0] == lengths[-1] and (lengths == lengths[0]).all():
        return _hash_ascending(data, starts, lengths)
    order = np.argsort(np.minimum(lengths, LONG + 1).astype(np.uint16), kind="stable")  # 16 bits get a radix sort
    hashes = np.empty(len(starts), np.uint64)
    hashes[order] = _hash_ascending(data, starts[order], lengths[order])
    return hashes


def _hash_ascending(data: Bytes, starts: Ints, lengths: Ints) -> U64s:
    hashes = np.empty(len(starts), np.uint64)
    short = int(np.searchsorted(lengths > LONG, True))
    view = data.data
    for row in range(short, len(starts)):
        hashes[row] = xxh64_intdigest(view[starts[row] : starts[row] + lengths[row]])
    _hash_short(data, starts[:short], lengths[:short], hashes[:short])
    return hashes


def _hash_short(data: Bytes, starts: Ints, lengths: Ints, hashes: U64s) -> None:
    """Hash strings of ascending length into ``hashes``."""
    if not len(lengths):
        return
    words, halves = _unaligned(data, np.uint64), _unaligned(data, np.uint32)
    striped = int(np.searchsorted(lengths, 32))
    hashes[:striped] = _P5
    if striped < len(lengths):
        hashes[striped:] = _stripes(words, starts[striped:], lengths[striped:] >> 5)
    hashes += lengths.view(np.uint64)

    left = lengths & 31
    _words(words, starts + (lengths - left), left >> 3, hashes)
    _halves(halves, starts + (lengths - (lengths & 7)), lengths, hashes)
    _bytes(data, starts + (lengths - (lengths & 3)), lengths & 3, hashes)
    _avalanche(hashes)


def _stripes(words: U64s, at: Ints, stripes: Ints) -> U64s:
    """The four lanes over each whole 32 bytes; ``stripes`` ascends."""
    lanes = [np.full(len(at), seed, np.uint64) for seed in _LANE_SEEDS]
    for stripe in range(int(stripes[-1])):
        first = int(np.searchsorted(stripes, stripe, side="right"))
        for number, lane in enumerate(lanes):
            _round(lane[first:], words[at[first:] + (32 * stripe + 8 * number)])
    hashes = np.zeros(len(at), np.uint64)
    for lane, bits in zip(lanes, _LANE_ROTATIONS, strict=True):
        hashes += _rotated(lane, bits)
    for lane in lanes:
        hashes ^= _round(np.zeros_like(lane), lane)
        hashes *= _P1
        hashes += _P4
    return hashes


def _words(words: U64s, at: Ints, counts: Ints, hashes: U64s) -> None:
    """Mix in the up to three whole words after the last stripe."""
    for number in range(int(counts.max())):
        rows = _rows(counts > number)
        some = hashes[rows]
        _add_word(some, words[at[rows] + 8 * number])
        hashes[rows] = some


def _halves(halves: npt.NDArray[np.uint32], at: Ints, lengths: Ints, hashes: U64s) -> None:
    """Mix in the four bytes after the last word."""
    present = (lengths & 4) != 0
    if not present.any():
        return
    rows = _rows(present)
    some = hashes[rows]
    some ^= halves[at[rows]].astype(np.uint64) * _P1
    hashes[rows] = _rotated(some, 23) * _P2 + _P3


def _bytes(data: Bytes, at: Ints, counts: Ints, hashes: U64s) -> None:
    """Mix in the up to three last bytes."""
    for number in range(int(counts.max())):
        rows = _rows(counts > number)
        some = hashes[rows]
        some ^= data[at[rows] + number].astype(np.uint64) * _P5
        hashes[rows] = _rotated(some, 11) * _P1


def _add_word(hashes: U64s, words: U64s) -> None:
    hashes ^= _round(np.zeros_like(words), words)
    _rotate(hashes, 27)
    hashes *= _P1
    hashes += _P4


def _round(lane: U64s, words: U64s) -> U64s:
    """Mix one word into one lane, in place."""
    lane += words * _P2
    _rotate(lane, 31)
    lane *= _P1
    return lane


def _avalanche(hashes: U64s) -> None:
    for shift, factor in ((33, _P2), (29, _P3)):
        hashes ^= hashes >> np.uint64(shift)
        hashes *= factor
    hashes ^= hashes >> np.uint64(32)


def _rotate(values: U64s, bits: int) -> None:
    left, right = _SHIFTS[bits]
    carried = values >> right
    values <<= left
    values |= carried


def _rotated(values: U64s, bits: int) -> U64s:
    left, right = _SHIFTS[bits]
    return (values << left) | (values >> right)


def _rows(chosen: npt.NDArray[np.bool_]) -> Any:
    """The chosen rows: a slice where all are chosen, else positions."""
    return slice(None) if chosen.all() else np.flatnonzero(chosen)


def _unaligned(data: Bytes, kind: type[np.integer[Any]]) -> npt.NDArray[Any]:
    """The little-endian integers at every byte position: item i is read from the bytes that start at i."""
    width = np.dtype(kind).itemsize
    little = np.dtype(kind).newbyteorder("<")
    return np.ndarray((max(len(data) - width + 1, 0),), little, buffer=data, strides=(1,))
