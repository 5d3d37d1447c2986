"""The net result of all statements for a state, as one `StateEdit` of whole units."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from statestore.connector.edit.edited_state import EditedState
from statestore.connector.edit.row_changes import key_text
from statestore.connector.edit.units import one_array
from statestore.formats.edits import StateEdit
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.kernels.arrays import Bools, Ints
from statestore.formats.values.comparable_values import comparable
from statestore.formats.values.key_equality import keys_equal


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
    orders = [np.argsort(numbers, kind="stable") for numbers in (before, after)]
    ours, theirs = (
        order[~changed[numbers[order]]] for order, numbers in zip(orders, (before, after), strict=True)
    )  # rows of units of one size, side by side
    changed[before[ours[_differ(state, ours, theirs)]]] = True
    if not changed.any():
        return None
    _check_one_place(state, before, changed & (sizes[0] > 1) & (sizes[1] > 0))
    first = np.full(count, len(before) + len(after), np.int64)
    numbers = np.concatenate([before, after])
    np.minimum.at(first, numbers, np.arange(len(numbers)))
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
    sides = [
        [comparable(one_array(rows.column(name)), by_bits=True, in_order=True) for name in state.own.names]
        for rows in (state.before, state.now)
    ]
    return ~keys_equal(sides[0], ours, sides[1], theirs)


def _chosen(rows: pa.Table, numbers: Ints, changed: Bools, first: Ints) -> pa.Table:
    """Return the rows of changed units, ordered by the first row of each unit."""
    mine = np.flatnonzero(changed[numbers])
    order = mine[np.argsort(first[numbers[mine]], kind="stable")]
    return rows.take(pa.array(order)).combine_chunks()


def net_edits(states: Sequence[EditedState]) -> list[StateEdit]:
    """Return the edits of all states that end otherwise than they began, by name."""
    found = [net_edit(state) for state in sorted(states, key=lambda state: state.name)]
    return [edit for edit in found if edit is not None]
