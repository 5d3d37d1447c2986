"""Rows of versioned stores as columns, a row for each version (``RocksDBVersionedStore``; KIP-889).

A row key is ``segment id:int64 | key``. Segment -1 holds the latest value of each key, ``valid_from:int64 | value``;
the other segments hold its history, in the form that `statestore.formats.kafka_rows.versioned_store` describes. Newer
segments have greater ids. A key has at most one row in each segment.

A process that was killed can leave a version in two rows. The newer row is right (as in Kafka, which looks there first,
and cuts the older row on the next write), so an older row ends where a newer row of its key begins. This needs all rows
of a key at once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from statestore.formats.bytes.byte_columns import Cells, cells_of, gather
from statestore.formats.errors import CorruptError
from statestore.formats.kafka.columns.origins import Origin
from statestore.formats.kafka.columns.serde_form import CellSerde
from statestore.formats.kafka.columns.time_columns import times
from statestore.formats.kafka_rows.versioned_store import BOUNDS, ENTRY, LATEST_SEGMENT, TIME, decode_row
from statestore.formats.kernels.arrays import Bools, Ints

_NEWEST = 2**63 - 1
_REMEDY = "choose another kind of store"


class Versions(NamedTuple):
    """Versions of many rows; those of one row follow each other, newest first.

    ``row`` is the position of the row. ``valid_to`` is without meaning where ``is_open``. A null value is a tombstone.
    In a degenerate row, which only records a deletion, both times are equal.
    """

    row: Ints
    valid_from: Ints
    valid_to: Ints
    is_open: Bools
    values: Cells


class _Level(NamedTuple):
    """The k-th version of each row that has at least k versions."""

    row: Ints
    start: Ints
    end: Ints
    size: Ints
    value_begin: Ints


def versioned_columns(
    keys: pa.BinaryArray, values: pa.BinaryArray, key_serde: CellSerde, value_serde: CellSerde
) -> dict[str, pa.Array]:
    """The columns ``key``, ``value``, ``valid_from`` and ``valid_to`` of the versions that live, overlaps resolved.

    The rows are in the order of the keys' first rows, then newest version first. ``valid_to`` is exclusive, and null
    for a version that is still valid. Tombstones yield no row.
    """
    cells, origin = cells_of(keys), Origin("key", keys)
    origin.refuse(cells, cells.size < TIME.size, "a versioned row key: segment id:int64 | key", _REMEDY)
    segments: Ints = cells.numbers(0, ">i8")
    origin.refuse(cells, segments < LATEST_SEGMENT, "segment id -1 or greater in a versioned row key", _REMEDY)
    number = key_numbers(cells.cut(TIME.size).binary())
    found = resolve_overlaps(decode_versions(segments, keys, values), number, segments)
    order = np.lexsort((-found.valid_from, number[found.row]))
    row, start, end, still = found.row[order], found.valid_from[order], found.valid_to[order], found.is_open[order]
    origin = Origin("key", keys, row)
    return {
        "key": key_serde.decode(cells.cut(TIME.size).select(row), origin),
        "value": value_serde.decode(found.values.select(order), origin.named("value")),
        "valid_from": times(start, origin.named("valid_from")),
        "valid_to": times(end, origin.named("valid_to"), still if still.any() else None),
    }


def key_numbers(keys: pa.BinaryArray) -> Ints:
    """Number the keys in the order in which each first appears."""
    found: Ints = keys.dictionary_encode().indices.to_numpy().astype(np.int64)
    return found


def resolve_overlaps(versions: Versions, key: Ints, segment: Ints) -> Versions:
    """The live versions, cut where a newer row of the same key begins.

    ``key`` numbers the key of each row, ``segment`` is its segment id; ``versions`` are those of all rows of these
    keys. Tombstones and what is left of no length are dropped.
    """
    oldest = np.full(len(key), _NEWEST)
    np.minimum.at(
        oldest, versions.row, versions.valid_from
    )  # where each row begins, tombstones and degenerate ones too
    # The latest row is newer than all others. Rows of a key, newest first:
    order = np.lexsort((-np.where(segment == LATEST_SEGMENT, _NEWEST, segment), key))
    limit = _least_of_newer(oldest[order], key[order])
    limits = np.empty(len(key), np.int64)
    limits[order] = limit
    cut = limits[versions.row]
    is_open = versions.is_open & (cut == _NEWEST)
    end = np.where(versions.is_open, cut, np.minimum(versions.valid_to, cut))
    live = (is_open | (versions.valid_from < end)) & ~versions.values.nulls
    return Versions(
        versions.row[live], versions.valid_from[live], end[live], is_open[live], versions.values.select(live)
    )


def _least_of_newer(oldest: Ints, key: Ints) -> Ints:
    """The least of the entries of the same key before each; 2^63 - 1 where there is none."""
    if not len(key):
        return oldest
    first = np.append(True, key[1:] != key[:-1])
    limit = np.where(first, _NEWEST, np.append(_NEWEST, oldest[:-1]))
    # A running minimum within keys: rows of one key seldom disagree about their order, so few passes are needed.
    while True:
        lower = np.where(first, _NEWEST, np.append(_NEWEST, limit[:-1]))
        if (lower >= limit).all():
            return limit
        limit = np.minimum(limit, lower)


def decode_versions(segments: Ints, keys: pa.BinaryArray, values: pa.BinaryArray) -> Versions:
    """Decode the values of latest rows, whose segment is -1, and of history rows.

    Raises CorruptError VERSIONED_ROW about the first history row that is none, KAFKA_BYTES about a latest row.
    """
    cells = cells_of(values)
    latest = np.flatnonzero(segments == LATEST_SEGMENT)
    history = np.flatnonzero(segments != LATEST_SEGMENT)
    newest = cells.select(latest)
    expected = "a latest row of a versioned store: valid_from:int64 | value"
    Origin("value", keys, latest).refuse(newest, newest.size < TIME.size, expected, _REMEDY)
    start = newest.numbers(0, ">i8")
    old = history_versions(cells.select(history), Origin("value", keys, history))
    tail = newest.cut(TIME.size)
    merged = Cells(
        cells.data,
        np.concatenate([tail.start, old.values.start]),
        np.concatenate([tail.size, old.values.size]),
        np.concatenate([np.zeros(len(tail), bool), old.values.nulls]),
    )
    return Versions(
        np.concatenate([latest, history[old.row]]),
        np.concatenate([start, old.valid_from]),
        np.concatenate([np.zeros(len(start), np.int64), old.valid_to]),
        np.concatenate([np.ones(len(start), bool), old.is_open]),
        merged,
    )


def history_versions(rows: Cells, origin: Origin) -> Versions:
    """Decode the versions of history rows, in as many passes as the row with the most versions has.

    Raises CorruptError VERSIONED_ROW about the first row that is none, by the reason that a single row is refused for.
    """
    levels = _levels(rows, origin)
    if not levels:
        nothing = np.empty(0, np.int64)
        return Versions(nothing, nothing, nothing, nothing == 0, rows)
    row, start, end, size, begin = (np.concatenate(parts) for parts in zip(*levels, strict=True))
    order = np.argsort(row, kind="stable")
    size = size[order]
    values = Cells(rows.data, begin[order], np.maximum(size, 0), size < 0)
    return Versions(row[order], start[order], end[order], np.zeros(len(row), bool), values)


def _levels(rows: Cells, origin: Origin) -> list[_Level]:
    data, begin, stop = rows.data, rows.start, rows.start + rows.size
    _refuse(rows, origin, np.flatnonzero(rows.size < BOUNDS.size + ENTRY.size))
    row = np.arange(len(rows))
    newest, oldest = rows.numbers(0, ">i8"), rows.numbers(8, ">i8")
    at, end = begin + BOUNDS.size, newest
    levels: list[_Level] = []
    while len(row):
        _refuse(rows, origin, row[at + ENTRY.size > stop])
        start, size = gather(data, at, ">i8"), gather(data, at + TIME.size, ">i4").astype(np.int64)
        fits = (oldest <= start) & (start < end)
        if not levels:
            fits |= (start == end) & (start == oldest) & (size < 0)
        at, stop = at + ENTRY.size, stop - np.maximum(size, 0)
        last = start == oldest
        _refuse(rows, origin, row[~fits | (stop < at) | (last & (stop != at))])
        levels.append(_Level(row, start, end, size, stop))
        more = ~last
        row, oldest, at, stop, end = row[more], oldest[more], at[more], stop[more], start[more]
    return levels


def _refuse(rows: Cells, origin: Origin, bad: Ints) -> None:
    if len(bad):
        first = int(bad.min())
        try:
            decode_row(rows.cell(first))
        except CorruptError as error:
            raise CorruptError(error.code, f"the row with {origin.stored_key(first)}: {error.message}") from None
