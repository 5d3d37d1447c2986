"""Rows in which a keyed state differs between a snapshot and an edit of it, found by the bytes of stored entries.

Where both have the same types, entries of equal bytes are equal rows. So both are read as entries, key group by key
group, and only those are decoded that the other one does not have.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.bytes.byte_columns import Cells, joined_cells
from statestore.formats.engine import StateAt
from statestore.formats.flink.edits.keyed_stream import Entries, framed_entries
from statestore.formats.flink.edits.stored_rows import SubtaskRows, entries_of_state
from statestore.formats.flink.snapshot.handles import KeyGroupHandle, RocksHandle
from statestore.formats.flink.state_at import KeyedAt
from statestore.formats.flink.streams.keyed_columns import KeyGroups, framed_rows, prefix_width
from statestore.formats.flink.streams.stored_states import StoredKeyed
from statestore.formats.kernels.arrays import Bools
from statestore.formats.state_table import RowPair
from statestore.formats.values.without_pandas import bools

_Grouped = Iterator[tuple[int, Cells, Cells]]
_MOST = 1 << 20  # entries of a key group that are told apart; those of a larger one are all decoded


def differing_entries(old: StateAt, new: StateAt, columns: Collection[str]) -> Iterator[RowPair] | None:
    """Pairs of rows that hold all which differ, with at least these columns, in batches of a key group.

    None where equal bytes may be other rows, or where the two have other key groups. Raises as reads of both do.
    """
    if not isinstance(old, KeyedAt) or not isinstance(new, KeyedAt) or not _are_alike(old, new):
        return None
    return _differing(old, new, columns)


def _are_alike(old: KeyedAt, new: KeyedAt) -> bool:
    ways = [at.form for at in (old, new)] + [form for at in (old, new) for _, form in at.stored]
    return (
        not old.code
        and not new.code
        and all(form == old.form for form in ways)
        and (old.columns, old.key, old.groups) == (new.columns, new.key, new.groups)
        and old.form.schema == old.columns
        and _spans(old) == _spans(new) is not None
    )


def _spans(at: KeyedAt) -> list[tuple[int, int]] | None:
    """The key groups of each subtask; None where one has its rows elsewhere than in keyed state of one backend."""
    handles = [each.handle for each, _ in at.stored if isinstance(each, StoredKeyed)]
    found = [(each.first_group, each.groups) for each in handles if isinstance(each, KeyGroupHandle | RocksHandle)]
    return found if len(found) == len(at.stored) else None


def _differing(old: KeyedAt, new: KeyedAt, columns: Collection[str]) -> Iterator[RowPair]:
    for place in range(len(old.stored)):
        sides = [(at, _entries(at, place)) for at in (old, new)]
        for group, before, after in _by_group(*(entries for _, entries in sides)):
            gone, come = _told_apart(before, after)
            yield _rows(old, group, before, gone, columns), _rows(new, group, after, come, columns)


def _entries(at: KeyedAt, place: int) -> _Grouped:
    stored = at.stored[place][0]
    assert isinstance(stored, StoredKeyed)
    if all(each.name != at.form.name for each in stored.header.states):
        return
    rows = SubtaskRows(at.files_of, stored, {**at.others, at.form.name: at.form}, at.groups, at.label)
    with at.explaining(at.form, stored.handle):
        yield from entries_of_state(rows, at.form.name)


def _by_group(old: _Grouped, new: _Grouped) -> Iterator[tuple[int, Entries, Entries]]:
    """Yield the entries of the key groups in which both differ in any byte."""
    sides = [itertools.groupby(each, lambda part: part[0]) for each in (old, new)]
    heads = [next(each, None) for each in sides]
    while any(head is not None for head in heads):
        group = min(head[0] for head in heads if head is not None)
        found: list[Entries] = []
        for number, head in enumerate(heads):
            mine = [] if head is None or head[0] != group else list(head[1])
            found.append((joined_cells([keys for _, keys, _ in mine]), joined_cells([values for *_, values in mine])))
            heads[number] = next(sides[number], None) if mine else head
        if not all(_are_equal(*pair) for pair in zip(*found, strict=True)):
            yield group, found[0], found[1]


def _are_equal(one: Cells, other: Cells) -> bool:
    return np.array_equal(one.size, other.size) and np.array_equal(one.content()[0], other.content()[0])


def _told_apart(before: Entries, after: Entries) -> tuple[Bools, Bools]:
    """Masks of the entries that the other side does not have, of all where an entry is there twice."""
    sizes = len(before[0]), len(after[0])
    whole = np.ones(sizes[0], bool), np.ones(sizes[1], bool)
    if not all(sizes) or max(sizes) > _MOST:
        return whole
    old, new = (framed_entries([keys.copied()], keys.size, values) for keys, values in (before, after))
    if any(pc.count_distinct(each).as_py() < len(each) for each in (old, new)):
        return whole
    return ~bools(pc.is_in(old, value_set=new)), ~bools(pc.is_in(new, value_set=old))


def _rows(at: KeyedAt, group: int, entries: Entries, which: Bools, columns: Collection[str]) -> list[pa.RecordBatch]:
    if not which.any():
        return []
    keys, values = (each.select(which) for each in entries)
    groups = KeyGroups(group, group, prefix_width(at.groups))
    return [framed_rows(at.form, keys, values, groups, columns, at.label)]
