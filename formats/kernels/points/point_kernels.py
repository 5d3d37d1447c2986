"""The compiled search for the row of one key at one moment, in all segments that were opened for point reads.

To pass the arrays of all segments would cost more than the search. Therefore a table has their addresses. It is made by
`statestore.catalog.reads.points.lookup_table`, which keeps the arrays alive. They were checked before: hashes ascend,
and rows lie within the segment (`statestore.formats.segments.key_index`).
"""

from __future__ import annotations

from typing import Any

from statestore.formats.kernels.arrays import Hashes, Ints, U32s
from statestore.formats.kernels.compiled import I64, U64, inlined, kernel
from statestore.formats.kernels.scans.addresses import half_at, word_at

NOT_FOUND, NOT_OPENED = -1, -2
HALF = 1 << 63  # is subtracted from a hash, because numba compiles a function anew for an unsigned argument
UNSORTED, SORTED, CHAINED = range(3)

# The head of the table: address, words and shift of the filter, and the address of the slots that are set for every
# hash; then what `answer_kernels` needs. Then for each slot:
WORDS, WIDTH, SHIFT, EVERY, NEXT_ENTRY, KEY_KIND, COLUMNS, KINDS, NAMES, NONE, HEAD = range(11)
(
    HASHES, ROWS, DIRECTORY, BUCKET_SHIFT, STARTS, ENDS, IS_CHAINED, FIRST, LAST, LAYERS, LAYER_TABLE, KEYS, VALUES,
    FIELDS,
) = range(14)  # fmt: skip
LAYER_FIELDS = 3  # of a layer of closures: the address of its rows, ascending, that of their ends, and their number


@kernel
def find_row(table: int, key_hash: int, moment: int) -> Any:
    """Return slot << 32 | row of a row with a hash that is valid at a moment; NOT_FOUND or NOT_OPENED without one.

    ``table`` is the address of the table, and ``key_hash`` the hash less HALF. NOT_OPENED: a segment that may have the
    row is not described by the table.
    """
    return place_of(table, U64(key_hash) + U64(HALF), moment)[0]


@kernel
def find_rows(table: int, hashes: Hashes, moment: int, places: Ints) -> None:
    """Find a row for each hash as `find_row` does."""
    for number in range(len(hashes)):
        places[number] = place_of(table, hashes[number], moment)[0]


@inlined
def number_at(table: int, place: int) -> Any:
    """Return a number of a table of 64-bit numbers."""
    return I64(word_at(table + 8 * place))


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
            if slots & U64(1) and number_at(fields, FIRST) <= moment < number_at(fields, LAST):
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
    hashes, rows, starts = number_at(fields, HASHES), number_at(fields, ROWS), number_at(fields, STARTS)
    bucket = number_at(fields, DIRECTORY)
    if number_at(fields, BUCKET_SHIFT) < 64:  # the processor shifts by 64 as by 0
        bucket += 4 * I64(hash_ >> U64(number_at(fields, BUCKET_SHIFT)))
    first, stop = I64(half_at(bucket)), I64(half_at(bucket + 4))
    first = _search(hashes, first, stop, hash_)
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
        end = number_at(number_at(fields, ENDS), row)
        if number_at(fields, LAYERS):
            end = _new_end(number_at(fields, LAYER_TABLE), number_at(fields, LAYERS), row, end)
        if moment < end:
            return row, end
        if number_at(fields, IS_CHAINED) and number_at(starts, row) < end:
            return -1, 0  # it has ended, and older ones ended before it started
        entry -= 1
    return -1, 0


@inlined
def _search(hashes: int, low: int, high: int, hash_: Any) -> int:
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
    return number_at(starts, I64(half_at(rows + 4 * entry))) <= moment


@inlined
def _new_end(layers: int, count: int, row: int, stored: int) -> Any:
    """Return the end that the closures of a segment give to a row, the newest first, else its stored end."""
    for layer in range(count):
        at = layers + 8 * LAYER_FIELDS * layer
        rows, low, high = number_at(at, 0), 0, number_at(at, 2)
        stop = high
        while low < high:
            middle = (low + high) >> 1
            if number_at(rows, middle) < row:
                low = middle + 1
            else:
                high = middle
        if low < stop and number_at(rows, low) == row:
            return number_at(number_at(at, 1), low)
    return stored


@kernel
def order_of_rows(hashes: Hashes, rows: U32s, starts: Ints, ends: Ints) -> int:
    """Return CHAINED if each row of a hash starts where the one before has ended, or later; SORTED or UNSORTED else.

    Rows of one hash that are chained are never valid at the same moment, whatever their keys.
    """
    found = CHAINED
    for entry in range(1, len(hashes)):
        if hashes[entry] == hashes[entry - 1]:
            row, before = rows[entry], rows[entry - 1]
            if starts[row] < starts[before]:
                return UNSORTED
            if starts[row] < ends[before]:
                found = SORTED
    return found
