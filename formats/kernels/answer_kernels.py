"""The compiled answer to a read of one key: the look for a newer commit, the search, and the value as a Python object.

Cells are read at the addresses of columns, batch by batch (`statestore.catalog.reads.lookup.value_readers`). A thread
that drops a batch takes its addresses away first, and needs the GIL for it. So a kernel makes its dict and its tuple
before it looks for the batch of a row: from there on it holds the GIL, and the columns stay.
"""

from __future__ import annotations

import errno
from typing import Any

from numba import types

from statestore.formats.kernels import python_objects as objects
from statestore.formats.kernels.addresses import byte_at, half_at, pair_at, word_at
from statestore.formats.kernels.arrays import OPEN, Hashes, Ints
from statestore.formats.kernels.belief_kernels import (
    COLUMNS,
    FIELDS,
    HEAD,
    KEY_COUNT,
    KEY_KINDS,
    KEYS,
    KINDS,
    NAMES,
    NEXT_ENTRY,
    NONE,
    NOT_FOUND,
    ROW_STARTS,
    VALUES,
    number_at,
    number_of,
    place_of,
)
from statestore.formats.kernels.compiled import I64, U64, holding_gil, inlined
from statestore.formats.kernels.python_objects import python_object

# Kinds of columns that `_new_cell` reads. FIXED16 are 16 bytes a row.
INT8, INT16, INT32, INT64, FLOAT32, FLOAT64, BOOLEAN, FIXED16, TEXT, BINARY = range(10)
# A table of columns: the number of its batches, the first row of each, and for each batch its number of rows (0: its
# columns are not at hand), and for each column the addresses of its validity bits (0: no nulls), offsets and data, and
# the bytes of the data.
COLUMN_FIELDS = 4
FOUND, UNKNOWN, FAILED = range(3)
NO_FILE, NO_FOLDER = errno.ENOENT, errno.ENOTDIR

READ_KEY = python_object(types.int64, python_object, types.uint64, types.int64)
READ_KEYS = python_object(
    types.int64, types.int64, types.int64, types.uint64[::1], types.int64, types.int64[::1], python_object
)


@holding_gil
def read_key(table: int, key: Any, key_hash: Any, moment: int) -> Any:
    """Return (value, start, end or None) of the version of a key, in epoch milliseconds, and None if there is none.

    False: there may be a newer commit, or compiled code does not know the answer. ``key`` is a bytes object, as
    `statestore.catalog.reads.lookup.key_bytes` makes it.
    """
    if _may_be_newer(number_at(table, NEXT_ENTRY)):
        return objects.as_object(objects.new_bool(0))
    name = objects.address_of(key)
    place, end = place_of(table, key_hash, moment)
    return objects.as_object(_new_answer(table, place, end, objects.bytes_data(name), objects.bytes_size(name)))


@holding_gil
def read_keys(table: int, offsets: int, data: int, hashes: Hashes, moment: int, found: Ints, answers: Any) -> Any:
    """Append what `read_key` returns for each hash to a list, without a look for a newer commit.

    The keys are of one column, of text, bytes or 64-bit numbers: the addresses of its offsets and of its data.
    ``found`` has room for two numbers for each hash.
    """
    is_number = number_at(number_at(table, KEY_KINDS), 0) < TEXT
    count = len(hashes)
    for number in range(count):
        found[2 * number], found[2 * number + 1] = place_of(table, hashes[number], moment)
    for number in range(count):
        _ask_for_row(table, found[2 * number])
    for number in range(count):
        _ask_for_texts(table, found[2 * number])
    for number in range(count):
        start, size = 8 * number, 8
        if not is_number:
            start = I64(half_at(offsets + 4 * number))
            size = I64(half_at(offsets + 4 * number + 4)) - start
        answer = _new_answer(table, found[2 * number], found[2 * number + 1], data + start, size)
        if not answer:
            return objects.as_object(0)
        failed = objects.append(objects.address_of(answers), answer)
        objects.release(answer)
        if failed:
            return objects.as_object(0)
    return objects.as_object(objects.new_bool(1))


@inlined
def _ask_for_row(table: int, place: int) -> None:
    """Ask for the cache lines of a row, so that the misses of many rows overlap."""
    if place < 0:
        return
    fields, row = table + 8 * (HEAD + FIELDS * (place >> 32)), place & 0xFFFFFFFF
    _ask_for_cells(number_at(fields, KEYS), row, number_at(table, KEY_COUNT), number_at(table, KEY_KINDS))
    _ask_for_cells(number_at(fields, VALUES), row, number_at(table, COLUMNS), number_at(table, KINDS))


@inlined
def _ask_for_cells(columns_table: int, row: int, columns: int, kinds: int) -> None:
    batch, row = batch_of(columns_table, row, columns)
    if not batch:
        return
    for number in range(columns):
        column, kind = batch + 8 * (1 + COLUMN_FIELDS * number), number_at(kinds, number)
        if number_at(column, 0):
            objects.prefetch(number_at(column, 0) + (row >> 3))
        if kind >= TEXT:
            objects.prefetch(number_at(column, 1) + 4 * row)
        else:
            objects.prefetch(number_at(column, 2) + row * width_of(kind))


@inlined
def width_of(kind: int) -> int:
    if kind in (INT64, FLOAT64):
        return 8
    if kind in (INT32, FLOAT32):
        return 4
    if kind == FIXED16:
        return 16
    return 2 if kind == INT16 else 1


@inlined
def _ask_for_texts(table: int, place: int) -> None:
    """Ask for the cache lines of text, whose offsets `_ask_for_row` asked for."""
    if place < 0:
        return
    fields, row = table + 8 * (HEAD + FIELDS * (place >> 32)), place & 0xFFFFFFFF
    _ask_for_data(number_at(fields, KEYS), row, number_at(table, KEY_COUNT), number_at(table, KEY_KINDS))
    _ask_for_data(number_at(fields, VALUES), row, number_at(table, COLUMNS), number_at(table, KINDS))


@inlined
def _ask_for_data(columns_table: int, row: int, columns: int, kinds: int) -> None:
    batch, row = batch_of(columns_table, row, columns)
    if not batch:
        return
    for number in range(columns):
        if number_at(kinds, number) >= TEXT:
            column = batch + 8 * (1 + COLUMN_FIELDS * number)
            objects.prefetch(number_at(column, 2) + I64(half_at(number_at(column, 1) + 4 * row)))


@inlined
def _may_be_newer(path: int) -> Any:
    """Return whether a file is there, or the system cannot tell; others run meanwhile, because a disk may be slow."""
    state = objects.let_others_run()
    is_absent = objects.access(path, 0) != 0
    if is_absent:
        reason = objects.errno()
        is_absent = reason in (NO_FILE, NO_FOLDER)
    objects.go_on(state)
    return not is_absent


@inlined
def _new_answer(table: int, place: int, end: int, key: int, size: int) -> Any:
    """Return the answer for a key of which `place_of` has found the row."""
    if place < 0:
        return _new_none(table) if place == NOT_FOUND else objects.new_bool(0)
    columns = number_at(table, COLUMNS)
    answer = objects.new_tuple(3)
    if not answer:
        return 0
    value = 0
    if columns > 1:
        value = objects.new_dict()
        if not value or objects.set_member(answer, 0, value):
            objects.release(answer)
            return 0
    # From here on nothing is made that lets other threads run.
    state = _fill(table, answer, value, place, end, key, size)
    if state == FOUND:
        return answer
    objects.release(answer)
    return 0 if state == FAILED else objects.new_bool(0)


@inlined
def _new_none(table: int) -> Any:
    none = number_at(table, NONE)
    objects.hold(none)
    return none


@inlined
def _fill(table: int, answer: int, value: int, place: int, end: int, key: int, size: int) -> int:
    """Fill in the answer if the row is that of the key, and at hand."""
    fields, row = table + 8 * (HEAD + FIELDS * (place >> 32)), place & 0xFFFFFFFF
    if not is_key(table, number_at(fields, KEYS), row, key, size):
        return UNKNOWN  # another key has the hash, or the keys are not at hand
    columns, kinds = number_at(table, COLUMNS), number_at(table, KINDS)
    batch, row_there = batch_of(number_at(fields, VALUES), row, columns)
    if not batch:
        return UNKNOWN
    for number in range(columns):
        column, kind = batch + 8 * (1 + COLUMN_FIELDS * number), number_at(kinds, number)
        if kind >= TEXT and not is_inside(column, row_there):
            return UNKNOWN
        cell = _new_cell(table, kind, column, row_there)
        if not cell:
            return FAILED
        if columns == 1:
            failed = objects.set_member(answer, 0, cell)
        else:
            failed = objects.set_entry(value, number_at(number_at(table, NAMES), number), cell)
            objects.release(cell)
        if failed:
            return FAILED
    start = objects.new_int(number_of(number_at(fields, ROW_STARTS), row) // 1000)
    if not start or objects.set_member(answer, 1, start):
        return FAILED
    until = _new_none(table) if end == OPEN else objects.new_int(end // 1000)
    if not until or objects.set_member(answer, 2, until):
        return FAILED
    return FOUND


@inlined
def batch_of(columns_table: int, row: int, columns: int) -> Any:
    """Return the address of the batch of a row, 0 if it is not at hand, and the row in the batch."""
    if not columns_table:
        return 0, 0
    batches = number_at(columns_table, 0)
    low, high = 0, batches
    while high - low > 1:
        middle = (low + high) >> 1
        if number_at(columns_table, 1 + middle) <= row:
            low = middle
        else:
            high = middle
    batch = columns_table + 8 * (1 + batches + low * (1 + COLUMN_FIELDS * columns))
    row -= number_at(columns_table, 1 + low)
    if row >= number_at(batch, 0):
        return 0, 0
    return batch, row


@inlined
def is_key(table: int, keys: int, row: int, key: int, size: int) -> Any:
    """Return whether a row has a key; of several columns, the length of each text comes before its bytes."""
    count, kinds = number_at(table, KEY_COUNT), number_at(table, KEY_KINDS)
    batch, row = batch_of(keys, row, count)
    if not batch:
        return False
    if count == 1:
        return _is_cell(number_at(kinds, 0), batch + 8, row, key, size)
    for number in range(count):
        kind, length = number_at(kinds, number), I64(8)
        if kind >= TEXT:
            length = number_at(key, 0)
            key += 8
        if not _is_cell(kind, batch + 8 * (1 + COLUMN_FIELDS * number), row, key, length):
            return False
        key += length
    return True


@inlined
def _is_cell(kind: int, column: int, row: int, key: int, size: int) -> Any:
    if kind < TEXT:
        return _number(kind, number_at(column, 2), row) == number_at(key, 0)
    if not is_inside(column, row):
        return False
    offsets = number_at(column, 1)
    start = I64(half_at(offsets + 4 * row))
    if I64(half_at(offsets + 4 * row + 4)) - start != size:
        return False
    cell, at = number_at(column, 2) + start, 0
    while at + 8 <= size:
        if word_at(cell + at) != word_at(key + at):
            return False
        at += 8
    while at < size:
        if byte_at(cell + at) != byte_at(key + at):
            return False
        at += 1
    return True


@inlined
def is_inside(column: int, row: int) -> Any:
    """Return whether the bytes of a cell of text or bytes lie in the data of its column."""
    offsets = number_at(column, 1)
    start, stop = half_at(offsets + 4 * row), half_at(offsets + 4 * row + 4)
    return start <= stop and I64(stop) <= number_at(column, 3)


@inlined
def _new_cell(table: int, kind: int, column: int, row: int) -> Any:
    valid, data = number_at(column, 0), number_at(column, 2)
    if valid and not byte_at(valid + (row >> 3)) >> U64(row & 7) & U64(1):
        return _new_none(table)
    if kind >= TEXT:
        offsets = number_at(column, 1)
        start = I64(half_at(offsets + 4 * row))
        size = I64(half_at(offsets + 4 * row + 4)) - start
        return objects.new_text(data + start, size, 0) if kind == TEXT else objects.new_bytes(data + start, size)
    if kind == FLOAT64:
        return objects.new_float(objects.double_at(data + 8 * row))
    if kind == FLOAT32:
        return objects.new_float(objects.float_at(data + 4 * row))
    if kind == BOOLEAN:
        return objects.new_bool(I64(byte_at(data + (row >> 3)) >> U64(row & 7) & U64(1)))
    if kind == FIXED16:
        return objects.new_bytes(data + 16 * row, 16)
    return objects.new_int(_number(kind, data, row))


@inlined
def _number(kind: int, data: int, row: int) -> Any:
    """Return a whole number of a column."""
    if kind == INT64:
        return number_at(data, row)
    if kind == INT32:
        return _signed(half_at(data + 4 * row), 32)
    if kind == INT16:
        return _signed(pair_at(data + 2 * row), 16)
    return _signed(byte_at(data + row), 8)


@inlined
def _signed(number: Any, bits: int) -> Any:
    return I64(number << U64(64 - bits)) >> (64 - bits)
