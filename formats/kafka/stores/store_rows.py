"""Stored rows of one store partition, as binary keys and values by column family and segment.

A family decides the form of the values in it, so a batch has rows of one family. A segmented store has a database for
each segment; they are read one after another, oldest first. Nothing here decodes a row.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, InvalidInputError
from statestore.formats.kafka.directory.applications import Database
from statestore.formats.kafka.directory.database_copies import metadata_of, opened_copy
from statestore.formats.kafka.directory.store_facts import read_facts
from statestore.formats.kafka.directory.stored_offsets import FAMILY as OFFSETS
from statestore.formats.kafka.stores.family_merge import Held, aligned, merged_families
from statestore.formats.kafka.stores.key_bounds import disjoint_ranges
from statestore.formats.kafka_rows.versioned_store import LATEST_SEGMENT, TIME
from statestore.formats.places.folder import Folder
from statestore.formats.places.reading_threads import in_order, reading_threads
from statestore.formats.rocksdb.kept_tables import Files, kept_families, looked_up
from statestore.formats.rocksdb.key_ranges import KeyRange, successor
from statestore.formats.rocksdb.opened_families import Family, opened_family, rows_in
from statestore.formats.rocksdb.rocksdb_errors import Unreadable, corrupt
from statestore.formats.rocksdb.rows import BATCH_ROWS, DEFAULT_FAMILY, ROW_SCHEMA
from statestore.formats.rocksdb.scan import scan_rocksdb

TIMESTAMPED = "keyValueWithTimestamp"
FAMILIES = (
    "windowKeyValueWithHeaders",
    "sessionKeyValueWithHeaders",
    "keyValueWithTimestampAndHeaders",
    TIMESTAMPED,
    DEFAULT_FAMILY,
)
"""Families with user data in any kind of store, newest first."""
ALL = (KeyRange(),)
T = TypeVar("T")


@dataclass(frozen=True)
class StoredRows:
    """A batch of rows (key: binary, value: binary) of one family, in key order.

    ``start`` is the start of their segment in epoch milliseconds as its name has it; None: the store is not segmented.
    """

    family: str
    start: int | None
    rows: pa.RecordBatch


def read_rows(
    application: Folder,
    databases: Sequence[Database],
    each: Callable[[StoredRows], T],
    *,
    families: Sequence[str] | None = None,
    key_ranges: Sequence[KeyRange] = ALL,
    batch_rows: int = BATCH_ROWS,
) -> Iterator[T]:
    """Yield ``each(rows)`` of the batches of rows of databases below an application's folder, one after another.

    ``families`` are the store kind's families, newest first; None: whatever families there are. ``key_ranges`` are
    ranges of row keys; no row is read twice where they overlap. Other keys of a range with a hole may be among the
    rows. ``each`` is called by the threads that read. Memory holds a few batches and a private copy of one database at
    a time.

    A database without a table file yields nothing, which does not mean that the store is empty: see `store_facts`.

    Raises CorruptError ROCKSDB_FILE, InvalidInputError KAFKA_STORE_KIND for rows in a family that the kind does not
    have, and the errors of `opened_copy`.
    """
    for database in databases:
        with opened_copy(application.at(*database.path.split("/"))) as copy:
            yield from read_database(
                copy, each, families=families, start=database.start, key_ranges=key_ranges, batch_rows=batch_rows
            )


def read_database(
    directory: Path,
    each: Callable[[StoredRows], T],
    *,
    families: Sequence[str] | None = None,
    start: int | None = None,
    key_ranges: Sequence[KeyRange] = ALL,
    batch_rows: int = BATCH_ROWS,
    lookup: bool = False,
) -> Iterator[T]:
    """Yield ``each(rows)`` of the batches of one database, of which ``directory`` is a private copy, as `read_rows`.

    ``lookup``: few rows are expected in each range.
    """
    present, key_ranges = _with_rows(directory, families), disjoint_ranges(key_ranges)

    if len(present) == 1:
        family = present[0]
        yield from scan_rocksdb(
            directory,
            lambda rows: each(StoredRows(family, start, rows)),
            family=family,
            key_ranges=key_ranges,
            batch_rows=batch_rows,
            lookup=lookup,
        )
        return
    if not present:
        return
    scans = [
        scan_rocksdb(directory, _itself, family=family, key_ranges=key_ranges, batch_rows=batch_rows, lookup=lookup)
        for family in present
    ]
    batches = (StoredRows(present[position], start, rows) for position, rows in merged_families(scans))
    yield from in_order(each, batches, reading_threads())


def looked_up_rows(
    database: Folder, families: Sequence[str], start: int | None, ranges: Sequence[KeyRange]
) -> list[StoredRows] | None:
    """Return the rows of ranges with few rows each in a local database, read where its files lie.

    None where a private copy is needed, also for the errors of files.
    """
    present: list[str] = []

    def find() -> list[Files]:
        known = kept_families(metadata_of(database), database.path)
        filled = {name for name, each in known.items() if each.files} - {OFFSETS}
        if not filled or filled - set(families):
            raise Unreadable(f"{database.path}: rows in other families, or none")
        present.extend(name for name in families if name in filled)
        return [(known[name], lambda entry: f"{database.path}/{entry.name}") for name in present]

    found = looked_up(find, disjoint_ranges(ranges), None, few=True, flags=os.O_RDONLY | os.O_NOFOLLOW)
    if found is None or any(left for _, left in found):
        return None
    merged = merged_families([iter(batches) for batches, _ in found])
    return [StoredRows(present[position], start, rows) for position, rows in merged]


def databases_until(databases: Sequence[Database], last: int | None) -> list[Database]:
    """The databases of a segmented store that may hold rows with a segment time up to ``last``, inclusive; None: all.

    The segment time of a window is its start, that of a session is its end; epoch milliseconds. Names show where a
    segment begins. Where it ends follows from the interval, which nothing on disk names and which may have changed.
    """
    # Integer division truncates toward zero, so segment 0 also has the times before it.
    return [each for each in databases if last is None or each.start is None or each.start <= max(last, 0)]


def _itself(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows


def _with_rows(directory: Path, families: Sequence[str] | None) -> list[str]:
    """Families with rows, newest first. Raises InvalidInputError for rows in a family outside ``families``."""
    problems: list[str] = []
    facts, _ = read_facts(directory, str(directory), problems, offsets=False)
    unread = [family.name for family in facts if family.has_rows is None]
    if unread:
        raise corrupt(str(directory), "; ".join(problems))
    present = {family.name for family in facts if family.has_rows and family.name != OFFSETS}
    wanted = FAMILIES if families is None else families
    other = sorted(present - set(wanted))
    if other:
        raise InvalidInputError(
            ErrorCode.KAFKA_STORE_KIND,
            f"{directory}: found rows in column family {', '.join(other)}, expected them in {', '.join(wanted)}; "
            "choose the kind of store that has this family",
        )
    return [family for family in wanted if family in present]


# Rows of a versioned store with all rows of a key side by side.
#
# The rows of a key are spread over the logical segments of the database: row keys are ``segment id:int64 | key``, and
# segment -1 has the latest value (``RocksDBVersionedStore``). Each segment is sorted by key, so they are read side by
# side, and a batch holds all rows of each of its keys. That is what a decoder needs to resolve overlaps between rows.
#
# The running store keeps its list of segments in memory only, so it is found by seeking from prefix to prefix. Rows of
# segments that expired while the application was down are still there, and are read, too.


MOST_SEGMENTS = 10_000
_LEAST_ROWS = 256


def read_versioned(
    directory: Path,
    *,
    key_ranges: Sequence[tuple[bytes | None, bytes | None]] = ((None, None),),
    batch_rows: int = BATCH_ROWS,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows (key: binary with the segment id in front, value: binary) of a versioned store.

    ``directory`` is a private copy of its database. ``key_ranges`` are ranges [from, to) of encoded keys without the
    segment id; where they overlap, they are one. All rows of a key are in one batch, those of a segment in key order. A
    batch has about ``batch_rows`` rows; memory holds as many again.

    Raises CorruptError ROCKSDB_FILE, CorruptError KAFKA_BYTES for a database that is not that of a versioned store.
    """
    with opened_family(directory, DEFAULT_FAMILY) as table:
        segments = find_segments(table, str(directory))
        pending: list[pa.RecordBatch] = []
        count = 0
        for within in disjoint_ranges([KeyRange(first, stop) for first, stop in key_ranges]):
            for span in _spans(table, segments, within, batch_rows):
                pending += span
                count += sum(rows.num_rows for rows in span)
                if count >= batch_rows:
                    yield _joined(pending)
                    pending, count = [], 0
        if pending:
            yield _joined(pending)


def segments_of(directory: Path) -> list[int]:
    """The segment ids of a versioned store, -1 (latest values) last. Raises as `read_versioned`."""
    with opened_family(directory, DEFAULT_FAMILY) as table:
        return find_segments(table, str(directory))


def find_segments(table: Family, where: str) -> list[int]:
    """The segment ids of an opened versioned store, -1 last. Raises as `read_versioned`."""
    found: list[int] = []
    at = b""
    while True:
        batch = next(rows_in(table, KeyRange(at, None), 1), None)
        if batch is None:
            return found
        key: bytes = batch.column(0)[0].as_py()
        if len(key) < TIME.size or len(found) == MOST_SEGMENTS:
            raise _not_versioned(where, f"row key {key[:24].hex()} of {len(key)} bytes behind {len(found)} segments")
        (segment,) = TIME.unpack_from(key)
        if segment < LATEST_SEGMENT:
            raise _not_versioned(where, f"segment id {segment}")
        found.append(segment)
        behind = successor(key[: TIME.size])
        if behind is None:
            return found
        at = behind


def _spans(table: Family, segments: Sequence[int], within: KeyRange, batch_rows: int) -> Iterator[list[pa.RecordBatch]]:
    each = max(_LEAST_ROWS, batch_rows // max(1, len(segments)))
    ranges = [_range(segment, within.first, within.stop) for segment in segments]
    scans = [rows_in(table, segment_range, each) for segment_range in ranges]
    for span in aligned([Held(scan, TIME.size) for scan in scans]):
        yield [rows for rows in span if rows is not None]


def _range(segment: int, first: bytes | None, stop: bytes | None) -> KeyRange:
    prefix = TIME.pack(segment)
    return KeyRange(prefix + (first or b""), successor(prefix) if stop is None else prefix + stop)


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    (joined,) = pa.Table.from_batches(batches, ROW_SCHEMA).combine_chunks().to_batches()
    return joined


def _not_versioned(where: str, found: str) -> CorruptError:
    return CorruptError(
        ErrorCode.KAFKA_BYTES,
        f"{where}: found {found}, expected rows of a versioned store (segment id:int64 | key); choose another kind of "
        "store",
    )
