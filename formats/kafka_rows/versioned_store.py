"""Rows of Kafka Streams' versioned store: the latest value of a key, and its history in one segment, as bytes.

The layouts and operations are those of ``RocksDBVersionedStore`` and ``RocksDBVersionedStoreSegmentValueFormatter``
(KIP-889). All numbers are big-endian, all times epoch milliseconds. A history row holds

    next_timestamp int64    where its newest version ends
    min_timestamp  int64    where its oldest version starts
    (valid_from int64, size int32)*    newest first; size -1 is a tombstone
    values                  oldest first; tombstones add nothing

and each version ends where the newer one starts. A *degenerate* row (both timestamps equal, one tombstone) only records
that the key was deleted then.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, InvalidInputError

Value = bytes | None
Version = tuple[int, Value]

BOUNDS = Struct(">qq")
ENTRY = Struct(">qi")
TIME = Struct(">q")
LATEST_SEGMENT = -1
TOMBSTONE = -1


def row_key(time_segment: int, key: bytes) -> bytes:
    """``segment id:int64 | key``; the latest value is in segment -1."""
    return TIME.pack(time_segment) + key


def split_row_key(data: bytes) -> tuple[int, bytes]:
    """(segment id, key) of a row key."""
    if len(data) < TIME.size:
        raise _corrupt(f"a row key of {len(data)} bytes, expected at least {TIME.size}")
    return TIME.unpack_from(data)[0], data[TIME.size :]


def encode_latest(valid_from: int, value: bytes) -> bytes:
    return TIME.pack(valid_from) + value


def decode_latest(data: bytes) -> tuple[int, bytes]:
    """(valid_from, value) of a latest row."""
    if len(data) < TIME.size:
        raise _corrupt(f"a latest row of {len(data)} bytes, expected at least {TIME.size}")
    return TIME.unpack_from(data)[0], data[TIME.size :]


@dataclass
class TimeSegmentRow:
    """The versions of one key in one segment, newest first."""

    next: int
    min: int
    versions: list[Version] = field(default_factory=list)

    @property
    def degenerate(self) -> bool:
        """True if the row records nothing but a deletion at one moment."""
        return self.next == self.min

    def intervals(self) -> list[tuple[int, int, Value]]:
        """(valid_from, valid_to, value) newest first, tombstones with value None."""
        ends = [self.next, *(start for start, _ in self.versions)]
        return [(start, end, value) for (start, value), end in zip(self.versions, ends, strict=False)]

    def find(self, time: int) -> tuple[int, int]:
        """(position, valid_to) of the version at ``time``. Raises InvalidInputError NOT_IN_ROW outside min to next."""
        end = self.next
        if time < end:
            for position, (start, _) in enumerate(self.versions):
                if start <= time:
                    return position, end
                end = start
        raise InvalidInputError(ErrorCode.NOT_IN_ROW, f"found time {time}, expected {self.min} to before {self.next}")

    def insert_latest(self, valid_from: int, valid_to: int, value: Value) -> None:
        """Add a version after all others; first drop versions that an interrupted write left beyond ``valid_from``."""
        if self.degenerate:
            self.versions = [(self.min, None)] if self.min < valid_from else []
        elif self.next > valid_from:
            self.versions = [version for version in self.versions if version[0] < valid_from]
        elif self.next < valid_from:
            self.versions.insert(0, (self.next, None))
        if not self.versions:
            self.min = valid_from
        self.versions.insert(0, (valid_from, value))
        self.next = valid_to

    def insert_earliest(self, time: int, value: Value) -> None:
        """Add a version before all others. It ends where the oldest of them starts."""
        if self.degenerate:
            self.versions = [(time, value)]
        else:
            self.versions.append((time, value))
        self.min = time

    def insert(self, time: int, value: Value, position: int) -> None:
        """Split the version at position ``position``: from ``time`` on, the row has ``value``."""
        self.versions.insert(position, (time, value))
        if position == len(self.versions) - 1:
            self.min = time

    def update(self, time: int, value: Value, position: int) -> None:
        """Replace start and value of a version."""
        self.versions[position] = (time, value)
        if position == len(self.versions) - 1:
            self.min = time


def encode_row(row: TimeSegmentRow) -> bytes:
    parts = [BOUNDS.pack(row.next, row.min)]
    parts += [ENTRY.pack(start, TOMBSTONE if value is None else len(value)) for start, value in row.versions]
    parts += [value for _, value in reversed(row.versions) if value is not None]
    return b"".join(parts)


def decode_row(data: bytes) -> TimeSegmentRow:
    """Decode the bytes of a history row. Raises CorruptError VERSIONED_ROW for other bytes."""
    if len(data) < BOUNDS.size + ENTRY.size:
        raise _corrupt(f"a history row of {len(data)} bytes")
    newest, oldest = BOUNDS.unpack_from(data)
    entries: list[tuple[int, int]] = []
    at = BOUNDS.size
    while True:
        if at + ENTRY.size > len(data):
            raise _corrupt(f"its entries do not end with one at {oldest}")
        start, size = ENTRY.unpack_from(data, at)
        at += ENTRY.size
        limit = entries[-1][0] if entries else newest
        degenerate = not entries and start == newest == oldest and size < 0
        if not (oldest <= start < limit or degenerate):
            raise _corrupt(f"a version at {start}, expected {oldest} to before {limit}")
        entries.append((start, size))
        if start == oldest:
            break
    versions: list[Version] = []
    stop = len(data)
    for start, size in entries:
        begin = stop - max(size, 0)
        if begin < at:
            raise _corrupt(f"a value of {size} bytes in a row of {len(data)}")
        versions.append((start, None if size < 0 else data[begin:stop]))
        stop = begin
    if stop != at:
        raise _corrupt(f"{stop - at} bytes that belong to no version")
    return TimeSegmentRow(newest, oldest, versions)


def _corrupt(found: str) -> CorruptError:
    return CorruptError(
        ErrorCode.VERSIONED_ROW, f"not a row of a versioned store: {found}; restore the directory from a copy"
    )
