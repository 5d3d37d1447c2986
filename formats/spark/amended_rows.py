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

from statestore.formats.kernels.arrays import Bools
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
    keys = pa.concat_arrays([_other(mine, theirs), _other(theirs, mine)]).unique()
    rows = _rows(before, mine, keys), _rows(after, theirs, keys)
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


def _other(mine: Overlay, theirs: Overlay) -> pa.LargeBinaryArray:
    """The keys of ``mine`` whose newest change is not that of ``theirs``."""
    at = pc.index_in(mine.keys, value_set=theirs.keys)
    known = ~bools(pc.is_null(at))
    place = numbers(at.filter(arrow_numbers(known))).astype(np.int64)
    same: Bools = known.copy()
    same[known] = mine.kind[known] == theirs.kind[place]
    same[known] &= bools(pc.equal(mine.values.filter(arrow_numbers(known)), theirs.values.take(arrow_numbers(place))))
    return mine.keys.filter(arrow_numbers(~same))


def _rows(partition: Partition, newest: Overlay, keys: pa.LargeBinaryArray) -> pa.RecordBatch:
    """The rows (key, value) that the state has of these keys: by their records, or looked up."""
    at = pc.index_in(keys, value_set=newest.keys)
    known = np.flatnonzero(~bools(pc.is_null(at)))
    place = numbers(at.take(arrow_numbers(known))).astype(np.int64)
    kind = np.full(len(keys), MERGE, np.uint8)
    kind[known] = newest.kind[place]
    if not (kind == MERGE).any():
        put = np.flatnonzero(kind == PUT)
        columns = keys.take(arrow_numbers(put)), newest.values.take(at.take(arrow_numbers(put)))
        return pa.RecordBatch.from_arrays([each.cast(pa.binary()) for each in columns], schema=ROW_SCHEMA)
    # All of them, as the edit asked for them, too (`kept_rows`).
    return rows_of_keys(partition, keys)
