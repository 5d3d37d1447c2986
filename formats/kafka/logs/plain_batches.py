"""The loops of ``record_batch_kernels`` without compilation: for small logs, and where numba is absent."""

from __future__ import annotations

from struct import Struct

import numpy as np

from statestore.formats.bytes.crc32c import plain_crc32c
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
)

# base offset, size, leader epoch, magic, CRC, attributes, last offset delta, times, producer, epoch, sequence, records
_HEADER = Struct(">qiibIhiqqqhii")


class BadRecord(Exception):
    """A record, header or number does not end where it must."""


def walk_batches(data: Bytes, at: int, stop: int, check: bool, table: Ints, report: Ints) -> int:
    """Fill in a row of the table for each whole batch, as ``record_batch_kernels.walk_batches``."""
    view = data.data
    report[0] = filled = 0
    while filled < len(table):
        report[1] = at
        if stop - at < HEADER:
            break
        base, size, _, magic, stored, attributes, delta, time, most, producer, _, _, count = _HEADER.unpack_from(
            view, at
        )
        size += FIXED
        if magic != 2:
            report[0], report[2] = BAD_MAGIC, magic & 0xFF
            break
        if size < HEADER:
            report[0], report[2] = BAD_SIZE, size
            break
        if size > stop - at:
            break
        found = plain_crc32c(data[at + CRC_BEGIN : at + size]) if check else stored
        if found != stored:
            report[0], report[2], report[3] = BAD_CHECKSUM, stored, found
            break
        table[filled] = (at, size, base, delta, count, attributes, time, most, producer)
        filled += 1
        at += size
        report[1] = at
    return filled


def parse_records(data: Bytes, begin: Ints, end: Ints, table: Ints, present: Ints, columns: Ints) -> int:
    """Fill in the columns of the records of batches, as ``record_batch_kernels.parse_records``."""
    content = data.tobytes()
    rows: list[tuple[int, ...]] = []
    for batch, row in enumerate(table.tolist()):
        appended = row[MAX_TIME] if row[ATTRIBUTES] & LOG_APPEND_TIME else None
        try:
            rows += _records(content, int(begin[batch]), int(end[batch]), row, int(present[batch]), appended)
        except BadRecord:
            return batch
    if rows:
        columns[:, :] = np.array(rows, np.int64).T
    return -1


def _records(
    content: bytes, at: int, stop: int, row: list[int], present: int, appended: int | None
) -> list[tuple[int, ...]]:
    found: list[tuple[int, ...]] = []
    base, before = row[BASE_OFFSET], -1
    for number in range(row[COUNT]):
        size, at = _varint(content, at, stop)
        if size < 6 or size > stop - at:
            raise BadRecord
        last = at + size
        time, at = _varint(content, at + 1, last)
        delta, at = _varint(content, at, last)
        if not before < delta <= row[LAST_DELTA]:
            raise BadRecord
        before = delta
        key, key_size = _sized(content, at, last, -1)
        value, value_size = _sized(content, key + max(key_size, 0), last, -1)
        count, at = _varint(content, value + max(value_size, 0), last)
        if count < 0 or 2 * count > last - at or (count == 0 and at != last):
            raise BadRecord
        stamp = row[BASE_TIME] + time if appended is None else appended
        offset = base + delta
        found.append(
            (offset, stamp, offset - present - number, key, key_size, value, value_size, at, last, count)  # as COLUMNS
        )
        at = last
    if at != stop:
        raise BadRecord
    return found


def parse_headers(data: Bytes, begin: Ints, end: Ints, count: Ints, columns: Ints) -> int:
    """Fill in begin and size of name and of value of record headers; -1, or the number of the bad record."""
    filled = 0
    for record, (at, stop, number) in enumerate(zip(begin.tolist(), end.tolist(), count.tolist(), strict=True)):
        if not number:
            continue
        content = data[at:stop].tobytes()
        place = 0
        try:
            for _ in range(number):
                name, name_size = _sized(content, place, len(content), 0)
                value, value_size = _sized(content, name + name_size, len(content), -1)
                place = value + max(value_size, 0)
                columns[:, filled] = at + name, name_size, at + value, value_size
                filled += 1
            if place != len(content):
                raise BadRecord
        except BadRecord:
            return record
    return -1


def _sized(content: bytes, at: int, stop: int, least: int) -> tuple[int, int]:
    size, at = _varint(content, at, stop)
    if not least <= size <= stop - at:
        raise BadRecord
    return at, size


def _varint(content: bytes, at: int, stop: int) -> tuple[int, int]:
    number = shift = 0
    while at < stop and shift < 70:
        byte = content[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            number &= (1 << 64) - 1
            return (number >> 1) ^ -(number & 1), at
        shift += 7
    raise BadRecord
