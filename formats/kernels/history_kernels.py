"""The versions of one key as a message of Arrow: the search in all segments, and copies of cells, in one compiled call.

It is the search of `belief_kernels` for many moments, and reads cells at the addresses that `answer_kernels` reads. No
Python object is made, so the caller's thread holds the GIL all the time, and no batch is dropped meanwhile. What is
copied goes to the body of one message, whose size is checked before anything is written. Arrow reads a message of eight
columns in a quarter of the time in which it makes them one by one.
"""

from __future__ import annotations

from typing import Any

from numba import types

from statestore.formats.kernels import python_objects as objects
from statestore.formats.kernels.addresses import (
    byte_at,
    copy_memory,
    half_at,
    pair_at,
    put_byte,
    put_half,
    put_pair,
    put_word,
    word_at,
)
from statestore.formats.kernels.answer_kernels import (
    BOOLEAN,
    COLUMN_FIELDS,
    FIXED16,
    INT64,
    TEXT,
    batch_of,
    is_inside,
    is_key,
    width_of,
)
from statestore.formats.kernels.arrays import OPEN, Ints
from statestore.formats.kernels.belief_kernels import (
    BUCKET_SHIFT,
    CLOSURE_RUNS,
    CLOSURE_TABLE,
    COLUMNS,
    DIRECTORY,
    EVERY,
    FIELDS,
    FIRST_START,
    HASHES,
    HEAD,
    KEY_COUNT,
    KEY_KINDS,
    KEYS,
    KINDS,
    LAST_END,
    LEAST_END,
    PLACE,
    ROW_ENDS,
    ROW_STARTS,
    ROWS,
    SHIFT,
    VALUES,
    WIDTH,
    WORDS,
    WRITTEN,
    is_in_window,
    newest_end,
    number_at,
    number_of,
    search,
)
from statestore.formats.kernels.compiled import I64, U64, holding_gil, inlined
from statestore.formats.kernels.python_objects import python_object

# Instead of a number of rows: compiled code does not know; a batch of a row is not at hand; the message has no room.
UNKNOWN, NOT_AT_HAND, NO_ROOM = -1, -2, -3
# A row that was found: its place in the order of a scan, its slot and number, and its newest end.
IN_ORDER, SLOT, ROW, END, ROW_FIELDS = range(5)
# Where a column is in the body: its validity bits, how many cells are null, its offsets, its data, and their bytes.
BITS, NULLS, OFFSETS, DATA, SIZE, REGION_FIELDS = range(6)
# The words of a message that have the bytes of its body, its rows, and where nodes, buffers and body begin.
BODY_BYTES, MESSAGE_ROWS, NODES, BUFFERS, BODY, PLACES = range(6)

NUMBERS = types.int64[::1]
COPY_VERSIONS = types.int64(
    types.int64, python_object, types.uint64, types.int64, types.int64, NUMBERS, NUMBERS, NUMBERS, NUMBERS
)


@holding_gil
def copy_versions(
    table: int, key: Any, key_hash: Any, low: int, high: int, rows: Ints, regions: Ints, places: Ints, message: Ints
) -> Any:
    """Copy the versions of a key that are valid at a moment of the window [low, high], and return how many they are.

    ``key`` is a bytes object, as for `answer_kernels.read_key`. Columns are those of keys and of values,
    start, end and version. ``rows`` has room for ROW_FIELDS numbers of each row, ``regions`` for REGION_FIELDS of each
    column. ``message`` begins with the metadata of a batch of these columns, whose numbers are in the words that
    ``places`` names. Where it has no room, nothing is copied, and its first word is the bytes that the body needs.
    """
    name = objects.address_of(key)
    count = _found_rows(table, objects.bytes_data(name), objects.bytes_size(name), key_hash, low, high, rows)
    if count <= 0:
        return count
    _sort(rows, count)
    columns = number_at(table, KEY_COUNT) + number_at(table, COLUMNS)
    used = I64(0)
    for number in range(columns + 3):
        kind = _kind_of(table, number, columns)
        region = REGION_FIELDS * number
        regions[region + BITS], regions[region + NULLS] = used, 0
        used += ((count + 63) >> 6) << 3
        texts = I64(0)
        if kind >= TEXT:
            regions[region + OFFSETS] = used
            used += ((count + 2) >> 1) << 3
            texts = _text_bytes(table, rows, count, number, columns)
            if texts < 0:
                return texts
            if texts >= 1 << 31:
                return UNKNOWN
        elif kind == BOOLEAN:
            texts = (count + 7) >> 3
        else:
            texts = count * width_of(kind)
        regions[region + DATA], regions[region + SIZE] = used, texts
        used += ((texts + 15) >> 4) << 4
    body = places[BODY]
    if used > 8 * (len(message) - body):
        message[0] = used
        return NO_ROOM
    for place in range(used >> 3):
        message[body + place] = 0
    target = message.ctypes.data + 8 * body
    for number in range(columns):
        if not _copy_cells(table, rows, count, number, columns, regions, target):
            return NOT_AT_HAND
    _copy_times(table, rows, count, columns, regions, target)
    message[places[BODY_BYTES]], message[places[MESSAGE_ROWS]] = used, count
    node, at = places[NODES], places[BUFFERS]
    for number in range(columns + 3):
        region = REGION_FIELDS * number
        nulls = regions[region + NULLS]
        message[node], message[node + 1] = count, nulls
        message[at], message[at + 1] = regions[region + BITS], ((count + 7) >> 3) * I64(nulls > 0)
        if _kind_of(table, number, columns) >= TEXT:
            at += 2
            message[at], message[at + 1] = regions[region + OFFSETS], 4 * count + 4
        message[at + 2], message[at + 3] = regions[region + DATA], regions[region + SIZE]
        node, at = node + 2, at + 4
    return count


@inlined
def _kind_of(table: int, number: int, columns: int) -> Any:
    """Return the kind of a column of the answer."""
    keys = number_at(table, KEY_COUNT)
    if number < keys:
        return number_at(number_at(table, KEY_KINDS), number)
    return number_at(number_at(table, KINDS), number - keys) if number < columns else INT64


@inlined
def _found_rows(table: int, key: int, size: int, hash_: Any, low: int, high: int, rows: Ints) -> Any:
    """Fill in the rows of a key in all segments, in no order, and return their number."""
    count, room = I64(0), len(rows) // ROW_FIELDS
    width = number_at(table, WIDTH)
    bucket = number_at(table, WORDS) + 8 * width * I64(hash_ >> U64(number_at(table, SHIFT)))
    every = number_at(table, EVERY)
    for word in range(width):
        slots = word_at(bucket + 8 * word) | word_at(every + 8 * word)
        fields = table + 8 * (HEAD + 64 * FIELDS * word)
        slot = 64 * word
        while slots:
            last = number_at(fields, LAST_END)
            if slots & U64(1) and number_at(fields, FIRST_START) <= min(high, last) and last > low:
                if not number_at(fields, HASHES):
                    return UNKNOWN
                count = _rows_in(table, fields, slot, key, size, hash_, low, high, rows, count, room)
                if count < 0:
                    return count
            slots >>= U64(1)
            fields += 8 * FIELDS
            slot += 1
    return count


@inlined
def _rows_in(
    table: int,
    fields: int,
    slot: int,
    key: int,
    size: int,
    hash_: Any,
    low: int,
    high: int,
    rows: Ints,
    count: int,
    room: int,
) -> Any:
    """Add the rows of a key in one segment, and return how many there are now."""
    hashes, starts = number_at(fields, HASHES), number_at(fields, ROW_STARTS)
    bucket = number_at(fields, DIRECTORY)
    if number_at(fields, BUCKET_SHIFT) < 64:  # the processor shifts by 64 as by 0
        bucket += 4 * I64(hash_ >> U64(number_at(fields, BUCKET_SHIFT)))
    stop = I64(half_at(bucket + 4))
    entry = I64(search(hashes, I64(half_at(bucket)), stop, hash_))
    runs = number_at(fields, CLOSURE_RUNS)
    while entry < stop and word_at(hashes + 8 * entry) == hash_:
        row = I64(half_at(number_at(fields, ROWS) + 4 * entry))
        entry += 1
        start = number_of(starts, row)
        end = newest_end(number_at(fields, CLOSURE_TABLE), runs, row, number_of(number_at(fields, ROW_ENDS), row))
        if not is_in_window(start, end, low, high):
            continue
        batch, _ = batch_of(number_at(fields, KEYS), row, number_at(table, KEY_COUNT))
        if not batch:
            return NOT_AT_HAND
        if not is_key(table, number_at(fields, KEYS), row, key, size):
            continue
        if count == room or (not runs and number_at(fields, LEAST_END) <= low):
            return UNKNOWN
        at = ROW_FIELDS * count
        rows[at + IN_ORDER] = (I64(runs > 0) << 62) | (number_at(fields, PLACE) << 32) | row
        rows[at + SLOT], rows[at + ROW], rows[at + END] = slot, row, end
        count += 1
    return count


@inlined
def _sort(rows: Ints, count: int) -> None:
    """Sort rows by their places; those of a segment mostly are in order."""
    for number in range(1, count):
        at = ROW_FIELDS * number
        order, slot, row, end = rows[at], rows[at + SLOT], rows[at + ROW], rows[at + END]
        while at > 0 and rows[at - ROW_FIELDS] > order:
            for field in range(ROW_FIELDS):
                rows[at + field] = rows[at - ROW_FIELDS + field]
            at -= ROW_FIELDS
        rows[at], rows[at + SLOT], rows[at + ROW], rows[at + END] = order, slot, row, end


@inlined
def _cell(table: int, rows: Ints, index: int, number: int, columns: int) -> Any:
    """Return the address of the column of a row's batch, 0 if it is not at hand, and the row in the batch."""
    slot, row = rows[ROW_FIELDS * index + SLOT], rows[ROW_FIELDS * index + ROW]
    fields = table + 8 * (HEAD + FIELDS * slot)
    keys = number_at(table, KEY_COUNT)
    if number < keys:
        batch, row = batch_of(number_at(fields, KEYS), row, keys)
    else:
        number -= keys
        batch, row = batch_of(number_at(fields, VALUES), row, columns - keys)
    return (batch + 8 * (1 + COLUMN_FIELDS * number), row) if batch else (batch, row)


@inlined
def _is_null(column: int, row: int) -> Any:
    valid = number_at(column, 0)
    return valid != 0 and not byte_at(valid + (row >> 3)) >> U64(row & 7) & U64(1)


@inlined
def _text_bytes(table: int, rows: Ints, count: int, number: int, columns: int) -> Any:
    """Return the bytes of the texts of a column."""
    total = I64(0)
    for index in range(count):
        column, row = _cell(table, rows, index, number, columns)
        if not column:
            return NOT_AT_HAND
        if not is_inside(column, row):
            return UNKNOWN
        if not _is_null(column, row):
            offsets = number_at(column, 1) + 4 * row
            total += I64(half_at(offsets + 4)) - I64(half_at(offsets))
    return total


@inlined
def _copy_cells(table: int, rows: Ints, count: int, number: int, columns: int, regions: Ints, target: int) -> Any:
    """Copy the cells of a column; false where a batch is not at hand."""
    kind, region = _kind_of(table, number, columns), REGION_FIELDS * number
    bits, offsets = target + regions[region + BITS], target + regions[region + OFFSETS]
    data, filled, nulls = target + regions[region + DATA], I64(0), I64(0)
    for index in range(count):
        column, row = _cell(table, rows, index, number, columns)
        if not column:
            return False
        if _is_null(column, row):
            nulls += 1
        else:
            at = bits + (index >> 3)
            put_byte(at, byte_at(at) | U64(1) << U64(index & 7))
            source = number_at(column, 2)
            if kind >= TEXT:
                begin = I64(half_at(number_at(column, 1) + 4 * row))
                length = I64(half_at(number_at(column, 1) + 4 * row + 4)) - begin
                copy_memory(data + filled, source + begin, length)
                filled += length
            elif kind == BOOLEAN:
                at = data + (index >> 3)
                bit = byte_at(source + (row >> 3)) >> U64(row & 7) & U64(1)
                put_byte(at, byte_at(at) | bit << U64(index & 7))
            elif kind == FIXED16:
                put_word(data + 16 * index, word_at(source + 16 * row))
                put_word(data + 16 * index + 8, word_at(source + 16 * row + 8))
            elif width_of(kind) == 8:
                put_word(data + 8 * index, word_at(source + 8 * row))
            elif width_of(kind) == 4:
                put_half(data + 4 * index, half_at(source + 4 * row))
            elif width_of(kind) == 2:
                put_pair(data + 2 * index, pair_at(source + 2 * row))
            else:
                put_byte(data + index, byte_at(source + row))
        if kind >= TEXT:
            put_half(offsets + 4 * (index + 1), U64(filled))
    regions[region + NULLS] = nulls
    return True


@inlined
def _copy_times(table: int, rows: Ints, count: int, columns: int, regions: Ints, target: int) -> None:
    """Copy starts, ends and versions."""
    start, end = REGION_FIELDS * columns, REGION_FIELDS * (columns + 1)
    version, nulls = REGION_FIELDS * (columns + 2), I64(0)
    bits = target + regions[end + BITS]
    for index in range(count):
        slot, row = rows[ROW_FIELDS * index + SLOT], rows[ROW_FIELDS * index + ROW]
        fields = table + 8 * (HEAD + FIELDS * slot)
        until = rows[ROW_FIELDS * index + END]
        put_word(target + regions[start + DATA] + 8 * index, U64(number_of(number_at(fields, ROW_STARTS), row)))
        put_word(target + regions[end + DATA] + 8 * index, U64(until))
        put_word(target + regions[version + DATA] + 8 * index, U64(number_of(number_at(fields, WRITTEN), row)))
        if until == OPEN:
            nulls += 1
        else:
            at = bits + (index >> 3)
            put_byte(at, byte_at(at) | U64(1) << U64(index & 7))
    regions[end + NULLS] = nulls
