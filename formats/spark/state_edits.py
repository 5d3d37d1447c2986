"""Edits of shown rows as edits of stored rows, checked against what is stored.

A row that goes must be stored just as the edit says, so that an edit which was computed from other state is refused. A
row that comes must not be stored, and its place must be certain: in another partition it would be dead, as Spark looks
for a key only where its hash says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.edits import EditOptions, StateEdit
from statestore.formats.errors import InvalidInputError, UnsupportedError
from statestore.formats.kernels.arrays import Bools, Ints
from statestore.formats.places.held_tables import held_batches
from statestore.formats.places.reading_threads import in_order, reading_threads
from statestore.formats.rocksdb.rows import ROW_SCHEMA
from statestore.formats.spark.checkpoint.checkpoint import Checkpoint
from statestore.formats.spark.checkpoint.spark_schema import renamed, unique_fields
from statestore.formats.spark.checkpoint.state_errors import corrupt_row, refused
from statestore.formats.spark.checkpoint.state_views import StateView, state_fields
from statestore.formats.spark.editable_states import check_buffers, late_rows, next_watermark
from statestore.formats.spark.edits.stored_edits import StoredEdit
from statestore.formats.spark.misplaced_keys import placement_check
from statestore.formats.spark.providers.partition_load import open_partition, rows_of_keys, stored_rows
from statestore.formats.spark.providers.stored_rows import StoredRows
from statestore.formats.spark.some_partitions import some_partitions
from statestore.formats.spark.state_encoding import (
    EncodedKeys,
    EncodedRows,
    encode_keys,
    encode_keys_in,
    encode_rows,
    encode_rows_in,
    places_of,
)
from statestore.formats.spark.state_rows import state_decoder
from statestore.formats.values.exact_cast import cast_exactly
from statestore.formats.values.without_pandas import arrow_numbers, bools, numbers

_SAMPLED = 2000
"""Rows of a partition whose keys are compared with the rule that places new ones: more would cost more than an edit."""


@dataclass(frozen=True)
class PlacedRows:
    """Rows in the columns of a state view, without that of its placement, and the partition of each."""

    rows: pa.Table
    partition: Ints


@dataclass(frozen=True)
class _Keyed:
    """Rows of an edit with the stored keys that they have and the partition of each; ``owner`` is the number of each
    row's key, as the rows of a list have one."""

    rows: pa.Table
    owner: Ints
    partition: Ints
    keys: pa.BinaryArray


@dataclass(frozen=True)
class _Stored(_Keyed):
    """Rows of an edit with the stored value of each key, too."""

    values: pa.BinaryArray


def stored_edits(
    checkpoint: Checkpoint, state_view: StateView, edit: StateEdit, options: EditOptions
) -> tuple[Sequence[StoredEdit], Sequence[str]]:
    """(the edits of stored rows, what the user has to know) of an edit of a state.

    Raises InvalidInputError EDIT_REFUSED for rows that are not stored so, that are stored already, whose place is not
    certain, or that the watermark removes at once, and the errors of reads.
    """
    state = f"state {edit.state} of {checkpoint.root.path}"
    rows = [as_shown(state_view, each, state) for each in (edit.removed, edit.added)]
    found: list[StoredEdit] = []
    late = 0
    for gone, come in some_partitions(checkpoint, state_view, rows[0], rows[1]):
        try:
            removed = _removed(checkpoint, state_view, gone, encode_keys(checkpoint, state_view, gone))
            added = _added(checkpoint, state_view, come, encode_rows(checkpoint, state_view, come))
        except UnsupportedError as error:  # no rule says the places of rows; those that are stored can be found
            removed, added = _searched(checkpoint, state_view, gone, come, error)
        late += _late(checkpoint, state_view, removed, added)
        found += _held(_by_partition(checkpoint, state_view, edit.state, removed, added, alone=True))
    return found, _notes_of_late(checkpoint, state, late, options)


def _held(edits: Sequence[StoredEdit]) -> Iterator[StoredEdit]:
    """Yield edits of stored rows, which are in a file where they are large."""
    puts = held_batches([edit.put for edit in edits])
    erased = held_batches([pa.RecordBatch.from_arrays([edit.erased], ["key"]) for edit in edits])
    for edit, put, keys in zip(edits, puts, erased, strict=True):
        yield replace(edit, put=put, erased=keys.column(0))


def following_edits(
    checkpoint: Checkpoint, state_view: StateView, name: str, before: PlacedRows, after: PlacedRows
) -> list[StoredEdit]:
    """The edits of stored rows that belong to those of another state view, as ``before`` becomes ``after``.

    ``name`` is that of the state that is edited. Raises InvalidInputError EDIT_REFUSED for rows that are not stored so.
    """
    removed, added = (
        _added(
            checkpoint,
            state_view,
            each.rows,
            encode_rows_in(checkpoint, state_view, each.rows, each.partition),
            each.partition,
        )
        for each in (before, after)
    )
    return _by_partition(checkpoint, state_view, name, removed, added, alone=False)


def _by_partition(
    checkpoint: Checkpoint, view: StateView, name: str, removed: _Keyed, added: _Stored, *, alone: bool
) -> list[StoredEdit]:
    """The edits of each partition. Rows that do not stand ``alone`` follow others, whose places were checked."""

    def made(partition: int) -> StoredEdit:
        gone, come = _removed_in(removed, partition), _added_in(added, partition)
        return _of_partition(checkpoint, view, name, gone, come, partition, alone=alone)

    partitions = np.union1d(removed.partition, added.partition).tolist()
    found = in_order(made, partitions, reading_threads())
    return [each for each in found if each.put.num_rows or len(each.erased)]


def as_shown(view: StateView, rows: pa.Table, state: str) -> pa.Table:
    """The rows in the types in which a state is shown."""
    shown = unique_fields(pa.schema(state_fields(view)))
    if rows.schema.names != shown.names:
        raise refused(f"{state}: the edit has the columns {rows.schema.names}, expected {shown.names}")
    columns = []
    for field in shown:
        try:
            columns.append(cast_exactly(rows.column(field.name), field.type))
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
            found = rows.schema.field(field.name).type
            raise refused(f"{state}: column {field.name}: found {found}, expected {field.type}: {error}") from error
    return pa.Table.from_arrays(columns, schema=shown)


def _added(
    checkpoint: Checkpoint, view: StateView, rows: pa.Table, found: EncodedRows, places: Ints | None = None
) -> _Stored:
    keys = found.keys.copied(corrupt_row)
    owner = _owners(checkpoint, view, rows, keys, places)
    return _Stored(rows, owner, found.partition, keys, found.values.copied(corrupt_row))


def _removed(checkpoint: Checkpoint, view: StateView, rows: pa.Table, found: EncodedKeys) -> _Keyed:
    """Rows that the state has. Their values need no stored form, so those that cannot be written can be removed."""
    if len(found.keys) != rows.num_rows and not view.listed:
        raise refused("the edit removes or changes two rows with one key, of which a state has one")
    keys = found.keys.copied(corrupt_row)
    return _Keyed(rows, _owners(checkpoint, view, rows, keys), found.partition, keys)


def _owners(
    checkpoint: Checkpoint, view: StateView, rows: pa.Table, keys: pa.BinaryArray, places: Ints | None = None
) -> Ints:
    """The number of each row's key. ``places`` are the partitions of rows, by default those where they belong."""
    if len(keys) == rows.num_rows:
        return np.arange(len(keys))
    each = encode_keys_in(checkpoint, view, rows, places_of(checkpoint, view, rows) if places is None else places)
    return numbers(pc.index_in(each.copied(corrupt_row), value_set=keys)).astype(np.int64)


def _added_in(added: _Stored, partition: int) -> _Stored:
    found = _removed_in(added, partition)
    values = added.values.filter(arrow_numbers(added.partition == partition))
    return _Stored(found.rows, found.owner, found.partition, found.keys, values)


def _removed_in(removed: _Keyed, partition: int) -> _Keyed:
    chosen = removed.partition == partition
    mine = chosen[removed.owner]
    owner = (np.cumsum(chosen) - 1)[removed.owner[mine]]
    at = arrow_numbers(np.flatnonzero(chosen))
    rows = removed.rows.take(arrow_numbers(np.flatnonzero(mine)))
    return _Keyed(rows, owner, removed.partition[chosen], removed.keys.take(at))


def _of_partition(
    checkpoint: Checkpoint,
    view: StateView,
    name: str,
    removed: _Keyed,
    added: _Stored,
    partition: int,
    *,
    alone: bool,
) -> StoredEdit:
    state = f"state {name} of {checkpoint.root.path}"
    if not alone:
        state = f"{state}: {view.name}, whose rows follow"
    if partition not in view.store.partitions:
        raise refused(f"{state}: its rows belong to partition {partition}, and there are only {view.store.partitions}")
    stored = looked_up(checkpoint, view, partition, pa.concat_arrays([removed.keys, added.keys]))
    at = pc.index_in(removed.keys, value_set=stored.column(0))
    if at.null_count:
        raise refused(
            f"{state}: {at.null_count} rows that the edit removes or changes are not stored in partition {partition}; "
            f"{ANEW}"
        )
    before = stored.take(at)
    _check_same(checkpoint, view, partition, state, removed, before)
    known = pc.index_in(added.keys, value_set=removed.keys)
    new = bools(pc.is_null(known))
    if new.any():
        _check_free(state, added.keys.filter(arrow_numbers(new)), stored)
        if alone:
            check_places(checkpoint, view, partition, state)
    changed = arrow_numbers(np.flatnonzero(~new))
    old = known.take(changed)
    if alone and not view.listed:
        values = _column(removed.rows, 1).take(old), _column(added.rows, 1).take(changed)
        check_buffers(name, checkpoint.operator(view.operator_id), view, *values)
    differs = new.copy()
    differs[~new] = ~bools(pc.equal(before.column(1).take(old), added.values.take(changed)))
    put = pa.RecordBatch.from_arrays([added.keys, added.values], schema=ROW_SCHEMA).filter(arrow_numbers(differs))
    erased = removed.keys.filter(pc.invert(pc.is_in(removed.keys, value_set=added.keys)))
    return StoredEdit(view.operator_id, view.store.name, view.family.name, partition, put, erased)


ANEW = "it was computed from other state, or rows lie where no hash says: compute the edit anew from this checkpoint"


def looked_up(checkpoint: Checkpoint, view: StateView, partition: int, keys: pa.BinaryArray) -> pa.RecordBatch:
    """The stored rows (key, value) of these keys."""
    return rows_of_keys(open_partition(checkpoint, view.store, partition, view.family.name), keys)


def _check_same(
    checkpoint: Checkpoint, view: StateView, partition: int, state: str, removed: _Keyed, stored: pa.RecordBatch
) -> None:
    """Check that stored rows show as the edit says."""
    if not stored.num_rows:
        return
    shown = renamed(state_decoder(checkpoint, view, partition, None)(StoredRows(stored)))
    rows = pa.Table.from_batches([shown.select(removed.rows.schema.names)])
    same = _are_same(checkpoint, view, partition, rows, removed.rows)
    if not same.all():
        count, first = int(np.count_nonzero(~same)), int(np.argmax(removed.owner == np.argmin(same)))
        key = str(removed.rows.column(0)[first].as_py())[:200]
        what = "lists" if view.listed else "rows"
        raise refused(
            f"{state}: {count} {what} in partition {partition} are not stored as the edit says that they were, the "
            f"first of them that of the key {key}; {ANEW}"
        )


def _are_same(checkpoint: Checkpoint, view: StateView, partition: int, rows: pa.Table, others: pa.Table) -> Bools:
    """Return which keys have equal rows, in the form in which they would be stored; without one, as Python shows
    them."""
    try:
        one, other = (
            encode_rows_in(checkpoint, view, each, np.full(each.num_rows, partition)).values.copied(corrupt_row)
            for each in (rows, others)
        )
    except (InvalidInputError, UnsupportedError):
        if view.listed:
            raise
        pairs = zip(rows.to_pylist(), others.to_pylist(), strict=True)
        return np.array([repr(row) == repr(other) for row, other in pairs], np.bool_)
    return bools(pc.equal(one, other))


def _check_free(state: str, keys: pa.BinaryArray, stored: pa.RecordBatch) -> None:
    found = pc.sum(pc.is_in(keys, value_set=stored.column(0))).as_py()
    if found:
        raise refused(f"{state}: {found} rows that the edit inserts have keys that are stored; update these rows")


def check_places(checkpoint: Checkpoint, view: StateView, partition: int, state: str) -> None:
    """Raise InvalidInputError EDIT_REFUSED unless Spark looks for keys of a partition where their hashes say."""
    check = placement_check(checkpoint, view, partition)
    if check is None:
        if view.store.count == 1:
            return
        raise refused(
            f"{state}: it is not certain in which partition Spark looks for a new key, because the query was begun "
            "before Spark 3.3, or had another number of partitions; only rows that are stored can be changed or deleted"
        )
    source = open_partition(checkpoint, view.store, partition, view.family.name)
    for some in islice(stored_rows(source, _first_rows), 1):
        check.add(state_decoder(checkpoint, view, partition, ("key",))(some))
    if check.misplaced:
        raise refused(
            f"{state}: {check.misplaced} keys are stored in partition {partition}, and belong to another one by their "
            "hash: Spark would not find a new key; only rows that are stored can be changed or deleted"
        )


def _late(checkpoint: Checkpoint, view: StateView, removed: _Keyed, added: _Stored) -> int:
    """Return how many added rows the watermark removes at once."""
    watermark = next_watermark(checkpoint)
    late = late_rows(view, added.rows, watermark)
    if not late.any():
        return 0
    # Rows that the watermark is about to remove, and with them to emit, may be repaired before.
    were_late = removed.keys.filter(arrow_numbers(late_rows(view, removed.rows, watermark)))
    late &= ~bools(pc.is_in(added.keys, value_set=were_late))
    return int(np.count_nonzero(late))


def _notes_of_late(checkpoint: Checkpoint, state: str, count: int, options: EditOptions) -> Sequence[str]:
    if not count:
        return ()
    watermark = next_watermark(checkpoint)
    what = f"{count} added rows are older than the watermark, {watermark} ms, and the next batch removes them"
    if options.allow_late:
        return (f"{state}: {what}.",)
    raise refused(f"{state}: {what}; leave them out, or allow late rows (--allow-late)")


def _column(rows: pa.Table, number: int) -> pa.Array:
    return rows.column(number).combine_chunks()


# Rows whose partition no rule says: of queries that Spark before 3.3 began, after repartitions, of types without a hash


def _searched(
    checkpoint: Checkpoint, view: StateView, removed: pa.Table, added: pa.Table, unplaced: UnsupportedError
) -> tuple[_Keyed, _Stored]:
    """The rows in the partitions in which those that are removed or changed are found.

    Raises ``unplaced``, which says why no rule is known, for new keys and for states whose keys say their family.
    """
    if view.listed or view.store.has_families or not removed.num_rows:
        raise unplaced
    gone, come = (_encoded_in(checkpoint, view, rows, np.zeros(rows.num_rows, np.int64)) for rows in (removed, added))
    place = np.full(len(gone.keys), -1, np.int64)
    for partition in view.store.partitions:
        stored = looked_up(checkpoint, view, partition, gone.keys)
        here = bools(pc.is_in(gone.keys, value_set=stored.column(0)))
        if (place[here] >= 0).any():
            raise unplaced
        place[here] = partition
    lost, known = int(np.count_nonzero(place < 0)), pc.index_in(come.keys, value_set=gone.keys)
    if lost:
        raise refused(f"{lost} rows that the edit removes or changes are stored in no partition; {ANEW}")
    if known.null_count:
        raise unplaced
    of_come = place[numbers(known)]
    return _Keyed(removed, gone.owner, place, gone.keys), _Stored(added, come.owner, of_come, come.keys, come.values)


def _encoded_in(checkpoint: Checkpoint, view: StateView, rows: pa.Table, partition: Ints) -> _Stored:
    return _added(checkpoint, view, rows, encode_rows_in(checkpoint, view, rows, partition))


def _first_rows(rows: StoredRows) -> StoredRows:
    few = slice(0, _SAMPLED)
    return StoredRows((rows.keys.select(few), rows.values.select(few)))
