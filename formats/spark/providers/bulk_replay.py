"""State as of a version: the changes since the base stream, as the base does.

The changes are read once to find the newest of each key (``newest_of_keys``), and once more for their rows. Changes
that are few enough stay in memory between. Merged values need all changes of a key side by side: see ``replay``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
import pyarrow as pa

from statestore.formats.bytes.byte_columns import Cells, cells_of
from statestore.formats.bytes.hash_passes import HashPass, HashRange, Rereader, in_passes
from statestore.formats.bytes.newest_of_keys import MOST_KEYS, NewestOfKeys, newest_passes
from statestore.formats.kernels.compiled_use import load_if_it_pays
from statestore.formats.places.reading_threads import in_order, reading_threads
from statestore.formats.spark.checkpoint.state_errors import corrupt_row
from statestore.formats.spark.providers.file_records import MERGE, PUT, Changes
from statestore.formats.spark.providers.replay import Parts, weight_of
from statestore.formats.spark.providers.stored_rows import StoredRows
from statestore.formats.values.xxh64 import U64s, xxh64_strings

# Ranges of the hashes of stored keys, and the rows in them, for states that are too large to be held at once


HELD_BYTES = 64 << 20  # bytes by weight; with all that is computed from them, rows take about three times as much
T = TypeVar("T")


@dataclass(frozen=True)
class KeyHashes:
    """Hashes of stored keys without their first ``front`` bytes and without the eight at ``hole`` after these."""

    front: int = 0
    hole: int | None = None

    def of(self, keys: Cells) -> U64s:
        """The hash of each key. Raises CorruptError SPARK_STATE_ROW for a key shorter than ``front``."""
        data, offsets = keys.behind(self.front, "a key", corrupt_row).content()
        if self.hole is not None:
            data = data.copy()
            starts = offsets[:-1][np.diff(offsets) >= self.hole + 8] + self.hole
            for index in range(8):
                data[starts + index] = 0
        return xxh64_strings(data, offsets)


def rows_kept(kept: HashRange, batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows (key, value) in the range."""
    inside = None if kept.is_whole else kept.holds(cells_of(batch.column(0)))
    return batch if inside is None else batch.filter(pa.array(inside))


def changes_kept(kept: HashRange, changes: Changes) -> Changes:
    """The changes in the range."""
    inside = kept.holds(changes.keys)
    if inside is None:
        return changes
    return Changes(changes.kind[inside], changes.keys.select(inside), changes.values.select(inside))


def parts_kept(kept: HashRange, parts: Parts) -> Parts:
    """The rows of parts in the range."""
    kind, keys, values = parts
    inside = kept.holds(cells_of(keys))
    if inside is None:
        return parts
    chosen = pa.array(inside)
    return kind[inside], keys.filter(chosen), values.filter(chosen)


def stored_passes(whole: HashRange, read: Callable[[HashPass], T]) -> Iterator[tuple[HashRange, T]]:
    """Yield the range of each pass over stored rows and what ``read`` returned for it, as `in_passes`."""
    return in_passes(whole, HELD_BYTES, read)


def fitted(part: HashPass, changes: list[Parts]) -> list[Parts]:
    """Narrow the range of a pass if necessary, and return the held rows that are still in it."""
    part.weight = sum(map(weight_of, changes))
    while part.weight > part.most and not part.is_narrow:
        load_if_it_pays(part.weight)  # all files will be read again
        part.narrow(7)
        changes = [parts_kept(part.kept, parts) for parts in changes]
        part.weight = sum(map(weight_of, changes))
    return changes


_POSITIONS = 33  # bytes that a change takes besides its key and value


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
    function to the batches of the base. Raises FoundMerges before the first row.
    """
    reader = Rereader(changes, _held_bytes, HELD_BYTES)
    for noted in newest_passes(most_keys):
        for change in reader.read():
            if bool(np.any(change.kind == MERGE)):
                raise FoundMerges
            noted.note(change.keys)
        yield from base(partial(_unchanged, noted, kept, each))
        yield from in_order(each, _puts(noted, reader), 1 if reader.is_one else reading_threads())


def _held_bytes(change: Changes) -> int:
    return change.keys.data.nbytes + _POSITIONS * len(change)


def _puts(noted: NewestOfKeys, reader: Rereader[Changes]) -> Iterator[StoredRows]:
    first = 0
    for change in reader.read():
        newest = noted.newest(first, len(change)) & (change.kind == PUT)
        first += len(change)
        if len(change) and newest.all():
            yield StoredRows((change.keys, change.values))
        elif newest.any():
            yield StoredRows((change.keys.select(newest), change.values.select(newest)))


def _unchanged(noted: NewestOfKeys, kept: HashRange, each: Callable[[StoredRows], T], batch: pa.RecordBatch) -> list[T]:
    rows = rows_kept(kept, batch)
    left = noted.unnoted(cells_of(rows.column("key")))
    if left is not None:
        rows = rows.filter(pa.array(left))
    return [each(StoredRows(rows))] if rows.num_rows else []
