"""Changes of lists that are stored entries: the elements that go, and the bytes of those that come.

All elements of a list are then in the order of their positions, and numbered anew. Those that come without a position
are behind all others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from statestore.formats.bytes.byte_columns import cells_of
from statestore.formats.flink.changelog.stored_entries import joined_bytes
from statestore.formats.flink.edits.key_search import one_array
from statestore.formats.flink.snapshot.rocksdb_copy import DELIMITER
from statestore.formats.flink.streams.state_form import POSITION
from statestore.formats.kernels.arrays import Ints

_BEHIND = 1 << 32
"""A position behind those of all elements that have one."""


@dataclass(frozen=True)
class ListChange:
    """The change of one list: the positions that go, and the bytes of the elements that come, by position.

    ``given`` are the elements that come where their bytes follow from those that are stored, which then are no bytes.
    """

    removed: frozenset[int]
    added: Mapping[int, bytes]
    given: Mapping[int, Any]


@dataclass(frozen=True)
class _Elements:
    """Elements by the number of their list and their position; ``starts`` has the first of each list, and the end."""

    starts: Ints
    places: Ints = field(repr=False)
    rows: Ints = field(repr=False)


@dataclass(frozen=True)
class ListChanges:
    """The changes of lists by their numbers; ``values`` has the elements that come, in the order of ``added``, and
    ``given`` those whose bytes follow from what is stored, by their place there.
    """

    removed: _Elements
    added: _Elements
    values: pa.BinaryArray = field(repr=False)
    given: Mapping[int, Any] = field(repr=False)

    def of(self, number: int) -> ListChange:
        """The change of a list."""
        first, stop = self.removed.starts[number : number + 2].tolist()
        gone = frozenset(self.removed.places[first:stop].tolist())
        first, stop = self.added.starts[number : number + 2].tolist()
        octets, places = self.values.slice(first, stop - first).to_pylist(), self.added.places[first:stop].tolist()
        given = {
            place: self.given[at] for at, place in zip(range(first, stop), places, strict=True) if at in self.given
        }
        return ListChange(gone, dict(zip(places, octets, strict=True)), given)

    def new(self, numbers: Ints) -> pa.BinaryArray:
        """The stored values of lists that have no other elements than those that come."""
        starts, stops = self.added.starts[numbers], self.added.starts[numbers + 1]
        sizes = stops - starts
        ends = np.cumsum(sizes)
        rows = np.arange(int(sizes.sum())) - np.repeat(ends - sizes - starts, sizes)
        is_first = np.zeros(len(rows), bool)
        is_first[(ends - sizes)[sizes > 0]] = True
        marks = pa.array([DELIMITER, b""], pa.binary()).take(pa.array(is_first.astype(np.int8)))
        parts = cells_of(joined_bytes([marks, self.values.take(pa.array(rows))]))
        offsets = np.append(0, np.cumsum(parts.size))[np.append(0, ends)].astype(np.int32)
        start = int(parts.start[0]) if len(rows) else 0
        data = pa.py_buffer(parts.data[start : start + int(offsets[-1])])
        return pa.Array.from_buffers(pa.binary(), len(numbers), [None, pa.py_buffer(offsets), data])


class PositionError(Exception):
    """An element in a row with a position that no element has (-1 for none), or that of another one (None)."""

    def __init__(self, row: int, place: int | None, *, is_new: bool) -> None:
        super().__init__(row, place)
        self.row = row
        self.place = place
        self.is_new = is_new


def list_changes(
    count: int,
    removed: tuple[pa.Table, Ints],
    added: tuple[pa.Table, Ints],
    written: pa.BinaryArray,
    given: Mapping[int, Any],
) -> ListChanges:
    """The changes of ``count`` lists, from rows that go and come, each with the number of its list; ``written`` has the
    bytes of the latter, ``given`` the values of those whose bytes follow from what is stored. Raises PositionError.
    """
    gone, come = _elements(count, *removed, is_new=False), _elements(count, *added, is_new=True)
    known = {place: given[row] for place, row in enumerate(come.rows.tolist()) if row in given} if given else {}
    return ListChanges(gone, come, written.take(pa.array(come.rows)), known)


def _elements(count: int, rows: pa.Table, numbers: Ints, *, is_new: bool) -> _Elements:
    given = one_array(rows, POSITION)
    known = np.asarray(given.is_valid())
    places = np.where(known, given.fill_null(0).to_numpy(), _BEHIND + np.arange(len(known))).astype(np.int64)
    wrong = (places < 0) | (~known & (not is_new))
    if wrong.any():
        row = int(wrong.argmax())
        raise PositionError(row, int(places[row]) if known[row] else -1, is_new=is_new)
    order = np.lexsort((places, numbers))
    same = (np.diff(numbers[order]) == 0) & (np.diff(places[order]) == 0)
    if same.any():
        raise PositionError(int(order[int(same.argmax()) + 1]), None, is_new=is_new)
    return _Elements(np.searchsorted(numbers[order], np.arange(count + 1)), places[order], order)


def joined_elements(parts: Mapping[int, bytes]) -> bytes:
    """The stored value of a list, of the bytes of its elements by position; only their order counts."""
    return DELIMITER.join(parts[place] for place in sorted(parts))
