"""The rule of as-of in compiled loops: the newest end of a row, the rows of a window, and the row of a key at a moment.

It is the rule of docs/format.md ("Belief"), as numpy code has it in ``statestore.catalog.reads.belief``. To pass the
arrays of many segments to a kernel would cost more than its work. Therefore tables have their addresses; whoever makes
a table keeps the arrays alive. They were checked before: rows lie within the segment, and the hashes of an index ascend
(`statestore.formats.segments.key_index`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from statestore.formats.kernels.addresses import byte_at, copy_memory, half_at, pair_at, word_at
from statestore.formats.kernels.arrays import ABSENT, OPEN, Bools, Hashes, Ints, U32s
from statestore.formats.kernels.compiled import I64, U64, inlined, kernel

Rows = npt.NDArray[np.int32]
Numbers = npt.NDArray[np.int64]  # of two dimensions


# The newest end of a row

# Columns of a table of runs of closures (`statestore.catalog.reads.carried_states`), old runs first: addresses
# of rows (u32, ascending), ends (i64) and numbers (u32), how many there are, and the number from which on closures do
# not count.
RUN_ROWS, RUN_ENDS, RUN_NUMBERS, RUN_COUNT, RUN_LIMIT = 0, 1, 2, 3, 4
RUN_COLUMNS = 5


@inlined
def _lower_bound(rows: int, count: int, row: int) -> Any:
    """The position of the first of ascending rows that is not less than ``row``."""
    low, high = I64(0), I64(count)
    while low < high:
        middle = (low + high) >> 1
        if I64(half_at(rows + 4 * middle)) < row:
            low = middle + 1
        else:
            high = middle
    return low


@inlined
def newest_end(runs: int, count: int, row: int, stored: int) -> Any:
    """The end that the newest closure of a row gives, else its stored end; ``runs``: the address of so many runs."""
    for number in range(count - 1, -1, -1):
        run = runs + 8 * RUN_COLUMNS * number
        rows = number_at(run, RUN_ROWS)
        # Of several closures of a row in one run, the last counts that is not later than the limit.
        at = _lower_bound(rows, number_at(run, RUN_COUNT), row + 1) - 1
        while at >= 0 and I64(half_at(rows + 4 * at)) == row:
            if I64(half_at(number_at(run, RUN_NUMBERS) + 4 * at)) < number_at(run, RUN_LIMIT):
                return number_at(number_at(run, RUN_ENDS), at)
            at -= 1
    return stored


@inlined
def number_at(table: int, place: int) -> Any:
    """Return a number of a table of 64-bit numbers."""
    return I64(word_at(table + 8 * place))


# Numbers of rows

# A table of times or versions: the number of its batches, the first row of each, and for each batch where its numbers
# are, how many they are, the bytes of each, and base and unit (`coded_numbers.NumbersInPlace`).
PIECES, PIECE_COUNT, PIECE_BYTES, BASE, UNIT, NUMBERS_FIELDS = range(6)


@inlined
def number_of(numbers: int, row: int) -> Any:
    """Return the time or version of a row by the address of a table of such numbers."""
    batches = number_at(numbers, 0)
    low, high = I64(0), batches
    while high - low > 1:
        middle = (low + high) >> 1
        if number_at(numbers, 1 + middle) <= row:
            low = middle
        else:
            high = middle
    row -= number_at(numbers, 1 + low)
    batch = numbers + 8 * (1 + batches + NUMBERS_FIELDS * low)
    place, width = number_at(batch, PIECES), number_at(batch, PIECE_BYTES)
    if width == 8:
        return number_at(place, row)
    number, shift, count = U64(0), U64(0), number_at(batch, PIECE_COUNT)
    if width & 4:
        number, shift = half_at(place + 4 * row), U64(32)
        place += 4 * count
    if width & 2:
        number |= pair_at(place + 2 * row) << shift
        shift += U64(16)
        place += 2 * count
    if width & 1:
        number |= byte_at(place + row) << shift
    return number_at(batch, BASE) + number_at(batch, UNIT) * I64(number)


# The ends of rows at versions

# Columns of the table of batches. An address of 0 says that the column need not be read.
END_COLUMNS = 5
ROW_END, ROW_CLOSED, ROW_SPLIT, ROW_ADDED, ROW_DROPPED = range(END_COLUMNS)


@kernel
def stored_ends(batches: Numbers, part: Rows, rows: Rows, versions: Ints, ends: Ints, missing: Bools) -> Any:
    """Fill in the end of each row at its version by what is stored, and mark the rows that the version does not have;
    return how many are marked.

    Row i is the row ``rows[i]`` of the batch ``part[i]``. Closures are put in the place of ends after this, but for the
    marked rows.
    """
    count = I64(0)
    for i in range(len(rows)):
        p, row, version = I64(part[i]), I64(rows[i]), versions[i]
        end = number_at(batches[p, ROW_END], row)
        if batches[p, ROW_CLOSED] != 0 and number_at(batches[p, ROW_CLOSED], row) > version:
            is_split = (byte_at(batches[p, ROW_SPLIT] + (row >> 3)) >> U64(row & 7)) & U64(1)
            end = ABSENT if is_split else OPEN
        is_missing = batches[p, ROW_ADDED] != 0 and number_at(batches[p, ROW_ADDED], row) > version
        if batches[p, ROW_DROPPED] != 0 and number_at(batches[p, ROW_DROPPED], row) <= version:
            is_missing = True
        ends[i], missing[i] = end, is_missing
        count += I64(is_missing)
    return count


# The rows of a window

# Columns of the table of parts. An address of 0 says that the column need not be read.
FIRST, COUNT, BEFORE = 0, 1, 2  # the first row within its batch, the number of rows, and the first row in the segment
JUDGED, MARKS = 3, 4  # whether rows may not belong to the window; the marks of all rows of the segment
ENDS, STARTS, ADDED, CLOSED, SPLIT, DROPPED = 5, 6, 7, 8, 9, 10  # columns of the batch
RUNS, STOP_RUNS = 11, 12  # the runs of closures of the segment
PART_COLUMNS = 13


@kernel
def live_rows(
    parts: Numbers, runs: Numbers, low: int, high: int, version: int, rows: Rows, ends: Ints, bounds: Ints
) -> None:
    """Fill in the rows of each part that belong to the window [low, high], and their ends.

    Part p has ``rows[bounds[p] : bounds[p + 1]]``, counted in its batch. There is room for all rows of all parts, and
    for one more. Ends are filled in for the parts that have an address of ends, and for those that have one of marks if
    there is room for ends at all. ``version`` is a commit, or one after all of them.
    """
    filled = I64(0)
    for p in range(len(parts)):
        bounds[p] = filled
        first, count, before = parts[p, FIRST], parts[p, COUNT], parts[p, BEFORE]
        judged, stored = parts[p, JUDGED] != 0, parts[p, ENDS]
        if parts[p, MARKS] != 0:  # the marked rows are those of the window, and all of them are open
            marks = parts[p, MARKS]
            for i in range(count):
                row = before + i
                rows[filled] = first + i
                filled += I64((byte_at(marks + (row >> 3)) >> U64(row & 7)) & U64(1))
            if len(ends) > 0:
                ends[bounds[p] : filled] = OPEN
            continue
        if stored == 0:  # all rows are of the window, and nobody wants their ends
            for i in range(count):
                rows[filled + i] = first + i
            filled += count
            continue
        # The ends of all rows are made where they go. Later those of live rows are moved to the front.
        copy_memory(ends.ctypes.data + 8 * filled, stored + 8 * first, 8 * count)
        mine = ends[filled : filled + count]
        if parts[p, CLOSED] != 0:  # stored ends that a later commit gave: the row was open, or another stands for it
            closed, split = parts[p, CLOSED] + 8 * first, parts[p, SPLIT]
            for i in range(count):
                if I64(word_at(closed + 8 * i)) > version:
                    row = first + i
                    is_split = (byte_at(split + (row >> 3)) >> U64(row & 7)) & U64(1)
                    mine[i] = ABSENT if is_split else OPEN
        # Closures, old runs first, and so the newest closure of a row comes last.
        for r in range(parts[p, RUNS], parts[p, STOP_RUNS]):
            at = _lower_bound(runs[r, RUN_ROWS], runs[r, RUN_COUNT], before)
            while at < runs[r, RUN_COUNT]:
                row = I64(half_at(runs[r, RUN_ROWS] + 4 * at)) - before
                if row >= count:
                    break
                if I64(half_at(runs[r, RUN_NUMBERS] + 4 * at)) < runs[r, RUN_LIMIT]:
                    mine[row] = I64(word_at(runs[r, RUN_ENDS] + 8 * at))
                at += 1
        if parts[p, ADDED] != 0:  # rows that the version does not have
            added = parts[p, ADDED] + 8 * first
            for i in range(count):
                if I64(word_at(added + 8 * i)) > version:
                    mine[i] = ABSENT
        if parts[p, DROPPED] != 0:
            dropped = parts[p, DROPPED] + 8 * first
            for i in range(count):
                if I64(word_at(dropped + 8 * i)) <= version:
                    mine[i] = ABSENT
        # The rows that are valid at the moment, or at some moment of the window.
        if not judged:
            for i in range(count):
                rows[filled + i] = first + i
            filled += count
        elif low == high:
            for i in range(count):
                end = mine[i]
                rows[filled] = first + i
                ends[filled] = end
                filled += I64(end > low)
        else:
            starts = parts[p, STARTS] + 8 * first
            for i in range(count):
                end = mine[i]
                rows[filled] = first + i
                ends[filled] = end
                filled += I64(end > low) & I64(end > I64(word_at(starts + 8 * i)))
    bounds[len(parts)] = filled


@inlined
def is_in_window(start: int, end: int, low: int, high: int) -> Any:
    """Return whether a row is valid at a moment of the window [low, high]; a replaced row ends at its own start."""
    return start <= high and end > low and end > start


# The row of a key at a moment

NOT_FOUND, NOT_OPENED = -1, -2
HALF = 1 << 63  # is subtracted from a hash, because numba compiles a function anew for an unsigned argument
UNSORTED, SORTED, CHAINED = range(3)

# The head of the table: address, words and shift of the filter, and the address of the slots that are set for every
# hash; then what `answer_kernels` needs. Then, for each slot, the fields of its segment: key index, times, closures,
# the moments between which it has rows, its columns, its least stored end, and its place among all segments.
WORDS, WIDTH, SHIFT, EVERY, NEXT_ENTRY, KEY_COUNT, KEY_KINDS, COLUMNS, KINDS, NAMES, NONE, HEAD = range(12)
(
    HASHES, ROWS, DIRECTORY, BUCKET_SHIFT, ROW_STARTS, ROW_ENDS, IS_CHAINED, FIRST_START, LAST_END, CLOSURE_RUNS,
    CLOSURE_TABLE, KEYS, VALUES, WRITTEN, LEAST_END, PLACE, FIELDS,
) = range(17)  # fmt: skip


@kernel
def find_row(table: int, key_hash: int, moment: int) -> Any:
    """Return slot << 32 | row of a row with a hash that is valid at a moment; NOT_FOUND or NOT_OPENED without one.

    ``table`` is the address of the table, and ``key_hash`` the hash less HALF. NOT_OPENED: a segment that may have the
    row is not described by the table.
    """
    return place_of(table, U64(key_hash) + U64(HALF), moment)[0]


@kernel
def find_rows(table: int, hashes: Hashes, moments: Ints, places: Ints) -> None:
    """Find a row for each hash, at its own moment, as `find_row` does."""
    for number in range(len(hashes)):
        places[number] = place_of(table, hashes[number], moments[number])[0]


@inlined
def place_of(table: int, hash_: Any, moment: int) -> Any:
    """Return what `find_row` returns, and the newest end of the row."""
    width = number_at(table, WIDTH)
    bucket = number_at(table, WORDS) + 8 * width * I64(hash_ >> U64(number_at(table, SHIFT)))
    every = number_at(table, EVERY)
    for word in range(width):
        slots = word_at(bucket + 8 * word) | word_at(every + 8 * word)
        fields = table + 8 * (HEAD + 64 * FIELDS * word)
        number = 64 * word
        while slots:
            if slots & U64(1) and number_at(fields, FIRST_START) <= moment < number_at(fields, LAST_END):
                if not number_at(fields, HASHES):
                    return NOT_OPENED, 0
                row, end = _row_in(fields, hash_, moment)
                if row >= 0:
                    return number << 32 | row, end
            slots >>= U64(1)
            fields += 8 * FIELDS
            number += 1
    return NOT_FOUND, 0


@inlined
def _row_in(fields: int, hash_: Any, moment: int) -> Any:
    """Return (row, newest end) of the row of a hash that is valid at a moment, a row of -1 without one.

    ``fields`` is the address of the fields of the segment.
    """
    hashes, rows, starts = number_at(fields, HASHES), number_at(fields, ROWS), number_at(fields, ROW_STARTS)
    bucket = number_at(fields, DIRECTORY)
    if number_at(fields, BUCKET_SHIFT) < 64:  # the processor shifts by 64 as by 0
        bucket += 4 * I64(hash_ >> U64(number_at(fields, BUCKET_SHIFT)))
    first, stop = I64(half_at(bucket)), I64(half_at(bucket + 4))
    first = search(hashes, first, stop, hash_)
    if first == stop or word_at(hashes + 8 * first) != hash_:
        return -1, 0
    # Rows of one hash are in order of starts. The steps to one that has not started double.
    low, high, step = first, first, 1
    while high < stop and _has_started(hashes, rows, starts, high, hash_, moment):
        low = high + 1
        high += step
        step *= 2
    high = min(high, stop)
    while low < high:
        middle = (low + high) >> 1
        if _has_started(hashes, rows, starts, middle, hash_, moment):
            low = middle + 1
        else:
            high = middle
    entry = low - 1
    while entry >= first:
        row = I64(half_at(rows + 4 * entry))
        end = number_of(number_at(fields, ROW_ENDS), row)
        end = newest_end(number_at(fields, CLOSURE_TABLE), number_at(fields, CLOSURE_RUNS), row, end)
        if moment < end:
            return row, end
        if number_at(fields, IS_CHAINED) and number_of(starts, row) < end:
            return -1, 0  # it has ended, and older ones ended before it started
        entry -= 1
    return -1, 0


@inlined
def search(hashes: int, low: int, high: int, hash_: Any) -> int:
    """Return the first entry from ``low`` to ``high`` whose hash is not less."""
    while low < high:
        middle = (low + high) >> 1
        if word_at(hashes + 8 * middle) < hash_:
            low = middle + 1
        else:
            high = middle
    return low


@inlined
def _has_started(hashes: int, rows: int, starts: int, entry: int, hash_: Any, moment: int) -> Any:
    """Return whether an entry has the hash, and its row has started at a moment."""
    if word_at(hashes + 8 * entry) != hash_:
        return False
    return number_of(starts, I64(half_at(rows + 4 * entry))) <= moment


@kernel
def order_of_rows(hashes: Hashes, rows: U32s, starts: int, ends: int) -> int:
    """Return CHAINED if each row of a hash starts where the one before has ended, or later; SORTED or UNSORTED else.

    ``starts`` and ``ends`` are addresses of tables of numbers. Rows of one hash that are chained are never valid at the
    same moment, whatever their keys.
    """
    found = CHAINED
    for entry in range(1, len(hashes)):
        if hashes[entry] == hashes[entry - 1]:
            row, before = I64(rows[entry]), I64(rows[entry - 1])
            start = number_of(starts, row)
            if start < number_of(starts, before):
                return UNSORTED
            if start < number_of(ends, before):
                found = SORTED
    return found
