"""Differences between a batch and a copy of it with an edit, from the files that the edit wrote anew.

All other files are copies. Of zips the table files are compared that only one of them has. Of files of changes the
records are compared: a key whose newest change is the same in both has the same row, whatever was before it. The rows
of the others are those of their records, or are looked up in the state where a file has no record of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.kernels.arrays import Ints
from statestore.formats.places.reading_threads import in_order, reading_threads
from statestore.formats.rocksdb.rows import ROW_SCHEMA
from statestore.formats.spark.differing_batches import BatchSide, are_parted_alike, of_zips, shown_rows
from statestore.formats.spark.providers.file_records import MERGE, PUT
from statestore.formats.spark.providers.partition_load import (
    MOST_LOOKED_UP,
    Partition,
    has_change_file,
    rows_of_keys,
    uid_of,
    version_changes,
)
from statestore.formats.spark.providers.replay import Overlay, overlay_of
from statestore.formats.spark.state_at import CheckpointAt
from statestore.formats.spark.state_difference import are_zips, differing_rows
from statestore.formats.state_table import RowPair
from statestore.formats.values.without_pandas import arrow_numbers, bools, numbers


def amended_rows(
    before: CheckpointAt, after: CheckpointAt, keys: Mapping[int, int], columns: Collection[str]
) -> Iterator[RowPair] | None:
    """Pairs of rows that hold all which differ between a state and its copy, of which partitions were written, with as
    many ``keys`` in each. Where those are many, all rows of a partition are paired, which takes less time.

    None for states whose rows are not told apart by their stored keys, and for lists. Raises as `read_state`.
    """
    old, new = (
        BatchSide(each.checkpoint, each.state_view, columns, partial(each.rows_of_partition, columns))
        for each in (before, after)
    )
    return _pairs(old, new, keys) if are_parted_alike(old, new) else None


def _pairs(old: BatchSide, new: BatchSide, keys: Mapping[int, int]) -> Iterator[RowPair]:
    for pairs in in_order(partial(_of_partition, old, new), keys.items(), reading_threads()):
        yield from pairs


def _of_partition(old: BatchSide, new: BatchSide, keys: tuple[int, int]) -> Sequence[RowPair]:
    number, count = keys
    before, after = old.opened(number), new.opened(number)
    if are_zips(before, after):
        return list(of_zips(old, new, number, differing_rows(before, after)))
    if count > MOST_LOOKED_UP or not (_is_logged(before) and _is_logged(after)):
        return [(list(old.rows(number)), list(new.rows(number)))]
    mine, theirs = _newest(before), _newest(after)
    keys, *places = _others(mine, theirs)
    rows = _rows(before, mine, keys, places[0]), _rows(after, theirs, keys, places[1])
    return [(shown_rows(old, number, rows[:1]), shown_rows(new, number, rows[1:]))]


def _version(partition: Partition) -> tuple[int, str | None]:
    batch = partition.checkpoint.batch
    return batch.version, uid_of(partition, batch.uids)


def _is_logged(partition: Partition) -> bool:
    return has_change_file(partition, *_version(partition))


def _newest(partition: Partition) -> Overlay:
    """The newest change of each key in the file of the batch."""
    found = (run.changes for run in version_changes(partition, [_version(partition)]))
    return overlay_of(found, partition.checkpoint.delimiter)


def _others(mine: Overlay, theirs: Overlay) -> tuple[pa.LargeBinaryArray, Ints, Ints]:
    """The keys whose newest change is not the same in both, and the place of each in either; -1 where it has none."""
    at = pc.index_in(mine.keys, value_set=theirs.keys)
    known = bools(pc.is_valid(at))
    place = np.full(len(mine.keys), -1, np.int64)
    place[known] = numbers(at.filter(arrow_numbers(known)))
    same, there = known.copy(), place[known]
    same[known] = mine.kind[known] == theirs.kind[there]
    same[known] &= bools(pc.equal(mine.values.filter(arrow_numbers(known)), theirs.values.take(arrow_numbers(there))))
    lone = np.ones(len(theirs.keys), np.bool_)
    lone[there] = False
    of_mine, of_theirs = np.flatnonzero(~same), np.flatnonzero(lone)
    keys = pa.concat_arrays([mine.keys.take(arrow_numbers(of_mine)), theirs.keys.take(arrow_numbers(of_theirs))])
    nowhere = np.full(len(of_theirs), -1, np.int64)
    return keys, np.concatenate([of_mine, nowhere]), np.concatenate([place[of_mine], of_theirs])


def _rows(partition: Partition, newest: Overlay, keys: pa.LargeBinaryArray, place: Ints) -> pa.RecordBatch:
    """The rows (key, value) that the state has of these keys: by their records, or looked up."""
    kind = np.where(place < 0, np.uint8(MERGE), newest.kind[place] if len(newest.kind) else np.uint8(MERGE))
    if not (kind == MERGE).any():
        put = np.flatnonzero(kind == PUT)
        columns = keys.take(arrow_numbers(put)), newest.values.take(arrow_numbers(place[put]))
        return pa.RecordBatch.from_arrays([each.cast(pa.binary()) for each in columns], schema=ROW_SCHEMA)
    # All of them, as the edit asked for them, too (`kept_rows`).
    return rows_of_keys(partition, keys)
