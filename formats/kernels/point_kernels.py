"""The compiled search for the row of one key at one moment, in all segments that were opened for point reads.

To pass the arrays of all segments would cost more than the search. Therefore a table has their addresses. It is made by
`statestore.catalog.reads.points.lookup_table`, which keeps the arrays alive. They were checked before: hashes ascend,
and rows lie within the segment (`statestore.formats.segments.key_index`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from statestore.formats.kernels.arrays import Hashes, Ints, U32s
from statestore.formats.kernels.compiled import I64, U64, inlined, kernel

NOT_FOUND, NOT_OPENED = -1, -2
HALF = 1 << 63  # is subtracted from a hash, because numba compiles a function anew for an unsigned argument
UNSORTED, SORTED, CHAINED = range(3)

# The head of the table: address, words and shift of the filter, and the address of the slots that are set for every
# hash. Then for each slot:
WORDS, WIDTH, SHIFT, EVERY, HEAD = range(5)
HASHES, ROWS, DIRECTORY, BUCKET_SHIFT, STARTS, ENDS, IS_CHAINED, FIRST, LAST, LAYERS, LAYER_TABLE, FIELDS = range(12)
LAYER_FIELDS = 3  # of a layer of closures: the address of its rows, ascending, that of their ends, and their number


def _loader(bits: int) -> Any:
    def load(typing_context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pointer = builder.inttoptr(arguments[0], ir.IntType(bits).as_pointer())
            found = builder.load(pointer)
            return builder.zext(found, ir.IntType(64)) if bits < 64 else found

        return types.uint64(types.int64), generate

    return intrinsic(load)


_u64: Callable[[Any], Any] = _loader(64)
_u32: Callable[[Any], Any] = _loader(32)


@kernel
def find_row(table: Ints, key_hash: int, moment: int) -> Any:
    """Return slot << 32 | row of a row with a hash that is valid at a moment; NOT_FOUND or NOT_OPENED without one.

    ``key_hash`` is the hash less HALF. NOT_OPENED: a segment that may have the row is not described by the table.
    """
    return _place(table, U64(key_hash) + U64(HALF), moment)


@kernel
def find_rows(table: Ints, hashes: Hashes, moment: int, places: Ints) -> None:
    """Find a row for each hash as `find_row` does."""
    for number in range(len(hashes)):
        places[number] = _place(table, hashes[number], moment)


@inlined
def _place(table: Ints, hash_: Any, moment: int) -> Any:
    width = table[WIDTH]
    bucket = table[WORDS] + 8 * width * I64(hash_ >> U64(table[SHIFT]))
    for word in range(width):
        slots = _u64(bucket + 8 * word) | _u64(table[EVERY] + 8 * word)
        at = HEAD + 64 * FIELDS * word
        number = 64 * word
        while slots:
            if slots & U64(1) and table[at + FIRST] <= moment < table[at + LAST]:
                if not table[at + HASHES]:
                    return NOT_OPENED
                row = _row_in(table, at, hash_, moment)
                if row >= 0:
                    return number << 32 | row
            slots >>= U64(1)
            at += FIELDS
            number += 1
    return NOT_FOUND


@inlined
def _row_in(table: Ints, at: int, hash_: Any, moment: int) -> Any:
    """Return the row of a hash that is valid at a moment, -1 without one; the segment's fields begin at ``at``."""
    hashes, rows, starts, ends = table[at + HASHES], table[at + ROWS], table[at + STARTS], table[at + ENDS]
    bucket = table[at + DIRECTORY]
    if table[at + BUCKET_SHIFT] < 64:  # the processor shifts by 64 as by 0
        bucket += 4 * I64(hash_ >> U64(table[at + BUCKET_SHIFT]))
    first, stop = I64(_u32(bucket)), I64(_u32(bucket + 4))
    first = _search(hashes, first, stop, hash_)
    if first == stop or _u64(hashes + 8 * first) != hash_:
        return -1
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
        row = I64(_u32(rows + 4 * entry))
        end = I64(_u64(ends + 8 * row))
        if table[at + LAYERS]:
            end = _new_end(table[at + LAYER_TABLE], table[at + LAYERS], row, end)
        if moment < end:
            return row
        if table[at + IS_CHAINED] and I64(_u64(starts + 8 * row)) < end:
            return -1  # it has ended, and older ones ended before it started
        entry -= 1
    return -1


@inlined
def _search(hashes: int, low: int, high: int, hash_: Any) -> int:
    """Return the first entry from ``low`` to ``high`` whose hash is not less."""
    while low < high:
        middle = (low + high) >> 1
        if _u64(hashes + 8 * middle) < hash_:
            low = middle + 1
        else:
            high = middle
    return low


@inlined
def _has_started(hashes: int, rows: int, starts: int, entry: int, hash_: Any, moment: int) -> Any:
    """Return whether an entry has the hash, and its row has started at a moment."""
    if _u64(hashes + 8 * entry) != hash_:
        return False
    return I64(_u64(starts + 8 * I64(_u32(rows + 4 * entry)))) <= moment


@inlined
def _new_end(layers: int, count: int, row: int, stored: int) -> Any:
    """Return the end that the closures of a segment give to a row, the newest first, else its stored end."""
    for layer in range(count):
        at = layers + 8 * LAYER_FIELDS * layer
        rows, low, high = I64(_u64(at)), 0, I64(_u64(at + 16))
        stop = high
        while low < high:
            middle = (low + high) >> 1
            if I64(_u64(rows + 8 * middle)) < row:
                low = middle + 1
            else:
                high = middle
        if low < stop and I64(_u64(rows + 8 * low)) == row:
            return I64(_u64(I64(_u64(at + 8)) + 8 * low))
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
