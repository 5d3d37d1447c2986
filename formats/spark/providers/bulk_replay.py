"""State as of a version where many changes follow the base: the changes stream, as the base does.

The changes are read once to find the newest of each key (``newest_of_keys``), and once more for their rows. Changes
that are few enough stay in memory between. Merged values need all changes of a key side by side: see ``replay``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

import numpy as np
import pyarrow as pa

from statestore.formats.bytes.byte_columns import cells_of
from statestore.formats.bytes.hash_passes import HashRange, Rereader
from statestore.formats.bytes.newest_of_keys import MOST_KEYS, NewestOfKeys, newest_passes
from statestore.formats.places.ordered_threads import in_order
from statestore.formats.places.reading_threads import reading_threads
from statestore.formats.spark.providers.file_records import MERGE, PUT, Changes
from statestore.formats.spark.providers.key_hashes import rows_kept
from statestore.formats.spark.providers.stored_rows import StoredRows, rows_in

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
    most_keys: int = MOST_KEYS,
) -> Iterator[T]:
    """Yield ``each`` of the rows, some at a time and never none; several threads may call ``each``.

    ``changes`` reads the changes in order, of keys in ``kept``, and may be called several times. ``base`` applies a
    function to the batches of the base. Raises FoundMerges before the first row. This needs compiled loops.
    """
    reader = Rereader(changes, _held_bytes, HELD_BYTES)
    for noted in newest_passes(most_keys):
        for change in reader.read():
            if bool(np.any(change.kind == MERGE)):
                raise FoundMerges
            noted.note(change.keys)
        yield from base(partial(_unchanged, noted, kept, each))
        yield from in_order(each, _puts(noted, reader), reading_threads())


def _held_bytes(change: Changes) -> int:
    return change.keys.data.nbytes + _POSITIONS * len(change)


def _puts(noted: NewestOfKeys, reader: Rereader[Changes]) -> Iterator[StoredRows]:
    first = 0
    for change in reader.read():
        newest = noted.newest(first, len(change)) & (change.kind == PUT)
        first += len(change)
        if len(change) and newest.all():
            yield StoredRows(change.keys, change.values)
        elif newest.any():
            yield StoredRows(change.keys.select(newest), change.values.select(newest))


def _unchanged(noted: NewestOfKeys, kept: HashRange, each: Callable[[StoredRows], T], batch: pa.RecordBatch) -> list[T]:
    rows = rows_kept(kept, batch)
    left = noted.unnoted(cells_of(rows.column("key")))
    if left is not None:
        rows = rows.filter(pa.array(left))
    return [each(rows_in(rows))] if rows.num_rows else []
