"""Compiled loops over the keys and records of bulk commits: hashes, equality, order, ends, search among sorted hashes.

Each has the result of the numpy code that calls it (`statestore.formats.values.xxh64`,
`statestore.formats.values.key_equality`, `statestore.catalog.commits`).
"""

from __future__ import annotations

from collections.abc import Iterator
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
def add_rows(
    keys: Bytes,
    key_start: Ints,
    key_size: Ints,
    values: Bytes,
    value_start: Ints,
    value_size: Ints,
    sums: Hashes,
) -> bool:
    """Add the hashes of rows (key, value) to two sums, as `statestore.formats.bytes.row_bags` defines them.

    Returns False if a key or a value lies outside of its bytes.
    """
    low, high = U64(0), U64(0)
    for i in range(len(key_start)):
        at, stop = key_start[i], key_start[i] + key_size[i]
        begin, end = value_start[i], value_start[i] + value_size[i]
        if at < 0 or stop < at or stop > len(keys) or begin < 0 or end < begin or end > len(values):
            return False
        key, value = _hashed(keys, at, stop), _hashed(values, begin, end)
        one, other = key + _rotated(value, 23) * _P1, value + _rotated(key, 41) * _P2
        one = (one ^ (one >> U64(33))) * _P2
        other = (other ^ (other >> U64(29))) * _P3
        low += one ^ (one >> U64(32))
        high += other ^ (other >> U64(31))
    sums[0] += low
    sums[1] += high
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


@inlined
def _first_of(hashes: Hashes, wanted: Any, low: int) -> int:
    """First entry from ``low`` on whose hash is not less than ``wanted``; the steps of the search double."""
    count, step, high = len(hashes), 1, low
    while high < count and hashes[high] < wanted:
        low = high + 1
        high += step
        step += step
    high = min(high, count)
    while low < high:
        middle = (low + high) >> 1
        if hashes[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def find_hashes(hashes: Hashes, probes: Hashes, entries: Ints) -> int:
    """Fill in the entry of each probe (ascending) in ``hashes`` (ascending), -1 where it has none; return how many it
    has.

    Each search begins where the last one ended, so that many probes cost one pass over both.
    """
    found, low, count = 0, 0, len(hashes)
    for i in range(len(probes)):
        wanted = probes[i]
        low = _first_of(hashes, wanted, low)
        if low < count and hashes[low] == wanted:
            entries[i] = low
            found += 1
        else:
            entries[i] = -1
    return found


@kernel
def last_started(
    hashes: Hashes, rows: Whole, starts: Ints, probes: Hashes, times: Ints, found: Ints, chosen: Ints
) -> int:
    """Fill in (number of the probe, row) of each probe that has a row which starts by its time, the last such row;
    return their number.

    ``hashes`` ascend, ``rows`` are their rows, which ascend within a hash and have these ``starts``. Returns -1 if a
    row lies outside.
    """
    filled, low, before, count = 0, 0, U64(0), len(hashes)
    for i in range(len(probes)):
        wanted = probes[i]
        low = _first_of(hashes, wanted, low if wanted >= before else 0)
        before = wanted
        if low == count or hashes[low] != wanted:
            continue
        begin = low
        stop = count if wanted == U64(0xFFFFFFFFFFFFFFFF) else _first_of(hashes, wanted + U64(1), low)
        while begin < stop:
            middle = (begin + stop) >> 1
            row = I64(rows[middle])
            if row < 0 or row >= len(starts):
                return -1
            if starts[row] <= times[i]:
                begin = middle + 1
            else:
                stop = middle
        if begin > low:
            found[filled], chosen[filled] = i, I64(rows[begin - 1])
            filled += 1
    return filled


@kernel
def insert_entries(
    count: int, hashes: Hashes, address: Hashes, start: Ints, new: Hashes, new_address: Hashes, new_start: Ints
) -> None:
    """Merge new entries, by hash, into the first ``count`` of the arrays, which have room for all."""
    last = count - 1
    to = count + len(new) - 1
    for i in range(len(new) - 1, -1, -1):
        while last >= 0 and hashes[last] > new[i]:
            hashes[to], address[to], start[to] = hashes[last], address[last], start[last]
            last -= 1
            to -= 1
        hashes[to], address[to], start[to] = new[i], new_address[i], new_start[i]
        to -= 1


@kernel
def group_records(
    packed: Hashes,
    bits: int,
    hashes: Hashes,
    times: Ints,
    record: Ints,
    group: Ints,
    first: Ints,
    time: Ints,
    group_hashes: Hashes,
) -> int:
    """Fill in the records by hash, time and position, and return the number of different hashes.

    ``packed`` (ascending) has the upper bits of each hash and, in the lower ``bits``, its position. Returns -1 if these
    do not determine the order, or if the times of a hash are so far from sorted that they have to be sorted otherwise.
    """
    mask = (U64(1) << U64(bits)) - U64(1)
    groups, begin, moves, most = 0, 0, 0, 8 * len(packed)
    before = U64(0)
    for i in range(len(packed)):
        position = I64(packed[i] & mask)
        hash = hashes[position]
        if i == 0 or hash != before:
            if i > 0 and hash < before:
                return -1
            first[groups], group_hashes[groups] = i, hash
            groups += 1
            begin, before = i, hash
        moment, at = times[position], i
        while at > begin and time[at - 1] > moment:
            time[at], record[at] = time[at - 1], record[at - 1]
            at -= 1
            moves += 1
        if moves > most:
            return -1
        time[at], record[at], group[i] = moment, position, groups - 1
    return groups


@kernel
def follow_open_rows(
    record: Ints,
    first: Ints,
    time: Ints,
    tombstones: Bools,
    newest: Ints,
    rows: Ints,
    earliest: Ints,
    whole: Ints,
    late: Ints,
    counts: Ints,
) -> None:
    """Separate the records of each key by the start of its open row, ``newest``, and end those that follow it.

    ``rows`` (group, record, start, end; a column each) gets the rows that follow, ``earliest`` the first of them for
    each group. ``whole`` gets the groups with a record at the start of the open row, or with a value that is taken
    back, which have no other result; ``late`` the positions of the records before the open row. ``counts``: how many
    rows, groups and positions these are.
    """
    filled, odd, before = 0, 0, 0
    for group in range(len(first)):
        begin = first[group]
        stop = first[group + 1] if group + 1 < len(first) else len(record)
        opened = newest[group]
        undo_filled, undo_before = filled, before
        is_whole = False
        at = begin
        while at < stop and not is_whole:
            moment, last, values = time[at], at, False
            while last + 1 < stop and time[last + 1] == moment:
                values = values or not tombstones[record[last]]
                last += 1
            if moment == opened or (values and tombstones[record[last]]):
                is_whole = True
            elif moment < opened:
                for position in range(at, last + 1):
                    late[before] = position
                    before += 1
            else:
                if filled > undo_filled:
                    rows[3, filled - 1] = moment
                else:
                    earliest[group] = moment
                rows[0, filled], rows[1, filled], rows[2, filled] = group, record[last], moment
                rows[3, filled] = I64(0x7FFFFFFFFFFFFFFF)
                filled += 1
            at = last + 1
        if is_whole:
            filled, before = undo_filled, undo_before
            earliest[group] = I64(0x7FFFFFFFFFFFFFFF)
            whole[odd] = group
            odd += 1
    counts[0], counts[1], counts[2] = filled, odd, before


@kernel
def rows_by_record(record: Ints, start: Ints, slots: Ints, others: Ints, late: Ints, counts: Ints) -> int:
    """Separate rows, taken in order of their records, into those that start in order and those that start earlier.

    ``slots`` has -1 for each record and is used up. ``counts``: how many of both. Returns the number of rows of which
    two have one record; then nothing else is filled in.
    """
    for i in range(len(record)):
        if slots[record[i]] >= 0:
            return 1
        slots[record[i]] = i
    in_order, before = 0, 0
    greatest = I64(-0x7FFFFFFFFFFFFFFF) - I64(1)
    for i in range(len(slots)):
        row = slots[i]
        if row < 0:
            continue
        if start[row] < greatest:
            late[before] = row
            before += 1
        else:
            greatest = start[row]
            others[in_order] = row
            in_order += 1
    counts[0], counts[1] = in_order, before
    return 0


@kernel
def rows_by_start(record: Ints, start: Ints, end: Ints, others: Ints, late: Ints, columns: Ints, by_hash: Ints) -> None:
    """Fill in record, start and end, a column each, by start, and the place of each row; ``others`` and ``late`` are
    rows by start."""
    at, taken = 0, 0
    for place in range(len(record)):
        if taken < len(late) and (at == len(others) or start[late[taken]] < start[others[at]]):
            row = late[taken]
            taken += 1
        else:
            row = others[at]
            at += 1
        columns[0, place], columns[1, place], columns[2, place] = record[row], start[row], end[row]
        by_hash[row] = place


@kernel
def open_in_order(
    by_hash: Ints, end: Ints, start: Ints, hashes: Hashes, opened: Hashes, rows: Ints, starts: Ints
) -> int:
    """Fill in hash, row and start of the rows without an end in the order ``by_hash``, and return their number."""
    filled = 0
    for i in range(len(by_hash)):
        row = by_hash[i]
        if end[row] == I64(0x7FFFFFFFFFFFFFFF):
            opened[filled], rows[filled], starts[filled] = hashes[row], row, start[row]
            filled += 1
    return filled


@kernel
def look_up(address: Hashes, first: Ints, size: Ints, items: Any, found: Any) -> bool:
    """Fill in the item of each address (table in the upper 32 bits, place in the lower ones) where its table has items.

    The items of table ``n`` begin at ``first[n]``; a table of one item has it for every place. Returns False if an
    address lies outside.
    """
    for i in range(len(address)):
        number = I64(address[i] >> U64(32))
        if number >= len(size):
            return False
        if size[number] > 0:
            place = I64(address[i] & U64(0xFFFFFFFF)) if size[number] > 1 else I64(0)
            if place >= size[number]:
                return False
            found[i] = items[first[number] + place]
    return True


def first_calls() -> Iterator[None]:
    """Call each loop with arrays of all kinds that bulk commits with keys of text have, and yield after each call.

    The first call with arrays of a kind loads the loop from disk, or compiles it.
    """

    def ints() -> Ints:
        return np.arange(2)

    def words() -> Hashes:
        return np.arange(2, dtype=np.uint64)

    def fixed(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        array.flags.writeable = False
        return array

    # Texts of the caller, those of a mapped file, and those of a file that were decompressed.
    owned = np.zeros(64, np.uint8), np.zeros(3, np.int32)
    mapped = fixed(np.zeros(64, np.uint8)), fixed(np.zeros(3, np.int32))
    for data, offsets in (owned, mapped, (mapped[0], owned[1])):
        hash_strings(data, offsets, words())
        yield
    for ours, our_offsets in (owned, mapped):
        for theirs, their_offsets in (owned, mapped):
            strings_equal(ours, our_offsets, ints() * 0, theirs, their_offsets, ints() * 0, np.zeros(2, bool))
            yield
    find_hashes(words(), words(), ints())
    yield
    insert_entries(0, words(), words(), ints(), words(), words(), ints())
    yield
    group_records(words(), 1, words(), ints(), ints(), ints(), ints(), ints(), words())
    yield
    follow_open_rows(
        ints(),
        ints(),
        ints(),
        np.zeros(2, bool),
        ints(),
        np.zeros((4, 2), np.int64),
        ints(),
        ints(),
        ints(),
        np.zeros(3, np.int64),
    )
    yield
    rows_by_record(ints(), ints(), np.full(2, -1), ints(), ints(), ints())
    yield
    rows_by_start(ints(), ints(), ints(), ints(), np.empty(0, np.int64), np.zeros((3, 2), np.int64), ints())
    yield
    open_in_order(ints(), ints(), ints(), words(), words(), ints(), ints())
    yield
    for hashes, rows in ((words(), np.zeros(2, np.uint32)), (fixed(words()), fixed(np.zeros(2, np.uint32)))):
        last_started(hashes, rows, fixed(ints()), words(), ints(), ints(), ints())
        yield
    for items, found in ((words(), words()), (np.zeros(2, bool), np.zeros(2, bool))):
        look_up(words(), ints() * 0, ints(), items, found)
        yield
