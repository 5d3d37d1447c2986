"""The entries of a state after its changes: those of the materialized state that no change meets, and changed ones.

The last change of a value counts. A clear ends all earlier changes of its key and namespace, and what was materialized
for them. What is added to a list stands behind what it had. Namespaces that are merged have loops of their own
(``merges``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.bytes.byte_columns import Cells, cells_of, ends_of
from statestore.formats.flink.changelog.logged_changes import (
    ADD,
    ADD_ALL,
    CLEAR,
    REMOVE,
    SET,
    SET_INTERNAL,
    LoggedChanges,
)
from statestore.formats.flink.changelog.numbered_keys import NumberedKeys, numbered
from statestore.formats.flink.changelog.stored_entries import PRESENT, divided_value, joined_bytes, prefixes
from statestore.formats.flink.columns.decoding import decode_cells, divide_cells, divide_lists
from statestore.formats.flink.serializers.flink_types import FlinkType, ListOf, MapOf, Opaque
from statestore.formats.flink.snapshot.rocksdb_copy import DELIMITER
from statestore.formats.kernels.arrays import Bools, Ints
from statestore.formats.kernels.compiled_use import is_loaded

Entries = Iterator[tuple[Cells, Cells]]
Materialized = Callable[[], Entries]
"""Reads the materialized entries, each in its key group."""
BATCH, BATCH_BYTES = 1 << 16, 4 << 20
"""Most entries of a batch, and bytes where one entry does not have more."""
_NO_PLACES = np.empty(0, np.int64)
_COUNT = 4  # bytes


def replayed_values(changes: LoggedChanges, width: int, materialized: Materialized) -> Entries:
    """Yield the entries of a value, reducing or aggregating state; ``width`` is that of the prefix of stored keys."""
    keys = numbered(changes.scopes, changes.groups)
    yield from chosen(changes.scopes, changes.payloads, keys.is_newest & (changes.operations != CLEAR))
    yield from _unchanged(keys, width, materialized)


def chosen(keys: Cells, values: Cells, which: Bools) -> Entries:
    """Yield the entries where the mask is true, in batches."""
    places = np.flatnonzero(which)
    ends = np.cumsum(keys.size[places] + values.size[places])
    first = 0
    while first < len(places):
        behind = int(np.searchsorted(ends, (ends[first - 1] if first else 0) + BATCH_BYTES, "right"))
        behind = min(max(behind, first + 1), first + BATCH)
        part = places[first:behind]
        yield keys.select(part), values.select(part)
        first = behind


def _unchanged(keys: NumberedKeys, width: int, materialized: Materialized, *, front: int = 0) -> Entries:
    """Yield the materialized entries of other keys than these, which are without their first ``front`` bytes."""
    for stored, values in materialized():
        groups = None if front else groups_of(stored, width)
        others = np.flatnonzero(keys.find(stored.cut(front), groups) < 0)
        if len(others) == len(stored):
            yield stored, values
        elif len(others):
            yield stored.select(others), values.select(others)


def groups_of(stored: Cells, width: int) -> Ints:
    """The key groups that stored keys begin with; that of a key too short for one is not known, and may be any."""
    whole = np.where(stored.size >= width, stored.start, 0)
    return Cells(stored.data, whole, stored.size).numbers(0, f">u{width}").astype(np.int64)


# Maps


def replayed_map(
    changes: LoggedChanges, value: FlinkType, width: int, materialized: Materialized, origin: str
) -> Entries:
    """Yield the entries of a map state; ``value`` is the type of a whole map.

    Raises CorruptError FLINK_ROW, UnsupportedError FLINK_OPAQUE for maps that are added as a whole and cannot be
    divided.
    """
    puts = _entries_of_map(changes, value, origin)
    is_cleared, source = changes.operations == CLEAR, materialized
    if is_cleared.any():
        cleared = numbered(changes.scopes.select(is_cleared), changes.groups[is_cleared])
        own = cleared.find(changes.scopes.select(puts.change), changes.groups[puts.change])
        last = np.append(np.flatnonzero(is_cleared)[cleared.last_among(np.ones(len(cleared.number), bool))], -1)
        puts = puts.select(puts.change > last[own])
        source = _without_scopes(materialized, cleared, width)
    keys = numbered(puts.keys, changes.groups[puts.change])
    is_there = keys.is_newest & ~puts.is_removed
    for found, values in chosen(puts.keys, puts.values, is_there):
        yield found, values if puts.are_stored else _present(values)
    yield from _unchanged(keys, width, source)


@dataclass(frozen=True)
class MapPuts:
    """Entries of maps that changes put or remove, each with the place of its change.

    The values are as they are stored, or without the byte that says that they are not null.
    """

    change: Ints
    keys: Cells
    values: Cells
    is_removed: Bools
    are_stored: bool

    def select(self, which: Bools) -> MapPuts:
        """The entries where the mask is true."""
        keys, values = self.keys.select(which), self.values.select(which)
        return MapPuts(self.change[which], keys, values, self.is_removed[which], self.are_stored)


def _entries_of_map(changes: LoggedChanges, value: FlinkType, origin: str) -> MapPuts:
    assert isinstance(value, MapOf)
    single = np.flatnonzero(changes.operations != CLEAR)
    whole = np.flatnonzero(changes.are(ADD_ALL))
    if len(whole):
        single = np.flatnonzero(~changes.are(CLEAR, ADD_ALL))
    payloads = changes.payloads.select(single)
    is_removed = changes.operations[single] == REMOVE
    # A map key alone, and behind it a value.
    map_keys, values = _behind_map_keys(payloads, is_removed, value, origin)
    scopes = changes.scopes.select(single)
    if changes.adjoin:
        keys = Cells(scopes.data, scopes.start, scopes.size + map_keys.size)
    else:
        keys = cells_of(joined_bytes([scopes.binary(), map_keys.binary()]))
    if not len(whole):
        return MapPuts(single, keys, values, is_removed, False)
    (maps,) = decode_cells([divided_value(value)], changes.payloads.select(whole), [True], origin)
    assert maps is not None
    added_keys, added_values = maps.flatten().flatten()
    place = whole[pc.list_parent_indices(maps).to_numpy()]
    added_keys = joined_bytes([changes.scopes.select(place).binary(), added_keys])
    change = np.concatenate([single, place])
    order = np.argsort(change, kind="stable")
    return MapPuts(
        change[order],
        cells_of(pa.concat_arrays([keys.binary(), added_keys])).select(order),
        cells_of(pa.concat_arrays([_present(values).binary(), added_values])).select(order),
        np.concatenate([is_removed, np.zeros(len(place), bool)])[order],
        True,
    )


def _behind_map_keys(payloads: Cells, alone: Bools, value: MapOf, origin: str) -> tuple[Cells, Cells]:
    """The map keys, and what is behind them: nothing where they are ``alone``."""
    if not alone.any():
        map_keys, values = divide_cells([value.key, Opaque("")], payloads, origin)
        return map_keys, values
    size = payloads.size.copy()
    map_keys, _ = divide_cells([value.key, Opaque("")], payloads.select(~alone), origin)
    size[~alone] = map_keys.size
    return Cells(payloads.data, payloads.start, size), Cells(payloads.data, payloads.start + size, payloads.size - size)


def _present(values: Cells) -> Cells:
    """Values as they are stored in maps, behind a byte that says that they are not null."""
    return cells_of(joined_bytes([PRESENT, values.binary()]))


def _without_scopes(materialized: Materialized, cleared: NumberedKeys, width: int) -> Materialized:
    """The materialized entries of maps that were not cleared. No scope is the beginning of another key's."""
    lengths = np.unique(cleared.names.size).tolist()

    def entries() -> Entries:
        for keys, values in materialized():
            kept = np.ones(len(keys), bool)
            for length in lengths:
                fit = np.flatnonzero(kept & (keys.size >= length))
                heads = Cells(keys.data, keys.start[fit], np.full(len(fit), length))
                kept[fit] = cleared.find(heads, groups_of(heads, width)) < 0
            yield keys.select(kept), values.select(kept)

    return entries


def replayed_timers(
    changes: LoggedChanges,
    timers: FlinkType,
    width: int,
    within: tuple[int, int],
    materialized: Materialized,
    origin: str,
) -> Entries:
    """Yield the timers of key groups ``within``, as keys without values.

    A timer that fires is removed before its key is the current one, so that the key group of its change may be any.
    """
    is_added = changes.operations == ADD
    counts, added = divide_lists(timers, changes.payloads.select(is_added), origin)
    place, every = np.arange(len(changes)), changes.payloads
    is_single = (counts == 1).all()
    if is_single:
        count = is_added * _COUNT
        every = Cells(every.data, every.start + count, every.size - count)
    else:
        gone = np.flatnonzero(~is_added)
        place = np.concatenate([np.repeat(np.flatnonzero(is_added), counts), gone])
        order = np.argsort(place, kind="stable")
        gone_ones = every.select(gone)
        start, size = np.append(added.start, gone_ones.start), np.append(added.size, gone_ones.size)
        place, every = place[order], Cells(every.data, start[order], size[order])
    groups = changes.groups[place]
    is_there = is_added[place] & (groups >= within[0]) & (groups <= within[1])
    keys = numbered(every)
    shown = np.flatnonzero(keys.is_newest & is_there)
    for first in range(0, len(shown), BATCH):
        part = shown[first : first + BATCH]
        found = every.select(part)
        stored = cells_of(joined_bytes([prefixes(groups[part], width), found.binary()]))
        yield stored, Cells(np.empty(0, np.uint8), np.zeros(len(part), np.int64), np.zeros(len(part), np.int64))
    yield from _unchanged(keys, width, materialized, front=width)


# Lists


def replayed_list(
    changes: LoggedChanges, value: FlinkType, width: int, materialized: Materialized, origin: str
) -> Entries:
    """Yield the entries of a list state; ``value`` is the type of a whole list.

    Raises CorruptError FLINK_ROW, UnsupportedError FLINK_OPAQUE for lists that cannot be divided.
    """
    scopes = numbered(changes.scopes, changes.groups)
    begun = scopes.last_among(changes.are(CLEAR, SET, SET_INTERNAL))
    place, elements = elements_of(changes, value, origin)
    owner = scopes.number[place]
    kept = place >= begun[owner]
    if not kept.all():
        owner, elements = owner[kept], elements.select(kept)
    before: list[pa.Array] = [pa.array([], pa.binary())]
    owners = [_NO_PLACES]
    for keys, values in materialized():
        mine = scopes.find(keys, groups_of(keys, width))
        others = np.flatnonzero(mine < 0)
        if len(others):
            yield keys.select(others), values.select(others)
        met = np.flatnonzero(mine >= 0)
        met = met[begun[mine[met]] < 0]
        owners.append(mine[met])
        before.append(values.select(met).copied())
    # What was materialized stands first.
    heads = cells_of(pa.concat_arrays(before))
    lists, is_filled = _joined_lists([(np.concatenate(owners), heads), (owner, elements)], len(scopes))
    yield from chosen(scopes.names, lists, is_filled)


def _joined_lists(parts: list[tuple[Ints, Cells]], count: int) -> tuple[Cells, Bools]:
    """The stored lists of ``count`` owners, and which have an element: the elements of all parts in order."""
    sizes, elements = np.zeros(count, np.int64), np.zeros(count, np.int64)
    for owner, cells in parts:
        sizes += np.bincount(owner, cells.size, count).astype(np.int64)
        elements += np.bincount(owner, minlength=count)
    sizes += np.maximum(elements - 1, 0) * len(DELIMITER)
    ends = ends_of(sizes)
    target = np.empty(int(ends[-1]), np.uint8)
    if is_loaded():
        from statestore.formats.kernels.numbered_key_kernels import join_strings

        at, has = ends[:-1].copy(), np.zeros(count, bool)
        for owner, cells in parts:
            data = cells.data.view()
            data.flags.writeable = False
            join_strings(data, cells.start, cells.size, owner, DELIMITER[0], has, at, target)
    else:
        _join_plainly(parts, ends, target)
    return Cells(target, ends[:-1], sizes), elements > 0


def _join_plainly(parts: list[tuple[Ints, Cells]], ends: Ints, target: np.ndarray) -> None:
    """The loop of ``numbered_key_kernels`` by Arrow."""
    owner = np.concatenate([each for each, _ in parts])
    order = np.argsort(owner, kind="stable")
    elements = pa.concat_arrays([cells.binary() for _, cells in parts]).take(pa.array(order))
    offsets = ends_of(np.bincount(owner, minlength=len(ends) - 1)).astype(np.int32)
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), elements), pa.scalar(DELIMITER, pa.binary()))
    target[:] = cells_of(joined).content()[0]


def elements_of(changes: LoggedChanges, value: FlinkType, origin: str) -> tuple[Ints, Cells]:
    """The elements that changes add or set, in order, each with the place of its change."""
    is_single = changes.operations == ADD
    single = np.flatnonzero(is_single)
    several = np.flatnonzero(changes.are(SET, SET_INTERNAL, ADD_ALL))
    one_by_one = changes.payloads.select(single)
    if not len(several):
        return single, one_by_one
    lists = changes.payloads.select(several)
    if isinstance(value, ListOf):
        counts, others = divide_lists(value.element, lists, origin)
    else:
        (found,) = decode_cells([divided_value(value)], lists, [True], origin)
        assert found is not None
        counts = pc.list_value_length(found).to_numpy().astype(np.int64)
        both = cells_of(pa.concat_arrays([one_by_one.binary(), found.flatten()]))
        one_by_one, others = both.select(slice(0, len(single))), both.select(slice(len(single), None))
    place = np.concatenate([single, np.repeat(several, counts)])
    order = np.argsort(place, kind="stable")
    start, size = np.append(one_by_one.start, others.start), np.append(one_by_one.size, others.size)
    return place[order], Cells(others.data, start[order], size[order])
