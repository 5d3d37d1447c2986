"""Edits of shown rows as edits of stored rows, checked against what is stored.

A row that goes must be stored just as the edit says, so that an edit which was computed from other state is refused. A
row that comes must not be stored, and its place must be certain: in another partition it would be dead, as Spark looks
for a key only where its hash says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.edits import EditOptions, StateEdit
from statestore.formats.errors import InvalidInputError, UnsupportedError
from statestore.formats.kernels.arrays import Bools, Ints
from statestore.formats.rocksdb.rows import ROW_SCHEMA
from statestore.formats.spark.checkpoint.checkpoint import Checkpoint
from statestore.formats.spark.checkpoint.spark_schema import renamed, unique_fields
from statestore.formats.spark.checkpoint.state_errors import corrupt_row, refused
from statestore.formats.spark.checkpoint.state_views import StateView, state_fields, state_views
from statestore.formats.spark.editable_states import check_buffers, late_rows, next_watermark
from statestore.formats.spark.edits.stored_edits import StoredEdit
from statestore.formats.spark.misplaced_keys import placement_check
from statestore.formats.spark.providers.partition_load import open_partition, stored_rows
from statestore.formats.spark.providers.stored_rows import StoredRows
from statestore.formats.spark.state_encoding import EncodedRows, encode_each_key, encode_rows, encode_rows_in
from statestore.formats.spark.state_rows import read_state, state_decoder
from statestore.formats.values.exact_cast import cast_exactly
from statestore.formats.values.without_pandas import arrow_numbers, bools

_SAMPLED_BATCHES = 4
"""Batches of a partition whose keys are compared with the rule that places new ones: some 260,000 rows."""
_ANEW = "it was computed from other state: compute the edit anew from this checkpoint"
_COUNTER = "$rowCounter_"


@dataclass(frozen=True)
class _Placed:
    """Rows of an edit with the partition of each, and its stored key; rows of one list have one key.

    ``by_rule``: by the query's rule for new keys. Else they are where the rows were found.
    """

    rows: pa.Table
    partition: Ints
    keys: pa.BinaryArray
    by_rule: bool = True

    def of(self, partition: int) -> _Placed:
        at = arrow_numbers(np.flatnonzero(self.partition == partition))
        return _Placed(self.rows.take(at), np.full(len(at), partition, np.int64), self.keys.take(at), self.by_rule)

    @cached_property
    def distinct(self) -> pa.BinaryArray:
        """Each stored key once, in the order of the rows."""
        return self.keys.unique()

    def first(self, keys: pa.BinaryArray) -> pa.Table:
        """The first row of each of some of the keys."""
        return self.rows.take(pc.index_in(keys, value_set=self.keys))


def stored_edits(
    checkpoint: Checkpoint, state_view: StateView, edit: StateEdit, options: EditOptions
) -> tuple[Sequence[StoredEdit], Sequence[str]]:
    """(the edits of stored rows, what the user has to know) of an edit of a state.

    Raises InvalidInputError EDIT_REFUSED for rows that are not stored so, that are stored already, whose place is not
    certain, or that the watermark removes at once, and the errors of reads.
    """
    return _StateEdits(checkpoint, state_view, edit.state).of(edit, options)


@dataclass(frozen=True)
class _StateEdits:
    """What makes the edits of one state."""

    checkpoint: Checkpoint
    view: StateView
    name: str

    def refusal(self, found: str) -> InvalidInputError:
        return refused(f"state {self.name} of {self.checkpoint.root.path}: {found}")

    def of(self, edit: StateEdit, options: EditOptions) -> tuple[Sequence[StoredEdit], Sequence[str]]:
        removed, added = self._placed(*(self._as_shown(rows) for rows in (edit.removed, edit.added)))
        notes = list(self._late(removed, added, options))
        found: list[StoredEdit] = []
        for partition in np.union1d(removed.partition, added.partition).tolist():
            gone, come = removed.of(partition), added.of(partition)
            made = self._of_partition(gone, come, partition)
            if made.put.num_rows or len(made.erased):
                found += [made, *self._counted(gone, come, made)]
        if any(each.family != self.view.family.name for each in found):
            notes.append(f"The numbers of entries that Spark keeps of the lists of {self.name} are changed along.")
        return found, notes

    def _as_shown(self, rows: pa.Table) -> pa.Table:
        """The rows in the types in which the state is shown."""
        shown = unique_fields(pa.schema(state_fields(self.view)))
        if rows.schema.names != shown.names:
            raise self.refusal(f"the edit has the columns {rows.schema.names}, expected {shown.names}")
        columns = []
        for field in shown:
            try:
                columns.append(cast_exactly(rows.column(field.name), field.type))
            except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
                found = rows.schema.field(field.name).type
                raise self.refusal(f"column {field.name}: found {found}, expected {field.type}: {error}") from error
        return pa.Table.from_arrays(columns, schema=shown)

    # Places

    def _placed(self, removed: pa.Table, added: pa.Table) -> tuple[_Placed, _Placed]:
        """The rows with their places: by the rule of the query, or else where rows that go or change are stored."""
        try:
            return self._by_rule(removed), self._by_rule(added)
        except UnsupportedError as error:
            return self._by_search(removed, added, error)

    def _by_rule(self, rows: pa.Table) -> _Placed:
        found = encode_each_key(self.checkpoint, self.view, rows)
        return _Placed(rows, found.partition, found.keys.copied(corrupt_row))

    def _by_search(self, removed: pa.Table, added: pa.Table, unplaced: UnsupportedError) -> tuple[_Placed, _Placed]:
        """Raises ``unplaced``, which says why the rule is not known, for new keys and for lists."""
        if self.view.listed or self.view.store.has_families or not removed.num_rows:
            raise unplaced
        gone, come = (self._keys_in(rows, 0) for rows in (removed, added))
        place = np.full(len(gone), -1, np.int64)
        for partition in self.view.store.partitions:
            stored = self._looked_up(partition, gone)
            here = bools(pc.is_in(gone, value_set=stored.column(0)))
            if (place[here] >= 0).any():
                raise unplaced
            place[here] = partition
        if (place < 0).any():
            count = int(np.count_nonzero(place < 0))
            raise self.refusal(f"{count} rows that the edit removes or changes are not stored; {_ANEW}")
        known = pc.index_in(come, value_set=gone)
        if known.null_count:
            raise unplaced
        of_come = place[np.asarray(known.to_numpy(zero_copy_only=False), np.int64)]
        return _Placed(removed, place, gone, by_rule=False), _Placed(added, of_come, come, by_rule=False)

    def _keys_in(self, rows: pa.Table, partition: int) -> pa.BinaryArray:
        return self._encoded_in(self.view, rows, partition).keys.copied(corrupt_row)

    def _encoded_in(self, view: StateView, rows: pa.Table, partition: int) -> EncodedRows:
        return encode_rows_in(self.checkpoint, view, rows, np.full(rows.num_rows, partition, np.int64))

    # Rows of a partition

    def _of_partition(self, gone: _Placed, come: _Placed, partition: int) -> StoredEdit:
        partitions = self.view.store.partitions
        if partition not in partitions:
            raise self.refusal(f"its rows belong to partition {partition}, and there are only {partitions}")
        if not self.view.listed and len(gone.distinct) < len(gone.keys):
            raise self.refusal("the edit removes or changes two rows with one key, of which the state has one")
        written = self._written(come, partition)
        keys, values = written.columns
        stored = self._looked_up(partition, pa.concat_arrays([gone.distinct, keys]))
        at = pc.index_in(gone.distinct, value_set=stored.column(0))
        if at.null_count:
            what = f"{at.null_count} rows that the edit removes or changes are not stored in partition {partition}"
            raise self.refusal(f"{what}; {_ANEW}")
        before = stored.take(at)
        self._check_same(gone, before, partition)
        known = pc.index_in(keys, value_set=gone.distinct)
        new = bools(pc.is_null(known))
        if new.any():
            self._check_new(keys.filter(arrow_numbers(new)), stored, partition)
        old, changed = known.drop_null(), arrow_numbers(np.flatnonzero(~new))
        if not self.view.listed:
            was, is_now = (rows.column(rows.num_columns - 1).combine_chunks() for rows in (gone.rows, come.rows))
            operator = self.checkpoint.operator(self.view.operator_id)
            check_buffers(self.name, operator, self.view, was.take(old), is_now.take(changed))
        differs = new.copy()
        differs[~new] = ~bools(pc.equal(before.column(1).take(old), values.take(changed)))
        erased = gone.distinct.filter(pc.invert(pc.is_in(gone.distinct, value_set=keys)))
        return self._edit(self.view, partition, written.filter(arrow_numbers(differs)), erased)

    def _edit(self, view: StateView, partition: int, put: pa.RecordBatch, erased: pa.BinaryArray) -> StoredEdit:
        return StoredEdit(view.operator_id, view.store.name, view.family.name, partition, put, erased)

    def _written(self, come: _Placed, partition: int) -> pa.RecordBatch:
        """The stored rows (key, value) of rows that come."""
        if come.by_rule:
            return _batch(encode_rows(self.checkpoint, self.view, come.rows))
        return _batch(self._encoded_in(self.view, come.rows, partition))

    def _looked_up(self, partition: int, keys: pa.BinaryArray, view: StateView | None = None) -> pa.RecordBatch:
        """The stored rows (key, value) of these keys."""
        view = view or self.view
        source = open_partition(self.checkpoint, view.store, partition, view.family.name)
        ranges = [(key, key + b"\0") for key in sorted(set(keys.to_pylist()))]
        batches = [batch for batch in stored_rows(source, lambda rows: rows.batch, key_ranges=ranges) if batch.num_rows]
        return _combined(pa.Table.from_batches(batches, ROW_SCHEMA))

    # Checks

    def _check_same(self, gone: _Placed, stored: pa.RecordBatch, partition: int) -> None:
        """Check that stored rows show as the edit says."""
        if not stored.num_rows:
            return
        shown = renamed(state_decoder(self.checkpoint, self.view, partition, None)(StoredRows(stored)))
        same = self._are_same(pa.Table.from_batches([shown.select(gone.rows.schema.names)]), gone.rows, partition)
        if not same.all():
            key = gone.first(gone.distinct).column(0)[int(np.argmin(same))].as_py()
            raise self.refusal(
                f"{np.count_nonzero(~same)} rows in partition {partition} are not stored as the edit says that they "
                f"were, the first of them that of the key {str(key)[:200]}; {_ANEW}"
            )

    def _are_same(self, rows: pa.Table, others: pa.Table, partition: int) -> Bools:
        """Return which keys have equal rows in both, in the form in which these would be stored.

        Rows that cannot be stored are compared as Python shows them.
        """
        try:
            one, other = (_batch(self._encoded_in(self.view, each, partition)).column(1) for each in (rows, others))
        except (InvalidInputError, UnsupportedError):
            one, other = (pa.array(map(repr, each.to_pylist()), pa.string()) for each in (rows, others))
        if len(one) != len(other):  # of lists that cannot be stored
            return np.zeros(1, np.bool_)
        return bools(pc.equal(one, other))

    def _check_new(self, keys: pa.BinaryArray, stored: pa.RecordBatch, partition: int) -> None:
        found = pc.sum(pc.is_in(keys, value_set=stored.column(0))).as_py()
        if found:
            raise self.refusal(f"{found} rows that the edit inserts have keys that are stored; update these rows")
        check = placement_check(self.checkpoint, self.view, partition)
        if check is None:
            if self.view.store.count == 1:
                return
            raise self.refusal(
                "it is not certain in which partition Spark looks for a new key, because the query was begun before "
                "Spark 3.3, or had another number of partitions; only rows that are stored can be changed or deleted"
            )
        for batch in islice(read_state(self.checkpoint, self.view, partition, columns=("key",)), _SAMPLED_BATCHES):
            check.add(batch)
        if check.misplaced:
            raise self.refusal(
                f"{check.misplaced} keys are stored in partition {partition}, and belong to another one by their hash: "
                "Spark would not find a new key; only rows that are stored can be changed or deleted"
            )

    def _late(self, removed: _Placed, added: _Placed, options: EditOptions) -> Iterator[str]:
        watermark = next_watermark(self.checkpoint)
        late = late_rows(self.view, added.rows, watermark)
        if late.any():
            # Rows that the watermark is about to remove, and with them to emit, may be repaired before.
            were_late = removed.keys.filter(arrow_numbers(late_rows(self.view, removed.rows, watermark)))
            late &= ~bools(pc.is_in(added.keys, value_set=were_late))
        count = int(np.count_nonzero(late))
        if not count:
            return
        what = f"{count} added rows are older than the watermark, {watermark} ms, and the next batch removes them"
        if not options.allow_late:
            raise self.refusal(f"{what}; leave them out, or allow late rows (--allow-late)")
        yield f"State {self.name}: {what}."

    # Counters of lists

    def _counted(self, gone: _Placed, come: _Placed, made: StoredEdit) -> Iterator[StoredEdit]:
        """Yield the edit of the numbers of entries that Spark keeps beside lists, if the state has lists."""
        counters = self._counters() if self.view.shape == "list" else None
        if counters is None:
            return
        partition = made.partition
        before = _batch(self._encoded_in(counters, self._counter_rows(counters, gone, gone.distinct), partition))
        stored = self._looked_up(partition, before.column(0), counters)
        held = stored.column(1).take(pc.index_in(before.column(0), value_set=stored.column(0)))
        if not before.column(1).equals(held):
            raise self.refusal(f"partition {partition} has lists without their right number of entries; {_BROKEN}")
        lists = come.keys.filter(pc.is_in(come.keys, value_set=made.put.column(0))).unique()
        put = _batch(self._encoded_in(counters, self._counter_rows(counters, come, lists), partition))
        erased = before.column(0).filter(pc.is_in(gone.distinct, value_set=made.erased))
        yield self._edit(counters, partition, put, erased)

    def _counters(self) -> StateView | None:
        operator = self.checkpoint.operator(self.view.operator_id)
        name = f"{_COUNTER}{self.view.name}"
        return next((each for each in state_views(self.checkpoint, operator) if each.name == name), None)

    def _counter_rows(self, counters: StateView, lists: _Placed, keys: pa.BinaryArray) -> pa.Table:
        """The rows of the counters of these lists."""
        fields = state_fields(counters)
        owner = pc.index_in(lists.keys, value_set=keys).drop_null()
        counts = np.bincount(np.asarray(owner.to_numpy(zero_copy_only=False), np.int64), minlength=len(keys))
        value = pa.StructArray.from_arrays([arrow_numbers(counts.astype(np.int64))], fields=list(fields[1].type))
        key = lists.first(keys).column(0).combine_chunks().cast(fields[0].type)
        return pa.Table.from_arrays([key, value], schema=pa.schema(fields))


_BROKEN = "the state is damaged, restore the checkpoint from a copy"


def _batch(encoded: EncodedRows) -> pa.RecordBatch:
    columns = [encoded.keys.copied(corrupt_row), encoded.values.copied(corrupt_row)]
    return pa.RecordBatch.from_arrays(columns, schema=ROW_SCHEMA)


def _combined(table: pa.Table) -> pa.RecordBatch:
    whole = table.combine_chunks().to_batches()
    return whole[0] if whole else pa.RecordBatch.from_arrays([pa.array([], pa.binary())] * 2, schema=ROW_SCHEMA)
