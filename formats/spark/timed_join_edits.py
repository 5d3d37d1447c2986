"""Edits of one side of a stream-stream join of state format 4: rows of a key and an event time, listed by time, too.

    keyWithTsToValues    key, event time    -> a list of the rows, with whether each was matched
    tsWithKey            event time, key    -> a list of as many entries without values

Spark finds the rows that the watermark removes by the second family. The event time of a key is that of its rows in the
column that has a watermark, in microseconds. A side without such a column has nothing in the second family, and any
number as its time: Spark draws one of 0 .. 1023 for each row, to spread the rows of a key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.edits import StateEdit
from statestore.formats.kernels.arrays import Ints
from statestore.formats.spark.checkpoint.checkpoint import Checkpoint
from statestore.formats.spark.checkpoint.spark_schema import StructOf
from statestore.formats.spark.checkpoint.state_errors import corrupt_row, refused
from statestore.formats.spark.checkpoint.state_views import StateView, find_state_view, state_fields
from statestore.formats.spark.editable_states import BY_TIME, TIMES_OF_KEYS, has_delay
from statestore.formats.spark.edits.stored_edits import StoredEdit
from statestore.formats.spark.join_rows import (
    JoinedRow,
    SideRows,
    content_of,
    decoded_rows,
    fields_of,
    recognised,
    stay_matched,
    successors,
    told_of_rows,
)
from statestore.formats.spark.rows.unsafe_row import struct_array
from statestore.formats.spark.state_edits import ANEW, PlacedRows, as_shown, check_places, following_edits, looked_up
from statestore.formats.spark.state_encoding import encode_keys_in, places_of, with_stored_zeros


def timed_join_edits(
    checkpoint: Checkpoint, side: StateView, edit: StateEdit
) -> tuple[Sequence[StoredEdit], Sequence[str]]:
    """(the edits of stored rows, what the user has to know) of an edit of a side of a join.

    Raises InvalidInputError EDIT_REFUSED for rows that are not stored so, whose place is not certain, whose event time
    is not that of their key, or of which it is not certain which row takes the place of which, and the errors of reads.
    """
    state = f"state {edit.state} of {checkpoint.root.path}"
    stored_view = find_state_view(checkpoint, side.operator_id, f"{side.name}-{BY_TIME}")
    times = find_state_view(checkpoint, side.operator_id, f"{side.name}-{TIMES_OF_KEYS}")
    removed = _rows_of(checkpoint, side, stored_view, as_shown(side, edit.removed, state), new=False)
    added = _rows_of(checkpoint, side, stored_view, as_shown(side, edit.added, state), new=True)
    _check_times(side, added, state)
    units: dict[tuple[int, bytes], tuple[list[int], list[int]]] = {}
    for which, rows in enumerate((removed, added)):
        for number, place in enumerate(rows.places()):
            units.setdefault(place, ([], []))[which].append(number)
    for partition in sorted({place for (place, _), unit in units.items() if not unit[0]}):
        check_places(checkpoint, side, partition, state)
    stored = _stored(checkpoint, side, stored_view, removed)
    flags = np.zeros(len(removed.content), np.bool_), np.zeros(len(added.content), np.bool_)
    # The rows of a list are written in their order, which is not that of the edit where rows of keys alternate.
    order: tuple[list[int], list[int]] = ([], [])
    matched = 0
    for place, (gone, come) in units.items():
        of_key = stored.get(place, [])
        if len(of_key) != len(gone):
            raise refused(
                f"{state}: the edit removes or changes {len(gone)} rows of a key, and {len(of_key)} are stored in "
                f"partition {place[0]}; {ANEW}"
            )
        old = recognised([removed.content[number] for number in gone], of_key, state)
        flags[0][gone] = [row.matched for row in old]
        order[0].extend(gone[number] for number in np.argsort([row.index for row in old]).tolist())
        replaced = successors(old, [added.content[number] for number in come], state)
        flags[1][come] = [row is not None and row.matched for row in replaced]
        matched += stay_matched(replaced, [added.content[number] for number in come])
        order[1].extend(come)
    found: list[StoredEdit] = []
    timed = bool(_timed(side))
    if not timed:
        _check_no_entries(checkpoint, times, removed, state)
    for view in (stored_view, times) if timed else (stored_view,):
        before, after = (
            _placed(view, rows, flags[which], np.array(order[which], np.int64), with_rows=view is stored_view)
            for which, rows in enumerate((removed, added))
        )
        found += following_edits(checkpoint, view, edit.state, before, after)
    notes = [f"{state}: rows are counted by their time, too ({times.name})."] if timed else []
    return found, [*notes, *told_of_rows(checkpoint, side, stored_view, edit, state, matched)]


def _rows_of(checkpoint: Checkpoint, side: StateView, stored: StateView, rows: pa.Table, *, new: bool) -> SideRows:
    """The rows of an edit, of which new ones have the zeros in their keys that the query stores."""
    schema = StructOf(side.family.key.fields[:-1])
    key = fields_of(rows.column(0))
    # Spark places a row by its key without the time.
    by_key = replace(stored, user=True, listed=False, family=replace(stored.family, key=schema))
    alone = rows.set_column(0, "key", struct_array(key[:-1], schema, rows.num_rows))
    if new:
        alone = with_stored_zeros(checkpoint, by_key, alone)
        key = [*fields_of(alone.column(0)), key[-1]]
    partition = places_of(checkpoint, by_key, alone)
    whole = pa.table([struct_array(list(key), side.family.key, rows.num_rows)], names=["key"])
    stored_keys = encode_keys_in(checkpoint, stored, whole, partition).copied(corrupt_row).to_pylist()
    values = fields_of(rows.column(1))
    return SideRows(key, values, partition, stored_keys, content_of(values, side.value, rows.num_rows))


def _check_times(side: StateView, rows: SideRows, state: str) -> None:
    """Check that the event time in the key of each row is that of the row."""
    timed = _timed(side)
    if not timed:
        return
    if len(timed) == 1 and pa.types.is_timestamp(rows.values[timed[0]].type):
        expected = rows.values[timed[0]].cast(pa.int64())
    else:
        return  # the time of a window, or of one of several columns: the query alone knows it
    wrong = pc.sum(pc.not_equal(rows.keys[-1], expected).fill_null(True)).as_py()
    if wrong:
        raise refused(
            f"{state}: {wrong} added rows have another time in key.{side.family.key.fields[-1].name} than they have "
            "themselves; give the microseconds of the column with the watermark"
        )


def _timed(side: StateView) -> list[int]:
    """The columns with a watermark."""
    return [number for number, field in enumerate(side.value.fields) if has_delay(field)]


def _check_no_entries(checkpoint: Checkpoint, times: StateView, removed: SideRows, state: str) -> None:
    key = struct_array(list(removed.keys), times.family.key, len(removed.content))
    keys = encode_keys_in(checkpoint, times, pa.table([key], names=["key"]), removed.partition).copied(corrupt_row)
    for partition in np.unique(removed.partition).tolist():
        mine = pa.array(np.flatnonzero(removed.partition == partition))
        found = looked_up(checkpoint, times, partition, keys.take(mine)).num_rows
        if found:
            raise refused(
                f"{state}: {found} rows have entries in {times.name}, and no column has a watermark, so it is not "
                "known what Spark keeps there; let the query change them"
            )


def _stored(
    checkpoint: Checkpoint, side: StateView, view: StateView, removed: SideRows
) -> dict[tuple[int, bytes], list[JoinedRow]]:
    """The stored rows of each key and time, by their number in the list."""
    found: dict[tuple[int, bytes], list[JoinedRow]] = {}
    for partition in np.unique(removed.partition).tolist():
        keys = [key for place, key in removed.places() if place == partition]
        batch = looked_up(checkpoint, view, partition, pa.array(keys, pa.binary()))
        for number in range(batch.num_rows):
            one = batch.slice(number, 1)
            rows = decoded_rows(checkpoint, side, view, partition, one)
            place = (partition, one.column(0)[0].as_py())
            found[place] = [JoinedRow(index, *row) for index, row in enumerate(rows)]
    return found


def _placed(view: StateView, rows: SideRows, flags: np.ndarray, order: Ints, *, with_rows: bool) -> PlacedRows:
    """Rows of a family in an order: those of the lists, or the entries without values."""
    taken = pa.array(order)
    key = struct_array([column.take(taken) for column in rows.keys], view.family.key, len(order))
    values = [column.take(taken) for column in rows.values] + [pa.array(flags[order])]
    columns = values if with_rows else [pa.nulls(len(order))]
    value = struct_array(columns, view.family.value, len(order))
    table = pa.Table.from_arrays([key, value], schema=pa.schema(state_fields(view)))
    return PlacedRows(table, rows.partition[order])
