"""The net result of all statements for a state, as one `StateEdit` of whole units."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from statestore.connector.edit.edited_state import EditedState
from statestore.connector.edit.row_changes import key_text
from statestore.connector.edit.units import equal_rows
from statestore.formats.edits import StateEdit
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.kernels.arrays import Bools, Ints
from statestore.formats.places.held_tables import LARGE, held
from statestore.formats.values.without_pandas import arrow_numbers


def net_edit(state: EditedState) -> StateEdit | None:
    """Return the units whose rows are others than at the beginning, or in another order; None where none are.

    Values are compared by their bits. Units come in the order of the state, new ones last, and the rows of each in its
    order.
    """
    before, after = state.numbers(state.before, state.now)
    count = int(max(before.max(initial=-1), after.max(initial=-1))) + 1
    if not count:
        return None
    sizes = [np.bincount(numbers, minlength=count) for numbers in (before, after)]
    changed: Bools = sizes[0] != sizes[1]
    ours, theirs = (_by_units(numbers, ~changed) for numbers in (before, after))  # of units of one size, side by side
    changed[before[ours[_differ(state, ours, theirs)]]] = True
    if not changed.any():
        return None
    _check_one_place(state, before, changed & (sizes[0] > 1) & (sizes[1] > 0))
    first = np.empty(count, np.int64)
    first[after[::-1]] = len(before) + np.arange(len(after))[::-1]
    first[before[::-1]] = np.arange(len(before))[::-1]  # what is written last stays
    removed = _chosen(state.before, before, changed, first)
    added = _chosen(state.now, after, changed, first)
    return StateEdit(state.table.state, state.unit, removed.select(state.own.names), added.select(state.own.names))


def _check_one_place(state: EditedState, numbers: Ints, doubtful: Bools) -> None:
    """Raise InvalidInputError EDIT_REFUSED for a key that the engine keeps in two places, and that is not removed in
    both: no edit says which row is in which."""
    rows = np.flatnonzero(doubtful[numbers])
    if state.is_keyed and len(rows):
        raise InvalidInputError(
            ErrorCode.EDIT_REFUSED,
            f"{state.name!r} has {key_text(state, state.before, int(rows[0]))} in several places "
            f"({', '.join(state.placement)}), and an edit names rows by their keys; leave it as it is, "
            "or delete it",
        )


def _differ(state: EditedState, ours: Ints, theirs: Ints) -> Bools:
    """Return which rows before differ from the rows now that are paired with them."""
    before, now = (rows.select(state.own.names).combine_chunks() for rows in (state.before, state.now))
    return ~np.concatenate([np.empty(0, np.bool_), *equal_rows((before, ours), (now, theirs), in_order=True)])


def _chosen(rows: pa.Table, numbers: Ints, changed: Bools, first: Ints) -> pa.Table:
    """Return the rows of changed units, ordered by the first row of each unit."""
    mine = np.flatnonzero(changed[numbers])
    firsts = first[numbers[mine]]
    if (firsts[1:] >= firsts[:-1]).all():  # as almost always
        if len(mine) and mine[-1] - mine[0] == len(mine) - 1:
            found = rows.slice(mine[0], len(mine))
            return found.combine_chunks() if found.nbytes < LARGE else found
    else:
        mine = mine[np.argsort(firsts, kind="stable")]
    return held(rows.take(arrow_numbers(mine)).combine_chunks())


def _by_units(numbers: Ints, units: Bools) -> Ints:
    """Return the rows of some units, those of each together and in their order."""
    mine = np.flatnonzero(units[numbers])
    return mine[np.argsort(numbers[mine], kind="stable")]
