"""Matching of the keys of a bulk commit with open rows, found by the index of open rows and compared by their keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statestore.catalog.commits.open_rows import ROW_BITS, ROW_MASK, OpenRows
from statestore.catalog.reads.row_ends import SegmentWithClosures
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.kernels.arrays import Bools, Ints
from statestore.formats.values.key_equality import keys_equal


@dataclass(frozen=True)
class OpenMatches:
    """Entries of the index in order of segment and row.

    ``position`` is the position of an entry among the requested entries. ``equal`` is whether the row's key is the
    requested key. ``parts`` has (number of the view, begin, stop) of the entries of each segment.
    """

    position: Ints
    row: Ints
    equal: Bools
    parts: list[tuple[int, int, int]]


def match_open_rows(
    files: SegmentFiles,
    segments: Sequence[SegmentWithClosures],
    index: OpenRows,
    entries: Ints,
    keys: Sequence[pa.Array],
    records: Ints,
) -> OpenMatches:
    """Compare key ``records[i]`` of ``keys`` with the key of entry ``entries[i]``, for each i."""
    address, position = sorted_with_positions(index.address[entries])
    row = (address & ROW_MASK).astype(np.int64)
    records = records[position]
    borders = np.searchsorted(address, np.arange(len(index.names) + 1, dtype=np.uint64) << ROW_BITS).tolist()
    numbers = {segment.meta.name: number for number, segment in enumerate(segments)}
    equal = np.ones(len(row), bool)
    parts = []
    for name, begin, stop in zip(index.names, borders[:-1], borders[1:], strict=True):
        if begin < stop:
            number = numbers[name]
            file = files.open_segment(segments[number].meta)
            stored = [file.column_array(column) for column in files.spec.key_names]
            equal[begin:stop] = keys_equal(keys, records[begin:stop], stored, row[begin:stop])
            parts.append((number, begin, stop))
    return OpenMatches(position, row, equal, parts)


def sorted_with_positions(values: npt.NDArray[np.uint64]) -> tuple[npt.NDArray[np.uint64], Ints]:
    """Return the values in ascending order, and the position of each; equal values in order of their positions.

    Sorting numbers takes a third of the time of sorting positions, so each value carries its position in its lower
    bits. Values whose upper bits do not determine the order are sorted by position instead.
    """
    if not len(values):
        return values, np.empty(0, np.int64)
    mask = np.uint64((1 << (len(values) - 1).bit_length()) - 1)
    unused = np.uint64(64 - int(values.max()).bit_length()) if values.max() else np.uint64(0)
    packed = ((values << unused) & ~mask) | np.arange(len(values), dtype=np.uint64)
    packed.sort()
    position = (packed & mask).astype(np.int64)
    ordered = values[position]
    if bool((ordered[1:] >= ordered[:-1]).all()):
        return ordered, position
    position = np.argsort(values, kind="stable")
    return values[position], position


def by_time_within(sorted_hashes: npt.NDArray[np.uint64], order: Ints, times: Ints) -> Ints:
    """Return positions by hash, time and position; ``order`` has them by hash and position.

    Only hashes that occur more than once are sorted again: numbers of rank, time and place where all three fit 64 bits.
    """
    same = sorted_hashes[1:] == sorted_hashes[:-1]
    repeated = np.zeros(len(order), bool)
    repeated[1:] = same
    repeated[:-1] |= same
    places = np.flatnonzero(repeated)
    if not len(places):
        return order
    rank = np.cumsum(np.concatenate(([False], ~same)))[places]
    moments = times[order[places]]
    moments = moments - moments.min()
    step = 1_000 if not (moments % 1_000).any() else 1  # times have milliseconds
    moments //= step
    rank -= rank[0]
    place_bits, time_bits = (len(places) - 1).bit_length(), int(moments.max()).bit_length()
    if int(rank[-1]).bit_length() + time_bits + place_bits > 63:
        ordered = np.lexsort((moments, rank))
    else:
        packed = (rank << (time_bits + place_bits)) | (moments << place_bits) | np.arange(len(places))
        packed.sort()
        ordered = packed & ((1 << place_bits) - 1)
    result = order.copy()
    result[places] = order[places[ordered]]
    return result
