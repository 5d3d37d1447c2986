"""Parts in which a state is replayed: changes, and the materialized entries that they may meet.

There is one, unless the changes are too many for memory. Then each has some key groups; of timers, which are removed in
any key group, those with some hashes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from statestore.formats.bytes.byte_columns import Cells, cells_of, gather, joined_cells
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError
from statestore.formats.flink.changelog.held_changes import HeldChanges, RawChanges
from statestore.formats.flink.changelog.logged_changes import ADD, raw_changes
from statestore.formats.flink.changelog.replay import Entries, Materialized, groups_of
from statestore.formats.flink.changelog.stored_entries import joined_bytes, prefixes, stored_entries
from statestore.formats.flink.columns.decoding import divide_lists
from statestore.formats.flink.serializers.flink_types import FlinkType
from statestore.formats.flink.snapshot.handles import ChangelogHandle
from statestore.formats.flink.streams.keyed_columns import prefix_width
from statestore.formats.flink.streams.keyed_reading import KeyedReading
from statestore.formats.flink.streams.stored_states import StoredKeyed
from statestore.formats.kernels.arrays import Bools, Ints
from statestore.formats.rocksdb.key_ranges import KeyRange
from statestore.formats.values.without_pandas import arrow_scalar

_STORED = 255
"""The operation of a materialized timer that is written down among the changes."""
_ONE = arrow_scalar((1).to_bytes(4, "big"), pa.binary())
_HASHES = 256
_MOST_HASHED = 256  # bytes; and the last eight
_MIX = np.uint64(0x9E3779B97F4A7C15)


def replay_parts(
    reading: KeyedReading,
    stored: StoredKeyed,
    handle: ChangelogHandle,
    kinds: Sequence[FlinkType],
    ranges: Sequence[KeyRange],
) -> Iterator[tuple[RawChanges, Materialized]]:
    """Yield parts, each to be replayed before the next one is asked for.

    Raises as `stored_entries` and `raw_changes`, and StorageError DISK_FAILED.
    """
    bases = [stored_entries(reading, base, kinds, ranges) for base in stored.materialized]
    is_timers = reading.form.kind == "timers"
    placed = partial(_timers_by_hash, reading, kinds[0]) if is_timers else partial(_by_group, reading.first)
    with HeldChanges(placed, _HASHES if is_timers else reading.last - reading.first + 1) as held:
        for changes in raw_changes(reading, stored, handle):
            held.add(changes)
        if not held.is_written:
            yield held.all(), lambda: (entry for base in bases for entry in base)
            return
        for base in bases if is_timers else ():
            for keys, _ in base:
                held.add(_stored_timers(reading, keys))
        held.write()
        ahead = [_Ahead(base, prefix_width(reading.groups), reading.origin) for base in bases]
        for last, changes in held.parts():
            if is_timers:
                are_stored = changes.operations == _STORED
                yield changes.select(~are_stored), partial(_timers_of, changes.select(are_stored))
            else:
                yield changes, partial(_up_to, ahead, reading.first + last)


def _by_group(first: int, changes: RawChanges) -> tuple[RawChanges, Ints]:
    return changes, changes.groups - first


# Materialized entries, in the order of their key groups


class _Ahead:
    """Entries of one handle, which are read as far as they are asked for."""

    def __init__(self, entries: Entries, width: int, origin: str) -> None:
        self._entries, self._width, self._origin = entries, width, origin
        self._waiting: tuple[Cells, Cells] | None = None
        self._before = -1  # the last key group that was asked for

    def up_to(self, last: int) -> Entries:
        """Yield the entries of key groups that were not asked for, up to the last one. Raises CorruptError FLINK_ROW
        for entries that are not in the order of key groups."""
        while (found := self._waiting or next(self._entries, None)) is not None:
            keys, values = found
            groups = groups_of(keys, self._width)
            groups[keys.size < self._width] = last  # damaged, as who divides them will find
            if int(groups.min(initial=last)) <= self._before:
                raise CorruptError(
                    ErrorCode.FLINK_ROW,
                    f"{self._origin}: found a stored key of key group {int(groups.min())} behind those of key group "
                    f"{self._before}; restore the file from a copy",
                )
            mine: Bools = groups <= last
            self._waiting = None if mine.all() else (keys.select(~mine), values.select(~mine))
            if mine.any():
                yield keys.select(mine), values.select(mine)
            if self._waiting is not None:
                break
        self._before = last


def _up_to(bases: Sequence[_Ahead], last: int) -> Entries:
    for base in bases:
        yield from base.up_to(last)


# Timers


def _stored_timers(reading: KeyedReading, keys: Cells) -> RawChanges:
    """Materialized timers as changes."""
    octets, offsets = keys.content()
    own = Cells(octets, offsets[:-1], keys.size)
    return RawChanges(groups_of(own, prefix_width(reading.groups)), np.full(len(own), _STORED, np.uint8), own)


def _timers_of(stored: RawChanges) -> Entries:
    count = np.zeros(len(stored), np.int64)
    yield stored.cells, Cells(np.empty(0, np.uint8), count, count)


def _timers_by_hash(reading: KeyedReading, kind: FlinkType, changes: RawChanges) -> tuple[RawChanges, Ints]:
    """Changes of one timer each, and the bucket of the timer."""
    width = prefix_width(reading.groups)
    changes = _single_timers(changes, kind, width, reading.origin)
    front = width + 4 * (changes.operations == ADD)
    return changes, _hashed(Cells(changes.cells.data, changes.cells.start + front, changes.cells.size - front))


def _single_timers(changes: RawChanges, kind: FlinkType, width: int, origin: str) -> RawChanges:
    is_added = changes.operations == ADD
    counts, timers = divide_lists(kind, changes.cells.select(is_added).cut(width), origin)
    if (counts == 1).all():
        return changes
    added = np.repeat(np.flatnonzero(is_added), counts)
    others = np.flatnonzero(~is_added)
    cells = joined_bytes([prefixes(changes.groups[added], width), _ONE, timers.binary()])
    place = np.concatenate([added, others])
    order = np.argsort(place, kind="stable")
    every = joined_cells([cells_of(cells), changes.cells.select(others)]).select(order)
    return RawChanges(changes.groups[place[order]], changes.operations[place[order]], every)


def _hashed(cells: Cells) -> Ints:
    """A number below `_HASHES` for each timer, by all of its words."""
    found = cells.size.astype(np.uint64) * _MIX
    longest = min(int(cells.size.max(initial=0)), _MOST_HASHED)
    for at in (*range(0, longest - 7, 8), -8):
        fit = cells.size >= max(at + 8, 8)
        places = np.where(fit, cells.start + at + (cells.size if at < 0 else 0), 0)
        mixed = (found ^ gather(cells.data, places, "<u8")) * _MIX
        found = np.where(fit, mixed ^ (mixed >> np.uint64(32)), found)
    return (found >> np.uint64(56)).astype(np.int64)
