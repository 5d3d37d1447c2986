"""Edits of shown rows as edits of stored rows, checked against what is stored.

A row that goes must be stored just as the edit says, so that an edit which was computed from other state is refused. A
row that comes must not be stored, and its place must be certain: in another partition it would be dead, as Spark looks
for a key only where its hash says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.edits import EditOptions, StateEdit
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.kernels.arrays import Ints
from statestore.formats.rocksdb.rows import ROW_SCHEMA
from statestore.formats.spark.checkpoint.checkpoint import Checkpoint
from statestore.formats.spark.checkpoint.spark_schema import renamed
from statestore.formats.spark.checkpoint.state_errors import corrupt_row
from statestore.formats.spark.checkpoint.state_views import StateView, state_fields
from statestore.formats.spark.editable_states import check_buffers, late_rows, next_watermark
from statestore.formats.spark.edits.stored_edits import StoredEdit
from statestore.formats.spark.misplaced_keys import placement_check
from statestore.formats.spark.providers.partition_load import open_partition, stored_rows
from statestore.formats.spark.providers.stored_rows import StoredRows
from statestore.formats.spark.state_encoding import EncodedRows, encode_keys, encode_rows, encode_rows_in
from statestore.formats.spark.state_rows import read_state, state_decoder
from statestore.formats.values.without_pandas import arrow_numbers, bools

_SAMPLED_BATCHES = 4
"""Batches of a partition whose keys are compared with the rule that places new ones: some 260,000 rows."""


@dataclass(frozen=True)
class _Encoded:
    """Rows of an edit with their stored form: the partition of each, its key and its value."""

    rows: pa.Table
    partition: Ints
    keys: pa.BinaryArray
    values: pa.BinaryArray

    def of(self, partition: int) -> _Encoded:
        at = arrow_numbers(np.flatnonzero(self.partition == partition))
        return _Encoded(self.rows.take(at), self.partition[self.partition == partition], *self._taken(at))

    def _taken(self, at: pa.Array) -> tuple[pa.BinaryArray, pa.BinaryArray]:
        return self.keys.take(at), self.values.take(at)


def stored_edits(
    checkpoint: Checkpoint, state_view: StateView, edit: StateEdit, options: EditOptions
) -> tuple[Sequence[StoredEdit], Sequence[str]]:
    """(the edits of stored rows, what the user has to know) of an edit of a state.

    Raises InvalidInputError EDIT_REFUSED for rows that are not stored so, that are stored already, whose place is not
    certain, or that the watermark removes at once, and the errors of reads.
    """
    state = f"state {edit.state} of {checkpoint.root.path}"
    _check_columns(state_view, edit, state)
    added = _encoded(edit.added, encode_rows(checkpoint, state_view, edit.added))
    removed = _stored_as_shown(checkpoint, state_view, edit.removed, state)
    late = _check_late(checkpoint, state_view, removed, added, state, options)
    found = []
    for partition in np.union1d(removed.partition, added.partition).tolist():
        made = _of_partition(checkpoint, state_view, edit.state, removed.of(partition), added.of(partition), partition)
        if made.put.num_rows or len(made.erased):
            found.append(made)
    return found, late


def _check_columns(view: StateView, edit: StateEdit, state: str) -> None:
    names = [field.name for field in state_fields(view)]
    for rows in (edit.removed, edit.added):
        if rows.schema.names != names:
            raise _refused(state, f"the edit has the columns {rows.schema.names}, expected {names}")


def _encoded(rows: pa.Table, encoded: EncodedRows) -> _Encoded:
    keys, values = (each.copied(corrupt_row) for each in (encoded.keys, encoded.values))
    return _Encoded(rows, encoded.partition, keys, values)


def _stored_as_shown(checkpoint: Checkpoint, view: StateView, rows: pa.Table, state: str) -> _Encoded:
    """Rows that the state has, as they are stored; their keys are not those of new rows if these have another zero."""
    partition = encode_keys(checkpoint, view, rows).partition
    if len(partition) != rows.num_rows:
        raise _refused(state, "the edit removes or changes two rows with one key, and the state has one of each")
    return _encoded(rows, encode_rows_in(checkpoint, view, rows, partition))


def _of_partition(
    checkpoint: Checkpoint, view: StateView, name: str, removed: _Encoded, added: _Encoded, partition: int
) -> StoredEdit:
    state = f"state {name} of {checkpoint.root.path}"
    if partition not in view.store.partitions:
        raise _refused(state, f"its rows belong to partition {partition}, and there is {len(view.store.partitions)}")
    stored = _looked_up(checkpoint, view, partition, pa.concat_arrays([removed.keys, added.keys]))
    at = pc.index_in(removed.keys, value_set=stored.column(0))
    if at.null_count:
        raise _refused(
            state,
            f"{at.null_count} rows that the edit removes or changes are not stored in partition {partition}; {_ANEW}",
        )
    before = stored.take(at)
    _check_same(checkpoint, view, partition, state, removed, before)
    known = pc.index_in(added.keys, value_set=removed.keys)
    new = bools(pc.is_null(known))
    if new.any():
        _check_new(checkpoint, view, partition, state, added.keys.filter(arrow_numbers(new)), stored)
    changed = arrow_numbers(np.flatnonzero(~new))
    old = known.take(changed)
    values = _column(removed.rows, 1).take(old), _column(added.rows, 1).take(changed)
    check_buffers(name, checkpoint.operator(view.operator_id), view, *values)
    differs = new.copy()
    differs[~new] = ~bools(pc.equal(before.column(1).take(old), added.values.take(changed)))
    put = pa.RecordBatch.from_arrays([added.keys, added.values], schema=ROW_SCHEMA).filter(arrow_numbers(differs))
    erased = removed.keys.filter(pc.invert(pc.is_in(removed.keys, value_set=added.keys)))
    return StoredEdit(view.operator_id, view.store.name, view.family.name, partition, put, erased)


_ANEW = "it was computed from other state, or rows lie where no hash says: compute the edit anew from this checkpoint"


def _looked_up(checkpoint: Checkpoint, view: StateView, partition: int, keys: pa.BinaryArray) -> pa.RecordBatch:
    """The stored rows (key, value) of these keys."""
    source = open_partition(checkpoint, view.store, partition, view.family.name)
    ranges = [(key, key + b"\0") for key in sorted(set(keys.to_pylist()))]
    batches = [batch for batch in stored_rows(source, lambda rows: rows.batch, key_ranges=ranges) if batch.num_rows]
    whole = pa.Table.from_batches(batches, ROW_SCHEMA).combine_chunks().to_batches()
    return whole[0] if whole else pa.RecordBatch.from_arrays([pa.array([], pa.binary())] * 2, schema=ROW_SCHEMA)


def _check_same(
    checkpoint: Checkpoint, view: StateView, partition: int, state: str, removed: _Encoded, stored: pa.RecordBatch
) -> None:
    """Check that stored rows show as the edit says: both are compared in the form in which they would be stored."""
    if not stored.num_rows:
        return
    shown = renamed(state_decoder(checkpoint, view, partition, None)(StoredRows(stored)))
    again = encode_rows_in(checkpoint, view, shown.select(removed.rows.schema.names), removed.partition)
    same = bools(pc.equal(again.values.copied(corrupt_row), removed.values))
    if not same.all():
        row = int(np.argmin(same))
        raise _refused(
            state,
            f"{np.count_nonzero(~same)} rows in partition {partition} are not stored as the edit says that they were: "
            f"row {row} of them has other values; {_ANEW}",
        )


def _check_new(
    checkpoint: Checkpoint, view: StateView, partition: int, state: str, keys: pa.BinaryArray, stored: pa.RecordBatch
) -> None:
    found = pc.sum(pc.is_in(keys, value_set=stored.column(0))).as_py()
    if found:
        raise _refused(state, f"{found} rows that the edit inserts have keys that are stored; update these rows")
    check = placement_check(checkpoint, view, partition)
    if check is None:
        if view.store.written.single and partition == 0:
            return
        raise _refused(
            state,
            "it is not certain in which partition Spark looks for a new key, because the query was begun before Spark "
            "3.3, had another number of partitions, or has keys of a type without a known hash; only rows that are "
            "stored can be changed or deleted",
        )
    for batch in islice(read_state(checkpoint, view, partition, columns=("key",)), _SAMPLED_BATCHES):
        check.add(batch)
    if check.misplaced:
        raise _refused(
            state,
            f"{check.misplaced} keys are stored in partition {partition}, and belong to another one by their hash: "
            "Spark would not find a new key; only rows that are stored can be changed or deleted",
        )


def _check_late(
    checkpoint: Checkpoint, view: StateView, removed: _Encoded, added: _Encoded, state: str, options: EditOptions
) -> Sequence[str]:
    watermark = next_watermark(checkpoint)
    late = late_rows(view, added.rows, watermark)
    if not late.any():
        return ()
    # Rows that the watermark is about to remove, and with them to emit, may be repaired before.
    were_late = removed.keys.filter(arrow_numbers(late_rows(view, removed.rows, watermark)))
    late &= ~bools(pc.is_in(added.keys, value_set=were_late))
    count = int(np.count_nonzero(late))
    if not count:
        return ()
    what = f"{count} added rows are older than the watermark, {watermark} ms, and the next batch removes them"
    if options.allow_late:
        return (f"{state}: {what}.",)
    raise _refused(state, f"{what}; leave them out, or allow late rows (--allow-late)")


def _column(rows: pa.Table, number: int) -> pa.Array:
    return rows.column(number).combine_chunks()


def _refused(state: str, found: str) -> InvalidInputError:
    return InvalidInputError(ErrorCode.EDIT_REFUSED, f"{state}: {found}")
