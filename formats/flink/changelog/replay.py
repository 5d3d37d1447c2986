"""The entries of a state after its changes: those of the materialized state that no change meets, and changed ones.

The last change of a value counts. A clear ends all earlier changes of its key and namespace, and what was materialized
for them. What is added to a list stands behind what it had. Namespaces that are merged are replayed one by one
(``merges``): there are few of them, since each merge ends one window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.bytes.byte_columns import Cells, cells_of
from statestore.formats.bytes.newest_of_keys import newest_passes
from statestore.formats.flink.changelog.logged_changes import (
    ADD,
    ADD_ALL,
    CLEAR,
    PUT,
    REMOVE,
    SET,
    SET_INTERNAL,
    LoggedChanges,
)
from statestore.formats.flink.changelog.stored_entries import (
    PRESENT,
    divided_value,
    joined_bytes,
    joined_elements,
    prefixes,
)
from statestore.formats.flink.columns.decoding import decode_cells
from statestore.formats.flink.serializers.flink_types import FlinkType, ListOf, MapOf, Opaque, SpanOf
from statestore.formats.flink.snapshot.rocksdb_copy import DELIMITER
from statestore.formats.kernels.arrays import Ints

Entries = Iterator[tuple[Cells, Cells]]
Materialized = Callable[[], Entries]
"""Reads the materialized entries, as often as it is called."""
BATCH = 1 << 16


def replayed_values(changes: LoggedChanges, materialized: Materialized) -> Entries:
    """Yield the entries of a value, reducing or aggregating state."""
    assert changes.scopes is not None
    keys = cells_of(changes.scopes)
    yield from _newest(keys, changes.operations != CLEAR, changes.payloads, materialized)


def replayed_map(changes: LoggedChanges, value: FlinkType, materialized: Materialized, origin: str) -> Entries:
    """Yield the entries of a map state; ``value`` is the type of a whole map.

    Raises CorruptError FLINK_ROW, UnsupportedError FLINK_OPAQUE for maps that are added as a whole and cannot be
    divided.
    """
    assert changes.scopes is not None
    codes, names = _coded(changes.scopes)
    cleared = _last(codes, changes.operations == CLEAR, len(names))
    puts = _entries_of_map(changes, value, origin)
    kept = puts.change > cleared[codes[puts.change]]
    keys = joined_bytes([changes.scopes.take(pa.array(puts.change[kept])), puts.keys.filter(pa.array(kept))])
    values = cells_of(puts.values.filter(pa.array(kept)))
    source = materialized
    if (cleared >= 0).any():
        gone = names.filter(pa.array(cleared >= 0))
        source = _without_scopes(materialized, gone)
    yield from _newest(cells_of(keys), ~puts.removed[kept], values, source)


@dataclass(frozen=True)
class MapPuts:
    """Entries of maps that changes put or remove, each with the place of its change."""

    change: Ints
    keys: pa.BinaryArray
    values: pa.BinaryArray
    removed: np.ndarray


def _entries_of_map(changes: LoggedChanges, value: FlinkType, origin: str) -> MapPuts:
    assert isinstance(value, MapOf)
    none = pa.array([], pa.binary())
    places, keys, values, removed = [np.empty(0, np.int64)], [none], [none], [np.empty(0, bool)]

    def put(change: Ints, key: pa.Array, stored: pa.Array, gone: bool) -> None:
        places.append(change)
        keys.append(key)
        values.append(stored)
        removed.append(np.full(len(change), gone))

    single = np.flatnonzero(changes.are(PUT, ADD))
    if len(single):
        key, rest = decode_cells([SpanOf(value.key), Opaque("")], changes.payloads.select(single), [True] * 2, origin)
        put(single, key, joined_bytes([PRESENT, rest]), False)
    gone = np.flatnonzero(changes.are(REMOVE))
    if len(gone):
        cells = changes.payloads.select(gone)
        put(gone, cells.binary(), Cells(cells.data, cells.start, np.zeros(len(gone), np.int64)).binary(), True)
    whole = np.flatnonzero(changes.are(ADD_ALL))
    if len(whole):
        (maps,) = decode_cells([divided_value(value)], changes.payloads.select(whole), [True], origin)
        assert maps is not None
        added_keys, added_values = maps.flatten().flatten()
        put(whole[pc.list_parent_indices(maps).to_numpy()], added_keys, added_values, False)
    change = np.concatenate(places)
    order = np.argsort(change, kind="stable")
    taken = pa.array(order)
    return MapPuts(
        change[order], pa.concat_arrays(keys).take(taken), pa.concat_arrays(values).take(taken),
        np.concatenate(removed)[order],
    )  # fmt: skip


def _without_scopes(materialized: Materialized, gone: pa.BinaryArray) -> Materialized:
    """The materialized entries of maps that were not cleared. No scope is the beginning of another key's."""
    lengths = np.unique(cells_of(gone).size).tolist()

    def entries() -> Entries:
        for keys, values in materialized():
            kept = np.ones(len(keys), bool)
            for length in lengths:
                fit = np.flatnonzero(keys.size >= length)
                heads = Cells(keys.data, keys.start[fit], np.full(len(fit), length))
                kept[fit] &= ~pc.is_in(heads.copied(), value_set=gone).to_numpy(zero_copy_only=False)
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
    added = np.flatnonzero(changes.are(ADD))
    gone = np.flatnonzero(changes.are(REMOVE))
    lists = pa.array([], pa.list_(pa.binary()))
    if len(added):
        (lists,) = decode_cells([ListOf(SpanOf(timers))], changes.payloads.select(added), [True], origin)
    place = np.concatenate([added[pc.list_parent_indices(lists).to_numpy().astype(np.int64)], gone])
    order = np.argsort(place, kind="stable")
    every = pa.concat_arrays([lists.flatten(), changes.payloads.select(gone).binary()]).take(pa.array(order))
    place = place[order]
    groups = changes.groups[place]
    is_there = changes.operations[place] == ADD
    is_there &= (groups >= within[0]) & (groups <= within[1])
    stored = joined_bytes([prefixes(groups, width), every])
    nothing = Cells(np.empty(0, np.uint8), np.zeros(len(place), np.int64), np.zeros(len(place), np.int64))
    yield from _newest(cells_of(every), is_there, nothing, materialized, shown=cells_of(stored), front=width)


def _newest(
    keys: Cells,
    is_there: np.ndarray,
    values: Cells,
    materialized: Materialized,
    *,
    shown: Cells | None = None,
    front: int = 0,
) -> Entries:
    """Yield the last change of each key, unless that removes it, and the materialized entries without changes.

    ``shown``: the stored keys of the changes, if ``keys`` are without their first ``front`` bytes.
    """
    shown = keys if shown is None else shown
    for found in newest_passes():
        for first in range(0, len(keys), BATCH):
            found.note(keys.select(slice(first, first + BATCH)))
        for first in range(0, len(keys), BATCH):
            count = min(BATCH, len(keys) - first)
            kept = first + np.flatnonzero(found.newest(first, count) & is_there[first : first + count])
            if len(kept):
                yield shown.select(kept), values.select(kept)
        for stored, payloads in materialized():
            unchanged = found.unnoted(stored.cut(front))
            if unchanged is None:
                yield stored, payloads
            elif unchanged.any():
                yield stored.select(unchanged), payloads.select(unchanged)


# Lists


def replayed_list(changes: LoggedChanges, value: FlinkType, materialized: Materialized, origin: str) -> Entries:
    """Yield the entries of a list state; ``value`` is the type of a whole list.

    Raises CorruptError FLINK_ROW, UnsupportedError FLINK_OPAQUE for lists that cannot be divided.
    """
    assert changes.scopes is not None
    codes, names = _coded(changes.scopes)
    begun = _last(codes, changes.are(CLEAR, SET, SET_INTERNAL), len(names))
    place, elements = elements_of(changes, value, origin)
    kept = place >= begun[codes[place]]
    order = np.argsort(codes[place[kept]], kind="stable")
    counts = np.bincount(codes[place[kept]], minlength=len(names))
    added = elements.filter(pa.array(kept)).take(pa.array(order))
    offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))
    tails = joined_elements(pa.ListArray.from_arrays(offsets, added))
    before: list[pa.Array] = [pa.array([], pa.binary())]
    owners: list[Ints] = [np.empty(0, np.int64)]
    for keys, values in materialized():
        owner = pc.index_in(keys.copied(), value_set=names)
        unchanged = owner.is_null().to_numpy(zero_copy_only=False)
        yield keys.select(unchanged), values.select(unchanged)
        met = np.flatnonzero(~unchanged)
        mine = owner.fill_null(0).to_numpy()[met].astype(np.int64)
        goes_on = begun[mine] < 0
        owners.append(mine[goes_on])
        before.append(values.select(met[goes_on]).copied())
    owner = np.concatenate(owners)
    at = np.full(len(names), -1)
    at[owner] = np.arange(len(owner))
    heads = pa.concat_arrays(before).take(pa.array(at, mask=at < 0))
    tails = pc.if_else(pa.array(counts > 0), tails, pa.scalar(None, pa.binary()))
    filled = np.flatnonzero((at >= 0) | (counts > 0))
    chosen = pa.array(filled)  # Arrow leaves out rows of which all parts are null
    lists = pc.binary_join_element_wise(
        heads.take(chosen), tails.take(chosen), pa.scalar(DELIMITER, pa.binary()), null_handling="skip"
    )
    shown, contents = cells_of(names.take(chosen)), cells_of(lists)
    for first in range(0, len(filled), BATCH):
        part = slice(first, first + BATCH)
        yield shown.select(part), contents.select(part)


def elements_of(changes: LoggedChanges, value: FlinkType, origin: str) -> tuple[Ints, pa.BinaryArray]:
    """The elements that changes add or set, in order, each with the place of its change."""
    single = np.flatnonzero(changes.are(ADD))
    several = np.flatnonzero(changes.are(SET, SET_INTERNAL, ADD_ALL))
    lists = pa.array([], pa.list_(pa.binary()))
    if len(several):
        (lists,) = decode_cells([divided_value(value)], changes.payloads.select(several), [True], origin)
    place = np.concatenate([single, several[pc.list_parent_indices(lists).to_numpy().astype(np.int64)]])
    order = np.argsort(place, kind="stable")
    elements = pa.concat_arrays([changes.payloads.select(single).binary(), lists.flatten()])
    return place[order], elements.take(pa.array(order))


def _coded(scopes: pa.BinaryArray) -> tuple[Ints, pa.BinaryArray]:
    """A number for each scope, and the scopes by number."""
    found = scopes.dictionary_encode()
    return found.indices.to_numpy().astype(np.int64), found.dictionary


def _last(codes: Ints, which: np.ndarray, count: int) -> Ints:
    """The place of the last change of each code among those of the mask, -1 where there is none."""
    found = np.full(count, -1)
    places = np.flatnonzero(which)
    found[codes[places]] = places  # of equal positions the last one is kept
    return found
