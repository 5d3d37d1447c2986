"""Sorting of unsigned numbers together with their positions."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from statestore.formats.kernels.arrays import Ints


def sorted_with_positions(values: npt.NDArray[np.uint64]) -> tuple[npt.NDArray[np.uint64], Ints]:
    """Return the values in ascending order, and the position of each; equal values in order of their positions.

    Sorting numbers takes a third of the time of sorting positions, so each value carries its position in its lower
    bits. Values whose upper bits do not determine the order are sorted by position instead.
    """
    if not len(values):
        return values, np.empty(0, np.int64)
    packed, bits = packed_with_positions(values)
    position = (packed & np.uint64((1 << bits) - 1)).astype(np.int64)
    ordered = values[position]
    if bool((ordered[1:] >= ordered[:-1]).all()):
        return ordered, position
    position = np.argsort(values, kind="stable")
    return values[position], position


def packed_with_positions(values: npt.NDArray[np.uint64]) -> tuple[npt.NDArray[np.uint64], int]:
    """Return sorted numbers with the upper bits of a value and, in their lower bits, its position; and how many bits
    positions have."""
    bits = (len(values) - 1).bit_length()
    mask = np.uint64((1 << bits) - 1)
    greatest = int(values.max())
    unused = np.uint64(64 - greatest.bit_length()) if greatest else np.uint64(0)
    packed = ((values << unused) & ~mask) | np.arange(len(values), dtype=np.uint64)
    packed.sort()
    return packed, bits


def positions_in_order(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.int32]:
    """Return the positions of at most 2^31 values in ascending order, equal values in order of their positions.

    ``values`` is overwritten: little memory is taken beside it.
    """
    if not len(values):
        return np.empty(0, np.int32)
    bits = (len(values) - 1).bit_length()
    if int(values.max()).bit_length() + bits > 64:
        return np.argsort(values, kind="stable").astype(np.int32)
    values <<= np.uint64(bits)
    values |= np.arange(len(values), dtype=np.uint64)
    values.sort()
    values &= np.uint64((1 << bits) - 1)
    return values.astype(np.int32)
