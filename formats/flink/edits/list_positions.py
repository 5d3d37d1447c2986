"""The positions of the elements of lists that an edit changes.

Elements are numbered from 0 without holes. So whoever removes one gives all behind it another position, and who adds
one behind the last may give any. After an edit the elements of a list are in the order of the positions that they were
given, those without one last.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from statestore.formats.flink.edits.key_search import columns_of, distinct, one_array, search_of
from statestore.formats.flink.streams.state_form import POSITION
from statestore.formats.kernels.arrays import Bools, Ints

Change = tuple[pa.Table, pa.Table]
"""Rows that go, and rows that come."""


def changed_lists(removed: pa.Table, added: pa.Table, names: Sequence[str]) -> pa.Table:
    """The lists, by the columns ``names``, in which elements go whose positions no other ones take, or which get more
    elements, so that positions may change along.
    """
    place = [*names, POSITION]
    every = pa.concat_tables([removed.select(place), added.select(place)])
    if not every.num_rows:
        return every.select(names)
    _, number, _ = distinct(columns_of(every, place))
    old, new = number[: removed.num_rows], number[removed.num_rows :]
    alone = np.concatenate([~np.isin(old, new), ~np.isin(new, old)])
    lists = every.select(names).filter(pa.array(alone))
    if not lists.num_rows:
        return lists
    return lists.take(pa.array(distinct(columns_of(lists, names))[2]))


def positions_along(stored: pa.Table, edit: Change, more: Change, names: Sequence[str]) -> Change:
    """The changes that follow from an edit of lists: ``more`` as far as it is not part of the edit, and the elements
    that get other positions.

    ``stored`` has all rows of the lists that change (`changed_lists`), in the order of their positions.
    """
    place = [*names, POSITION]
    (removed, added), (more_removed, more_added) = edit, more
    rows = pa.concat_tables([_without(stored, removed, place), added])
    goes = ~_absent(rows, more_removed, place)
    every = pa.concat_tables([rows, more_added])
    is_more = np.arange(every.num_rows) >= rows.num_rows
    goes = np.concatenate([goes, np.zeros(more_added.num_rows, bool)])
    moved, position = _numbered_anew(every.filter(pa.array(~goes)), names)
    at = np.flatnonzero(~goes)
    changed = np.zeros(every.num_rows, bool)
    changed[at] = moved
    final = np.zeros(every.num_rows, np.int32)
    final[at] = position
    come = changed | (is_more & ~goes)
    number = every.schema.names.index(POSITION)
    new = every.set_column(number, every.schema.field(number), pa.array(final, pa.int32())).filter(pa.array(come))
    return every.filter(pa.array((changed | goes) & ~is_more)), new


def _without(rows: pa.Table, others: pa.Table, names: Sequence[str]) -> pa.Table:
    """Rows without those that equal others in some columns."""
    return rows.filter(pa.array(_absent(rows, others, names)))


def _absent(rows: pa.Table, others: pa.Table, names: Sequence[str]) -> Bools:
    if not others.num_rows or not rows.num_rows:
        return np.ones(rows.num_rows, bool)
    return search_of(others, names).found(columns_of(rows, names)) < 0


def _numbered_anew(rows: pa.Table, names: Sequence[str]) -> tuple[Bools, Ints]:
    """The positions of elements in the order of those that they have, and which of these are others."""
    count = rows.num_rows
    if not count:
        return np.empty(0, bool), np.empty(0, np.int64)
    _, number, _ = distinct(columns_of(rows, names))
    given = one_array(rows, POSITION)
    known = np.asarray(given.is_valid())
    places = np.where(known, given.fill_null(0).to_numpy(), np.iinfo(np.int32).max).astype(np.int64)
    order = np.lexsort((np.arange(count), ~known, places, number))
    sizes = np.bincount(number)
    rank = np.empty(count, np.int64)
    rank[order] = np.arange(count) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return ~known | (places != rank), rank
