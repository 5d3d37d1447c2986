"""Records of a commit, in the order of their keys and times, and new rows in the order of their starts.

Order that is known is used: few records are late, and a stable sort of numbers that nearly ascend is quick. Times are
epoch microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statestore.catalog.commits.version_ends import NewRows
from statestore.formats.kernels.arrays import Bools, Hashes, Ints
from statestore.formats.kernels.compiled_use import is_loaded
from statestore.formats.values.key_equality import keys_equal
from statestore.formats.values.packed_sort import packed_with_positions, sorted_with_positions

Number = TypeVar("Number", bound=np.generic)


@dataclass(frozen=True)
class Records:
    """Accepted writes in the order of their acknowledgement; value columns of tombstones are ignored."""

    keys: list[pa.Array]
    values: list[pa.Array]
    times: Ints
    tombstones: Bools

    def __len__(self) -> int:
        return len(self.times)


@dataclass(frozen=True)
class SortedRecords:
    """Records by (key, time, arrival). ``group`` numbers the distinct keys in order of their hash."""

    record: Ints
    group: Ints
    first: Ints  # position of each group's first record
    time: Ints
    hashes: Hashes  # per group
    in_order: bool = False  # the times of the records never decrease

    @property
    def earliest(self) -> Ints:
        return self.time[self.first]

    def positions_of(self, groups: Ints) -> Ints:
        """Return the positions of the records of these groups."""
        sizes = np.append(self.first[1:], len(self.record))[groups] - self.first[groups]
        first: Ints = np.cumsum(sizes) - sizes
        return np.repeat(self.first[groups] - first, sizes) + np.arange(int(sizes.sum()))

    def chosen(self, positions: Ints) -> tuple[SortedRecords, Ints]:
        """Return the records at these positions (ascending), with their groups numbered anew from 0, and the former
        numbers of the groups."""
        groups, first, group = np.unique(self.group[positions], return_index=True, return_inverse=True)
        times = self.time[positions]
        return SortedRecords(self.record[positions], group, first, times, self.hashes[groups]), groups


def sort_records(records: Records, hashes: Hashes) -> SortedRecords:
    in_order = bool(np.all(records.times[1:] >= records.times[:-1]))
    if is_loaded() and len(records):
        ordered = _grouped(records, hashes, in_order)
        if ordered is not None:
            touching = np.flatnonzero(ordered.group[1:] == ordered.group[:-1])
            order = ordered.record
            equal = keys_equal(records.keys, order[touching], records.keys, order[touching + 1])
            return ordered if equal.all() else _sort_colliding(records, hashes)
    sorted_hashes, order = sorted_with_positions(hashes)
    if not in_order:
        order = by_time_within(sorted_hashes, order, records.times)
    same_hash = sorted_hashes[1:] == sorted_hashes[:-1]
    touching = np.flatnonzero(same_hash)
    if len(touching):
        equal = keys_equal(records.keys, order[touching], records.keys, order[touching + 1])
        if not equal.all():
            return _sort_colliding(records, hashes)
    if not len(touching):
        alone = np.arange(len(order))
        return SortedRecords(order, alone, alone, records.times[order], sorted_hashes, in_order)
    starts_group = np.concatenate(([True], ~same_hash))
    first = np.flatnonzero(starts_group)
    return SortedRecords(
        order, np.cumsum(starts_group) - 1, first, records.times[order], sorted_hashes[first], in_order
    )


def _grouped(records: Records, hashes: Hashes, in_order: bool) -> SortedRecords | None:
    """Return the records by hash and time, made by a compiled loop; None where it does not pay."""
    from statestore.formats.kernels.key_kernels import group_records

    packed, bits = packed_with_positions(hashes)
    count = len(packed)
    record, group, first, time = np.empty((4, count), np.int64)
    group_hashes = np.empty(count, np.uint64)
    times = own(records.times)
    groups = group_records(packed, bits, own(hashes), times, record, group, first, time, group_hashes)
    if groups < 0:
        return None
    return SortedRecords(record, group, first[:groups], time, group_hashes[:groups], in_order)


def own(array: npt.NDArray[Number]) -> npt.NDArray[Number]:
    """Return an array that may be written: each kernel is compiled once more for those that may not."""
    return array if array.flags.writeable else array.copy()


def _sort_colliding(records: Records, hashes: Hashes) -> SortedRecords:
    """Sort as `sort_records` does where different keys share a hash: group by the keys themselves (never seen outside
    tests)."""
    numbers: dict[tuple[int, str], int] = {}
    columns = [column.to_pylist() for column in records.keys]
    names = [(int(h), repr(key)) for h, key in zip(hashes, zip(*columns, strict=True), strict=True)]
    for name in sorted(set(names)):
        numbers[name] = len(numbers)
    group = np.array([numbers[name] for name in names], np.int64)
    order = np.lexsort((records.times, group))
    sorted_group = group[order]
    first = np.flatnonzero(np.concatenate(([True], sorted_group[1:] != sorted_group[:-1])))
    return SortedRecords(order, sorted_group, first, records.times[order], hashes[order][first])


def by_time_within(sorted_hashes: npt.NDArray[np.uint64], order: Ints, times: Ints) -> Ints:
    """Return positions by hash, time and position; ``order`` has them by hash and position.

    Only the records of hashes whose times decrease somewhere are sorted again: numbers of rank, time and place where
    all three fit 64 bits.
    """
    if len(order) < 2:
        return order
    same = sorted_hashes[1:] == sorted_hashes[:-1]
    moments = times[order]
    falls = np.flatnonzero(same & (moments[1:] < moments[:-1]))
    if not len(falls):
        return order
    rank = np.cumsum(np.concatenate(([False], ~same)))
    affected = np.zeros(int(rank[-1]) + 1, bool)
    affected[rank[falls]] = True
    places = np.flatnonzero(affected[rank])
    rank, moments = rank[places], moments[places]
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


def last_of_each_time(ordered: SortedRecords) -> Ints:
    """Return the positions of the records that count: the last of those with equal key and time."""
    same = (ordered.group[1:] == ordered.group[:-1]) & (ordered.time[1:] == ordered.time[:-1])
    return np.flatnonzero(np.concatenate((~same, [True])))


def by_start(rows: NewRows, chosen: Bools, records: int, hash_order: bool) -> NewRows:
    """Return the chosen rows sorted by start. Records usually arrive in that order, and then no sort is needed.

    ``hash_order``: ``rows`` are in order of hash and start.
    """
    positions = np.flatnonzero(chosen)
    if is_loaded() and len(positions):
        columns = [c if len(positions) == len(chosen) else c[positions] for c in (rows.record, rows.start, rows.end)]
        placed = _placed(NewRows(*columns), records)
        if placed is not None:
            return placed if hash_order else NewRows(placed.record, placed.start, placed.end)
    slots = np.full(records, -1, np.int64)
    slots[rows.record[positions]] = positions
    picked = slots[slots >= 0]
    if len(picked) < len(positions):  # two rows of one record
        picked = positions
    picked = picked[np.argsort(rows.start[picked], kind="stable")]
    by_hash = None
    if hash_order:
        rank = np.empty(len(rows.record), np.int64)
        rank[picked] = np.arange(len(picked))
        by_hash = rank[positions]
    return NewRows(rows.record[picked], rows.start[picked], rows.end[picked], by_hash)


def _placed(rows: NewRows, records: int) -> NewRows | None:
    """Return rows in order of hash by start, made by compiled loops; None if two rows have one record."""
    from statestore.formats.kernels.key_kernels import rows_by_record, rows_by_start

    count = len(rows.record)
    others, late, by_hash = np.empty((3, count), np.int64)
    counts = np.empty(2, np.int64)
    if rows_by_record(rows.record, rows.start, np.full(records, -1, np.int64), others, late, counts):
        return None
    others, late = others[: counts[0]], late[: counts[1]]
    late = late[np.argsort(rows.start[late], kind="stable")]
    columns = np.empty((3, count), np.int64)
    rows_by_start(rows.record, rows.start, rows.end, others, late, columns, by_hash)
    return NewRows(columns[0], columns[1], columns[2], by_hash)
