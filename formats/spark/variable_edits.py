"""Edits of variables of transformWithState, and of its timers, with the rows of other families that go with them.

    variable             family             key -> value
    list                 $rowCounter_NAME   key -> the number of entries
    list that expires    $count_NAME        key -> the number of entries
                         $min_NAME          key -> the earliest end of an entry
                         $ttl_NAME          that end, key -> nothing
    value that expires   $ttl_NAME          its end, key -> nothing
    map that expires     $ttl_NAME          the end of an entry, (key, key of the entry) -> nothing
    timers               ..._timestampToKey  time, key -> nothing

No table shows these. Spark finds what has expired, and timers that are due, by the families that begin with a time
alone. A list that expires has a family $rowCounter_NAME, too, in which Spark keeps nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.edits import EditOptions, StateEdit
from statestore.formats.kernels.arrays import Ints
from statestore.formats.spark.checkpoint.checkpoint import Checkpoint
from statestore.formats.spark.checkpoint.state_errors import corrupt_row, refused
from statestore.formats.spark.checkpoint.state_views import StateView, find_state_view, state_fields
from statestore.formats.spark.editable_states import EXPIRES_MS, TIMES, companions_of, next_watermark
from statestore.formats.spark.edits.stored_edits import StoredEdit
from statestore.formats.spark.state_edits import PlacedRows, as_shown, following_edits, stored_edits
from statestore.formats.spark.state_encoding import encode_keys_in, places_of
from statestore.formats.values.without_pandas import arrow_numbers

_MIN, _EVENT_TIMERS = "$min_", "$eventTimers"


@dataclass(frozen=True)
class _Units:
    """What rows of other families are made of: the first columns of each key of a variable, its partition, the number
    of its entries and the earliest of their ends, or the time of a timer."""

    keys: Sequence[pa.Array]
    partition: Ints
    count: Ints
    ends: Ints | None


def variable_edits(
    checkpoint: Checkpoint, view: StateView, edit: StateEdit, options: EditOptions
) -> tuple[Sequence[StoredEdit], Sequence[str]]:
    """(the edits of stored rows, what the user has to know) of an edit of a variable or of timers.

    Raises InvalidInputError EDIT_REFUSED for rows that are not stored so, that are stored already, whose place is not
    certain, or that have no end where others have one, and the errors of reads.
    """
    state = f"state {edit.state} of {checkpoint.root.path}"
    main, notes = stored_edits(checkpoint, view, edit, options)
    found, told = list(main), []
    names = companions_of(view)
    units = [_units(checkpoint, view, rows, state) for rows in (edit.removed, edit.added)]
    for name in names:
        companion = find_state_view(checkpoint, view.operator_id, name)
        before, after = (_placed(companion, each) for each in units)
        more = following_edits(checkpoint, companion, edit.state, before, after)
        found += more
        put, erased = sum(each.put.num_rows for each in more), sum(len(each.erased) for each in more)
        if more:
            told.append(f"{name} ({put} written, {erased} erased)")
    if told:
        notes = [*notes, f"{state}: rows that no table shows change along, of {', '.join(told)}."]
    return found, [*notes, *_due(checkpoint, view, edit, state)]


def _units(checkpoint: Checkpoint, view: StateView, edited: pa.Table, state: str) -> _Units:
    rows = as_shown(view, edited, state)
    partition = places_of(checkpoint, view, rows)
    ends = _ends(view, rows, state)
    first, count = np.arange(rows.num_rows), np.ones(rows.num_rows, np.int64)
    if view.listed and rows.num_rows:
        # Rows of one key may lie apart in the edit.
        coded = encode_keys_in(checkpoint, view, rows, partition).copied(corrupt_row).dictionary_encode()
        owner = np.asarray(coded.indices.to_numpy(), np.int64)
        first, count = np.unique(owner, return_index=True)[1], np.bincount(owner)
        if ends is not None:
            earliest = np.full(len(first), np.iinfo(np.int64).max)
            np.minimum.at(earliest, owner, ends)
            ends = earliest
    keys = [rows.column(number).combine_chunks() for number in range(2 if view.shape == "map" else 1)]
    return _Units([key.take(arrow_numbers(first)) for key in keys], partition[first], count, ends)


def _ends(view: StateView, rows: pa.Table, state: str) -> Ints | None:
    """The end of each row, in epoch milliseconds; None where rows have none."""
    if view.shape == "timers":
        ends = rows.column(1).combine_chunks()
    elif companions_of(view) and EXPIRES_MS in view.value.names:
        column = rows.columns[-1].combine_chunks()
        ends = pc.struct_field(column, [view.value.names.index(EXPIRES_MS)])
    else:
        return None
    if ends.null_count:
        raise refused(
            f"{state}: {ends.null_count} rows have no time at which they expire; give {EXPIRES_MS}, or the time of the "
            "timer, as epoch milliseconds"
        )
    return np.asarray(ends.to_numpy(), np.int64)


def _placed(companion: StateView, units: _Units) -> PlacedRows:
    """The rows of another family for the keys of a variable."""
    key, value = state_fields(companion)
    count, timed = len(units.partition), companion.family.key.fields[0].name in TIMES
    ends = None if units.ends is None else arrow_numbers(units.ends)
    if timed:
        element = key.type.field(1).type
        of_key = _element(units.keys, element)
        stored_key = pa.StructArray.from_arrays([ends, of_key], fields=list(key.type))
        columns = [pa.nulls(count, field.type) for field in value.type]
    else:
        stored_key = _element(units.keys, key.type)
        columns = [ends if companion.name.startswith(_MIN) else arrow_numbers(units.count)]
    values = pa.StructArray.from_arrays(columns, fields=list(value.type))
    return PlacedRows(pa.Table.from_arrays([stored_key, values], schema=pa.schema([key, value])), units.partition)


def _element(keys: Sequence[pa.Array], kind: pa.DataType) -> pa.Array:
    """The key of an element: that of the variable, for maps with the key of the entry."""
    if len(keys) == 1:
        return keys[0] if keys[0].type.equals(kind) else keys[0].cast(kind)
    columns = [
        key if key.type.equals(field.type) else key.cast(field.type) for key, field in zip(keys, kind, strict=True)
    ]
    return pa.StructArray.from_arrays(columns, fields=list(kind))


def _due(checkpoint: Checkpoint, view: StateView, edit: StateEdit, state: str) -> Iterator[str]:
    """Tell of added rows that the next batch removes, and of timers that it fires."""
    by_event = view.family.name.startswith(_EVENT_TIMERS)
    now = next_watermark(checkpoint) if by_event else checkpoint.batch.timestamp_ms
    ends = _ends(view, as_shown(view, edit.added, state), state)
    if ends is None or not now:
        return
    due = int(np.count_nonzero(ends <= now))
    if due and view.shape == "timers":
        yield f"{state}: {due} timers among the added rows are due, and fire in the next batch."
    elif due:
        batch = checkpoint.batch.batch_id
        yield f"{state}: {due} of the added rows have expired by batch {batch}, and the next batch removes them."
