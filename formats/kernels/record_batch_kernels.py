"""Compiled loops over Kafka's record batches of format 2: headers, checksums, records and record headers.

A row of the table of batches has COLUMNS numbers. ``report`` returns what stopped a loop: the status, the position and
two numbers for the message.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from statestore.formats.kernels.arrays import Bytes, Ints
from statestore.formats.kernels.batch_layout import (
    ATTRIBUTES,
    BAD_CHECKSUM,
    BAD_MAGIC,
    BAD_SIZE,
    BASE_OFFSET,
    BASE_TIME,
    COUNT,
    CRC_BEGIN,
    FIXED,
    HEADER,
    LAST_DELTA,
    LOG_APPEND_TIME,
    MAX_TIME,
    POSITION,
    PRODUCER,
    SIZE,
)
from statestore.formats.kernels.checksum_kernels import crc32c
from statestore.formats.kernels.compiled import I64, U64, big_word, inlined, kernel

Table = npt.NDArray[np.int64]  # of two dimensions


@inlined
def _int32(data: Bytes, at: int) -> Any:
    return I64(big_word(data, at)) >> 32


@kernel
def walk_batches(data: Bytes, at: int, stop: int, check: bool, table: Table, report: Ints) -> int:
    """Fill in a row for each whole batch of ``data[at:stop]`` and return their number; POSITION counts from 0.

    Ends before a batch that is not whole, that the table has no room for, or that the report names. ``report[1]`` is
    where it ended.
    """
    report[0] = 0
    filled = 0
    while filled < len(table):
        report[1] = at
        if stop - at < HEADER:
            break
        size = _int32(data, at + 8) + FIXED
        magic = I64(data[at + 16])
        if magic != 2:
            report[0], report[2] = BAD_MAGIC, magic
            break
        if size < HEADER:
            report[0], report[2] = BAD_SIZE, size
            break
        if size > stop - at:
            break
        if check:
            stored = _int32(data, at + 17) & 0xFFFFFFFF
            found = I64(crc32c(data, at + CRC_BEGIN, size - CRC_BEGIN))
            if stored != found:
                report[0], report[2], report[3] = BAD_CHECKSUM, stored, found
                break
        row = table[filled]
        row[POSITION], row[SIZE] = at, size
        row[BASE_OFFSET] = I64(big_word(data, at))
        row[ATTRIBUTES] = _int32(data, at + 21) >> 16
        row[LAST_DELTA] = _int32(data, at + 23)
        row[BASE_TIME], row[MAX_TIME] = I64(big_word(data, at + 27)), I64(big_word(data, at + 35))
        row[PRODUCER] = I64(big_word(data, at + 43))
        row[COUNT] = I64(big_word(data, at + 53)) << 32 >> 32
        filled += 1
        at += size
        report[1] = at
    return filled


@inlined
def _varint(data: Bytes, at: int, stop: int) -> Any:
    """(number, position behind it); the position is -1 where the number does not end in time."""
    number, shift = U64(0), 0
    while at < stop and shift < 70:
        byte = U64(data[at])
        at += 1
        number |= (byte & U64(127)) << U64(shift)
        if byte < U64(128):
            return I64(number >> U64(1)) ^ -I64(number & U64(1)), I64(at)
        shift += 7
    return I64(0), I64(-1)


@kernel
def parse_records(data: Bytes, begin: Ints, end: Ints, table: Table, present: Ints, columns: Table) -> int:
    """Fill in the columns of the records of batches, whose records are ``data[begin:end]``; -1, or the bad batch.

    The rows of ``columns``: offset, timestamp, number of offsets below that nothing was seen of, begin and size of key
    and of value (size -1: null), begin and end of the record headers and their number. ``present`` is how many records
    precede each batch.
    """
    filled = 0
    for batch in range(len(table)):
        row = table[batch]
        at, stop = begin[batch], end[batch]
        base, appended = row[BASE_OFFSET], row[ATTRIBUTES] & LOG_APPEND_TIME != 0
        before = I64(-1)
        for number in range(row[COUNT]):
            size, at = _varint(data, at, stop)
            if at < 0 or size < 6 or size > stop - at:
                return batch
            last = at + size
            time, at = _varint(data, at + 1, last)
            if at < 0:
                return batch
            delta, at = _varint(data, at, last)
            if at < 0 or delta <= before or delta > row[LAST_DELTA]:
                return batch
            before = delta
            columns[0, filled] = base + delta
            columns[1, filled] = row[MAX_TIME] if appended else row[BASE_TIME] + time
            columns[2, filled] = base + delta - present[batch] - number
            for column in (3, 5):
                size, at = _varint(data, at, last)
                if at < 0 or size < -1 or size > last - at:
                    return batch
                columns[column, filled], columns[column + 1, filled] = at, size
                if size > 0:
                    at += size
            count, at = _varint(data, at, last)
            if at < 0 or count < 0 or 2 * count > last - at or (count == 0 and at != last):
                return batch
            columns[7, filled], columns[8, filled], columns[9, filled] = at, last, count
            at = last
            filled += 1
        if at != stop:
            return batch
    return -1


@kernel
def parse_headers(data: Bytes, begin: Ints, end: Ints, count: Ints, columns: Table) -> int:
    """Fill in begin and size of name and of value of record headers; -1, or the number of the bad record."""
    filled = 0
    for record in range(len(begin)):
        at, stop = begin[record], end[record]
        for _ in range(count[record]):
            for column in (0, 2):
                size, at = _varint(data, at, stop)
                if at < 0 or size < column // 2 * -1 or size > stop - at:
                    return record
                columns[column, filled], columns[column + 1, filled] = at, size
                if size > 0:
                    at += size
            filled += 1
        if at != stop:
            return record
    return -1
