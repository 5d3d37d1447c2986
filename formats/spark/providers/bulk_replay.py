"""State as of a version where many changes follow the base: the changes stream, as the base does.

The changes are read once to find the newest of each key (``newest_changes``), and once more for their rows. Changes
that are few enough stay in memory between. Merged values need all changes of a key side by side: see ``replay``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa

from statestore.formats.bytes.byte_columns import cells_of
from statestore.formats.places.ordered_threads import in_order
from statestore.formats.places.reading_threads import reading_threads
from statestore.formats.spark.providers.file_records import MERGE, PUT, Changes
from statestore.formats.spark.providers.key_hashes import HashRange
from statestore.formats.spark.providers.stored_rows import StoredRows, rows_in

if TYPE_CHECKING:
    from statestore.formats.spark.providers.newest_changes import NewestChanges

HELD_BYTES = 64 << 20
_POSITIONS = 33  # bytes that a change takes besides its key and value
T = TypeVar("T")


class FoundMerges(Exception):
    """Some of the changes are merges."""


def bulk_rows(
    changes: Callable[[], Iterator[Changes]],
    base: Callable[[Callable[[pa.RecordBatch], list[T]]], Iterator[T]],
    kept: HashRange,
    each: Callable[[StoredRows], T],
) -> Iterator[T]:
    """Yield ``each`` of the rows, some at a time and never none; several threads may call ``each``.

    ``changes`` reads the changes in order, of keys in ``kept``, and may be called several times. ``base`` applies a
    function to the batches of the base. Raises FoundMerges before the first row. This needs compiled loops.
    """
    from statestore.formats.spark.providers.newest_changes import passes

    reader = _Rereader(changes)
    for noted in passes():
        for change in reader.read():
            if bool(np.any(change.kind == MERGE)):
                raise FoundMerges
            noted.note(change.keys)
        yield from base(partial(_unchanged, noted, kept, each))
        yield from in_order(each, _puts(noted, reader), reading_threads())


class _Rereader:
    """Changes that are read again, or stay in memory once they are found to be few."""

    def __init__(self, changes: Callable[[], Iterator[Changes]]) -> None:
        self._changes = changes
        self._held: list[Changes] | None = None

    def read(self) -> Iterator[Changes]:
        if self._held is not None:
            yield from self._held
            return
        held: list[Changes] = []
        size = 0
        for change in self._changes():
            size += change.keys.data.nbytes + _POSITIONS * len(change)
            if size <= HELD_BYTES:
                held.append(change)
            else:
                held.clear()
            yield change
        if size <= HELD_BYTES:
            self._held = held


def _puts(noted: NewestChanges, reader: _Rereader) -> Iterator[StoredRows]:
    first = 0
    for change in reader.read():
        newest = noted.newest(first, len(change)) & (change.kind == PUT)
        first += len(change)
        if len(change) and newest.all():
            yield StoredRows(change.keys, change.values)
        elif newest.any():
            yield StoredRows(change.keys.select(newest), change.values.select(newest))


def _unchanged(
    noted: NewestChanges, kept: HashRange, each: Callable[[StoredRows], T], batch: pa.RecordBatch
) -> list[T]:
    rows = kept.rows(batch)
    left = noted.unchanged(cells_of(rows.column("key")))
    if left is not None:
        rows = rows.filter(pa.array(left))
    return [each(rows_in(rows))] if rows.num_rows else []
