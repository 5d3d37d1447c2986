"""A few rows of a database, from which the kind and the serdes of its store are guessed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from statestore.formats.errors import StateStoreError
from statestore.formats.kafka.directory.applications import Application, StorePartition
from statestore.formats.kafka.directory.database_copies import opened_copy
from statestore.formats.kafka.directory.store_facts import read_facts
from statestore.formats.kafka.directory.stored_offsets import FAMILY as OFFSETS
from statestore.formats.rocksdb.key_ranges import KeyRange
from statestore.formats.rocksdb.opened_families import Family, opened_family

ROWS = 256
"""Most rows of a family in one database that are sampled: half of them from each end."""
MOST_DATABASES = 8
_MOST_BYTES = 8 << 20


@dataclass(frozen=True)
class Sample:
    """Rows of one family of one database.

    ``start`` and ``end`` are the times from and before which its segment has rows, as far as names show: epoch
    milliseconds, None where unknown.
    """

    family: str
    start: int | None
    end: int | None
    rows: tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True)
class StoreSamples:
    """Samples of a store. ``families`` are all its column families with user data, empty ones too.

    ``problems`` are sentences about databases that could not be read.
    """

    store: str
    segmented: bool
    families: frozenset[str]
    samples: tuple[Sample, ...]
    problems: tuple[str, ...] = ()


def sample_store(application: Application, store: str) -> StoreSamples:
    """Sample some of the databases of a store, from all its partitions.

    A store of this name in another topology, or that is segmented in one task and not in another, counts as one store.
    """
    partitions = [partition for partition in application.partitions if partition.store == store]
    families: set[str] = set()
    samples: list[Sample] = []
    problems: list[str] = []
    for partition, position in _spread(partitions):
        database = partition.databases[position]
        start, end = _bounds(partition, position)
        try:
            with opened_copy(application.folder.at(*database.path.split("/"))) as copy:
                found, _ = read_facts(copy, database.path, problems, offsets=False)
                data = [family for family in found if family.name != OFFSETS]
                families |= {family.name for family in data}
                samples += (
                    Sample(family.name, start, end, sample_rows(copy, family.name))
                    for family in data
                    if family.has_rows
                )
        except StateStoreError as error:
            problems.append(error.message)
    segmented = any(partition.segmented for partition in partitions)
    return StoreSamples(store, segmented, frozenset(families), tuple(samples), tuple(problems))


def sample_rows(directory: Path, family: str, most: int = ROWS) -> tuple[tuple[bytes, bytes], ...]:
    """Up to ``most`` rows of a family of a private copy, in key order: from both ends where there are more.

    Raises CorruptError ROCKSDB_FILE, StorageError.
    """
    with opened_family(directory, family) as table:
        first = _some(table, most // 2, backwards=False)
        last = _some(table, most - most // 2, backwards=True)
    return tuple(sorted({**first, **last}.items()))


def _some(table: Family, most: int, *, backwards: bool) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    size = 0
    for key, value in islice(table.pairs(KeyRange(), backwards=backwards), most):
        found[key] = value
        size += len(value)
        if size >= _MOST_BYTES:
            break
    return found


def _spread(partitions: Sequence[StorePartition]) -> list[tuple[StorePartition, int]]:
    """Some databases of all partitions: of each one after another, newest segments first."""
    found: list[tuple[StorePartition, int]] = []
    depth = max((len(partition.databases) for partition in partitions), default=0)
    for back in range(depth):
        found += (
            (partition, len(partition.databases) - 1 - back)
            for partition in partitions
            if back < len(partition.databases)
        )
    return found[:MOST_DATABASES]


def _bounds(partition: StorePartition, position: int) -> tuple[int | None, int | None]:
    start = partition.databases[position].start
    later = (database.start for database in partition.databases[position + 1 :] if database.start != start)
    return start, next(later, None)
